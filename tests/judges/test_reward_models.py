"""Reward models behind a server: what is believed, and that layers protect them as they do judges."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from judgekit import Abstained, ConfigError, Failed, GradingRunner, Retry, Rollout, Score, Weighted
from judgekit.config import load_runner
from judgekit.graders import RewardModelGrader
from judgekit.judges import HTTPRewardModel, LayerOptions, Piece, Turn, stacked_reward_model
from judgekit.judges.layers import recovery
from judgekit.judges.layers.stack import CacheOptions

from .fake_server import FakeServer, says

pytest.importorskip("aiohttp")
REWARD = Weighted({"rm": (1.0, Score("rm", if_broken=-10.0))})
ROLLOUTS = [Rollout(prompt="p", response=f"text {i}", group=0) for i in range(40)]


def written(folder: Path, url: str, layers: str = "{}", use: str = "{use: reward_model, model: rm}") -> Path:
    path = folder / "reward.yaml"
    path.write_text(
        textwrap.dedent(f"""
            judges:
              rm: {{engine: reward_model_http, url: "{url}", layers: {layers}}}
            graders:
              rm: {use}
            reward: {{weighted: {{rm: {{weight: 1, of: {{score: rm, if_broken: -10}}}}}}}}
        """)
    )
    return path


@pytest.mark.parametrize("usage", ['"many"', "null", "[1]", "-3", "1.5", "true", "9" * 400])
async def test_an_odd_usage_costs_no_reward(usage: str) -> None:
    async with FakeServer() as server:
        server.fault = says(f'{{"data": [{{"probs": [2.5]}}], "usage": {{"prompt_tokens": {usage}}}}}')
        model = HTTPRewardModel(server.url)
        (result,) = await GradingRunner({"rm": RewardModelGrader(model)}, REWARD).run(ROLLOUTS[:1])
        assert result.reward == 2.5
        await model.close()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "null", "true", '"1"', "[1, 2]", "9" * 400])
async def test_what_is_no_number_is_a_failure(number: str) -> None:
    async with FakeServer() as server:
        server.fault = says(f'{{"data": [{{"probs": {number}}}]}}')
        model = HTTPRewardModel(server.url)
        (result,) = await GradingRunner({"rm": RewardModelGrader(model)}, REWARD).run(ROLLOUTS[:1])
        assert isinstance(result.grades["rm"], Failed)
        assert result.grades["rm"].error == "JudgeUnavailable"
        assert result.grades["rm"].cause == "infrastructure"
        assert result.reward is None
        await model.close()


async def test_what_the_model_cannot_read_is_abstained_from() -> None:
    image = [
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}],
        }
    ]
    async with FakeServer() as server:
        model = HTTPRewardModel(server.url)
        grader = RewardModelGrader(model)
        assert await grader.grade(Rollout(response="text")) == Abstained("there is no prompt")
        unread = await grader.grade(Rollout(prompt=image, response="text"))
        assert isinstance(unread, Abstained)
        assert "in the prompt, and the model reads text only" in unread.reason
        assert not server.bodies
        await model.close()


async def test_a_server_is_told_by_default_to_leave_the_number_as_it_is() -> None:
    async with FakeServer() as server:
        model = HTTPRewardModel(server.url)
        await model.reward([Turn("user", (Piece("p"),)), Turn("assistant", (Piece("r"),))])
        assert server.bodies[-1]["use_activation"] is False
        assert server.bodies[-1]["add_generation_prompt"] is False
        await model.close()


async def test_what_no_server_takes_is_no_way_out() -> None:
    odd = [
        Rollout(prompt="p", response="text \ud800"),
        Rollout(prompt=[{"role": "user", "content": "\udfff"}], response="text"),
    ]
    async with FakeServer() as server:
        model = HTTPRewardModel(server.url)
        results = await GradingRunner({"rm": RewardModelGrader(model)}, REWARD).run(odd)
        assert [result.reward for result in results] == [server.score] * 2
        assert server.bodies[0]["messages"][-1]["content"] == "text ?"
        await model.close()


@pytest.mark.parametrize("endpoint", ["/classify", "/score"])
async def test_no_length_is_a_way_out(endpoint: Any) -> None:
    """A server refuses what its context does not hold, so a long text is cut in the middle, and marked."""

    async def small(request: web.Request) -> web.StreamResponse:
        said = str(await request.json())
        if len(said) > 2000:
            return web.json_response(
                {"error": {"message": "maximum context length is 500 tokens"}}, status=400
            )
        return web.json_response({"data": [{"score": 1.0 if "middle was cut" in said else 2.0}]})

    async with FakeServer() as server:
        server.fault = small
        server.once["/score"] = [small] * 9
        model = HTTPRewardModel(server.url, endpoint=endpoint)
        rollouts = [Rollout(prompt="p", response=text) for text in ("bad answer", "bad answer " * 2000)]
        results = await GradingRunner({"rm": RewardModelGrader(model)}, REWARD).run(rollouts)
        assert [result.reward for result in results] == [2.0, 1.0]
        server.fault = says('{"error": {"message": "maximum context length is 0 tokens"}}', status=400)
        server.once["/score"] = [server.fault] * 30
        (result,) = await GradingRunner({"rm": RewardModelGrader(model)}, REWARD).run(rollouts[:1])
        assert isinstance(result.grades["rm"], Failed)
        assert result.grades["rm"].error == "JudgeRejected"
        await model.close()


async def test_a_server_that_is_restarted_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From reward.yaml, with the default layers."""
    for name, value in {"_CONFIRM_S": 0.01, "_PAUSE_S": 0.01, "_MAX_PAUSE_S": 0.02}.items():
        monkeypatch.setattr(recovery, name, value)
    async with FakeServer() as server:
        port = server.port
        runner = load_runner(written(tmp_path, server.url))
        await runner.start()
    running = asyncio.create_task(runner.run(ROLLOUTS))
    await asyncio.sleep(0.3)
    async with FakeServer(port=port):
        assert [r.reward for r in await running] == [0.75] * 40
        await runner.close()


