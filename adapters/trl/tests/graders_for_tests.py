"""Graders that fail, and a group grader."""

from __future__ import annotations

from collections.abc import Sequence

from judgekit import JudgeUnavailable, Rollout, grader, group_grader


@grader
async def fussy(response: str) -> float:
    """The length, by a judge that is down for every second length."""
    if len(response) % 2:
        raise JudgeUnavailable("the judge is down")
    return len(response) / 10


@grader
async def down(response: str) -> float:
    raise JudgeUnavailable("the judge is down")


@grader
def odd(response: str) -> float:
    """1 for an odd length, else 0."""
    return float(len(response) % 2)


@group_grader
def longest(rollouts: Sequence[Rollout]) -> list[float]:
    """Rank by length among the group's members, 0 to 1."""
    lengths = [len(rollout.response) for rollout in rollouts]
    return [sum(x > y for y in lengths) / max(1, len(lengths) - 1) for x in lengths]
