"""The Chat page in its states, for `python -m tests.gallery`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from PySide6.QtWidgets import QApplication, QPlainTextEdit, QWidget

from app.chat.conversation import AnswerEnd, AnswerStats
from app.chat.store import ChatStore
from app.core.session import SessionState
from app.link.stream import ChatStream
from app.ui.main_window import MainWindow
from app.ui.pages.chat_page import ChatPage
from app.ui.theme import Theme
from app.ui.widgets.rail import RailEntry
from app.ui.window_memory import WindowMemory
from engine.contract.units import GIB
from engine.system.protocols import MemoryUse
from tests.app.link.chat_server import ChatServer, answering
from tests.app.ui import samples

_NOW_S = 1_790_000_000.0
_DAY_S = 86_400.0
_QUESTION = "What is the difference between pinned and locked memory here, and how many layers does each get?"
_ANSWER = """\
A pinned page is registered with the CUDA driver (`cudaHostRegister`), so the GPU can read it over PCIe without a copy.
A locked page only has to stay in RAM (`VirtualLock`); the CPU computes those layers.

## How the split is chosen

1. The KV cache takes what you asked for.
2. Whole expert layers fill the rest of **VRAM**.
3. Host layers are pinned until the quota is full; the others are **locked**.

```python
def split_layers(total: int, vram: int, quota: int, layer_bytes: int):
    \"\"\"Return (vram, pinned, locked) layer counts.\"\"\"
    host = total - vram
    pinned = min(host, quota // layer_bytes)   # the quota counts whole layers
    return vram, pinned, host - pinned

print(split_layers(62, 8, int(95.1 * 2**30), int(1.9 * 2**30)))  # (8, 50, 4)
```

| Tier | Layers | GiB | Read by |
|---|--:|--:|---|
| VRAM | 8 | 15.2 | GPU |
| Pinned | 50 | 95.0 | GPU over PCIe |
| Locked | 4 | 7.6 | CPU |

> Locked layers are slower per token, but they do not count against the quota.
"""
_STATS = AnswerStats(
    prompt_tokens=1204,
    answer_tokens=486,
    cached_tokens=1020,
    ttft_s=2.1,
    prefill_tok_s=573.0,
    decode_tok_s=9.4,
    model="MiniMax-M2.5",
)
_ENDS = (AnswerEnd.STOPPED_BY_USER, AnswerEnd.LENGTH, AnswerEnd.CACHE_FULL, AnswerEnd.INTERRUPTED, AnswerEnd.ERROR)


@dataclass(frozen=True, slots=True)
class ChatScene:
    """One picture. `fill` writes what follows the question in the open chat; None: a new chat is open."""

    state: SessionState
    fill: Callable[[ChatStore, int], None] | None = None
    writing: bool = False
    size: tuple[int, int] = (1180, 800)


def _answered(store: ChatStore, chat_id: int) -> None:
    store.end_answer(store.begin_answer(chat_id).id, _ANSWER, AnswerEnd.NORMAL, _STATS)


def _unanswered(store: ChatStore, chat_id: int) -> None:
    """Nothing follows."""


def _ended(store: ChatStore, chat_id: int) -> None:
    for end in _ENDS:
        store.end_answer(store.begin_answer(chat_id).id, f"An answer that ended: {end.value}.", end, _STATS)
        store.add_user_message(chat_id, "And then?")


def scenes() -> dict[str, ChatScene]:
    """Every state, by name."""
    ready, stopped = samples.ready().session, samples.stopped().session
    answered = ChatScene(ready, _answered)
    return {
        "chat": answered,
        "chat-small": replace(answered, size=(880, 600)),
        "chat-writing": ChatScene(ready, writing=True),
        "chat-ends": ChatScene(ready, _ended),
        "chat-new": ChatScene(ready),
        "chat-stopped": ChatScene(stopped),
        "chat-loading": ChatScene(samples.loading().session, _unanswered),
        "chat-unanswered": ChatScene(stopped, _unanswered),
        "chat-failed": ChatScene(samples.crashed().session, size=(880, 600)),
    }


@contextmanager
def shown(app: QApplication, theme: Theme, scene: ChatScene, folder: Path) -> Iterator[MainWindow]:
    """The window with this scene on screen; nothing is left running."""
    clock = [_NOW_S]
    store = ChatStore.in_memory(lambda: clock[0])
    for title, days in (("Regex for GGUF shards", 40), ("Draft: release note 0.2 with a long title", 3), ("CUDA", 1)):
        clock[0] = _NOW_S - days * _DAY_S
        store.start_chat(title)
    clock[0] = _NOW_S
    server, stream = ChatServer(), ChatStream()
    page = ChatPage(theme, store, stream, today=lambda: date.fromtimestamp(_NOW_S))
    window = MainWindow(theme, _pages(page), WindowMemory(folder / "window.ini"))
    window.resize(*scene.size)
    use = MemoryUse(int(117.6 * GIB), int(191.7 * GIB), int(30.8 * GIB), int(31.8 * GIB))
    window.rail.show_memory(use, pinned_bytes=int(95.5 * GIB), quota_bytes=int(95.6 * GIB))
    page.show_session(replace(scene.state, port=server.port) if scene.writing else scene.state)
    window.show_page("chat")
    window.show()
    if scene.fill is not None:
        chat = store.start_chat(_QUESTION)
        store.rename(chat.id, "Pinned and locked memory")
        scene.fill(store, chat.id)
        page.flow.open(chat.id)
    if scene.writing:
        half = _ANSWER[: _ANSWER.index("_layers(62")]
        server.script = answering(half, wait=True)
        page.flow.send(_QUESTION)
        while not any("print" in part.toPlainText() for part in page.findChildren(QPlainTextEdit)):
            app.processEvents()
    try:
        yield window
    finally:
        server.go_on.set()
        stream.stop()
        server.close()
        window.close()
        window.deleteLater()
        store.close()


def _pages(page: ChatPage) -> tuple[tuple[RailEntry, QWidget], ...]:
    return (RailEntry("split", "split", "Split"), QWidget()), (RailEntry("chat", "chat", "Chat"), page)
