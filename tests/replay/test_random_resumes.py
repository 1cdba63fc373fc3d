"""Random rewards, interrupted at random and resumed: what a run pays does not depend on how often it was interrupted."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from judgekit import (
    Fallback,
    Gate,
    Graded,
    GradingRunner,
    JudgeUnavailable,
    Ledger,
    Rollout,
    Skipped,
    Weighted,
    grader,
    group_grader,
    read_ledger,
)
from judgekit.ledger.schema import RESUMES
from judgekit.replay import KnownGrades, known_grades

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from resume_cases import Case, Outcome, compared, tried  # noqa: E402

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("part", range(5))
async def test_a_resumed_run_pays_what_the_whole_run_would_have_paid(part: int, tmp_path: Path) -> None:
    """`make bench-resume` tries more, and kills processes."""
    logging.disable(logging.CRITICAL)
    try:
        outcomes: list[Outcome] = []
        for first in range(125 * part, 125 * (part + 1), 25):
            cases = [Case(1000 + number, groups=4) for number in range(first, first + 25)]
            outcomes += await asyncio.gather(*(tried(case, tmp_path, 4) for case in cases))
    finally:
        logging.disable(logging.NOTSET)
    assert sum(one.rollouts for one in outcomes) == 2000
    assert [(one.different, one.undecided, one.paid_twice) for one in outcomes] == [(0, 0, 0)] * 125


async def test_a_killed_run_is_resumed(tmp_path: Path) -> None:
    """A process each, killed once it has written some lines."""
    for number in (1, 2, 3, 5):
        case, ledger = Case(number, groups=8), tmp_path / f"{number}.jsonl"
        command = [sys.executable, str(BENCHMARKS / "resume_cases.py"), str(number), str(ledger)]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        while process.returncode is None and not (
            ledger.exists() and ledger.read_bytes().count(b"\n") > 8 * number
        ):
            await asyncio.sleep(0.001)
        if process.returncode is None:
            process.kill()
        await process.stdout.read()
        await process.wait()
        results, twice = await case.resume(case.world(3), ledger)
        rollouts, different, undecided = compared(results, await case.expected())
        assert (rollouts, different, undecided, twice) == (32, 0, 0, 0)


class Asked:
    """Graders that keep what they were asked, and a judge that may be down."""

    def __init__(self) -> None:
        self.compared: list[list[str]] = []
        self.judged: list[str] = []
        self.down: set[str] = set()

    def graders(self) -> dict[str, Any]:
        @grader
        async def judge(rollout: Rollout) -> float:
            self.judged.append(rollout.id)
            await asyncio.sleep(0)
            if rollout.id in self.down:
                raise JudgeUnavailable("down")
            return 1.0 if int(rollout.id) >= 2 else 0.0

        @group_grader
        async def rank(rollouts: Sequence[Rollout]) -> list[float]:
            self.compared.append([rollout.id for rollout in rollouts])
            if "rank" in self.down:
                raise JudgeUnavailable("down")
            values = [int(rollout.id) for rollout in rollouts]
            return [sum(x <= y for x in values) / len(values) for y in values]

        return {"rank": rank, "judge": judge}


FOUR = [Rollout(response=str(i), id=str(i), group=0) for i in range(4)]
BOTH = Gate(if_="rank >= 0.2 and judge >= 0.5", then="rank", otherwise=0.0)


async def resumed(asked: Asked, reward: Any, path: Path) -> list[float | None]:
    runner = GradingRunner(asked.graders(), reward, ledger=Ledger(path))
    known = known_grades(read_ledger(path, replaced=True), runner, FOUR)
    asked.compared.clear(), asked.judged.clear()
    results = await runner.run(FOUR, known=known.grades, tags={RESUMES: known.runs})
    return [result.reward for result in results]


@pytest.mark.parametrize(
    ("reward", "down", "compared_again", "judged_again"),
    [
        (BOTH, {"3"}, [], ["3"]),
        # the judge is asked after the comparison, and by now is known before it
        (BOTH, {"rank"}, ["0123"], []),
        # the judge is asked at once, and decides before the comparison that two do not need it
        (Weighted({"a": (1.0, BOTH), "b": (1.0, "judge")}), {"rank"}, ["23"], []),
        # nobody knew whether the gate opens for 3: an uninterrupted run would compare it, too
        (Gate(if_="judge >= 0.5", then="rank", otherwise=0.0), {"3"}, ["23"], ["3"]),
        # it was compared since its judge was down, and would not have been
        (Fallback("judge", "rank"), {"2", "3"}, [], ["2", "3"]),
    ],
)  # fmt: skip
async def test_whom_a_resumed_run_compares(
    reward: Any, down: set[str], compared_again: list[str], judged_again: list[str], tmp_path: Path
) -> None:
    asked = Asked()
    expected = [r.reward for r in await GradingRunner(asked.graders(), reward).run(FOUR)]
    asked.down = down
    await GradingRunner(asked.graders(), reward, ledger=Ledger(tmp_path / "l")).run(FOUR)
    asked.down = set()
    assert await resumed(asked, reward, tmp_path / "l") == expected
    assert ["".join(ids) for ids in asked.compared] == compared_again
    assert asked.judged == judged_again
    for _ in range(2):  # what was taken is written down as what it was, and taken again
        assert await resumed(asked, reward, tmp_path / "l") == expected
        assert (asked.compared, asked.judged) == ([], [])


async def test_members_that_one_call_answers_are_compared_together_by_the_next() -> None:
    """The first was advanced alone, found nobody else who needed the second grader, and was alone in it."""
    asked: list[int] = []

    @group_grader
    async def first(rollouts: Sequence[Rollout]) -> list[float]:
        return [1.0] * len(rollouts)

    @group_grader
    async def second(rollouts: Sequence[Rollout]) -> list[float]:
        asked.append(len(rollouts))
        return [0.5] * len(rollouts)

    tree = Gate(if_="first >= 0.5", then="second", otherwise=0.0)
    results = await GradingRunner({"first": first, "second": second}, tree).run(FOUR)
    assert ([r.reward for r in results], asked) == ([0.5] * 4, [4])


async def test_a_group_grader_waits_for_no_judge_that_decides_nothing() -> None:
    compared = asyncio.Event()

    @grader
    async def judge(response: str) -> float:
        await compared.wait()
        return 1.0

    @grader
    def odd(rollout: Rollout) -> float:
        return int(rollout.id) % 2

    @group_grader
    async def rank(rollouts: Sequence[Rollout]) -> list[float]:
        compared.set()
        return [0.5] * len(rollouts)

    tree = Weighted({"judge": 1.0, "gate": (1.0, Gate(if_="odd >= 1", then="rank", otherwise=0.0))})
    results = await GradingRunner({"odd": odd, "rank": rank, "judge": judge}, tree).run(FOUR)
    assert [r.reward for r in results] == [1.0, 1.5, 1.0, 1.5]


async def test_members_are_compared_in_their_order_whichever_judge_was_quicker() -> None:
    seen: list[str] = []

    @grader
    async def judge(rollout: Rollout) -> float:
        for _ in range(10 - 3 * int(rollout.id)):
            await asyncio.sleep(0)
        return 1.0

    @group_grader
    async def rank(rollouts: Sequence[Rollout]) -> list[float]:
        seen.extend(rollout.id for rollout in rollouts)
        return [0.5] * len(rollouts)

    tree = Gate(if_="judge >= 0.5", then="rank", otherwise=0.0)
    await GradingRunner({"judge": judge, "rank": rank}, tree).run(FOUR)
    assert seen == ["0", "1", "2", "3"]


async def test_known_grades_may_be_a_plain_mapping_and_a_skipped_one_is_asked_for() -> None:
    """An earlier result's `Skipped` became a failure when the gate had opened."""
    asked = Asked()
    tree = Gate(if_="judge >= 0.5", then="rank", otherwise=0.0)
    runner = GradingRunner(asked.graders(), tree)
    known: list[dict[str, Any]] = [
        {"judge": Graded(1.0), "rank": Skipped("judge >= 0.5")},
        {"judge": Graded(1.0), "rank": Graded(0.125), "other": Graded(0.0)},
        {},
        {"judge": Graded(0.0), "rank": Graded(0.25)},
    ]
    results = await runner.run(FOUR, known=known)
    assert [r.reward for r in results] == [0.5, 0.125, 1.0, 0.0]
    assert (asked.compared, asked.judged) == ([["0", "2"]], ["2"])
    assert results[3].grades["rank"] == Graded(0.25)  # not needed, and kept
    assert results[1].grades.keys() == {"judge", "rank"}
    again = await runner.run(FOUR, known=[KnownGrades(r.grades) for r in results])
    assert [r.reward for r in again] == [0.5, 0.125, 1.0, 0.0]
