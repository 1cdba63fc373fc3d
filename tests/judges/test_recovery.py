"""Engines that go down and come back: who waits for them, for how long, and who does not."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from judgekit import (
    ConfigError,
    Failed,
    Graded,
    GradingRunner,
    JudgeRejected,
    JudgeTimeout,
    JudgeUnavailable,
    Retry,
    Rollout,
    Usage,
)
from judgekit.errors import JudgeLoading
from judgekit.graders import JudgeGrader
from judgekit.judges import (
    JudgeReply,
    JudgeRequest,
    LayerOptions,
    Piece,
    RayJudge,
    Turn,
    health,
    stacked,
    stacked_reward_model,
)
from judgekit.judges.engines.replicas import Routed
from judgekit.judges.health import HangGuard, is_ready
from judgekit.judges.layers import recovery
from judgekit.judges.layers.retrying import Retrying
from judgekit.judges.layers.routes import JudgeRoutes, start_judges
from judgekit.judges.layers.stack import BreakerOptions, CacheOptions
from judgekit.testing import ScriptedJudge

FAST = Retry(wait_initial_s=0)


def ask(text: str = "a", shared: str = "s") -> JudgeRequest:
    turns = (Turn("system", (Piece(shared),)), Turn("user", (Piece(text, trusted=False),)))
    return JudgeRequest(turns=turns, choices=("0", "1"))


class Engine:
    """Answers while it is up; tells whether it is."""

    def __init__(self, *, up: bool = True) -> None:
        self.up = up
        self.calls = 0
        self.probes = self.missed = 0
        self.probing = self.most_probing = 0
        self.starts = 0

    async def start(self) -> None:
        self.starts += 1
        if not self.up:
            raise JudgeUnavailable("down")

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        self.calls += 1
        await asyncio.sleep(0)
        if not self.up:
            raise JudgeUnavailable("down")
        return JudgeReply("1", choice_probs={"0": 0.0, "1": 1.0}, label_mass=1.0)

    async def ready(self) -> bool:
        self.probes += 1
        self.probing += 1
        self.most_probing = max(self.probing, self.most_probing)
        await asyncio.sleep(0)
        self.probing -= 1
        self.missed += not self.up
        return self.up

    async def identity(self) -> str:
        return "weights"


async def back_after(engine: Engine, seconds: float, calls: int = 0) -> None:
    """Be up again after some time, but not before anybody has noticed that it was down, and it has had so many *calls*."""
    missed = engine.missed
    await asyncio.sleep(seconds)
    while engine.missed == missed or engine.calls < calls:
        await asyncio.sleep(0.01)
    engine.up = True


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_CONFIRM_S": 0.01, "_PAUSE_S": 0.01, "_MAX_PAUSE_S": 0.02}.items():
        monkeypatch.setattr(recovery, name, value)


async def test_a_restart_costs_no_verdict_with_the_default_settings() -> None:
    """B2: 512 calls in flight, more than any retry budget allows; one task asks whether the engine is back."""
    engine = Engine()
    judge = stacked(engine)
    await judge.complete(ask())
    engine.up = False
    calls = [asyncio.create_task(judge.complete(ask(str(i)))) for i in range(512)]
    await back_after(engine, 0.3, calls=1 + 512)
    assert [(await call).text for call in calls] == ["1"] * 512
    assert engine.most_probing == 1
    assert engine.calls == 1 + 2 * 512


async def test_a_run_that_begins_while_a_judge_is_restarted_waits_for_it() -> None:
    """Its start and its look at the labels wait as its requests do; a judge that never answered is not waited for."""

    class Labelled(Engine):
        async def check_request(self, request: JudgeRequest) -> None:
            if not self.up:
                raise JudgeUnavailable("down")

    engine = Labelled()
    judge = stacked(engine)
    await judge.complete(ask())
    for call in (judge.start, lambda: judge.check_request(ask())):
        engine.up = False
        waiting = asyncio.create_task(call())
        await back_after(engine, 0.05)
        await waiting
    engine.up = False
    run = asyncio.create_task(
        GradingRunner([JudgeGrader(judge)]).run([Rollout(prompt="p", ground_truth="4", response="4")])
    )
    await back_after(engine, 0.05)
    (result,) = await run
    assert isinstance(result.grades["judge"], Graded)
    with pytest.raises(JudgeUnavailable):
        await stacked(Labelled(up=False)).check_request(ask())


async def test_a_cache_that_needs_the_identity_waits_for_a_restart() -> None:
    """The key of a kept reply has the weights' identity, which is asked before the request."""

    class Told(Engine):
        async def identity(self) -> str:
            if not self.up:
                raise JudgeUnavailable("down")
            return "weights"

    engine = Told()
    judge = stacked(engine, LayerOptions(cache=CacheOptions()))
    await judge.complete(ask())
    engine.up = False
    calls = [asyncio.create_task(judge.complete(ask(str(i)))) for i in range(32)]
    await back_after(engine, 0.05)
    assert [(await call).text for call in calls] == ["1"] * 32
    engine.up = False
    with pytest.raises(JudgeUnavailable):
        await stacked(engine, LayerOptions(cache=CacheOptions(), restart_wait_s=0)).complete(ask("new"))


