"""Drivers nobody may ask for anything: for loads that must be refused before anything is allocated."""

from engine.model.build import Drivers


class _Untouched:
    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was asked for")


def untouched_drivers() -> Drivers:
    """A load that is refused in time never looks at them."""
    nothing = _Untouched()
    return Drivers(nothing, nothing, nothing)  # type: ignore[arg-type]
