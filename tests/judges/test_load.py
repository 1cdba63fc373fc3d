"""What an engine's metrics say of its load, and what `judgekit check` shows of it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from aiohttp import web
from anyio import run_process

from judgekit.cli.checkup import check_up
from judgekit.judges import OpenAIJudge
from judgekit.judges.engines.engine_load import EngineLoad, read_load
from tests.judges.fake_server import FakeServer, hang
from tests.judges.test_openai import ask

VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="judge"} 3.0
vllm:num_requests_running{engine="1",model_name="judge"} 4.0
vllm:num_requests_waiting{engine="0",model_name="judge"} 5.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
vllm:prefix_cache_queries_total{engine="0"} 1000.0
vllm:prefix_cache_hits_total{engine="0"} 750.0
vllm:prompt_tokens_total{engine="0"} 1200.0
"""
SGLANG = """sglang:num_running_reqs{model_name="x"} 2.0
sglang:num_queue_reqs{model_name="x"} 1.0
sglang:cache_hit_rate{model_name="x"} 0.1
"""


def test_pages() -> None:
    assert read_load(VLLM) == EngineLoad(7, 5, 1000.0, 750.0)
    assert read_load(VLLM).hit_rate() == 0.75  # type: ignore[union-attr]
    assert read_load(SGLANG) == EngineLoad(2, 1)
    assert read_load(SGLANG).hit_rate() is None  # type: ignore[union-attr]
    assert read_load("") is read_load("vllm:num_requests_running NaN") is read_load("up 1\n") is None
    restarted = EngineLoad(0, 0, 10.0, 5.0)
    assert restarted.hit_rate(EngineLoad(0, 0, 1000.0, 750.0)) is None
    assert EngineLoad(0, 0, 1100.0, 800.0).hit_rate(EngineLoad(0, 0, 1000.0, 750.0)) == 0.5


@pytest.mark.parametrize("allowed", [True, False])
async def test_check_shows_the_queue_and_the_cache(allowed: bool) -> None:
    async with FakeServer("vllm") as server:
        if allowed:
            server.metrics = VLLM
        judge = OpenAIJudge(server.url)
        found = await check_up(judge, burst=8)
        await judge.close()
        assert found.failures == []
        if allowed:
            assert (
                found.engine
                == "at most 7 requests running and 5 waiting; prefix cache hits since its start: 75 %"
            )
        else:
            assert found.engine == ""


async def test_grading_tells_how_busy_the_engine_was(tmp_path: Path) -> None:
    """In the summary for scripts and in the table; a server that tells nothing is no line."""
    rows = [{"prompt": "p", "response": str(i), "ground_truth": "4"} for i in range(4)]
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    async with FakeServer("vllm") as server:
        settings = f"graders: {{j: {{use: judge, judge: j}}}}\njudges: {{j: {{engine: openai, url: '{server.url}'}}}}\n"
        (tmp_path / "reward.yaml").write_text(settings)
        for page in (VLLM, ""):
            server.metrics = page
            told = await run_process(
                [sys.executable, "-m", "judgekit", "grade", "reward.yaml", "rollouts.jsonl", "--json"],
                cwd=tmp_path,
            )
            shown = await run_process(
                [sys.executable, "-m", "judgekit", "grade", "reward.yaml", "rollouts.jsonl"], cwd=tmp_path
            )
            engines = json.loads(told.stdout)["engines"]
            line = b"at most 7 requests running and 5 waiting; prefix cache hits since its start: 75 %"
            assert (line in shown.stdout.replace(b"\n", b" ")) is bool(page)
            if page:
                assert [(e["running_peak"], e["waiting_peak"]) for e in engines] == [(7, 5)]
                assert server.url.removesuffix("/v1") in engines[0]["engine"]
            else:
                assert engines == []


async def test_a_caller_that_leaves_ends_its_connection() -> None:
    """By which servers and routers cancel what an engine still decodes for it."""
    left = asyncio.Event()

    async def wait(request: web.Request) -> web.StreamResponse:
        try:
            return await hang(request)
        finally:
            left.set()

    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        server.fault = wait
        for options in ({}, {"choices": (), "max_tokens": 900}):  # in a batch, and alone
            count = len(server.asked())
            task = asyncio.create_task(judge.complete(ask(**options)))
            while len(server.asked()) == count:
                await asyncio.sleep(0.01)
            task.cancel()
            async with asyncio.timeout(1):
                await left.wait()
            left.clear()
        await judge.close()
