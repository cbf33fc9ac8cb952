"""One window a profile: a second start raises the first window, hands on the model it was to open, and ends.

The lock decides who is first, because on Windows two servers may listen on one name; the local server only carries
the wish to be raised. A wish is one line: "raise", or "open" and the path of a folder as JSON.
"""

import hashlib
import json
import logging
from contextlib import suppress
from pathlib import Path

import psutil
from PySide6.QtCore import QLockFile, QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from engine.contract.errors import SplitpinError
from engine.system.select import allow_foreground

log = logging.getLogger(__name__)

ANSWER_MS = 5_000
GREETING_MS = 200  # a second start says what it wants at once; the window waits no longer for it
_RAISE, _RAISED = b"raise\n", b"raised\n"
_OPEN = b"open "
_LONGEST_LINE = 128 * 1024  # paths of Windows have at most 32,767 characters


class AlreadyOpenError(SplitpinError):
    """Another Splitpin has this profile open, and does not answer."""

    kind = "already_open"

    def __init__(self, pid: int | None) -> None:
        who = "" if pid is None else f" (PID {pid})"
        super().__init__(
            f"Splitpin is already open with this profile{who}, but it does not answer.",
            "Wait until it answers or end it; or start with another profile: --profile-dir DIR.",
            pid=pid,
        )


class SingleInstance(QObject):
    """The right to be the window of a profile.

    Signals:
        raise_wanted: somebody started Splitpin a second time.
        model_wanted: and named a model folder (Path); follows `raise_wanted`.
    """

    raise_wanted = Signal()
    model_wanted = Signal(object)

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._file = folder / "window.lock"
        self._lock = QLockFile(str(self._file))
        self._lock.setStaleLockTime(0)  # age says nothing: a window may be open for weeks
        self._name = "splitpin-" + hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:16]
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._greet)

    def acquire(self) -> bool:
        """Be the first, or False. A folder that cannot be written keeps nobody from opening a window."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as cause:
            log.warning("no lock for this window: %s", cause)
            return True
        if not self._lock.tryLock(0) and not self._take_over():
            if self._lock.error() is QLockFile.LockError.LockFailedError:
                return False
            log.warning("no lock for this window: %s", self._lock.error())
            return True
        QLocalServer.removeServer(self._name)  # of a first that was killed; whoever holds the lock may
        if not self._server.listen(self._name):
            log.warning("a second start cannot raise this window: %s", self._server.errorString())
        return True

    def call_first(self, model: Path | None = None) -> None:
        """Ask the first window to come to the front, and to choose a model.

        Raises:
            AlreadyOpenError: it does not answer.
        """
        pid = self._holder()
        if pid is not None:
            allow_foreground(pid)
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        try:
            if not socket.waitForConnected(ANSWER_MS):
                raise AlreadyOpenError(pid)
            socket.write(_RAISE if model is None else _OPEN + json.dumps(str(model)).encode("ascii") + b"\n")
            if not socket.waitForReadyRead(ANSWER_MS) or socket.readAll().data() != _RAISED:
                raise AlreadyOpenError(pid)
        finally:
            socket.abort()

    def close(self) -> None:
        """Let others be first."""
        self._server.close()
        self._lock.unlock()

    def _take_over(self) -> bool:
        """The lock of a dead window, where its pid has passed to another program: that one started after the lock."""
        pid = self._holder()
        if pid is None:
            return False
        with suppress(psutil.Error, OSError):
            if psutil.Process(pid).create_time() > self._file.stat().st_mtime + 1.0:
                self._file.unlink()
                return self._lock.tryLock(0)
        return False

    def _holder(self) -> int | None:
        *_, pid, _host, _program = self._lock.getLockInfo()  # releases differ in whether "found" comes first
        return int(pid) or None

    def _greet(self) -> None:
        while (caller := self._server.nextPendingConnection()) is not None:
            while not caller.canReadLine() and caller.waitForReadyRead(GREETING_MS):
                pass  # a long path may come in pieces
            line = bytes(caller.readLine(_LONGEST_LINE).data())
            model = _folder_in(line)
            if line == _RAISE or model is not None:
                caller.write(_RAISED)
                caller.waitForBytesWritten(GREETING_MS)
                self.raise_wanted.emit()
            if model is not None:
                self.model_wanted.emit(model)
            caller.disconnectFromServer()
            caller.deleteLater()


def _folder_in(line: bytes) -> Path | None:
    """The folder that a second start names, or None."""
    if not line.startswith(_OPEN):
        return None
    try:
        named = json.loads(line.removeprefix(_OPEN))
    except ValueError:
        return None
    return Path(named) if isinstance(named, str) and named else None
