"""Trainers' own forms: requests as their clients' sources send them, and answers that these understand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from judgekit import GradingRunner, JudgeUnavailable, Rollout, Switch, Turns, grader
from judgekit.graders import FinalAnswer
from judgekit.graders.function import group_grader
from judgekit.service.forms import OpenRLHF, Verify

from .serving import Gate, serving, until


@grader
def picky(response: str) -> float:
    if "bad" in response:
        raise JudgeUnavailable("the judge is down")
    return 1.0


@group_grader
def rank(rollouts: Any) -> list[float]:
    order = sorted(range(len(rollouts)), key=lambda i: len(rollouts[i].response))
    return [order.index(i) / (len(rollouts) - 1) for i in range(len(rollouts))]


def openrlhf(response: str, *, prompt: str = "<user>2+2?<bot>", label: str = "4") -> dict[str, Any]:
    return {"query": [prompt + response], "prompts": [prompt], "labels": [label]}


def slime(response: str, *, prompt: Any = "2+2?", label: str | None = "4") -> dict[str, Any]:
    return {"prompt": prompt, "response": response, "label": label}


def verify(response: str, **more: Any) -> dict[str, Any]:
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": response, "annotations": []}],
    }
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "2+2?"}]},
        "response": {"id": "r", "object": "response", "output": [said]},
        "expected_answer": "4",
        **more,
    }


def roll(response: str, **more: Any) -> dict[str, Any]:
    return {
        "priority": 0,
        "project_id": "p",
        "experiment_id": "e",
        "global_step": 1,
        "data_id": "d1",
        "rollout_id": "r1",
        "prompt": "2+2?",
        "response": response,
        "reward_info": {"ground_truth": "4"},
        "reward_manager": [{"plugin_name": "judgekit"}],
        "timeout": 300,
        **more,
    }


CORRECT = {"correct": FinalAnswer()}


@pytest.mark.parametrize("place", ["the row", "its verifier_metadata"])
async def test_a_row_s_data_source_chooses_the_reward(place: str) -> None:
    runner = GradingRunner(CORRECT, Switch({"math": "correct"}, otherwise=0.5), missing_reward=0.25)
    row = {"data_source": "math", "reward_model": {"ground_truth": "4"}, "expected_answer": "It is four."}
    given = row if place == "the row" else {"verifier_metadata": row}
    plain = {name: value for name, value in verify("#### 4").items() if name != "expected_answer"}
    async with serving(runner) as address:
        assert (await address.post("/verify", {**plain, **given})).json["reward"] == 1.0
        other = {**row, "data_source": "other"}
        given = other if place == "the row" else {"verifier_metadata": other}
        assert (await address.post("/verify", {**plain, **given})).json["reward"] == 0.5


# ---- OpenRLHF: one request a sample, numbers instead of lists


async def test_openrlhf_gets_numbers() -> None:
    async with serving(GradingRunner(CORRECT, missing_reward=0.5)) as address:
        right = (await address.post("/openrlhf", openrlhf("#### 4"))).json
        wrong = (await address.post("/openrlhf", openrlhf("#### 5"))).json
    assert right == {
        "rewards": 1.0,
        "scores": 1.0,
        "extra_logs": {"judgekit_missing": 0.0, "judgekit_correct_missing": 0.0},
    }
    assert wrong["rewards"] == 0.0


async def test_openrlhf_logs_have_the_same_keys_and_only_numbers_for_every_sample() -> None:
    async with serving(GradingRunner([picky], missing_reward=0.25)) as address:
        good = (await address.post("/openrlhf", openrlhf("good"))).json
        bad = (await address.post("/openrlhf", openrlhf("bad"))).json
    assert good["extra_logs"].keys() == bad["extra_logs"].keys()
    assert bad == {
        "rewards": 0.25,
        "scores": 0.25,
        "extra_logs": {"judgekit_missing": 1.0, "judgekit_picky_missing": 1.0},
    }


async def test_openrlhf_in_lists_of_several_gets_lists() -> None:
    body = {"query": ["a#### 4", "b#### 5"], "prompts": ["a", "b"], "labels": ["4", "4"]}
    async with serving(GradingRunner(CORRECT, missing_reward=0.5)) as address:
        got = (await address.post("/openrlhf", body)).json
    assert got["rewards"] == [1.0, 0.0]
    assert got["extra_logs"]["judgekit_missing"] == [0.0, 0.0]


PROMPT = "<user>Say bad words, or the number 12345678.<bot>"


@pytest.mark.parametrize(
    ("query", "response"),
    [
        (PROMPT + "fine", "fine"),
        (PROMPT[20:] + "fine", "fine"),  # cut from the left, to the prompt's limit of tokens
        (PROMPT[-8:] + "fine" + PROMPT, "fine" + PROMPT),
        (PROMPT[-20:] + PROMPT[-20:], PROMPT[-20:]),
        (PROMPT, ""),
        ("fine", None),
        ("bot>fine", None),
        ("fine" + PROMPT, None),
        ("", None),
    ],
)
def test_openrlhf_texts_end_where_the_response_begins(query: str, response: str | None) -> None:
    from judgekit.service.reading import Refusal

    body = f'{{"query": ["{query}"], "prompts": ["{PROMPT}"], "labels": [null]}}'.encode()
    if response is None:
        with pytest.raises(Refusal, match="does not begin with its prompt"):
            OpenRLHF().read(body, {})
    else:
        (rollout,) = OpenRLHF().read(body, {}).rollouts
        assert rollout.response == response


async def test_openrlhf_special_tokens_are_taken_out_where_the_address_names_them() -> None:
    seen: list[Rollout] = []

    class Reads:
        name, version, score_range, inputs = "reads", "1", (0.0, 1.0), ("response",)

        def grade(self, rollout: Rollout) -> float:
            seen.append(rollout)
            return 1.0

    async with serving(GradingRunner([Reads()], missing_reward=0.0)) as address:
        await address.post("/openrlhf?strip=<eos>,<pad>", openrlhf("4<eos><pad>"))
        await address.post("/openrlhf", openrlhf("4<eos>"))
    assert [rollout.response for rollout in seen] == ["4", "4<eos>"]
    assert seen[0].prompt == "<user>2+2?<bot>"


# ---- slime


async def test_slime_gets_an_object_with_the_reward() -> None:
    async with serving(GradingRunner(CORRECT, missing_reward=0.5)) as address:
        got = (await address.post("/slime", slime("#### 4"))).json
        chat = (
            await address.post("/slime", slime("#### 5", prompt=[{"role": "user", "content": "2+2?"}]))
        ).json
        none = (await address.post("/slime", slime("#### 5", label=None))).json
    assert got == {"reward": 1.0, "status": "scored", "scores": {"correct": 1.0}}
    assert chat["reward"] == 0.0
    assert (none["reward"], none["status"], none["scores"]) == (0.5, "constant", {})


async def test_turns_stand_beside_the_reward() -> None:
    """Where the tree pays turns: in our own form, and in those that have room for them."""

    @grader(per="turn")
    def share(turn: str) -> float:
        return min(len(turn), 10) / 10

    more = {"type": "function_call_output", "call_id": "1", "output": "seen"}
    row = verify("four")
    row["response"]["output"] += [more, *verify("4")["response"]["output"]]
    async with serving(GradingRunner({"share": share}, Turns("share"), missing_reward=0.0)) as address:
        own = (await address.post("/v1/rewards", {"rollouts": [{"response": "four", "prompt": "q"}]})).json
        checked = (await address.post("/verify", row)).json
        single = (await address.post("/slime", slime("four"))).json
    assert (own["results"][0]["reward"], own["results"][0]["turns"]) == (0.4, [0.4])
    assert (checked["reward"], checked["judgekit_turns"]) == (0.5, [0.4, 0.1])
    assert single == {"reward": 0.4, "status": "scored", "scores": {"share": 0.4}, "turns": [0.4]}


async def test_slime_groups_are_ranked_when_their_members_come_together() -> None:
    async with serving(GradingRunner([rank])) as address:
        bodies = [slime("x" * n, label=label) for n in (3, 1, 2) for label in "ab"]
        got = await asyncio.gather(*(address.post("/slime?group=3", body) for body in bodies))
        assert [reply.json["reward"] for reply in got] == [1.0, 1.0, 0.0, 0.0, 0.5, 0.5]
        assert address.service.lanes.waiting == 0


async def test_a_missing_reward_is_the_mean_of_a_group_that_is_collected() -> None:
    async with serving(GradingRunner([picky]), group=3) as address:
        got = await asyncio.gather(
            *(address.post("/slime", slime(text)) for text in ("good 1", "bad", "good 2"))
        )
    assert [(reply.json["reward"], reply.json["status"]) for reply in got] == [
        (1.0, "scored"),
        (1.0, "neutral"),
        (1.0, "scored"),
    ]


async def test_a_group_is_waited_for_no_longer_than_is_said() -> None:
    async with serving(GradingRunner([rank]), group_wait_s=0.05) as address:
        got = await asyncio.gather(*(address.post("/slime?group=3", slime("x" * n)) for n in (1, 2)))
    assert [reply.json["reward"] for reply in got] == [0.0, 1.0]


async def test_what_needs_nobody_else_does_not_wait_for_its_group() -> None:
    async with serving(GradingRunner([picky])) as address:
        assert (await address.post("/slime?group=8", slime("good"))).json["reward"] == 1.0


# ---- a missing reward, by protocol and setting

LONE: list[tuple[Any, str, Any, Any]] = [
    (
        "exclude",
        "/openrlhf",
        409,
        "missing_reward: exclude needs the rollout's group; add ?group=N to the address",
    ),
    ("neutral", "/openrlhf", 409, "missing_reward: neutral needs the rollout's group"),
    ("mask", "/openrlhf", 409, "missing_reward: mask needs loss masking"),
    ("raise", "/openrlhf", 500, "the judge is down"),
    (0.25, "/openrlhf", 200, 0.25),
    ("exclude", "/slime", 409, "missing_reward: exclude needs the rollout's group"),
    ("neutral", "/slime", 409, "missing_reward: neutral needs the rollout's group"),
    ("mask", "/slime", 409, "missing_reward: mask needs loss masking"),
    ("raise", "/slime", 500, "the judge is down"),
    (0.25, "/slime", 200, 0.25),
    ("exclude", "/verify", 200, True),
    ("neutral", "/verify", 200, True),
    ("mask", "/verify", 200, True),
    ("raise", "/verify", 500, "the judge is down"),
    (0.25, "/verify", 200, False),
    ("exclude", "/strict/verify", 500, "no reward: picky: JudgeUnavailable: the judge is down"),
    ("neutral", "/strict/verify", 500, "no reward: picky: JudgeUnavailable"),
    ("mask", "/strict/verify", 500, "no reward: picky: JudgeUnavailable"),
    ("raise", "/strict/verify", 500, "the judge is down"),
    (0.25, "/strict/verify", 200, False),
]
BODY = {"/openrlhf": openrlhf, "/slime": slime, "/verify": verify, "/strict/verify": verify}


@pytest.mark.parametrize(("setting", "path", "status", "what"), LONE)
async def test_a_failure_is_an_answer_that_the_client_can_tell_from_a_score(
    setting: Any, path: str, status: int, what: Any
) -> None:
    async with serving(GradingRunner([picky], missing_reward=setting)) as address:
        # a good one before: no mean of what was graded before may become its reward
        await address.post(path, BODY[path]("good"))
        reply = await address.post(path, BODY[path]("bad"))
        if status != 200:
            assert reply.error[0] == status
            assert what in reply.error[2]
        elif "verify" in path:
            assert reply.json["mask_sample"] is what
            assert reply.json["instance_config"] == {"mask_sample": what}
            assert reply.json["reward"] == (0.0 if what else setting)
        else:
            assert reply.json.get("reward", reply.json.get("rewards")) == what


async def test_roll_s_client_cannot_be_ended() -> None:
    """It would ask again for minutes, and then pay 0."""
    async with serving(GradingRunner([picky], missing_reward="raise")) as address:
        status, _, message = (await address.post("/roll/submit_task", roll("good"))).error
        assert (status, "then pays 0" in message) == (409, True)


async def test_a_written_number_is_not_paid_while_too_much_fails() -> None:
    """A judge that is down must not become training on its fallback, unseen by a client that knows only numbers."""
    async with serving(GradingRunner([picky], missing_reward=0.25, max_failure_rate=0.25)) as address:
        told = [await address.post("/slime", slime("bad")) for _ in range(6)]
        assert [reply.status for reply in told] == [200] * 4 + [500] * 2
        assert told[-1].error[:2] == (500, "FailureRateError")
        assert (await address.post("/slime", slime("good"))).json["reward"] == 1.0
        for _ in range(20):  # the judge is back
            await address.post("/slime", slime("good"))
        assert (await address.post("/slime", slime("bad"))).json["reward"] == 0.25


@pytest.mark.parametrize("path", ["/openrlhf", "/slime", "/verify", "/strict/verify", "/roll/submit_task"])
async def test_graders_of_groups_are_refused_where_there_is_no_group(path: str) -> None:
    bodies: dict[str, Any] = {**BODY, "/roll/submit_task": roll}
    for runner in (GradingRunner([rank]), GradingRunner([picky], transform="zscore")):
        async with serving(runner) as address:
            status, kind, message = (await address.post(path, bodies[path]("x"))).error
            assert (status, kind) == (409, "ConfigError")
            assert "add ?group=N to the address (or start with --group N)" in message


@pytest.mark.parametrize("group", ["x", "0", "-1", "1025", "1.5", ""])
async def test_a_group_of_no_size_is_refused(group: str) -> None:
    async with serving(GradingRunner([picky], missing_reward=0.0)) as address:
        assert (await address.post(f"/slime?group={group}", slime("x"))).error[0] in (400, 409)


WRONG = [
    ("/openrlhf", {}, "'query' is missing"),
    ("/openrlhf", {"query": "x", "prompts": ["x"]}, "'query' is a list"),
    ("/openrlhf", {"query": ["x"], "prompts": []}, "one entry for each rollout"),
    ("/openrlhf", {"query": [], "prompts": [], "labels": []}, "one entry for each rollout"),
    ("/openrlhf", {"query": ["xy"], "prompts": ["x"], "labels": "4"}, "'labels' is a list of labels, not str"),
    ("/openrlhf", {"query": ["xy"], "prompts": ["x"], "labels": {"a": 1}}, "'labels' is a list of labels"),
    ("/openrlhf", {"query": ["xy"], "prompts": ["x"], "labels": 7}, "'labels' is a list of labels"),
    ("/openrlhf", {"query": [1], "prompts": ["x"]}, "query[0]: the texts"),
    ("/slime", {"prompt": "x"}, "'response' is missing"),
    ("/slime", {"prompt": 1, "response": "x"}, "'prompt' is text or a list of messages, not int"),
    ("/slime", {"prompt": [1], "response": "x"}, "'prompt' is a list of messages"),
    ("/verify", {"response": {}}, "'responses_create_params' is missing"),
    ("/verify", {"responses_create_params": {"input": 1}, "response": {}}, "responses_create_params.input is text or"),
    ("/verify", {"responses_create_params": {"input": "x"}, "response": {}}, "response.output is text or a list"),
    ("/verify", {"responses_create_params": {"input": "x"}, "response": {"output": [1]}}, "response.output[0] is an object"),
    ("/roll/submit_task", {}, "'prompt' is missing"),
    ("/roll/submit_task", {"prompt": "x", "response": "y", "reward_info": 1}, "'reward_info' is an object"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "says"), WRONG)
async def test_what_is_no_request_is_refused(path: str, body: Any, says: str) -> None:
    async with serving(GradingRunner([picky], missing_reward=0.0)) as address:
        status, _, message = (await address.post(path, body)).error
        assert status == 400
        assert says in message
        assert (await address.post(path, b"{")).error[0] == 400
        assert (await address.post(path, [])).error[0] == 400


# ---- NeMo-Gym and verifiers


async def test_verify_echoes_the_row_with_a_reward() -> None:
    row = verify("#### 4", difficulty=3, instance_config={"a": 1}, _ng_task_index=5, _ng_rollout_index=0)
    stale = {"judgekit_judge": 1.0, "mask_sample": True, "reward": 0.0}
    async with serving(GradingRunner(CORRECT)) as address:
        assert (await address.post("/seed_session", {})).json == {}
        got = (await address.post("/verify", row | stale)).json
    assert "judgekit_judge" not in got
    assert {name: got[name] for name in row if name != "instance_config"} == {
        name: value for name, value in row.items() if name != "instance_config"
    }
    assert got["reward"] == 1.0
    assert (got["mask_sample"], got["failure_kind"], got["failure_reason"]) == (False, None, None)
    assert got["instance_config"] == {"a": 1, "mask_sample": False}
    assert got["judgekit_correct"] == 1.0


async def test_a_masked_sample_says_why_and_a_group_gives_it_the_mean() -> None:
    bodies = [verify(text, _ng_task_index=1, _ng_rollout_index=i) for i, text in enumerate(("good", "bad"))]
    async with serving(GradingRunner([picky]), group=2) as address:
        good, bad = await asyncio.gather(*(address.post("/verify", body) for body in bodies))
    assert good.json["mask_sample"] is False
    # NeMo-RL masks the loss, but takes the number into its siblings' baseline
    assert (bad.json["mask_sample"], bad.json["reward"]) == (True, 1.0)
    assert bad.json["failure_kind"] == "judge_failed"
    assert "the judge is down" in bad.json["failure_reason"]


async def test_the_same_slots_in_the_next_step_are_other_samples() -> None:
    """NeMo-Gym counts its tasks and rollouts from 0 in every step."""
    gate = Gate()
    async with serving(GradingRunner([gate])) as address:
        for text in ("step 1", "step 2"):
            await address.post("/verify", verify(text, _ng_task_index=0, _ng_rollout_index=0))
    assert gate.asked == ["step 1", "step 2"]


def test_a_responses_object_becomes_turns() -> None:
    import json

    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hidden thoughts"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "name": "find", "arguments": '{"q": 1}', "call_id": "c1"},
        {"type": "function_call", "name": "find", "arguments": '{"q": 2}', "call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": "two"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is"}, {"type": "output_text", "text": " 3."}]},
    ]  # fmt: skip
    row = {
        "responses_create_params": {"input": "what?"},
        "response": {"output": output},
        "verifier_metadata": {"answer": "3"},
        "_ng_rollout_id": "r7",
        "_ng_task_index": 2,
    }
    asked = Verify().read(json.dumps(row).encode(), {})
    (rollout,) = asked.rollouts
    assert rollout.response == "It is 3."
    assert rollout.prompt == [{"role": "user", "content": "what?"}]
    assert [turn["role"] for turn in rollout.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert rollout.messages[1]["content"] == "I look."
    assert [call["id"] for call in rollout.messages[1]["tool_calls"]] == ["c1", "c2"]
    assert "hidden" not in str(rollout)
    assert (rollout.ground_truth, rollout.id, rollout.group) == ("3", "r7", "2:")
    assert asked.slot


async def test_numbers_that_json_lacks_come_back_in_a_row() -> None:
    async with serving(GradingRunner(CORRECT)) as address:
        reply = await address.post("/verify", verify("#### 4 \ud800", big=10**30, nan=float("nan")))
    assert reply.status == 200
    assert reply.json["reward"] == 1.0


# ---- ROLL


async def test_roll_submits_and_asks() -> None:
    gate = Gate(open=False)
    async with serving(GradingRunner([gate], missing_reward=0.0)) as address:
        told = (await address.post("/roll/submit_task", roll("x"), XRL_Authorization="Bearer k")).json
        assert told["errcode"] == 0
        again = (await address.post("/roll/submit_task", roll("x"))).json
        assert again == told
        asking = asyncio.create_task(
            address.get("/roll/task_result", {"reward_request_id": told["reward_request_id"]})
        )
        await until(lambda: gate.asked)
        gate.opened.set()
        got = (await asking).json
        assert gate.asked == ["x"]
        assert got == {
            "errcode": 0,
            "errmsg": "",
            "reward_score": 1.0,
            "dimention_reward_score": {"gate": {"score": 1.0, "debug_info": {}}},
        }
        other = (await address.get("/roll/task_result", {"reward_request_id": "roll:none"})).json
        assert other["errcode"] == 2


async def test_roll_s_samples_without_an_id_are_not_one_sample() -> None:
    """Two of a policy's samples may be the same text."""
    gate = Gate()
    async with serving(GradingRunner([gate], missing_reward=0.0)) as address:
        told = [(await address.post("/roll/submit_task", roll("x", rollout_id=""))).json for _ in range(2)]
        for one in told:
            asked = {"reward_request_id": one["reward_request_id"]}
            assert (await address.get("/roll/task_result", asked)).json["reward_score"] == 1.0
    assert gate.asked == ["x", "x"]


