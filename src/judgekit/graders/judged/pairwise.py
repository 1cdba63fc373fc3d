"""Group graders that compare two rollouts at a time."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec

from judgekit.errors import ConfigError
from judgekit.graders.judged.asking import Asking, Prepared, Unreadable
from judgekit.graders.judged.pointwise import JudgeGrader
from judgekit.graders.judged.voting import ask_about, failing_alone
from judgekit.judges.base import Judge, Sampling
from judgekit.judges.layers.routes import JudgeRoutes, start_judges
from judgekit.judges.prompts.images import images_of
from judgekit.judges.prompts.template import Template
from judgekit.judges.verdicts.formats import ChoiceVerdict, VerdictFormat
from judgekit.types import Abstained, Failed, Grade, Graded, Rollout, Usage

LABELS = {"A": 1.0, "C": 0.5, "B": 0.0}
"""A's share if A wins, in a tie, and if B wins."""


class Pairwise:
    """Compares the rollouts of a group in pairs.

    The score is the win rate, 0 to 1. Each pair is judged in both orders and the two verdicts are averaged, so that a judge's preference for one
    position cancels out. Its measured size is in the metadata (`position_bias`: how much more than half the first
    position gets, −0.5 to 0.5). *both_orders*: off saves half the calls, but keeps that bias. A tie is a verdict;
    equal texts tie without a call.

    *rubric*: text for the template's {RUBRIC}, if it has one. *opponents*: in a larger group, the number of others that each member meets, by a seeded round-robin; None: all.
    A failed comparison is left out: a member is scored over its other comparisons, and fails if fewer than half
    are left. A member whose text the judge refuses or gives no verdict on, also alone, fails by itself (a refusal with
    cause "rollout"), and the others are compared without it. *unreadable* as in `JudgeGrader`. Preferences as group rewards: Pref-GRPO (Wang et al. 2025,
    arXiv:2508.20751).
    """

    inputs = ("prompt", "response of all members")
    gives_turns = False
    abstains = "there is no other member to compare with, or a field of the template is missing"
    source = "Pref-GRPO (Wang et al. 2025, arXiv:2508.20751)"
    score_range = (0.0, 1.0)

    def __init__(
        self,
        judge: Judge | JudgeRoutes,
        *,
        template: Template | str = "pairwise",
        verdict: VerdictFormat | str | None = None,
        sampling: Sampling | None = None,
        rubric: str = "",
        both_orders: bool = True,
        opponents: int | None = 8,
        max_tokens: int | None = 4096,
        unreadable: Unreadable = "failure",
        seed: int = 0,
        name: str = "pairwise",
        version: str = "1",
    ) -> None:
        if opponents is not None and (opponents < 2 or opponents % 2):
            raise ConfigError(
                f"{name}: opponents is an even number, at least 2, or None for all, not {opponents!r}"
            )
        self.judge = JudgeGrader(judge, name=name).judge
        self.name = name
        self.version = version
        self.both_orders = both_orders
        self.opponents = opponents
        self.seed = seed
        loaded = Template.load(template) if isinstance(template, str) else template
        if verdict is None and loaded.verdict is None:
            verdict = _ThreeWay()
        self._asking = Asking(
            template=loaded,
            verdict=verdict,
            sampling=sampling or Sampling(),
            fields={},
            rubric=rubric,
            max_tokens=max_tokens,
            asker=f"{name}@{version}",
            given=("RESPONSE_A", "RESPONSE_B"),
            unreadable=unreadable,
        )
        verdict = self._asking.verdict
        if verdict.score_range != (0.0, 1.0) or verdict.outputs:
            raise ConfigError(f"{name}: the verdict of a comparison is A's share, one score from 0 to 1")

    async def warm_up(self) -> None:
        """Start the judge and check its labels, outside any rollout's time."""
        await start_judges(self.judge)
        await self._asking.check(self.judge)

    async def grade_group(self, rollouts: Sequence[Rollout], /) -> Sequence[Grade]:
        judge = self.judge.choose(rollouts[0]) if isinstance(self.judge, JudgeRoutes) else self.judge
        if isinstance(judge, Abstained):
            return [judge] * len(rollouts)
        base = self._asking.prepare(rollouts[0], images_of(judge))
        if isinstance(base, Abstained):
            return [base] * len(rollouts)
        pairs = schedule(len(rollouts), self.opponents, self.seed)
        games = [(i, j) for i, j in pairs if rollouts[i].response != rollouts[j].response]
        orders = [(i, j) for a, b in games for i, j in (((a, b), (b, a)) if self.both_orders else ((a, b),))]

        async def ask(members: Sequence[int]) -> Grade:
            first, second = [rollouts[member].response for member in members] + [""] * (2 - len(members))
            prepared = Prepared({**base.data, "RESPONSE_A": first, "RESPONSE_B": second})
            verdict, reply, usage = await self._asking.ask(judge, prepared)
            return Graded(verdict.score, verdict.reason, {"model": reply.model}, usage)

        usage = [Usage()] * len(rollouts)
        found = await ask_about(orders, ask, usage)
        alone = await failing_alone(orders, found, ask, usage)
        pairs = [pair for pair in pairs if alone.keys().isdisjoint(pair)]
        standings = _standings(len(rollouts), pairs, dict(zip(orders, found, strict=True)), self.both_orders)
        standings = [alone.get(member, grade) for member, grade in enumerate(standings)]
        if self._asking.unreadable == "low":
            standings = _own(standings)
        return [
            msgspec.structs.replace(grade, usage=spent) for grade, spent in zip(standings, usage, strict=True)
        ]


