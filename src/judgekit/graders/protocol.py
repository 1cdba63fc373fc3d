"""The grader protocols, and the conversion of their results to grades.

A pointwise grader grades one rollout; a group grader grades the rollouts of one prompt together. Both are
configured once, keep no state between rollouts, and may raise: the runner turns an exception into `Failed`,
so a grader never has to invent a score.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from judgekit.errors import ConfigError, GraderRaised, RolloutError, VerdictError, attribute, describe
from judgekit.types import Abstained, Failed, Grade, Graded, Rollout, Usage, policy_turns

Where = Literal["inline", "thread", "process"]
"""Where a synchronous grader runs: on the event loop (fast rules); in a thread (functions that block); in a
worker process (CPU-heavy work and hostile input: the only one that can be killed at its timeout)."""
Per = Literal["rollout", "turn"]
"""Whether a grader grades a rollout as a whole, or says something of each of the policy's turns, too."""


@runtime_checkable
class Grader(Protocol):
    """Grades one rollout.

    May also have: `where` (see `Where`; default "inline" for synchronous graders), `timeout_s` (overrides
    the runner's), `max_concurrency` (evaluations of this grader in flight in one run), `inline_limit` (rollouts
    with more characters are graded in a worker process instead of inline), and `outputs` (the names of several
    scores of one call: `grade` then returns a mapping of them), and `gives_turns` (whether its grades have `turns`; without
    it, that is seen when it grades). A grader that needs something has `start()` and `close()`,
    plain or async, which the runner calls once, outside every rollout's time, or `warm_up()`.
    """

    name: str
    version: str
    """Change it when the rule or the prompt changes; cache keys and the ledger contain it."""
    score_range: tuple[float, float]
    """Lowest and highest score, inclusive; infinite bounds are allowed, scores are not."""

    def grade(self, rollout: Rollout, /) -> Any:
        """Return a Grade, a number, or None to abstain; or an awaitable of one."""
        ...


@runtime_checkable
class GroupGrader(Protocol):
    """Grades the rollouts of one prompt together.

    Never called for a group of one, for which the runner abstains; unless it has `grades_alone = True`, because it
    grades several at once, and does not compare them.
    """

    name: str
    version: str
    score_range: tuple[float, float]

    async def grade_group(self, rollouts: Sequence[Rollout], /) -> Sequence[Any]:
        """Return one Grade or number per member, in order."""
        ...


AnyGrader = Grader | GroupGrader


def as_grade(value: Any, score_range: tuple[float, float], rollout: Rollout | None = None) -> Grade:
    """Convert a grader's result to a Grade with a finite score inside *score_range*.

    Numbers and bools become Graded, None becomes Abstained; anything else, NaN, scores outside the range, turns that are
    not those of the *rollout* and grades with parts of a wrong type become Failed: nothing is clamped, and nothing raises.
    """
    kind = type(value)
    try:
        if kind is Graded:
            score, metadata, usage = value.score, value.metadata, value.usage
            # one chain catches NaN too: it compares false with everything
            if (
                type(score) is float
                and score_range[0] <= score <= score_range[1]
                and -math.inf < score < math.inf
                and type(value.reason) is str
                and (metadata is None or type(metadata) is dict)
                and (usage is None or _counts(usage))
                and value.turns is None
            ):
                return value  # type: ignore[no-any-return]
        elif kind is float or kind is int or kind is bool:
            score = float(value)
            if score_range[0] <= score <= score_range[1] and -math.inf < score < math.inf:
                return Graded(score)
        elif value is None:
            return Abstained("returned None")
        return _as_grade(value, score_range, rollout)
    except OverflowError:
        return Failed("ScoreOutOfRange", "the score is an integer beyond the floats")
    except BaseException as error:  # of the value's own methods
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            raise
        return Failed("TypeError", f"a grader returned a {kind.__name__} that raised {type(error).__name__}")


def _as_grade(value: Any, score_range: tuple[float, float], rollout: Rollout | None) -> Grade:
    if isinstance(value, Abstained | Failed | Graded) and (wrong := _wrong_part(value)):
        return Failed("TypeError", wrong)
    if isinstance(value, Abstained | Failed):
        return value
    number = value.score if isinstance(value, Graded) else value
    score = _number(number, score_range, "the score")
    if score is None and not isinstance(value, Graded):
        return Failed("TypeError", f"a grader returns a number, None or a Grade, not {type(value).__name__}")
    if not isinstance(score, float):
        return score or Failed("TypeError", f"a score is a number, not {number!r:.80}")
    if not isinstance(value, Graded):
        return Graded(score)
    turns = None if value.turns is None else _turns(value.turns, score_range, rollout)
    return (
        turns
        if isinstance(turns, Failed)
        else Graded(score, value.reason, value.metadata, value.usage, turns)
    )


