"""Group transforms: rewards relative to their group.

Every function takes the rewards of the valid members (at least one, finite) and returns as many numbers, in
order, never NaN. Equal rewards stay equal. A group without spread gets zeros from `zscore`.

Hosts that normalise within the group themselves (GRPO in verl, SkyRL and TRL) need "none".
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Final, Literal

from judgekit.metrics.moments import FLAT, is_flat

TransformName = Literal["none", "center", "zscore", "rank", "loo", "gdpo"]


def none(rewards: Sequence[float]) -> list[float]:
    """Return the rewards unchanged."""
    return list(rewards)


def center(rewards: Sequence[float]) -> list[float]:
    """Subtract the group's mean (Dr. GRPO, Liu et al. 2025, arXiv:2503.20783)."""
    if is_flat(rewards):
        return [0.0] * len(rewards)
    middle = mean(rewards)
    return [_finite(r - middle) for r in rewards]


def zscore(rewards: Sequence[float]) -> list[float]:
    """Subtract the group's mean and divide by its sample standard deviation, with n - 1 (GRPO, Shao et al. 2024,
    arXiv:2402.03300)."""
    if is_flat(rewards):
        return [0.0] * len(rewards)
    scale = max(map(abs, rewards))  # keeps squares inside the floats
    scaled = [r / scale for r in rewards]
    middle = mean(scaled)
    std = math.sqrt(math.fsum((x - middle) ** 2 for x in scaled) / (len(scaled) - 1))
    return [(x - middle) / std for x in scaled] if std > 0.0 else [0.0] * len(rewards)


def rank(rewards: Sequence[float]) -> list[float]:
    """Return average ranks, from 0 (worst) to 1 (best). Members that tie up to rounding share their mean rank."""
    n = len(rewards)
    if n == 1:
        return [0.5]
    noise = FLAT * max(map(abs, rewards))
    order = sorted(range(n), key=rewards.__getitem__)
    ranks = [0.0] * n
    start = 0
    while start < n:
        end = start
        while end + 1 < n and rewards[order[end + 1]] - rewards[order[start]] <= noise:
            end += 1
        for place in range(start, end + 1):
            ranks[order[place]] = (start + end) / 2 / (n - 1)
        start = end + 1
    return ranks


def loo(rewards: Sequence[float]) -> list[float]:
    """Subtract the mean of the other members (RLOO, Ahmadian et al. 2024, arXiv:2402.14740)."""
    n = len(rewards)
    if n == 1 or is_flat(rewards):
        return [0.0] * n
    middle = mean(rewards)
    return [_finite((r - middle) * (n / (n - 1))) for r in rewards]


def mean(rewards: Sequence[float]) -> float:
    """Return the arithmetic mean, without overflow."""
    scale = max(map(abs, rewards))
    return scale * min(max(math.fsum(r / scale for r in rewards) / len(rewards), -1.0), 1.0) if scale else 0.0


def _finite(value: float) -> float:
    """Replace an infinite difference of huge rewards by the largest float."""
    return min(max(value, -sys.float_info.max), sys.float_info.max)


TRANSFORMS: Final[dict[str, Callable[[Sequence[float]], list[float]]]] = {
    "none": none,
    "center": center,
    "zscore": zscore,
    "rank": rank,
    "loo": loo,
}
"""Transforms by name. `gdpo` is not among them: it needs the terms of the top-level Weighted."""

NEUTRAL: Final[dict[str, float]] = {"center": 0.0, "zscore": 0.0, "loo": 0.0, "gdpo": 0.0, "rank": 0.5}
"""The neutral value of transforms for which it does not depend on the group."""


def gdpo(terms: Sequence[dict[str, float]], weights: dict[str, float]) -> list[float]:
    """Z-score each term over the group, then weight and sum the terms.

    GDPO: group reward-decoupled normalisation, Liu et al. 2026, arXiv:2601.05242. A missing term adds nothing.
    """
    totals = [0.0] * len(terms)
    for name, weight in weights.items():
        have = [i for i, values in enumerate(terms) if name in values]
        if len(have) < 2:
            continue
        for i, value in zip(have, zscore([terms[i][name] for i in have]), strict=True):
            totals[i] += weight * value
    return totals
