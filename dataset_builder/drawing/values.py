"""Argument values as users type them, divided so that training, development and evaluation share none."""

import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

SPLITS = ("train", "dev", "eval")

AREAS = (
    "web api datos pagos ventas compras tienda taller almacen nomina soporte clientes pedidos facturas "
    "informes legal motor cliente servidor mapas rutas fotos correo agenda cocina libros música juegos "
    "obra huerto"
).split()
PARTS = (
    "panel lista tabla menu login busqueda carrito filtro perfil aviso cache sesion pago envio precio "
    "stock ficha firma copia cola tarea prueba enlace icono fuente margen logo texto imagen borde"
).split()
VERBS = ("corrige añade quita cambia ordena traduce revisa limpia mueve prepara amplía acorta").split()
EXTENSIONS = ["py", "md", "txt", "css", "json"]
TIMEZONES = (Path(__file__).parent / "timezones.txt").read_text(encoding="utf-8").split()


def _syllables(rng: random.Random, count: int) -> str:
    # Without c, p and t no Spanish swear word comes out.
    return "".join(rng.choice("bdfglmnrsvz") + rng.choice("aeiou") for _ in range(count))


KINDS: dict[str, Callable[[random.Random], Any]] = {
    "path": lambda rng: f"{rng.choice(AREAS)}/{_syllables(rng, rng.choice([2, 3]))}",
    "file": lambda rng: f"{rng.choice(PARTS)}_{_syllables(rng, 2)}.{rng.choice(EXTENSIONS)}",
    "files": lambda rng: [KINDS["file"](rng) for _ in range(rng.choice([1, 1, 2]))],
    "branch": lambda rng: (
        f"{rng.choice(['fix', 'tarea', 'docs', 'rama'])}/{rng.choice(PARTS)}-{_syllables(rng, 2)}"
    ),
    "sha": lambda rng: "".join(rng.choice("0123456789abcdef") for _ in range(7)),
    "message": lambda rng: f"{rng.choice(VERBS)} {rng.choice(PARTS)} de {_syllables(rng, 2)}",
    "word": lambda rng: _syllables(rng, rng.choice([2, 3])),
    "int": lambda rng: rng.choice([rng.randint(1, 9), rng.randint(10, 99), rng.randint(100, 399)]),
    "timezone": lambda rng: rng.choice(TIMEZONES),
    "time": lambda rng: f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}",
    "date": lambda rng: f"20{rng.randint(15, 29)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
}
QUOTES = ("«{}»", '"{}"', "'{}'")


def side(value: Any) -> str:
    """Which split a value belongs to: half of all to training, a quarter to each of the others."""
    byte = hashlib.sha256(str(value).encode()).digest()[0]
    return ("train", "train", "dev", "eval")[byte % 4]


def draw(kind: str, rng: random.Random, split: str) -> Any:
    """A value of `kind` that belongs to `split`; every item of a list does."""
    while True:
        value = KINDS[kind](rng)
        items = value if isinstance(value, list) else [value]
        if all(side(item) == split for item in items):
            return value


def draw_distinct(kinds: dict[str, str], rng: random.Random, split: str) -> dict[str, Any]:
    """A value for every slot, no two alike: `{slot: kind}` -> `{slot: value}`."""
    drawn: dict[str, Any] = {}
    for slot, kind in kinds.items():
        value = draw(kind, rng, split)
        while value in drawn.values():
            value = draw(kind, rng, split)
        drawn[slot] = value
    return drawn


def shown(value: Any, rng: random.Random) -> str:
    """A value as it stands in a request: numbers bare, texts in quotes, lists joined."""
    if isinstance(value, int):
        return str(value)
    mark = rng.choice(QUOTES)
    if isinstance(value, list):
        return ", ".join(mark.format(item) for item in value)
    return mark.format(value)
