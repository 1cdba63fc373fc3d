"""How many calls are in flight at once, where the user does not say."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from judgekit import GradingRunner, Rollout, grader
from judgekit.errors import ConfigError, JudgeRejected, JudgeTimeout, JudgeUnavailable
from judgekit.graders import JudgeGrader, Panel
from judgekit.judges import JudgeReply, JudgeRequest, JudgeRoutes, LayerOptions, Routed, Turn, stacked
from judgekit.judges.base import Piece
from judgekit.judges.engines.engine_load import EngineLoad
from judgekit.judges.layers import places as module
from judgekit.judges.layers.places import Places
from judgekit.judges.layers.pressure import Call
from judgekit.testing import ScriptedJudge

REQUEST = JudgeRequest((Turn("user", (Piece("2+2?"),)),))


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))


class Endpoint:
    """Works on *capacity* calls at once, a second each; others wait in its queue."""

    def __init__(self, clock: Clock, capacity: int) -> None:
        self.clock = clock
        self.capacity = capacity
        self.others = 0
        """Calls of other clients in flight."""

    def rate(self, flying: int) -> float:
        """Answers a second."""
        return min(flying, self.capacity)

    async def serve(self, places: Places, answers: int) -> list[int]:
        """Give so many answers to callers who never stop coming; returns how many calls were in flight at each."""
        flying: deque[Call] = deque()
        seen = []
        for _ in range(answers):
            while len(flying) < places.total:
                flying.append(call := Call(REQUEST))
                await asyncio.wait_for(places.enter(call), 10)
                call.sent = self.clock.now
            seen.append(len(flying))
            share = len(flying) / (len(flying) + self.others)
            self.clock.now += 1 / (self.rate(len(flying) + self.others) * share)
            call = flying.popleft()
            call.outcome = JudgeReply("1")
            places.leave(call)
            while len(flying) > places.total:  # cut meanwhile
                call = flying.popleft()
                call.outcome = JudgeReply("1")
                places.leave(call)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        for call in flying:
            call.outcome = JudgeReply("1")
            places.leave(call)
        return seen


class Told(Endpoint):
    @property
    def sequences(self) -> int:
        return self.capacity


class Metered(Endpoint):
    """An endpoint whose server tells how many requests run and wait."""

    places: Places

    async def load(self) -> EngineLoad:
        flying = self.places.taken + self.others
        return EngineLoad(min(flying, self.capacity), max(flying - self.capacity, 0))


async def test_an_engine_gets_twice_what_it_says_that_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Told(Clock(monkeypatch), 48)
    seen = await engine.serve(Places("auto", engine), 500)
    assert max(seen) == 96
    assert set(seen[300:]) == {96}


@pytest.mark.parametrize(("answers", "most"), [(400.0, 100), (600.0, 150), (2000.0, 192)])
async def test_an_engine_that_answers_all_within_a_moment_gets_more(
    answers: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next ones are on their way for longer than it takes."""

    class Quick(Told):
        def rate(self, flying: int) -> float:
            return answers * min(flying, self.capacity) / self.capacity

    engine = Quick(Clock(monkeypatch), 48)
    seen = await engine.serve(Places("auto", engine), 5000)
    assert most - 2 <= max(seen) <= most + 2
    assert set(seen[:16]) == {16}


async def test_what_an_engine_says_is_heard_once_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loads(Endpoint):
        sequences: int | None = None

    engine = Loads(Clock(monkeypatch), 1)
    places = Places("auto", engine)
    await engine.serve(places, 100)
    assert places.size < 64
    engine.sequences = engine.capacity = 200
    await engine.serve(places, 3000)
    assert places.size == 400
    engine.sequences = 50  # replicas are away
    await passed(places)
    assert places.size == 100


