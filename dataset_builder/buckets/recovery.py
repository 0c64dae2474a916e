"""After a tool's error: mend the call, or say plainly what failed.

A mended call follows a wrong one of the model's own; that wrong turn carries no loss, so the model learns
the mending and not the mistake.
"""

import random
from dataclasses import replace

from core import chat
from core.chat import Row
from dataset_builder import sources as src
from dataset_builder.talking.requests import ToolRequests


def rows(sources: src.Sources, rng: random.Random, split: str, count: int) -> list[Row]:
    """Half mended calls, half reported failures."""
    mendable = replace(sources, requests=[r for r in sources.requests if len(_required(sources, r)) > 1])
    all_asks, mendable_asks = (src.asks(s, rng, split, split) for s in (sources, mendable))
    made = []
    for number in range(count):
        mend = number % 2 and mendable.requests
        ask = next(mendable_asks if mend else all_asks)
        turns, trained = _mended(ask, rng) if mend else _reported(ask, rng)
        made.append(src.row(
            "recovery", number, split, group=f"{ask.key}: {ask.wording}", system=rng.choice(src.SYSTEMS),
            tools=src.show(sources, [ask.key], rng), messages=[chat.user(ask.text), *turns],
            train_turns=trained, server=ask.request.server,
            source=f"schemas/{ask.request.server}.json#{ask.request.tool}",
        ))  # fmt: skip
    return made


def _mended(ask: src.Ask, rng: random.Random) -> tuple[list[chat.Message], list[int]]:
    forgotten = rng.choice(ask.tool.required)
    wrong = {name: value for name, value in ask.arguments.items() if name != forgotten}
    turns = [
        chat.call(ask.tool.shown_name, wrong, think=src.thought_of(ask.tool)),
        chat.result(f"Input validation error: '{forgotten}' is a required property"),
        src.call(ask, f"Missing {forgotten}."),
    ]
    return turns, [1]


def _reported(ask: src.Ask, rng: random.Random) -> tuple[list[chat.Message], list[int]]:
    first = next(iter(ask.arguments.values()))
    reason = rng.choice(["not found", "permission denied", "timed out"])
    turns = [
        src.call(ask),
        chat.result(f"Error: {first} {reason}"),
        chat.say(f'Ha fallado: "{first}", {reason}.', think="The tool failed."),
    ]
    return turns, [0, 1]


def _required(sources: src.Sources, request: ToolRequests) -> tuple[str, ...]:
    return sources.tools[f"{request.server}.{request.tool}"].required
