"""Whatever outlives an evaluation is nobody's: contexts, cancellations, retries, sources and tasks have one owner."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from contextvars import ContextVar, copy_context
from typing import Any

import anyio
import pytest

from judgekit import (
    ConfigError,
    DataError,
    Failed,
    Gate,
    GradingRunner,
    JudgeUnavailable,
    Retry,
    RewardResult,
    Rollout,
    Score,
    Weighted,
    grader,
    group_grader,
)
from judgekit.execution.stopwatch import off_the_clock
from judgekit.trainers import GroupCollector

MEMO: ContextVar[str | None] = ContextVar("memo", default=None)
SPAN: ContextVar[str | None] = ContextVar("span", default=None)
QUICK = Retry(attempts=3, wait_initial_s=0, wait_max_s=0, budget=100)


def remembered(rollout: Rollout) -> float:
    """A memo for each request, as frameworks write it: right wherever a request has a context of its own."""
    if MEMO.get() is None:
        MEMO.set(rollout.id)
    return float(MEMO.get() == rollout.id)


class Inline:
    name, version, score_range, where = "memo", "1", (0.0, 1.0), "inline"

    def grade(self, rollout: Rollout, /) -> Any:
        return remembered(rollout)


class Thread(Inline):
    where = "thread"


class Process(Inline):
    where = "process"


class Async:
    name, version, score_range = "memo", "1", (0.0, 1.0)

    async def grade(self, rollout: Rollout, /) -> float:
        await asyncio.sleep(0)
        return remembered(rollout)


class Later(Inline):
    """Binds in its synchronous part what its asynchronous one reads."""

    def grade(self, rollout: Rollout, /) -> Any:
        own = remembered(rollout)

        async def later() -> float:
            await asyncio.sleep(0)
            return own and remembered(rollout)

        return later()


class Grouped:
    name, version, score_range = "memo", "1", (0.0, 1.0)

    async def grade_group(self, rollouts: Sequence[Rollout], /) -> list[float]:
        await asyncio.sleep(0)
        return [remembered(rollouts[0])] * len(rollouts)


async def as_batch(runner: GradingRunner, rollouts: list[Rollout]) -> list[RewardResult]:
    return await runner.run(rollouts)


async def as_stream(runner: GradingRunner, rollouts: list[Rollout]) -> list[RewardResult]:
    return [result async for result in runner.stream(iter(rollouts))]


async def as_runs(runner: GradingRunner, rollouts: list[Rollout]) -> list[RewardResult]:
    shared = runner.with_settings(shared=True)
    groups = [rollouts[i : i + 2] for i in range(0, len(rollouts), 2)]
    return [result for results in await asyncio.gather(*map(shared.run, groups)) for result in results]


async def as_collected(runner: GradingRunner, rollouts: list[Rollout]) -> list[RewardResult]:
    collector = GroupCollector(runner)
    return await asyncio.gather(*(collector.arrive(r.group, r, size=2) for r in rollouts))


WAYS = [as_batch, as_stream, as_runs, as_collected]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [Inline, Thread, Process, Async, Later, Grouped])
async def test_what_a_grader_binds_is_seen_by_no_other_evaluation(kind: Any, way: Any) -> None:
    rollouts = [Rollout(response="", id=str(i), group=i // 2) for i in range(24)]
    results = await way(GradingRunner({"memo": kind()}, max_concurrency=4), rollouts)
    assert [result.reward for result in results] == [1.0] * 24
    assert MEMO.get() is None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [Inline, Thread, Async, Later, Grouped])
async def test_a_span_that_is_open_around_a_run_is_the_parent_of_its_evaluations(kind: Any, way: Any) -> None:
    parents: list[str | None] = []

    class Told(kind):  # type: ignore[misc]
        def __init__(self) -> None:
            call = self.grade_group if kind is Grouped else self.grade

            def told(subject: Any) -> Any:
                parents.append(SPAN.get())
                return call(subject)

            async def told_async(subject: Any) -> Any:
                return await told(subject)

            name = "grade_group" if kind is Grouped else "grade"
            setattr(self, name, told_async if kind in (Async, Grouped) else told)

    def traced() -> Any:
        SPAN.set("the host's")
        return asyncio.create_task(way(GradingRunner({"memo": Told()}), [*numbered(4)]))

    await copy_context().run(traced)
    assert set(parents) == {"the host's"}


def numbered(n: int) -> list[Rollout]:
    return [Rollout(response=str(i), id=str(i), group=i // 2) for i in range(n)]


@pytest.mark.parametrize("delay_s", [0.0, 0.015, 0.1])
async def test_a_cancellation_that_comes_too_late_hits_nobody(delay_s: float) -> None:
    """A library's timer that cancels the task in which it was started, and was not disarmed."""

    @grader
    async def judge(id: str) -> float:
        if id == "3":
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_later(delay_s, task.cancel)
            return 0.5
        await asyncio.sleep(0.01)
        return 0.5

    results = await GradingRunner([judge], max_concurrency=4).run(numbered(64))
    assert [result.reward for result in results] == [0.5] * 64


