"""Requests that none of the shown tools can serve, and talk: the right answer is no call at all."""

import random
from dataclasses import replace

from core import chat
from core.chat import Row
from dataset_builder import sources as src

TALK = {
    "train": (
        ("Hola, buenos días", "¡Buenos días! ¿Qué necesitas?"),
        ("Muchas gracias", "De nada."),
        ("Perfecto, eso es todo", "De acuerdo. Aquí estoy si me necesitas."),
        ("Hi there", "Hello! What do you need?"),
        ("Great, thank you", "You are welcome."),
        ("That will be all", "Fine. I am here if you need me."),
    ),
    "dev": (("Buenas noches", "¡Buenas noches! ¿Qué necesitas?"), ("Thanks a lot", "You are welcome.")),
    "eval": (
        ("Hola de nuevo", "¡Hola! ¿Qué necesitas?"),
        ("Gracias por todo", "De nada."),
        ("Good evening", "Hello! What do you need?"),
        ("Many thanks", "You are welcome."),
    ),
}
CANNOT = "No tengo una herramienta para eso."


def rows(sources: src.Sources, rng: random.Random, split: str, count: int) -> list[Row]:
    """Half talk with tools at hand, half requests whose tool is not among those shown."""
    asks, made = src.asks(sources, rng, split, split), []
    for number in range(count):
        if number % 2:
            text, answer = rng.choice(TALK[split])
            group, tools, think = f"talk: {text}", src.show(sources, [], rng), "No tool needed."
        else:
            ask = next(asks)
            text, answer, think = ask.text, CANNOT, "No tool fits."
            group = f"{ask.key}: {ask.wording}"
            others = {name: tool for name, tool in sources.tools.items() if name != ask.key}
            tools = src.show(replace(sources, tools=others), [], rng)
        made.append(src.row(
            "no_tool", number, split, group=group, system=rng.choice(src.SYSTEMS), tools=tools,
            messages=[chat.user(text), chat.say(answer, think=think)],
        ))  # fmt: skip
    return made
