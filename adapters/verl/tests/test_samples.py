"""Rollouts of verl's rows: what tools wrote is not the policy's, whoever rebuilds the conversation."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from verl import DataProto

from batches import batch, objects
from judgekit_verl import group
from judgekit_verl.samples import rollout_of, rollout_of_row

PROMPT = [{"role": "user", "content": "q"}]


def tool_loop(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Tokens and mask as verl's ToolAgentLoop has them."""
    runs = [("call it", 1), ("\ntool\n42\nassistant\n", 0), ("it is 42", 1)]
    ids, mask = [], []
    for text, own in runs:
        tokens = tokenizer.encode(text)
        ids += tokens
        mask += [own] * len(tokens)
    return [*ids, tokenizer.eos_token_id], [*mask, 1]


def test_the_conversation_is_rebuilt_from_the_mask(tokenizer: Any) -> None:
    ids, mask = tool_loop(tokenizer)
    rollout = rollout_of({"raw_prompt": PROMPT}, ids, tokenizer, mask=mask, extra_fields={"turn_scores": []})
    assert [m["role"] for m in rollout.messages] == ["user", "assistant", "tool", "assistant"]
    assert rollout.messages[2]["content"] == "42"
    assert rollout.response == "it is 42"
    assert rollout.response_tokens == sum(mask)
    assert rollout.finish_reason == "stop"


@pytest.mark.parametrize("with_prompt", [True, False])
def test_messages_of_an_agent_loop_count_first(tokenizer: Any, with_prompt: bool) -> None:
    exported = [
        {"role": "assistant", "content": "a"},
        {"role": "tool", "content": "t"},
        {"role": "assistant", "content": "b"},
    ]
    fields = {"messages": [*PROMPT, *exported] if with_prompt else exported, "seen": 1}
    ids, mask = tool_loop(tokenizer)
    rollout = rollout_of({"raw_prompt": PROMPT}, ids, tokenizer, mask=mask, extra_fields=fields)
    assert list(rollout.messages) == [*PROMPT, *exported]
    assert rollout.response == "b"
    assert rollout.extra["seen"] == 1


def test_the_prompt_s_own_turns_are_not_the_policy_s(tokenizer: Any) -> None:
    """Also where the exported conversation has a system message more, or the prompt's columns nulls."""
    prompt = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "old"},
        {"role": "user", "content": "q"},
    ]
    exported = [*prompt, {"role": "assistant", "content": "b"}]
    ids = tokenizer.encode("b")
    for raw, messages in (
        (prompt, exported),
        (prompt, [{"role": "system", "content": "s"}, *exported]),
        ([{**turn, "name": None} for turn in prompt], exported),
    ):
        rollout = rollout_of({"raw_prompt": raw}, ids, tokenizer, extra_fields={"messages": messages})
        assert [turn["content"] for turn in rollout.messages] == ["a", "old", "q", "b"]
        assert rollout.response == "b"


def test_a_column_called_messages_is_the_conversation_only_if_it_ends_alike(tokenizer: Any) -> None:
    """A data set's own may hold a reference answer."""
    ids = tokenizer.encode("mine")
    theirs = [*PROMPT, {"role": "assistant", "content": "the reference"}]
    assert rollout_of({"raw_prompt": PROMPT, "messages": theirs}, ids, tokenizer).response == "mine"
    mine = [*PROMPT, {"role": "assistant", "content": "think"}, {"role": "assistant", "content": "mine"}]
    assert len(rollout_of({"raw_prompt": PROMPT, "messages": mine}, ids, tokenizer).messages) == 3


@pytest.mark.parametrize("column", ['[{"role": "user", "content": "q"}]', ["a", "b"], [["a"]], 7, None])
def test_a_column_called_messages_may_hold_anything(tokenizer: Any, column: Any) -> None:
    """It is the data set's own business, and stays in `extra`; so does what an agent loop exports."""
    ids = tokenizer.encode("mine")
    for columns, fields in (({"messages": column}, {}), ({}, {"messages": column})):
        made = rollout_of({"raw_prompt": PROMPT, **columns}, ids, tokenizer, extra_fields=fields)
        assert (made.response, made.extra["messages"]) == ("mine", column)


@pytest.mark.parametrize(
    ("text", "end", "reason"), [("x" * 8, False, "length"), ("x", False, None), ("x", True, "stop")]
)
def test_why_it_ended(tokenizer: Any, text: str, end: bool, reason: str | None) -> None:
    ids = tokenizer.encode(text) + [tokenizer.eos_token_id] * end
    assert rollout_of({"raw_prompt": PROMPT}, ids, tokenizer, limit=8).finish_reason == reason


