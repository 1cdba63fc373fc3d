"""Servers other than vLLM, in the words that they use: a prompt that is too long, ends of replies, vocabularies, what they refuse."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from aiohttp import web

from judgekit import ConfigError, Failed, Graded, GradingRunner, Retry, Rollout
from judgekit.graders import JudgeGrader
from judgekit.judges import ChoiceVerdict, JsonVerdict, LayerOptions, LineVerdict, OpenAIJudge, stacked
from judgekit.judges.verdicts.formats import VerdictFormat
from judgekit.types import Grade
from tests.judges.servers import serving

Answer = Callable[[Mapping[str, Any]], Any]
LINE = LineVerdict(low=0, high=10, to=(0, 1), nonce=False)
CHOICE = ChoiceVerdict()


def chat(content: Any, end: str = "stop", *, top: Mapping[str, float] | None = None) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": content}}
    choice["finish_reason"] = end
    if top is not None:
        entries = [{"token": token, "logprob": math.log(p)} for token, p in top.items()]
        choice["logprobs"] = {"content": [{**entries[0], "top_logprobs": entries}]}
    return {"choices": [choice]}


WELL = chat("Fine.\n### Final Score: 8")
PROBS = {"1": 0.8, "0": 0.15} | {f"w{i}": 0.0025 for i in range(18)}


async def graded(
    answer: Answer, form: VerdictFormat, text: str = "It is 4.", *, version: str = "", owner: str = ""
) -> Grade:
    """Grade one response by a server that gives *answer* to each chat request: a body, or a status and a body."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": "judge", "owned_by": owner, "max_model_len": 4096}]})
        if request.path == "/version" and version:
            return web.json_response({"version": version})
        if request.path != "/v1/chat/completions":
            return web.json_response({"detail": "Not Found"}, status=404)
        said = answer(await request.json())
        status, body = said if isinstance(said, tuple) else (200, said)
        return web.json_response(body, status=status)

    quick = LayerOptions(retry=Retry(attempts=2, wait_initial_s=0.0), restart_wait_s=0)
    async with serving(handle) as url:
        judge = OpenAIJudge(f"{url}/v1", model="judge")
        grader = JudgeGrader(stacked(judge, quick), verdict=form)
        try:
            async with GradingRunner({"judge": grader}) as grading:
                (result,) = await grading.run([Rollout(prompt="2 + 2?", ground_truth="4", response=text)])
        finally:
            await judge.close()
    return result.grades["judge"]


def score(grade: Grade) -> float:
    assert isinstance(grade, Graded), grade
    return grade.score


TOO_LONG: dict[str, tuple[int, Any]] = {
    "llama.cpp": (
        400,
        {
            "error": {
                "message": "request (6000 tokens) exceeds it",
                "type": "exceed_context_size_error",
                "code": 400,
            }
        },
    ),
    "TGI": (422, {"error": "`inputs` tokens + `max_new_tokens` must be <= 4096", "error_type": "validation"}),
    "Together": (422, {"error": {"message": "`inputs` must have less than 4096 tokens. Given: 6000"}}),
    "Groq": (
        400,
        {"error": {"message": "Please reduce it.", "param": "messages", "code": "context_length_exceeded"}},
    ),
    "DashScope": (400, {"error": {"message": "Range of input length should be [1, 4096]"}}),
    "TensorRT-LLM": (400, {"message": "The prompt should not exceed max_num_tokens (4096)"}),
    "LMDeploy": (400, {"message": "The input length 6000 exceeds the session length 4096"}),
    "a proxy": (413, "Request Entity Too Large"),
    "llama-cpp-python": (
        500,
        {"error": {"message": "Requested tokens (6000) exceed context window of 4096"}},
    ),
    "Anthropic": (400, {"error": {"message": "prompt is too long: 6000 tokens > 4096 maximum"}}),
}


@pytest.mark.parametrize("server", TOO_LONG)
async def test_a_prompt_that_is_too_long_in_a_servers_own_words_is_cut(server: str) -> None:
    def answer(body: Mapping[str, Any]) -> Any:
        return TOO_LONG[server] if sum(len(m["content"]) for m in body["messages"]) > 9000 else WELL

    assert score(await graded(answer, LINE, "Step. " * 4000)) == 0.8


async def test_a_server_that_took_too_long_cuts_nothing() -> None:
    grade = await graded(lambda _: (500, {"error": {"message": "the worker took too long"}}), LINE)
    assert isinstance(grade, Failed)
    assert grade.error == "JudgeUnavailable"


@pytest.mark.parametrize("end", ["stop", "eos_token", "stop_sequence", "STOP", "end_turn", "eos"])
async def test_ends_of_replies_in_other_words_are_ends(end: str) -> None:
    assert score(await graded(lambda _: chat("### Final Score: 8", end), LINE)) == 0.8


