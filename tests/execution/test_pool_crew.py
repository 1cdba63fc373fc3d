"""What a pool makes of its workers' answers, silence and ends: without the processes, so that each moment can be chosen."""

from __future__ import annotations

import asyncio
import io
import os
import pickle
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from judgekit import ConfigError
from judgekit.errors import GraderRaised, JudgekitError
from judgekit.execution import pool as pool_module
from judgekit.execution import pool_crew
from judgekit.execution.pickled import PickledGrader
from judgekit.execution.pool import ProcessPool, WorkerDied
from judgekit.execution.pool_crew import Crew, Worker, WorkerLost, WorkerRanAway, WorkerTimeout
from judgekit.execution.pool_worker import FULL, HEADER, PROCESSES, THREADS

NOBODY = 2**22 + 1
"""No process has this id."""


class Process:
    """Ends when it is told to."""

    def __init__(self, pid: int = NOBODY) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.ended = asyncio.Event()

    def end(self, code: int) -> None:
        self.returncode = code
        self.ended.set()

    async def wait(self) -> int | None:
        await self.ended.wait()
        return self.returncode


class Requests:
    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.closed = False
        self.answer: Callable[[int, Any], None] = lambda number, request: None

    def write(self, data: bytes) -> None:
        size, number, why = HEADER.unpack(data[: HEADER.size])
        assert (len(data), why) == (HEADER.size + size, 0)
        self.sent.append(pickle.loads(data[HEADER.size :]))
        self.answer(number, self.sent[-1])

    def close(self) -> None:
        self.closed = True


class Made:
    """A worker whose process the test plays."""

    def __init__(self) -> None:
        self.process, self.replies, self.requests = Process(), asyncio.StreamReader(), Requests()
        self.worker = Worker(self.process, self.replies, self.requests)  # type: ignore[arg-type]

    def reply(self, number: int, *reply: Any, why: int = 0) -> None:
        data = pickle.dumps(reply)
        self.replies.feed_data(HEADER.pack(len(data), number, why) + data)

    def answers(self, *reply: Any, why: int = 0) -> None:
        self.requests.answer = lambda number, request: self.reply(number, *reply, why=why)


@pytest.fixture
async def made() -> Made:
    return Made()


GRADER = PickledGrader("name", 7)
OTHER = PickledGrader("other", 8)


async def loaded(made: Made, *, warmed: bool = False) -> Worker:
    made.answers("ok", warmed)
    await made.worker.load(GRADER)
    made.answers("ok", 0.5)
    made.requests.sent.clear()
    return made.worker


@pytest.mark.parametrize("warmed", [True, False])
async def test_a_grader_is_proven_where_it_was_warmed_up_or_has_answered(warmed: bool, made: Made) -> None:
    worker = await loaded(made, warmed=warmed)
    assert dict(worker.graders) == {GRADER.key: warmed}
    assert await worker.grade(GRADER, b"rollout", 30, ()) == 0.5
    assert dict(worker.graders) == {GRADER.key: True}
    assert made.requests.sent == [("grade", GRADER.key, b"rollout")]


async def test_an_error_of_a_grader_proves_nothing(made: Made) -> None:
    worker = await loaded(made)
    made.answers("error", "ValueError", "boom", True, False)
    with pytest.raises(GraderRaised) as caught:
        await worker.grade(GRADER, b"", 30, ())
    assert caught.value.args == ("ValueError", "boom", True, False)
    assert (worker.graders[GRADER.key], worker.trusted, worker.left) == (False, True, 0)


@pytest.mark.parametrize("why", [0, FULL, THREADS, PROCESSES])
async def test_a_worker_is_trusted_between_two_requests_unless_something_is_left(
    why: int, made: Made
) -> None:
    worker = await loaded(made)
    trusted: list[bool] = []

    def answer(number: int, request: Any) -> None:
        trusted.append(worker.trusted)
        made.reply(number, "ok", 0.5, why=why)

    made.requests.answer = answer
    await worker.grade(GRADER, b"", 30, ())
    assert (trusted, worker.trusted, worker.left) == ([False], not why, why)


