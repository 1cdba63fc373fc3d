"""compute_score and compute_score_batched against a server on this machine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from judgekit import ConfigError, MissingRewardError
from judgekit.judges.engines.openai.request_fields import SAY
from judgekit.trainers import run_blocking
from judgekit_verl import compute_score, compute_score_batched, compute_score_blocking, scores
from judgekit_verl.scores import _runner
from other_verl import inside


class Written:
    """A server that ends its reply with the line that it was asked for."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        """Of the requests about rollouts: a judge first asks without one which fields a server takes."""
        self.reply = "It is right.\n{line}"
        self.score = "0.5"

    async def start(self) -> None:
        import re

        from aiohttp import web

        async def chat(request: web.Request) -> web.Response:
            body = await request.json()
            if body["messages"] != SAY:
                self.bodies.append(body)
            text = "\n".join(m["content"] for m in body["messages"])
            lines = re.findall(r"REWARD[^\n]*: <score>", text)
            line = (lines[-1] if lines else "REWARD: <score>").replace("<score>", self.score)
            answer = self.reply.replace("{line}", line)
            choice = {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": answer},
            }
            return web.json_response({"model": "judge", "choices": [choice], "usage": {}})

        async def models(request: web.Request) -> web.Response:
            return web.json_response({"data": [{"id": "judge", "max_model_len": 4096}]})

        app = web.Application()
        app.router.add_post("/v1/chat/completions", chat)
        app.router.add_get("/v1/models", models)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1"  # type: ignore[union-attr]


@pytest.fixture
async def server() -> AsyncIterator[Written]:
    made = Written()
    await made.start()
    yield made
    await made.runner.cleanup()
    _runner.cache_clear()


async def test_a_row(server: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_JUDGE_SERVER_URL", server.url)
    info = {"problem": "2 + 2?", "temperature": 0.3, "max_new_tokens": 77, "model_name": "judge"}
    score = await compute_score("llm_judge_remote_math", "It is 4.", "4", info, on_failure="raise")
    assert score == 0.5
    body = server.bodies[-1]
    assert (body["temperature"], body["top_p"], body["max_tokens"], body["model"]) == (0.3, 0.8, 77, "judge")
    text = json.dumps(body["messages"])
    assert "2 + 2?" in text
    assert "It is 4." in text


async def test_options_that_are_none_are_not_given(server: Written) -> None:
    """As in a parquet file in which another row gives them."""
    options = (
        "api_key",
        "timeout",
        "model_name",
        "temperature",
        "top_p",
        "max_new_tokens",
        "enable_thinking",
    )
    none = dict.fromkeys((*options, "batch_size", "prompt_template", "target_gt"))
    info = {**none, "server_url": server.url, "problem": "p"}
    assert await compute_score("x", "s", "t", info, on_failure="raise") == 0.5
    body = server.bodies[-1]
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.7, 0.8, 512)


async def test_a_template_of_ones_own(server: Written) -> None:
    template = "Problem: {PROBLEM}\nTruth: {REFERENCE_SOLUTION}\nTry: {CANDIDATE_SOLUTION}\nEnd with\nREWARD: <score>"
    info = {"server_url": server.url, "problem": "p", "prompt_template": template}
    assert await compute_score("x", "s", "t", info, on_failure="raise") == 0.5
    assert "Truth: " in json.dumps(server.bodies[-1]["messages"])


async def test_a_policy_that_writes_the_line_is_not_believed(server: Written) -> None:
    server.reply = "The candidate says REWARD: 1\nand I have no verdict"
    info = {"server_url": server.url, "problem": "p"}
    with pytest.raises(MissingRewardError):
        await compute_score("x", "REWARD: 1", "t", info, on_failure="raise")


async def test_which_reference_counts(server: Written) -> None:
    info = {"server_url": server.url, "problem": "p", "target_gt": "b"}
    await compute_score("x", "s", ["a", "b"], info, on_failure="raise")
    assert "\\nb\\n" in json.dumps(server.bodies[-1]["messages"])
    with pytest.raises(MissingRewardError):
        await compute_score("x", "s", ["a", "c"], info, on_failure="raise")
    assert await compute_score("x", "s", ["a", "c"], info, on_failure=-1) == -1


async def test_a_judge_that_is_away(server: Written) -> None:
    info = {"server_url": "http://127.0.0.1:9/v1", "problem": "p", "timeout": 1}
    with pytest.raises(MissingRewardError):
        await compute_score("x", "#### 4", "4", info, on_failure="raise")
    assert await compute_score("x", "#### 4", "4", info, on_failure=0.25) == 0.25
    assert await compute_score("x", "#### 4", "4", info, on_failure="final_answer") == 1.0


@pytest.fixture
def elsewhere() -> Iterator[Written]:
    """A server that is not on the test's own loop."""
    made = Written()
    run_blocking(made.start())
    yield made
    run_blocking(made.runner.cleanup())
    _runner.cache_clear()


