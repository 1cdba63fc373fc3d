"""Makes rollouts of what trainers hand over, with the same meaning for all trainers.

* `prompt`: what the policy was given first.
* `messages`: the whole conversation, including the prompt.
* `response`: the policy's last turn, never text of tools or users.
* `response_tokens`: tokens that the policy wrote, in all turns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from judgekit.rollouts.rows import HOLDERS, TRUTHS, hidden_columns, holds_more, last_said, references_in
from judgekit.types import Message, Rollout, plain

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
    truths: Sequence[str] = TRUTHS,
) -> Rollout:
    """Make a rollout from a row of the data set and the messages that followed its prompt, *turns*.

    *columns*: the row, see `fields_of_row`. *fields*: the host's own, for `extra`. *truths*: the columns that may hold
    the reference, in their order.
    """
    start = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return Rollout(
        prompt=prompt if isinstance(prompt, str) else list(prompt),
        response=last_said(turns),
        group=group,
        messages=(*start, *turns),
        response_tokens=response_tokens,
        finish_reason=finish_reason,
        id=id,
        **fields_of_row(columns, fields, truths),
    )


def fields_of_row(
    columns: Mapping[str, Any], fields: Mapping[str, Any] | None = None, truths: Sequence[str] = TRUTHS
) -> dict[str, Any]:
    """Return what a data set's row says of its rollouts: `ground_truth`, `data_source` and `extra`.

    *columns*: the row, in the format that verl and SkyRL share, with `data_source`, `reward_model` or `reward_spec` and
    `extra_info`, or with a reference under another of `TRUTHS`. Numpy's values become Python's. `extra` gets the other
    columns, *fields* and the entries of `extra_info`; later ones replace earlier ones of the same name
    (a reward function that was written for columns still gets the column).
    """
    row = {name: plain(value) for name, value in columns.items() if name != "raw_prompt"}
    info = row.get("extra_info")
    info = info if isinstance(info, Mapping) else {}
    truth = truth_of(row, truths)
    return {
        "ground_truth": truth,
        "data_source": str(row.get("data_source") or ""),
        "extra": {
            **{
                name: value
                for name, value in row.items()
                if name not in _FIELDS or (name in HOLDERS and holds_more(value))
            },
            **plain(fields or {}),
            **info,
            **hidden_columns(row, info, truth),
        },
    }


def truth_of(row: Mapping[str, Any], truths: Sequence[str] = TRUTHS) -> Any:
    """Return the reference of a data set's row, from the first of its columns that has one.

    `judgekit.rollouts.rows` says what counts as having one.
    """
    return next((value for _, value in references_in(row, truths)), None)


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
        elif (content := _without_roles(text)) or (
            turns and end < len(ids)
        ):  # it parts two turns, if it says nothing
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