async def test_what_an_engine_is_asked_beside_requests_is_tried_again_as_they_are() -> None:
    """Such as the identity, which a cache's keys need: one 503 failed all calls that waited for it."""

    class Busy(Engine):
        left = 2

        async def identity(self) -> str:
            if self.left:
                self.left -= 1
                raise JudgeUnavailable("busy")
            return "weights"

        async def start(self) -> None:
            await self.identity()

        async def check_request(self, request: JudgeRequest) -> None:
            await self.identity()

        reward = start

    engine = Busy()
    judge = stacked(engine, LayerOptions(retry=FAST, cache=CacheOptions()))
    replies = await asyncio.gather(*(judge.complete(ask(str(i))) for i in range(8)))
    assert [reply.text for reply in replies] == ["1"] * 8
    model = stacked_reward_model(engine, LayerOptions(retry=FAST))  # type: ignore[arg-type]
    for call in (judge.start, partial(judge.check_request, ask()), model.start):
        engine.left = 2
        await call()
        engine.left = 3
        with pytest.raises(JudgeUnavailable) as caught:
            await call()
        assert caught.value.exhausted
    engine.left = 1
    with pytest.raises(JudgeUnavailable):
        await stacked(engine, LayerOptions(retry=None)).start()


async def test_a_run_that_begins_with_a_reward_model_that_is_restarted_waits_for_it() -> None:
    class Model(Engine):
        async def reward(self, turns: Any, /) -> tuple[float, Usage]:
            return 1.0, Usage()

    engine = Model()
    model = stacked_reward_model(engine)
    await model.reward(())
    engine.up = False
    waiting = asyncio.create_task(model.start())
    await back_after(engine, 0.05)
    await waiting


async def test_two_restarts_in_a_row_cost_no_verdict_either() -> None:
    engine = Engine()
    judge = stacked(engine)
    await judge.complete(ask())
    engine.up = False
    complete = engine.complete

    async def dies_again(request: JudgeRequest, /) -> JudgeReply:
        engine.complete = complete  # type: ignore[method-assign]
        engine.up = False
        nonlocal restart
        restart = asyncio.create_task(back_after(engine, 0.0))
        raise JudgeUnavailable("dies of its first request")

    restart: asyncio.Task[None] | None = None

    calls = [asyncio.create_task(judge.complete(ask(str(i)))) for i in range(64)]
    while not engine.missed:
        await asyncio.sleep(0.01)
    engine.complete = dies_again  # type: ignore[method-assign]
    engine.up = True
    assert [(await call).text for call in calls] == ["1"] * 64


async def test_the_time_of_a_restart_counts_against_no_evaluation() -> None:
    """Neither for the call that waits, nor for those that joined it."""
    engine = Engine()
    runner = GradingRunner({"judge": JudgeGrader(stacked(engine))}, timeout_s=0.2)
    twins = [Rollout(prompt="p", ground_truth="1", response=f"text {i // 2}") for i in range(8)]
    await runner.run(twins)
    engine.up = False
    running = asyncio.create_task(runner.run(twins))
    await back_after(engine, 1.0)
    assert [r.reward for r in await running] == [1.0] * 8


