"""Numbers as people write them, by the name of what they count, within a schema's bounds."""

import math
import random
import re
from typing import Any

from dataset_builder.drawing import texts
from dataset_builder.drawing.json_schema import Undrawable, listed

TRIES = 60
LARGEST = 10**15
"""A double still tells whole numbers of this size apart."""
SHARE = re.compile(r"threshold|ratio|score|weight|opacity|temperature|confidence")


def draw(schema: dict[str, Any], name: str, rng: random.Random) -> int | float:
    """A number that `schema` accepts; whole ones are ints. Raises Undrawable where its bounds leave none."""
    whole = "integer" in listed(schema.get("type", "integer"))
    low = _bound(schema.get("minimum"), schema.get("exclusiveMinimum"), max)
    high = _bound(schema.get("maximum"), schema.get("exclusiveMaximum"), min)
    step = schema.get("multipleOf")
    for _ in range(TRIES):
        value = _usual(name, whole, rng)
        if not low <= value <= high:
            first = low if low > -math.inf else min(high - 100, 0)
            last = min(high, first + 10**6) if high < math.inf else max(low + 100, 100)
            inside = range(math.ceil(first), math.floor(last) + 1)
            value = rng.choice(inside) if inside else round(rng.uniform(first, last), 4)
        if step:
            value = round(round(value / step) * step, 10)
        if float(value).is_integer():
            value = int(value)
        at_the_bound = value in (schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"))
        if (
            low <= value <= high
            and not at_the_bound
            and abs(value) < LARGEST
            and (isinstance(value, int) or not whole)
        ):
            return value
    raise Undrawable(name)


def _bound(inclusive: Any, exclusive: Any, narrower: Any) -> float:
    given = [bound for bound in (inclusive, exclusive) if bound is not None]
    return narrower(given) if given else (-math.inf if narrower is max else math.inf)


def _usual(name: str, whole: bool, rng: random.Random) -> int | float:
    plain = texts.snake(name)
    if not whole and SHARE.search(plain):
        return rng.randint(1, 99) / 100
    return next((make(rng) for ending, make in _BY_NAME if re.search(ending, plain)), rng.randint(1, 99))


def _page_size(rng: random.Random) -> int:
    return rng.choice([3, 5, 8, 10, 12, 15, 20, 25, 30, 40, 50])


_BY_NAME = (
    (r"(^|_)page$", lambda rng: rng.randint(1, 9)),
    (r"per_?page|limit|max_|page_size|(^|_)(tail|head)$|(?<!match_)count$", _page_size),
    (r"start_at|offset|(^|_)start$", lambda rng: rng.randint(1, 12) * 10),
    (r"line", lambda rng: rng.randint(3, 480)),
    (r"(^|_)version", lambda rng: rng.randint(2, 40)),
    (r"(^|_)id$", lambda rng: rng.randint(10**5, 10**8)),
    (r"match_(count|index)", lambda rng: rng.randint(1, 5)),
    (r"number|index|issue|pull|milestone|duplicate_of", lambda rng: rng.randint(2, 2400)),
    (r"^(x|y)$|width|height|left|top", lambda rng: rng.randint(4, 240) * 8),
    (r"port$", lambda rng: rng.randint(1024, 9999)),
)
