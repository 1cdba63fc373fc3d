"""GradingRunner: order, failures as values, time, cancellation, loops and threads."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgekit import (
    Abstained,
    ConfigError,
    DataError,
    Failed,
    FailureRateError,
    Fallback,
    Gate,
    Graded,
    GradingRunner,
    JudgeUnavailable,
    MissingRewardError,
    Retry,
    Rollout,
    RolloutError,
    Score,
    Skipped,
    Weighted,
    grader,
    group_grader,
)
from judgekit.testing import make_groups


@grader
def digit(response: str) -> float:
    """The first digit of the response, over ten."""
    return int(next(c for c in response if c.isdigit())) / 10


class Async:
    """An async grader that does what it is told."""

    version = "1"
    score_range = (0.0, 1.0)

    def __init__(self, act: Any, name: str = "judge", **options: Any) -> None:
        self.act = act
        self.name = name
        self.calls = 0
        self.in_flight = 0
        self.peak = 0
        for key, value in options.items():
            setattr(self, key, value)

    async def grade(self, rollout: Rollout, /) -> Any:
        self.calls += 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            value = self.act(rollout) if callable(self.act) else self.act
            if hasattr(value, "__await__"):
                value = await value
            else:
                await asyncio.sleep(0)
            return value
        finally:
            self.in_flight -= 1


def numbered(n: int, per_group: int = 4) -> list[Rollout]:
    return [
        Rollout(prompt=f"p{i // per_group}", group=i // per_group, response=f"answer {i % 10}", id=str(i))
        for i in range(n)
    ]


async def test_results_come_in_input_order_whatever_ends_first() -> None:
    """Later rollouts answer first; the results still stand in input order."""
    gates = [asyncio.Event() for _ in range(8)]

    async def act(rollout: Rollout) -> float:
        i = int(rollout.id)
        if i + 1 < len(gates):
            await gates[i + 1].wait()
        gates[i].set()
        return i / 10

    runner = GradingRunner({"judge": Async(act)}, max_concurrency=8)
    results = await runner.run(numbered(8))
    assert [r.index for r in results] == list(range(8))
    assert [r.reward for r in results] == [i / 10 for i in range(8)]


async def test_at_most_max_concurrency_evaluations_are_in_flight() -> None:
    judge = Async(lambda r: asyncio.sleep(0.001, 1.0))
    await GradingRunner({"judge": judge}, max_concurrency=5).run(numbered(40))
    assert judge.peak == 5
    assert judge.calls == 40


async def test_a_grader_may_have_its_own_limit_and_does_not_hold_up_the_others() -> None:
    slow = Async(lambda r: asyncio.sleep(0.001, 1.0), "slow", max_concurrency=2)
    quick = Async(lambda r: asyncio.sleep(0.001, 1.0), "quick")
    await GradingRunner({"slow": slow, "quick": quick}, max_concurrency=8).run(numbered(40))
    assert slow.peak == 2
    assert quick.peak > 2


FAULTS: list[tuple[Any, str]] = [
    (ValueError("boom"), "ValueError"),
    (math.nan, "ScoreNotFinite"),
    (math.inf, "ScoreNotFinite"),
    (1.5, "ScoreOutOfRange"),
    (-0.1, "ScoreOutOfRange"),
    ("high", "TypeError"),
    ([0.5], "TypeError"),
    (Graded("x"), "TypeError"),  # type: ignore[arg-type]
    (Graded(math.nan), "ScoreNotFinite"),
    (asyncio.CancelledError(), "CancelledError"),
    (SystemExit(3), "SystemExit"),
    (StopIteration(), "StopIteration"),
    (TimeoutError("of its own"), "TimeoutError"),
]


def _raise_or_return(fault: Any) -> Any:
    if isinstance(fault, BaseException):
        raise fault
    return fault


@pytest.mark.parametrize("mode", ["sync", "async", "thread", "group"])
def test_a_failure_leaves_no_work_for_the_garbage_collector(mode: str) -> None:
    """An error holds the frames that it passed; if one of them holds the error, only a collection frees them."""

    def bad(rollout: Rollout) -> float:
        raise ValueError(rollout.id)

    async def bad_async(rollout: Rollout) -> float:
        return bad(rollout)

    made = {
        "sync": lambda: grader(bad),
        "async": lambda: grader(bad_async),
        "thread": lambda: grader(where="thread")(bad),
        "group": lambda: group_grader(lambda rollouts: [bad(one) for one in rollouts]),
    }[mode]()
    runner = GradingRunner({"bad": made}, missing_reward="mask")
    runner.run_sync(numbered(64))
    gc.collect()
    gc.disable()
    try:
        before = sum(type(one) is FrameType for one in gc.get_objects())
        runner.run_sync(numbered(64))
        assert sum(type(one) is FrameType for one in gc.get_objects()) - before < 16
    finally:
        gc.enable()


@pytest.mark.parametrize(("fault", "error"), FAULTS, ids=[repr(f) for f, _ in FAULTS])
@pytest.mark.parametrize("mode", ["sync", "async", "thread", "group"])
async def test_a_fault_is_a_failed_grade_and_costs_nobody_else(fault: Any, error: str, mode: str) -> None:
    """Only the faulty rollout is without reward; its siblings' are those of a run without the fault."""

    def act(rollout: Rollout) -> Any:
        return _raise_or_return(fault) if rollout.id == "5" else 0.5

    judge: Any
    if mode == "group":
        if isinstance(fault, BaseException):
            pytest.skip("a group grader that raises fails for its whole group")

        @group_grader
        def judge(rollouts: Sequence[Rollout]) -> list[Any]:
            return [act(r) for r in rollouts]

    elif mode == "async":

        async def act_async(rollout: Rollout) -> Any:
            await asyncio.sleep(0)
            return act(rollout)

        judge = Async(act_async)
    else:

        @grader(where="inline" if mode == "sync" else "thread")
        def judge(rollout: Rollout) -> Any:
            return act(rollout)

        if isinstance(fault, asyncio.CancelledError) and mode == "sync":
            pytest.skip("a synchronous function has nothing to cancel")
    if mode == "async" and isinstance(fault, StopIteration):
        error = "RuntimeError"  # what Python makes of one that leaves a coroutine
    if mode == "thread" and isinstance(fault, StopIteration):
        error = "RuntimeError"
    results = await GradingRunner({"digit": digit, "judge": judge}, {"digit": 1, "judge": 1}).run(
        numbered(12)
    )
    bad = results[5]
    assert isinstance(bad.grades["judge"], Failed)
    assert bad.grades["judge"].error == error
    assert bad.reward is None
    assert bad.status == "excluded"
    assert bad.missing == ("judge",)
    for i, result in enumerate(results):
        if i != 5:
            assert result.reward == pytest.approx((i % 10) / 10 + 0.5)


