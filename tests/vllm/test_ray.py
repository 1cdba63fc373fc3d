"""RayJudge with the real vLLM engine in real actors: found by name, cancelled, killed, restarted, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from judgekit import ConfigError, JudgeUnavailable, Retry
from judgekit.execution.watchdog import descendants
from judgekit.judges import JudgeRequest, LayerOptions, RayJudge, VLLMJudge, health, stacked, start_ray_judge
from judgekit.judges.engines.ray import judge as ray_engine

from .processes import engine_below, send
from .test_engine import LABELS, ask, words

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    context = ray.init(
        "local",
        num_cpus=4,
        include_dashboard=False,
        namespace="elsewhere",
        logging_level="ERROR",
        log_to_driver=False,
    )
    yield context.address_info["address"]
    ray.shutdown()


@pytest.fixture(scope="module")
def judge(cluster: str, random_model: Path) -> Iterator[RayJudge]:
    """One replica with the random model; detached, as a job that others use."""
    made = start_ray_judge(
        str(random_model), name="random", lifetime="detached", options={"max_model_len": 2048}
    )
    asyncio.run(made.start())
    yield made
    assert asyncio.run(made.stop()) == 1


def scripted(name: str, **options: Any) -> RayJudge:
    """Light replicas that need no engine."""
    return start_ray_judge(
        name=name, factory="judgekit.testing:ScriptedJudge", cpus=0.1, options={"script": "1"}, **options
    )


async def test_it_reads_what_the_engine_in_process_reads(judge: RayJudge, engine: VLLMJudge) -> None:
    requests = [ask(words(20, i), choices=LABELS) for i in range(12)]
    local = [await engine.complete(r) for r in requests]
    remote = await asyncio.gather(*(RayJudge("random").complete(r) for r in requests))
    for a, b in zip(local, remote, strict=True):
        assert b.choice_probs == pytest.approx(a.choice_probs, rel=1e-3)
        assert b.model == a.model
    assert await judge.identity() == await engine.identity()


def test_it_is_found_by_name_from_a_process_without_vllm(judge: RayJudge, cluster: str) -> None:
    program = f"""
        import sys
        sys.modules["vllm"] = sys.modules["torch"] = sys.modules["transformers"] = None
        import asyncio, ray
        from judgekit.judges import JudgeRequest, Piece, RayJudge, Turn
        ray.init(address={cluster!r}, logging_level="ERROR", log_to_driver=False)
        request = JudgeRequest(turns=(Turn("user", (Piece("x"),)),), choices=("0", "1"))
        reply = asyncio.run(RayJudge("random").complete(request))
        print(sorted(reply.choice_probs))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "['0', '1']", done.stderr[-2000:]


async def test_only_replicas_that_were_made_for_it_sleep(judge: RayJudge) -> None:
    assert not judge.can_sleep
    assert RayJudge("random", sleep=True).can_sleep
    with pytest.raises(ConfigError, match="cannot sleep: make it with sleep=True"):
        await judge.sleep()


async def test_a_replica_that_spans_nodes_has_bundles_of_its_own(cluster: str) -> None:
    """Without GPUs, so that only the places are tried, and not vLLM's workers in them."""
    judge = scripted("spans", pipeline_parallel_size=2)
    groups = [g for g in ray.util.placement_group_table().values() if g["name"] == "judgekit:spans"]
    assert [sorted(b["CPU"] for b in g["bundles"].values()) for g in groups] == [[1.0, 1.1]]
    assert (await judge.complete(ask("x", choices=LABELS))).text
    assert await judge.stop() == 1
    states = {g["state"] for g in ray.util.placement_group_table().values() if g["name"] == "judgekit:spans"}
    assert states == {"REMOVED"}


async def test_loops_that_come_and_go_and_run_sync(judge: RayJudge) -> None:
    def once() -> object:
        return asyncio.run(judge.complete(ask("x", choices=LABELS))).choice_probs

    first, second = await asyncio.to_thread(once), await asyncio.to_thread(once)
    assert first == pytest.approx(second)


async def test_cancelling_the_caller_ends_the_request_in_the_actor(judge: RayJudge) -> None:
    """Awaiting less does not cancel anything remotely: the client has to say so."""
    client = RayJudge("random")
    await client.complete(ask("x", choices=LABELS))
    engine = engine_below((await client.status())[0]["pid"])
    try:
        tasks = await _calls_on_a_stopped_engine(client, engine)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        deadline = time.monotonic() + 20
        while (await client.status())[0]["in_flight"] and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        assert (await client.status())[0]["in_flight"] == 0
    finally:
        send(engine, signal.SIGCONT)
    assert (await client.complete(ask("x", choices=LABELS))).choice_probs
    await client.close()


