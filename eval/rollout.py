"""Simulated tools: they answer from a row's demonstration, so that a long task really runs.

A call that the demonstration makes gets the result that it has there; any other gets the error that a server
would give. The simulation keeps no state: whether the calls come in the right order is for the rules to say.
"""

import json
from collections import Counter, defaultdict
from typing import Any

from core import chat, selectors, toolcalls
from core.chat import Message, Row
from core.toolcalls import ToolCall
from eval import agent
from eval.agent import Ask

EXTRA_TURNS = 2
"""Turns that a rollout may take beyond the demonstration's."""


def start(row: Row) -> int:
    """Position just after the row's request."""
    return next(i for i, message in enumerate(row.messages, 1) if message["role"] == "user")


async def run(row: Row, ask: Ask) -> list[Message]:
    """The trace of a row: the assistant's and the tools' messages after the row's first user message.

    A rollout ends with a turn that calls nothing, or is cut after EXTRA_TURNS more turns than the
    demonstration has. Raises UserError where a tool's own schema is invalid.
    """
    first = start(row)
    turns = len(chat.assistant_turns(row.messages[first:])) + EXTRA_TURNS
    return await agent.converse(row.messages[:first], row.tools, ask, Simulation(row).call, turns)


class Simulation:
    """The tools of one row."""

    def __init__(self, row: Row) -> None:
        self._tools = row.tools
        self._results: dict[str, list[str]] = defaultdict(list)
        for event in selectors.events(row.messages[start(row) :], ""):
            if event.kind == "result":
                self._results[_key(event.tool, event.args)].append(event.text)
        self._given: Counter[str] = Counter()

    async def call(self, call: ToolCall) -> str:
        """What a server would answer; the same call again gets the next known result, then the last."""
        key = _key(call.name, call.arguments)
        known = self._results.get(key)
        if known:
            self._given[key] += 1
            return known[min(self._given[key], len(known)) - 1]
        if call.name not in {tool["function"]["name"] for tool in self._tools}:
            return "Error: tool not found"
        faults = toolcalls.faults(call, self._tools)
        return f"Input validation error: {faults[0].partition(': ')[2]}" if faults else "Error: not found"


def _key(name: str, arguments: Any) -> str:
    return json.dumps([name, arguments], sort_keys=True)