async def test_the_reply_to_another_request_is_nobody_s(made: Made) -> None:
    worker = await loaded(made)
    made.requests.answer = lambda number, request: made.reply(number - 1, "ok", 1.0)
    with pytest.raises(WorkerLost, match="the worker process answered request 1 in place of 2") as caught:
        await worker.grade(GRADER, b"", 30, ())
    assert not caught.value.crashed
    assert not worker.trusted


CRASHES = [signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS]


@pytest.mark.parametrize(
    ("code", "crashed"),
    [
        (0, True),
        (3, True),
        *((-number, True) for number in CRASHES),
        (-signal.SIGKILL, False),
        (-signal.SIGTERM, False),
    ],
)
async def test_a_process_that_ended_by_itself_has_crashed(code: int, crashed: bool, made: Made) -> None:
    worker = await loaded(made)

    def answer(number: int, request: Any) -> None:
        made.process.end(code)
        made.replies.feed_eof()

    made.requests.answer = answer
    with pytest.raises(WorkerLost, match=rf"^the worker process ended \(exit code {code}\)$") as caught:
        await worker.grade(GRADER, b"", 30, ())
    assert (caught.value.crashed, worker.alive) == (crashed, False)
    assert pickle.loads(pickle.dumps(caught.value)).crashed is crashed