# ---- retries


def failing(times: int, act: Callable[[], Any]) -> tuple[Callable[[str], Any], list[str]]:
    """A function that calls *act* on a response's first *times* calls, and the calls that it has had."""
    calls: list[str] = []

    def grade(response: str) -> Any:
        calls.append(response)
        return act() if calls.count(response) <= times else 1.0

    return grade, calls


def unavailable() -> Any:
    raise JudgeUnavailable("busy")


@pytest.mark.parametrize("act", [unavailable, lambda: Failed("Busy", retryable=True)])
@pytest.mark.parametrize("where", ["inline", "thread", "async", "group"])
async def test_one_retry_loop_serves_every_mode(where: str, act: Callable[[], Any]) -> None:
    grade, calls = failing(2, act)

    async def grade_async(response: str) -> Any:
        await asyncio.sleep(0)
        return grade(response)

    made: Any
    if where == "group":
        made = group_grader(lambda rollouts: grade("all") if grade("all") != 1.0 else [1.0, 1.0], name="g")
    elif where == "async":
        made = grader(grade_async, name="g")
    else:
        made = grader(grade, name="g", where=where)  # type: ignore[call-overload]
    group = [Rollout(response="a", group=0), Rollout(response="b", group=0)]
    results = await GradingRunner({"g": made}, retry=QUICK).run(group)
    assert [result.reward for result in results] == [1.0, 1.0], calls


async def test_a_failure_that_is_final_is_not_tried_again() -> None:
    grade, calls = failing(2, lambda: Failed("Broken"))
    (result,) = await GradingRunner({"g": grader(grade)}, retry=QUICK).run(numbered(1))
    assert (result.reward, calls) == (None, ["0"])


async def test_an_attempt_does_not_pay_for_the_queue() -> None:
    """The second attempt waits behind others for longer than its time limit, and has all of it afterwards."""
    tries: list[str] = []

    @grader
    async def judge(response: str) -> float:
        tries.append(response)
        if tries.count("0") == 1 and response == "0":
            raise JudgeUnavailable("busy")
        await asyncio.sleep(0.2 if response != "0" else 0.02)
        return 1.0

    runner = GradingRunner([judge], max_concurrency=1, timeout_s=0.5, retry=QUICK)
    results = await runner.run([Rollout(response=str(i), group=i) for i in range(5)])
    assert [result.reward for result in results] == [1.0] * 5
    assert tries[-1] == "0"  # it was the last to be tried, 0.8 s after its first attempt


async def test_time_for_which_an_inner_runs_judge_is_held_is_nobodys() -> None:
    release = asyncio.Event()

    @grader(timeout_s=0.2)
    async def held(response: str) -> float:
        with off_the_clock():
            await release.wait()
        return 1.0

    inner = GradingRunner([held])

    @grader(timeout_s=0.2)
    async def outer(rollout: Rollout) -> Any:
        return (await inner.run([rollout]))[0].reward

    run = asyncio.create_task(GradingRunner([outer]).run(numbered(1)))
    await asyncio.wait([run], timeout=0.6)
    release.set()
    assert [result.reward for result in await run] == [1.0]


# ---- streams


def endless(read: list[int]) -> Iterator[Rollout]:
    try:
        for i in range(10**9):
            read.append(i)
            yield Rollout(response="x", group=i)
    finally:
        read.append(-1)


async def endless_async(read: list[int]) -> AsyncIterator[Rollout]:
    try:
        for i in range(10**9):
            await asyncio.sleep(0)
            read.append(i)
            yield Rollout(response="x", group=i)
    finally:
        read.append(-1)


@grader
async def quick(response: str) -> float:
    await asyncio.sleep(0)
    return 1.0


@pytest.mark.parametrize("source", [endless, endless_async])
async def test_a_stream_reads_its_source_as_it_goes_and_closes_it(source: Any) -> None:
    read: list[int] = []
    async with aclosing(GradingRunner([quick]).stream(source(read))) as results:
        async for result in results:
            if result.index == 10:
                break
    assert len(read) < 1000
    assert read[-1] == -1