async def test_an_evaluation_that_hangs_after_a_restart_is_timed_out_all_the_same() -> None:
    class Hangs(Engine):
        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            if self.calls > 1:
                await asyncio.sleep(3600)
            return await super().complete(request)

    engine = Hangs()
    runner = GradingRunner({"judge": JudgeGrader(stacked(engine))}, timeout_s=0.2)
    rollout = Rollout(prompt="p", ground_truth="1", response="text")
    await runner.run([rollout])
    engine.up = False
    running = asyncio.create_task(runner.run([rollout]))
    await back_after(engine, 0.5)
    (result,) = await running
    grade = result.grades["judge"]
    assert isinstance(grade, Failed)
    assert grade.error == "GraderTimeout"


async def test_an_engine_that_never_answered_is_not_waited_for() -> None:
    """A wrong address, say; what is wrong is told at once."""
    engine = Engine(up=False)
    judge = stacked(engine, LayerOptions(retry=Retry(wait_initial_s=0)))
    with pytest.raises(JudgeUnavailable):
        await judge.complete(ask())
    assert (engine.calls, engine.probes) == (3, 0)


async def test_who_comes_while_an_engine_is_loaded_waits_for_it() -> None:
    class Loading(Engine):
        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            if not self.up:
                raise JudgeLoading("being loaded")
            return await super().complete(request)

    engine = Loading(up=False)
    call = asyncio.create_task(stacked(engine).complete(ask()))
    await back_after(engine, 0.05)
    assert (await call).text == "1"


async def test_an_engine_that_was_started_is_waited_for() -> None:
    engine = Engine()
    judge = stacked(engine)
    await judge.start()  # type: ignore[attr-defined]
    engine.up = False
    call = asyncio.create_task(judge.complete(ask()))
    await back_after(engine, 0.05)
    assert (await call).text == "1"


async def test_an_outage_is_waited_for_once_and_not_for_ever() -> None:
    engine = Engine()
    judge = stacked(engine, LayerOptions(retry=Retry(wait_initial_s=0, budget=100.0), restart_wait_s=0.2))
    await judge.complete(ask())
    engine.up = False
    with pytest.raises(JudgeUnavailable) as info:
        await judge.complete(ask())
    assert info.value.exhausted
    probes = engine.probes
    with pytest.raises(JudgeUnavailable):
        await judge.complete(ask())
    assert engine.probes == probes
    engine.up = True
    await judge.complete(ask())
    engine.up = False  # another outage
    call = asyncio.create_task(judge.complete(ask()))
    await back_after(engine, 0.05)
    assert (await call).text == "1"


async def test_the_budget_stops_what_is_no_restart() -> None:
    """A server that is there and fails: as before, at most a share of calls is tried again."""

    class Fails(Engine):
        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            self.calls += 1
            raise JudgeUnavailable("HTTP 500")

    engine = Fails()
    judge = stacked(engine, LayerOptions(retry=Retry(wait_initial_s=0)))
    await judge.start()  # type: ignore[attr-defined]
    results = await asyncio.gather(*(judge.complete(ask(str(i))) for i in range(100)), return_exceptions=True)
    assert all(isinstance(r, JudgeUnavailable) for r in results)
    assert engine.calls <= 100 + 20


async def test_who_says_when_to_come_again_is_not_asked_for_its_health() -> None:
    class Busy(Engine):
        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            self.calls += 1
            if self.calls == 2:
                raise JudgeUnavailable("HTTP 429", retry_after=0.01)
            return JudgeReply("1")

    engine = Busy()
    judge = stacked(engine, LayerOptions(retry=Retry(wait_initial_s=0)))
    await judge.complete(ask())
    await judge.complete(ask())
    assert (engine.calls, engine.probes) == (3, 0)