async def test_none_abstains() -> None:
    (result,) = await GradingRunner({"judge": Async(None)}).run(numbered(1))
    assert isinstance(result.grades["judge"], Abstained)
    assert result.reward is None


async def test_numpy_like_scalars_are_numbers() -> None:
    class Scalar:
        ndim = 0

        def item(self) -> float:
            return 0.25

    (result,) = await GradingRunner({"judge": Async(Scalar())}).run(numbered(1))
    assert result.reward == 0.25


async def test_wrong_number_of_group_grades_fails_the_whole_group() -> None:
    @group_grader
    def short(rollouts: Sequence[Rollout]) -> list[float]:
        return [0.5] * (len(rollouts) - 1)

    results = await GradingRunner({"short": short}).run(numbered(4))
    assert {r.grades["short"].error for r in results} == {"WrongGroupGrades"}  # type: ignore[union-attr]
    assert {r.grades["short"].detail for r in results} == {"3 grades for 4 members"}  # type: ignore[union-attr]


async def test_a_group_grader_sees_whole_groups_and_abstains_for_one() -> None:
    seen: list[list[str]] = []

    @group_grader
    async def order(rollouts: Sequence[Rollout]) -> list[float]:
        seen.append([r.id for r in rollouts])
        return [i / 10 for i in range(len(rollouts))]

    rollouts = [numbered(9)[i] for i in (0, 4, 8, 1, 5, 2, 3, 6, 7)]
    results = await GradingRunner({"order": order}).run(rollouts)
    assert sorted(seen) == [["0", "1", "2", "3"], ["4", "5", "6", "7"]]
    by_id = {rollout.id: r for rollout, r in zip(rollouts, results, strict=True)}
    assert by_id["3"].reward == 0.3
    assert by_id["8"].grades["order"] == Abstained("the group has one member")


