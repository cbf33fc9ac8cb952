"""Connections of clients: no more than there is room for, and none that stays silent."""

import asyncio
from typing import cast

from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

MOST_CONNECTIONS = 256  # Linux gives a process 1,024 files; one client has a handful
SILENT_S = 30.0


class BoundedProtocol(H11Protocol):
    """uvicorn's own, which drops a connection that is one too many, or does not say what it wants in time.

    uvicorn itself has a limit only for the time between two requests.
    """

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look: asyncio.TimerHandle | None = None
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._look_later(was_silent=False)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def _look_later(self, *, was_silent: bool) -> None:
        self._look = self.loop.call_later(SILENT_S / 2, self._drop_if_silent, was_silent)

    def _drop_if_silent(self, was_silent: bool) -> None:
        """Twice in a row nothing is being answered, and uvicorn does not wait for another request either."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        silent = (cycle is None or cycle.response_complete) and self.timeout_keep_alive_task is None
        if silent and was_silent:
            self.transport.abort()
        else:
            self._look_later(was_silent=silent)
