"""A headless Chromium that opens a file and tells what a reader would meet; no package is needed to drive it.

Chromium's DevTools protocol, over its pipe: JSON messages that end with a NUL, read from descriptor 3 and
written to descriptor 4 (`--remote-debugging-pipe`).
"""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --remote-debugging-pipe"
).split()
NAMES = ("chromium", "chromium-browser", "google-chrome")
INSTALL = "no Chromium here: apt-get install chromium (Debian), brew install --cask chromium (macOS)"
SECONDS = 60
"""The longest wait for an answer."""

Event = dict[str, Any]

SMALLEST = """
(() => {
  const sizes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text; (text = walker.nextNode());) {
    const element = text.parentElement, hidden = element.closest("script, style, title, noscript");
    if (!text.textContent.trim() || hidden || !element.checkVisibility()) continue;
    const matrix = element.getScreenCTM ? element.getScreenCTM() : null;
    const size = parseFloat(getComputedStyle(element).fontSize) * (matrix ? matrix.a : 1);
    sizes.push([size, text.textContent.trim().slice(0, 40)]);
  }
  return sizes.sort((one, other) => one[0] - other[0])[0];
})()
"""
"""Size in px and beginning of the smallest visible text as the reader sees it, an SVG's scale included."""
UNFOLD = "document.querySelectorAll('details').forEach(one => { one.open = true; })"


@dataclass(frozen=True)
class Page:
    """What a page did and how it stands."""

    errors: list[str]
    """What reached the console as an error, exceptions among it."""
    requests: list[str]
    """Addresses that it asked for, itself apart."""
    width: int
    """Of the document, in px: more than the window's where it must be scrolled sideways."""
    smallest: float
    """Font size of its smallest visible text, in px."""
    smallest_text: str


class Browser:
    """One Chromium with one tab."""

    def __init__(self, process: "subprocess.Popen[bytes]", reads: int, writes: int) -> None:
        self.process, self.reads, self.writes = process, reads, writes
        self.last, self.rest, self.events = 0, b"", []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.tab(f"{domain}.enable")

    def tab(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the tab."""
        return self.ask(method, session=self.session, **params)

    def ask(self, method: str, *, session: str = "", **params: Any) -> dict[str, Any]:
        """The result of one command; what happened meanwhile is added to `events`."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        message |= {"sessionId": session} if session else {}
        os.write(self.writes, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next(method)
            if found.get("id") == self.last:
                assert "error" not in found, f"{method}: {found['error']}"
                return found["result"]
            self.events.append(found)

    def wait_for(self, method: str) -> None:
        """Until this has happened."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next(method))

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the tab."""
        found = self.tab("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def open(self, path: Path, width: int, *, dark: bool = False) -> Page:
        """Open a file in a window of this width, with all that can be unfolded unfolded."""
        self.events, address = [], path.resolve().as_uri()
        self.tab(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=True
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tab("Emulation.setEmulatedMedia", features=[scheme])
        self.tab("Page.navigate", url=address)
        self.wait_for("Page.loadEventFired")
        self.evaluate(UNFOLD)
        time.sleep(0.3)  # what a script does after loading has no event
        size, text = self.evaluate(SMALLEST) or (0.0, "")
        return Page(
            errors=[said for event in self.events if (said := _error(event))],
            requests=[url for event in self.events if (url := _request(event)) not in ("", address)],
            width=self.evaluate("document.documentElement.scrollWidth"),
            smallest=size,
            smallest_text=text,
        )

    def _next(self, awaited: str) -> Event:
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.reads], [], [], max(0, deadline - time.monotonic()))
            part = os.read(self.reads, 1 << 16) if ready else b""
            assert part, f"Chromium gave no answer to {awaited} (exit code {self.process.poll()})"
            self.rest += part
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A Chromium that keeps its files in the directory `profile`; the test fails where none is installed."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.fail(INSTALL, pytrace=False)
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    words = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{their_in} 4>&{their_out}', "bash", *words],
        pass_fds=(their_in, their_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(their_in)
    os.close(their_out)
    try:
        yield Browser(process, our_in, our_out)
    finally:
        process.terminate()
        process.wait(SECONDS)
        os.close(our_in)
        os.close(our_out)


def _error(event: Event) -> str:
    """What an event says went wrong, or blank."""
    params = event.get("params", {})
    match event.get("method"):
        case "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            return str(details.get("exception", {}).get("description", details["text"]))
        case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
            return " ".join(str(one.get("value", one.get("description", ""))) for one in params["args"])
        case "Log.entryAdded" if params["entry"]["level"] == "error":
            return str(params["entry"]["text"])
    return ""


def _request(event: Event) -> str:
    """The address that an event asks for, or blank."""
    return event["params"]["request"]["url"] if event.get("method") == "Network.requestWillBeSent" else ""
