"""Rules over a group: diversity, shortest right answer, majority."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, Literal

from judgekit.errors import ConfigError
from judgekit.execution.turns import give_way
from judgekit.graders.judged.voting import ask_all
from judgekit.graders.protocol import Grader, as_grade, check_grader, failure
from judgekit.graders.rules.numbers import final_answer
from judgekit.graders.rules.rule import PARTS, Part, Rule, at_least, normaliser, one_of, part_of
from judgekit.graders.rules.text.length import Unit, check_unit, measured
from judgekit.graders.rules.values import signs
from judgekit.graders.rules.work import in_pool
from judgekit.types import Abstained, Grade, Graded, Rollout

_WORD = re.compile(r"\w+")
_MAX_WORDS = 20_000
"""Words at the beginning of a response that are compared."""


class Diversity:
    """Scores how different a rollout is from its group.

    0 means equal to all others, 1 nothing in common. The score is 1 minus the mean Jaccard index of its set of word n-grams with every other member's. *n*: words in an
    n-gram; shorter texts are compared whole. *part*: see `Part`. It rewards any difference: put it behind a gate on
    correctness, or give it a small weight. A group of one abstains.

    Source: 1 - self-similarity of a set of generations, the kind of Self-BLEU (Zhu et al. 2018,
    arXiv:1802.01886) and distinct-n (Li et al. 2016, arXiv:1510.03055), here by sets of n-grams.
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("response of all members",)
    gives_turns = False
    abstains = "the group has one member"

    def __init__(self, *, n: int = 2, part: Part = "whole", name: str = "diversity") -> None:
        at_least(name, "n", n, 1, whole=True)
        one_of(name, "part", part, PARTS)
        self.name = name
        self._job = _Job(_DiversityOf(n, part))

    async def grade_group(self, rollouts: Sequence[Rollout], /) -> Sequence[Grade]:
        return await self._job.of_group(rollouts)


class _DiversityOf:
    """The computation of `Diversity`, which can run in a worker process."""

    def __init__(self, n: int, part: Part) -> None:
        self.n = n
        self.part: Part = part

    def work(self, rollouts: Sequence[Rollout]) -> list[Grade]:
        sets = [self._grams(part_of(r.response, self.part) or "") for r in rollouts]
        others = len(sets) - 1
        holders = Counter(gram for grams in sets for gram in grams)
        grades: list[Grade] = []
        for i, mine in enumerate(sets):
            # skip members that share nothing with this one
            shared = any(holders[gram] > 1 for gram in mine)
            likeness = (
                sum(_jaccard(mine, other) for j, other in enumerate(sets) if j != i)
                if shared or not mine
                else 0.0
            )
            grades.append(Graded(min(max(1.0 - likeness / others, 0.0), 1.0)))
        return grades

    def _grams(self, text: str) -> set[Hashable]:
        words = _WORD.findall(text.casefold())[:_MAX_WORDS]
        if len(words) < self.n:
            return {tuple(words)}
        return set(zip(*(words[i:] for i in range(self.n)), strict=False))


def _jaccard(a: set[Hashable], b: set[Hashable]) -> float:
    common = len(a & b)
    return common / (len(a) + len(b) - common)


