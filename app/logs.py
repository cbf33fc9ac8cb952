"""The launcher's own log. Prompts and answers are never logged."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path

from typing_extensions import override

LOG_NAME = "launcher.log"
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_FILE_BYTES = 1 << 20
_OLD_FILES = 3


class _Handler(RotatingFileHandler):
    @override
    def handleError(self, record: logging.LogRecord) -> None:
        """A record that a full disk or another launcher's grip on the file refused is lost, without a traceback."""


@contextmanager
def logging_to(logs_dir: Path, level: int = logging.INFO) -> Iterator[Path | None]:
    """Write records of the launcher's packages to `logs_dir`/launcher.log while the block runs.

    Yields the file, or None if it cannot be written: a full disk must not keep Splitpin from starting.
    """
    try:
        logs_dir.mkdir(parents=True, exist_ok=True)
        handler = _Handler(logs_dir / LOG_NAME, maxBytes=_FILE_BYTES, backupCount=_OLD_FILES, encoding="utf-8")
    except OSError as cause:
        logging.getLogger(__name__).warning("no log file in %s: %s", logs_dir, cause)
        yield None
        return
    handler.setFormatter(logging.Formatter(_FORMAT))
    logger = logging.getLogger("app")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield logs_dir / LOG_NAME
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        with suppress(OSError):  # a full disk refuses what is still in the buffer
            handler.close()
