"""Layers: limits, retries, breakers, caches, routing and coalescing around scripted judges."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from judgekit import (
    ConfigError,
    Graded,
    GradingRunner,
    JudgeRejected,
    JudgeTimeout,
    JudgeUnavailable,
    Retry,
    Rollout,
)
from judgekit.errors import JudgeBudgetSpent
from judgekit.graders import JudgeGrader
from judgekit.judges import JudgeReply, JudgeRequest, LineVerdict, Piece, Sampling, Turn
from judgekit.judges.engines.openai.batching import Coalescing
from judgekit.judges.engines.replicas import Routed
from judgekit.judges.layers.cache import Cached, DiskCache, request_key
from judgekit.judges.layers.places import Places
from judgekit.judges.layers.pressure import Breaker
from judgekit.judges.layers.retrying import Retrying
from judgekit.judges.layers.spending import Budget, Spending
from judgekit.judges.layers.stack import (
    BreakerOptions,
    CacheOptions,
    LayerOptions,
    Limited,
    stacked,
)
from judgekit.testing import ScriptedJudge

DOWN = JudgeUnavailable("down")


def ask(text: str = "a", shared: str = "s", **options: object) -> JudgeRequest:
    turns = (Turn("system", (Piece(shared),)), Turn("user", (Piece(text, trusted=False), Piece("?"))))
    return JudgeRequest(turns=turns, choices=("0", "1"), accept=lambda reply: None, **options)  # type: ignore[arg-type]


# ---- Limited, Retrying


async def test_limited_bounds_calls_at_once() -> None:
    inner = ScriptedJudge("1", latency_s=0.001)
    judge = Limited(inner, [Places(3)])
    await asyncio.gather(*(judge.complete(ask(str(i))) for i in range(20)))
    assert inner.peak_in_flight == 3


async def test_an_attempts_time_starts_with_its_slot() -> None:
    """Four hang; those that queue behind them are not charged for it."""

    class Hangs(ScriptedJudge):
        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            if "hang" in request.turns[1].text:
                await asyncio.sleep(3600)
            return await super().complete(request)

    judge = Limited(Hangs("1"), [Places(2)], attempt_timeout_s=0.05)
    calls = [judge.complete(ask("hang")) for _ in range(4)] + [judge.complete(ask("fine")) for _ in range(4)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(r).__name__ for r in results] == ["JudgeTimeout"] * 4 + ["JudgeReply"] * 4


async def test_retrying_tries_what_may_succeed_and_nothing_else() -> None:
    flaky = ScriptedJudge([DOWN, DOWN, "1"])
    assert (await Retrying(flaky, Retry(wait_initial_s=0)).complete(ask())).text == "1"
    final = ScriptedJudge(JudgeRejected("no"))
    with pytest.raises(JudgeRejected):
        await Retrying(final, Retry(wait_initial_s=0)).complete(ask())
    assert len(final.requests) == 1
    dead = ScriptedJudge(JudgeTimeout("late"))
    with pytest.raises(JudgeTimeout) as info:
        await Retrying(dead, Retry(attempts=4, wait_initial_s=0, budget=1.0)).complete(ask())
    assert len(dead.requests) == 4
    assert info.value.exhausted


async def test_the_runner_does_not_retry_what_a_layer_has_retried() -> None:
    dead = ScriptedJudge(DOWN)
    judge = Retrying(dead, Retry(attempts=2, wait_initial_s=0, budget=1.0))
    runner = GradingRunner(
        {"judge": JudgeGrader(judge)}, retry=Retry(attempts=5, wait_initial_s=0, budget=1.0)
    )
    await runner.run([Rollout(prompt="p", ground_truth="1", response="1")])
    assert len(dead.requests) == 2


async def test_an_open_breaker_spares_the_engine() -> None:
    dead = ScriptedJudge(JudgeUnavailable("down"))
    judge = Limited(dead, [Breaker(failures=3, open_s=60)])
    for _ in range(10):
        with pytest.raises(JudgeUnavailable):
            await judge.complete(ask())
    assert len(dead.requests) == 3


async def test_a_refusal_is_no_failure_of_the_engine() -> None:
    judge = Limited(ScriptedJudge(JudgeRejected("no")), [Breaker(failures=1, open_s=60)])
    for _ in range(3):
        with pytest.raises(JudgeRejected):
            await judge.complete(ask())


async def test_a_budget_that_is_spent_says_nothing_of_the_engine() -> None:
    script = [JudgeUnavailable("down"), JudgeUnavailable("down")]
    breaker = Breaker(failures=3, open_s=60)
    budgeted = Limited(ScriptedJudge(script), [breaker, Spending(Budget(requests=2))])
    for error in (JudgeUnavailable, JudgeUnavailable, JudgeBudgetSpent):
        with pytest.raises(error):
            await budgeted.complete(ask())
    assert not breaker.is_open
    with pytest.raises(JudgeUnavailable):
        await Limited(ScriptedJudge(JudgeUnavailable("down")), [breaker]).complete(ask())
    assert breaker.is_open


# ---- Cached


async def test_what_was_read_is_kept_and_what_was_not_is_asked_again() -> None:
    def read(reply: JudgeReply) -> None:
        LineVerdict(nonce=False).read(reply)

    inner = ScriptedJudge(["no verdict", "### Final Score: 1"])
    cached = Cached(inner)
    request = JudgeRequest(turns=ask().turns, accept=read)
    texts = [(await cached.complete(request)).text for _ in range(4)]
    assert texts == ["no verdict", "### Final Score: 1", "### Final Score: 1", "### Final Score: 1"]
    assert (len(inner.requests), cached.hits) == (2, 2)


async def test_failures_are_never_kept() -> None:
    cached = Cached(ScriptedJudge([DOWN, "1"]))
    with pytest.raises(JudgeUnavailable):
        await cached.complete(ask())
    assert (await cached.complete(ask())).text == "1"


async def test_a_hit_costs_no_tokens() -> None:
    cached = Cached(ScriptedJudge("1"))
    assert (await cached.complete(ask())).usage.calls == 1
    assert (await cached.complete(ask())).usage.calls == 0


def test_the_key_holds_all_that_matters_and_not_the_nonce() -> None:
    base = ask()
    same = [ask(nonce="k3v9"), ask()]
    others = [
        ask("b"),
        ask(shared="t"),
        ask(vote=1),
        ask(asker="judge@2"),
        ask(max_tokens=3),
        ask(sampling=Sampling(temperature=0.5)),
        ask(sampling=Sampling(thinking=True)),
        msgspec.structs.replace(base, stop=("\n",)),
        JudgeRequest(turns=base.turns, choices=("0", "2")),
        JudgeRequest(turns=(Turn("user", base.turns[0].pieces + base.turns[1].pieces),), choices=("0", "1")),
        JudgeRequest(turns=(base.turns[0], Turn("user", (Piece("a"), Piece("?")))), choices=("0", "1")),
    ]
    keys = {request_key(r, "m") for r in others}
    assert len(keys) == len(others)
    assert request_key(base, "m") not in keys
    assert {request_key(r, "m") for r in same} == {request_key(base, "m")}
    assert request_key(base, "m") != request_key(base, "another model")


async def test_equal_requests_in_flight_share_one_call() -> None:
    inner = ScriptedJudge("1", latency_s=0.01)
    cached = Cached(inner, entries=0)
    await asyncio.gather(*(cached.complete(ask()) for _ in range(8)), cached.complete(ask("b")))
    assert (len(inner.requests), cached.joins) == (2, 7)


async def test_cancelling_the_leader_does_not_cost_its_followers() -> None:
    inner = ScriptedJudge("1", latency_s=0.02)
    cached = Cached(inner)
    leader, follower, other = (asyncio.create_task(cached.complete(ask())) for _ in range(3))
    await asyncio.sleep(0)
    leader.cancel()
    other.cancel()
    assert (await follower).text == "1"
    assert len(inner.requests) == 1


async def test_when_all_who_wait_are_cancelled_so_is_the_call() -> None:
    inner = ScriptedJudge("1", latency_s=3600)
    cached = Cached(inner)
    tasks = [asyncio.create_task(cached.complete(ask())) for _ in range(3)]
    while not inner.in_flight:
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert inner.in_flight == 0


async def test_draws_are_shared_within_a_run_and_never_on_disk(tmp_path: Path) -> None:
    """At a temperature above 0 identical siblings of one run share an answer; the next run draws anew."""
    inner = ScriptedJudge("### Final Score [{nonce}]: 1")
    disk = DiskCache(tmp_path / "c.sqlite")
    cached = Cached(inner, disk=disk)
    grader = JudgeGrader(cached, verdict=LineVerdict(), sampling=Sampling(temperature=1.0))
    runner = GradingRunner({"judge": grader}, max_concurrency=1)
    twins = [Rollout(prompt="p", ground_truth="1", response="1")] * 3
    await runner.run(twins)
    assert len(inner.requests) == 1
    await runner.run(twins)
    assert len(inner.requests) == 2
    disk.open()
    cached.disk.close()
    with closing(sqlite3.connect(tmp_path / "c.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM replies").fetchone() == (0,)


async def test_replies_survive_on_disk_for_other_processes_and_graders(tmp_path: Path) -> None:
    """Another grader has another nonce: the reply is read with the one that it was given."""
    path = tmp_path / "deep" / "c.sqlite"

    async def grade(inner: ScriptedJudge) -> object:
        cached = Cached(inner, entries=0, disk=DiskCache(path), identify=_Weights("w"))
        grader = JudgeGrader(cached, verdict=LineVerdict())
        (result,) = await GradingRunner({"judge": grader}).run(
            [Rollout(prompt="p", ground_truth="1", response="1")]
        )
        cached.disk.close()
        return result.grades["judge"]

    first, second = ScriptedJudge("### Final Score [{nonce}]: 1"), ScriptedJudge("not asked")
    assert isinstance(await grade(first), Graded)
    found = await grade(second)
    assert isinstance(found, Graded)
    assert found.score == 1.0
    assert second.requests == []


class _Weights:
    def __init__(self, name: str) -> None:
        self.name = name

    async def identity(self) -> str:
        return self.name


async def test_other_weights_under_the_same_name_are_asked_anew() -> None:
    inner = ScriptedJudge(["0", "1"])
    weights = _Weights("old")
    cached = Cached(inner, identify=weights)
    assert (await cached.complete(ask())).text == "0"
    weights.name = "new"
    assert (await cached.complete(ask())).text == "1"


async def test_memory_is_bounded() -> None:
    inner = ScriptedJudge("1")
    cached = Cached(inner, entries=2)
    for text in "abcab":
        await cached.complete(ask(text))
    assert len(inner.requests) == 5


def test_a_cache_is_shared_by_threads(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path / "c.sqlite")

    def work(n: int) -> None:
        for i in range(50):
            disk.put(f"{n}-{i}".encode(), b"x")
            disk.get(b"0-0")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    disk.close()
    again = DiskCache(tmp_path / "c.sqlite")
    assert all(again.get(f"{n}-{i}".encode()) for n in range(4) for i in range(50))
    again.close()


def test_a_file_that_is_no_cache_is_said(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("this is not a database, but long enough to look at" * 10)
    with pytest.raises(ConfigError, match="cache: cannot use"):
        DiskCache(tmp_path / "c").open()


# ---- Routed


class Replica:
    def __init__(self, answer: object = "1", gate: asyncio.Event | None = None) -> None:
        self.answer = answer
        self.gate = gate
        self.seen: list[str] = []

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        self.seen.append(request.turns[0].text)
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return JudgeReply(str(self.answer))


async def test_a_group_goes_to_one_replica_and_groups_spread() -> None:
    replicas = [Replica() for _ in range(3)]
    routed = Routed(replicas)
    for group in range(60):
        for member in range(3):
            await routed.complete(ask(str(member), shared=f"group {group}"))
    homes = [{text for text in r.seen} for r in replicas]
    assert sum(map(len, homes)) == 60
    assert all(len(home) >= 8 for home in homes)


async def test_a_busy_replica_spills_to_the_least_loaded() -> None:
    gate = asyncio.Event()
    replicas = [Replica(gate=gate) for _ in range(2)]
    routed = Routed(replicas, spill=4)
    tasks = [asyncio.create_task(routed.complete(ask(str(i)))) for i in range(20)]
    await asyncio.sleep(0)
    assert sorted(len(r.seen) for r in replicas) == [8, 12]
    gate.set()
    await asyncio.gather(*tasks)


async def test_a_dead_replica_is_left_out_and_probed() -> None:
    """Two judges of which one dies: every request is answered, and the dead one is asked once in a while."""
    good, bad = Replica(), Replica(JudgeUnavailable("dead"))
    routed = Routed([good, bad], probe_s=3600)
    for i in range(40):
        assert (await routed.complete(ask(shared=f"group {i}"))).text == "1"
    assert len(good.seen) == 40
    assert len(bad.seen) == 1
    bad.answer = "1"
    for replica in routed.replicas:
        replica.dead_until = min(replica.dead_until, time.monotonic())  # its rest is over
    for i in range(40):
        await routed.complete(ask(shared=f"group {i}"))
    assert len(bad.seen) > 10


async def test_a_replica_that_asks_for_an_hour_is_left_out_for_a_minute() -> None:
    """One answer of one server must not halve the judges for so long."""
    routed = Routed([Replica(JudgeUnavailable("busy", retry_after=3599)), Replica("1")])
    for i in range(8):
        await routed.complete(ask(f"{i}", shared=f"{i}"))
    assert 0 < max(r.dead_until for r in routed.replicas) - time.monotonic() <= 60


async def test_when_all_are_dead_it_is_said() -> None:
    bad = [Replica(JudgeUnavailable("dead")) for _ in range(2)]
    with pytest.raises(JudgeUnavailable):
        await Routed(bad).complete(ask())
    assert [len(r.seen) for r in bad] == [1, 1]


async def test_other_errors_are_not_the_replicas_fault() -> None:
    routed = Routed([Replica(JudgeRejected("no"))] * 2)
    with pytest.raises(JudgeRejected):
        await routed.complete(ask())
    assert not any(r.dead_until for r in routed.replicas)


# ---- Coalescing


class Many:
    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate = asyncio.Event()
        self.cancelled = 0

    async def complete_many(self, requests: Sequence[JudgeRequest], /) -> list[JudgeReply | Exception]:
        texts = [r.turns[1].pieces[0].text for r in requests]
        self.batches.append(texts)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return [JudgeRejected(t) if t == "bad" else JudgeReply(t) for t in texts]


async def test_what_arrives_while_batches_are_out_travels_together() -> None:
    many = Many()
    judge = Coalescing(many, max_batch=4, max_out=2)
    first = [asyncio.create_task(judge.complete(ask(str(i)))) for i in range(3)]
    await asyncio.sleep(0.001)
    second = [asyncio.create_task(judge.complete(ask(str(i)))) for i in range(3, 5)]
    await asyncio.sleep(0.001)
    third = [asyncio.create_task(judge.complete(ask(str(i)))) for i in range(5, 14)]
    await asyncio.sleep(0.001)
    assert [len(b) for b in many.batches] == [3, 2, 4, 4]  # a full batch gains nothing by waiting
    many.gate.set()
    replies = await asyncio.gather(*first, *second, *third)
    assert [r.text for r in replies] == [str(i) for i in range(14)]
    assert [len(b) for b in many.batches] == [3, 2, 4, 4, 1]


async def test_one_bad_request_costs_only_itself() -> None:
    many = Many()
    many.gate.set()
    judge = Coalescing(many)
    results = await asyncio.gather(
        *(judge.complete(ask(t)) for t in ("a", "bad", "b")), return_exceptions=True
    )
    assert [type(r).__name__ for r in results] == ["JudgeReply", "JudgeRejected", "JudgeReply"]


async def test_a_panic_of_native_code_reaches_everybody_who_waits() -> None:
    """What a tokenizer's panic becomes is no Exception."""

    class PanicException(BaseException):
        pass

    class Panics(Many):
        async def complete_many(self, requests: Sequence[JudgeRequest], /) -> list[JudgeReply | Exception]:
            raise PanicException("byte index 1 is not a char boundary")

    calls = [Coalescing(Panics()).complete(ask("a")) for _ in range(2)]
    for error in await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5):
        assert isinstance(error, PanicException)


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_as_many_replies_as_requests_or_none_is_anybody_s(count: int) -> None:
    class Miscounts(Many):
        async def complete_many(self, requests: Sequence[JudgeRequest], /) -> list[JudgeReply | Exception]:
            return [JudgeReply("1")] * count

    judge = Coalescing(Miscounts())
    found = await asyncio.gather(*(judge.complete(ask(text)) for text in "ab"), return_exceptions=True)
    assert [repr(error) for error in found] == [f"RuntimeError('{count} replies for 2 requests')"] * 2


