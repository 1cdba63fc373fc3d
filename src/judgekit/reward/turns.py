"""Advantages of turns: what came of a turn, against what came of the same turn in the group's other members."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence


def turn_advantages(
    rewards: Sequence[Sequence[float] | None], groups: Sequence[Hashable], gamma: float = 1.0
) -> list[list[float]]:
    """Return the advantage of each turn of each rollout.

    *rewards*: what each turn earned, the outcome with the last one; None, or no turn, for a rollout that is missing: it
    is not there. *groups*: the rollouts' groups. *gamma*: the discount from one turn to the next.

    An advantage is the turn's return, which is all that it and later turns earned, minus the mean return of the same turn in the
    group's other members. For a turn that none of them reached, it is minus the mean of the returns of the last turn that
    each of them did reach. Only other members are compared with, so the policy gradient keeps its expectation, also where the
    policy decides when to stop. A member without any other gets 0. With outcomes alone and equal numbers of turns it is GRPO
    with leave-one-out, without a standard deviation.
    """
    returns = [_returns(earned or (), gamma) for earned in rewards]
    members: dict[Hashable, list[int]] = {}
    for i, group in enumerate(groups):
        if returns[i]:
            members.setdefault(group, []).append(i)
    advantages: list[list[float]] = [[] for _ in returns]
    for places in members.values():
        for i in places:
            others = [returns[j] for j in places if j != i]
            advantages[i] = [value - _baseline(others, at) for at, value in enumerate(returns[i])]
            if not others:
                advantages[i] = [0.0] * len(returns[i])
    return advantages


def _returns(earned: Sequence[float], gamma: float) -> list[float]:
    found = [0.0] * len(earned)
    after = 0.0
    for at in range(len(earned) - 1, -1, -1):
        found[at] = after = earned[at] + gamma * after
    return found


def _baseline(others: Sequence[Sequence[float]], at: int) -> float:
    """Return the mean return of turn *at* over those that reached it; over the last turns of all if none did."""
    there = [returns[at] for returns in others if len(returns) > at] or [returns[-1] for returns in others]
    return math.fsum(there) / len(there) if there else 0.0
