"""Looks whether the books of the loaded model agree, and tells what does not, once for each finding."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.contract.events import Event, IntegrityBroken

if TYPE_CHECKING:
    from engine.model.interface import LanguageModel

log = logging.getLogger(__name__)


class IntegrityWatch:
    """Asked when nothing is computed: after a request that failed or was cancelled, and now and then when idle."""

    def __init__(self, model: "LanguageModel", report: Callable[[Event], None]) -> None:
        self._model = model
        self._report = report
        self._told: tuple[str, ...] = ()

    def look(self) -> None:
        """Compare, and tell what is new."""
        findings = self._model.check_integrity()
        if findings and findings != self._told:
            for finding in findings:
                log.error("the books do not agree: %s", finding)
            self._report(IntegrityBroken(findings=findings))
        self._told = findings
