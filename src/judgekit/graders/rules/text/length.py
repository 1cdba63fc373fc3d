"""Rules about the length of a rollout."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from judgekit.errors import ConfigError
from judgekit.graders.protocol import Grader, Where, as_grade, check_grader
from judgekit.graders.rules.rule import Rule, at_least
from judgekit.graders.rules.thoughts import without_end
from judgekit.types import Abstained, Grade, Graded, Rollout

Unit = Literal["characters", "words", "tokens"]


class Length(Rule):
    """Scores 1 up to a length of `soft_max`, falling linearly to 0 at `hard_max`.

    Likewise below `soft_min` down to `hard_min`. *unit*: "characters", "words" (separated by spaces), or "tokens":
    the host's count (`response_tokens`), or *count_tokens* of the text; if there is neither the grader abstains. The
    score is a ramp, not a step, so that there is a gradient to learn from.

    Source: judgekit's own; a ramp on both sides of a band.
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs: tuple[str, ...] = ("response", "response_tokens")
    abstains = "the unit is tokens and their number is not known"
    only_form = True
    inline_limit = 2_000_000

    def __init__(
        self,
        *,
        soft_max: float | None = None,
        hard_max: float | None = None,
        soft_min: float | None = None,
        hard_min: float | None = None,
        unit: Unit = "characters",
        count_tokens: Callable[[str], int] | None = None,
        name: str = "length",
    ) -> None:
        check_unit("length", unit)
        if (soft_max is None) != (hard_max is None) or (soft_min is None) != (hard_min is None):
            raise ConfigError("length: give soft_max with hard_max, and soft_min with hard_min")
        if soft_max is None and soft_min is None:
            raise ConfigError("length: give soft_max and hard_max, or soft_min and hard_min, or all four")
        bounds = [b for b in (hard_min, soft_min, soft_max, hard_max) if b is not None]
        if any(b < 0 for b in bounds) or bounds != sorted(bounds):
            raise ConfigError("length: 0 <= hard_min <= soft_min <= soft_max <= hard_max must hold")
        self.name = name
        self.unit = unit
        self.count_tokens = count_tokens
        self.soft_max, self.hard_max, self.soft_min, self.hard_min = soft_max, hard_max, soft_min, hard_min

    def grade(self, rollout: Rollout, /) -> Grade:
        size = measured(rollout, self.unit, self.count_tokens)
        if size is None:
            return Abstained("the number of tokens is not known")
        score = 1.0
        if self.soft_max is not None and self.hard_max is not None and size > self.soft_max:
            score = _ramp(self.hard_max - size, self.hard_max - self.soft_max)
        if self.soft_min is not None and self.hard_min is not None and size < self.soft_min:
            score = _ramp(size - self.hard_min, self.soft_min - self.hard_min)
        return Graded(score, "" if score == 1.0 else f"{size} {self.unit}")


class SoftOverlong(Rule):
    """Scores 0 up to a length of `max_length - cache`, falling linearly to -1 at `max_length`.

    *unit*: see `Length`; tokens by default. Add it to a reward for correctness. Abstains if the number of tokens is
    not known.

    Source: DAPO's soft overlong punishment (Yu et al. 2025, arXiv:2503.14476, equation 13), as TRL's
    `get_soft_overlong_punishment`.
    """

    score_range = (-1.0, 0.0)
    version = "1"
    inputs = ("response", "response_tokens")
    abstains = "the unit is tokens and their number is not known"
    inline_limit = 2_000_000
    timeout_s = 5.0

    def __init__(
        self,
        *,
        max_length: int,
        cache: int,
        unit: Unit = "tokens",
        count_tokens: Callable[[str], int] | None = None,
        name: str = "soft_overlong",
    ) -> None:
        check_unit(name, unit)
        at_least(name, "max_length", max_length, 1)
        at_least(name, "cache", cache, 0)
        if cache > max_length:
            raise ConfigError(f"{name}: cache is part of max_length, so at most {max_length}, not {cache}")
        self.name = name
        self.max_length = max_length
        self.cache = cache
        self.unit = unit
        self.count_tokens = count_tokens

    def grade(self, rollout: Rollout, /) -> Grade:
        size = measured(rollout, self.unit, self.count_tokens)
        if size is None:
            return Abstained("the number of tokens is not known")
        over = size - (self.max_length - self.cache)
        if over <= 0:
            return Graded(0.0)
        score = -1.0 if size > self.max_length else -over / self.cache
        return Graded(score, f"{size} {self.unit}")


