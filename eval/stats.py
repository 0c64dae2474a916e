"""Rates, mean losses, and what one is better than another by: each with its 95 % interval."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    """How much better the second of two statistics is, with its 95 % interval `[low, high]`."""

    value: float
    low: float
    high: float


def rate(k: int, n: int) -> Rate:
    """The Wilson score interval (Wilson 1927, JASA 22:209) of k successes in n > 0 trials."""
    p, z2 = k / n, Z95 * Z95
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return Rate(n, k, round(p, 4), round(low, 4), round(high, 4))


def mean_loss(losses: Sequence[float]) -> Loss:
    """The mean over rows, whatever their order, with the interval of the normal distribution.

    The rows are the sample, so a long row weighs as much as a short one. A single row has no spread:
    its interval is the value itself, and no verdict rests on it (`eval/verdict.py`).
    """
    mean = math.fsum(losses) / len(losses)
    spread = statistics.stdev(losses) if len(losses) > 1 else 0.0
    half = Z95 * spread / math.sqrt(len(losses))
    return Loss(len(losses), round(mean, 5), round(max(0.0, mean - half), 5), round(mean + half, 5))


def gain(before: Statistic, after: Statistic) -> Gain:
    """`after - before` of two rates, `before - after` of two losses.

    The interval follows from the two intervals alone: d ± the root of the squared distances of each value
    from the end of its interval on that side (Newcombe 1998, Statistics in Medicine 17:873, method 10;
    for means Zou and Donner 2008, ibid. 27:1693). It takes the two as independent; on the same rows they
    go together, which makes the true interval narrower, never wider.
    """
    best, rest = (after, before) if isinstance(after, Rate) else (before, after)
    difference = best.value - rest.value
    down = math.hypot(best.value - best.low, rest.high - rest.value)
    up = math.hypot(best.high - best.value, rest.value - rest.low)
    return Gain(difference, difference - down, difference + up)


def from_json(fields: Mapping[str, Any]) -> Statistic:
    """The statistic that `dataclasses.asdict` wrote."""
    return Rate(**fields) if "k" in fields else Loss(**fields)