async def test_whoever_waits_for_a_batch_ends_with_it() -> None:
    many = Many()
    judge = Coalescing(many)
    calls = [asyncio.create_task(judge.complete(ask(text))) for text in "ab"]
    while not many.batches:
        await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task(), *calls}:
        task.cancel()
    await asyncio.wait(calls)
    assert [call.cancelled() for call in calls] == [True, True]


class APIStatusError(Exception):
    """As openai's: a copy would be made without what it needs."""

    def __init__(self, message: str, *, response: object) -> None:
        super().__init__(message)


@pytest.mark.parametrize("each", [True, False])
async def test_an_error_that_cannot_be_copied_reaches_everybody_who_waits(each: bool) -> None:
    class Fails:
        async def complete_many(self, requests: Sequence[JudgeRequest], /) -> list[JudgeReply | Exception]:
            error = APIStatusError("busy", response=1)
            if each:
                return [error] * len(requests)
            raise error

    judge = Coalescing(Fails())
    waiting = asyncio.gather(*(judge.complete(ask(str(i))) for i in range(3)), return_exceptions=True)
    found = await asyncio.wait_for(waiting, 20)
    assert [str(error) for error in found] == ["busy"] * 3


async def test_different_kinds_do_not_share_a_batch() -> None:
    many = Many()
    many.gate.set()
    judge = Coalescing(many, key=lambda request: request.vote)
    await asyncio.gather(*(judge.complete(ask(str(i), vote=i % 2)) for i in range(6)))
    assert sorted(many.batches) == [["0", "2", "4"], ["1", "3", "5"]]