async def _calls_on_a_stopped_engine(client: RayJudge, engine: set[int]) -> list[asyncio.Task[Any]]:
    """Return calls that have arrived and cannot end: the engine is stopped before they are sent."""
    send(engine, signal.SIGSTOP)
    calls = [asyncio.create_task(client.complete(ask(words(20, i), max_tokens=1800))) for i in range(4)]
    while (await client.status())[0]["in_flight"] < 4:
        await asyncio.sleep(0.05)
    return calls


async def test_kill_9_of_the_engine_inside_the_actor(judge: RayJudge) -> None:
    """In flight: failures. Afterwards the same actor rebuilds its engine, and verdicts are as before."""
    client = RayJudge("random")
    expected = (await client.complete(ask("x", choices=LABELS))).choice_probs
    (status,) = await client.status()
    engine = engine_below(status["pid"])
    calls = await _calls_on_a_stopped_engine(client, engine)
    send(engine, signal.SIGKILL)
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(f, JudgeUnavailable) for f in found), found
    patient = stacked(client, LayerOptions(retry=Retry(attempts=4, wait_initial_s=0.5, budget=8.0)))
    assert (await patient.complete(ask("x", choices=LABELS))).choice_probs == pytest.approx(
        expected, rel=1e-3
    )
    assert (await client.status())[0]["life"] == status["life"]
    await client.close()


async def test_kill_9_of_the_actor_itself(judge: RayJudge) -> None:
    """Ray restarts it; what was in flight fails, is tried again, and is right; no engine process is left over."""
    client = RayJudge("random")
    expected = (await client.complete(ask("x", choices=LABELS))).choice_probs
    (status,) = await client.status()
    old = descendants(status["pid"])
    engine = engine_below(status["pid"])
    calls = await _calls_on_a_stopped_engine(client, engine)
    os.kill(status["pid"], signal.SIGKILL)
    send(engine, signal.SIGCONT)
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(f, JudgeUnavailable) for f in found), found
    patient = stacked(
        client, LayerOptions(retry=Retry(attempts=10, wait_initial_s=2.0, wait_max_s=10.0, budget=8.0))
    )
    assert (await patient.complete(ask("x", choices=LABELS))).choice_probs == pytest.approx(
        expected, rel=1e-3
    )
    (now,) = await client.status()
    assert now["life"] != status["life"]
    await client.start()  # as whoever comes to a judge that runs
    reply = await asyncio.wait_for(client.complete(ask("x", choices=LABELS)), 20)
    assert reply.choice_probs == pytest.approx(expected, rel=1e-3)
    deadline = time.monotonic() + 15
    while any(Path(f"/proc/{p}").exists() for p in old) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    assert not [p for p in old if Path(f"/proc/{p}").exists()]
    await client.close()


async def test_an_actor_whose_own_process_hangs_is_killed_and_restarted(
    cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"_QUIET_S": 0.5, "_LOOK_S": 0.2, "_PATIENCE_S": 0.5, "READY_S": 0.5}.items():
        monkeypatch.setattr(health, name, value)
    monkeypatch.setattr(ray_engine, "_SILENT_S", 2.0)
    monkeypatch.setattr(ray_engine, "_JITTER_S", 0.0)
    judge = scripted("hangs")
    await judge.start()
    (before,) = await judge.status()
    whole = stacked(judge, LayerOptions(retry=Retry(attempts=3)))
    await whole.complete(ask("x"))
    os.kill(before["pid"], signal.SIGSTOP)
    try:
        assert (await whole.complete(ask("x"))).text == "1"
    finally:
        with contextlib.suppress(ProcessLookupError):  # Ray has killed it
            os.kill(before["pid"], signal.SIGCONT)
    (after,) = await judge.status()
    assert after["life"] != before["life"]
    assert await judge.stop() == 1


async def test_an_actor_that_answers_is_not_killed(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "_SILENT_S", 30.0)
    judge = scripted("busy")
    await judge.start()
    (before,) = await judge.status()
    (replica,) = judge._router().replicas
    replica.judge.hangs()
    await replica.judge._looking
    (after,) = await judge.status()
    assert after["life"] == before["life"]
    assert await judge.stop() == 1


def test_starting_the_same_again_takes_what_runs_and_another_is_refused(
    judge: RayJudge, random_model: Path
) -> None:
    again = start_ray_judge(
        str(random_model), name="random", lifetime="detached", options={"max_model_len": 2048}
    )
    assert asyncio.run(again.status())[0]["actor"] == "judgekit:random:0"
    with pytest.raises(ConfigError, match="runs another configuration"):
        start_ray_judge(str(random_model), name="random", options={"max_model_len": 1024})
    with pytest.raises(ConfigError, match="runs another configuration"):
        start_ray_judge(
            str(random_model), name="random", options={"max_model_len": 2048}, python=sys.executable
        )