@pytest.mark.parametrize("end", ["length", "MAX_TOKENS", "model_length", "max_tokens"])
async def test_so_are_those_of_replies_that_were_cut(end: str) -> None:
    grade = await graded(lambda _: chat("### Final Score: 1", end), LINE)
    assert isinstance(grade, Failed)
    assert grade.error == "VerdictError"


@pytest.mark.parametrize("kind", ["reasoning", "thinking", "reasoning_text", "summary_text", "refusal"])
async def test_only_parts_of_type_text_are_text(kind: str) -> None:
    thought = {"type": kind, "text": "### Final Score: 2"}
    grade = await graded(lambda _: chat([thought]), LINE)
    assert isinstance(grade, Failed)
    assert grade.error == "JudgeUnavailable"
    said = {"type": "text", "text": "\n### Final Score: 8"}
    assert score(await graded(lambda _: chat([thought, said]), LINE)) == 0.8
    assert score(await graded(lambda _: chat(["### Final", " Score: 8"]), LINE)) == 0.8


async def test_an_error_that_comes_as_a_success_keeps_its_words() -> None:
    grade = await graded(lambda _: {"error": {"message": "Your quota of today is spent", "code": 429}}, LINE)
    assert isinstance(grade, Failed)
    assert "Your quota of today is spent" in grade.detail


@pytest.mark.parametrize("piece", ["{}", " {}", "Ġ{}", "▁{}", "<0x{:02X}>", "{}Ċ"])
async def test_labels_are_found_among_the_pieces_of_a_vocabulary(piece: str) -> None:
    shown = {piece.format(ord(t) if "X" in piece else t) if t in "01" else t: p for t, p in PROBS.items()}
    assert score(await graded(lambda _: chat("1", top=shown), CHOICE)) == pytest.approx(0.8 / 0.95)


async def test_the_same_entry_twice_is_not_added_up() -> None:
    def answer(_: Any) -> Any:
        found = chat("1", top=PROBS)
        entries = found["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        entries.insert(0, dict(entries[0]))
        return found

    assert score(await graded(answer, CHOICE)) == pytest.approx(0.8 / 0.95)


@pytest.mark.parametrize(
    ("version", "owner"), [("1.2.0", ""), ("v3.1.0 (abcdef)", ""), ("0.9.1", "lmdeploy")]
)
async def test_who_has_a_page_of_its_version_is_not_therefore_vllm(version: str, owner: str) -> None:
    def answer(body: Mapping[str, Any]) -> Any:
        if "structured_outputs" in body:
            return (400, {"message": "extra inputs are not permitted: structured_outputs"})
        return chat("1", top=dict(list(PROBS.items())[: body["top_logprobs"]]))

    grade = await graded(answer, CHOICE, version=version, owner=owner)
    assert score(grade) == pytest.approx(0.8 / 0.95)


@pytest.mark.parametrize("version", ["", "0.21.0"])
async def test_a_server_that_refuses_everything_is_an_error_at_the_start(version: str) -> None:
    no = (400, {"message": "you must provide a chat template if the tokenizer does not define one"})
    with pytest.raises(ConfigError, match="must provide a chat template"):
        await graded(lambda _: no, LINE, version=version)


@pytest.mark.parametrize(
    "said",
    [
        "Requested sample logprobs of {}, which is greater than max allowed: 5",
        "logprobs: value must be between 0 and 5, not {}",
        "Invalid value for 'top_logprobs': must be at most 5",
    ],
)
async def test_as_many_logprobs_are_asked_for_as_a_server_has(said: str) -> None:
    def answer(body: Mapping[str, Any]) -> Any:
        if body.get("top_logprobs", 0) > 5:
            return (400, {"message": said.format(body["top_logprobs"])})
        return chat("1", top=dict(list(PROBS.items())[:5]))

    assert score(await graded(answer, CHOICE)) == pytest.approx(0.8 / 0.95)


async def test_a_grammar_that_is_refused_is_left_out() -> None:
    def answer(body: Mapping[str, Any]) -> Any:
        if "response_format" in body:
            return (400, {"error": {"message": "Failed to parse grammar"}})
        code = json.dumps(body).rpartition('code\\": \\"')[2][:10]
        return chat(json.dumps({"code": code, "reason": "", "score": 1}))

    assert score(await graded(answer, JsonVerdict())) == 1.0


async def test_vllm_behind_a_gateway_without_its_pages_is_asked_all_the_same() -> None:
    assert score(await graded(lambda _: WELL, LINE, "Step. " * 4000, version="0.21.0")) == 0.8
