"""A chat API on 127.0.0.1 whose every answer is a script of the test, on a thread of its own."""

import json
import queue
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

Script = Callable[["Exchange"], None]


class Exchange:
    """One request as a test's script sees it, on the server's thread."""

    def __init__(self, handler: BaseHTTPRequestHandler, body: dict[str, Any], go_on: threading.Event) -> None:
        self._handler = handler
        self.body = body
        self.path = handler.path
        self.go_on = go_on

    def start(self, status: int = 200, content_type: str = "text/event-stream") -> None:
        self._handler.send_response(status)
        self._handler.send_header("Content-Type", content_type)
        self._handler.send_header("Connection", "close")
        self._handler.end_headers()

    def write(self, data: bytes) -> None:
        self._handler.wfile.write(data)
        self._handler.wfile.flush()

    def text(self, text: str) -> None:
        self.event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})

    def event(self, body: dict[str, Any]) -> None:
        self.write(b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n")

    def end(self, reason: str = "stop", **more: Any) -> None:
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], **more})


class ChatServer:
    """127.0.0.1 with one script for every request."""

    def __init__(self) -> None:
        self.script: Script = lambda exchange: None
        self.requests: queue.Queue[Exchange] = queue.Queue()
        self.broken: queue.Queue[str] = queue.Queue()
        self.go_on = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            @override
            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                exchange = Exchange(self, body, server.go_on)
                server.requests.put(exchange)
                try:
                    server.script(exchange)
                except OSError as cause:
                    server.broken.put(type(cause).__name__)

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def port(self) -> int:
        return self._http.server_port

    @property
    def api_base(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def close(self) -> None:
        self.go_on.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def answering(*pieces: str, reason: str = "stop", prompt_tokens: int = 7, wait: bool = False) -> Script:
    """A whole answer with its numbers. With `wait` it pauses before the end until the test sets `go_on`."""

    def script(exchange: Exchange) -> None:
        exchange.start()
        for piece in pieces:
            exchange.text(piece)
        if wait and not exchange.go_on.wait(10):
            return
        timings = {"ttft_s": 0.5, "prefill_tok_s": 100.0, "decode_tok_s": 9.5}
        exchange.end(reason, timings=timings)
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": len(pieces)}
        exchange.event({"choices": [], "usage": usage, "timings": timings})
        exchange.write(b"data: [DONE]\n\n")

    return script


def refusing(status: int, code: str, message: str, **more: Any) -> Script:
    """An OpenAI error body."""

    def script(exchange: Exchange) -> None:
        exchange.start(status, "application/json")
        exchange.write(json.dumps({"error": {"message": message, "code": code, **more}}).encode())

    return script
