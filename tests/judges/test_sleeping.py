"""Judges that sleep between grading phases: what waits, what is refused, and that nothing is asked of a sleeping engine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from judgekit import ConfigError, Graded, GradingRunner, JudgeUnavailable, Rollout
from judgekit.errors import JudgeLoading
from judgekit.graders import JudgeGrader
from judgekit.judges import JudgeReply, JudgeRequest, OpenAIJudge, Routed, VLLMJudge, awake, stacked
from judgekit.judges.engines.openai import server_sleep
from judgekit.judges.engines.openai.server_sleep import ServerSleep
from judgekit.judges.engines.vllm.judge import engine_identity
from judgekit.judges.sleeping import sleep
from tests.judges.fake_server import FakeServer, nothing_at_all
from tests.judges.test_in_process import REQUEST, Engine, Loader, loader
from tests.judges.test_openai import ask

__all__ = ["loader"]


class Sleeper(Engine):
    """An engine that would answer wrongly in its sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = False
        self.wakes = 0
        self.fails = ""
        self.gate = asyncio.Event()
        self.gate.set()

    async def complete(self, request: JudgeRequest) -> JudgeReply:
        assert not self.asleep
        await self.gate.wait()
        assert not self.asleep
        return await super().complete(request)

    async def sleep(self) -> None:
        if self.fails == "sleep":
            raise RuntimeError("no")
        self.asleep = True

    async def wake_up(self) -> None:
        if self.fails == "wake":
            raise RuntimeError("out of memory")
        self.asleep = False
        self.wakes += 1


@pytest.fixture
def sleepers(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> list[Sleeper]:
    made: list[Sleeper] = []

    def load(*args: Any) -> Sleeper:
        loader.loads += 1
        made.append(Sleeper())
        return made[-1]

    monkeypatch.setattr("judgekit.judges.engines.vllm.engine.load_engine", load)
    return made


def here(**options: Any) -> VLLMJudge:
    judge = VLLMJudge(sleep=True, **options)
    judge.live_here()
    return judge


async def test_requests_in_the_engine_are_finished_first_and_new_ones_wait(sleepers: list[Sleeper]) -> None:
    judge = here()
    layered = stacked(judge)
    await judge.start()
    (engine,) = sleepers
    await layered.complete(REQUEST)
    engine.gate.clear()
    running = asyncio.create_task(judge.complete(REQUEST))
    await asyncio.sleep(0.02)
    falling = asyncio.create_task(judge.sleep())
    await asyncio.sleep(0.05)
    assert not engine.asleep
    with pytest.raises(JudgeLoading, match="sleeps: wake it up"):
        await judge.complete(REQUEST)
    engine.gate.set()
    assert (await running).text == "1"
    await falling
    assert engine.asleep
    assert not await judge.ready()
    waiting = asyncio.create_task(layered.complete(REQUEST))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    async with awake(layered):
        assert (await waiting).text == "1"
    assert engine.asleep
    assert engine.wakes == 1
    await judge.close()


async def test_a_phase_that_fails_or_is_cancelled_ends_asleep(sleepers: list[Sleeper]) -> None:
    judge = here()
    with pytest.raises(ZeroDivisionError):
        async with awake(judge):
            raise ZeroDivisionError
    assert sleepers[0].asleep

    async def phase() -> None:
        async with awake(judge):
            await asyncio.sleep(60)

    task = asyncio.create_task(phase())
    while sleepers[0].asleep:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    assert sleepers[0].asleep
    await judge.close()


@pytest.mark.parametrize("fails", ["sleep", "wake"])
async def test_an_engine_that_does_not_turn_is_ended_and_loaded_again(
    sleepers: list[Sleeper], fails: str
) -> None:
    judge = here()
    await judge.start()
    sleepers[0].fails = fails
    await judge.sleep()
    assert sleepers[0].dead == (fails == "sleep")
    with pytest.raises(JudgeLoading):
        await judge.complete(REQUEST)
    assert len(sleepers) == 1  # nothing is loaded while the trainer has the memory
    await judge.wake_up()
    assert len(sleepers) == 2
    assert (await judge.complete(REQUEST)).text == "1"
    await judge.close()


async def test_an_engine_that_dies_in_its_sleep_is_loaded_when_it_is_woken(sleepers: list[Sleeper]) -> None:
    judge = here()
    await judge.start()
    await judge.sleep()
    sleepers[0].dead = True
    assert not await judge.ready()
    assert len(sleepers) == 1
    async with awake(judge):
        assert len(sleepers) == 2
    await judge.close()


async def test_the_judges_of_a_runner(sleepers: list[Sleeper]) -> None:
    judge = stacked(here())
    async with FakeServer("provider") as server:
        other = stacked(OpenAIJudge(server.url))  # has GPUs of its own
        runner = GradingRunner([JudgeGrader(judge)], resources=(judge, other))
        await runner.start()
        await sleep(runner)
        async with awake(runner):
            (result,) = await runner.run([Rollout(prompt="p", response="r", ground_truth="1")])
        assert isinstance(result.grades["judge"], Graded)
        assert sleepers[0].asleep
        await runner.close()
        with pytest.raises(ConfigError, match="none of the judges can sleep"):
            await sleep(other)
    with pytest.raises(ConfigError, match="make it with sleep=True"):
        await VLLMJudge().sleep()


async def test_a_server_sleeps_and_wakes() -> None:
    async with FakeServer("vllm") as server, FakeServer("vllm") as second:
        judge = Routed([OpenAIJudge(one.url, sleep=True) for one in (server, second)])
        await judge.start()
        await judge.sleep()
        assert server.turns == second.turns == ["/sleep?level=1&mode=wait"]
        with pytest.raises(JudgeUnavailable, match="sleeps"):
            await judge.complete(REQUEST)
        async with awake(judge):
            assert (await judge.complete(REQUEST)).text == "1"
        assert server.turns == ["/sleep?level=1&mode=wait", "/wake_up", "/sleep?level=1&mode=wait"]
        await judge.close()
    async with FakeServer("provider") as server:
        judge = OpenAIJudge(server.url, sleep=True)
        with pytest.raises(
            ConfigError, match="start vLLM with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1"
        ):
            await judge.sleep()
        await judge.close()


async def test_a_server_that_was_perhaps_woken_is_put_to_sleep_again() -> None:
    """The trainer needs the memory, whether or not the answer to the call got through."""
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url, sleep=True)
        await judge.start()
        await judge.sleep()

        async def lost(request: web.Request) -> web.StreamResponse:
            await server._turn(request)
            return await nothing_at_all(request)

        server.once["/wake_up"] = [lost]
        with pytest.raises(JudgeUnavailable, match="cannot be reached"):
            async with awake(judge):
                raise AssertionError("it is not known to be awake")
        assert server.asleep
        async with awake(judge):
            assert (await judge.complete(REQUEST)).text == "1"
            server.once["/sleep"] = [nothing_at_all]
            with pytest.raises(JudgeUnavailable, match="cannot be reached"):
                await judge.sleep()
        assert server.asleep
        await judge.close()


