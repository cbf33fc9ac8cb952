"""The store tells of changes, and only of changes."""

from pytestqt.qtbot import QtBot

from app.core.session import EngineStage, StartRequested, StopRequested
from app.link.store import SessionStore
from tests.support.tiny_plan import tiny_plan


def test_a_change_is_told_once_and_nothing_else_is(qtbot: QtBot) -> None:
    store = SessionStore()
    told: list[EngineStage] = []
    store.changed.connect(lambda state: told.append(state.stage))
    store.apply(StopRequested())
    store.apply(StartRequested(tiny_plan()))
    store.apply(StartRequested(tiny_plan()))
    assert told == [EngineStage.STARTING]
    assert store.state.stage is EngineStage.STARTING
