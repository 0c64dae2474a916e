"""The phrases that people put around a request, in both languages."""

import random
import re

WRAPPINGS = {
    True: (
        "Por favor, {}",
        "Oye, {}",
        "{}, por favor",
        "Hola. {}",
        "Necesito esto: {}",
        "Ahora {}",
        "Si puedes, {}",
        "{} Gracias.",
        "Una cosa: {}",
        "{} cuando puedas",
        "Venga, {}",
        "Quiero esto: {}",
    ),
    False: (
        "Please {}",
        "Hey, {}",
        "{}, please",
        "Hello. {}",
        "I need this: {}",
        "Now {}",
        "If you can, {}",
        "{} Thanks.",
        "One thing: {}",
        "{} when you can",
        "Come on, {}",
        "I want this: {}",
    ),
}
SPANISH = re.compile(r"[áéíóúñ¿¡]|\b(de|del|el|la|las|los|en|con|un|una|desde|que)\b", re.IGNORECASE)


def is_spanish(text: str) -> bool:
    """Whether a request is in Spanish rather than English, by its letters and smallest words."""
    return bool(SPANISH.search(text))


def wrapped(request: str, spanish: bool, rng: random.Random) -> str:
    """A request as it is, or, half the time, in one of the phrases."""
    if rng.random() < 0.5:
        return request
    wrapping = rng.choice(WRAPPINGS[spanish])
    inside = wrapping.endswith("{}") and not wrapping.endswith(". {}")
    return wrapping.format(request[0].lower() + request[1:] if inside else request)