async def test_nobody_is_told_that_a_server_sleeps_while_it_still_works() -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url, sleep=True)
        await judge.start()
        begun, go_on = server.hold()
        running = asyncio.create_task(judge.complete(ask("candidate")))
        await begun.wait()
        falling = [asyncio.create_task(judge.sleep()) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in falling)
        go_on.set()
        await asyncio.gather(*falling, running)
        assert server.asleep
        await judge.wake_up()
        begun.clear()
        go_on.clear()
        server.turns.clear()
        running = asyncio.create_task(judge.complete(ask("candidate")))
        await begun.wait()
        late = asyncio.create_task(judge.sleep())
        await asyncio.sleep(0.02)
        await judge.wake_up()
        go_on.set()
        await asyncio.gather(late, running)
        assert server.turns == ["/wake_up"]  # who woke it last is right
        assert (await judge.complete(ask("candidate"))).text == "1"
        await judge.close()


async def test_who_gives_up_waiting_wakes_no_server_that_another_lets_sleep() -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url, sleep=True)
        await judge.start()
        begun, go_on = server.hold()
        running = asyncio.create_task(judge.complete(ask("candidate")))
        await begun.wait()
        first, second, third = (asyncio.create_task(judge.sleep()) for _ in range(3))
        await asyncio.sleep(0.03)
        first.cancel()
        await asyncio.wait([first])
        go_on.set()
        await asyncio.gather(second, third, running)
        assert server.asleep
        await judge.close()


async def test_who_gives_up_while_a_server_is_put_to_sleep_does_not_take_it_for_awake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called, go_on = asyncio.Event(), asyncio.Event()

    class Server:
        async def call(self, path: str) -> None:
            called.set()
            await go_on.wait()

    sleeping = ServerSleep(Server(), able=True)  # type: ignore[arg-type]
    monkeypatch.setattr(server_sleep, "_DRAIN_S", 0.5)
    with sleeping:
        first = asyncio.create_task(sleeping.sleep())
        await asyncio.sleep(0)
        monkeypatch.setattr(server_sleep, "_DRAIN_S", 60)  # the second looks again after the first has called
        second = asyncio.create_task(sleeping.sleep())
        await asyncio.sleep(0)
    await called.wait()
    second.cancel()
    await asyncio.wait([second])
    go_on.set()
    await first
    assert sleeping.asleep


