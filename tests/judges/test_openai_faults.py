"""OpenAIJudge never makes a number of a failure, and a failure of one request stays with it."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Mapping
from importlib import resources
from typing import Any

import pytest

from judgekit import (
    ConfigError,
    Failed,
    Graded,
    GradingRunner,
    JudgeRejected,
    JudgeUnavailable,
    Rollout,
    RolloutError,
)
from judgekit.graders import JudgeGrader
from judgekit.judges import ChoiceVerdict, JudgeRequest, LineVerdict, OpenAIJudge, Piece, Sampling, Turn
from judgekit.judges.layers.stack import CacheOptions, LayerOptions, stacked

from .fake_server import FakeServer, Handler, says
from .test_openai import ask

pytest.importorskip("aiohttp")
EMBEDDED = resources.files("judgekit.judges") / "embedded"
BUSY = says("busy", status=503)
NO_SUCH_FIELD = says('{"error": {"message": "unknown field"}}', status=400)


def top(**logprobs: float) -> Handler:
    """A chat completion whose first token has these probabilities."""
    entries = [{"token": t, "logprob": math.log(p) if p > 0 else p} for t, p in logprobs.items()]
    first = {**entries[0], "top_logprobs": entries}
    choice = {"index": 0, "message": {"content": "1"}, "logprobs": {"content": [first]}}
    return says(json.dumps({"choices": [choice]}))


def rollouts(count: int) -> list[Rollout]:
    return [
        Rollout(prompt="p", ground_truth="1", response=f"candidate {i}", group=i // 4) for i in range(count)
    ]


# ---- what a server can do


@pytest.mark.parametrize("path", ["/v1/models", "/version", "/tokenize", "/v1/chat/completions"])
async def test_an_error_that_passes_downgrades_nothing(path: str) -> None:
    async with FakeServer("vllm") as server:
        server.once[path] = [BUSY]
        judge = OpenAIJudge(server.url)
        with pytest.raises(JudgeUnavailable):
            await judge.complete(ask())
        reply = await judge.complete(ask())
        assert reply.label_mass == pytest.approx(0.9)  # read in full: the server can send it
        assert "logprob_token_ids" in server.bodies[-1]
        await judge.close()


@pytest.mark.parametrize("body", ['{"error": {"message": "busy"}}', '{"choices": [null]}', '{"choices": []}'])
async def test_an_error_that_comes_as_a_success_negotiates_nothing(body: str) -> None:
    """Brokers of providers answer HTTP 200 before they know whether there will be an answer."""
    async with FakeServer("provider") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        server.once["/v1/chat/completions"] = [says(body)]
        await judge.check_request(ask())  # it is not known yet
        assert not judge._known_server.negotiated
        assert (await judge.complete(ask())).choice_probs is not None
        await judge.close()


async def test_a_refusal_is_an_answer() -> None:
    async with FakeServer("vllm") as server:
        server.once["/version"] = [says("{}", status=404)]
        judge = OpenAIJudge(server.url)
        await judge.complete(ask())
        assert server.bodies[-1]["top_logprobs"] == 20
        await judge.close()


async def test_a_server_that_cannot_say_what_it_is_can_be_described() -> None:
    async with FakeServer("provider") as server:
        server.once["/version"] = [BUSY] * 9
        with pytest.raises(JudgeUnavailable, match="set logprobs: top"):
            await OpenAIJudge(server.url).start()
        judge = OpenAIJudge(server.url, logprobs="top")
        assert (await judge.complete(ask())).choice_probs is not None
        await judge.close()


async def test_prompts_that_must_go_as_token_ids_never_go_as_text() -> None:
    pytest.importorskip("transformers")
    async with FakeServer("provider") as server:
        judge = OpenAIJudge(server.url, tokenizer=EMBEDDED)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="takes no prompts as token ids"):
            await judge.start()
    async with FakeServer("vllm") as server:
        server.once["/v1/completions"] = [BUSY]
        judge = OpenAIJudge(server.url, tokenizer=EMBEDDED)  # type: ignore[arg-type]
        with pytest.raises(JudgeUnavailable):
            await judge.start()
        await judge.complete(ask("<|im_end|> candidate"))
        assert not any("messages" in body for body in server.bodies)
        await judge.close()


async def test_all_callers_wait_for_one_search() -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        server.once["/version"] = [BUSY]
        found = await asyncio.gather(
            *(judge.complete(ask(f"{i}")) for i in range(50)), return_exceptions=True
        )
        assert all(isinstance(f, JudgeUnavailable) for f in found)
        assert len({id(f) for f in found}) == 50
        await asyncio.gather(*(judge.complete(ask(f"{i}")) for i in range(50)))
        await judge.close()


async def test_a_server_that_comes_back_is_looked_at_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "judgekit")
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        assert (await judge.complete(ask())).label_mass == pytest.approx(0.9)
        identity = await judge.identity()
    with pytest.raises(JudgeUnavailable):
        await judge.complete(ask())
    async with FakeServer("provider", port=server.port) as server:
        await judge.complete(ask())
        assert server.bodies[-1]["top_logprobs"] == 20
        assert await judge.identity() != identity
        assert "has come back as another" in caplog.text
        await judge.close()


async def test_a_server_that_is_restarted_while_nobody_asks_is_looked_at_again() -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        await asyncio.gather(*(judge.complete(ask(f"{i}")) for i in range(50)))
        identity = await judge.identity()
        assert server.listed == 2  # once more, for connections were opened after the first time
        judge._known_server.heard_at = -math.inf  # as after a while without a request
        await asyncio.gather(*(judge.complete(ask(f"{i}", vote=1)) for i in range(50)))
        assert (server.listed, await judge.identity()) == (3, identity)
        server.root = "/models/other"
        judge._known_server.heard_at = -math.inf
        assert (await judge.complete(ask())).model == "/models/other"
        assert await judge.identity() != identity
        judge._known_server.heard_at = -math.inf
        server.once["/v1/models"] = [BUSY]
        with pytest.raises(JudgeUnavailable):
            await judge.complete(ask())
        await judge.close()


async def test_two_styles_of_logprobs_do_not_meet_on_one_server() -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        with pytest.raises(ConfigError, match="in two styles, labels and constrained"):
            await OpenAIJudge(server.url, logprobs="constrained").start()
        await OpenAIJudge(server.url, logprobs="labels").start()
        await judge.close()


# ---- what a reply holds


async def test_a_constraint_that_was_not_honoured_is_no_verdict() -> None:
    async with FakeServer("old vllm") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        server.fault = top(Sure=0.9, **{"1": 1e-6, "0": 1e-9})
        reply = await judge.complete(ask())
        assert reply.label_mass == pytest.approx(1e-6, rel=0.01)
        results = await GradingRunner({"judge": JudgeGrader(judge)}).run(rollouts(4))
        assert all(isinstance(r.grades["judge"], Failed) and r.reward is None for r in results)
        await judge.close()


@pytest.mark.parametrize("kind", ["old vllm", "provider"])
@pytest.mark.parametrize(
    "logprobs", [{"1": 0.3}, {"1": 0.3, "!": 0.0}, {"1": 0.5, "0": math.nan}, {"1": 0.5, "0": 7.0}]
)
async def test_every_label_s_probability_must_be_there(kind: str, logprobs: Mapping[str, float]) -> None:
    """The second case is what vLLM sends where two styles meet in one batch."""
    async with FakeServer(kind) as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        entries = [
            {"token": t, "logprob": math.log(p) if 0 < p < 1 else {0.0: -9999.0}.get(p, p)}
            for t, p in logprobs.items()
        ]
        first = {**entries[0], "top_logprobs": entries}
        choice = {"index": 0, "message": {"content": "1"}, "logprobs": {"content": [first]}}
        server.fault = says(json.dumps({"choices": [choice]}))
        with pytest.raises(JudgeUnavailable, match=r"left out the probability|the logprob of"):
            await judge.complete(ask())
        await judge.close()


@pytest.mark.parametrize(
    ("logprob", "error", "told"),
    [(0.0, "JudgeUnavailable", "add up to 4"), (-math.inf, "VerdictError", "hold 0 of the probability")],
)
async def test_probabilities_that_cannot_be_or_are_none_are_no_verdict(
    logprob: float, error: str, told: str
) -> None:
    """A server that tells the same number for every token would be a judge that always says one half."""
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        entries = [{"token": f"token_id:{i}", "logprob": logprob} for i in (10, 20, 11, 21)]
        choice = {
            "index": 0,
            "message": {"content": "1"},
            "logprobs": {"content": [{**entries[0], "top_logprobs": entries}]},
        }
        server.fault = says(json.dumps({"choices": [choice]}))
        grader = JudgeGrader(judge, verdict=ChoiceVerdict(min_mass=0.0))
        (result,) = await GradingRunner({"judged": grader}).run(rollouts(1))
        grade = result.grades["judged"]
        assert isinstance(grade, Failed)
        assert grade.error == error
        assert told in grade.detail
        await judge.close()


async def test_a_logprob_beyond_all_floats_is_a_probability_of_nothing() -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        entries = [
            {"token": f"token_id:{i}", "logprob": -0.1 if i == 11 else -(10**400)} for i in (10, 20, 11, 21)
        ]
        choice = {"index": 0, "logprobs": {"content": [{**entries[2], "top_logprobs": entries}]}}
        server.fault = says(json.dumps({"choices": [choice]}))
        assert (await judge.complete(ask())).choice_probs == {"0": 0.0, "1": 1.0}
        await judge.close()


async def test_a_label_that_is_left_out_by_id_is_no_zero() -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        server.fault = top(**{"token_id:11": 0.5, "token_id:21": 0.01, "token_id:10": 0.3})  # not 20
        with pytest.raises(JudgeUnavailable, match="left out the probability of the label '0'"):
            await judge.complete(ask())
        await judge.close()


async def test_labels_beyond_the_most_likely_tokens_hold_next_to_nothing() -> None:
    async with FakeServer("provider") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        server.fault = top(**{"1": 0.995, "Sure": 0.005})
        reply = await judge.complete(ask())
        assert reply.choice_probs == {"0": 0.0, "1": 1.0}
        await judge.close()


async def test_tokens_that_look_alike_count_together() -> None:
    """A sentencepiece model shows 0 with and without the space before it as the same text."""
    async with FakeServer("provider") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        tops = [("1", 0.5), ("0", 0.375), ("0", 0.0625), ("Sure", 0.05)]
        entries = [{"token": token, "logprob": math.log(p)} for token, p in tops]
        choice = {"index": 0, "logprobs": {"content": [{**entries[0], "top_logprobs": entries}]}}
        server.fault = says(json.dumps({"choices": [choice]}))
        reply = await judge.complete(ask())
        assert reply.label_mass == pytest.approx(0.9375)
        assert reply.choice_probs == pytest.approx({"1": 0.5 / 0.9375, "0": 0.4375 / 0.9375})
        await judge.close()


async def test_a_token_that_is_no_text_is_no_verdict() -> None:
    async with FakeServer("provider") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        server.fault = says('{"choices": [{"index": 0, "logprobs": {"top_logprobs": [[[5, -0.1]]]}}]}')
        with pytest.raises(JudgeUnavailable, match="sent no logprobs"):
            await judge.complete(ask())
        await judge.close()


@pytest.mark.parametrize("count", [0, 2])
async def test_as_many_choices_as_prompts(count: int) -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        choice = {"message": {"content": "### Final Score: 1"}, "finish_reason": "stop"}
        server.fault = says(json.dumps({"choices": [{"index": i, **choice} for i in range(count)]}))
        with pytest.raises(JudgeUnavailable, match=rf"sent {count} choices for 1 prompt"):
            await judge.complete(ask(choices=(), max_tokens=100))
        await judge.close()


@pytest.mark.parametrize("field", ["n", "messages", "logprobs", "stream"])
def test_fields_that_replies_are_read_by_are_ours(field: str) -> None:
    with pytest.raises(ConfigError, match=f"extra_body must not set {field}"):
        OpenAIJudge("http://h", extra_body={field: 2})


async def test_a_server_that_comes_back_as_another_does_not_end_what_the_first_one_thought() -> None:
    pytest.importorskip("transformers")
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url, tokenizer=EMBEDDED)  # type: ignore[arg-type]
        await judge.start()
        assert judge._known_server.encoder is not None
        template = judge._known_server.encoder._tokenizer.chat_template
        judge._known_server.encoder._tokenizer.chat_template = template + "{# <think> </think> #}"
        request = ask(sampling=Sampling(thinking=True, thinking_tokens=64))
        assert (await judge.complete(request)).usage.calls == 2

        async def replaced(asked: Any) -> Any:
            server.models = ("other",)
            judge._known_server.stale = True  # as after a lost connection
            return await server.well(asked)

        server.once["/v1/completions"] = [replaced]
        with pytest.raises(JudgeUnavailable, match="has come back as another"):
            await judge.complete(request)
        assert (await judge.complete(request)).usage.calls == 2
        await judge.close()


# ---- several prompts in one POST


async def test_a_prompt_that_cannot_be_encoded_costs_only_itself() -> None:
    pytest.importorskip("transformers")
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url, tokenizer=EMBEDDED)  # type: ignore[arg-type]
        await judge.start()
        assert judge._known_server.encoder is not None
        encode = judge._known_server.encoder.encode

        def hostile(turns: Any, **options: Any) -> Any:
            if "hostile" in turns[-1].text:
                raise RolloutError("a control token")
            return encode(turns, **options)

        judge._known_server.encoder.encode = hostile  # type: ignore[method-assign]
        texts = [f"candidate {i}" for i in range(15)] + ["hostile"]
        found = await asyncio.gather(*(judge.complete(ask(t)) for t in texts), return_exceptions=True)
        assert [isinstance(f, RolloutError) for f in found] == [False] * 15 + [True]
        assert not any(isinstance(f, Exception) for f in found[:-1])
        await judge.close()


async def test_one_refused_prompt_of_a_batch_is_found_in_few_posts() -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        posts = 0

        async def picky(request: Any) -> Any:
            nonlocal posts
            posts += 1
            body = await request.json()
            if "hostile" in json.dumps(body["messages"]):
                return await NO_SUCH_FIELD(request)
            return await server.well(request)

        server.fault = picky
        texts = [f"candidate {i}" for i in range(31)] + ["candidate hostile"]
        found = await asyncio.gather(*(judge.complete(ask(t)) for t in texts), return_exceptions=True)
        assert [type(f).__name__ for f in found] == ["JudgeReply"] * 31 + ["JudgeRejected"]
        assert posts <= 11
        await judge.close()


async def test_a_server_that_answers_only_the_first_of_a_list_is_asked_one_by_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()  # two prompts together are answered

        async def first_only(request: Any) -> Any:
            if not request.path.endswith("batch"):
                return await server.well(request)
            body = await request.json()
            return await says(json.dumps({"choices": [{"index": 0, **server._choice(body)}]}))(request)

        server.fault = first_only
        replies = await asyncio.gather(*(judge.complete(ask(f"candidate {i}")) for i in range(20)))
        assert all(r.choice_probs == pytest.approx({"0": 0.25, "1": 0.75}) for r in replies)
        assert caplog.text.count("prompts are sent one by one from now on") == 1
        await judge.close()


async def test_numbers_of_choices_that_are_none_are_errors_of_ours() -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()

        async def odd(request: Any) -> Any:
            if not request.path.endswith("batch"):
                return await server.well(request)
            count = len((await request.json())["messages"])
            return await says(json.dumps({"choices": [{"index": [i]} for i in range(count)]}))(request)

        server.fault = odd
        replies = await asyncio.gather(*(judge.complete(ask(f"candidate {i}")) for i in range(3)))
        assert [r.text for r in replies] == ["1"] * 3  # asked one by one
        await judge.close()


async def test_a_server_looked_at_again_meanwhile_changes_no_reply_that_is_on_its_way() -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        await judge.complete(ask("candidate"))
        arrived, go_on = server.hold()
        call = asyncio.create_task(judge.complete(ask("candidate 2")))
        await arrived.wait()
        server.fault = None
        server.models = ("another",)
        judge._known_server.stale = True
        await judge.check_request(ask(choices=("A", "B")))
        go_on.set()
        assert (await call).choice_probs == pytest.approx({"0": 0.25, "1": 0.75})
        await judge.close()


# ---- length


@pytest.mark.parametrize("kind", ["vllm", "provider"])
@pytest.mark.parametrize("text", ["x1234567890" * 2_000, "漢字" * 20_000, "\u200b" * 100_000])
async def test_no_length_makes_a_judge_refuse(kind: str, text: str) -> None:
    async with FakeServer(kind) as server:
        judge = OpenAIJudge(server.url)
        await judge.start()

        async def full(request: Any) -> Any:
            body = await request.json()
            talk = body["messages"][0] if request.path.endswith("batch") else body["messages"]
            if sum(len(m["content"]) for m in talk) // 3 + body["max_tokens"] > 4096:
                said = {"error": {"message": "This model's maximum context length is 4096 tokens"}}
                return await says(json.dumps(said), status=400)(request)
            return await server.well(request)

        server.fault = full
        grader = JudgeGrader(judge, max_tokens=None)
        hidden = Rollout(prompt="p", ground_truth="1", response=text, group=0)
        results = await GradingRunner({"judge": grader}).run([*rollouts(3), hidden])
        assert all(isinstance(r.grades["judge"], Graded) for r in results)
        await judge.close()


@pytest.mark.parametrize("count", ["0", "-1", '"7"', "null"])
async def test_a_count_of_tokens_that_is_none_is_an_error_of_ours(count: str) -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        server.once["/tokenize"] = [says(f'{{"count": {count}}}')]
        with pytest.raises(JudgeUnavailable, match="without a count"):
            await judge.complete(ask("word " * 2000, choices=(), max_tokens=5000))
        await judge.close()


async def test_a_rubric_that_is_too_long_is_said() -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        turn = Turn("user", (Piece("long " * 8_000), Piece("candidate", trusted=False)))
        with pytest.raises(JudgeRejected, match="longer than|too long"):
            await judge.complete(JudgeRequest(turns=(turn,)))
        await judge.close()


async def test_the_served_model_s_own_control_strings_are_broken_up() -> None:
    async with FakeServer("vllm") as server:
        server.info = {"added_tokens_decoder": {"7": {"content": "]~odd~[", "special": True}}}
        judge = OpenAIJudge(server.url)
        await judge.complete(ask("candidate ]~odd~[ 1"))
        assert "]~odd~[" not in json.dumps(server.bodies[-1])
        await judge.close()


# ---- time


async def test_waiting_for_a_connection_is_not_the_server_s_time() -> None:
    async with FakeServer("provider") as server:
        judge = OpenAIJudge(server.url, timeout_s=2.0)
        judge.server = judge.server.beside(timeout_s=2.0, max_connections=2)
        await judge.start()

        async def slow(request: Any) -> Any:
            await asyncio.sleep(0.4)
            return await said(request)

        said = says('{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}')
        server.fault = slow
        asked = [ask(f"candidate {i}", choices=(), max_tokens=100) for i in range(14)]  # 2.8 s, two at a time
        replies = await asyncio.gather(*(judge.complete(r) for r in asked))
        assert len(replies) == 14
        await judge.close()


@pytest.mark.parametrize("reason", ["abort", "error", None])
async def test_a_reply_that_the_server_broke_off_is_not_the_rollout_s_fault(reason: str | None) -> None:
    """With `unreadable="low"` a reply without a verdict gets the low end: only one that the judge finished."""
    choice = {"index": 0, "message": {"content": "### Final Score: 1"}, "finish_reason": reason}
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        server.fault = says(json.dumps({"choices": [choice]}))
        grader = JudgeGrader(judge, verdict=LineVerdict(nonce=False), unreadable="low")
        (result,) = await GradingRunner({"judged": grader}).run(rollouts(1))
        grade = result.grades["judged"]
        assert isinstance(grade, Failed)
        assert (grade.error, grade.cause) == ("JudgeUnavailable", "infrastructure")
        assert result.reward is None
        await judge.close()


TOOL_CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("choice", "error"),
    [
        ({"message": None}, "JudgeUnavailable"),
        ({}, "JudgeUnavailable"),
        ({"message": {"content": 7}}, "JudgeUnavailable"),
        ({"message": {"content": None, "reasoning_content": "It is 4."}}, "JudgeUnavailable"),
        ({"message": {"content": None, "tool_calls": [TOOL_CALL]}}, "JudgeUnavailable"),
        ({"message": {"content": "I call"}, "finish_reason": "tool_calls"}, "JudgeUnavailable"),
        ({"message": {"content": "So"}, "finish_reason": "content_filter"}, "JudgeRejected"),
        ({"message": {"content": None}, "finish_reason": "content_filter"}, "JudgeRejected"),
    ],
)
async def test_a_reply_without_a_text_is_not_the_rollout_s_fault(
    choice: Mapping[str, Any], error: str
) -> None:
    """What a provider's filter removed is not what the judge said (OpenAI, Azure: "content was omitted")."""
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        server.fault = says(json.dumps({"choices": [{"index": 0, "finish_reason": "stop", **choice}]}))
        grader = JudgeGrader(judge, verdict=LineVerdict(nonce=False), unreadable="low")
        (result,) = await GradingRunner({"judged": grader}).run(rollouts(1))
        grade = result.grades["judged"]
        assert isinstance(grade, Failed)
        assert (grade.error, grade.cause) == (error, "infrastructure")
        await judge.close()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"content": None, "reasoning_content": "It may be 4, or"}, "length"),
        ({"content": ""}, "stop"),
    ],
)
async def test_what_the_judge_said_without_a_verdict_is_unreadable(message: Any, reason: str) -> None:
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        choice = {"index": 0, "message": message, "finish_reason": reason}
        server.fault = says(json.dumps({"choices": [choice]}))
        grader = JudgeGrader(judge, verdict=LineVerdict(nonce=False))
        (result,) = await GradingRunner({"judged": grader}).run(rollouts(1))
        grade = result.grades["judged"]
        assert isinstance(grade, Failed)
        assert (grade.error, grade.metadata) == ("VerdictError", {"raw": ""})
        await judge.close()


async def test_half_a_character_in_a_reply_costs_no_verdict() -> None:
    """An emoji cut in half, which no cache and no ledger can write."""
    message = {"content": "good \ud83d\n### Final Score: 1"}
    async with FakeServer("vllm") as server:
        judge = stacked(OpenAIJudge(server.url), LayerOptions(cache=CacheOptions()))
        await judge.start()
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        server.fault = says(json.dumps({"choices": [choice]}))
        grader = JudgeGrader(judge, verdict=LineVerdict(nonce=False))
        (result,) = await GradingRunner({"judged": grader}).run(rollouts(1))
        assert result.reward == 1.0
        await judge.close()


async def test_a_reply_in_parts_is_read_without_its_thinking() -> None:
    """As Mistral's models that think reply."""
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "### Final Score: 0"}]},
        {"type": "text", "text": "### Final"},
        {"type": "text", "text": " Score: 1"},
    ]
    choice = {"index": 0, "message": {"content": parts}, "finish_reason": "stop"}
    async with FakeServer("vllm") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        server.fault = says(json.dumps({"choices": [choice]}))
        reply = await judge.complete(ask(choices=(), max_tokens=100))
        assert reply.text == "### Final Score: 1"
        await judge.close()