def _number(number: Any, score_range: tuple[float, float], what: str) -> float | Failed | None:
    """Return a score as a finite float in its range; None if it is no number."""
    if getattr(number, "ndim", None) == 0 and hasattr(number, "item"):  # a numpy or torch scalar
        number = number.item()
    if not isinstance(number, int | float):
        return None
    score = float(number)
    if not math.isfinite(score):
        return Failed("ScoreNotFinite", f"{what} is {score}")
    if not score_range[0] <= score <= score_range[1]:
        which = "" if what == "the score" else f"{what}: "
        return Failed(
            "ScoreOutOfRange", f"{which}{score:g} is outside {score_range[0]:g}..{score_range[1]:g}"
        )
    return score


def _turns(
    given: Any, score_range: tuple[float, float], rollout: Rollout | None
) -> tuple[float | None, ...] | Failed:
    """Return what a grade says of the turns, checked as scores are: one for each turn of the policy."""
    if not isinstance(given, tuple | list):
        return Failed(
            "TypeError", f"a grade's turns are a tuple of numbers and None, not {type(given).__name__}"
        )
    found: list[float | None] = []
    for at, one in enumerate(given, 1):
        score = None if one is None else _number(one, score_range, f"turn {at}")
        if isinstance(score, Failed):
            return score
        if score is None and one is not None:
            return Failed("TypeError", f"turn {at} is a number or None, not {one!r:.80}")
        found.append(score)
    count = len(found) if rollout is None else len(policy_turns(rollout))
    if len(found) != count:
        return Failed("WrongTurns", f"the grade has {len(found)} turn(s), the rollout {count}")
    return tuple(found)


def of_turns(values: Sequence[Any], score_range: tuple[float, float]) -> Grade:
    """Make one grade of what was said of each turn; its score is the mean over the turns with an opinion.

    It abstains if no turn has one. A turn that failed is a failure of the whole.
    """
    grades = [as_grade(value, score_range) for value in values]
    usage = None
    for spent in (getattr(grade, "usage", None) for grade in grades):
        usage = spent if usage is None else usage + (spent or Usage())
    for at, grade in enumerate(grades, 1):
        if isinstance(grade, Failed):
            detail = f"turn {at}: {grade.detail}".removesuffix(": ")
            return msgspec.structs.replace(grade, detail=detail, usage=usage)
    turns = tuple(grade.score if isinstance(grade, Graded) else None for grade in grades)
    known = [score for score in turns if score is not None]
    said = [(at, getattr(grade, "reason", "")) for at, grade in enumerate(grades, 1)]
    reason = "; ".join(f"turn {at}: {text}" for at, text in said if text and turns[at - 1] is not None)
    if not known:
        return Abstained("no turn has an opinion", usage=usage)
    mean = min(max(math.fsum(known) / len(known), min(known)), max(known))  # rounding leaves no range
    return Graded(mean, reason, usage=usage, turns=turns)


def _wrong_part(grade: Graded | Abstained | Failed) -> str:
    """Return what is wrong with a grade's other fields, for the ledger or the usage; empty if nothing."""
    for part in ("reason", "error", "detail"):
        if type(text := getattr(grade, part, "")) is not str:
            return f"a grade's {part} is text, not {type(text).__name__}"
    if not isinstance(grade.metadata, Mapping | None):
        return f"a grade's metadata is a mapping, not {type(grade.metadata).__name__}"
    if not (grade.usage is None or _counts(grade.usage)):
        return f"a grade's usage is a Usage of whole numbers, not {grade.usage!r:.80}"
    if isinstance(grade, Failed) and grade.cause not in ("infrastructure", "rollout"):
        return f"a failure's cause is 'infrastructure' or 'rollout', not {grade.cause!r:.80}"
    if isinstance(grade, Failed) and type(grade.retryable) is not bool:
        return f"a failure's retryable is True or False, not {grade.retryable!r:.80}"
    return ""


