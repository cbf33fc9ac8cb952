"""How an engine is stopped: asked, asked again, told, ended. Each step has a deadline."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from engine.contract.events import Stop
from engine.contract.wire import encode
from engine.system.protocols import ChildProcess

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StopLadder:
    """Seconds each step may take. Freeing large pinned memory takes 0.1 to 0.2 s per GiB."""

    command_s: float = 15.0
    close_s: float = 3.0
    terminate_s: float = 3.0
    gone_s: float = 10.0

    def descend(self, child: ChildProcess) -> str:
        """Go down the steps until the process has ended, and name the step that did it.

        The rest of its tree is ended in any case. "nothing" means that something still lives.
        """
        steps: tuple[tuple[str, float, Callable[[], None]], ...] = (
            ("command", self.command_s, lambda: _command(child)),
            ("closed input", self.close_s, lambda: _close(child)),
            ("terminate", self.terminate_s, child.terminate),
        )
        reached = "kill"
        for name, limit_s, act in steps:
            act()
            if child.wait(limit_s) is not None:
                reached = name
                break
        return reached if self.clear(child) else "nothing"

    def clear(self, child: ChildProcess) -> bool:
        """End whatever is left of the tree; False if something still lives after the deadline."""
        deadline = monotonic() + self.gone_s
        while child.poll() is None or child.tree():
            if monotonic() > deadline:
                log.error("engine processes that do not end: %s", child.tree())
                return False
            child.kill_tree()
            child.wait(0.05)
        return True


def _command(child: ChildProcess) -> None:
    with suppress(OSError, ValueError):  # it ended a moment ago, or its input is closed already
        child.stdin.write(encode(Stop()))
        child.stdin.flush()


def _close(child: ChildProcess) -> None:
    with suppress(OSError):  # unread input of a process that is gone
        child.stdin.close()
