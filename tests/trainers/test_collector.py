"""The barrier: groups are graded when complete, members may leave, nobody waits for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from judgekit import (
    ConfigError,
    Failed,
    GradingRunner,
    JudgeUnavailable,
    Ledger,
    MissingRewardError,
    Rollout,
    grader,
    group_grader,
    read_ledger,
)
from judgekit.errors import JudgekitError
from judgekit.trainers.collector import GroupCollector


@group_grader
def rank(rollouts: Sequence[Rollout]) -> list[float]:
    """The longest response gets 1, the shortest 0."""
    order = sorted(range(len(rollouts)), key=lambda i: len(rollouts[i].response))
    return [order.index(i) / (len(rollouts) - 1) for i in range(len(rollouts))]


def rollout(n: int, group: int = 0) -> Rollout:
    return Rollout(group=group, response="x" * n)


async def test_members_get_their_own_results_when_the_last_has_come() -> None:
    meeting = GroupCollector(GradingRunner([rank]))
    waiting = [asyncio.create_task(meeting.arrive("g", rollout(n), size=3)) for n in (5, 1)]
    await asyncio.sleep(0.01)
    assert not any(t.done() for t in waiting)
    third = await meeting.arrive("g", rollout(3), size=3)
    assert [(await t).reward for t in waiting] == [1.0, 0.0]
    assert third.reward == 0.5
    assert third.policies == ()
    assert meeting.waiting == 0


async def test_a_member_that_leaves_is_not_waited_for_and_the_group_says_so() -> None:
    meeting = GroupCollector(GradingRunner([rank]))
    waiting = [asyncio.create_task(meeting.arrive("g", rollout(n), size=3)) for n in (5, 1)]
    await asyncio.sleep(0)
    meeting.leave("g", size=3)
    results = await asyncio.gather(*waiting)
    assert [r.reward for r in results] == [1.0, 0.0]
    assert results[0].policies == ("partial group: 2 of 3 members",)


async def test_a_member_that_is_cancelled_still_counts_for_the_others() -> None:
    meeting = GroupCollector(GradingRunner([rank]))
    tasks = [asyncio.create_task(meeting.arrive("g", rollout(n), size=3)) for n in (5, 1)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    third = asyncio.create_task(meeting.arrive("g", rollout(3), size=3))
    await asyncio.wait([*tasks, third])
    assert tasks[0].cancelled()
    assert (await tasks[1]).reward == 0.0
    assert (await third).reward == 0.5


async def test_cancelling_the_last_one_does_not_cost_the_others_their_grades() -> None:
    gate = asyncio.Event()

    @grader
    async def slow(response: str) -> float:
        await gate.wait()
        return 0.5

    meeting = GroupCollector(GradingRunner([slow]))
    first, last = (asyncio.create_task(meeting.arrive("g", rollout(1), size=2)) for _ in range(2))
    await asyncio.sleep(0.01)
    last.cancel()
    gate.set()
    assert (await first).reward == 0.5


async def test_when_all_leave_nothing_is_graded() -> None:
    meeting = GroupCollector(GradingRunner([rank]))
    meeting.leave("g", size=2)
    meeting.leave("g", size=2)
    assert meeting.waiting == 0


async def test_after_the_timeout_who_is_there_is_graded_and_who_comes_late_is_alone() -> None:
    meeting = GroupCollector(GradingRunner([rank], missing_reward=0.25), timeout_s=0.02)
    first, second = await asyncio.gather(*(meeting.arrive("g", rollout(n), size=3) for n in (5, 1)))
    assert (first.reward, second.reward) == (1.0, 0.0)
    late = await meeting.arrive("g", rollout(9), size=3)
    assert late.reward == 0.25
    assert late.policies == ("partial group: 1 of 3 members",)


async def test_what_grades_a_rollout_alone_begins_when_it_arrives() -> None:
    asked: list[int] = []

    @grader
    async def judge(response: str) -> float:
        asked.append(len(response))
        return 0.5

    meeting = GroupCollector(GradingRunner([judge, rank], {"judge": 0.5, "rank": 0.5}))
    waiting = [asyncio.create_task(meeting.arrive("g", rollout(n), size=3)) for n in (5, 1)]
    await asyncio.sleep(0.01)
    assert sorted(asked) == [1, 5]
    third = await meeting.arrive("g", rollout(3), size=3)
    assert [(await t).reward for t in waiting] == [0.75, 0.25]
    assert third.reward == 0.5
    assert len(asked) == 3


async def test_a_result_that_needs_nobody_else_does_not_wait() -> None:
    @grader
    async def judge(response: str) -> float | None:
        return None if response == "x" else 0.5

    meeting = GroupCollector(GradingRunner([judge], missing_reward="neutral"))
    assert (await meeting.arrive("g", rollout(2), size=3)).reward == 0.5
    missing = asyncio.create_task(meeting.arrive("g", rollout(1), size=3))
    await asyncio.sleep(0.01)
    assert not missing.done()  # its reward is the mean of the others'
    meeting.leave("g", size=3)
    assert ((await missing).reward, (await missing).status) == (0.5, "neutral")
    assert (await missing).policies == ("partial group: 2 of 3 members",)


async def test_the_deadline_begins_with_the_last_member_who_leaves_too() -> None:
    @grader
    async def hangs(response: str) -> float:
        await asyncio.sleep(3600)
        return 0.5

    meeting = GroupCollector(GradingRunner([hangs], deadline_s=0.1, missing_reward="mask"))
    only = asyncio.create_task(meeting.arrive("g", rollout(1), size=2))
    await asyncio.sleep(0.3)
    assert not only.done()
    meeting.leave("g", size=2)
    grade = (await only).grades["hangs"]
    assert isinstance(grade, Failed)
    assert grade.error == "DeadlineExceeded"


async def test_who_arrives_after_an_error_gets_it_too() -> None:
    @grader
    async def down(response: str) -> float:
        raise JudgeUnavailable("down")

    meeting = GroupCollector(GradingRunner([down], missing_reward="raise"))
    for _ in range(2):
        with pytest.raises(MissingRewardError):
            await meeting.arrive("g", rollout(1), size=2)
    assert meeting.waiting == 0


async def test_errors_reach_every_member() -> None:
    @grader
    async def down(response: str) -> float:
        raise JudgeUnavailable("down")

    meeting = GroupCollector(GradingRunner([down], missing_reward="raise"))
    found = await asyncio.gather(
        *(meeting.arrive("g", rollout(1), size=3) for _ in range(3)), return_exceptions=True
    )
    assert [type(e) for e in found] == [MissingRewardError] * 3


async def test_two_thousand_groups_at_once_without_a_thread() -> None:
    """Members arrive in the worst order: all the first ones, then all the second ones."""
    before = threading.active_count()
    meeting = GroupCollector(GradingRunner([rank]))
    tasks = [
        asyncio.create_task(meeting.arrive(g, rollout(n, g), size=2)) for n in (1, 2) for g in range(2000)
    ]
    results = [await t for t in tasks]
    assert [r.reward for r in results] == [0.0] * 2000 + [1.0] * 2000
    assert threading.active_count() == before


async def test_sizes_must_agree() -> None:
    meeting = GroupCollector(GradingRunner([rank]))
    task = asyncio.create_task(meeting.arrive("g", rollout(1), size=3))
    await asyncio.sleep(0)
    with pytest.raises(ConfigError, match="has 3 members, but one of them says 4"):
        await meeting.arrive("g", rollout(1), size=4)
    with pytest.raises(ConfigError, match="at least 1"):
        meeting.leave("h", size=0)
    await meeting.close()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_closing_leaves_nobody_waiting() -> None:
    meeting = GroupCollector(GradingRunner([rank]), timeout_s=60)
    tasks = [asyncio.create_task(meeting.arrive(g, rollout(1), size=2)) for g in range(5)]
    await asyncio.sleep(0)
    await meeting.close()
    await asyncio.wait(tasks)
    assert all(t.cancelled() for t in tasks)
    assert len(asyncio.all_tasks()) == 1
    # who meets under that name afterwards is another group
    again = await asyncio.gather(*(meeting.arrive(0, rollout(n), size=2) for n in (1, 2)))
    assert [result.reward for result in again] == [0.0, 1.0]


async def test_closing_ends_a_grading_that_has_not_begun() -> None:
    """The group is complete and its task is made, but has not had its first turn."""
    meeting = GroupCollector(GradingRunner([rank], missing_reward=0.0))
    member = asyncio.create_task(meeting.arrive("g", rollout(1), size=1))
    closing = asyncio.create_task(meeting.close())
    _, pending = await asyncio.wait([member, closing], timeout=5)
    assert not pending
    assert member.cancelled()


async def test_the_ledger_has_the_tags_where_another_member_left_first(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    meeting = GroupCollector(GradingRunner([rank], missing_reward=0.0, ledger=ledger))
    meeting.leave("g", size=2)
    await asyncio.sleep(0)
    await meeting.arrive("g", rollout(1), size=2, tags={"step": 3})
    await meeting.close()
    ledger.close()
    assert [e.tags for e in read_ledger(tmp_path / "ledger.jsonl").entries] == [{"step": 3}]


async def test_who_leaves_after_the_timeout_does_not_count_for_the_next_group_of_that_name() -> None:
    meeting = GroupCollector(GradingRunner([rank], missing_reward=0.25), timeout_s=0.02)
    await meeting.arrive("g", rollout(1), size=2)
    meeting.leave("g", size=2)
    assert meeting.waiting == 1
    await asyncio.sleep(0.05)
    assert meeting.waiting == 0
    first, second = await asyncio.gather(*(meeting.arrive("g", rollout(n), size=2) for n in (5, 1)))
    assert (first.reward, second.reward) == (1.0, 0.0)
    await meeting.close()
    assert len(asyncio.all_tasks()) == 1


async def test_waiting_for_a_slot_is_not_timed() -> None:
    """Thousands of groups at once share the runner's slots, as the rollouts of one run do."""
    active = peak = 0

    @grader
    async def judge(response: str) -> float:
        nonlocal active, peak
        active += 1
        peak = max(peak, active)
        await asyncio.sleep(0.1)
        active -= 1
        return 1.0

    runner = GradingRunner([judge], max_concurrency=8, timeout_s=2)
    runner = runner.with_settings(shared=True)
    meeting = GroupCollector(runner)
    results = await asyncio.gather(
        *(meeting.arrive(g, rollout(1, g), size=2) for g in range(100) for _ in range(2))
    )
    assert [r.reward for r in results] == [1.0] * 200  # more than two seconds of work
    assert peak == 8