class CosineLength(Rule):
    """Scores correctness, scaled by length along a half cosine.

    *right* is a pair: the scores of a right rollout at length 0 and at *max_length*; *wrong* likewise. So short right
    answers beat long ones, and long wrong answers lose less than short ones. From *max_length* on a rollout gets
    *exceeded*, by default (None) the value at *max_length*.

    *correct*: the grader that decides what is right, from a score of *threshold*; if it abstains or fails, so does
    this one. *unit*: see `Length`.

    Source: the cosine reward of Yeo et al. 2025 (arXiv:2502.03373, section 4.1, appendix C.1; there r_e = -10
    for what exceeds), with the default values of open-r1's `get_cosine_scaled_reward`.
    """

    version = "1"
    inputs = ("response", "response_tokens", "ground_truth")
    abstains = "the length is not known, or `correct` abstains"

    def __init__(
        self,
        *,
        correct: Grader,
        max_length: int = 1000,
        right: tuple[float, float] = (1.0, 0.5),
        wrong: tuple[float, float] = (-1.0, -0.5),
        exceeded: float | None = None,
        threshold: float = 0.5,
        unit: Unit = "characters",
        count_tokens: Callable[[str], int] | None = None,
        name: str = "cosine_length",
    ) -> None:
        check_grader(f"{name}.correct", correct)
        if not callable(getattr(correct, "grade", None)):
            raise ConfigError(f"{name}: correct is a pointwise grader, which grades single rollouts")
        check_unit(name, unit)
        at_least(name, "max_length", max_length, 1)
        values = [*right, *wrong, *([] if exceeded is None else [exceeded])]
        if len(right) != 2 or len(wrong) != 2 or not all(math.isfinite(v) for v in values):
            raise ConfigError(f"{name}: right and wrong are pairs of numbers: at length 0, and at max_length")
        if min(values) == max(values):
            raise ConfigError(
                f"{name}: right and wrong have one value for everything, so there is nothing to learn"
            )
        self.name = name
        self.correct = correct
        self.max_length = max_length
        self.right, self.wrong, self.exceeded = right, wrong, exceeded
        self.threshold = threshold
        self.unit = unit
        self.count_tokens = count_tokens
        self.score_range = (float(min(values)), float(max(values)))
        self.where: Where = getattr(correct, "where", "inline")
        self.timeout_s: float | None = getattr(correct, "timeout_s", None)
        self.inline_limit: int | None = getattr(correct, "inline_limit", None)

    def warm_up(self) -> Any:
        inner = getattr(self.correct, "warm_up", None)
        return inner() if inner else None

    def grade(self, rollout: Rollout, /) -> Grade | Awaitable[Grade]:
        verdict = self.correct.grade(rollout)
        if hasattr(verdict, "__await__"):
            return self._later(verdict, rollout)
        return self._scaled(verdict, rollout)

    async def _later(self, verdict: Awaitable[Any], rollout: Rollout) -> Grade:
        return self._scaled(await verdict, rollout)

    def _scaled(self, verdict: Any, rollout: Rollout) -> Grade:
        grade = as_grade(verdict, self.correct.score_range)
        if not isinstance(grade, Graded):
            return grade
        size = measured(rollout, self.unit, self.count_tokens)
        if size is None:
            return Abstained("the number of tokens is not known", usage=grade.usage)
        is_right = grade.score >= self.threshold
        start, end = self.right if is_right else self.wrong
        if size >= self.max_length:
            score = end if self.exceeded is None else self.exceeded
        else:
            score = end + 0.5 * (start - end) * (1.0 + math.cos(math.pi * size / self.max_length))
        low, high = self.score_range
        reason = f"{'right' if is_right else 'wrong'}, {size} {self.unit}"
        return Graded(min(max(score, low), high), reason, usage=grade.usage)


def measured(rollout: Rollout, unit: Unit, count_tokens: Callable[[str], int] | None) -> int | None:
    """Return the length of a rollout; None if the number of tokens is not known."""
    if unit == "characters":
        return len(without_end(rollout.response))
    if unit == "words":
        return len(without_end(rollout.response).split())
    if rollout.response_tokens is not None:
        return rollout.response_tokens
    return count_tokens(rollout.response) if count_tokens else None


def check_unit(name: str, unit: Unit) -> None:
    if unit not in ("characters", "words", "tokens"):
        raise ConfigError(f"{name}: unit is 'characters', 'words' or 'tokens', not {unit!r}")


def _ramp(left: float, whole: float) -> float:
    return min(max(left / whole, 0.0), 1.0) if whole > 0 else 0.0