@grader
async def slow_to_end(response: str) -> float:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.05)
    return 1.0


async def streamed(runner: GradingRunner) -> None:
    async for _ in runner.stream(numbered(3)):
        pass


async def ran(runner: GradingRunner) -> None:
    await runner.run(numbered(3))


@pytest.mark.parametrize("act", [streamed, ran])
async def test_cancelled_again_and_again_leaves_no_task(act: Any) -> None:
    task = asyncio.create_task(act(GradingRunner([slow_to_end])))
    for _ in range(5):
        await asyncio.sleep(0.01)
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("act", [streamed, ran])
async def test_a_scope_of_anyio_leaves_no_task(act: Any) -> None:
    with anyio.move_on_after(0.05):
        await act(GradingRunner([slow_to_end]))
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("transform", ["none", "zscore"])
async def test_a_deadline_ends_a_stream_whose_source_stalls(transform: Any) -> None:
    async def stalls() -> AsyncIterator[Rollout]:
        yield Rollout(response="0", group=0)
        yield Rollout(response="1", group=0)
        await asyncio.Event().wait()

    @grader
    async def digit(response: str) -> float:
        return float(response)

    runner = GradingRunner([digit], transform=transform, deadline_s=0.1)
    results = [result async for result in runner.stream(stalls())]
    assert [result.raw_reward for result in results] == [0.0, 1.0]


@pytest.mark.parametrize("way", [list, iter])
async def test_a_group_that_failed_is_given_when_it_has_failed(way: Any) -> None:
    @grader
    async def judge(response: str) -> float:
        await asyncio.sleep(0)
        if response in ("4", "5"):
            raise JudgeUnavailable("down")
        return float(response) % 2

    runner = GradingRunner([judge], missing_reward="neutral", max_concurrency=4)
    results = [result async for result in runner.stream(way(numbered(400)))]
    places = [result.index for result in results]
    assert max(places.index(4), places.index(5)) < 40
    assert {(result.reward, result.status) for result in results if result.index in (4, 5)} == {
        (0.5, "neutral")
    }


