"""Weights that move over a training: linear between the steps that are written, constant before the first and after the last.

Weighted({"correct": 1.0, "format": [[0, 0.5], [200, 0.0]]})      # half at first, nothing from step 200 on
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from judgekit.errors import ConfigError
from judgekit.reward.conditions import finite, is_number


class Schedule:
    """A weight by training step: pairs of [step, weight], steps rising. Raises ConfigError, which calls it *what*."""

    def __init__(self, points: Sequence[Any], what: str = "a weight") -> None:
        pairs = [tuple(point) for point in points if isinstance(point, list | tuple)]
        if not points or len(pairs) < len(points) or any(len(pair) != 2 for pair in pairs):
            raise ConfigError(
                f"{what} is a number, or a list of [step, weight] such as [[0, 0.5], [200, 0]], not {points!r:.80}"
            )
        self.steps = [finite(step, f"a step of {what}") for step, _ in pairs]
        self.weights = [finite(weight, f"{what} at step {step:g}") for step, weight in pairs]
        for before, after in zip(self.steps, self.steps[1:], strict=False):
            if not before < after:
                raise ConfigError(f"{what}: its steps rise, and {after:g} does not come after {before:g}")

    def at(self, step: float) -> float:
        """Return the weight at *step*."""
        after = bisect_right(self.steps, step)
        if after == 0:
            return self.weights[0]
        if after == len(self.steps):
            return self.weights[-1]
        low, high = self.steps[after - 1], self.steps[after]
        start, end = self.weights[after - 1], self.weights[after]
        return start + (end - start) * ((step - low) / (high - low))

    @property
    def largest(self) -> float:
        """The weight that is farthest from 0."""
        return max(self.weights, key=abs)

    def spec(self) -> list[list[float]]:
        """Return it as YAML-ready data."""
        return [[step, weight] for step, weight in zip(self.steps, self.weights, strict=True)]


def checked_step(given: Any) -> float:
    """Return a training step as a number. Raises ConfigError if there is none."""
    if not is_number(given):
        raise ConfigError(
            "the reward has a weight that depends on the training step, and this run has no step: its host tells none, and in Python "
            "it is run(rollouts, step=…)"
        )
    return finite(given, "the training step")
