"""verl's rows as rollouts. Nothing of verl's is changed: what it passes is shared between samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from judgekit import Rollout

_OWN = ("data_source", "reward_model", "raw_prompt", "extra_info", "uid", "session_id", "tool_extra_fields")
"""Columns that have a place of their own in a rollout."""
_LEFT_OUT = ("multi_modal_data", "multi_modal_inputs", "dummy_tensor")


def rollout_of_row(item: Any, tokenizer: Any) -> Rollout:
    """A rollout of one row of a DataProto (`data[i]`): padded or not, with a response mask or without."""
    ids = item.batch["responses"]
    length = ids.shape[-1]
    valid = int(item.batch["attention_mask"][-length:].sum())
    mask = item.batch.get("response_mask", None)
    return rollout_of(
        item.non_tensor_batch,
        ids[:valid].tolist(),
        tokenizer,
        mask=None if mask is None else mask[:valid].tolist(),
    )


def rollout_of(
    columns: Mapping[str, Any],
    response_ids: Sequence[int],
    tokenizer: Any,
    *,
    mask: Sequence[int] | None = None,
    extra_fields: Mapping[str, Any] | None = None,
) -> Rollout:
    """A rollout of a sample's columns and response tokens.

    *mask*: 1 for what the policy wrote, 0 for what tools answered, which is not graded as its response.
    *extra_fields*: the agent loop's own; its `messages` become the rollout's trajectory.
    """
    own = response_ids if mask is None else [t for t, m in zip(response_ids, mask, strict=True) if m]
    response = tokenizer.decode(own, skip_special_tokens=True)
    fields = plain(extra_fields if extra_fields is not None else columns.get("tool_extra_fields")) or {}
    prompt = plain(columns.get("raw_prompt")) or ""
    extra = plain(columns.get("extra_info")) or {}
    others = {k: plain(v) for k, v in columns.items() if k not in _OWN and k not in _LEFT_OUT}
    trajectory = fields.get("messages")
    if not trajectory and not isinstance(prompt, str):
        trajectory = [*prompt, {"role": "assistant", "content": response}]
    uid, session = plain(columns.get("uid")), plain(columns.get("session_id"))
    return Rollout(
        prompt=prompt,
        response=response,
        group=uid,
        ground_truth=(plain(columns.get("reward_model")) or {}).get("ground_truth"),
        messages=tuple(trajectory or ()),
        data_source=str(plain(columns.get("data_source")) or ""),
        response_tokens=len(own),
        extra={**others, **fields, **extra},
        id="" if uid is None else f"{uid}_{session}" if session is not None else str(uid),
    )


def tags_of(columns: Mapping[str, Any]) -> dict[str, Any]:
    """What the ledger keeps of a sample's place in the training run."""
    step = plain(columns.get("global_steps"))
    return {} if step is None else {"global_steps": step}


def plain(value: Any) -> Any:
    """numpy's scalars and arrays, in which verl wraps columns, as Python's own; the top level is a copy."""
    if isinstance(value, np.ndarray):
        return [plain(v) for v in value.tolist()] if value.ndim else plain(value.item())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    return value
