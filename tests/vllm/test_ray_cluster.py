"""Faults of a Ray cluster while a runner grades: its store stands still or ends, a node is cut off."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from judgekit import GradingRunner, Rollout, read_ledger
from judgekit.execution.watchdog import descendants
from judgekit.graders import JudgeGrader
from judgekit.judges import LayerOptions, RayJudge, health, stacked, start_ray_judge

from .processes import stopped

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes, each with its own raylet and workers."""
    made = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
    )
    made.far = made.add_node(num_cpus=2)
    ray.init(address=made.address, logging_level="ERROR", log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def replicas() -> RayJudge:
    """One on each node: two do not fit on one."""
    return start_ray_judge(
        name="cut", replicas=2, factory="judgekit.testing:ScriptedJudge", cpus=1.1,
        options={"script": "1", "latency_s": 0.02},
    )  # fmt: skip


async def graded(judge: RayJudge, count: int, at: int, fault: Callable[[], None]) -> list[float | None]:
    """Rewards of *count* rollouts; *fault* is called once *at* of them are graded."""
    rewards: list[float | None] = []
    rollouts = [
        Rollout(prompt=f"p{i // 8}", response=f"r{i}", ground_truth="1", group=i // 8) for i in range(count)
    ]
    grader = JudgeGrader(stacked(judge, LayerOptions()))
    async with GradingRunner({"judge": grader}, max_concurrency=32) as runner:
        async for result in runner.stream(rollouts):
            rewards.append(result.reward)
            if len(rewards) == at:
                fault()
    return rewards


def process_of(node: Any, name: str) -> int:
    return int(node.all_processes[name][0].process.pid)


async def test_a_cluster_s_store_that_stands_still_costs_no_verdict(cluster: Any) -> None:
    """Calls to actors go past it."""
    store = process_of(cluster.head_node, "gcs_server")
    with contextlib.ExitStack() as still:
        rewards = await graded(replicas(), 400, 100, lambda: still.enter_context(stopped({store})))
    assert rewards == [1.0] * 400


async def test_a_node_that_is_cut_off_costs_no_verdict(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_QUIET_S": 0.5, "_LOOK_S": 0.2, "_PATIENCE_S": 0.5, "READY_S": 0.5}.items():
        monkeypatch.setattr(health, name, value)
    judge = replicas()
    await judge.start()
    raylet = process_of(cluster.far, "raylet")
    node = {raylet} | descendants(raylet)
    assert len({row["pid"] for row in await judge.status()} & node) == 1
    with contextlib.ExitStack() as cut:
        rewards = await graded(judge, 400, 100, lambda: cut.enter_context(stopped(node)))
    assert rewards == [1.0] * 400


def test_a_cluster_that_is_lost_ends_the_process_and_leaves_what_was_graded(tmp_path: Path) -> None:
    """Ray itself ends a process that cannot reach its cluster; no rollout is paid for that."""
    program = """
        import asyncio, logging, os, signal, sys
        import ray
        from ray.cluster_utils import Cluster
        from judgekit import GradingRunner, Ledger, Rollout
        from judgekit.graders import JudgeGrader
        from judgekit.judges import LayerOptions, start_ray_judge, stacked

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        judge = start_ray_judge(
            name="lost", factory="judgekit.testing:ScriptedJudge", cpus=0.1, options={"script": "1", "latency_s": 0.02}
        )
        grader = JudgeGrader(stacked(judge, LayerOptions()))

        def endless():
            for i in range(10**9):
                yield Rollout(prompt=f"p{i // 8}", response=f"r{i}", ground_truth="1", group=i // 8)

        async def main():
            done = 0
            async with GradingRunner({"judge": grader}, max_concurrency=8, ledger=Ledger(sys.argv[1])) as runner:
                async for result in runner.stream(endless()):
                    done += 1
                    if done == 100:
                        os.kill(cluster.head_node.all_processes["gcs_server"][0].process.pid, signal.SIGKILL)
                    print(result.index if result.reward == 1.0 else f"reward {result.reward}", flush=True)

        asyncio.run(main())
    """
    path = tmp_path / "ledger.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "RAY_gcs_rpc_server_reconnect_timeout_s": "3"},
    )
    try:
        said = process.communicate(timeout=120)[0].split("\n")
    finally:
        with contextlib.suppress(ProcessLookupError):  # its raylet and workers
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode not in (0, None)
    assert len(said) > 100
    assert all(line.isdigit() for line in said[:-1])
    kept = {str(entry.index) for entry in read_ledger(path).entries}
    before = said[: len(said) // 2]  # lines are written within a second
    assert set(before) <= kept
