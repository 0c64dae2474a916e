"""After a tool's error: mend the call, or say plainly what failed.

A mended call follows a wrong one of the model's own; that wrong turn carries no loss, so the model learns
the mending and not the mistake.
"""

import random

from core import chat
from core.chat import Row
from dataset_builder import sources as src
from dataset_builder import values

BUCKET = "recovery"


def rows(sources: src.Sources, rng: random.Random, split: str, count: int) -> list[Row]:
    """Half mended calls, half reported failures."""
    asks, made = src.asks(sources, rng, split, split), []
    while len(made) < count:
        ask = next(asks)
        required = ask.tool.required
        messages = [chat.user(ask.text)]
        if len(made) % 2:
            if len(required) < 2:
                continue
            forgotten = rng.choice(required)
            wrong = {name: value for name, value in ask.arguments.items() if name != forgotten}
            messages += [
                chat.call(ask.tool.shown_name, wrong, think=src.thought_of(ask.tool)),
                chat.result(f"Input validation error: '{forgotten}' is a required property"),
                src.call(ask, f"Missing {forgotten}."),
            ]
            trained = [1]
        else:
            first = next(iter(ask.arguments.values()))
            reason = rng.choice(["not found", "permission denied", "timed out"])
            messages += [
                src.call(ask),
                chat.result(f"Error: {first} {reason}"),
                chat.say(
                    f"Ha fallado: {values.QUOTES[1].format(first)}, {reason}.", think="The tool failed."
                ),
            ]
            trained = [0, 1]
        made.append(src.row(
            BUCKET, len(made), split, group=f"{ask.key}: {ask.wording}", system=rng.choice(src.SYSTEMS),
            tools=src.show(sources, [ask.key], rng), messages=messages, train_turns=trained,
            server=ask.request.server, source=f"schemas/{ask.request.server}.json#{ask.request.tool}",
        ))  # fmt: skip
    return made
