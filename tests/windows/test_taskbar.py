"""The look of the taskbar, asked of Windows itself."""

import os

import pytest

from engine.system.taskbar import dark_taskbar

pytestmark = [
    pytest.mark.windows,
    pytest.mark.skipif(os.name != "nt", reason="needs Windows or the Windows interpreter under Wine"),
]


def test_windows_says_or_has_no_such_setting() -> None:
    assert dark_taskbar() in (True, False, None)
