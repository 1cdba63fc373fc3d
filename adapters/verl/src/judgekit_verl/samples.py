"""Makes rollouts of verl's rows, without changing them: samples share their data."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from judgekit import Rollout
from judgekit.trainers import placed, plain, turns_of_tokens
from judgekit.trainers import rollout_of as make_rollout
from judgekit.types import SOLUTION_STR, content_text, end_of

logger = logging.getLogger("judgekit")

LEFT_OUT = (
    "uid",
    "session_id",
    "tool_extra_fields",
    "multi_modal_data",
    "multi_modal_inputs",
    "dummy_tensor",
)
"""Columns that are no part of a rollout's `extra`."""
_told: set[str] = set()


def rollout_of_row(item: Any, tokenizer: Any, *, limit: int | None = None) -> Rollout:
    """Make a rollout of one DataProto row (`data[i]`), with or without padding and response mask.

    *limit*: tokens at which verl cuts a response.
    """
    ids = item.batch["responses"]
    length = ids.shape[-1]
    # where an agent loop returns several outputs, verl pads each mask on the right, and only this column tells
    told = item.non_tensor_batch.get("response_len")
    valid = int(item.batch["attention_mask"][-length:].sum()) if told is None else int(plain(told))
    mask = item.batch.get("response_mask", None)
    if mask is None and int(plain(item.non_tensor_batch.get("__num_turns__", 0)) or 0) > 2 and not _told:
        _told.add("mask")
        logger.warning(
            "verl hands over multi-turn responses without their mask here, so that the text of tools counts as the "
            "policy's: add agent_loop_manager_class=judgekit_verl.JudgeKitAgentLoopManager, or an agent loop that exports "
            "`messages`"
        )
    columns = item.non_tensor_batch
    if not len(columns.get("raw_prompt", ())):
        prompts = item.batch["prompts"]
        given = item.batch["attention_mask"][: prompts.shape[-1]].bool()
        columns = {
            **columns,
            "raw_prompt": tokenizer.decode(prompts[given].tolist(), skip_special_tokens=True),
        }
    return rollout_of(
        columns,
        ids[:valid].tolist(),
        tokenizer,
        mask=None if mask is None else mask[:valid].tolist(),
        limit=limit,
    )


def rollout_of(
    columns: Mapping[str, Any],
    response_ids: Sequence[int],
    tokenizer: Any,
    *,
    mask: Sequence[int] | None = None,
    extra_fields: Mapping[str, Any] | None = None,
    limit: int | None = None,
) -> Rollout:
    """Make a rollout of a sample's columns and response tokens.

    *mask*: 1 for tokens that the policy wrote, 0 for tool output. *extra_fields*: from the agent loop; its `messages`
    are the conversation, which otherwise is rebuilt from the mask. *limit*: tokens at which verl cuts a response.
    """
    fields = dict(plain(extra_fields if extra_fields is not None else columns.get("tool_extra_fields")) or {})
    prompt = plain(columns.get("raw_prompt")) or ""
    turns = turns_of_tokens(
        response_ids, mask, lambda part: str(tokenizer.decode(part, skip_special_tokens=True))
    )
    if mask is not None and 0 in mask:  # verl's own managers grade this text, with what tools wrote in it
        fields[SOLUTION_STR] = str(tokenizer.decode(list(response_ids), skip_special_tokens=True))
    if exported := _conversation(fields.get("messages")):
        del fields["messages"]
        turns = _after(prompt, exported)
    elif _ends_alike(column := _conversation(columns.get("messages")), turns):
        turns = _after(prompt, column)
    uid, session = plain(columns.get("uid")), plain(columns.get("session_id"))
    return make_rollout(
        {name: value for name, value in columns.items() if name not in LEFT_OUT},
        prompt=prompt,
        turns=turns,
        group=uid,
        id="" if uid is None else f"{uid}_{session}" if session is not None else str(uid),
        response_tokens=len(response_ids) if mask is None else sum(mask),
        finish_reason=_finish_reason(response_ids, tokenizer, limit),
        fields=fields,
    )


def _conversation(value: Any) -> Sequence[Any]:
    """The messages in a value; none, where it is anything else: text of JSON, say."""
    found = plain(value)
    return found if isinstance(found, list) and all(isinstance(one, Mapping) for one in found) else ()


def _ends_alike(messages: Sequence[Any], turns: Sequence[Any]) -> bool:
    """Whether a column `messages` is the rollout's conversation; in a data set it may be a reference's."""
    if not messages or not turns or messages[-1].get("role") != "assistant":
        return False
    return content_text(messages[-1].get("content")).strip() == str(turns[-1]["content"]).strip()


def _after(prompt: Any, messages: Sequence[Any]) -> list[Any]:
    """The messages that follow the prompt."""
    if not isinstance(prompt, str) and (start := end_of(prompt, messages)):
        return list(messages[start:])
    first = (i for i, message in enumerate(messages) if message.get("role") == "assistant")
    return list(messages[next(first, len(messages)) :])


def _finish_reason(ids: Sequence[int], tokenizer: Any, limit: int | None) -> str | None:
    if ids and ids[-1] == tokenizer.eos_token_id:
        return "stop"
    return "length" if limit is not None and len(ids) >= limit else None


UNPLACED = "judgekit/unplaced"
"""Figure of a rollout: 1 if its turns are not those of the response mask, so that all of its reward lies on the last token."""


def token_rewards(answer: Mapping[str, Any], mask: Sequence[int]) -> list[float] | None:
    """Return the reward of each token, of an answer whose reward pays turns; None for others. Notes `UNPLACED`.

    *mask*: 1 for tokens that the policy wrote, of the response without padding.
    """
    if "turns" not in answer:
        return None
    (rewards,), found = placed(answer["reward_score"], answer["turns"], [mask])
    answer["reward_extra_info"][UNPLACED] = float(not found)
    return rewards


def tags_of(columns: Mapping[str, Any], *, training: bool = True) -> dict[str, Any]:
    """Returns the ledger's tags for a sample: its training step, and that it is of a validation."""
    step = plain(columns.get("global_steps"))
    return {**({} if step is None else {"global_steps": step}), **({} if training else {"phase": "eval"})}