def test_replicas_share_the_work_and_end_with_their_starter(cluster: str) -> None:
    judge = scripted("light", replicas=3)

    async def burst() -> list[dict[str, Any]]:
        await judge.start()
        await asyncio.gather(*(judge.complete(ask("x", f"group {i}", choices=("0", "1"))) for i in range(60)))
        return await judge.status()

    status = asyncio.run(burst())
    assert [s["actor"] for s in status] == [f"judgekit:light:{i}" for i in range(3)]
    assert sum(s["served"] for s in status) == 60
    assert all(s["served"] for s in status)
    assert asyncio.run(judge.stop()) == 3
    with pytest.raises(JudgeUnavailable, match="no judge named 'light' runs"):
        asyncio.run(RayJudge("light").complete(ask("x")))


def test_a_judge_that_was_stopped_and_started_is_found_again(cluster: str) -> None:
    """B3: by those who know its old actors, with as many replicas or another number; none of their calls fails."""

    async def play() -> None:
        judge = scripted("phoenix", replicas=2)
        client = stacked(RayJudge("phoenix"))
        await client.start()  # type: ignore[attr-defined]
        for replicas in (2, 1, 3):
            assert (await client.complete(ask("x", choices=("0", "1")))).text == "1"
            await judge.stop()
            calls = [
                asyncio.create_task(client.complete(ask("x", f"group {i}", choices=("0", "1"))))
                for i in range(64)
            ]
            await asyncio.sleep(0.5)
            assert not any(call.done() for call in calls)
            judge = scripted("phoenix", replicas=replicas)
            assert [(await call).text for call in calls] == ["1"] * 64
        await judge.stop()
        await client.close()  # type: ignore[attr-defined]

    asyncio.run(play())


def test_identity_is_asked_once(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """B1."""
    from judgekit.judges.engines.ray import judge as engine

    asked = 0
    identity = engine._Replica.identity

    async def counted(self: Any) -> str:
        nonlocal asked
        asked += 1
        return await identity(self)

    monkeypatch.setattr(engine._Replica, "identity", counted)

    async def play() -> None:
        judge = scripted("known", replicas=2)
        client = stacked(RayJudge("known"))
        await client.start()  # type: ignore[attr-defined]
        await asyncio.gather(*(client.complete(ask(str(i), choices=("0", "1"))) for i in range(50)))
        await client.close()  # type: ignore[attr-defined]
        await judge.stop()

    asyncio.run(play())
    assert asked <= 1


def test_what_the_cluster_cannot_hold_is_said(cluster: str) -> None:
    with pytest.raises(ConfigError, match="has no room for 50 × .*it has 4 CPU"):
        start_ray_judge(
            name="huge",
            factory="judgekit.testing:ScriptedJudge",
            replicas=50,
            cpus=1,
            options={"script": "1"},
            place_s=2,
        )
    for options, says in (
        ({"replicas": 0}, "at least 1"),
        ({"name": "a:b"}, "without a colon"),
        ({"lifetime": "for ever"}, "'starter' or 'detached'"),
        ({"gpus": 0.5, "tensor_parallel_size": 2}, "a fraction of a GPU"),
    ):
        with pytest.raises(ConfigError, match=says):
            start_ray_judge(**options)  # type: ignore[arg-type]


def test_without_a_cluster_it_says_what_to_do() -> None:
    program = """
        import asyncio
        from judgekit.judges import RayJudge, JudgeRequest
        try:
            asyncio.run(RayJudge("x").complete(JudgeRequest(turns=())))
        except Exception as error:
            print(type(error).__name__, error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )
    assert (
        done.stdout == "ConfigError this process is not connected to a Ray cluster: call ray.init() first\n"
    )


class Remote:
    """A method of an actor, which answers with what it is told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def remote(self, *args: Any) -> Any:
        async def answered() -> Any:
            return self.answer

        return answered()


async def test_answers_that_cannot_be_read_fail_those_who_wait() -> None:
    """As of an actor of another version: nobody waits for its next answer."""

    class Handle:
        submit, collect = Remote("life"), Remote(b"no answers of ours")

    link = ray_engine._Link(Handle(), "judge", lambda error: None)
    asked = [link.ask(JudgeRequest(turns=())) for _ in range(2)]
    for error in await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 5):
        assert isinstance(error, JudgeUnavailable)
    await link.close()