async def test_several_scores_from_one_call_are_several_grades() -> None:
    quality = Async({"accuracy": 0.5, "clarity": math.nan}, outputs=("accuracy", "clarity", "tone"))
    runner = GradingRunner(
        {"quality": quality}, {"quality.accuracy": 1, "quality.clarity": 0, "quality.tone": 0}
    )
    (result,) = await runner.run(numbered(1))
    assert quality.calls == 1
    assert result.reward == 0.5
    assert result.grades["quality.clarity"].error == "ScoreNotFinite"  # type: ignore[union-attr]
    assert result.grades["quality.tone"].error == "KeyError"  # type: ignore[union-attr]


async def test_timeout_counts_from_the_slot_and_is_a_failed_grade() -> None:
    """Four slots, one hung call: those that queue behind it are not charged for its time."""
    judge = Async(lambda r: asyncio.sleep(3600) if r.id == "0" else 0.5)
    results = await GradingRunner({"judge": judge}, max_concurrency=1, timeout_s=0.05).run(numbered(4))
    assert results[0].grades["judge"] == Failed("GraderTimeout", "no grade within 0.05 s")
    assert [r.reward for r in results[1:]] == [0.5, 0.5, 0.5]


async def test_a_grader_may_have_its_own_timeout() -> None:
    slow = Async(lambda r: asyncio.sleep(0.1, 1.0), timeout_s=0.01)
    (result,) = await GradingRunner({"judge": slow}, timeout_s=60).run(numbered(1))
    assert isinstance(result.grades["judge"], Failed)


async def test_a_grader_that_ignores_cancellation_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()

    async def deaf(rollout: Rollout) -> float:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        return 1.0

    results = await GradingRunner({"judge": Async(deaf)}, max_concurrency=2, timeout_s=0.02).run(numbered(3))
    assert [r.grades["judge"].error for r in results] == ["GraderTimeout"] * 3  # type: ignore[union-attr]
    assert [r.message for r in caplog.records if "ignores" in r.message] == [
        "grader 'judge' ignores its cancellation: its coroutines are closed"
    ]
    release.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


async def test_deadline_keeps_what_is_finished() -> None:
    judge = Async(lambda r: asyncio.sleep(3600) if int(r.id) >= 4 else 0.5)
    runner = GradingRunner(
        {"judge": judge, "digit": digit}, {"judge": 1, "digit": 0}, max_concurrency=64, deadline_s=1.0
    )
    results = await runner.run(numbered(200))
    assert [r.reward for r in results[:4]] == [0.5] * 4
    late = results[4:]
    assert all(r.reward is None for r in late)
    assert {r.grades["judge"].error for r in late} == {"DeadlineExceeded"}  # type: ignore[union-attr]
    assert len(asyncio.all_tasks()) == 1


async def test_deadline_reaches_group_graders_that_wait_and_gates() -> None:
    @group_grader
    def rank(rollouts: Sequence[Rollout]) -> list[float]:
        return [0.5] * len(rollouts)

    reward = Gate(if_=Score("judge") >= 0.5, then=Score("rank"), otherwise=0.0)
    judge = Async(lambda r: asyncio.sleep(3600) if r.id == "2" else 0.5)
    results = await GradingRunner({"judge": judge, "rank": rank}, reward, deadline_s=0.05).run(numbered(4))
    assert all(r.reward is None for r in results)
    assert results[0].grades["rank"].error == "DeadlineExceeded"  # type: ignore[union-attr]
    assert results[2].grades["rank"] == Skipped("judge >= 0.5")


async def test_gates_are_lazy_and_rules_run_before_judges() -> None:
    judge = Async(0.9)
    reward = Gate(if_=Score("digit") >= 0.5, then=Weighted({"judge": 0.5, "digit": 0.5}), otherwise=0.0)
    results = await GradingRunner({"judge": judge, "digit": digit}, reward).run(numbered(10))
    assert judge.calls == 5
    assert [r.reward for r in results[:5]] == [0.0] * 5
    assert results[0].grades["judge"] == Skipped("digit >= 0.5")
    assert results[7].reward == pytest.approx(0.8)


