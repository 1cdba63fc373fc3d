"""Random rewards, interrupted and resumed: what `bench_resume.py` and the tests of resuming share.

A `Case` is drawn from its number: a reward over rules, judges and graders that compare, with conditions, and the rollouts
of some groups. What a grader answers is drawn, too, so that a run that nothing interrupts has one right outcome, whichever
judge is quicker.

    python resume_cases.py NUMBER LEDGER       a process to be killed
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from judgekit import (
    Abstained,
    ConfigError,
    Fallback,
    Gate,
    Graded,
    GradingRunner,
    JudgeUnavailable,
    Ledger,
    Max,
    Min,
    Product,
    RewardResult,
    Rollout,
    RolloutError,
    Score,
    Skipped,
    Switch,
    Weighted,
    read_ledger,
)
from judgekit.ledger.schema import RESUMES
from judgekit.replay import known_grades
from judgekit.replay.resume import failed
from judgekit.reward.nodes import score_names

JUDGES = ("j1", "j2", "j3")
GROUPS = ("g1", "g2")
KILLED_GROUPS = 8
"""Groups of a process that is killed."""
Call = tuple[str, frozenset[str]]


class World:
    """The graders of one run: what they are asked, how long they take, and when they fail."""

    def __init__(self, seed: int, speeds: dict[str, int] | None = None, unit_s: float = 0.0) -> None:
        self.seed = seed
        self.speeds = speeds or {}
        """Turns of the event loop that a grader takes; random where it is not said."""
        self.unit_s = unit_s
        """Seconds of such a turn."""
        self.down = 0.0
        """Share of calls that fail, through no fault of the rollout."""
        self.hangs = 0.0
        self.calls: list[Call] = []
        self.rng = random.Random(seed)

    def truth(self, name: str, id_: str) -> Any:
        rng = random.Random(f"{self.seed // 1_000_000} {name} {id_}")
        if rng.random() < 0.05:
            return Abstained("no opinion")
        if rng.random() < 0.05:
            return RolloutError("a bomb")
        return Graded(rng.choice((0.0, 0.25, 0.5, 0.75, 1.0)))

    async def answered(self, name: str, ids: Sequence[str]) -> None:
        self.calls.append((name, frozenset(ids)))
        drawn = self.rng.random()
        for _ in range(self.speeds.get(name, self.rng.randrange(12))):
            await asyncio.sleep(self.unit_s)
        if drawn < self.down:
            raise JudgeUnavailable("down")
        if drawn < self.down + self.hangs:
            await asyncio.sleep(3600)

    def graders(self) -> dict[str, Any]:
        world = self

        class Rule:
            name, version, score_range = "rule", "1", (0.0, 1.0)

            def grade(self, rollout: Rollout, /) -> Any:
                return given(world.truth("rule", rollout.id))

        class Judge:
            version, score_range = "1", (0.0, 1.0)

            def __init__(self, name: str) -> None:
                self.name = name

            async def grade(self, rollout: Rollout, /) -> Any:
                await world.answered(self.name, [rollout.id])
                return given(world.truth(self.name, rollout.id))

        class Rank:
            version, score_range = "1", (0.0, 1.0)

            def __init__(self, name: str) -> None:
                self.name = name

            async def grade_group(self, rollouts: Sequence[Rollout], /) -> list[Any]:
                await world.answered(self.name, [rollout.id for rollout in rollouts])
                values = [random.Random(f"{self.name} {rollout.id}").random() for rollout in rollouts]
                return [Graded(sum(x <= y for x in values) / len(values)) for y in values]

        return {
            "rule": Rule(),
            **{name: Judge(name) for name in JUDGES},
            **{name: Rank(name) for name in GROUPS},
        }


def given(answer: Any) -> Any:
    if isinstance(answer, RolloutError):
        raise answer
    return answer


def tree(rng: random.Random) -> dict[str, Any]:
    """The terms of a random reward, in which graders that compare often stand behind a condition, or in one."""
    names = ["rule", *JUDGES, *GROUPS, *GROUPS]

    def comparison() -> str:
        return f"{rng.choice(names)} {rng.choice(('>=', '<', '>', '<='))} {rng.choice((0.25, 0.5, 0.6))}"

    def condition() -> str:
        parts = [comparison() for _ in range(rng.choice((1, 1, 2, 2, 3)))]
        return f" {rng.choice(('and', 'or'))} ".join(parts)

    def node(depth: int) -> Any:
        kind = rng.randrange(8) if depth else 0
        parts = [node(depth - 1) for _ in range(2)] if kind else []
        match kind:
            case 0 | 1:
                return Score(rng.choice(names), if_missing=rng.choice(("propagate", "propagate", 0.25)))
            case 2 | 3 | 4:
                return Gate(if_=condition(), then=parts[0], otherwise=parts[1])
            case 5:
                return Fallback(*parts)
            case 6:
                return Switch({"math": parts[0]}, otherwise=parts[1])
            case _:
                return rng.choice((Min, Max, Product))(*parts)

    return {f"t{i}": (1.0, node(rng.randrange(1, 4))) for i in range(rng.randrange(1, 3))}


class Case:
    """A reward and rollouts, drawn from *number*."""

    def __init__(self, number: int, groups: int = 2) -> None:
        self.number = number
        rng = random.Random(number)
        while True:
            terms = tree(rng)
            used = {name for _, node in terms.values() for name in score_names(node)}
            self.names = [name for name in ("rule", *JUDGES, *GROUPS) if name in used]
            try:
                self.reward = Weighted(terms)
                GradingRunner(self.chosen(World(0)), self.reward)
            except ConfigError:  # a gate that can never pass, or the like
                continue
            if used & set(GROUPS):
                break
        self.rollouts = [
            Rollout(
                response=f"text {i}",
                id=f"{number}-{i}",
                group=f"{number}-{i // 4}",
                data_source=rng.choice(("math", "code")),
            )
            for i in range(4 * groups)
        ]
        self.transform: Any = rng.choice(("none", "none", "center"))

    def chosen(self, world: World) -> dict[str, Any]:
        return {name: grader for name, grader in world.graders().items() if name in self.names}

    def world(self, seed: int = 0, **options: Any) -> World:
        return World(1_000_000 * self.number + seed, **options)

    def runner(self, world: World, ledger: Path | None = None, **options: Any) -> GradingRunner:
        kept = None if ledger is None else Ledger(ledger, fsync="never")
        return GradingRunner(
            self.chosen(world),
            self.reward,
            transform=self.transform,
            ledger=kept,
            max_concurrency=256,
            **options,
        )

    async def expected(self, orders: int = 8) -> list[float | None] | None:
        """The rewards of a run that nothing interrupts; None if they depend on which judge is quicker."""
        found = []
        for order in [None, (0, 0, 0), *itertools.permutations((1, 4, 7))][:orders]:
            speeds = dict(zip(JUDGES, order, strict=True)) if order else {}
            world = self.world(1, speeds=speeds)
            results = await self.runner(world).run(self.rollouts)
            compared = sorted((name, sorted(ids)) for name, ids in world.calls if name in GROUPS)
            found.append(([result.reward for result in results], compared))
        return found[0][0] if all(one == found[0] for one in found) else None

    async def resume(self, world: World, ledger: Path, **options: Any) -> tuple[list[RewardResult], int]:
        """Resume; returns the results, and how many calls were made whose grades the ledger held."""
        runner = self.runner(world, ledger, **options)
        known, tags, held = self.kept(runner, ledger)
        world.calls.clear()
        try:
            results = await runner.run(self.rollouts, known=known, tags=tags)
        finally:
            await asyncio.to_thread(runner.ledger.close)  # type: ignore[union-attr]
        return results, sum(call in held for call in world.calls)

    def kept(self, runner: GradingRunner, ledger: Path) -> tuple[Any, dict[str, Any], set[Call]]:
        """What the ledger knows, the tags of a run that resumes it, and the calls whose grades it holds."""
        if not ledger.exists():
            return (), {}, set()
        reading = read_ledger(ledger, replaced=True)
        found = known_grades(reading, runner, self.rollouts)
        return found.grades, {RESUMES: found.runs}, calls_in(reading.entries)

    async def interrupted(self, rng: random.Random, ledger: Path) -> int:
        """Run, or resume, and end early in one of three ways; returns the calls that were paid for twice."""
        world = self.world(rng.randrange(1000))
        options: dict[str, Any] = {}
        way = rng.choice(("cancel", "failures", "deadline"))
        if way == "failures":
            world.down = rng.choice((0.1, 0.3, 0.6))
        if way == "deadline":
            world.hangs, options["deadline_s"] = rng.choice((0.1, 0.3)), 0.03
        running = asyncio.ensure_future(self.resume(world, ledger, **options))
        if way == "cancel":
            turns = rng.randrange(80)
            while not running.done() and turns:
                turns -= 1
                await asyncio.sleep(0)
            while not (running.done() or world.calls or rng.random() < 0.05):
                await asyncio.sleep(0)
            for _ in range(rng.randrange(30)):
                await asyncio.sleep(0)
            running.cancel()
        await asyncio.wait([running])
        return 0 if running.cancelled() else running.result()[1]


async def tried(case: Case, folder: Path, orders: int = 8) -> Outcome:
    """Interrupt a case one to three times, then let it end."""
    expected = await case.expected(orders)
    rng, ledger = random.Random(case.number), folder / f"{case.number}.jsonl"
    interruptions = rng.choice((1, 1, 2, 3))
    twice = 0
    for _ in range(interruptions):
        twice += await case.interrupted(rng, ledger)
    results, again = await case.resume(case.world(rng.randrange(1000)), ledger)
    return Outcome(interruptions, *compared(results, expected), twice + again)


class Outcome(NamedTuple):
    """What came of interrupting a case."""

    interruptions: int
    rollouts: int
    different: int
    """Rewards that are not those of a run that nothing interrupts."""
    undecided: int
    """Rollouts of cases that have no such rewards."""
    paid_twice: int
    """Calls whose grades the ledger held."""


def compared(
    results: Sequence[RewardResult], expected: Sequence[float | None] | None
) -> tuple[int, int, int]:
    if expected is None:
        return len(results), 0, len(results)
    return len(results), sum(r.reward != e for r, e in zip(results, expected, strict=True)), 0


def calls_in(entries: Sequence[Any]) -> set[Call]:
    """The calls whose grades a ledger holds: all of them, of one that compares."""
    held: set[Call] = set()
    compared: dict[tuple[str, Any], set[str]] = {}
    for entry in entries:
        for name, grade in entry.grades.items():
            if isinstance(grade, Skipped) or failed(grade):
                continue
            if name in GROUPS:
                if name in entry.compared:
                    compared.setdefault((name, entry.compared[name]), set()).add(entry.id)
            else:
                held.add((name, frozenset((entry.id,))))
    held.update((name, frozenset(ids)) for (name, call), ids in compared.items() if len(ids) == call.members)
    return held


async def main() -> None:
    number, ledger = int(sys.argv[1]), Path(sys.argv[2])
    case = Case(number, KILLED_GROUPS)
    world = case.world(7, unit_s=0.02)
    logging.disable(logging.CRITICAL)
    print("ready", flush=True)
    await case.resume(world, ledger)
    print("end", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
