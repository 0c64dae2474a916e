"""Whole rollouts: the model takes turn after turn; its tools are simulated from the row's demonstration.

A call that the demonstration makes gets the result that it has there; any other gets the error that a server
would give. The simulation keeps no state: whether the calls come in the right order is for the rules to say.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from core import chat, selectors, toolcalls
from core.chat import Message, Row
from core.render import prompt_text
from core.toolcalls import ToolCall

EXTRA_TURNS = 2
"""Turns that a rollout may take beyond the demonstration's."""

Answer = Callable[[list[str]], list[str]]
"""Prompts -> what the model writes after each: `core.generate.generate`, or a stand-in."""


def run(rows: Sequence[Row], tokenizer: Any, answer: Answer) -> list[list[Message]]:
    """The trace of each row: the assistant's and the tools' messages after the row's first user message.

    A rollout ends with a turn that calls nothing, or is cut after EXTRA_TURNS more turns than the
    demonstration has; then its trace ends with a tool's message. All rows are answered together, a turn at a
    time. Raises UserError where a tool's own schema is invalid.
    """
    rollouts = [_Rollout(row) for row in rows]
    while running := [rollout for rollout in rollouts if not rollout.ended]:
        prompts = [prompt_text(one.opening + one.trace, one.row.tools, tokenizer) for one in running]
        for rollout, text in zip(running, answer(prompts), strict=True):
            rollout.take(text)
    return [rollout.trace for rollout in rollouts]


class _Rollout:
    def __init__(self, row: Row) -> None:
        start = next(i for i, message in enumerate(row.messages, 1) if message["role"] == "user")
        demonstration = row.messages[start:]
        self.row, self.opening = row, row.messages[:start]
        self.trace: list[Message] = []
        self.turns_left = len(chat.assistant_turns(demonstration)) + EXTRA_TURNS
        self.results: dict[str, list[str]] = defaultdict(list)
        for event in selectors.events(demonstration, ""):
            if event.kind == "result":
                self.results[_key(event.tool, event.args)].append(event.text)
        self.given: Counter[str] = Counter()
        self.ended = False

    def take(self, text: str) -> None:
        """Put the model's turn back as the server would, and the results of its calls after it."""
        reply = toolcalls.parse(text, self.row.tools)
        message = chat.say(reply.content, think=reply.reasoning or "")
        if reply.calls:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in reply.calls
            ]
        self.trace.append(message)
        self.trace += [chat.result(self._result(call)) for call in reply.calls]
        self.turns_left -= 1
        self.ended = not reply.calls or self.turns_left == 0

    def _result(self, call: ToolCall) -> str:
        key = _key(call.name, call.arguments)
        known = self.results.get(key)
        if known:
            self.given[key] += 1
            return known[min(self.given[key], len(known)) - 1]
        if call.name not in {tool["function"]["name"] for tool in self.row.tools}:
            return "Error: tool not found"
        faults = toolcalls.faults(call, self.row.tools)
        return f"Input validation error: {faults[0].partition(': ')[2]}" if faults else "Error: not found"


def _key(name: str, arguments: Any) -> str:
    return json.dumps([name, arguments], sort_keys=True)
