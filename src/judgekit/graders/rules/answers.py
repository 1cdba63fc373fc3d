"""A rule that compares a rollout's final number with the reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

from judgekit.errors import ConfigError
from judgekit.graders.rules.numbers import final_answer, read_number, shown
from judgekit.graders.rules.text import Rule
from judgekit.types import Abstained, Grade, Graded, Rollout


class FinalAnswer(Rule):
    """Scores 1 if the final number equals the reference's, else 0.

    `judgekit.graders.rules.numbers` defines which number counts. The reference is a number, a text, a worked
    solution, or a list of accepted answers; if it contains no number the grader abstains. *tolerance*: largest
    relative difference that still counts as equal (0: equal by value). *need_marker*: a rollout without an
    explicit marker such as `#### 72` gives no answer; "####": only this marker counts, as in verl's and SkyRL's
    strict GSM8K rules. A reference `{"target": …}` is its target.

    Source of the task: GSM8K (Cobbe et al. 2021, arXiv:2110.14168), whose solutions end in `#### 72`.
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("response", "ground_truth")
    abstains = "the reference has no number"
    inline_limit = 40_000

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
        truth = rollout.ground_truth
        if isinstance(truth, Mapping) and "target" in truth:
            truth = truth["target"]
        references = [read_number(t) for t in (truth if isinstance(truth, list | tuple) else [truth])]
        accepted = [r for r in references if r is not None]
        if not accepted:
            return Abstained("the reference has no number")
        answer = final_answer(rollout.response, need_marker=self.need_marker)
        if answer is None:
            return Graded(0.0, "no number is given as the answer")
        if any(self._equal(answer, reference) for reference in accepted):
            return Graded(1.0, f"{shown(answer)} is right")
        return Graded(0.0, f"{shown(answer)} instead of {shown(accepted[0])}")

    def _equal(self, answer: Fraction, reference: Fraction) -> bool:
        if answer == reference or not self.tolerance:
            return answer == reference
        try:
            return math.isclose(answer, reference, rel_tol=self.tolerance)
        except OverflowError:
            return False