async def test_a_breaker_is_closed_when_the_engine_is_back() -> None:
    engine = Engine()
    judge = stacked(engine, LayerOptions(breaker=BreakerOptions(failures=2, open_s=3600)))
    await judge.complete(ask())
    engine.up = False
    calls = [asyncio.create_task(judge.complete(ask(str(i)))) for i in range(32)]
    await back_after(engine, 0.1)
    assert [(await call).text for call in calls] == ["1"] * 32


async def test_without_a_wait_or_without_retries_calls_fail() -> None:
    for options in (LayerOptions(restart_wait_s=0, retry=Retry(wait_initial_s=0)), LayerOptions(retry=None)):
        engine = Engine()
        judge = stacked(engine, options)
        await judge.complete(ask())
        engine.up = False
        with pytest.raises(JudgeUnavailable):
            await judge.complete(ask())
        assert engine.probes == 0


async def test_when_nobody_waits_nobody_asks() -> None:
    engine = Engine()
    judge = stacked(engine)
    await judge.complete(ask())
    engine.up = False
    calls = [asyncio.create_task(judge.complete(ask(str(i)))) for i in range(3)]
    while not engine.probes:
        await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    await asyncio.sleep(0.05)
    probes = engine.probes
    await asyncio.sleep(0.1)
    assert engine.probes == probes


async def test_who_comes_as_the_last_one_leaves_is_not_cancelled_with_it() -> None:
    engine = Engine()
    judge = Retrying(engine, engine=engine, restart_wait_s=60)
    await judge.complete(ask())
    engine.up = False
    assert judge.recovery is not None
    down = JudgeUnavailable("down")
    first = asyncio.create_task(judge.recovery.wait(0.0, down))
    while not engine.probes:
        await asyncio.sleep(0)
    first.cancel()
    second = asyncio.create_task(judge.recovery.wait(0.0, down))  # its turn is right after that of the first
    await back_after(engine, 0.05)
    assert await second


async def test_a_configuration_error_found_meanwhile_is_raised() -> None:
    class Broken(Engine):
        async def ready(self) -> bool:
            raise ConfigError("no such argument")

    engine = Broken()
    judge = stacked(engine)
    await judge.complete(ask())
    engine.up = False
    with pytest.raises(ConfigError, match="no such argument"):
        await judge.complete(ask())


async def test_loops_that_come_and_go_wait_each_for_itself() -> None:
    engine = Engine()
    judge = stacked(engine)
    await judge.complete(ask())
    engine.up = False
    calls = [asyncio.to_thread(asyncio.run, judge.complete(ask(str(i)))) for i in range(3)]
    both = asyncio.gather(*calls)
    await back_after(engine, 0.2)
    assert [reply.text for reply in await both] == ["1"] * 3


# ---- engines that hang


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_QUIET_S": 0.1, "_LOOK_S": 0.02, "_PATIENCE_S": 0.04}.items():
        monkeypatch.setattr(health, name, value)


class Hung(Engine):
    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        self.calls += 1
        while not self.up or "never" in request.turns[1].text:
            await asyncio.sleep(3600 if self.calls < 100 else 0.01)
        return JudgeReply("1")


@pytest.mark.usefixtures("_impatient")
async def test_calls_to_an_engine_that_hangs_are_cut_off_and_tried_again() -> None:
    engine = Hung()
    judge = stacked(engine)
    await judge.complete(ask())
    engine.up = False
    calls = [asyncio.create_task(judge.complete(ask(str(i)))) for i in range(8)]
    await back_after(engine, 0.5)
    assert [(await call).text for call in calls] == ["1"] * 8


@pytest.mark.usefixtures("_impatient")
async def test_an_engine_that_hangs_after_nobody_asked_for_long_is_found_out() -> None:
    engine = Hung()
    guard = HangGuard(engine)
    await guard.complete(engine, ask())
    await asyncio.sleep(0.1)  # it was looked for calls, and there were none
    engine.up = False
    with pytest.raises(JudgeUnavailable, match="hangs"):
        await guard.complete(engine, ask("never"))