async def test_a_process_that_only_closed_its_socket_has_not_crashed(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pool_crew.anyio.move_on_after
    monkeypatch.setattr(
        pool_crew.anyio, "move_on_after", lambda s, **more: real(0.01 if s == 1.0 else s, **more)
    )
    worker = await loaded(made)
    made.requests.answer = lambda number, request: made.replies.feed_eof()
    with pytest.raises(WorkerLost, match="the worker process closed its socket") as caught:
        await worker.grade(GRADER, b"", 30, ())
    assert not caught.value.crashed


def computing(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, *looks: tuple[float, bool]
) -> list[tuple[float, bool]]:
    """What is seen of the worker's CPU time, one look after the other; the last one again and again."""
    left = list(looks)
    monkeypatch.setattr(worker, "_cpu", lambda: left.pop(0) if len(left) > 1 else left[0])
    return left


@pytest.mark.parametrize("proven", [True, False])
async def test_an_idle_worker_times_out_and_is_told_what_may_be_loading(
    proven: bool, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await loaded(made, warmed=proven)
    made.requests.answer = lambda number, request: None
    left = computing(worker, monkeypatch, (1.0, False), (1.004, False), (9.0, False))
    stands_still = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(pool_crew, "time", stands_still)  # whatever else the machine does meanwhile
    monkeypatch.setattr(pool_crew, "_LAST_LOOK_S", 0.001)
    with pytest.raises(WorkerTimeout) as caught:
        await worker.grade(GRADER, b"", 0.05, {GRADER.key})
    hint = "; what a grader imports at first use belongs into its warm_up()"
    assert (
        str(caught.value)
        == f"no grade within 0.05 s, of which 0.004 s were computing{'' if proven else hint}"
    )
    assert left == [(9.0, False)]  # it was looked at once
    assert worker.alive


@pytest.mark.parametrize(("proven", "managed"), [(True, False), (False, True), (True, True)])
async def test_a_worker_that_uses_up_its_time_has_run_away(
    proven: bool, managed: bool, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await loaded(made, warmed=proven)
    made.requests.answer = lambda number, request: None
    left = computing(worker, monkeypatch, (0.0, True), (0.005, True), (0.01, True), (0.95 * 0.02, True))
    monkeypatch.setattr(pool_crew, "_LAST_LOOK_S", 0.001)
    with pytest.raises(WorkerRanAway, match=r"^still computing after 0.02 s of CPU time$"):
        await worker.grade(GRADER, b"", 0.02, {GRADER.key} if managed else ())
    assert len(left) == 1  # it was given time while it did not get the CPU


async def test_what_has_never_answered_anywhere_may_be_loading_for_ten_timeouts(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await loaded(made)
    looks = 0

    def cpu() -> tuple[float, bool]:
        nonlocal looks
        looks += 1
        return float(looks), True

    made.requests.answer = lambda number, request: None
    monkeypatch.setattr(worker, "_cpu", cpu)
    monkeypatch.setattr(pool_crew, "_LAST_LOOK_S", 0.0001)
    with pytest.raises(
        WorkerTimeout, match="within 0.001 s, of which 10 s were computing; what a grader imports"
    ):
        await worker.grade(GRADER, b"", 0.001, {OTHER.key})
    assert looks == 11  # before, and after each of ten timeouts


async def test_an_answer_that_comes_with_the_timeout_is_read(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_crew, "_LAST_LOOK_S", 30)
    worker = await loaded(made)
    loop = asyncio.get_running_loop()
    made.requests.answer = lambda number, request: loop.call_later(0.02, made.reply, number, "ok", 0.25)  # type: ignore[assignment, return-value]
    assert await worker.grade(GRADER, b"", 0.001, ()) == 0.25


async def test_an_answer_in_two_parts_is_read_once_it_is_whole(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head has come within one timeout, and the rest within the next."""
    worker = await loaded(made, warmed=True)
    monkeypatch.setattr(pool_crew, "_LAST_LOOK_S", 0.001)
    data = pickle.dumps(("ok", 0.75))

    def look() -> tuple[float, bool]:
        if made.requests.sent and not fed:
            fed.append(1)
            made.replies.feed_data(data)
        return 0.0, True

    fed: list[int] = []
    monkeypatch.setattr(worker, "_cpu", look)
    made.requests.answer = lambda number, request: made.replies.feed_data(HEADER.pack(len(data), number, 0))
    assert await worker.grade(GRADER, b"", 0.01, ()) == 0.75
    made.answers("ok", 0.5)
    assert await worker.grade(GRADER, b"", 30, ()) == 0.5


async def test_a_dead_worker_whose_socket_is_held_by_a_child_is_lost(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await loaded(made, warmed=True)
    monkeypatch.setattr(pool_crew, "_LAST_LOOK_S", 0.001)
    made.requests.answer = lambda number, request: made.process.end(-signal.SIGSEGV)
    with pytest.raises(WorkerLost, match=r"ended \(exit code -11\)"):
        await worker.grade(GRADER, b"", 0.01, ())


async def test_loading_has_a_time_of_its_own(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_crew, "LOADING_S", 0.01)
    with pytest.raises(WorkerTimeout, match=r"the grader was not loaded within 0.01 s"):
        await made.worker.load(GRADER)
    assert not made.worker.graders


async def test_a_worker_holds_sixteen_graders_and_lets_go_of_the_one_used_longest_ago(made: Made) -> None:
    graders = [PickledGrader(f"{i}", i) for i in range(18)]
    made.answers("ok", False)
    for one in graders[:16]:
        await made.worker.load(one)
    assert [request[3] for request in made.requests.sent] == [[]] * 16
    made.answers("ok", 0.5)
    await made.worker.grade(graders[0], b"", 30, ())
    made.answers("ok", True)
    for one in graders[16:]:
        await made.worker.load(one)
    assert [request[3] for request in made.requests.sent[-2:]] == [[graders[1].key], [graders[2].key]]
    assert list(made.worker.graders) == [one.key for one in (*graders[3:16], graders[0], *graders[16:])]
    assert made.requests.sent[0] == ("load", graders[0].key, graders[0].payload, [])


@pytest.mark.parametrize(
    ("reply", "why", "practised"),
    [
        (("ok", 0.5), 0, True),
        (("ok", 0.5), THREADS, False),
        (("error", "ValueError", "", False, False), 0, False),
    ],
)
async def test_a_worker_has_practised_if_it_answers_and_leaves_nothing(
    reply: Any, why: int, practised: bool, made: Made
) -> None:
    worker = await loaded(made)
    made.answers(*reply, why=why)
    assert await worker.practise(GRADER, b"") is practised
    assert worker.graders[GRADER.key] is practised


async def test_cpu_time_is_the_process_s_and_nothing_where_it_cannot_be_known(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.process.pid = os.getpid()
    seconds, working = made.worker._cpu()
    times = os.times()
    assert 0 < seconds <= times.user + times.system + 0.02
    assert working
    made.process.pid = NOBODY
    assert made.worker._cpu() == (0.0, False)
    for stat in (b"", b"1 (x) S 1 2", b"1 (x) S 1 1 1 1 1 1 1 1 1 1 1 many 1"):
        monkeypatch.setattr(pool_crew, "open", lambda *_, stat=stat: io.BytesIO(stat), raising=False)
        assert made.worker._cpu() == (0.0, False)
    monkeypatch.setattr(
        pool_crew, "open", lambda *_: io.BytesIO(b"1 (a) R b) D 1 1 1 1 1 1 1 1 1 1 300 45 9"), raising=False
    )
    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    assert made.worker._cpu() == (3.45, True)


async def test_ending_a_worker_closes_its_socket_and_waits_for_it(made: Made) -> None:
    ending = asyncio.create_task(made.worker.end())
    await asyncio.sleep(0)
    assert made.requests.closed
    assert not ending.done()
    made.process.end(-9)
    await ending
    assert not made.worker.alive


# ---- all of them


@pytest.fixture
async def crew() -> Any:
    one = Crew(2)
    yield one
    await one.close()


def hired(crew: Crew, **graders: bool) -> Made:
    """A worker of the crew that ends as soon as it is told to."""
    made = Made()
    made.worker.graders.update(
        {{"a": GRADER, "b": OTHER}[name].key: shown for name, shown in graders.items()}
    )
    made.process.ended.set()
    crew._all.add(made.worker)
    return made


async def test_the_idle_worker_that_has_shown_most_with_a_grader_is_taken(crew: Crew) -> None:
    proven, held, other = hired(crew, a=True), hired(crew, a=False), hired(crew, b=True)
    crew._idle = [proven.worker, other.worker, held.worker]
    taken = [await crew.idle_worker(GRADER, loaded=False) for _ in range(4)]
    assert taken == [proven.worker, held.worker, other.worker, None]
    crew._idle = [other.worker, held.worker]
    assert [await crew.idle_worker(GRADER, loaded=True) for _ in range(2)] == [held.worker, None]
    assert crew._idle == [other.worker]


async def test_an_idle_worker_that_has_died_is_ended_and_not_taken(crew: Crew) -> None:
    dead, alive = hired(crew, a=True), hired(crew, a=False)
    dead.process.returncode = -9
    crew._idle = [alive.worker, dead.worker]
    assert crew.holds(GRADER)
    assert await crew.idle_worker(GRADER, loaded=True) is alive.worker
    assert dead.requests.closed
    assert crew.size == 1
    alive.process.returncode = -9
    assert not crew.holds(GRADER)
    assert not crew.holds(OTHER)


@pytest.mark.parametrize("lacks", ["", "trust", "life", "room", "owner"])
async def test_a_worker_is_kept_if_it_can_be_trusted_and_there_is_room(lacks: str, crew: Crew) -> None:
    one = hired(crew, a=True)
    hired(crew)
    if lacks == "trust":
        one.worker.trusted = False
    if lacks == "life":
        one.process.returncode = 0
    if lacks == "room":
        hired(crew)
    if lacks == "owner":
        await crew.close()
    waiting = asyncio.create_task(crew.change())
    await asyncio.sleep(0)
    await crew.put_back(one.worker)
    await asyncio.wait_for(waiting, 20)  # who waits for a worker is told in any case
    assert (crew._idle == [one.worker]) is (not lacks)
    assert one.requests.closed is bool(lacks)
    assert (one.worker in crew._all) is (not lacks)


@pytest.mark.parametrize("error", [OSError("no descriptor"), RuntimeError("no thread")])
async def test_a_worker_that_cannot_be_started_is_told_to_whoever_waits(
    error: Exception, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting: list[int] = []

    async def start(memory_mb: int) -> Worker:
        starting.append(crew.starting)
        raise error

    monkeypatch.setattr(crew, "_start", start)
    waiting = asyncio.create_task(crew.change())
    await asyncio.sleep(0)
    with pytest.raises(WorkerLost, match=f"no worker process could be started: {error}"):
        await crew.hire(64)
    await asyncio.wait_for(waiting, 20)
    assert (starting, crew.starting, crew.size) == ([1], 0, 0)


async def test_a_closed_crew_starts_nobody_and_has_ended_its_workers(crew: Crew) -> None:
    ones = [hired(crew), hired(crew)]
    await crew.close()
    assert crew.size == 0
    assert all(one.requests.closed for one in ones)
    with pytest.raises(WorkerLost, match="the pool was closed"):
        await crew.hire(64)


async def test_a_worker_s_group_ends_once_it_has_ended_by_itself(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda pid, number: killed.append((pid, number)))
    watch = asyncio.create_task(made.worker.end_with_its_group())
    await asyncio.sleep(0)
    assert killed == []
    made.process.end(-9)
    await watch
    assert killed == [(NOBODY, signal.SIGKILL)]


@pytest.mark.parametrize(
    ("reply", "why", "practised"),
    [(("ok", 0.5), 0, True), (("error", "ValueError", "", False, False), 0, False)],
)
async def test_a_new_worker_that_fails_at_practice_is_given_back_and_its_rollout_forgotten(
    reply: Any, why: int, practised: bool, crew: Crew
) -> None:
    pool, one = ProcessPool(1), hired(crew, a=False)
    assert await pool._practised(crew, one.worker, GRADER)  # there is nothing to practise with
    assert one.requests.sent == []
    pool._remember(GRADER.key, b"managed")
    one.answers(*reply, why=why)
    assert await pool._practised(crew, one.worker, GRADER) is practised
    assert one.requests.sent == [("grade", GRADER.key, b"managed")]
    assert (GRADER.key in pool._managed) is practised
    assert (crew._idle == [one.worker]) is not practised


async def test_a_worker_whose_practice_is_cancelled_is_ended(crew: Crew) -> None:
    pool, one = ProcessPool(1), hired(crew, a=False)
    pool._remember(GRADER.key, b"managed")
    practice = asyncio.create_task(pool._practised(crew, one.worker, GRADER))
    await asyncio.sleep(0)
    practice.cancel()
    await asyncio.wait([practice])
    assert practice.cancelled()
    assert (one.requests.closed, crew.size) == (True, 0)


async def test_a_worker_is_started_where_the_system_has_room_or_nobody_else_will_be_free(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, made = ProcessPool(2, memory_mb=7), Made()
    asked: list[int] = []

    async def hire(memory_mb: int) -> Worker:
        asked.append(memory_mb)
        if len(asked) > 1:
            raise WorkerLost("no room")
        return made.worker

    monkeypatch.setattr(crew, "hire", hire)
    assert await pool._hired(crew, fresh=False) is made.worker
    assert (asked, pool.started) == ([7], 1)
    with pytest.raises(WorkerLost, match="no room"):
        await pool._hired(crew, fresh=False)  # nobody else is there
    hired(crew)
    assert await pool._hired(crew, fresh=False) is None  # another will be free
    with pytest.raises(WorkerLost, match="no room"):
        await pool._hired(crew, fresh=True)
    assert pool.started == 1


# ---- whose fault it is


LOST, CRASHED = WorkerLost("gone"), WorkerLost("crashed", True)
MEMORY = GraderRaised("MemoryError", "m", False, True)
VALUE = GraderRaised("ValueError", "v", True, False)


@pytest.mark.parametrize(
    ("error", "proven", "crashes", "told"),
    [
        (LOST, True, 0, LOST),
        (CRASHED, True, 1, CRASHED),
        (CRASHED, False, 2, CRASHED),
        (CRASHED, True, 2, WorkerDied("crashed, twice")),
        (VALUE, True, 0, VALUE),
        (VALUE, False, 0, VALUE),
        (MEMORY, True, 0, MEMORY),
        (MEMORY, False, 0, GraderRaised("MemoryError", "m", False, False)),
        (
            GraderRaised("RecursionError", "r", True, True),
            False,
            0,
            GraderRaised("RecursionError", "r", True, False),
        ),
        (WorkerRanAway("r"), False, 0, WorkerRanAway("r")),
    ],
)
def test_the_rollout_is_blamed_where_the_worker_manages_otherwise(
    error: JudgekitError, proven: bool, crashes: int, told: JudgekitError
) -> None:
    found = pool_module._blamed(error, proven, crashes)
    assert (type(found), found.args) == (type(told), told.args)
    assert getattr(found, "cause", None) == getattr(told, "cause", None)


@pytest.mark.parametrize(
    ("error", "resources"),
    [
        (WorkerRanAway("r"), True),
        (MEMORY, True),
        (GraderRaised("RecursionError", "", False, True), True),
        (VALUE, False),
        (LOST, False),
    ],
)
def test_time_memory_and_stack_may_be_what_a_grader_imports(error: JudgekitError, resources: bool) -> None:
    assert pool_module._is_resources(error) is resources


def test_one_rollout_is_kept_for_practice_of_each_of_the_latest_graders() -> None:
    pool = ProcessPool(1)
    for i in range(17):
        pool._remember(bytes([i]), b"first")
        pool._remember(bytes([i]), b"second")
    assert list(pool._managed) == [bytes([i]) for i in range(1, 17)]
    assert set(pool._managed.values()) == {b"first"}
    pool._remember(b"large", b"x" * ((1 << 20) + 1))
    assert b"large" not in pool._managed
    pool._remember(b"large", b"x" * (1 << 20))
    assert b"large" in pool._managed


def test_a_grader_that_could_not_be_loaded_is_refused_for_half_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(pool_module.time, "monotonic", lambda: now)
    pool, error = ProcessPool(1), GraderRaised("OSError", "o", False, False)
    assert pool._refusal(GRADER) is None
    pool._refuse(GRADER, error)
    again = [pool._refusal(GRADER) for _ in range(2)]
    assert [(type(one), one.args) for one in again if one] == [(GraderRaised, error.args)] * 2
    assert again[0] is not again[1]
    assert error not in again
    now += 29.9
    assert pool._refusal(GRADER) is not None
    pool._refuse(OTHER, WorkerLost("gone", True))
    assert getattr(pool._refusal(OTHER), "crashed", None) is True
    now += 0.1
    assert pool._refusal(GRADER) is None
    pool._refuse(OTHER, LOST)
    assert list(pool._refusals) == [OTHER.key]


def test_what_a_grader_leaves_behind_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    pool = ProcessPool(1)
    for grader, left in (
        (GRADER, 0),
        (GRADER, FULL),
        (GRADER, THREADS),
        (GRADER, PROCESSES),
        (OTHER, PROCESSES),
    ):
        pool._tell(grader, left)
    assert [text.split(" behind")[0] for text in caplog.messages] == [
        "grader 'name' leaves threads",
        "grader 'other' leaves processes that cannot be killed",
    ]


def test_a_pool_has_at_least_one_worker() -> None:
    with pytest.raises(ConfigError, match="a process pool has at least 1 worker, not 0"):
        ProcessPool(0)
    assert (ProcessPool(1).workers, ProcessPool(3).workers, ProcessPool().memory_mb) == (1, 3, 4096)
    assert 1 <= ProcessPool().workers <= 8
    assert ProcessPool().workers == min(8, os.cpu_count() or 1)
    assert pool_module.default_pool() is pool_module.default_pool()


async def test_a_worker_that_was_started_is_told_and_watched(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Made()

    async def start(memory_mb: int) -> Worker:
        assert (memory_mb, crew.starting, crew.size) == (64, 1, 0)
        return one.worker

    monkeypatch.setattr(crew, "_start", start)
    waiting = asyncio.create_task(crew.change())
    await asyncio.sleep(0)
    assert await crew.hire(64) is one.worker
    await asyncio.wait_for(waiting, 20)
    assert (crew.starting, crew.size) == (0, 1)
    assert one.worker.watch is not None
    one.process.end(0)
    await one.worker.watch


async def test_a_worker_that_does_not_end_is_given_up(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    real = anyio.move_on_after

    def soon(seconds: float, *, shield: bool) -> Any:
        given.append((seconds, shield))
        return real(0.01, shield=shield)

    one = Made()
    crew._all.add(one.worker)
    with monkeypatch.context() as patch:
        patch.setattr(anyio, "move_on_after", soon)
        await crew._end(one.worker)
    assert (given, crew.size, one.requests.closed) == ([(5.0, True)], 0, True)
