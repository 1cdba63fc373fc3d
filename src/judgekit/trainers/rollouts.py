"""Makes rollouts of what trainers hand over, with one meaning for all of them.

* `prompt`: what the policy was given first.
* `messages`: the whole conversation, prompt included.
* `response`: the policy's last turn; text of tools and users is never part of it.
* `response_tokens`: tokens that the policy wrote, in all turns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from judgekit.types import Message, Rollout, content_text

_FIELDS = ("data_source", "extra_info", "ground_truth", "raw_prompt", "reward_model", "reward_spec")
"""Columns of the usual data sets that become fields of the rollout."""


def rollout_of(
    columns: Mapping[str, Any],
    *,
    prompt: str | Sequence[Message],
    turns: Sequence[Message],
    group: Hashable = None,
    id: str = "",
    response_tokens: int | None = None,
    finish_reason: str | None = None,
    fields: Mapping[str, Any] | None = None,
) -> Rollout:
    """Make a rollout of a row of the data set and what followed its prompt.

    *columns*: the row, in the format that verl and SkyRL share: `data_source`, `reward_model` or `reward_spec` with
    a `ground_truth`, `extra_info`. Values of numpy become Python's; other columns, the host's own *fields* and
    the entries of `extra_info` become `extra`, the last of one name counts. *turns*: the messages after the prompt.
    """
    row = {name: plain(value) for name, value in columns.items()}
    spec = row.get("reward_model") or row.get("reward_spec") or {}
    info = row.get("extra_info")
    policy = [turn for turn in turns if turn.get("role") == "assistant"]
    start = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return Rollout(
        prompt=prompt if isinstance(prompt, str) else list(prompt),
        response=content_text(policy[-1].get("content")) if policy else "",
        group=group,
        ground_truth=spec.get("ground_truth")
        if isinstance(spec, Mapping) and spec
        else row.get("ground_truth"),
        messages=(*start, *turns),
        data_source=str(row.get("data_source") or ""),
        response_tokens=response_tokens,
        finish_reason=finish_reason,
        extra={
            **{name: value for name, value in row.items() if name not in _FIELDS},
            **(fields or {}),
            **(info if isinstance(info, Mapping) else {}),
        },
        id=id,
    )


def turns_of_tokens(
    ids: Sequence[int], mask: Sequence[int] | None, decode: Callable[[Sequence[int]], str]
) -> list[Message]:
    """Rebuild the turns of a response from its tokens: an assistant's and a tool's for each run of the mask.

    *mask*: 1 for tokens that the policy wrote, 0 for what its environment put in between; None: all are the policy's.
    *decode*: tokens to text, without special tokens. What the chat template writes around a tool's text (the names
    of the roles) is taken off as far as it stands on lines of its own.
    """
    turns: list[Message] = []
    start = 0
    flags = [1] * len(ids) if mask is None else list(mask)
    for end in range(1, len(ids) + 1):
        if end < len(ids) and flags[end] == flags[start]:
            continue
        text = decode(ids[start:end])
        if flags[start]:
            turns.append({"role": "assistant", "content": text})
        elif content := _without_roles(text):
            turns.append({"role": "tool", "content": content})
        start = end
    return turns


_ROLES = ("assistant", "tool", "user", "system", "observation", "ipython")


def _without_roles(text: str) -> str:
    lines = text.split("\n")
    while lines and (not lines[0].strip() or lines[0].strip() in _ROLES):
        lines.pop(0)
    while lines and (not lines[-1].strip() or lines[-1].strip() in _ROLES):
        lines.pop()
    return "\n".join(lines)


def plain(value: Any) -> Any:
    """Convert numpy scalars and arrays, which data sets wrap values in, to Python's; a mapping is copied."""
    if isinstance(value, Mapping):
        return dict(value)
    if type(value).__module__ == "numpy":
        return _python(value.tolist())
    return value


def _python(value: Any) -> Any:
    return [plain(_python(item)) for item in value] if isinstance(value, list) else plain(value)