async def test_a_group_grader_behind_a_gate_gets_those_who_pass() -> None:
    seen: list[int] = []

    @group_grader
    def rank(rollouts: Sequence[Rollout]) -> list[float]:
        seen.append(len(rollouts))
        return [1.0] * len(rollouts)

    judge = Async(lambda r: int(r.response[-1]) / 10)
    reward = Gate(if_=Score("judge") >= 0.2, then=Score("rank", if_missing=0.5), otherwise=0.0)
    results = await GradingRunner({"judge": judge, "rank": rank}, reward).run(numbered(4, 4))
    assert seen == [2]
    assert [r.reward for r in results] == [0.0, 0.0, 1.0, 1.0]
    results = await GradingRunner({"judge": judge, "rank": rank}, reward).run(numbered(3, 3))
    assert results[2].grades["rank"] == Abstained("one member of the group was to be graded")
    assert results[2].reward == 0.5


async def test_fallback_runs_only_where_needed() -> None:
    judge = Async(lambda r: _raise_or_return(JudgeUnavailable("down") if r.id == "1" else 0.5))
    lexical = Async(0.25, "lexical")
    runner = GradingRunner({"judge": judge, "lexical": lexical}, Fallback("judge", "lexical"))
    results = await runner.run(numbered(4))
    assert lexical.calls == 1
    assert [r.reward for r in results] == [0.5, 0.25, 0.5, 0.5]
    assert runner.metrics.counts.policies == {"judge: missing, fallback to lexical": 1}


# ---- what is done about missing rewards


def failing(*ids: str, cause: str = "infrastructure") -> Async:
    error: Exception = (
        JudgeUnavailable("down") if cause == "infrastructure" else RolloutError("a length bomb")
    )
    return Async(lambda r: _raise_or_return(error if r.id in ids else int(r.response[-1]) / 10))


async def test_neutral_is_the_mean_of_the_valid_members() -> None:
    runner = GradingRunner({"judge": failing("1")}, missing_reward="neutral")
    results = await runner.run(numbered(4))
    assert results[1].status == "neutral"
    assert results[1].reward == pytest.approx((0 + 0.2 + 0.3) / 3)
    assert results[1].raw_reward is None
    assert [r.reward for r in results if r.status == "scored"] == [0.0, 0.2, 0.3]


async def test_a_rollout_that_broke_its_grader_is_not_neutral() -> None:
    results = await GradingRunner({"judge": failing("3", cause="rollout")}, missing_reward="neutral").run(
        numbered(4)
    )
    assert results[3].status == "scored"
    assert results[3].reward == 0.0
    assert results[3].policies == ("judge: broken by the rollout, counts as 0",)


async def test_a_group_without_any_reward_gets_one_number_that_is_like_the_others() -> None:
    runner = GradingRunner({"judge": failing("4", "5", "6", "7")}, missing_reward="neutral")
    results = await runner.run(numbered(8))
    assert [r.reward for r in results[4:]] == pytest.approx([0.15] * 4)
    note = "no member of its group has a reward, so it gets the mean of the run"
    assert all(r.policies == (note,) and note in runner.explain(r) for r in results[4:])
    assert runner.metrics.counts.empty_groups == 1
    fresh = await GradingRunner({"judge": failing("0", "1")}, missing_reward="neutral").run(numbered(2))
    assert [r.reward for r in fresh] == [0.5, 0.5]


async def test_mask_raise_and_a_written_number() -> None:
    masked = await GradingRunner({"judge": failing("1")}, missing_reward="mask").run(numbered(4))
    assert (masked[1].reward, masked[1].status) == (None, "masked")
    written = await GradingRunner({"judge": failing("1")}, missing_reward=-1.0).run(numbered(4))
    assert (written[1].reward, written[1].status) == (-1.0, "constant")
    with pytest.raises(
        MissingRewardError, match="rollout 1 of group 0 has no reward .judge: JudgeUnavailable: down"
    ):
        await GradingRunner({"judge": failing("1")}, missing_reward="raise").run(numbered(40))
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("transform", ["center", "zscore", "loo", "rank", "gdpo"])
async def test_transforms_are_over_the_valid_members_and_fills_are_neutral(transform: Any) -> None:
    runner = GradingRunner(
        {"judge": failing("1")}, {"judge": 1}, transform=transform, missing_reward="neutral"
    )
    results = await runner.run(numbered(4))
    rewards = [r.reward for r in results]
    assert None not in rewards
    assert rewards[0] < rewards[2] < rewards[3]  # type: ignore[operator]
    assert rewards[1] == (0.5 if transform == "rank" else 0.0)
    valid = [rewards[0], rewards[2], rewards[3]]
    assert math.fsum(valid) / 3 == pytest.approx(rewards[1])  # type: ignore[arg-type]