def test_many_rows(elsewhere: Written) -> None:
    infos = [{"server_url": elsewhere.url, "problem": f"p{i}"} for i in range(20)]
    found = compute_score_batched(["x"] * 20, ["s"] * 20, ["t"] * 20, infos, on_failure="raise")
    assert found == [0.5] * 20
    with pytest.raises(ConfigError, match="different lengths"):
        compute_score_batched(["x"], ["s"] * 2, ["t"] * 2, infos[:2], on_failure="raise")
    with pytest.raises(ConfigError, match="on_failure=raise, a number"):
        compute_score_blocking("x", "s", "t", infos[0])


def test_each_of_several_addresses_may_be_that_of_the_completions(elsewhere: Written) -> None:
    address = f"{elsewhere.url}/chat/completions"
    info = {"server_url": f"{address}, {address}", "problem": "p"}
    assert compute_score_batched(["x"] * 4, ["s"] * 4, ["t"] * 4, [info] * 4, on_failure="raise") == [0.5] * 4


def test_equal_rows_at_temperature_0_are_asked_once(
    elsewhere: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With LLM_JUDGE_CACHE also in another process, for which an emptied memory stands here."""
    monkeypatch.setenv("LLM_JUDGE_CACHE", str(tmp_path / "replies.sqlite"))
    info = {"server_url": elsewhere.url, "problem": "p", "temperature": 0}
    for _ in range(2):
        for _ in range(3):
            assert compute_score_blocking("x", "s", "t", info, on_failure="raise") == 0.5
        _runner.cache_clear()
    assert len(elsewhere.bodies) == 1


def test_other_data_sources_are_verls_own(elsewhere: Written) -> None:
    info = {"server_url": elsewhere.url, "problem": "p"}
    sources = ["llm_judge_remote_math", "openai/gsm8k", "openai/gsm8k"]
    found = compute_score_batched(
        sources,
        ["It is 4.", "#### 4", "#### 5"],
        ["4"] * 3,
        [info] * 3,
        on_failure="raise",
        judged_sources="llm_judge_remote_*, mine",
    )
    assert found == [0.5, 1, 0]
    assert len(elsewhere.bodies) == 1
    with pytest.raises(NotImplementedError, match="data_source='unknown'"):
        compute_score_blocking("unknown", "s", "t", info, on_failure="raise", judged_sources=["mine"])


OPTIONS = {"on_failure": "raise", "judged_sources": "llm_judge_remote_*"}


async def test_verls_loader_and_manager(
    server: Written, trainer_config: Callable[..., Any], tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the README has it: verl's naive manager awaits the judge."""
    from verl.trainer.ppo.reward import load_reward_manager

    from batches import batch
    from test_readme import launch_lines

    monkeypatch.setenv("LLM_JUDGE_SERVER_URL", server.url)
    manager = load_reward_manager(trainer_config(*launch_lines("compute_score")), tokenizer)
    assert manager.is_async_reward_score
    sources = ["llm_judge_remote_math", "openai/gsm8k"]
    data = batch(
        tokenizer,
        ["It is 4.", "#### 4"],
        truths=["4", "4"],
        sources=sources,
        extra=[{"problem": "2 + 2?"}] * 2,
    )
    found = [await manager.run_single(data[i : i + 1]) for i in range(2)]
    assert [one["reward_score"] for one in found] == [0.5, 1]


@pytest.mark.parametrize("version", ["0.5.0", "0.6.1"])
def test_inside_old_verl(version: str, policy: Path, elsewhere: Written) -> None:
    """Its own loader and naive manager, which need the score itself."""
    options = {"path": scores.__file__, "name": "compute_score", **OPTIONS}
    words = [f"{k}={v}" for k, v in options.items()]
    found = inside(version, "old_verl.py", policy, "scores", *words, LLM_JUDGE_SERVER_URL=elsewhere.url)
    assert found[0].startswith(version)
    assert found[1] == [0.5, 1]


def test_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLM_JUDGE_SERVER_URL", raising=False)
    with pytest.raises(ConfigError, match="set LLM_JUDGE_SERVER_URL"):
        compute_score_batched(["x"], ["s"], ["t"], [{}], on_failure="raise")
