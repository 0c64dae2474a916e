"""The order of rows in training: each once an epoch, little padding, no long runs of one length."""

import itertools
import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trainer.learning.order import batch_order

RNG = random.Random(0)
LENGTHS = [RNG.choice([150, 400, 700]) + RNG.randrange(50) for _ in range(1000)]


def padding(order: list[int], batch: int) -> int:
    """Padded positions when consecutive runs of `batch` are batches."""
    groups = [order[i : i + batch] for i in range(0, len(order), batch)]
    return sum(max(LENGTHS[i] for i in g) * len(g) - sum(LENGTHS[i] for i in g) for g in groups)


@given(
    lengths=st.lists(st.integers(1, 99), min_size=1, max_size=300),
    batch=st.integers(1, 9),
    epochs=st.sampled_from([0.5, 1, 2, 3]),
    seed=st.integers(0, 9),
)
def test_each_row_comes_once_an_epoch(lengths, batch, epochs, seed):
    order = batch_order(lengths, batch=batch, epochs=epochs, rng=random.Random(seed))
    assert len(order) == round(epochs * len(lengths))
    assert order == batch_order(lengths, batch=batch, epochs=epochs, rng=random.Random(seed))
    counts = Counter(order)
    if epochs >= 1:
        assert set(counts.values()) == {int(epochs)}
    else:
        assert not counts or max(counts.values()) == 1


def test_less_is_padded_than_in_a_plain_shuffle():
    plain = list(range(len(LENGTHS)))
    random.Random(1).shuffle(plain)
    order = batch_order(LENGTHS, batch=8, epochs=1, rng=random.Random(1))
    assert padding(order, 8) < padding(plain, 8) / 3


def test_long_rows_are_spread_over_the_epoch():
    order = batch_order(LENGTHS, batch=8, epochs=1, rng=random.Random(1))
    long = [place for place, i in enumerate(order) if LENGTHS[i] >= 700]
    gaps = [b - a for a, b in itertools.pairwise(long)]
    assert max(gaps) < len(order) / 4
    assert long[0] < len(order) / 4