@pytest.mark.parametrize("transform", ["center", "zscore", "loo", "rank", "gdpo"])
async def test_below_two_valid_members_the_whole_group_is_neutral_or_masked(transform: Any) -> None:
    for missing_reward, reward, status in (
        ("neutral", 0.5 if transform == "rank" else 0.0, "neutral"),
        ("mask", None, "masked"),
    ):
        runner = GradingRunner(
            {"judge": failing("0", "1", "2")},
            {"judge": 1},
            transform=transform,
            missing_reward=missing_reward,
        )  # type: ignore[arg-type]
        results = await runner.run(numbered(4))
        assert {(r.reward, r.status) for r in results} == {(reward, status)}
        assert runner.metrics.counts.empty_groups == 1


async def test_gdpo_normalises_each_term_before_it_is_weighted() -> None:
    big = Async(lambda r: int(r.id) / 10, "big")
    small = Async(lambda r: (3 - int(r.id)) / 1000, "small")
    runner = GradingRunner({"big": big, "small": small}, {"big": 1, "small": 1}, transform="gdpo")
    assert [r.reward for r in await runner.run(numbered(4))] == pytest.approx([0, 0, 0, 0], abs=1e-9)


def test_gdpo_needs_terms() -> None:
    with pytest.raises(ConfigError, match="root must be one"):
        GradingRunner({"digit": digit}, Score("digit"), transform="gdpo")


async def test_max_failure_rate_raises_instead_of_training_on_noise() -> None:
    ids = tuple(str(i) for i in range(0, 40, 4))
    runner = GradingRunner(
        {"judge": failing(*ids), "digit": digit}, max_failure_rate=0.2, missing_reward="neutral"
    )
    with pytest.raises(FailureRateError, match="judge 25.0 % .JudgeUnavailable"):
        await runner.run(numbered(40))
    await GradingRunner({"judge": failing(*ids)}, max_failure_rate=0.3).run(numbered(40))
    broken = GradingRunner({"judge": failing(*ids, cause="rollout")}, max_failure_rate=0.0)
    await broken.run(numbered(40))  # the policy's doing is no alarm about the judge


# ---- retries


async def test_retryable_failures_are_tried_again_without_holding_a_slot() -> None:
    tries: dict[str, int] = {}

    def act(rollout: Rollout) -> float:
        tries[rollout.id] = tries.get(rollout.id, 0) + 1
        if rollout.id == "0" and tries["0"] < 3:
            raise JudgeUnavailable("busy")
        return 0.5

    runner = GradingRunner(
        {"judge": Async(act)}, max_concurrency=1, retry=Retry(attempts=3, wait_initial_s=0.01)
    )
    results = await runner.run(numbered(4))
    assert tries == {"0": 3, "1": 1, "2": 1, "3": 1}
    assert [r.reward for r in results] == [0.5] * 4


async def test_what_is_not_retryable_is_final() -> None:
    judge = Async(lambda r: _raise_or_return(ValueError("bug")))
    await GradingRunner({"judge": judge}, retry=Retry(attempts=5, wait_initial_s=0)).run(numbered(4))
    assert judge.calls == 4


async def test_retries_stay_within_their_share_of_calls() -> None:
    judge = Async(lambda r: _raise_or_return(JudgeUnavailable("down")))
    runner = GradingRunner(
        {"judge": judge}, retry=Retry(attempts=10, wait_initial_s=0.0, wait_max_s=0.0, budget=0.1)
    )
    await runner.run(numbered(100))
    assert judge.calls <= 100 + 10


# ---- streams


async def test_stream_yields_each_result_as_soon_as_it_is_final() -> None:
    gate = asyncio.Event()

    async def act(rollout: Rollout) -> float:
        if rollout.id == "3":
            await gate.wait()
        return 0.5

    seen: list[int] = []
    async for result in GradingRunner({"judge": Async(act)}).stream(numbered(8)):
        seen.append(result.index)
        if len(seen) == 7:
            assert 3 not in seen
            gate.set()
    assert sorted(seen) == list(range(8))
    assert seen[-1] == 3


async def test_stream_with_neutral_fill_holds_back_only_the_missing_one() -> None:
    gate = asyncio.Event()

    async def act(rollout: Rollout) -> float:
        if rollout.id == "0":
            raise JudgeUnavailable("down")
        if rollout.id == "3":
            await gate.wait()
        return 0.5

    seen: list[int] = []
    async for result in GradingRunner({"judge": Async(act)}, missing_reward="neutral").stream(numbered(4)):
        seen.append(result.index)
        if len(seen) == 2:
            gate.set()
    assert sorted(seen[:2]) == [1, 2]
    assert sorted(seen) == [0, 1, 2, 3]


