"""Tiny checkpoints, built once per run, and models that are closed after the test."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from engine.contract.events import Event
from engine.contract.plan import MemoryPlan
from engine.model import model_files
from engine.model.build import Drivers, load_model
from engine.model.loaded import LoadedModel
from tests.support.tiny_families import tiny_family
from tests.support.tiny_models import MAKERS, TinyModel

Load = Callable[..., LoadedModel]
Tiny = Callable[[str], TinyModel]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Tiny checkpoint by family name; tests must not change its files."""

    @cache
    def make(family: str) -> TinyModel:
        return MAKERS[family](Path(tmp_path_factory.mktemp("models")) / family)

    return make


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The same for every family of transformers."""

    @cache
    def make(family: str) -> TinyModel:
        return tiny_family(family, Path(tmp_path_factory.mktemp("families")) / family)

    return make


@pytest.fixture
def any_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that no planner makes of its folder is loaded all the same."""
    monkeypatch.setattr(model_files, "check_unchanged", lambda planned, found: None)


@pytest.fixture
def load() -> Iterator[Load]:
    """Loads plans and closes the models afterwards."""
    loaded: list[LoadedModel] = []

    def one(plan: MemoryPlan, *, events: list[Event] | None = None, drivers: Drivers | None = None) -> LoadedModel:
        report = (events if events is not None else []).append
        loaded.append(load_model(plan, report=report, cancelled=lambda: False, drivers=drivers))
        return loaded[-1]

    yield one
    for model in loaded:
        model.close()
