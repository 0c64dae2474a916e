"""A stand-in for a model hub on loopback: the few answers that fetching a repository needs."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "c0ffee" + "0" * 34
BLOCK = 1 << 16


class Hub(ThreadingHTTPServer):
    """Serves the files under `files` as `org/model`; `stall` stops each file after so many bytes."""

    daemon_threads = True

    def __init__(self, files: Path) -> None:
        self.files, self.stall = files, 0
        self.ranges: list[int] = []
        """First byte of each request for a file's content."""
        self.damage = ""
        """A file whose content comes with its last byte changed."""
        super().__init__(("127.0.0.1", 0), Answer)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answer(BaseHTTPRequestHandler):
    server: Hub  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        path = self.path.split("?")[0].strip("/").split("/")
        if path[:2] == ["api", "models"] and path[2:4] == ["org", "model"] and "tree" not in path:
            if path[4:5] == ["revision"] and path[5] not in ("main", COMMIT):
                return self.send(404, b"", {"X-Error-Code": "RevisionNotFound"})
            return self.send(200, json.dumps(self.info()).encode(), {})
        if path[:2] == ["api", "models"] and "tree" in path:
            return self.send(200, json.dumps(self.tree()).encode(), {})
        if path[:3] == ["org", "model", "resolve"]:
            return self.file("/".join(path[4:]), body=body)
        return self.send(401, b"", {"X-Error-Code": "RepoNotFound"})

    def info(self) -> dict[str, Any]:
        return {"id": "org/model", "sha": COMMIT, "siblings": [self.entry(f) for f in self.listed()]}

    def tree(self) -> list[dict[str, Any]]:
        entries = [self.entry(file) for file in self.listed()]
        return [{"type": "file", "oid": "0", "path": e.pop("rfilename"), **e} for e in entries]

    def listed(self) -> list[Path]:
        return sorted(path for path in self.server.files.iterdir() if path.is_file())

    def entry(self, file: Path) -> dict[str, Any]:
        content = file.read_bytes()
        entry: dict[str, Any] = {"rfilename": file.name, "size": len(content), "blobId": "0"}
        if file.suffix == ".safetensors":
            sha256 = hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 1, "oid": sha256}
        return entry

    def file(self, name: str, *, body: bool) -> None:
        path = self.server.files / name
        if not path.is_file():
            return self.send(404, b"", {"X-Error-Code": "EntryNotFound"})
        content = path.read_bytes()
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        if name == self.server.damage:
            content = content[:-1] + bytes([content[-1] ^ 1])
        headers = {"ETag": etag, "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if not body:
            return self.send(200, b"", headers, length=len(content))
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
        self.server.ranges.append(start)
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self.send(206 if start else 200, content[start:], headers)

    def send(self, code: int, content: bytes, headers: dict[str, str], length: int | None = None) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        for start in range(0, len(content), BLOCK):
            if self.server.stall and start >= self.server.stall:
                self.wfile.flush()
                time.sleep(3600)
            self.wfile.write(content[start : start + BLOCK])


@contextmanager
def serving(files: Path) -> Iterator[Hub]:
    """The hub, running until the block ends."""
    hub = Hub(files)
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
