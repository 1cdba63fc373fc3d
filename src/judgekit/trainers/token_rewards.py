"""Where in a trainer's tokens a rollout's reward lies: each turn's on its last token, the outcome's on the policy's last."""

from __future__ import annotations

import math
from collections.abc import Sequence

TURN_ESTIMATOR = "judgekit_turn_grpo"
"""The name under which trainers know the advantages of `judgekit.reward.turns`."""


def turn_runs(mask: Sequence[int]) -> list[tuple[int, int]]:
    """Return the policy's turns in a response: the runs of ones in its mask, each as start and end (exclusive)."""
    flags = bytes(mask)
    found: list[tuple[int, int]] = []
    start = flags.find(1)
    while start >= 0:
        end = flags.find(0, start)
        found.append((start, len(flags) if end < 0 else end))
        start = flags.find(1, found[-1][1])
    return found


def placed(
    reward: float, turns: Sequence[float], masks: Sequence[Sequence[int]]
) -> tuple[list[list[float]], bool]:
    """Return the reward of each token, and whether each turn's part lies where it was earned.

    *turns*: `RewardResult.turns`. *masks*: 1 for tokens that the policy wrote; one mask for each row of the
    trainer's, of which a rollout may have several. What *turns* leave of the *reward* lies on the last token that the policy wrote. If there are
    not as many turns as runs in the masks, nothing is guessed: all of it lies on the last token.
    """
    rewards = [[0.0] * len(mask) for mask in masks]
    ends = [(row, end - 1) for row, mask in enumerate(masks) for _, end in turn_runs(mask)]
    if turns and len(turns) == len(ends):
        for (row, at), earned in zip(ends, turns, strict=True):
            rewards[row][at] += earned
        row, at = ends[-1]
        rewards[row][at] += reward - math.fsum(turns)
        return rewards, True
    if rewards and rewards[-1]:
        rewards[-1][-1] = reward
    return rewards, not turns