class ShortestCorrect:
    """Scores a group's right answers by length.

    The shortest gets 1; the longest and wrong ones get 0. *share*: "ramp": right answers between the shortest and the
    longest get a score in proportion to their length; "winner": only the shortest, and those of equal length, score.
    If all right answers are equally long, or there is only one, they get 1. *correct*: the grader that decides which are right, from a score of *threshold*; a member
    for which it abstains or fails gets that grade. *unit*: see `Length`. A group of one abstains.

    Source: the length reward of Kimi k1.5 (arXiv:2501.12599, section 2.3.3: 0.5 - (len - min) / (max - min)),
    here over right answers only, and shifted to 0..1.
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("response of all members", "response_tokens", "ground_truth")
    gives_turns = False
    abstains = "the group has one member, or `correct` abstains"

    def __init__(
        self,
        *,
        correct: Grader,
        share: Literal["ramp", "winner"] = "ramp",
        threshold: float = 0.5,
        unit: Unit = "characters",
        name: str = "shortest_correct",
    ) -> None:
        check_grader(f"{name}.correct", correct)
        if not callable(getattr(correct, "grade", None)):
            raise ConfigError(f"{name}: correct is a pointwise grader, which grades single rollouts")
        one_of(name, "share", share, ("ramp", "winner"))
        check_unit(name, unit)
        self.name = name
        self.correct = correct
        self.share = share
        self.threshold = threshold
        self.unit = unit

    async def grade_group(self, rollouts: Sequence[Rollout], /) -> Sequence[Grade]:
        crowded = sum(len(rollout.response) for rollout in rollouts) > _INLINE_CHARS
        turn = asyncio.Lock()
        verdicts = await ask_all(
            [partial(verdict_of, self.correct, rollout, turn=turn, pooled=crowded) for rollout in rollouts]
        )
        sizes = [measured(rollout, self.unit, None) for rollout in rollouts]
        right = [
            size
            for verdict, size in zip(verdicts, sizes, strict=True)
            if isinstance(verdict, Graded) and verdict.score >= self.threshold and size is not None
        ]
        grades: list[Grade] = []
        for verdict, size in zip(verdicts, sizes, strict=True):
            if not isinstance(verdict, Graded):
                grades.append(verdict)
            elif verdict.score < self.threshold:
                grades.append(Graded(0.0, "not right", usage=verdict.usage))
            elif size is None:
                grades.append(Abstained("the number of tokens is not known", usage=verdict.usage))
            else:
                grades.append(
                    Graded(
                        self._bonus(size, min(right), max(right)), f"{size} {self.unit}", usage=verdict.usage
                    )
                )
        return grades

    def _bonus(self, size: int, shortest: int, longest: int) -> float:
        if self.share == "winner" or shortest == longest:
            return float(size == shortest)
        return (longest - size) / (longest - shortest)


class MajorityAgreement:
    """Scores 1 if a rollout gives the majority's answer, else 0.

    *answer*: "number" (the final number, as in `FinalAnswer`), or a `Part` of the response, compared without
    case, punctuation and articles; signs, points and operators count (-5 is not 5). A rollout without an answer scores 0. If two answers are equally frequent,
    both are the majority (*ties*="all"), or neither ("none": every member abstains). *soft*: score the share of the
    group that gives the same answer, instead of 1 or 0. Abstains if no member gives an answer, and in a group of
    one.

    Source: majority voting as a reward without labels, TTRL (Zuo et al. 2025, arXiv:2504.16084);
    self-consistency (Wang et al. 2022, arXiv:2203.11171).
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("response of all members",)
    gives_turns = False
    abstains = "no member gives an answer, or the group has one member"

    def __init__(
        self,
        *,
        answer: Literal["number"] | Part = "number",
        ties: Literal["all", "none"] = "all",
        soft: bool = False,
        name: str = "majority",
    ) -> None:
        one_of(name, "answer", answer, ("number", *PARTS))
        one_of(name, "ties", ties, ("all", "none"))
        self.name = name
        self._job = _Job(_MajorityOf(answer, ties, soft))

    async def grade_group(self, rollouts: Sequence[Rollout], /) -> Sequence[Grade]:
        return await self._job.of_group(rollouts)


class _MajorityOf:
    """The computation of `MajorityAgreement`, which can run in a worker process."""

    def __init__(self, answer: Any, ties: str, soft: bool) -> None:
        self.answer = answer
        self.ties = ties
        self.soft = soft

    def work(self, rollouts: Sequence[Rollout]) -> list[Grade]:
        answers = [self._answer(rollout.response) for rollout in rollouts]
        counts = Counter(answer for answer in answers if answer is not None)
        if not counts:
            return [Abstained("no member gives an answer")] * len(answers)
        most = max(counts.values())
        winners = {answer for answer, count in counts.items() if count == most}
        if len(winners) > 1 and self.ties == "none":
            return [Abstained(f"{len(winners)} answers are given equally often")] * len(answers)
        if self.soft:
            return [Graded(counts[a] / len(answers) if a is not None else 0.0) for a in answers]
        return [
            Graded(
                float(a in winners), f"{counts[a]} of {len(answers)} say so" if a is not None else "no answer"
            )
            for a in answers
        ]

    def _answer(self, response: str) -> Hashable:
        if self.answer == "number":
            return final_answer(response)
        part = part_of(response, self.answer)
        if part is None or not part.strip():
            return None
        return (normaliser(part)(part), *signs(part))


_INLINE_CHARS = 100_000
"""Groups with more characters are compared in a worker process."""


class _Job(Rule):
    """Work on a group, inline or in a worker process; the pool sees a pointwise grader."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker

    async def of_group(self, rollouts: Sequence[Rollout], timeout_s: float = 30.0) -> list[Grade]:
        if sum(len(rollout.response) for rollout in rollouts) <= _INLINE_CHARS:
            return self.worker.work(rollouts)  # type: ignore[no-any-return]
        members = [Rollout(response=rollout.response) for rollout in rollouts]
        task = Rollout(response="", extra={"members": members})
        return await in_pool(self, task, timeout_s)  # type: ignore[no-any-return]

    def grade(self, rollout: Rollout, /) -> Any:
        return self.worker.work(rollout.extra["members"])


async def verdict_of(
    grader: Grader, rollout: Rollout, *, turn: asyncio.Lock | None = None, pooled: bool = False
) -> Grade:
    """Run a pointwise grader; one with `where="process"` runs in the shared pool.

    *turn*: taken for work on the event loop, which others may use before the next. *pooled*: have a rule grade in the
    pool, as for a group whose members together are too long.
    """
    timeout_s = getattr(grader, "timeout_s", None) or 30.0
    limit = getattr(grader, "inline_limit", None)
    try:
        if getattr(grader, "where", "inline") == "process" or (
            limit and (pooled or len(rollout.response) > limit)
        ):
            found = await in_pool(grader, rollout, timeout_s)
        else:
            async with turn or asyncio.Lock():
                found = grader.grade(rollout)
                if turn is not None:
                    await give_way()
            if hasattr(found, "__await__"):
                found = await found
    except ConfigError:
        raise
    except Exception as error:
        return failure(error)
    return as_grade(found, grader.score_range)
