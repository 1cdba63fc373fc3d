"""Mean, spread and correlation of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence


class Moments:
    """Mean, spread and correlation of pairs (x, y), in one pass and mergeable (Chan et al. 1979)."""

    __slots__ = ("mean_x", "mean_y", "n", "xx", "xy", "yy")

    def __init__(self) -> None:
        self.n = 0
        self.mean_x = self.mean_y = self.xx = self.yy = self.xy = 0.0

    def add(self, x: float, y: float) -> None:
        self.n += 1
        dx, dy = x - self.mean_x, y - self.mean_y
        self.mean_x += dx / self.n
        self.mean_y += dy / self.n
        self.xx += dx * (x - self.mean_x)
        self.yy += dy * (y - self.mean_y)
        self.xy += dx * (y - self.mean_y)

    def merge(self, other: Moments) -> None:
        if not other.n:
            return
        n = self.n + other.n
        dx, dy = other.mean_x - self.mean_x, other.mean_y - self.mean_y
        share = self.n * other.n / n
        self.xx += other.xx + dx * dx * share
        self.yy += other.yy + dy * dy * share
        self.xy += other.xy + dx * dy * share
        self.mean_x += dx * other.n / n
        self.mean_y += dy * other.n / n
        self.n = n

    @property
    def std_y(self) -> float:
        """Population standard deviation of y."""
        return math.sqrt(self.yy / self.n) if self.n else math.nan

    @property
    def vary(self) -> bool:
        """Whether both sides do, so that they have a correlation."""
        return self.n > 1 and _varies(self.xx, self.mean_x) and _varies(self.yy, self.mean_y)

    @property
    def correlation(self) -> float:
        """Pearson's, 0 where either side does not vary."""
        if not self.vary:
            return 0.0
        return min(max(self.xy / (math.sqrt(self.xx) * math.sqrt(self.yy)), -1.0), 1.0)


def _varies(squares: float, mean: float) -> bool:
    """Whether a sum of squared deviations is more than rounding."""
    return squares > 1e-12 * mean * mean


FLAT = 1e-9
"""A spread below this share of a group's largest reward is float noise."""


def is_flat(rewards: Sequence[float]) -> bool:
    """Whether a group's rewards are all equal, up to rounding. Such a group gives no gradient."""
    low, high = min(rewards), max(rewards)
    return high - low <= FLAT * max(abs(low), abs(high))
