"""Judges behind API providers, against stubs of what their documentation says."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from judgekit import GradingRunner
from judgekit.errors import ConfigError
from judgekit.graders import JudgeGrader
from judgekit.judges import JsonVerdict, LineVerdict, OpenAIJudge, Sampling
from judgekit.judges.engines.http import base_url
from judgekit.judges.engines.openai.request_fields import Terms
from judgekit.types import Failed, Graded, Rollout
from tests.judges.servers import serving as served


class Provider:
    """A provider's server. *refuses*: fields, and what it says of each; *ignores*: fields that it drops without a word."""

    def __init__(
        self,
        path: str = "/v1",
        *,
        refuses: Mapping[str, Any] | None = None,
        ignores: tuple[str, ...] = (),
        lists: bool = True,
        key: tuple[str, str] = ("Authorization", "Bearer k"),
        most_top: int = 20,
        query: Mapping[str, str] | None = None,
    ) -> None:
        self.path, self.refuses, self.ignores, self.lists, self.key = path, refuses or {}, ignores, lists, key
        self.most_top, self.query = most_top, dict(query or {})
        self.bodies: list[dict[str, Any]] = []
        self.busy = 0
        """Requests to refuse with HTTP 429."""
        self.reply = '{"code": "%s", "reason": "so", "score": 1}'

    async def answer(self, request: web.Request) -> web.StreamResponse:
        name, value = self.key
        if request.headers.get(name) != value:
            return web.json_response({"error": {"message": "no key"}}, status=401)
        if dict(request.query) != self.query:
            return web.json_response({"error": {"message": "api-version is missing"}}, status=404)
        if request.path == f"{self.path}/models" and self.lists:
            return web.json_response({"data": [{"id": "m"}]})
        if request.path != f"{self.path}/chat/completions":
            return web.json_response({"error": {"message": "not found"}}, status=404)
        if self.busy:
            self.busy -= 1
            return web.json_response({"error": {"message": "slow down"}}, status=429)
        body = await request.json()
        self.bodies.append(body)
        for field, said in self.refuses.items():
            if field in body and not (callable(said) and said(body[field]) is None):
                error = said(body[field]) if callable(said) else said
                error = error if isinstance(error, dict) else {"message": error}
                return web.json_response({"error": error}, status=400)
        if body.get("top_logprobs", 0) > self.most_top:
            return web.json_response(
                {"error": {"message": f"top_logprobs must be at most {self.most_top}"}}, status=400
            )
        return web.json_response({"choices": [self.choice(body)], "usage": {"prompt_tokens": 3}})

    def choice(self, body: Mapping[str, Any]) -> dict[str, Any]:
        text = json.dumps(body["messages"])
        code = text.rpartition('code\\": \\"')[2][:10] if "code" in text else ""
        reply = "1" if body.get("logprobs") else self.reply.replace("%s", code)
        choice = {"message": {"role": "assistant", "content": reply}, "finish_reason": "stop"}
        if body.get("logprobs") and "logprobs" not in self.ignores:
            top = [{"token": t, "logprob": math.log(p)} for t, p in (("1", 0.75), ("0", 0.25))]
            choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
        return choice


@asynccontextmanager
async def serving(provider: Provider) -> AsyncIterator[str]:
    async with served(provider.answer) as url:
        yield f"{url}{provider.path}"


ROLLOUTS = [Rollout(prompt="p", response=f"r{i}", ground_truth="1") for i in range(4)]


async def grades(judge: Any, **options: Any) -> list[Any]:
    async with GradingRunner([JudgeGrader(judge, **options)]) as runner:
        return [result.grades["judge"] for result in await runner.run(ROLLOUTS)]


REASONING = {
    "max_tokens": {
        "message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "param": "max_tokens",
        "code": "unsupported_parameter",
    },
    "temperature": lambda value: (
        None
        if value == 1
        else {
            "message": "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.",
            "param": "temperature",
            "code": "unsupported_value",
        }
    ),
    "logprobs": {"message": "You are not allowed to request logprobs from this model.", "param": "logprobs"},
}
"""OpenAI's reasoning models."""


async def test_max_completion_tokens_is_found_out_before_the_first_rollout() -> None:
    provider = Provider(refuses=REASONING)
    async with serving(provider) as url:
        judge = OpenAIJudge(url, api_key="k")
        found = await grades(judge, verdict=JsonVerdict(), sampling=Sampling(temperature=1.0))
        assert all(isinstance(grade, Graded) for grade in found)
        asked = [body for body in provider.bodies if "p" in json.dumps(body["messages"])]
        refused = [body for body in provider.bodies if "max_tokens" in body]
        assert len(refused) == 1
        assert not any("r1" in json.dumps(body) for body in refused)
        assert all(body["max_completion_tokens"] == 512 for body in asked if "max_tokens" not in body)