@pytest.mark.usefixtures("_impatient")
async def test_an_engine_that_answers_others_does_not_hang_whatever_it_says() -> None:
    class Ill(Engine):
        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            await asyncio.sleep(1.0 if "long" in request.turns[1].text else 0.01)
            return JudgeReply("1")

        async def ready(self) -> bool:
            return False

    engine = Ill()
    guard = HangGuard(engine)
    long = asyncio.create_task(guard.complete(engine, ask("long")))
    while not long.done():
        await guard.complete(engine, ask())
    assert (await long).text == "1"


@pytest.mark.usefixtures("_impatient")
async def test_the_time_in_which_an_engine_hung_counts_against_no_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes most of it to find that out; what is left is too little for another try."""
    monkeypatch.setattr(health, "_QUIET_S", 1.2)

    class Slow(Hung):
        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            reply = await super().complete(request)
            await asyncio.sleep(2.2)
            return JudgeReply(reply.text, choice_probs={"0": 0.0, "1": 1.0}, label_mass=1.0)

    engine = Slow()
    runner = GradingRunner({"judge": JudgeGrader(stacked(engine))}, timeout_s=3.0)
    rollouts = [Rollout(prompt="p", ground_truth="1", response=f"text {i // 2}") for i in range(8)]
    await runner.run(rollouts)
    engine.up = False
    running = asyncio.create_task(runner.run(rollouts))
    await back_after(engine, 2.0)
    assert [r.reward for r in await running] == [1.0] * 8


@pytest.mark.usefixtures("_impatient")
async def test_a_busy_engine_does_not_hang() -> None:
    """It answers nothing for long, but its health checks."""
    engine = Hung()
    guard = HangGuard(engine)
    call = asyncio.create_task(guard.complete(engine, ask("never")))
    await asyncio.sleep(2.2)
    assert engine.probes > 3
    assert not call.done()
    call.cancel()
    await asyncio.wait([call])


class Claims(Hung):
    """Says that it is ready, whatever happens, like a server whose engine hangs; its progress tells."""

    def __init__(self, *, up: bool = True) -> None:
        super().__init__(up=up)
        self.done: int | None = 0
        self.busy = False
        self.hung = 0

    async def ready(self) -> bool:
        self.probes += 1
        self.missed += not self.up
        return True

    async def progress(self) -> object:
        if self.busy and self.done is not None:
            self.done += 1
        return self.done

    def hangs(self) -> None:
        self.hung += 1


@pytest.mark.usefixtures("_impatient")
async def test_layers_around_an_engine_that_has_answered_before_wait_for_it() -> None:
    """A server that is being restarted when another stack is put around its engine."""

    class Away(ScriptedJudge):
        has_answered = True
        up = False

        async def ready(self) -> bool:
            return self.up

        async def start(self) -> None:
            if not self.up:
                error = JudgeUnavailable("cannot be reached")
                error.lost = True
                raise error

    engine = Away({"0": 0.0, "1": 1.0})
    stack = stacked(engine)
    starting = asyncio.create_task(stack.start())
    await asyncio.sleep(0.05)
    assert not starting.done()
    engine.up = True
    await starting
    assert (await stack.complete(ask())).text == "1"


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("limits", [{"requests_per_minute": 100.0}, {"tokens_per_minute": 100.0}])
async def test_an_engine_whose_callers_wait_for_their_rate_does_not_hang(limits: dict[str, float]) -> None:
    """It is well and does nothing, as a vLLM server between two calls that have to wait longer than it takes to be given up."""

    class Idle(ScriptedJudge):
        hung = 0

        async def ready(self) -> bool:
            return True

        async def progress(self) -> object:
            return len(self.requests)

        def hangs(self) -> None:
            self.hung += 1

    usage = Usage(calls=1, prompt_tokens=1, completion_tokens=0)
    engine = Idle(JudgeReply("1", choice_probs={"0": 0.0, "1": 1.0}, label_mass=1.0, usage=usage))
    judge = stacked(engine, LayerOptions(**limits))  # type: ignore[arg-type]
    for text in ("a", "b"):  # 0.6 s apart
        assert (await judge.complete(ask(text))).text == "1"
    assert engine.hung == 0


@pytest.mark.usefixtures("_impatient")
async def test_an_engine_that_claims_to_be_well_and_does_nothing_hangs() -> None:
    engine = Claims(up=False)
    with pytest.raises(JudgeUnavailable, match="hangs"):
        await HangGuard(engine).complete(engine, ask())
    assert engine.hung == 1


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("error", [JudgeUnavailable("connection refused"), TimeoutError(), OSError()])
async def test_an_engine_that_cannot_say_what_it_does_and_does_nothing_hangs(error: Exception) -> None:
    class Silent(Claims):
        async def progress(self) -> object:
            raise error

    engine = Silent(up=False)
    with pytest.raises(JudgeUnavailable, match="hangs"):
        await HangGuard(engine).complete(engine, ask())
    assert engine.hung == 1


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("knows", [True, False])
async def test_an_engine_that_makes_progress_does_not_hang(knows: bool) -> None:
    engine = Claims(up=False)
    engine.busy = True
    if not knows:
        engine.done = None
    guard = HangGuard(engine)
    call = asyncio.create_task(guard.complete(engine, ask("never")))
    while engine.probes < 20:
        await asyncio.sleep(0.01)
    assert not call.done()
    call.cancel()
    await asyncio.wait([call])


@pytest.mark.usefixtures("_impatient")
async def test_the_clock_stops_with_the_first_missing_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that stands still for longer than an evaluation may take, and goes on: nothing is lost or asked twice."""
    monkeypatch.setattr(health, "_PATIENCE_S", 3600.0)
    engine = Claims()
    runner = GradingRunner({"judge": JudgeGrader(stacked(engine))}, timeout_s=1.0)
    rollouts = [Rollout(prompt="p", ground_truth="1", response=f"text {i // 2}") for i in range(8)]

    async def answers(request: JudgeRequest, /) -> JudgeReply:
        engine.calls += 1
        while not engine.up:
            await asyncio.sleep(0.01)
        return JudgeReply("1", choice_probs={"0": 0.0, "1": 1.0}, label_mass=1.0)

    engine.complete = answers  # type: ignore[method-assign]
    engine.up = False
    running = asyncio.create_task(runner.run(rollouts))
    await back_after(engine, 2.5)
    assert [r.reward for r in await running] == [1.0] * 8
    assert engine.calls == 4


