"""A rule that compares a rollout's final number with the reference."""

from __future__ import annotations

import math
from typing import Literal

from judgekit.errors import ConfigError
from judgekit.graders.rules.notation import shown
from judgekit.graders.rules.numbers import final_quantity, read_quantity
from judgekit.graders.rules.rule import Rule, truths
from judgekit.graders.rules.units import Quantity
from judgekit.types import Abstained, Grade, Graded, Rollout


class FinalAnswer(Rule):
    """Scores 1 if the final number equals the reference's, else 0.

    `judgekit.graders.rules.numbers` defines which number counts. The reference is a number, a text, a worked
    solution, or a list of accepted answers; if it is not one number the grader abstains. *tolerance*: largest
    relative difference that still counts as equal (0: equal by value). *need_marker*: a rollout without an
    explicit marker such as `#### 72` gives no answer; "####": only this marker counts, as in verl's and SkyRL's
    strict GSM8K rules. A reference `{"target": …}` is its target.

    Source of the task: GSM8K (Cobbe et al. 2021, arXiv:2110.14168), whose solutions end in `#### 72`.
    """

    score_range = (0.0, 1.0)
    version = "2"
    inputs = ("response", "ground_truth")
    abstains = "the reference has no number"
    abstains_by_row = True
    inline_limit = 20_000

    def __init__(
        self,
        *,
        tolerance: float = 0.0,
        need_marker: bool | Literal["####"] = False,
        name: str = "final_answer",
    ) -> None:
        if not (0 <= tolerance < 1):
            raise ConfigError(
                f"final_answer: tolerance is a relative difference from 0 to below 1, not {tolerance!r}"
            )
        self.name = name
        self.tolerance = tolerance
        if need_marker not in (True, False, "####"):
            raise ConfigError(f"{name}: need_marker is true, false or '####', not {need_marker!r}")
        self.need_marker = need_marker

    def grade(self, rollout: Rollout, /) -> Grade:
        accepted = [found for value in truths(rollout) if (found := read_quantity(value)) is not None]
        if not accepted:
            return Abstained("the reference has no number")
        given = final_quantity(rollout.response, need_marker=self.need_marker)
        if given.quantity is None:
            return Graded(0.0, given.why)
        answer = given.quantity
        if any(self._equal(answer, reference) for reference in accepted):
            return Graded(1.0, f"{shown(answer.value)} is right")
        return Graded(0.0, f"{_named(answer, accepted[0])} instead of {_named(accepted[0], answer)}")

    def _equal(self, answer: Quantity, reference: Quantity) -> bool:
        value = answer.converted(reference)
        if value is None or value == reference.value or not self.tolerance:
            return value == reference.value
        try:
            return math.isclose(value, reference.value, rel_tol=self.tolerance)
        except OverflowError:
            return False


def _named(number: Quantity, other: Quantity) -> str:
    """A number for people, with its unit where that makes the difference."""
    return f"{shown(number.value)} {number.unit}" if number.value == other.value else shown(number.value)
