"""The order of rows in training: shuffled, yet batches of like length, so that little is padded."""

import random

POOL = 16
"""Batches that are sorted by length together; fewer pad more, more make batches of one kind of row."""


def batch_order(lengths: list[int], *, batch: int, epochs: float, rng: random.Random) -> list[int]:
    """Positions in the order of training; consecutive runs of `batch` are the batches.

    Every row comes once an epoch (the last epoch may be cut short). Within a pool of batches the rows are
    sorted by length and cut into batches, and the batches shuffled: sorting without that last step feeds
    all rows of one kind in a row, and they are forgotten again before their next turn.
    """
    order: list[int] = []
    while len(order) < round(epochs * len(lengths)):
        epoch = list(range(len(lengths)))
        rng.shuffle(epoch)
        order += epoch
    order = order[: round(epochs * len(lengths))]
    arranged: list[int] = []
    for start in range(0, len(order), POOL * batch):
        pool = sorted(order[start : start + POOL * batch], key=lambda i: lengths[i])
        whole = len(pool) - len(pool) % batch
        batches = [pool[i : i + batch] for i in range(0, whole, batch)]
        rng.shuffle(batches)
        arranged += [i for one in batches for i in one] + pool[whole:]
    return arranged
