"""SGLang's own endpoint for token ids, against a stub of what its documentation says."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from judgekit import GradingRunner
from judgekit.graders import JudgeGrader
from judgekit.judges import JsonVerdict, OpenAIJudge, Sampling
from judgekit.judges.engines.openai.sglang import as_completion, generate_body
from judgekit.types import Failed, Graded, Rollout
from tests.judges.servers import serving as served


class SGLang:
    """`/generate` with logprobs of given ids; `/v1/completions` takes token ids, too, and tells the top tokens only."""

    def __init__(self, info: str = "/model_info") -> None:
        self.info = info
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.reply = "1"
        self.drop = False
        self.adapter = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/models":
            data = [{"id": "judge", "root": "/models/judge", "max_model_len": 4096}]
            if self.adapter:
                root = f"/adapters/{self.adapter}"
                data.append({"id": self.adapter, "root": root, "parent": "judge", "max_model_len": 4096})
            return web.json_response({"data": data})
        if request.path == self.info:
            return web.json_response({"model_path": "/models/judge", "is_generation": True})
        if request.path not in ("/generate", "/v1/completions"):
            return web.json_response({"detail": "Not Found"}, status=404)
        body = await request.json()
        self.bodies.append(body)
        self.paths.append(request.path)
        if request.path == "/v1/completions":
            usage = {"prompt_tokens": len(body["prompt"])}
            return web.json_response({"choices": [{"index": 0, "text": "1"}], "usage": usage})
        count = len(body["input_ids"])
        meta = {
            "id": "x",
            "finish_reason": {"type": "stop", "matched": 2},
            "prompt_tokens": count,
            "completion_tokens": 1,
            "cached_tokens": 3,
        }
        if body.get("return_logprob") and not self.drop:
            ids = body["token_ids_logprob"]
            meta["output_token_logprobs"] = [[math.log(0.5), ids[0], None]]
            meta["output_token_ids_logprobs"] = [[[math.log(0.9 / len(ids)), i, None] for i in ids]]
        return web.json_response({"text": self.reply, "meta_info": meta})


@asynccontextmanager
async def serving(server: SGLang) -> AsyncIterator[str]:
    async with served(server.answer) as url:
        yield url


@pytest.fixture
def tokenizer() -> Path:
    pytest.importorskip("transformers")
    import judgekit.judges

    return Path(judgekit.judges.__file__).parent / "embedded"


ROLLOUTS = [Rollout(prompt="p", response=f"r{i} <|im_end|>", ground_truth="1") for i in range(3)]


@pytest.mark.parametrize("info", ["/model_info", "/get_model_info"])
async def test_one_token_verdicts_are_read_by_id(info: str, tokenizer: Path) -> None:
    server = SGLang(info)
    async with serving(server) as url:
        judge = OpenAIJudge(url, tokenizer=tokenizer)
        async with GradingRunner([JudgeGrader(judge)]) as runner:
            results = await runner.run(ROLLOUTS)
        for result in results:
            grade = result.grades["judge"]
            assert isinstance(grade, Graded)
            assert grade.metadata is not None
            assert grade.metadata["label_mass"] == pytest.approx(0.9)
            assert grade.usage is not None
            assert grade.usage.cached_tokens == 3
        assert set(server.paths) == {"/generate"}
        sent = server.bodies[-1]
        assert sent["sampling_params"] == {"max_new_tokens": 1, "temperature": 0.0}
        assert sent.keys() == {
            "input_ids",
            "sampling_params",
            "return_logprob",
            "logprob_start_len",
            "token_ids_logprob",
        }
        server.drop = True  # a server that stops to tell them pays nothing
        async with GradingRunner([JudgeGrader(judge)]) as runner:
            results = await runner.run(ROLLOUTS[:1])
        assert isinstance(results[0].grades["judge"], Failed)


async def test_written_verdicts(tokenizer: Path) -> None:
    server = SGLang()
    server.reply = '{"reason": "so", "score": 1}'
    async with serving(server) as url:
        judge = OpenAIJudge(url, tokenizer=tokenizer, extra_body={"priority": 3})
        verdict = JsonVerdict(nonce=False)
        grader = JudgeGrader(judge, verdict=verdict, sampling=Sampling(temperature=0.5, seed=4))
        async with GradingRunner([grader]) as runner:
            (result,) = await runner.run(ROLLOUTS[:1])
        assert isinstance(result.grades["judge"], Graded)
        sent = server.bodies[-1]
        assert sent["priority"] == 3
        assert json.loads(sent["sampling_params"].pop("json_schema")) == verdict.json_schema
        assert sent["sampling_params"] == {
            "max_new_tokens": 512,
            "temperature": 0.5,
            "top_p": 1.0,
            "sampling_seed": 4,
        }


async def test_an_adapter_answers_and_not_its_base(tokenizer: Path) -> None:
    """`/generate` knows no names of models, but of adapters."""
    server = SGLang()
    server.adapter = "mine"
    async with serving(server) as url:
        base, mine = (OpenAIJudge(url, model=name, tokenizer=tokenizer) for name in ("judge", "mine"))
        for judge in (base, mine):
            async with GradingRunner([JudgeGrader(judge)]) as runner:
                (result,) = await runner.run(ROLLOUTS[:1])
            assert isinstance(result.grades["judge"], Graded)
        assert server.bodies[-1]["lora_path"] == "mine"
        assert [body["lora_path"] for body in server.bodies if "lora_path" in body] == ["mine"]
        assert await base.identity() != await mine.identity()
        assert "/adapters/mine on /models/judge" in await mine.identity()


async def test_a_lower_priority_goes_first_there_too(tokenizer: Path) -> None:
    """SGLang's highest goes first, unless it runs with --schedule-low-priority-values-first."""
    server = SGLang()
    async with serving(server) as url:
        judge = OpenAIJudge(url, tokenizer=tokenizer)
        async with GradingRunner([JudgeGrader(judge, sampling=Sampling(priority=-2))]) as runner:
            await runner.run(ROLLOUTS[:1])
        assert server.bodies[-1]["priority"] == 2


def test_forms() -> None:
    body = {"model": "m", "max_tokens": 9, "temperature": 0.0, "stop": ["x"], "stop_token_ids": [7]}
    assert generate_body(body, [1, 2]) == {
        "input_ids": [1, 2],
        "sampling_params": {"max_new_tokens": 9, "temperature": 0.0, "stop": ["x"], "stop_token_ids": [7]},
    }
    assert as_completion({"text": "x"}) == {}
    assert as_completion({"text": "x", "meta_info": {"finish_reason": {"type": "abort"}}})["choices"] == [
        {"index": 0, "text": "x", "finish_reason": "abort"}
    ]