async def test_a_written_limit_is_kept(tmp_path: Path) -> None:
    most = now = 0

    async def slow(request: object) -> object:
        nonlocal most, now
        now += 1
        most = max(now, most)
        await asyncio.sleep(0.01)
        now -= 1
        return await says('{"data": [{"probs": [1.0]}]}')(request)  # type: ignore[arg-type]

    async with FakeServer() as server:
        server.fault = slow  # type: ignore[assignment]
        async with load_runner(written(tmp_path, server.url, "{max_concurrency: 3}")) as runner:
            assert [r.reward for r in await runner.run(ROLLOUTS)] == [1.0] * 40
        assert most == 3


def test_what_a_reward_model_cannot_do_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="judges.rm.layers: a reward model has no cache"):
        load_runner(written(tmp_path, "http://127.0.0.1:1", "{cache: {}}"))
    with pytest.raises(
        ConfigError, match="rm is a reward model: ask it with a grader such as use: reward_model"
    ):
        load_runner(written(tmp_path, "http://127.0.0.1:1", use="{use: judge, judge: rm}"))
    path = written(tmp_path, "http://127.0.0.1:1")
    path.write_text(path.read_text().replace("engine: reward_model_http", "engine: openai"))
    with pytest.raises(ConfigError, match="rm is a judge: ask it with a grader such as use: judge"):
        load_runner(path)
    with pytest.raises(ConfigError, match="has no cache"):
        stacked_reward_model(HTTPRewardModel("http://127.0.0.1:1"), LayerOptions(cache=CacheOptions()))


async def test_without_retries_a_failure_is_one() -> None:
    async with FakeServer() as server:
        server.once["/classify"] = [says("busy", status=503)] * 2
        once = stacked_reward_model(HTTPRewardModel(server.url), LayerOptions(retry=None))
        (result,) = await GradingRunner({"rm": RewardModelGrader(once)}, REWARD).run(ROLLOUTS[:1])
        assert isinstance(result.grades["rm"], Failed)
        twice = stacked_reward_model(
            HTTPRewardModel(server.url), LayerOptions(retry=Retry(attempts=2, wait_initial_s=0, budget=1.0))
        )
        (result,) = await GradingRunner({"rm": RewardModelGrader(twice)}, REWARD).run(ROLLOUTS[:1])
        assert result.reward == 0.75