async def test_roll_is_told_of_a_failure_and_may_submit_again() -> None:
    gate = Gate()
    gate.error = JudgeUnavailable("the judge is down")
    async with serving(GradingRunner([gate], missing_reward=0.25, max_failure_rate=0.25)) as address:
        for i in range(4):  # then a failure is an error, not the written number
            await address.post("/slime", slime(f"before {i}"))
        gate.asked.clear()
        gate.opened.clear()
        told = (await address.post("/roll/submit_task", roll("x"))).json
        asking = asyncio.create_task(
            address.get("/roll/task_result", {"reward_request_id": told["reward_request_id"]})
        )
        await until(lambda: gate.asked)
        gate.opened.set()
        got = (await asking).json
        assert got["errcode"] == 2
        assert "JudgeUnavailable" in got["errmsg"]
        assert "reward_score" not in got
        gate.error = None
        told = (await address.post("/roll/submit_task", roll("x"))).json
        got = (await address.get("/roll/task_result", {"reward_request_id": told["reward_request_id"]})).json
        assert got["reward_score"] == 1.0


async def test_roll_is_told_that_a_task_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("judgekit.service.roll._HOLD_S", 0.01)
    gate = Gate(open=False)
    async with serving(GradingRunner([gate], missing_reward=0.0)) as address:
        told = (await address.post("/roll/submit_task", roll("x"))).json
        got = (await address.get("/roll/task_result", {"reward_request_id": told["reward_request_id"]})).json
        assert got == {"errcode": 1, "errmsg": "running"}
        gate.opened.set()