async def test_a_grader_keeps_its_own_limit_over_all_groups() -> None:
    active = peak = 0

    @grader(max_concurrency=3)
    async def scarce(response: str) -> float:
        nonlocal active, peak
        active += 1
        peak = max(peak, active)
        await asyncio.sleep(0.001)
        active -= 1
        return 1.0

    runner = GradingRunner([scarce])
    runner = runner.with_settings(shared=True)
    meeting = GroupCollector(runner)
    results = await asyncio.gather(*(meeting.arrive(g, rollout(1, g), size=1) for g in range(40)))
    assert {r.reward for r in results} == {1.0}
    assert peak == 3


async def test_what_waits_for_a_slot_ends_with_the_deadline() -> None:
    @grader
    async def hangs(response: str) -> float:
        await asyncio.sleep(3600)
        return 1.0

    runner = GradingRunner([hangs], max_concurrency=2, timeout_s=60, deadline_s=0.2, missing_reward=-1.0)
    runner = runner.with_settings(shared=True)
    meeting = GroupCollector(runner)
    results = await asyncio.gather(*(meeting.arrive(g, rollout(1, g), size=1) for g in range(20)))
    assert {r.reward for r in results} == {-1.0}
    assert runner._plan.limits["hangs"][-1].held == 0


async def test_who_arrives_after_the_grading_was_cancelled_does_not_wait() -> None:
    collector = GroupCollector(GradingRunner([rank]))
    first = asyncio.create_task(collector.arrive("a", Rollout(response=""), size=2))
    await asyncio.sleep(0)
    (grading,) = collector._tasks
    grading.cancel()
    await asyncio.wait([first, grading])
    assert first.cancelled()
    with pytest.raises(JudgekitError, match="cancelled"):
        await asyncio.wait_for(collector.arrive("a", Rollout(response=""), size=2), 20)


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan")])
def test_a_time_to_wait_is_above_zero(timeout_s: float) -> None:
    with pytest.raises(ConfigError, match="timeout_s is a number of seconds above 0, not"):
        GroupCollector(GradingRunner([rank]), timeout_s=timeout_s)
    assert GroupCollector(GradingRunner([rank]), timeout_s=1e-9).timeout_s == 1e-9


