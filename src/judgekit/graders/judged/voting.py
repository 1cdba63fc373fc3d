"""Combines several verdicts on one rollout: a judge's votes, or a panel's."""

from __future__ import annotations

import asyncio
import math
import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Literal, TypeGuard

import msgspec

from judgekit.errors import ConfigError, first_error
from judgekit.graders.protocol import failure
from judgekit.types import Abstained, Failed, Grade, Graded, Usage

Combine = Literal["mean", "median", "majority"]


async def ask_all(calls: Sequence[Callable[[], Awaitable[Grade]]]) -> list[Grade]:
    """Make all calls at once; one that raises becomes a Failed. Raises ConfigError."""

    async def one(call: Callable[[], Awaitable[Grade]]) -> Grade:
        try:
            return await call()
        except ConfigError:
            raise
        except Exception as error:
            return failure(error)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(call)) for call in calls]
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    return [task.result() for task in tasks]


def refused(grade: Grade) -> TypeGuard[Failed]:
    """Say whether the judge refused the request itself, which a member's text may have caused."""
    return isinstance(grade, Failed) and grade.error in ("JudgeRejected", "RolloutError")


def suspicious(grade: Grade) -> TypeGuard[Failed]:
    """Say whether a member's text may have caused this failure: a refusal, or a reply without a verdict."""
    return refused(grade) or (isinstance(grade, Failed) and grade.error == "VerdictError")


Members = Sequence[int]
Ask = Callable[[Members], Awaitable[Grade]]
"""Asks a judge about some members of a group, or about one alone."""


async def ask_about(sets: Sequence[Members], ask: Ask, usage: list[Usage]) -> list[Grade]:
    """Ask about each set of members at once.

    A failure about several of them is no member's own. *usage*: of each member; that of a set is added to its first.
    """
    grades = await ask_all([partial(ask, members) for members in sets])
    for number, (members, grade) in enumerate(zip(sets, grades, strict=True)):
        usage[members[0]] += getattr(grade, "usage", None) or Usage()
        if isinstance(grade, Failed) and len(members) > 1:
            grades[number] = msgspec.structs.replace(grade, cause="infrastructure")
    return grades


async def failing_alone(
    sets: Sequence[Members], grades: Sequence[Grade], ask: Ask, usage: list[Usage]
) -> dict[int, Failed]:
    """Find the members whose text a judge refuses or gives no verdict on, each asked about alone.

    Asks about the members of *sets* whose *grades* are suspicious. Returns their failures, which must not cost their
    siblings anything; a refusal is the rollout's own. A judge that fails for all members of the group is at fault
    itself: then only refusals count, if it does not refuse all (it may have no verdict on what it cannot compare); else the
    result is empty.
    """
    suspects = sorted(
        {m for each, grade in zip(sets, grades, strict=True) if suspicious(grade) for m in each}
    )
    found = await ask_about([[member] for member in suspects], ask, usage)
    failed = {member: grade for member, grade in zip(suspects, found, strict=True) if suspicious(grade)}
    own = {
        m: msgspec.structs.replace(grade, cause="rollout") for m, grade in failed.items() if refused(grade)
    }
    alone = {**failed, **own} if len(failed) < len(usage) else own
    return alone if len(alone) < len(usage) else {}


async def blocking(
    members: Members, failed: Failed, ask: Ask, usage: list[Usage], *, low: bool
) -> dict[int, Failed]:
    """Find the few members without whom a judge has a verdict on the others; each is given the failure *failed*.

    Asks once without each of them, so that the siblings are what it is compared with: a refusal is their own, and with *low*
    (`unreadable: low`) a reply without a verdict, too.
    """
    others = [[other for other in members if other != member] for member in members]
    found = await ask_about(others, ask, usage)
    blockers = [member for member, grade in zip(members, found, strict=True) if isinstance(grade, Graded)]
    if low or refused(failed):
        failed = msgspec.structs.replace(failed, cause="rollout")
    return dict.fromkeys(blockers, failed) if 2 * len(blockers) < len(members) else {}