@pytest.mark.usefixtures("_impatient")
async def test_a_timeout_of_the_engines_own_is_passed_on() -> None:
    class Slow(Engine):
        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        await HangGuard(engine := Slow()).complete(engine, ask())


async def test_an_engine_that_does_not_say_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Engine):
        async def ready(self) -> bool:
            await asyncio.sleep(3600)
            return True

    class Gone(Engine):
        async def ready(self) -> bool:
            raise JudgeRejected("no")

    monkeypatch.setattr(health, "READY_S", 0.01)
    assert not await is_ready(Silent())
    assert not await is_ready(Gone())
    assert await is_ready(object())


# ---- replicas


async def test_a_replica_that_times_out_is_left_out() -> None:
    """B5."""

    class Late(Engine):
        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            self.calls += 1
            raise JudgeTimeout("no answer")

    late, well = Late(up=False), Engine()
    routed = Routed([late, well], probe_s=3600)
    for i in range(40):
        assert (await routed.complete(ask(shared=f"group {i}"))).text == "1"
    assert late.calls == 1


@pytest.mark.usefixtures("_impatient")
async def test_the_calls_of_a_replica_that_hangs_go_to_the_others() -> None:
    hung, well = Hung(up=False), Engine()
    routed = Routed([hung, well])
    replies = await asyncio.gather(*(routed.complete(ask(shared=f"group {i}")) for i in range(16)))
    assert [reply.text for reply in replies] == ["1"] * 16
    assert hung.calls


