"""Where rules grade whose work grows with the calls: at once, in a turn of their own, or in a worker process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from judgekit import Grade, Graded, GradingRunner, Rollout
from judgekit.execution.pool import ProcessPool
from judgekit.graders import (
    ActionLoop,
    InformationGain,
    StepEfficiency,
    StepSequence,
    ToolCallFormat,
    ToolCallMatch,
    ToolEfficiency,
)
from judgekit.graders.rules import work
from judgekit.graders.rules.work import FEW_CALLS, MOST_CALLS, calls_of

KINDS = [
    ActionLoop,
    InformationGain,
    StepEfficiency,
    StepSequence,
    ToolCallFormat,
    ToolCallMatch,
    ToolEfficiency,
]


def rollout(calls: int, arguments: int = 1, wanted: int = 1) -> Rollout:
    def call(i: int) -> dict[str, Any]:
        return {"name": f"t{i}", "arguments": {f"a{j}": i for j in range(arguments)}}

    messages: list[dict[str, Any]] = []
    for i in range(calls):
        messages += [{"role": "assistant", "tool_calls": [call(i)]}, {"role": "tool", "content": f"r{i}"}]
    reference = [call(i) for i in range(wanted)]
    return Rollout(response="", messages=messages, ground_truth=reference, extra={"steps": 3})


@contextmanager
def turns() -> Iterator[list[int]]:
    """The number of the event loop's turn, while it runs."""
    now = [0]
    loop = asyncio.get_running_loop()

    def count() -> None:
        now[0] += 1
        handles.append(loop.call_soon(count))

    handles = [loop.call_soon(count)]
    try:
        yield now
    finally:
        handles[-1].cancel()


def watched(kind: type[Any], now: list[int], seen: list[tuple[int, int]]) -> Any:
    class Watched(kind):
        def here(self, one: Rollout) -> Grade:
            seen.append((os.getpid(), now[0]))
            return super().here(one)  # type: ignore[no-any-return]

    return Watched()


@pytest.mark.parametrize(
    "made",
    [rollout(FEW_CALLS), rollout(20, 100), rollout(FEW_CALLS // 3, wanted=100)],
    ids=["calls", "arguments", "pairs"],
)
async def test_no_two_graders_with_much_work_share_a_turn(made: Rollout) -> None:
    seen: list[tuple[int, int]] = []
    with turns() as now:
        graders = {kind.__name__: watched(kind, now, seen) for kind in (StepSequence, ToolCallMatch)}
        results = await GradingRunner(graders, missing_reward="mask").run([made] * 4)
    at = [turn for _, turn in seen]
    assert len(at) == len(set(at)) == 8
    assert all(isinstance(grade, Graded) for result in results for grade in result.grades.values())


@pytest.mark.parametrize("kind", KINDS)
async def test_little_work_is_done_at_once_and_too_much_elsewhere(kind: type[Any]) -> None:
    seen: list[tuple[int, int]] = []
    with turns() as now:
        grader = watched(kind, now, seen)
        assert isinstance(grader.grade(rollout(5)), Graded)
        assert len(seen) == 1
        much = rollout(MOST_CALLS)
        grade = await grader.grade(much)
        assert len(seen) == 1
    assert isinstance(grade, Graded)
    assert grade == kind().here(much)


def test_arguments_and_turns_count_as_work() -> None:
    assert calls_of(rollout(5)) == 15
    assert calls_of(rollout(5, 160)) == 65
    text = "".join('<tool_call>{"name": "a"}</tool_call>' for _ in range(7))
    assert calls_of(Rollout(response=text)) == 7


async def test_a_pool_that_starts_or_is_busy_is_no_rule_s_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker takes longer for all of them than this rule has for one."""
    pool = ProcessPool(1)
    monkeypatch.setattr(work, "default_pool", lambda: pool)
    rule = StepSequence()
    rule.timeout_s = 0.2
    text = '<tool_call>{"name": "t"}</tool_call>' * (
        MOST_CALLS + 1
    )  # short enough for the event loop, were it few calls
    one = Rollout(response=text, ground_truth=[{"name": "t", "arguments": {}}])
    try:
        results = await GradingRunner({"steps": rule}, missing_reward="raise").run([one] * 60)
        assert pool.started == 1
    finally:
        pool.close()
    assert [result.reward for result in results] == [pytest.approx(2 / (MOST_CALLS + 2))] * 60


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancelled_rule_leaves_nothing_in_the_pool(turns: int) -> None:
    text = '<tool_call>{"name": "t"}</tool_call>' * (MOST_CALLS + 1)
    before = asyncio.all_tasks()
    grading = asyncio.ensure_future(
        StepSequence().grade(Rollout(response=text, ground_truth=[{"name": "t"}]))
    )
    for _ in range(turns):
        await asyncio.sleep(0)
    grading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await grading
    for _ in range(5):  # far too short for a worker's answer
        await asyncio.sleep(0)
    assert not asyncio.all_tasks() - before