async def test_leaving_a_stream_early_cancels_the_rest() -> None:
    judge = Async(lambda r: 0.5 if r.id == "0" else asyncio.sleep(3600))
    async with contextlib.aclosing(GradingRunner({"judge": judge}).stream(numbered(40))) as stream:
        async for _ in stream:
            break
    assert judge.in_flight == 0
    assert len(asyncio.all_tasks()) == 1


async def test_stream_raises_what_run_raises() -> None:
    with pytest.raises(MissingRewardError):
        async for _ in GradingRunner({"judge": failing("1")}, missing_reward="raise").stream(numbered(4)):
            pass


async def test_cancelling_a_run_leaves_no_task_behind() -> None:
    judge = Async(lambda r: asyncio.sleep(3600))
    task = asyncio.create_task(GradingRunner({"judge": judge}).run(numbered(100)))
    while judge.in_flight < 32:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert judge.in_flight == 0
    assert len(asyncio.all_tasks()) == 1


# ---- loops and threads


def test_one_runner_serves_loops_that_come_and_go_and_threads() -> None:
    runner = GradingRunner({"judge": Async(lambda r: asyncio.sleep(0.001, 0.5)), "digit": digit})
    expected = [r.reward for r in asyncio.run(runner.run(numbered(40)))]
    assert [r.reward for r in asyncio.run(runner.run(numbered(40)))] == expected
    found: list[list[float | None]] = []

    def in_thread(sync: bool) -> None:
        rollouts = numbered(40)
        results = runner.run_sync(rollouts) if sync else asyncio.run(runner.run(rollouts))
        found.append([r.reward for r in results])

    threads = [threading.Thread(target=in_thread, args=(i % 2 == 0,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 6


async def test_run_sync_works_inside_a_running_loop() -> None:
    runner = GradingRunner({"judge": Async(0.5)})
    assert [r.reward for r in runner.run_sync(numbered(4))] == [0.5] * 4


async def test_run_sync_from_inside_a_grader_says_what_to_do() -> None:
    inner = GradingRunner({"digit": digit})
    outer = GradingRunner({"judge": Async(lambda r: inner.run_sync([r])[0].reward)})
    with pytest.raises(ConfigError, match="await the async form"):
        await asyncio.to_thread(outer.run_sync, numbered(1))


async def test_blocking_graders_run_in_as_many_threads_as_the_runner_has_slots() -> None:
    barrier = threading.Barrier(40, timeout=20)

    @grader(where="thread")
    def blocks(response: str) -> float:
        barrier.wait()
        return 0.5

    results = await GradingRunner({"blocks": blocks}, max_concurrency=40).run(numbered(40))
    assert [r.reward for r in results] == [0.5] * 40
    deadline = time.monotonic() + 5
    while any(t.name == "judgekit-grader" for t in threading.enumerate()) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert not [t for t in threading.enumerate() if t.name == "judgekit-grader"]


async def test_a_rule_may_return_an_awaitable() -> None:
    class Late:
        name, version, score_range = "late", "1", (0.0, 1.0)

        def grade(self, rollout: Rollout) -> Any:
            return asyncio.sleep(0, 0.5)

    assert [r.reward for r in await GradingRunner({"late": Late()}).run(numbered(3))] == [0.5] * 3


async def test_a_long_batch_of_rules_lets_the_loop_have_its_turn() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    @grader
    def slow(response: str) -> float:
        time.sleep(0.002)
        return 0.5

    counter = asyncio.create_task(count())
    await GradingRunner({"slow": slow}).run(numbered(50))
    counter.cancel()
    assert turns >= 10


# ---- laws


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.one_of(st.floats(0, 1), st.none(), st.just(math.nan))), max_size=24
    ),
    st.sampled_from(["none", "center", "zscore", "rank", "loo", "gdpo"]),
    st.sampled_from(["neutral", "mask", 0.25]),
    st.randoms(),
)
def test_permuting_the_batch_permutes_its_results(
    members: list[tuple[int, float | None]], transform: Any, missing_reward: Any, random: Any
) -> None:
    """Order kept, no NaN, and nothing depends on where a rollout stands."""
    rollouts = [Rollout(group=g, response=str(i), extra={"s": s}) for i, (g, s) in enumerate(members)]
    judge = grader(lambda rollout: rollout.extra["s"])  # type: ignore[misc]
    rank = group_grader(lambda rollouts: [0.5] * len(rollouts))

    def rewards(batch: list[Rollout]) -> dict[str, tuple[float | None, str]]:
        runner = GradingRunner(
            {"judge": judge, "rank": rank},
            {"judge": 1, "rank": 0},
            transform=transform,
            missing_reward=missing_reward,
        )
        results = runner.run_sync(batch)
        assert [r.index for r in results] == list(range(len(batch)))
        for result in results:
            assert result.reward is None or math.isfinite(result.reward)
            if result.raw_reward is None:
                assert result.status != "scored"
        return {b.response: (r.reward, r.status) for b, r in zip(batch, results, strict=True)}

    shuffled = list(rollouts)
    random.shuffle(shuffled)
    first, second = rewards(rollouts), rewards(shuffled)
    for key, (reward, status) in first.items():
        other, other_status = second[key]
        assert status == other_status
        assert (reward is None) == (other is None)
        if reward is not None and status != "neutral":
            assert other == pytest.approx(reward)