@pytest.mark.usefixtures("_impatient")
async def test_a_replica_that_hangs_is_told_by_whoever_finds_it_out() -> None:
    """The layers' guard looks as often as the replica's own: where it is first, it cuts off the call that the other watches."""

    class Silent(Routed):
        async def ready(self) -> bool:
            return False

    engine = Claims(up=False)
    routed = Silent([engine])
    routed.replicas[0].guard = HangGuard(object())  # is never first
    with pytest.raises(JudgeUnavailable, match="hangs"):
        await stacked(routed, LayerOptions(retry=None)).complete(ask("never"))
    assert engine.hung == 1
    named = RayJudge("told")
    named.hangs()  # nobody has asked it yet
    named._routed = routed
    named.hangs()
    assert engine.hung == 2


async def test_a_replica_gets_requests_again_only_when_it_is_ready() -> None:
    down, well = Engine(up=False), Engine()
    routed = Routed([down, well], probe_s=0.01)
    for i in range(60):
        await routed.complete(ask(shared=f"group {i}"))
        await asyncio.sleep(0.002)
    assert down.calls == 1
    assert down.probes > 1
    down.up = True
    while routed.replicas[0].dead_until:
        await routed.complete(ask())
        await asyncio.sleep(0.002)
    for i in range(40):
        await routed.complete(ask(shared=f"group {i}"))
    assert down.calls > 10
    await routed.close()


