"""The look of the taskbar."""

import pytest

from engine.system.taskbar import dark_taskbar


@pytest.mark.parametrize(("setting", "dark"), [(0, True), (1, False), (None, None)])
def test_the_setting_of_the_system_decides_not_that_of_programs(setting: int | None, dark: bool | None) -> None:
    assert dark_taskbar(lambda: setting) is dark