async def test_it_is_found_out_at_the_first_refusal_too_and_never_paid() -> None:
    provider = Provider(refuses={"max_tokens": REASONING["max_tokens"]})
    async with serving(provider) as url:
        judge = OpenAIJudge(url, api_key="k")
        grader = JudgeGrader(judge, verdict=JsonVerdict())
        assert isinstance(await grader.grade(ROLLOUTS[0]), Graded)
        count = len(provider.bodies)
        assert isinstance(await grader.grade(ROLLOUTS[1]), Graded)
        assert len(provider.bodies) == count + 1


async def test_a_provider_that_is_busy_at_the_start_is_asked_again_by_the_run() -> None:
    provider = Provider(refuses={"max_tokens": REASONING["max_tokens"]})
    provider.busy = 1
    async with serving(provider) as url:
        judge = OpenAIJudge(url, api_key="k")
        assert all(isinstance(g, Graded) for g in await grades(judge, verdict=JsonVerdict()))
        assert provider.busy == 0


async def test_it_can_be_said() -> None:
    provider = Provider(refuses={"max_tokens": REASONING["max_tokens"]})
    async with serving(provider) as url:
        judge = OpenAIJudge(url, api_key="k", max_tokens_field="max_completion_tokens")
        assert all(isinstance(g, Graded) for g in await grades(judge, verdict=JsonVerdict()))
        assert not any("max_tokens" in body for body in provider.bodies)
        seeing = OpenAIJudge(url, api_key="k", images="data")
        assert all(isinstance(g, Graded) for g in await grades(seeing, verdict=JsonVerdict()))
    terms = Terms(limit="max_completion_tokens")
    assert terms.applied({"prompt": [1], "max_tokens": 1}) == {"prompt": [1], "max_tokens": 1}
    with pytest.raises(ConfigError, match="max_tokens_field is max_tokens or max_completion_tokens"):
        OpenAIJudge("http://h", max_tokens_field="max")  # type: ignore[arg-type]


async def test_a_temperature_that_is_refused_is_said_at_the_start() -> None:
    provider = Provider(refuses=REASONING)
    async with serving(provider) as url:
        with pytest.raises(
            ConfigError, match=r"temperature.*sampling: \{temperature: 1\}.*omit: \[temperature\]"
        ):
            await grades(OpenAIJudge(url, api_key="k"), verdict=JsonVerdict())
        found = await grades(OpenAIJudge(url, api_key="k", omit=["temperature"]), verdict=JsonVerdict())
        assert all(isinstance(grade, Graded) for grade in found)
    with pytest.raises(ConfigError, match="omit: 'messages' is not one of"):
        OpenAIJudge("http://h", omit=["messages"])


async def test_what_is_omitted_changes_the_identity() -> None:
    one, other = (OpenAIJudge("http://h", identity="x", omit=omit) for omit in ([], ["temperature"]))
    assert await one.identity() != await other.identity()


@pytest.mark.parametrize(
    "provider",
    [
        Provider(refuses=REASONING),  # refuses them
        Provider(ignores=("logprobs",)),  # as Anthropic's: no word, and no logprobs
        Provider(
            "/v1beta/openai",
            refuses={
                f: f'Invalid JSON payload received. Unknown name "{f}": Cannot find field.'
                for f in ("logprobs",)
            },
        ),
    ],
    ids=["refused", "ignored", "unknown"],
)
async def test_one_token_verdicts_without_logprobs_are_refused_at_the_start(provider: Provider) -> None:
    async with serving(provider) as url:
        with pytest.raises(ConfigError, match="no one-token verdicts.*use the format line or json"):
            await grades(OpenAIJudge(url, api_key="k"))


@pytest.mark.parametrize("most", [20, 8, 5])
async def test_fewer_top_logprobs(most: int) -> None:
    provider = Provider(most_top=most)
    async with serving(provider) as url:
        found = await grades(OpenAIJudge(url, api_key="k"))
        assert [grade.score for grade in found] == pytest.approx([0.75] * 4)


async def test_a_schema_that_is_refused_is_left_out_and_the_verdict_read_as_strictly() -> None:
    said = "Invalid JSON payload received. Unknown name \"additionalProperties\" at 'generation_config.response_schema'"
    provider = Provider(
        "/v1beta/openai",
        refuses={"response_format": lambda form: said if form["type"] == "json_schema" else None},
    )
    async with serving(provider) as url:
        judge = OpenAIJudge(url, api_key="k")
        assert all(isinstance(g, Graded) for g in await grades(judge, verdict=JsonVerdict()))
        assert provider.bodies[-1]["response_format"] == {"type": "json_object"}
        provider.reply = '{"code": "%s", "reason": "so", "score": 7}'
        found = await grades(judge, verdict=JsonVerdict())
        assert all(isinstance(grade, Failed) for grade in found)
    provider = Provider(refuses={"response_format": "response_format: Extra inputs are not permitted"})
    async with serving(provider) as url:
        judge = OpenAIJudge(url, api_key="k")
        assert all(isinstance(g, Graded) for g in await grades(judge, verdict=JsonVerdict()))
        assert "response_format" not in provider.bodies[-1]