@settings(deadline=None)
@given(st.lists(st.integers(0, 8), min_size=2, max_size=12), st.integers(1, 4), st.randoms())
def test_neutral_fill_leaves_the_groups_mean_and_its_siblings_advantages_in_proportion(
    valid: list[int], gone: int, random: Any
) -> None:
    """GRPO's advantages: 0 for who is filled in, and the siblings' all times sqrt((n-1)/(k-1))."""
    scores = [*(v / 8 for v in valid), *[None] * gone]
    random.shuffle(scores)
    rollouts = [Rollout(group=0, response="", extra={"s": s}) for s in scores]
    judge = grader(lambda rollout: rollout.extra["s"])  # type: ignore[misc]
    results = GradingRunner({"judge": judge}, missing_reward="neutral").run_sync(rollouts)
    rewards = [r.reward for r in results]
    assert [r for r, s in zip(rewards, scores, strict=True) if s is not None] == [
        s for s in scores if s is not None
    ]

    def advantages(rewards: list[Any]) -> list[float]:
        middle = math.fsum(rewards) / len(rewards)
        std = math.sqrt(math.fsum((r - middle) ** 2 for r in rewards) / (len(rewards) - 1))
        return [(r - middle) / (std or 1.0) for r in rewards]

    alone = iter(advantages([s for s in scores if s is not None]))
    growth = math.sqrt((len(scores) - 1) / (len(valid) - 1))
    for score, advantage in zip(scores, advantages(rewards), strict=True):
        expected = 0.0 if score is None else next(alone) * growth
        assert advantage == pytest.approx(expected, abs=1e-9)