def test_a_batch_without_raw_prompt(tokenizer: Any) -> None:
    data = batch(tokenizer, ["x"])
    del data.non_tensor_batch["raw_prompt"]
    rollout = rollout_of_row(data[0], tokenizer)
    assert rollout.prompt == "q0"


def test_a_missing_mask_of_many_turns_is_told(tokenizer: Any, caplog: Any, monkeypatch: Any) -> None:
    from judgekit_verl import samples

    monkeypatch.setattr(samples, "_told", set())
    data = batch(tokenizer, ["x"])
    item = data[0]
    row = SimpleNamespace(batch=item.batch, non_tensor_batch={**item.non_tensor_batch, "__num_turns__": 4})
    rollout_of_row(row, tokenizer)
    rollout_of_row(row, tokenizer)
    assert caplog.text.count("JudgeKitAgentLoopManager") == 1


def test_of_several_outputs_the_last_is_read_as_long_as_it_is(tokenizer: Any) -> None:
    """As verl's AgentLoopWorker pads them: each mask on the right, behind its own prompt and response."""
    data = batch(tokenizer, ["a longer answer than the other", "x"])
    lengths = [len(tokenizer.encode(text)) for text in ("a longer answer than the other", "x")]
    prompt = data.batch["prompts"].shape[-1]
    for row, length in enumerate(lengths):
        data.batch["attention_mask"][row] = 0
        data.batch["attention_mask"][row, : prompt + length] = 1
    data.batch["attention_mask"][1] = 1  # a longer prompt than the other's
    data.non_tensor_batch["response_len"] = np.array(lengths)
    assert [rollout_of_row(data[row], tokenizer).response for row in (0, 1)] == [
        "a longer answer than the other",
        "x",
    ]


async def _sent(prompts: DataProto, out: DataProto) -> list[DataProto]:
    """What the workers of a batch manager get."""
    sent: list[DataProto] = []

    async def answer(part: DataProto) -> dict[str, Any]:
        sent.append(part)
        return {"group": [{}] * len(part)}

    manager = object.__new__(group._BatchManager)
    worker = SimpleNamespace(compute_score=SimpleNamespace(remote=answer))
    manager.reward_loop_worker_handles = [worker]
    await manager._answers(prompts, out, group._Groups.of(prompts, None))
    return sent


@pytest.mark.parametrize("tools", [False, True])
def test_what_an_agent_loop_exports_reaches_graders_in_every_version(tokenizer: Any, tools: bool) -> None:
    ids, mask = tool_loop(tokenizer)
    call = {"type": "function", "function": {"name": "calc", "arguments": "6*7"}}
    said = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "42"},
        {"role": "assistant", "content": "it is 42"},
    ]
    columns = {"uid": objects(["u", "u"]), "raw_prompt": objects([PROMPT, PROMPT])}
    prompts = DataProto.from_dict(tensors={"dummy": torch.zeros(2, 1)}, non_tensors=columns)
    exported = {"messages": objects([[*PROMPT, *said]] * 2), "solved": objects([True, False])}
    if tools:
        exported["tool_extra_fields"] = objects([{"steps": 1}, None])
    length = len(ids)
    tensors = {
        "prompts": torch.ones(2, 1, dtype=torch.long),
        "responses": torch.tensor([ids] * 2),
        "attention_mask": torch.ones(2, 1 + length, dtype=torch.long),
        "response_mask": torch.tensor([mask] * 2),
    }
    out = DataProto.from_dict(tensors=tensors, non_tensors={**exported, "__num_turns__": objects([4, 4])})
    (part,) = asyncio.run(_sent(prompts, out))
    first, second = (rollout_of_row(part[row], tokenizer) for row in (0, 1))
    assert list(first.messages) == list(second.messages) == [*PROMPT, *said]
    assert (first.extra["solved"], second.extra["solved"]) == (True, False)
    assert first.extra.get("steps") == (1 if tools else None)
    fields = {"messages": [*PROMPT, *said], "solved": True}
    newer = rollout_of({"raw_prompt": PROMPT, "uid": "u"}, ids, tokenizer, mask=mask, extra_fields=fields)
    assert (first.messages, first.response) == (newer.messages, newer.response)
