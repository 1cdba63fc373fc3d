"""Makes rollouts of what trainers hand over, with the same meaning for all trainers.

* `prompt`: what the policy was given first.
* `messages`: the whole conversation, including the prompt.
* `response`: the policy's last turn, never text of tools or users.
* `response_tokens`: tokens that the policy wrote, in all turns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from judgekit.types import Message, Rollout, content_text

_FIELDS = ("data_source", "extra_info", "ground_truth", "raw_prompt", "reward_model", "reward_spec")
"""Columns of common data sets that become fields of the rollout."""


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
    """Make a rollout from a row of the data set and the messages that followed its prompt, *turns*.

    *columns*: the row, in the format that verl and SkyRL share: `data_source`, `reward_model` or `reward_spec` with
    a `ground_truth`, `extra_info`. Numpy's values become Python's. `extra` gets the other columns, the host's own
    *fields* and the entries of `extra_info`; later ones replace earlier ones of the same name.
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
    """Rebuild the turns of a response from its tokens, alternating between assistant and tool.

    *mask*: 1 for tokens of the policy, 0 for those of its environment; None: all are the policy's. *decode*: tokens
    to text, without special tokens. Role names that the chat template writes around a tool's text are removed where
    they are on lines of their own.
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
    """Convert numpy scalars and arrays, as data sets contain them, to Python's values; copy a mapping."""
    if isinstance(value, Mapping):
        return dict(value)
    if type(value).__module__ == "numpy":
        return _python(value.tolist())
    return value


def _python(value: Any) -> Any:
    return [plain(_python(item)) for item in value] if isinstance(value, list) else plain(value)