# ---- construction


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: GradingRunner({}), "at least one grader"),
        (lambda: GradingRunner([digit, digit]), "two graders have one name"),
        (lambda: GradingRunner({"a.b": digit}), "without a dot"),
        (lambda: GradingRunner({"f": len}), "decorate the function with @judgekit.grader"),
        (lambda: GradingRunner({"d": digit}, {"e": 1}), "no grader gives; there is 'd'"),
        (lambda: GradingRunner({"d": digit}, max_concurrency=0), "a whole number from 1"),
        (lambda: GradingRunner({"d": digit}, timeout_s=0), "above 0"),
        (lambda: GradingRunner({"d": digit}, deadline_s=-1), "above 0"),
        (lambda: GradingRunner({"d": digit}, transform="z-score"), "did you mean 'zscore'"),
        (
            lambda: GradingRunner({"d": digit}, missing_reward="zero"),
            "'exclude', 'neutral', 'mask', 'raise' or a finite number",
        ),
        (lambda: GradingRunner({"d": digit}, missing_reward=math.nan), "finite"),
        (lambda: GradingRunner({"d": digit}, missing_reward=10**400), "finite"),
        (lambda: GradingRunner({"d": digit}, max_failure_rate=1.5), "share from 0"),
        (lambda: grader(score_range=(1, 0))(lambda response: 0), "score_range is .lowest, highest."),
        (lambda: grader(lambda answer: 0), "no field 'answer'"),
        (lambda: grader(fields={"x": "extra.x"})(lambda response: 0), "not a parameter of the function"),
    ],
)
def test_wrong_arguments_are_said_at_construction(build: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()


async def test_what_is_no_rollout_is_said() -> None:
    with pytest.raises(DataError, match="item 1 is a dict"):
        await GradingRunner({"digit": digit}).run([numbered(1)[0], {"response": "1"}])  # type: ignore[list-item]
    with pytest.raises(DataError, match="response is text, not NoneType"):
        Rollout(response=None)  # type: ignore[arg-type]


async def test_an_empty_batch_is_an_empty_list() -> None:
    assert await GradingRunner({"digit": digit}).run([]) == []
    assert await GradingRunner({"digit": digit}).run_groups([[], []]) == [[], []]


async def test_run_groups_refuses_what_is_no_rollout_in_any_group() -> None:
    for groups in ([["x"], [Rollout(response="1")]], [[Rollout(response="1")], ["x"]]):
        with pytest.raises(DataError, match="is a str, not a judgekit.Rollout"):
            await GradingRunner({"digit": digit}).run_groups(groups)  # type: ignore[arg-type]


async def test_runs_share_no_limit_unless_they_are_told_to() -> None:
    """Two runs of one rollout each, which must be graded at the same time."""
    both = asyncio.Barrier(2)

    @grader
    async def meets(response: str) -> float:
        await asyncio.wait_for(both.wait(), 20)
        return 1.0

    runner = GradingRunner({"meets": meets}, max_concurrency=1).with_settings(timeout_s=30)
    results = await asyncio.gather(*(runner.run([Rollout(response=text)]) for text in "ab"))
    assert [result.reward for (result,) in results] == [1.0, 1.0]


async def test_run_groups_keeps_the_nesting() -> None:
    groups = [numbered(3), [], numbered(1)]
    results = await GradingRunner({"digit": digit}, transform="center").run_groups(groups)
    assert [[r.reward for r in g] for g in results] == [pytest.approx([-0.1, 0, 0.1]), [], [None]]


async def test_metrics_are_a_flat_dict_of_finite_floats() -> None:
    runner = GradingRunner({"digit": digit, "judge": failing("1")}, missing_reward="neutral")
    await runner.run(numbered(8))
    summary = runner.metrics.summary()
    assert all(isinstance(v, float) and math.isfinite(v) for v in summary.values())
    assert summary["judgekit/judge/failure_rate"] == 1 / 8
    assert summary["judgekit/judge/failure_rate_infrastructure"] == 1 / 8
    assert summary["judgekit/neutral_rate"] == 1 / 8
    assert summary["judgekit/rollouts"] == 8
    runner.metrics.summary(reset=True)
    assert runner.metrics.summary() == {}


async def test_warnings_about_what_looks_wrong(caplog: pytest.LogCaptureFixture) -> None:
    longer = grader(lambda response: len(response) / 1000)  # type: ignore[misc]
    await GradingRunner({"longer": longer}).run([Rollout(response="x" * i, group=i // 4) for i in range(100)])
    assert "signals: reward and length correlate by 1.00 over 100 rollouts" in caplog.text
    caplog.clear()
    same = grader(lambda response: 1.0)  # type: ignore[misc]
    await GradingRunner({"same": same}).run(numbered(80))
    assert "100.0% of 80 rewards are the highest one" in caplog.text
    assert "100.0% of 20 groups have equal rewards" in caplog.text


async def test_make_groups_is_grouped_by_its_id() -> None:
    runner = GradingRunner({"one": grader(lambda response: 1.0)})  # type: ignore[misc]
    await runner.run(make_groups(5, 3))
    assert runner.metrics.counts.groups == 5


async def test_slow_calls_do_not_keep_a_small_lane_empty() -> None:
    """Judges take the slots that are free, and never those of the grader with two of its own."""
    done = asyncio.Event()
    graded: list[str] = []

    @grader(max_concurrency=2)
    async def scarce(rollout: Rollout) -> float:
        await asyncio.sleep(0)
        graded.append(rollout.id)
        if len(graded) == 64:
            done.set()
        return 1.0

    @grader
    async def judge(rollout: Rollout) -> float:
        await done.wait()
        return 1.0

    runner = GradingRunner({"judge": judge, "scarce": scarce}, max_concurrency=8, timeout_s=30)
    results = await runner.run(numbered(64))
    assert [r.reward for r in results] == [1.0] * 64