async def test_many_kinds_are_looked_at_once_each_and_take_turns() -> None:
    many = Many()
    looked: list[int] = []

    def key(request: JudgeRequest) -> int:
        looked.append(request.vote)
        return request.vote % 40

    judge = Coalescing(many, max_batch=4, max_out=2, key=key)
    tasks = [asyncio.create_task(judge.complete(ask(str(i), vote=i))) for i in range(400)]
    await asyncio.sleep(0.01)
    tasks[40].cancel()
    many.gate.set()
    replies = await asyncio.gather(*tasks, return_exceptions=True)
    assert [getattr(r, "text", "") for r in replies if r is not replies[40]] == [
        str(i) for i in range(400) if i != 40
    ]
    assert len(looked) == 400
    assert [int(batch[0]) % 40 for batch in many.batches[:80]] == [*range(40), *range(40)]


async def test_a_batch_that_nobody_waits_for_is_cancelled() -> None:
    many = Many()
    judge = Coalescing(many)
    tasks = [asyncio.create_task(judge.complete(ask(str(i)))) for i in range(3)]
    await asyncio.sleep(0.001)
    tasks[0].cancel()
    await asyncio.sleep(0.001)
    assert many.cancelled == 0
    for task in tasks[1:]:
        task.cancel()
    await asyncio.wait(tasks)
    await asyncio.sleep(0.001)
    assert many.cancelled == 1