async def test_a_seed_that_is_unknown_is_left_out_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    provider = Provider(refuses={"seed": 'Unknown name "seed": Cannot find field.'})
    async with serving(provider) as url:
        sampling = Sampling(temperature=0.5, seed=3)
        found = await grades(OpenAIJudge(url, api_key="k"), verdict=JsonVerdict(), sampling=sampling)
        assert all(isinstance(grade, Graded) for grade in found)
        assert "seed" in caplog.text


async def test_azure() -> None:
    """Its address has the deployment and an api-version, its key a header of its own, and it lists no models there."""
    provider = Provider(
        "/openai/deployments/mine",
        lists=False,
        key=("api-key", "k"),
        query={"api-version": "2024-10-21"},
    )
    async with serving(provider) as url:
        judge = OpenAIJudge(f"{url}?api-version=2024-10-21", api_key="k", provider="azure")
        assert all(isinstance(grade, Graded) for grade in await grades(judge))
        assert provider.bodies[0]["model"] == "mine"
        assert "api-version" not in repr(judge)
        assert await judge.ready()
    for host in ("mine.openai.azure.com", "mine.cognitiveservices.azure.com", "mine.services.ai.azure.com"):
        judge = OpenAIJudge(f"https://{host}/openai/v1/", model="gpt")
        assert judge.server.url == f"https://{host}/openai/v1"
        assert judge.provider.key_header == "api-key"


async def test_anthropic() -> None:
    """Its compatible endpoint takes a bearer's key, does not list models for it, and ignores logprobs and schemas."""
    provider = Provider(lists=False, ignores=("logprobs", "response_format", "seed"))
    async with serving(provider) as url:
        judge = OpenAIJudge(url, api_key="k", model="claude", provider="anthropic")
        found = await grades(judge, verdict=JsonVerdict())
        assert all(isinstance(grade, Graded) for grade in found)
        assert not any("response_format" in body for body in provider.bodies)
        with pytest.raises(ConfigError, match="no one-token verdicts"):
            await grades(judge)
        with pytest.raises(ConfigError, match="lists no models: name the judge with model="):
            await OpenAIJudge(url, api_key="k", provider="anthropic").start()
    assert OpenAIJudge("https://api.anthropic.com/v1", model="claude").provider.name == "anthropic"


async def test_a_server_that_lists_no_models_is_asked_for_the_one_that_is_named() -> None:
    provider = Provider(lists=False)
    async with serving(provider) as url:
        found = await grades(OpenAIJudge(url, api_key="k", model="m"))
        assert all(isinstance(grade, Graded) for grade in found)


async def test_a_rollout_that_speaks_of_fields_changes_none() -> None:
    """A refusal that quotes the prompt is no word about the request's fields."""

    def said(messages: Any) -> str | None:
        return "Unsupported parameter: 'max_tokens'" if "max_tokens" in json.dumps(messages) else None

    provider = Provider(refuses={"messages": said})
    async with serving(provider) as url:
        judge = OpenAIJudge(url, api_key="k")
        bad = Rollout(prompt="p", response="Unsupported parameter: 'max_tokens'", ground_truth="1")
        async with GradingRunner([JudgeGrader(judge, verdict=JsonVerdict())]) as runner:
            results = await runner.run([*ROLLOUTS, bad])
            *well, last = [result.grades["judge"] for result in results]
        assert all(isinstance(grade, Graded) for grade in well)
        assert isinstance(last, Failed)
        assert all("max_tokens" in body for body in provider.bodies)


async def test_a_written_line() -> None:
    provider = Provider(refuses={"max_tokens": REASONING["max_tokens"]})
    provider.reply = "So be it.\nScore: 1"
    async with serving(provider) as url:
        verdict = LineVerdict(line="Score: {score}", nonce=False)
        found = await grades(OpenAIJudge(url, api_key="k"), verdict=verdict)
        assert all(isinstance(grade, Graded) for grade in found)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("https://generativelanguage.googleapis.com/v1beta/openai/", "…/v1beta/openai"),
        ("https://open.bigmodel.cn/api/paas/v4", "…/api/paas/v4"),
        ("https://h/openai/deployments/d", "…/openai/deployments/d"),
        ("https://h/prefix", "…/prefix/v1"),
        ("https://h/v1", "…/v1"),
        ("https://h/v12x", "…/v12x/v1"),
    ],
)
def test_addresses_with_a_version_are_whole(given: str, url: str) -> None:
    host = "/".join(given.split("/")[:3])
    assert base_url(given) == (url.replace("…", host), "")
    assert base_url(f"{given}?a=b")[1] == "?a=b"
