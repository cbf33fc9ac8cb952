"""The HTTP server in a thread, on a socket that is bound before anything else can fail."""

import errno
import socket
import threading

import uvicorn
from fastapi import FastAPI

from engine.serve.connections import BoundedProtocol
from engine.serve.problems import PortTakenError

HOST = "127.0.0.1"
_WORDS = {
    errno.EADDRINUSE: "another program listens there",
    errno.EACCES: "the system does not give it out",
}


def bind(port: int) -> socket.socket:
    """Take the port; 0 takes any free one.

    Raises:
        PortTakenError: somebody else listens there, or it cannot be had.
    """
    try:
        return socket.create_server((HOST, port))
    except OSError as cause:
        words = _WORDS.get(cause.errno or 0, cause.strerror or str(cause))
        raise PortTakenError(port=port, words=words) from cause


class HttpServer:
    """Serves an app until told to stop."""

    def __init__(self, app: FastAPI, listening: socket.socket) -> None:
        self._listening = listening
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        port: int = self._listening.getsockname()[1]
        return port

    def start(self) -> None:
        """Serve from now on; connections made since `bind` have waited."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Let running responses end for a moment, then close."""
        self._server.should_exit = True
        self._thread.join(timeout_s)

    def _run(self) -> None:
        with self._listening:
            self._server.run(sockets=[self._listening])