async def test_closing_ends_the_wait_of_a_group_that_is_half_there() -> None:
    meeting = GroupCollector(GradingRunner([rank]), timeout_s=60)
    waiting = asyncio.create_task(meeting.arrive("g", rollout(1), size=2))
    await asyncio.sleep(0)
    timer = meeting._groups["g"].timer
    assert timer is not None
    await meeting.close()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert timer.cancelled()
    assert meeting.waiting == 0
    await meeting.close()  # nothing is left


async def test_closing_forgets_groups_of_which_everybody_has_left() -> None:
    meeting = GroupCollector(GradingRunner([rank]), timeout_s=60)
    meeting.leave("g", size=2)
    timer = meeting._groups["g"].timer
    assert timer is not None
    await meeting.close()
    assert (meeting.waiting, timer.cancelled()) == (0, True)


async def test_the_time_of_a_group_begins_with_its_first_arrival() -> None:
    """Not with who has left before, and not again with each who comes or leaves."""
    meeting = GroupCollector(GradingRunner([rank], missing_reward=0.0), timeout_s=60)
    meeting.leave("g", size=5)
    collection = meeting._groups["g"]
    timers = [collection.timer]
    tasks = []
    for n in range(3):
        tasks.append(asyncio.create_task(meeting.arrive("g", rollout(n), size=5)))
        await asyncio.sleep(0)
        timers.append(collection.timer)
    meeting.leave("g", size=5)
    timers.append(collection.timer)
    first, *others = timers
    assert first is not None
    assert first.cancelled()
    assert len({id(timer) for timer in others}) == 1
    results = await asyncio.gather(*tasks)
    assert {result.policies for result in results} == {("partial group: 3 of 5 members",)}
    assert [result.index for result in results] == [0, 1, 2]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
async def test_whatever_ends_a_grading_reaches_whoever_waits(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C goes on to the loop as well."""
    meeting = GroupCollector(GradingRunner([rank]))
    raised: list[BaseException] = []

    async def follow(*_: object, **__: object) -> None:
        raise error("stop")

    class Runner:
        pass

    meeting.runner = Runner()  # type: ignore[assignment]
    meeting.runner.follow = follow  # type: ignore[method-assign, assignment]
    grading = meeting._grade

    async def seen(*given: Any) -> None:
        try:
            await grading(*given)
        except BaseException as found:
            raised.append(found)

    monkeypatch.setattr(meeting, "_grade", seen)
    for _ in range(2):
        with pytest.raises(error, match="stop"):
            await meeting.arrive("g", rollout(1), size=3)
    assert [type(found) for found in raised] == ([] if error is RuntimeError else [error])
    with pytest.raises(ConfigError, match="has 3 members, but one of them says 2"):
        meeting.leave("g", size=2)
    await meeting.close()