async def test_replicas_are_ready_as_soon_as_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs does not even say that it is not ready."""

    class Silent(Engine):
        async def ready(self) -> bool:
            await asyncio.sleep(3600)
            return True

    monkeypatch.setattr(health, "READY_S", 0.5)
    assert await is_ready(Routed([Silent(), Engine(), Silent()]))
    assert not await is_ready(Routed([Silent(), Engine(up=False)]))


async def test_calls_wait_only_when_all_replicas_are_down() -> None:
    replicas = [Engine(), Engine()]
    judge = stacked(Routed(replicas))
    await judge.complete(ask())
    for replica in replicas:
        replica.up = False
    calls = [asyncio.create_task(judge.complete(ask(str(i), f"group {i}"))) for i in range(64)]
    await back_after(replicas[1], 0.1)
    assert [(await call).text for call in calls] == ["1"] * 64
    assert not replicas[0].up


async def test_replicas_start_side_by_side() -> None:
    """B12: each waits here for the others to begin."""
    begun = 0

    class Slow(Engine):
        async def start(self) -> None:
            nonlocal begun
            begun += 1
            async with asyncio.timeout(20):
                while begun % 3:
                    await asyncio.sleep(0.001)
            self.starts += 1

    replicas = [Slow() for _ in range(3)]
    await Routed(replicas).start()
    assert [r.starts for r in replicas] == [1, 1, 1]
    await start_judges(JudgeRoutes({"a": replicas[0], "b": replicas[1]}, default=replicas[2]))
    assert [r.starts for r in replicas] == [2, 2, 2]


async def test_a_replica_that_does_not_start_costs_nothing_where_another_does() -> None:
    """B1: the first of two servers is down when the client starts."""
    down, well = Engine(up=False), Engine()
    judge = stacked(Routed([down, well]), LayerOptions(cache=CacheOptions()))
    await judge.start()  # type: ignore[attr-defined]
    for i in range(20):
        assert (await judge.complete(ask(shared=f"group {i}"))).text == "1"
    assert down.calls == 0
    with pytest.raises(JudgeUnavailable):
        await Routed([Engine(up=False), Engine(up=False)]).start()


@pytest.mark.parametrize("error", [JudgeUnavailable("down"), JudgeTimeout("no answer")])
async def test_what_one_replica_cannot_check_another_does(error: Exception) -> None:
    class Silent(Engine):
        async def check_request(self, request: JudgeRequest) -> None:
            raise error

    class Checks(Engine):
        async def check_request(self, request: JudgeRequest) -> None:
            raise ConfigError("no such label")

    with pytest.raises(ConfigError, match="no such label"):
        await Routed([Silent(), Checks()]).check_request(ask())
    with pytest.raises(type(error)):
        await Routed([Silent()]).check_request(ask())


async def test_a_wrong_configuration_of_one_replica_is_raised() -> None:
    class Wrong(Engine):
        async def start(self) -> None:
            raise ConfigError("serves another model")

    with pytest.raises(ConfigError, match="another model"):
        await Routed([Engine(), Wrong()]).start()


def told(identity: str) -> Callable[[], Awaitable[str]]:
    async def answer() -> str:
        return identity

    return answer


async def test_identity_is_asked_once_and_of_a_replica_that_answers() -> None:
    """B1."""
    asked = 0

    class Counts(Engine):
        async def identity(self) -> str:
            nonlocal asked
            asked += 1
            await asyncio.sleep(0)
            if not self.up:
                raise JudgeUnavailable("down")
            return "weights"

    down, well = Counts(up=False), Counts()
    routed = Routed([down, well])
    assert await asyncio.gather(*(routed.identity() for _ in range(3))) == ["weights"] * 3
    assert asked == 2
    with pytest.raises(JudgeUnavailable):
        await Routed([down, down]).identity()
    replica = Engine()
    routed = Routed([replica])
    replica.identity = told("old weights")  # type: ignore[method-assign]
    assert await routed.identity() == "old weights"
    replica.identity = told("new weights")  # type: ignore[method-assign]
    assert await routed.identity() == "old weights"  # not asked for each request
    routed._identity_until = 0.0  # as after a few seconds: it may have been restarted while nobody asked
    assert await routed.identity() == "new weights"
    replica.identity = told("newer weights")  # type: ignore[method-assign]
    replica.up = False
    with pytest.raises(JudgeUnavailable):
        await routed.complete(ask())
    assert await routed.identity() == "newer weights"
    assert "Routed(" in await Routed([object()]).identity()  # type: ignore[list-item]


# ---- options


@pytest.mark.parametrize(
    "options",
    [{"max_concurrency": 0}, {"attempt_timeout_s": 0}, {"requests_per_minute": 0}, {"restart_wait_s": -1}],
)
def test_a_limit_of_0_is_an_error_and_not_the_absence_of_one(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        stacked(Engine(), LayerOptions(**options))  # type: ignore[arg-type]


def test_layers_are_pickled_without_what_belongs_to_a_process() -> None:
    routed = Routed([Engine(), Engine()], spill=3, probe_s=7)
    again = pickle.loads(pickle.dumps(Retrying(routed, engine=routed, restart_wait_s=60)))
    assert (again.inner.spill, again.inner.probe_s, len(again.inner.replicas)) == (3, 7, 2)
    assert again.recovery.engine is again.inner
    assert again.recovery.limit_s == 60


async def test_a_caches_file_is_made_on_first_use(tmp_path: Path) -> None:
    """`judgekit lint` builds judges, and leaves nothing behind."""
    path = tmp_path / "deep" / "c.sqlite"
    judge = stacked(Engine(), LayerOptions(cache=CacheOptions(path=str(path))))
    assert not path.parent.exists()
    await judge.start()  # type: ignore[attr-defined]
    assert path.exists()
    await judge.close()  # type: ignore[attr-defined]
    (tmp_path / "none").write_text("no folder")
    wrong = stacked(Engine(), LayerOptions(cache=CacheOptions(path=str(tmp_path / "none" / "c.sqlite"))))
    with pytest.raises(ConfigError, match="cache: cannot use"):
        await wrong.start()  # type: ignore[attr-defined]
    assert (await wrong.complete(ask())).text == "1"  # asked all the same, it only keeps nothing there


async def test_an_engine_that_cannot_say_is_tried_again_as_often_as_allowed() -> None:
    class Plain:
        calls = 0

        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            self.calls += 1
            raise JudgeUnavailable("down")

    plain = Plain()
    assert Retrying(plain, engine=plain, restart_wait_s=60).recovery is None
    with pytest.raises(JudgeUnavailable):
        await stacked(plain, LayerOptions(retry=Retry(attempts=3, wait_initial_s=0))).complete(ask())
    assert plain.calls == 3
