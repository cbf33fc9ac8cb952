"""The one error of the recipe."""

from engine.contract.errors import SplitpinError


class DemoModelError(SplitpinError):
    """The demo model cannot be prepared."""

    kind = "demo_model"