def combined(
    how: Combine,
    count: int,
    *,
    score_range: tuple[float, float],
    quorum: int | None,
    max_spread: float | None,
    name: str,
    labels: Mapping[str, float] | None = None,
) -> Callable[[Sequence[Grade]], Grade]:
    """Return a function that combines *count* grades into one.

    "mean" and "median" of the scores; "majority": the most frequent score, and a tie abstains. *labels*: the scores
    of one-token verdicts, where a majority counts each judge's most likely label. *quorum*: the number
    of scores needed, or the grade fails (default: more than half). *max_spread*: if the highest and the lowest
    score differ by more, the judges disagree and the grade abstains. The result's metadata has all scores
    (`votes`) and their `agreement`: 1 minus the mean difference of two votes over the width of *score_range* (for
    two labels, the share of pairs that agree).
    """
    if how not in ("mean", "median", "majority"):
        raise ConfigError(f"{name}: combine is 'mean', 'median' or 'majority', not {how!r}")
    needed = count // 2 + 1 if quorum is None else quorum
    if not 1 <= needed <= count:
        raise ConfigError(f"{name}: quorum is a number from 1 to {count}, not {needed}")
    if max_spread is not None and not max_spread >= 0:
        raise ConfigError(f"{name}: max_spread is a difference of scores, at least 0, not {max_spread!r}")

    def combine(grades: Sequence[Grade]) -> Grade:
        usage = _usage_of(grades)
        scores = [g.score for g in grades if isinstance(g, Graded)]
        if own := next((g for g in grades if isinstance(g, Failed) and g.error == "RolloutError"), None):
            return msgspec.structs.replace(
                own, usage=usage
            )  # no other verdict takes the place of what it silenced
        if len(scores) < needed:
            return _short(grades, len(scores), needed, usage)
        metadata = {"votes": scores}
        if max_spread is not None and max(scores) - min(scores) > max_spread:
            why = f"the judges disagree: {min(scores):g} to {max(scores):g}"
            return Abstained(why, metadata, usage)
        if how == "majority":
            score = _elected([_ballot(g, labels) for g in grades if isinstance(g, Graded)])
            if isinstance(score, str):
                return Abstained(score, metadata, usage)
        else:
            score = statistics.median(scores) if how == "median" else math.fsum(scores) / len(scores)
            score = min(max(score, min(scores)), max(scores))
        agreement = _agreement(scores, score_range)
        reasons = [g.reason for g in grades if isinstance(g, Graded) and g.reason]
        return Graded(score, reasons[0] if reasons else "", {**metadata, "agreement": agreement}, usage)

    return combine


def _usage_of(grades: Sequence[Grade]) -> Usage:
    return sum((spent for g in grades if (spent := getattr(g, "usage", None)) is not None), Usage())


def _elected(ballots: Sequence[float]) -> float | str:
    """Return the most frequent of the ballots, or which two are as frequent as each other."""
    (score, most), *others = Counter(ballots).most_common()
    if others and others[0][1] == most:
        return f"a tie between {score:g} and {others[0][0]:g}"
    return score


def _ballot(grade: Graded, labels: Mapping[str, float] | None) -> float:
    """Return the score of the grade's most likely label, or its score if it has no labels."""
    probs = (grade.metadata or {}).get("probs")
    if labels is None or not probs:
        return grade.score
    return labels[max(probs, key=probs.__getitem__)]


def _agreement(scores: Sequence[float], score_range: tuple[float, float]) -> float:
    width = score_range[1] - score_range[0]
    pairs = [abs(a - b) for i, a in enumerate(scores) for b in scores[i + 1 :]]
    if not pairs:
        return 1.0
    if not math.isfinite(width):
        return sum(d == 0 for d in pairs) / len(pairs)
    return 1.0 - math.fsum(pairs) / len(pairs) / width


def _short(grades: Sequence[Grade], have: int, needed: int, usage: Usage) -> Grade:
    """Return the grade for too few scores: Failed if any failed, else Abstained."""
    failed = [g for g in grades if isinstance(g, Failed)]
    if not failed:
        reason = next(g.reason for g in grades if isinstance(g, Abstained))
        return Abstained(reason, usage=usage)
    first = failed[0]
    return Failed(
        first.error,
        f"{have} of {len(grades)} verdicts, {needed} needed: {first.detail}",
        retryable=any(g.retryable for g in failed),
        cause="rollout" if all(g.cause == "rollout" for g in failed) else "infrastructure",
        usage=usage,
    )
