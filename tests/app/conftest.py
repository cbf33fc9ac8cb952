"""What tests of the launcher share."""

from collections.abc import Iterator

import pytest

from tests.app.link.chat_server import ChatServer


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """An engine's API with an answer from a script."""
    running = ChatServer()
    yield running
    running.close()
