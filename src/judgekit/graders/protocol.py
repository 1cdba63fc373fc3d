"""What a grader is, and how its answer becomes a grade.

A pointwise grader grades one rollout; a group grader grades the rollouts of one prompt together. Both are
configured once, keep no state between rollouts, and may raise: the runner turns an exception into `Failed`,
so a grader never has to invent a score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from judgekit.errors import ROLLOUT_ERRORS, ConfigError, GraderRaised, VerdictError
from judgekit.types import Abstained, Failed, Grade, Graded, Rollout, Skipped

Where = Literal["inline", "thread", "process"]
"""Where a synchronous grader runs: on the event loop (fast rules); in a thread (functions that block); in a
worker process (CPU-heavy work and hostile input: the only one that can be killed at its timeout)."""


@runtime_checkable
class Grader(Protocol):
    """Grades one rollout.

    May also have: `where` (see `Where`; default "inline" for synchronous graders), `timeout_s` (overrides
    the runner's), `max_concurrency` (evaluations of this grader in flight in one run), `inline_limit` (a rule
    that runs inline on rollouts of up to so many characters is run in a worker process on larger ones), and
    `outputs`, the names of several scores that one call gives: `grade` then returns a mapping of them.
    """

    name: str
    version: str
    """Raise it when the rule or the prompt changes: it is part of the cache key and of the ledger."""
    score_range: tuple[float, float]
    """Lowest and highest score, inclusive; infinite bounds are allowed, scores are not."""

    def grade(self, rollout: Rollout, /) -> Any:
        """A Grade or a number (None: abstains), or an awaitable of one."""
        ...


@runtime_checkable
class GroupGrader(Protocol):
    """Grades the rollouts of one prompt together. Never called for a group of one: it abstains there."""

    name: str
    version: str
    score_range: tuple[float, float]

    async def grade_group(self, rollouts: Sequence[Rollout], /) -> Sequence[Any]:
        """One Grade or number per member, in order."""
        ...


AnyGrader = Grader | GroupGrader


def as_grade(value: Any, score_range: tuple[float, float]) -> Grade:
    """What a grader returned, as a Grade whose score is finite and inside *score_range*.

    Numbers and bools become Graded, None becomes Abstained; anything else, NaN, and scores outside the
    range become Failed: nothing is clamped.
    """
    kind = type(value)
    if kind is Graded:
        score = value.score
        if type(score) is not float:
            if not isinstance(score, int | float):
                return Failed("TypeError", f"a score is a number, not {score!r:.80}")
            value = Graded(float(score), value.reason, value.metadata, value.usage)
            score = value.score
        # one chain catches NaN too: it compares false with everything
        if score_range[0] <= score <= score_range[1] and -math.inf < score < math.inf:
            return value  # type: ignore[no-any-return]
        return _bad_score(score, score_range)
    if kind is float or kind is int or kind is bool:
        score = float(value)
        if score_range[0] <= score <= score_range[1] and -math.inf < score < math.inf:
            return Graded(score)
        return _bad_score(score, score_range)
    if value is None:
        return Abstained("returned None")
    if kind is Abstained or kind is Failed or kind is Skipped:
        return value  # type: ignore[no-any-return]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a numpy or torch scalar
        return as_grade(value.item(), score_range)
    return Failed("TypeError", f"a grader returns a number, None or a Grade, not {type(value).__name__}")


def failure(error: BaseException) -> Failed:
    """An exception as the grade that it is."""
    if isinstance(error, GraderRaised):
        return Failed(error.error, error.detail, cause="rollout" if error.from_rollout else "infrastructure")
    return Failed(
        type(error).__name__,
        str(error)[:1000],
        retryable=bool(getattr(error, "retryable", False)),
        cause="rollout" if isinstance(error, ROLLOUT_ERRORS) else "infrastructure",
        metadata={"raw": error.raw} if isinstance(error, VerdictError) else None,
        usage=getattr(error, "usage", None),
    )


def _bad_score(score: float, score_range: tuple[float, float]) -> Failed:
    if math.isfinite(score):
        return Failed("ScoreOutOfRange", f"{score:g} is outside {score_range[0]:g}..{score_range[1]:g}")
    return Failed("ScoreNotFinite", f"the score is {score}")


def check_grader(name: str, given: Any) -> None:
    """Raise ConfigError where *given* is not a usable grader."""
    if not (callable(getattr(given, "grade", None)) or callable(getattr(given, "grade_group", None))):
        hint = "; decorate the function with @judgekit.grader" if callable(given) else ""
        raise ConfigError(
            f"grader {name!r}: {type(given).__name__} has neither grade() nor grade_group(){hint}"
        )
    bounds = getattr(given, "score_range", None)
    try:
        low, high = bounds  # type: ignore[misc]
        fine = low < high and not (math.isnan(low) or math.isnan(high))
    except (TypeError, ValueError):
        fine = False
    if not fine:
        raise ConfigError(f"grader {name!r}: score_range is (lowest, highest), not {bounds!r}")
    if getattr(given, "where", "inline") not in ("inline", "thread", "process"):
        raise ConfigError(f"grader {name!r}: where is 'inline', 'thread' or 'process', not {given.where!r}")
    timeout_s = getattr(given, "timeout_s", None)
    if timeout_s is not None and not timeout_s > 0:
        raise ConfigError(f"grader {name!r}: timeout_s is a number of seconds above 0, not {timeout_s!r}")


def is_group_grader(given: AnyGrader) -> bool:
    return callable(getattr(given, "grade_group", None))
