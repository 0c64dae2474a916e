"""Rates and mean losses with their 95 % intervals, and what is gained on the same rows."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ALPHA = 0.05
Z95 = 1.959964


@dataclass(frozen=True)
class Rate:
    """k successes of n, with the 95 % Wilson interval `[low, high]`; more is better."""

    n: int
    k: int
    rate: float
    low: float
    high: float

    @property
    def value(self) -> float:
        """The point estimate."""
        return self.rate

    def __str__(self) -> str:
        return f"{self.rate:6.1%} [{self.low:.1%}, {self.high:.1%}]"


@dataclass(frozen=True)
class Loss:
    """Mean of n rows' losses in nats a token, with its 95 % interval `[low, high]`; less is better."""

    n: int
    mean: float
    low: float
    high: float

    @property
    def value(self) -> float:
        """The point estimate."""
        return self.mean

    def __str__(self) -> str:
        return f"{self.mean:6.3f} [{self.low:.3f}, {self.high:.3f}]"


Statistic = Rate | Loss


@dataclass(frozen=True)
class Gain:
    """How much better n rows come out the second time: more is better, for losses as well.

    A rate's gain is in shares of 1, a loss's in nats a token; `[low, high]` is the 95 % interval, and `p`
    the two-sided probability of a gain or loss as large where nothing has changed.
    """

    n: int
    value: float
    low: float
    high: float
    p: float


def describe(results: Sequence[bool] | Sequence[float]) -> Statistic:
    """The rate of booleans, or the mean of losses; of at least one."""
    return rate(sum(map(bool, results)), len(results)) if isinstance(results[0], bool) else mean_loss(results)


def rate(k: int, n: int) -> Rate:
    """k successes in n > 0 trials."""
    low, high = _wilson(k, n)
    return Rate(n, k, round(k / n, 4), round(low, 4), round(high, 4))


def _wilson(k: int, n: int) -> tuple[float, float]:
    """The score interval of Wilson 1927, JASA 22:209."""
    p, z2 = k / n, Z95 * Z95
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def mean_loss(losses: Sequence[float]) -> Loss:
    """The mean over rows, whatever their order, with Student's interval.

    The rows are the sample, so a long row weighs as much as a short one. A single row has no spread:
    its interval is the value itself, and no verdict rests on it (`eval/verdict.py`).
    """
    mean, error = _mean(losses)
    half = _t95(len(losses)) * error
    return Loss(len(losses), round(mean, 5), round(max(0.0, mean - half), 5), round(mean + half, 5))


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error, which is 0 for a single value."""
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return math.fsum(values) / len(values), spread / math.sqrt(len(values))


def _t95(n: int) -> float:
    """How many standard errors the mean of n values may lie off (Student 1908, Biometrika 6:1)."""
    from scipy import special

    return float(special.stdtrit(n - 1, 1 - ALPHA / 2)) if n > 1 else 0.0


def gain(before: Sequence[bool] | Sequence[float], after: Sequence[bool] | Sequence[float]) -> Gain:
    """What `after` gains over `before` on the same rows in the same order; losses need two of them."""
    return _gain_of_rates(before, after) if isinstance(after[0], bool) else _gain_of_losses(before, after)


def _gain_of_rates(before: Sequence[float], after: Sequence[float]) -> Gain:
    """McNemar's exact test, and the paired score interval.

    The interval is that of Newcombe 1998, Statistics in Medicine 17:2635, method 10: the two Wilson
    intervals, squared and added, less what the two rates have in common by their correlation phi.
    """
    pairs = list(zip(before, after, strict=True))
    n, both, neither = len(pairs), pairs.count((True, True)), pairs.count((False, False))
    lost, won = pairs.count((True, False)), pairs.count((False, True))
    old, new = (both + lost) / n, (both + won) / n
    old_low, old_high = _wilson(both + lost, n)
    new_low, new_high = _wilson(both + won, n)
    margins = (both + lost) * (won + neither) * (both + won) * (lost + neither)
    common = both * neither - lost * won
    if common > 0:
        common = max(common - n / 2, 0)
    phi = common / math.sqrt(margins) if margins else 0.0

    def width(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))

    value = (won - lost) / n
    low, high = value - width(new - new_low, old_high - old), value + width(new_high - new, old - old_low)
    return Gain(n, value, low, high, mcnemar(lost, won))


def mcnemar(lost: int, won: int) -> float:
    """Two-sided p of so uneven a split of the rows that changed, if either way were as likely.

    McNemar 1947, Psychometrika 12:153, with the binomial distribution itself.
    """
    from scipy import special

    return min(1.0, 2 * float(special.bdtr(min(lost, won), lost + won, 0.5)))


def _gain_of_losses(before: Sequence[float], after: Sequence[float]) -> Gain:
    """Student's paired test and its interval.

    It is exact for normal differences and holds in small samples, where the percentile bootstrap is too
    narrow (Hesterberg 2015, The American Statistician 69:371), and it needs no seed.
    """
    from scipy import special

    n, differences = len(after), [old - new for old, new in zip(before, after, strict=True)]
    mean, error = _mean(differences)
    if not error:
        return Gain(n, mean, mean, mean, 0.0 if mean else 1.0)
    half = _t95(n) * error
    return Gain(n, mean, mean - half, mean + half, 2 * float(special.stdtr(n - 1, -abs(mean) / error)))


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """The p of several tests, adjusted so that all are judged together (Holm 1979, Scand J Statist 6:65).

    Whether the tests depend on each other does not matter.
    """
    adjusted: dict[str, float] = {}
    least = 0.0
    for rank, name in enumerate(sorted(p, key=lambda name: p[name])):
        least = max(least, min(1.0, (len(p) - rank) * p[name]))
        adjusted[name] = least
    return adjusted


def from_json(fields: Mapping[str, Any]) -> Statistic:
    """The statistic that `dataclasses.asdict` wrote."""
    return Rate(**fields) if "k" in fields else Loss(**fields)
