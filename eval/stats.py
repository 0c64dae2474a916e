"""Rates with intervals."""

import math
from dataclasses import dataclass

Z95 = 1.959964


@dataclass(frozen=True)
class Rate:
    """k successes of n, with the 95 % Wilson interval `[low, high]`."""

    n: int
    k: int
    rate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.rate:6.1%} [{self.low:.1%}, {self.high:.1%}]"


def rate(k: int, n: int) -> Rate:
    """The Wilson score interval (Wilson 1927, JASA 22:209) of k successes in n > 0 trials."""
    p, z2 = k / n, Z95 * Z95
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return Rate(n, k, round(p, 4), round(low, 4), round(high, 4))


def compare(before: Rate, after: Rate) -> str:
    """`improves` or `worse` where the intervals lie apart, else `no_change`."""
    if after.low > before.high:
        return "improves"
    return "worse" if after.high < before.low else "no_change"