# ---- groups


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ([[0, 1]], "place 2 is in them 0 times"),
        ([[0, 1, 2, 3], [0]], "place 0 is in them 2 times"),
        ([[0, 1, 2, 3, 9]], "there is no place 9"),
        ([[0, 1, 2, -1]], "there is no place -1"),
        ([[0, 1, 2, 3.0]], "groups are lists of the rollouts' places"),
        ([0, 1, 2, 3], "groups are lists of the rollouts' places"),
    ],
)
async def test_groups_that_are_no_partition_are_said(groups: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        await GradingRunner([quick]).run(numbered(4), groups=groups)


async def test_rollouts_that_nothing_puts_together_are_each_alone() -> None:
    @group_grader
    async def compares(rollouts: Sequence[Rollout]) -> list[float]:
        raise AssertionError("strangers were compared")

    results = await GradingRunner([compares]).run([Rollout(response=str(i)) for i in range(3)])
    assert [result.grades["compares"].reason for result in results] == ["the group has one member"] * 3  # type: ignore[union-attr]


async def test_a_set_of_grades_has_no_order() -> None:
    @group_grader
    def several(rollouts: Sequence[Rollout]) -> Any:
        return {0.0, 1.0}

    results = await GradingRunner([several]).run(numbered(2))
    assert [result.grades["several"].error for result in results] == ["WrongGroupGrades"] * 2  # type: ignore[union-attr]


@pytest.mark.parametrize("order", ["first", "second"])
async def test_what_is_compared_does_not_depend_on_which_grader_was_quicker(order: str) -> None:
    """Member 0 needs `b` at once, member 1 first `a` and then `b`: they are compared by `b` together."""
    events = {"x": asyncio.Event(), "y": asyncio.Event()}

    @grader
    async def x(id: str) -> float:
        if id in ("0", "1"):  # ends first for one or for the other
            await (events["x"] if (id == "0") == (order == "first") else events["y"]).wait()
        return float(id)

    seen: dict[str, list[str]] = {}

    def compare(name: str) -> Any:
        async def compared(rollouts: Sequence[Rollout]) -> list[float]:
            seen[name] = [r.id for r in rollouts]
            return [1.0] * len(rollouts)

        return group_grader(compared, name=name)

    tree = Gate(
        if_=Score("x") >= 1,
        then=Gate(if_=Score("a") >= 0.5, then=Score("b"), otherwise=0.0),
        otherwise=Score("b"),
    )
    graders = {"x": grader(x.function, name="x", score_range=(0, 9)), "a": compare("a"), "b": compare("b")}
    rollouts = [Rollout(response="", id=str(i), group=0) for i in range(3)]
    run = asyncio.create_task(GradingRunner(graders, tree).run(rollouts))
    for event in events.values():
        await asyncio.sleep(0.01)
        event.set()
    assert [result.reward for result in await run] == [1.0] * 3
    assert seen == {"a": ["1", "2"], "b": ["0", "1", "2"]}


@pytest.mark.parametrize("where", ["thread", "process"])
async def test_a_group_grader_runs_where_it_says(where: Any) -> None:
    made = group_grader(in_which_thread, where=where, timeout_s=20, max_concurrency=1)
    results = await GradingRunner({"g": made}).run(numbered(4))
    assert {result.reward for result in results} == {1.0}


def in_which_thread(rollouts: Sequence[Rollout]) -> list[float]:
    import multiprocessing
    import os

    elsewhere = threading.current_thread() is not threading.main_thread() or os.getpid() != _HOST
    return [float(elsewhere and multiprocessing.parent_process() is None)] * len(rollouts)


def _host() -> int:
    import os

    return os.getpid()


_HOST = _host() if sys.argv[0] != "-c" else -1


async def test_a_group_grader_reads_fields_like_any_other() -> None:
    @group_grader(fields={"answer": "extra.answer"})
    def share(response: list[str], answer: list[str]) -> list[float]:
        right = [a == b for a, b in zip(response, answer, strict=True)]
        return [sum(right) / len(right)] * len(right)

    rollouts = [
        Rollout(response=a, group=0, extra={"answer": b} if b else {}) for a, b in ["xx", "xy", ("z", "")]
    ]
    results = await GradingRunner([share]).run(rollouts)
    assert [result.reward for result in results] == [0.5, 0.5, None]
    assert results[2].grades["share"].reason == "extra.answer is not there"  # type: ignore[union-attr]


def test_group_graders_are_checked_at_construction() -> None:
    async def asynchronous(rollouts: Any) -> Any: ...

    with pytest.raises(ConfigError, match="is async: it runs on the event loop"):
        group_grader(asynchronous, where="thread")
    with pytest.raises(ConfigError, match="max_concurrency is a whole number"):
        group_grader(lambda rollouts: [], name="g", max_concurrency=0)
    with pytest.raises(ConfigError, match="a rollout has no field 'respons'"):
        group_grader(lambda respons, ground_truth: [], name="g")


async def test_one_grader_under_two_names_has_its_limit_once() -> None:
    live: list[int] = []

    class One:
        name, version, score_range, max_concurrency = "one", "1", (0.0, 1.0), 1

        async def grade(self, rollout: Rollout, /) -> float:
            live.append(1)
            assert len(live) == 1
            await asyncio.sleep(0)
            live.pop()
            return 1.0

    one = One()
    runner = GradingRunner({"a": one, "b": one})
    for each in (runner, runner.with_settings(shared=True)):
        assert [result.reward for result in await each.run(numbered(8))] == [1.0] * 8


def test_two_terms_with_one_name_are_said() -> None:
    with pytest.raises(ConfigError, match="two terms are called '1'"):
        Weighted({1: (0.5, "a"), "1": (0.5, "b")})  # type: ignore[dict-item]


# ---- loops


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
@pytest.mark.parametrize("kind", [Inline, Thread, Async, Later, Grouped])
def test_an_eager_task_factory(kind: Any) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        for way in WAYS:
            rollouts = [Rollout(response="", id=str(i), group=i // 2) for i in range(24)]
            results = await way(GradingRunner({"memo": kind()}, max_concurrency=4), rollouts)
            assert [result.reward for result in results] == [1.0] * 24

    asyncio.run(main())


@pytest.mark.parametrize("kind", [Inline, Thread, Process, Async, Later, Grouped])
def test_uvloop(kind: Any) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        for way in WAYS:
            rollouts = [Rollout(response="", id=str(i), group=i // 2) for i in range(24)]
            results = await way(GradingRunner({"memo": kind()}, max_concurrency=4), rollouts)
            assert [result.reward for result in results] == [1.0] * 24
        task = asyncio.create_task(ran(GradingRunner([slow_to_end])))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        assert asyncio.all_tasks() == {asyncio.current_task()}

    uvloop.run(main())
