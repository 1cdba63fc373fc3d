"""Makes rollouts of verl's rows, without changing them: samples share their data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from judgekit import Rollout

_OWN = ("data_source", "reward_model", "raw_prompt", "extra_info", "uid", "session_id", "tool_extra_fields")
"""Columns that become fields of the rollout."""
_LEFT_OUT = ("multi_modal_data", "multi_modal_inputs", "dummy_tensor")


def rollout_of_row(item: Any, tokenizer: Any) -> Rollout:
    """Make a rollout of one DataProto row (`data[i]`), with or without padding and response mask."""
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
    """Make a rollout of a sample's columns and response tokens.

    *mask*: 1 for tokens that the policy wrote, 0 for tool output, which is not part of the response.
    *extra_fields*: from the agent loop; its `messages` become the rollout's trajectory.
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
    """Returns the ledger's tags for a sample: its training step."""
    step = plain(columns.get("global_steps"))
    return {} if step is None else {"global_steps": step}


def plain(value: Any) -> Any:
    """Converts the numpy scalars and arrays that verl wraps columns in; the top level is a copy."""
    if isinstance(value, np.ndarray):
        return [plain(v) for v in value.tolist()] if value.ndim else plain(value.item())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    return value