class _ThreeWay(ChoiceVerdict):
    """Which response is better, or a tie."""

    def __init__(self, labels: Mapping[str, float] | None = None) -> None:
        super().__init__(labels or LABELS)

    def spare(self) -> ChoiceVerdict:
        return _ThreeWay({"1": 1.0, "3": 0.5, "2": 0.0})

    def words(self, nonce: str = "", /) -> dict[str, str]:
        first, tie, second = self.choices
        return {
            "HOW_TO_ANSWER": f"Answer with one character and nothing else: {first} if response A is better, {second} if "
            f"response B is better, {tie} if they are equally good.",
            "REMINDER": f"Your verdict ({first}, {second} or {tie}):",
        }


def schedule(size: int, opponents: int | None, seed: int) -> list[tuple[int, int]]:
    """Return the pairs to compare: all, or enough that each member meets *opponents* others."""
    if opponents is None or size - 1 <= opponents:
        return list(combinations(range(size), 2))
    circle = list(range(size))
    random.Random(f"{seed} {size}").shuffle(circle)
    pairs = {
        (min(a, b), max(a, b))
        for distance in range(1, opponents // 2 + 1)
        for place in range(size)
        if (a := circle[place]) != (b := circle[(place + distance) % size])
    }
    return sorted(pairs)


def _shares(there: Grade | None, back: Grade | None, both_orders: bool) -> list[float]:
    """Return the first member's share of a comparison, in each order that was decided; none if it does not count."""
    if there is None:  # equal texts
        return [0.5]
    shares = [there.score] if isinstance(there, Graded) else []
    if isinstance(back, Graded):
        shares.append(1.0 - back.score)
    # one order alone would bring the position bias back
    return [] if both_orders and len(shares) < 2 else shares


def _own(standings: Sequence[Grade]) -> list[Grade]:
    """Blame the few members on whom a judge has no verdict that compares the others."""
    lost = [g for g in standings if isinstance(g, Failed) and g.error == "VerdictError"]
    if 2 * len(lost) >= len(standings):
        return list(standings)
    return [
        msgspec.structs.replace(g, cause="rollout") if any(g is one for one in lost) else g for g in standings
    ]


def _standings(
    size: int, pairs: Sequence[tuple[int, int]], found: dict[tuple[int, int], Grade], both_orders: bool
) -> list[Grade]:
    """Compute win rates from the comparisons, with metadata."""
    taken: list[list[float]] = [[] for _ in range(size)]
    planned = [0] * size
    lost: list[list[Failed]] = [[] for _ in range(size)]
    bias: list[float] = []
    for i, j in pairs:
        there, back = found.get((i, j)), found.get((j, i)) if both_orders else None
        failed = [grade for grade in (there, back) if isinstance(grade, Failed)]
        for member in (i, j):
            planned[member] += 1
            lost[member] += failed
        shares = _shares(there, back, both_orders)
        if shares:
            share = math.fsum(shares) / len(shares)
            taken[i].append(share)
            taken[j].append(1.0 - share)
        if isinstance(there, Graded) and isinstance(back, Graded):
            bias.append((there.score + back.score - 1.0) / 2)
    metadata: dict[str, Any] = {"comparisons": len(found)}
    if bias:
        metadata["position_bias"] = math.fsum(bias) / len(bias)
    grades: list[Grade] = []
    for member in range(size):
        if not planned[member]:
            grades.append(Abstained("there is no other response to compare with"))
        elif 2 * len(taken[member]) < planned[member] or not taken[member]:
            first = lost[member][0]
            detail = f"{len(taken[member])} of {planned[member]} comparisons: {first.detail}"
            grades.append(Failed(first.error, detail, first.retryable))
        else:
            rate = math.fsum(taken[member]) / len(taken[member])
            extra = {**metadata, "played": len(taken[member])}
            grades.append(Graded(min(max(rate, 0.0), 1.0), "", extra))
    return grades
