"""Which rows make an optimiser step and in which batches: shuffled, yet of like length."""

import random

POOL = 16
"""Batches that are sorted by length together; fewer pad more, more make batches of one kind of row."""


def shuffled(count: int, epochs: float, rng: random.Random) -> list[int]:
    """Positions of rows in a random order, each once an epoch; the last epoch may be cut short."""
    order: list[int] = []
    while len(order) < round(epochs * count):
        epoch = list(range(count))
        rng.shuffle(epoch)
        order += epoch
    return order[: round(epochs * count)]


def batch_order(lengths: list[int], *, batch: int, epochs: float, rng: random.Random) -> list[int]:
    """Positions in the order of training; consecutive runs of `batch` are the batches.

    Rows come as in `shuffled`, but within a pool of batches they are sorted by length and cut into batches,
    and the batches shuffled: sorting without that last step feeds all rows of one kind in a row, and they are
    forgotten again before their next turn.
    """
    order = shuffled(len(lengths), epochs, rng)
    arranged: list[int] = []
    for start in range(0, len(order), POOL * batch):
        pool = sorted(order[start : start + POOL * batch], key=lambda i: lengths[i])
        whole = len(pool) - len(pool) % batch
        batches = [pool[i : i + batch] for i in range(0, whole, batch)]
        rng.shuffle(batches)
        arranged += [i for one in batches for i in one] + pool[whole:]
    return arranged


def tokens_at_once(longest: int, batch: int, most: int | None) -> int:
    """The tokens of the largest device step, padding included: `batch` rows of `longest` tokens.

    Where `most` is given, so many at the most; one row is never too long.
    """
    return batch * longest if most is None else min(batch * longest, max(most, longest))


def rows_at_once(lengths: list[int], batch: int, most: int | None) -> int:
    """How many of the rows with these lengths a device step takes, by the same law."""
    longest = max(lengths)
    return tokens_at_once(longest, batch, most) // longest


def padded(step: list[int], batch: int, shares: int = 1) -> list[list[int]]:
    """A step's positions as micro-batches of at most `batch` rows, as many as a multiple of `shares`.

    The last ones are empty where a step has fewer rows than there are processes to share them.
    """
    size = min(batch, max(1, -(-len(step) // shares)))
    return _shared([step[i : i + size] for i in range(0, len(step), size)], shares)


def packed(step: list[int], lengths: list[int], capacity: int, shares: int = 1) -> list[list[int]]:
    """A step's positions as rows of at most `capacity` tokens, by first-fit decreasing; as `padded` else.

    FFD needs at most 11/9 of the fewest rows possible, and one (Johnson 1973).
    """
    bins: list[list[int]] = []
    free: list[int] = []
    for i in sorted(step, key=lambda i: (-lengths[i], i)):
        place = next((b for b, room in enumerate(free) if room >= lengths[i]), None)
        if place is None:
            place = len(bins)
            bins.append([])
            free.append(capacity)
        bins[place].append(i)
        free[place] -= lengths[i]
    return _shared(bins, shares)


def _shared(batches: list[list[int]], shares: int) -> list[list[int]]:
    """The same rows in a number of batches that `shares` divides: the largest are halved."""
    while len(batches) % shares:
        largest = max(batches, key=len)
        if len(largest) < 2:
            return batches + [[] for _ in range(-len(batches) % shares)]
        at = batches.index(largest)
        half = len(largest) // 2
        batches = [*batches[:at], largest[:half], largest[half:], *batches[at + 1 :]]
    return batches
