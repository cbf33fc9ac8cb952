"""While the slider moves, the numbers change and nothing else does."""

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.ui.pages.split_page import SplitPage
from app.ui.split_presenter import present
from app.ui.theme import Theme
from tests import gallery
from tests.app.ui import samples


@pytest.mark.parametrize("size", [(1180, 800), (1000, 700), (880, 600)])
def test_columns_stay_where_they_are_from_one_end_of_the_slider_to_the_other(
    size: tuple[int, int], qapp: QApplication, qtbot: QtBot, theme: Theme, tmp_path: Path
) -> None:
    contexts = tuple(9_472 + 90_112 * step for step in range(12))  # four digits more at the right end
    inputs = replace(samples.stopped(), stops=samples.stops_of(contexts, 0))
    window = gallery.build(theme, gallery.Scene(inputs, size=size), tmp_path)
    qtbot.addWidget(window)
    window.show()
    page = window.findChild(SplitPage)
    assert page is not None
    places = set()
    for context in (contexts[0], contexts[1], contexts[-1]):
        plan = samples.plan_of(samples.MINIMAX, 8, 50, context=context, vram_budget=None)
        page.show_view(present(replace(inputs, plan=plan)))
        gallery.settle(qapp)
        places.add(tuple(tile.mapTo(page, QPoint(0, 0)).x() for tile in (*page.trade.tiles, page.trade.speed)))
    assert len(places) == 1
    tiles = (*page.trade.tiles, page.trade.speed)
    assert all(tile.width() >= tile.need_px - 1 for tile in tiles), "each has the room that its number needs"


def test_the_cards_stay_where_they_are_from_a_split_to_one_that_does_not_fit_and_while_the_engine_loads(
    qapp: QApplication, qtbot: QtBot, theme: Theme, tmp_path: Path
) -> None:
    window = gallery.build(theme, gallery.Scene(samples.stopped()), tmp_path)
    qtbot.addWidget(window)
    window.show()
    page = window.findChild(SplitPage)
    assert page is not None
    places = set()
    for inputs in (samples.stopped(), samples.over(), samples.loading(), samples.ready(), samples.answering()):
        page.show_view(present(inputs))
        gallery.settle(qapp)
        places.add((page.trade.y(), page.layers.y(), page.memory.y(), page.trade.slider.y()))
    assert len(places) == 1