def _counts(usage: Any) -> bool:
    """Whether *usage* is a Usage that can be added up and recorded."""
    return isinstance(usage, Usage) and all(
        type(count) is int and 0 <= count < 1 << 53
        for count in (usage.calls, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
    )


def per_member(value: Any, count: int) -> Sequence[Any]:
    """What a group grader gave, as *count* values: one for each member of the group."""
    if isinstance(value, Failed | Abstained):
        return [value] * count
    try:
        # a set has no order, and a mapping's keys are no grades
        values = None if isinstance(value, str | bytes | Mapping | Set) else list(value)
    except Exception:
        values = None
    if values is not None and len(values) == count:
        return values
    got = type(value).__name__ if values is None else f"{len(values)} grades"
    return [Failed("WrongGroupGrades", f"{got} for {count} members")] * count


def output(value: Any, part: str, outputs: Sequence[str]) -> Any:
    """One of the several scores that a grader with *outputs* gave in one call."""
    if value is None or isinstance(value, Abstained | Failed):
        return value
    if not isinstance(value, Mapping):
        return Failed("TypeError", f"expected scores for {', '.join(outputs)}, not {type(value).__name__}")
    try:
        return value[part]
    except KeyError:
        return Failed("KeyError", f"no score {part!r}")
    except Exception as error:
        return failure(error)


def failure(error: BaseException) -> Failed:
    """Convert an exception to a grade.

    Only a `RolloutError` is the rollout's fault, or a `VerdictError` where the user says so. All others count as
    infrastructure failures, because an exception's class does not tell whose text or memory caused it.
    """
    if isinstance(error, GraderRaised):
        blamed: Any = "rollout" if error.from_rollout else "infrastructure"
        return Failed(error.error, error.detail, retryable=error.retryable, cause=blamed)
    name, detail = describe(error)
    usage, raw = attribute(error, "usage"), attribute(error, "raw")
    blame = isinstance(error, RolloutError) or (isinstance(error, VerdictError) and error.from_rollout)
    return Failed(
        name,
        detail,
        retryable=attribute(error, "retryable") is True,
        cause="rollout" if blame else "infrastructure",
        metadata={"raw": raw} if isinstance(error, VerdictError) and isinstance(raw, str) else None,
        usage=usage if _counts(usage) else None,
    )


def check_grader(name: str, given: Any) -> None:
    """Raise ConfigError if *given* is not a usable grader."""
    if inspect.isclass(given):
        raise ConfigError(f"grader {name!r}: {given.__name__} is a class; call it: {given.__name__}()")
    if not (callable(getattr(given, "grade", None)) or callable(getattr(given, "grade_group", None))):
        if (
            (method := getattr(given, "__qualname__", ""))
            and hasattr(type(given), "__get__")
            and "." in method
        ):
            of, _, itself = method.rpartition(".")
            if not of.endswith("<locals>"):
                raise ConfigError(
                    f"grader {name!r}: {method} is a method: give that of an object, {of}(…).{itself}"
                )
        hint = (
            "; decorate the function with @judgekit.grader, or wrap it in judgekit.from_function"
            if callable(given)
            else ""
        )
        raise ConfigError(
            f"grader {name!r}: {type(given).__name__} has neither grade() nor grade_group(){hint}"
        )
    version = getattr(given, "version", None)
    if not isinstance(version, str):
        raise ConfigError(
            f"grader {name!r}: version is text such as '1', not {version!r}: it tells ledger and caches "
            "that the rule or the prompt has changed"
        )
    bounds = getattr(given, "score_range", None)
    try:
        low, high = bounds  # type: ignore[misc]
        fine = low < high and not (math.isnan(low) or math.isnan(high))
    except (TypeError, ValueError, OverflowError):
        fine = False
    if not fine:
        raise ConfigError(f"grader {name!r}: score_range is (lowest, highest), not {bounds!r}")
    _check_settings(name, given)


def _check_settings(name: str, given: Any) -> None:
    """Raise ConfigError if a grader's optional attributes are of a wrong kind."""
    if getattr(given, "where", "inline") not in ("inline", "thread", "process"):
        raise ConfigError(f"grader {name!r}: where is 'inline', 'thread' or 'process', not {given.where!r}")
    call = getattr(given, "grade_group", None) or given.grade
    if inspect.iscoroutinefunction(call) and getattr(given, "where", "inline") != "inline":
        raise ConfigError(f"grader {name!r} is async: it runs on the event loop, not where={given.where!r}")
    timeout_s = getattr(given, "timeout_s", None)
    if timeout_s is not None and not (
        isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool) and timeout_s > 0
    ):
        raise ConfigError(f"grader {name!r}: timeout_s is a number of seconds above 0, not {timeout_s!r}")
    limit = getattr(given, "max_concurrency", None)
    if limit is not None and not (type(limit) is int and limit >= 1):
        raise ConfigError(f"grader {name!r}: max_concurrency is a whole number from 1, not {limit!r}")
    outputs = getattr(given, "outputs", None) or ()
    if not (
        isinstance(outputs, list | tuple)
        and all(isinstance(part, str) and part and "." not in part for part in outputs)
        and len(set(outputs)) == len(outputs)
    ):
        raise ConfigError(f"grader {name!r}: outputs are different names without dots, not {outputs!r}")


def is_group_grader(given: AnyGrader) -> bool:
    return callable(getattr(given, "grade_group", None))