@pytest.mark.parametrize(("rate", "most"), [(2.0, 16), (20.0, 100), (200.0, 400)])
async def test_a_slow_engine_gets_no_more_than_it_answers_in_time(
    rate: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs 200 at once, and gives as many answers a second with few: more would only wait, on their evaluations' time."""

    class Steady(Told):
        def rate(self, flying: int) -> float:
            return rate

    engine = Steady(Clock(monkeypatch), 200)
    seen = await engine.serve(Places("auto", engine), 4000)
    assert most / 2 <= sorted(seen)[2000] <= most


async def test_an_engine_that_takes_long_and_many_gets_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer takes 40 s, of one or of 200 at once: a judge that thinks."""

    class Thinks(Told):
        def rate(self, flying: int) -> float:
            return min(flying, self.capacity) / 40

    engine = Thinks(Clock(monkeypatch), 200)
    seen = await engine.serve(Places("auto", engine), 4000)
    assert min(seen[2000:]) >= 200


async def test_an_evaluation_that_ran_out_of_time_halves_what_is_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    engine = Told(clock, 100)
    places = Places("auto", engine)
    await engine.serve(places, 2000)
    assert places.size == 200
    call = Call(REQUEST)
    for waited, size in ((1.0, 200), (30.0, 0.5)):
        await places.enter(call)
        call.sent = clock.now
        clock.now += waited
        call.outcome = asyncio.CancelledError()
        places.leave(call)
        assert places.size == max(size, 1)


@pytest.mark.parametrize("capacity", [4, 16, 48, 128])
async def test_an_endpoint_that_tells_nothing_is_found_out(
    capacity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = Endpoint(Clock(monkeypatch), capacity)
    seen = await endpoint.serve(Places("auto", endpoint), 8000)
    # it starts with few; at last nothing is idle, and little waits but in the rounds that try more
    assert seen[0] == 16
    last = sorted(seen[4000:])
    assert last[0] >= min(capacity, 16)
    assert last[len(last) // 2] <= max(2 * capacity, 16)
    assert last[-1] <= max(4 * capacity, 32)


@pytest.mark.parametrize("capacity", [4, 48, 300])
async def test_a_server_that_tells_its_queue_has_one(capacity: int, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Metered(Clock(monkeypatch), capacity)
    server.places = Places("auto", server)
    seen = await server.serve(server.places, 8000)
    assert max(seen) <= max(2 * capacity + 4, 16)  # one answer may travel while it tells
    assert min(seen[4000:]) >= 1.9 * capacity
    assert server.places.starved is False


async def test_clients_of_one_engine_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many calls wait as run, over all of them; not twice as many for each."""

    class Both(Metered, Told):
        pass

    engine = Both(Clock(monkeypatch), 64)
    engine.places = Places("auto", engine)
    engine.others = 7 * 128
    seen = await engine.serve(engine.places, 4000)
    assert max(seen[2000:]) < 64
    engine.others = 0
    seen = await engine.serve(engine.places, 4000)
    assert min(seen[2000:]) == 128


async def test_a_server_s_other_clients_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Metered(Clock(monkeypatch), 64)
    server.places = Places("auto", server)
    server.others = 256
    seen = await server.serve(server.places, 2000)
    assert max(seen) == 16


async def test_an_engine_is_seldom_looked_at_where_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of metrics costs a server more than some verdicts do."""
    looks: list[float] = []

    class Both(Metered, Told):
        def rate(self, flying: int) -> float:
            return 1000.0 * min(flying, self.capacity) / self.capacity

        async def load(self) -> EngineLoad:
            looks.append(self.clock.now)
            return await super().load()

    engine = Both(Clock(monkeypatch), 48)
    engine.places = Places("auto", engine)
    seen = await engine.serve(engine.places, 20_000)  # 20 seconds
    assert set(seen[5000:]) == {192}
    assert sum(look > 1005.0 for look in looks) <= 2 * 15
    looks.clear()
    engine.others = 8 * 192
    seen = await engine.serve(engine.places, 20_000)
    assert max(seen[10_000:]) < 64


@pytest.mark.parametrize("limit", [3, 700])
async def test_a_number_is_kept(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Both(Metered, Told):
        pass

    engine = Both(Clock(monkeypatch), 48)
    engine.places = Places(limit, engine)
    assert set(await engine.serve(engine.places, 3000)) == {limit}
    assert engine.places.starved is (limit < 48)


def refused() -> JudgeUnavailable:
    error = JudgeUnavailable("429")
    error.refused = True
    return error


async def passed(places: Places, outcome: Any = None, calls: int = 1) -> None:
    """Send calls together, and let them end alike."""
    sent = [Call(REQUEST) for _ in range(calls)]
    for call in sent:
        await places.enter(call)
        call.sent = module.time.monotonic()
    for call in sent:
        call.outcome = JudgeReply("1") if outcome is None else outcome
        places.leave(call)


async def test_a_refused_wave_halves_what_is_in_flight_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    endpoint = Endpoint(clock, 1000)
    places = Places("auto", endpoint)
    await endpoint.serve(places, 2000)
    assert places.size > 100
    before = places.total
    await passed(places, refused(), before)
    assert places.size == before / 2
    clock.now += 1
    await endpoint.serve(places, int(before / 2 + 2))  # a round adds one
    assert before / 2 + 1 <= places.size < before / 2 + 3
    clock.now += 61
    await endpoint.serve(places, 2000)  # what was refused a minute ago is tried again
    assert places.size >= before


async def test_failures_that_say_nothing_of_the_load_cut_nothing() -> None:
    places = Places()
    lost = JudgeUnavailable("gone")
    lost.lost = True
    for error in (lost, JudgeRejected("no")):
        await passed(places, error)
    assert places.size == 16
    await passed(places, JudgeTimeout("late"))
    assert places.size < 16


async def test_a_number_is_cut_by_refusals_alone_and_grows_back() -> None:
    places = Places(64)
    await passed(places, JudgeTimeout("late"))
    assert places.size == 64
    await passed(places, refused(), 64)
    assert places.size == 32
    for _ in range(40):
        await passed(places)
    assert places.size == 64


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None, "automatic", math.inf])
def test_other_limits_are_refused(limit: Any) -> None:
    with pytest.raises(ConfigError, match="max_concurrency is auto or a whole number from 1"):
        Places(limit)
    with pytest.raises(ConfigError, match="max_concurrency is auto or a whole number from 1"):
        GradingRunner([always], max_concurrency=limit)


# ---- the runner follows


@grader
def always(rollout: Rollout) -> float:
    return 1.0


class Peak(ScriptedJudge):
    """Notes the most calls that it had at once; answers once that has not grown for a while."""

    def __init__(self, sequences: int | None) -> None:
        super().__init__("1")
        if sequences is not None:
            self.sequences = sequences
        self.now = self.peak = 0

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        self.now += 1
        self.peak = max(self.peak, self.now)
        before = -1
        while before != self.peak:
            before = self.peak
            await asyncio.sleep(0.05)
        self.now -= 1
        return await super().complete(request)


class Runs(ScriptedJudge):
    """Runs *sequences* requests at once, and answers one once as many as *fill* have come, or all that are left."""

    def __init__(self, sequences: int) -> None:
        super().__init__("1")
        self.sequences = sequences
        self.fill = self.left = self.flying = 0

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        self.flying += 1
        await asyncio.sleep(0.005)
        while self.flying < min(self.fill, self.left):
            await asyncio.sleep(0.001)
        self.flying -= 1
        self.left -= 1
        return await super().complete(request)


def rollouts(count: int) -> list[Rollout]:
    return [Rollout(prompt="2+2?", ground_truth="4", response=f"{i}", group=i) for i in range(count)]


def judged(sequences: int | None, **options: Any) -> tuple[Peak, Any]:
    peak = Peak(sequences)
    return peak, stacked(peak, LayerOptions(**options))


@pytest.mark.parametrize(
    ("sequences", "layer", "runner", "peak"),
    [(40, {}, {}, 160), (None, {"max_concurrency": 50}, {}, 50), (40, {}, {"max_concurrency": 7}, 7), (3, {}, {}, 12), (40, {"max_concurrency": 5}, {"max_concurrency": 9}, 5)],
)  # fmt: skip
@pytest.mark.parametrize("shared", [False, True])
async def test_a_run_has_as_many_evaluations_under_way_as_the_judge_has_places(
    sequences: int | None, layer: dict[str, Any], runner: dict[str, Any], peak: int, shared: bool
) -> None:
    seen, judge = judged(sequences, **layer)
    grading = GradingRunner({"judge": JudgeGrader(judge)}, timeout_s=60, **runner)
    for _ in range(5):
        results = await grading.with_settings(shared=shared).run(rollouts(600))
        assert [r.reward for r in results] == [1.0] * 600
        if seen.peak >= peak:  # on a busy machine calls may end before others begin
            break
    assert seen.peak == peak


async def test_judges_do_not_wait_for_each_other_nor_for_other_graders() -> None:
    started: dict[str, int] = {}
    go = asyncio.Event()

    @grader
    async def waits(rollout: Rollout) -> float:
        started["waits"] = started.get("waits", 0) + 1
        await go.wait()
        return 1.0

    one, two, panel = judged(20), judged(30), (judged(4), judged(5))
    graders: dict[str, Any] = {
        "waits": waits,
        "one": JudgeGrader(one[1]),
        "again": JudgeGrader(one[1], name="again"),
        "routed": JudgeGrader(JudgeRoutes({"x": one[1]}, default=two[1])),
        "panel": Panel([judge for _, judge in panel]),
    }
    runner = GradingRunner(graders)
    running = asyncio.create_task(runner.run(rollouts(600)))
    while min(one[0].peak, two[0].peak, started.get("waits", 0), panel[0][0].peak, panel[1][0].peak) == 0:
        await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    assert started == {"waits": 32}
    go.set()
    await asyncio.wait_for(running, 120)
    judges = [one[0], two[0], *(peak for peak, _ in panel)]
    runs = [20, 30, 4, 5]
    for _ in range(20):  # where cores are busy, the calls grow slowly
        if all(judge.peak >= 2 * of for judge, of in zip(judges, runs, strict=True)):
            break
        await asyncio.wait_for(runner.run(rollouts(600)), 120)
    for judge, of in zip(judges, runs, strict=True):
        assert 2 * of <= judge.peak <= 4 * of


@pytest.mark.parametrize(
    ("layer", "runner", "starved"),
    [({}, {}, False), ({}, {"max_concurrency": 8}, True), ({"max_concurrency": 8}, {}, True), ({"max_concurrency": 8}, {"max_concurrency": 64}, True)],
)  # fmt: skip
async def test_an_engine_that_is_kept_short_of_requests_is_told(
    layer: dict[str, Any], runner: dict[str, Any], starved: bool
) -> None:
    engine = Runs(24)
    judge = stacked(engine, LayerOptions(**layer))
    grading = GradingRunner({"judge": JudgeGrader(judge)}, **runner)
    while not starved and judge.places < 48:  # until it is known what the engine takes
        await grading.run(rollouts(200))
    engine.fill, engine.left = (8 if starved else 48), 200
    grading.metrics.summary(reset=True)
    await grading.run(rollouts(200))
    share = grading.metrics.summary()["judgekit/judge/starved"]
    assert share > 0.5 if starved else share == 0


async def test_an_engine_that_does_not_tell_is_not_called_starved() -> None:
    _, judge = judged(None)
    grading = GradingRunner({"judge": JudgeGrader(judge), "always": always})
    await grading.run(rollouts(20))
    assert not any("starved" in name for name in grading.metrics.summary())


# ---- engines together


def replicas(*sequences: int | None) -> Routed:
    return Routed([Peak(count) for count in sequences])


def test_replicas_run_what_all_of_them_run() -> None:
    assert replicas(8, 24).sequences == 32
    assert replicas(8, None).sequences is None


def test_a_replica_that_is_away_runs_nothing() -> None:
    routed = replicas(8, 24)
    routed._leave_out(routed.replicas[1])
    assert routed.sequences == 8


async def test_replicas_loads_add_up() -> None:
    routed = replicas(None, None)
    assert await routed.load() is None
    loads: list[Callable[[], Any]] = []
    for replica, load in zip(routed.replicas, (EngineLoad(3, 1), EngineLoad(4, 2)), strict=True):
        replica.judge.load = lambda load=load: asyncio.sleep(0, load)
        loads.append(replica.judge.load)
    assert await routed.load() == EngineLoad(7, 3)


def test_routes_without_a_judge_are_refused() -> None:
    with pytest.raises(ConfigError, match="routes: give at least one pattern with its judge"):
        JudgeRoutes({})
