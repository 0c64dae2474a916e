"""A stand-in for vLLM's OpenAI-compatible server, on loopback: it answers as it is told, failures included.

The shape of its answers is that of vLLM 0.33 (`reasoning`, arguments as JSON text).
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[[dict[str, Any], int], tuple[int, dict[str, str], bytes]]
"""(the request's body, how often this question was asked before) -> status, headers, body."""
JSON = {"Content-Type": "application/json"}


def completion(content: str, *, reasoning: str = "I know this.", finish: str = "stop", **more: Any) -> bytes:
    """The body of a chat completion."""
    message = {"role": "assistant", "content": content, "reasoning": reasoning, **more}
    return json.dumps({"choices": [{"message": message, "finish_reason": finish}]}).encode()


def echo(body: dict[str, Any], before: int) -> tuple[int, dict[str, str], bytes]:
    """Answers every question with its last user message."""
    return 200, JSON, completion("You said: " + body["messages"][-1]["content"])


class ModelServer:
    """The running server: its address, and the bodies that it was sent."""

    def __init__(self, url: str) -> None:
        self.url, self.asked = url, list[dict[str, Any]]()


@contextlib.contextmanager
def serve(reply: Reply, token: str = "") -> Iterator[ModelServer]:
    """Serve `reply` for chat completions, and one model; with a token, only to those who send it."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            models = json.dumps({"data": [{"id": "stand-in"}]}).encode()
            self._send(*((200, JSON, models) if self.path == "/v1/models" else (404, JSON, b"{}")))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                before = sum(one["messages"] == body["messages"] for one in server.asked)
                server.asked.append(body)
            self._send(*reply(body, before))

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            if token and self.headers.get("Authorization") != f"Bearer {token}":
                status, body = 401, b"{}"
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the client had enough
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the base class names it so
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = ModelServer(f"http://127.0.0.1:{http.server_port}/v1")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
