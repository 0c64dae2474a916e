"""Writes conversations as Claude Code writes its transcripts: a line a block, linked by `parentUuid`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.chat import Message


class Transcript:
    """Lines of one file; `at` is the uuid of the last, to which the next is linked."""

    def __init__(self, name: str = "t", *, sidechain: bool = False) -> None:
        self.name, self.sidechain = name, sidechain
        self.lines: list[dict[str, Any]] = []
        self.at: str | None = None

    def add(self, kind: str, *, parent: str | None = None, **more: Any) -> str:
        """A line of any type; returns its uuid."""
        uuid = f"{self.name}-{len(self.lines)}"
        envelope = {"parentUuid": parent or self.at, "isSidechain": self.sidechain, "userType": "external"}
        envelope |= {
            "cwd": "/home/ana/web",
            "sessionId": self.name,
            "version": "2.1.230",
            "gitBranch": "main",
        }
        self.lines.append(
            {**envelope, "type": kind, "uuid": uuid, "timestamp": "2026-05-01T10:00:00Z", **more}
        )
        self.at = uuid
        return uuid

    def user(self, content: Any, **more: Any) -> str:
        """A user's line: a text or blocks."""
        return self.add("user", message={"role": "user", "content": content}, **more)

    def assistant(self, *blocks: dict[str, Any], **more: Any) -> list[str]:
        """An API message, a line a block; returns the lines' uuids."""
        number = f"msg_{self.name}_{len(self.lines)}"
        message = {"id": number, "type": "message", "role": "assistant", "model": "claude-x"}
        lines = [{**message, "content": [block], "stop_reason": None} for block in blocks]
        return [self.add("assistant", message=line, requestId="req", **more) for line in lines]

    def conversation(self, messages: Sequence[Message]) -> None:
        """Messages in our format; a result hangs on the line of its call, as those of parallel calls do."""
        waiting: list[tuple[str, str]] = []
        for message in messages:
            if message["role"] == "user":
                self.user(message["content"])
            elif message["role"] == "tool":
                number, line = waiting.pop(0)
                content = [{"type": "text", "text": message["content"]}]
                block = {"type": "tool_result", "tool_use_id": number, "content": content}
                self.user([block], parent=line, toolUseResult={"stdout": message["content"]})
            else:
                calls = [call["function"] for call in message.get("tool_calls", [])]
                numbers = [f"toolu_{self.name}_{len(self.lines)}_{i}" for i in range(len(calls))]
                blocks: list[dict[str, Any]] = []
                if message["reasoning_content"]:
                    thought = {"type": "thinking", "thinking": message["reasoning_content"], "signature": "x"}
                    blocks.append(thought)
                if message["content"]:
                    blocks.append({"type": "text", "text": message["content"]})
                for number, call in zip(numbers, calls, strict=True):
                    use = {"type": "tool_use", "id": number, "name": call["name"], "input": call["arguments"]}
                    blocks.append(use)
                uuids = self.assistant(*blocks)
                waiting = list(zip(numbers, uuids[len(uuids) - len(calls) :], strict=True))

    def write(self, path: Path, *, ascii_only: bool = False) -> Path:
        """Write the lines to a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = [json.dumps(line, ensure_ascii=ascii_only) for line in self.lines]
        path.write_bytes("".join(f"{text}\n" for text in texts).encode())
        return path