@pytest.mark.parametrize("gone", [0, 1])
async def test_a_server_that_is_gone_costs_the_others_no_phase(
    gone: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeServer("vllm") as first, FakeServer("vllm") as second:
        servers = [first, second]
        engines = [OpenAIJudge(one.url, sleep=True) for one in servers]
        judge = Routed(engines)
        await judge.start()
        await judge.sleep()
        for path in (
            "/wake_up",
            "/sleep",
            "/v1/completions",
            "/v1/chat/completions",
            "/v1/models",
            "/health",
        ):
            servers[gone].once[path] = [nothing_at_all] * 50
        async with awake(judge):
            for number in range(8):
                assert (await judge.complete(ask(f"candidate {number}"))).text == "1"
        assert servers[1 - gone].asleep
        assert f"{engines[gone]!r} was not woken, and the other replicas are" in caplog.text
        servers[1 - gone].once["/wake_up"] = [nothing_at_all] * 2
        with pytest.raises(JudgeUnavailable):
            await judge.wake_up()
        await judge.close()


async def test_a_server_that_sleeps_since_the_last_trainer_is_woken() -> None:
    for begin in (OpenAIJudge.start, OpenAIJudge.wake_up):
        async with FakeServer("vllm") as server:
            server.asleep = True
            judge = OpenAIJudge(server.url, sleep=True)
            await begin(judge)
            assert server.turns == ["/wake_up"]
            assert (await judge.complete(REQUEST)).text == "1"
            await judge.sleep()
            await judge.start()
            assert server.turns == ["/wake_up", "/sleep?level=1&mode=wait"]
            await judge.close()


async def test_a_server_that_sleeps_on_is_not_taken_for_awake() -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url, sleep=True)
        await judge.start()
        await judge.sleep()

        async def refuses(request: web.Request) -> web.Response:
            return web.Response()  # and does nothing

        server.once["/wake_up"] = [refuses]
        with pytest.raises(JudgeUnavailable, match="sleeps on"):
            await judge.wake_up()
        with pytest.raises(JudgeUnavailable, match="sleeps"):
            await judge.complete(REQUEST)
        await judge.wake_up()
        assert (await judge.complete(REQUEST)).text == "1"
        await judge.close()


async def test_a_sleeping_server_is_not_asked_what_it_can_do() -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url, sleep=True)
        await judge.start()
        judge._known_server.stale = True  # as after a lost connection
        await judge.sleep()
        server.bodies.clear()
        with pytest.raises(JudgeLoading, match="sleeps: wake it up"):
            await judge.identity()
        assert not server.bodies
        await judge.wake_up()
        assert "/models/judge" in await judge.identity()
        await judge.close()


def test_identities_have_what_changes_verdicts(tmp_path: Path) -> None:
    for name, rank in (("one", 8), ("two", 8)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text(json.dumps({"r": rank}))
        (tmp_path / name / "adapter_model.safetensors").write_bytes(name.encode())
    args = {"model": "some/model", "tensor_parallel_size": 1}
    seen = {
        engine_identity("some/model", args, {}),
        engine_identity("some/model", {**args, "quantization": "fp8"}, {}),
        engine_identity("some/model", {**args, "data_parallel_size": 2}, {}),
        engine_identity("some/model", args, {}, str(tmp_path / "one")),
        engine_identity("some/model", args, {}, str(tmp_path / "two")),
    }
    assert len(seen) == 5
    same = {**args, "enable_sleep_mode": True, "scheduling_policy": "priority"}
    assert engine_identity("some/model", same, {}) in seen


def test_lora_adapters_are_checked_when_the_judge_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no LoRA adapter at"):
        VLLMJudge(lora=tmp_path)
    (tmp_path / "adapter_config.json").write_text('{"r": 24}')
    assert VLLMJudge(lora=tmp_path)._args["max_lora_rank"] == 32
    assert "max_lora_rank" not in VLLMJudge(lora="some/adapter")._args
    (tmp_path / "adapter_config.json").write_text('{"r": 4096}')
    with pytest.raises(ConfigError, match="has the rank 4096, and vLLM takes up to 512"):
        VLLMJudge(lora=tmp_path)
