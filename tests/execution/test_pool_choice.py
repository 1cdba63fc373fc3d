"""Which worker a pool has grade a rollout, and what it tries again: workers and crew are played."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import anyio
import pytest

from judgekit import Rollout
from judgekit.errors import GraderRaised
from judgekit.execution import pool as pool_module
from judgekit.execution.pickled import PickledGrader
from judgekit.execution.pool import ProcessPool, WorkerDied
from judgekit.execution.pool_crew import WorkerLost, WorkerRanAway, WorkerTimeout
from judgekit.execution.pool_worker import THREADS

GRADER, OTHER = PickledGrader("name", 7), PickledGrader("other", 8)
MEMORY = GraderRaised("MemoryError", "m", False, True)
VALUE = GraderRaised("ValueError", "v", True, True)


class Hand:
    """A worker that gives one answer: an error is raised."""

    def __init__(
        self,
        answer: Any = 0.5,
        *,
        holds: dict[PickledGrader, bool] | None = None,
        loading: BaseException | None = None,
        left: int = 0,
    ) -> None:
        self.answer = answer
        self.graders = {grader.key: proven for grader, proven in (holds or {}).items()}
        self.loading = loading
        self.left = left
        self.did: list[Any] = []

    async def load(self, grader: PickledGrader) -> None:
        self.did.append(("load", grader.name))
        if self.loading is not None:
            raise self.loading
        self.graders[grader.key] = False

    async def practise(self, grader: PickledGrader, rollout: bytes) -> bool:
        self.did.append(("practise", rollout))
        self.graders[grader.key] = True
        return True

    async def grade(self, grader: PickledGrader, rollout: bytes, timeout_s: float, managed: Any) -> Any:
        self.did.append(("grade", rollout, timeout_s, list(managed)))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Hands:
    """A crew: idle workers are offered in order, None where there is none, and new ones are hired in order."""

    def __init__(self, *idle: Hand | None, new: tuple[Hand, ...] = ()) -> None:
        self.loop = asyncio.get_running_loop()
        self.limiter = anyio.CapacityLimiter(1)
        self.idle, self.new = list(idle), list(new)
        self.asked: list[bool] = []
        self.back: list[Hand] = []
        self.changes = self.size = self.starting = 0
        self.holding = False

    async def idle_worker(self, grader: PickledGrader, *, loaded: bool) -> Hand | None:
        self.asked.append(loaded)
        return self.idle.pop(0) if self.idle else None

    async def hire(self, memory_mb: int) -> Hand:
        if not self.new:
            raise WorkerLost("no room")
        return self.new.pop(0)

    async def put_back(self, worker: Hand) -> None:
        self.back.append(worker)

    async def change(self) -> None:
        self.changes += 1

    def holds(self, grader: PickledGrader) -> bool:
        return self.holding


def pool_of(crew: Hands, workers: int = 1) -> ProcessPool:
    pool = ProcessPool(workers)
    pool._crew = crew  # type: ignore[assignment]
    return pool


async def test_an_idle_worker_that_holds_the_grader_answers_and_its_rollout_is_kept() -> None:
    one = Hand(holds={GRADER: True})
    pool = pool_of(crew := Hands(one))
    assert await pool._grade(GRADER, b"r", 3.0) == 0.5
    assert one.did == [("grade", b"r", 3.0, [])]
    assert (crew.asked, crew.back, pool.started) == ([False], [one], 0)
    assert pool._managed == {GRADER.key: b"r"}
    again = Hand(holds={GRADER: True})
    crew.idle.append(again)
    await pool._grade(GRADER, b"s", 4.0)
    assert again.did == [("grade", b"s", 4.0, [GRADER.key])]
    assert crew.limiter.borrowed_tokens == 0


async def test_a_worker_without_the_grader_loads_it_first() -> None:
    idle, new = Hand(holds={OTHER: True}), Hand()
    pool = pool_of(Hands(idle, new=(new,)))
    for one in (idle, new):
        await pool._grade(GRADER, b"r", 3.0)
        assert [step[0] for step in one.did] == ["load", "grade"]
    assert pool.started == 1


async def test_a_rollout_whose_worker_was_lost_is_tried_once_more_in_a_new_one() -> None:
    lost, new = Hand(WorkerLost("gone"), holds={GRADER: True}), Hand(0.25)
    pool = pool_of(crew := Hands(lost, Hand(holds={GRADER: True}), new=(new,)))
    pool._remember(GRADER.key, b"managed")
    assert await pool._grade(GRADER, b"r", 3.0) == 0.25
    assert new.did == [("load", "name"), ("practise", b"managed"), ("grade", b"r", 3.0, [])]
    assert (crew.asked, crew.back) == ([False], [lost, new])


@pytest.mark.parametrize(
    ("crashed", "told"),
    [((True, True), WorkerDied), ((False, True), WorkerLost), ((True, False), WorkerLost)],
)
async def test_a_rollout_is_to_blame_for_two_crashes_and_not_for_one(
    crashed: tuple[bool, bool], told: type[Exception]
) -> None:
    first, second = (Hand(WorkerLost("gone", one), holds={GRADER: True}) for one in crashed)
    second.graders.clear()
    pool = pool_of(Hands(first, new=(second,)))
    pool._remember(GRADER.key, b"managed")
    with pytest.raises(told) as caught:
        await pool._grade(GRADER, b"r", 3.0)
    assert type(caught.value) is told
    assert str(caught.value) == ("gone, twice" if told is WorkerDied else "gone")


@pytest.mark.parametrize(
    ("error", "proven", "managed", "tries"),
    [
        (VALUE, False, True, 1),
        (MEMORY, True, True, 1),
        (MEMORY, False, False, 1),
        (MEMORY, False, True, 2),
        (WorkerRanAway("r"), False, True, 2),
        (WorkerRanAway("r"), True, True, 1),
        (WorkerTimeout("t"), False, True, 1),
    ],
)
async def test_time_and_memory_are_tried_again_where_the_grader_has_managed_elsewhere(
    error: Exception, proven: bool, managed: bool, tries: int
) -> None:
    first, second = Hand(error, holds={GRADER: proven}), Hand(error)
    pool = pool_of(crew := Hands(first, new=(second,)))
    if managed:
        pool._remember(GRADER.key, b"managed")
    with pytest.raises(type(error)) as caught:
        await pool._grade(GRADER, b"r", 3.0)
    assert crew.back == [first, second][:tries]
    assert getattr(caught.value, "args", None) == (
        ("MemoryError", "m", False, False) if error is MEMORY and not (proven or managed) else error.args
    )


async def test_what_a_rollout_left_is_told_with_its_grader(caplog: pytest.LogCaptureFixture) -> None:
    await pool_of(Hands(Hand(holds={GRADER: True}, left=THREADS)))._grade(GRADER, b"r", 3.0)
    assert caplog.messages == [
        "grader 'name' leaves threads behind, so that its worker is replaced after each such rollout: start what is "
        "to stay in warm_up()"
    ]


# ---- graders that cannot be loaded


@pytest.mark.parametrize("error", [VALUE, WorkerTimeout("not loaded")])
async def test_a_grader_that_cannot_be_loaded_is_refused_at_once(error: Exception) -> None:
    pool = pool_of(crew := Hands(one := Hand(loading=error)))
    with pytest.raises(type(error)) as caught:
        await pool._grade(GRADER, b"r", 3.0)
    assert caught.value.args == error.args
    with pytest.raises(type(error)):
        await pool._grade(GRADER, b"r", 3.0)
    assert (one.did, crew.back, crew.asked) == ([("load", "name")], [one], [False])


def lost() -> Hand:
    return Hand(loading=WorkerLost("gone"))


async def test_two_new_workers_lost_while_loading_are_no_bad_luck() -> None:
    idle, first, later, second, third = (lost() for _ in range(5))
    pool = pool_of(crew := Hands(idle, None, later, new=(first, second, third)))
    with pytest.raises(WorkerLost, match="gone"):
        await pool._grade(GRADER, b"r", 3.0)
    assert crew.back == [idle, first, later, second]
    assert crew.new == [third]


async def test_one_new_worker_lost_while_loading_is_bad_luck() -> None:
    pool = pool_of(crew := Hands(lost(), lost(), None, new=(lost(), Hand(0.75))))
    assert await pool._grade(GRADER, b"r", 3.0) == 0.75
    assert len(crew.back) == 4


async def test_a_load_that_is_cancelled_gives_its_worker_back() -> None:
    pool = pool_of(crew := Hands(one := Hand(loading=asyncio.CancelledError())))
    with pytest.raises(asyncio.CancelledError):
        await pool._worker_with(crew, GRADER)  # type: ignore[arg-type]
    assert (crew.back, pool._refusals) == ([one], {})


async def test_a_grader_that_is_refused_waits_for_a_worker_that_holds_it() -> None:
    pool = pool_of(crew := Hands(None, None, Hand(0.125, holds={GRADER: True}), new=(Hand(),)))
    pool._refuse(GRADER, VALUE)
    crew.holding = True
    assert await pool._grade(GRADER, b"r", 3.0) == 0.125
    assert (crew.asked, crew.changes, pool.started) == ([True] * 3, 2, 0)


async def test_where_there_is_no_room_for_a_worker_another_is_waited_for() -> None:
    pool = pool_of(crew := Hands(None, Hand(holds={GRADER: True})))
    crew.size = 1
    assert await pool._grade(GRADER, b"r", 3.0) == 0.5
    assert crew.changes == 1


# ---- the pool itself


async def test_warming_up_loads_each_grader_in_each_worker() -> None:
    ones = Hand(), Hand(holds={OTHER: True})
    pool = pool_of(crew := Hands(new=ones), workers=2)
    await pool._warm_up([GRADER, OTHER])
    assert [one.did for one in ones] == [[("load", "name"), ("load", "other")], [("load", "name")]]
    assert crew.back == list(ones)
    broken = Hand(loading=VALUE, holds={GRADER: True})
    pool = pool_of(crew := Hands(broken))
    with pytest.raises(GraderRaised) as caught:
        await pool._warm_up([GRADER, OTHER])
    assert (caught.value.args, crew.back) == (VALUE.args, [broken])


async def test_each_loop_has_a_crew_of_its_own() -> None:
    pool = ProcessPool(3)
    crew = pool._current_crew()
    assert pool._current_crew() is crew
    assert crew.limiter.total_tokens == 3
    elsewhere = await asyncio.to_thread(lambda: asyncio.run(crew_of(pool)))
    assert elsewhere is not crew
    await crew.close()


async def crew_of(pool: ProcessPool) -> Any:
    return pool._current_crew()


async def test_a_grader_is_sent_by_its_name_and_with_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    async def here(function: Any, *args: Any) -> str:
        given.append((function, *args))
        return "done"

    monkeypatch.setattr(pool_module, "in_background", here)
    pool, rollout = ProcessPool(1), Rollout(response="x")
    assert await pool.grade(GRADER, rollout, timeout_s=3.0) == "done"
    assert given.pop() == (pool._grade, GRADER, pickle.dumps(rollout), 3.0)
    for grader, name in ((range(3), ""), (Rollout, "")):
        await pool.grade(grader, rollout, timeout_s=1.5)
        sent = given.pop()[1]
        assert (sent.name, sent.key) == (name, PickledGrader(name, grader).key)
    await pool.warm_up([GRADER])
    assert given == [(pool._warm_up, [GRADER])]


def test_a_pool_is_sent_as_what_it_was_made_with() -> None:
    again = pickle.loads(pickle.dumps(ProcessPool(3, memory_mb=77)))
    assert (type(again), again.workers, again.memory_mb, again.started) == (ProcessPool, 3, 77, 0)