# ---- the stack


async def test_64_rollouts_of_which_16_pass_the_gate_with_8_texts_cost_8_calls() -> None:
    from judgekit import Gate, Score, grader

    @grader
    def right(response: str) -> float:
        return float(int(response.split()[1]) < 8)

    inner = ScriptedJudge("1", latency_s=0.001)
    judge = stacked(inner, LayerOptions(max_concurrency=4, cache=CacheOptions()))
    runner = GradingRunner(
        {"right": right, "judge": JudgeGrader(judge)},
        Gate(if_=Score("right") >= 1, then="judge", otherwise=0),
    )
    rollouts = [
        Rollout(prompt="p", ground_truth="1", response=f"text {i % 8 if i < 16 else i}") for i in range(64)
    ]
    results = await runner.run(rollouts)
    assert sum(r.reward or 0 for r in results) == 16
    assert len(inner.requests) == 8


async def test_a_call_that_waits_for_its_next_try_holds_no_slot() -> None:
    flaky = ScriptedJudge([JudgeUnavailable("busy"), "1"])
    retry = Retry(attempts=2, wait_initial_s=600, wait_max_s=600)
    judge = stacked(flaky, LayerOptions(max_concurrency=1, retry=retry))
    slow = asyncio.create_task(judge.complete(ask("slow")))
    while not flaky.requests:
        await asyncio.sleep(0.001)
    assert (await judge.complete(ask("quick"))).text == "1"
    assert not slow.done()
    slow.cancel()


def test_options_are_checked() -> None:
    for build in (
        lambda: stacked(ScriptedJudge("1"), LayerOptions(attempt_timeout_s=-1)),
        lambda: stacked(ScriptedJudge("1"), LayerOptions(max_concurrency=-1)),
        lambda: stacked(ScriptedJudge("1"), LayerOptions(breaker=BreakerOptions(failures=0))),
        lambda: stacked(ScriptedJudge("1"), LayerOptions(cache=CacheOptions(entries=-1))),
        lambda: Routed([]),
        lambda: Coalescing(Many(), max_batch=0),
    ):
        with pytest.raises(ConfigError):
            build()
