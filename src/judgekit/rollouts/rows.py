"""Reads rows of data sets: the reference, what else they say, and JSON as Python writes it.

Files, data sets, trainers and the service read rows with these. A reference stands in `reward_model` or `reward_spec`
(verl's and SkyRL's format, as their `ground_truth`), or in a column of one of `TRUTHS`. What is null, NaN, "" or empty
is not given. If a row has two references that differ, a file is refused, because its user can say which one counts;
a trainer takes the first in the order of `TRUTHS`, because it cannot ask in the middle of a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from judgekit.types import COLUMNS, Message, content_text

HOLDERS = ("reward_model", "reward_spec")
"""Columns of verl's and SkyRL's format that hold the reference, as their `ground_truth`."""
TRUTHS = (*HOLDERS, "ground_truth", "expected_answer", "answer", "solution", "label")
"""Columns that may hold the reference, in their order."""

POLICY = ("assistant", "model", "gpt")
"""What messages of the policy have as their role."""


def given(value: Any) -> bool:
    """Return whether a field has a value: null, NaN, "" and empty containers are none."""
    if value is None or (isinstance(value, float) and value != value):
        return False
    return not (isinstance(value, str | list | tuple | Mapping) and not value)


def holds_more(holder: Any) -> bool:
    """Return whether a column of `HOLDERS` says more than the reference and how it is to be compared, such as rubrics."""
    return isinstance(holder, Mapping) and not set(holder) <= {"ground_truth", "style"}


def hidden_columns(row: Mapping[str, Any], info: Mapping[str, Any], truth: Any) -> dict[str, Any]:
    """Return, for `extra`, what columns hold that a rollout does not show as it is.

    An entry of the row's `extra_info` stands in their place and says something else, or they are a source or a reference that is
    there and says nothing. A reference, *truth*, is the column of a name such as `answer` that only `extra_info` has: there it is
    a worked solution.
    """
    hidden = {name: row[name] for name in info if name in row and _differ(row[name], info[name])}
    hidden |= {
        name: row[name] for name in ("data_source", "ground_truth") if name in row and not given(row[name])
    }
    if truth is not None:
        shared = info.keys() & set(TRUTHS) - row.keys()
        hidden |= {name: truth for name in sorted(shared) if _differ(info[name], truth)}
    return {COLUMNS: hidden} if hidden else {}


def _differ(one: Any, other: Any) -> bool:
    """Whether two values are not the same; values that cannot be compared, such as tensors, are not."""
    try:
        return bool(one != other)
    except Exception:
        return True


def references_in(row: Mapping[str, Any], names: Sequence[str] = TRUTHS) -> Iterator[tuple[str, Any]]:
    """Yield each reference that a row has, with its column, in the order of *names*.

    An empty list or object is one where the row has no other: no calls, no fields.
    """
    empty: list[tuple[str, Any]] = []
    found = False
    for name in names:
        value = row.get(name)
        if name in HOLDERS:
            value = value.get("ground_truth") if isinstance(value, Mapping) else None
        if given(value):
            found = True
            yield name, value
        elif isinstance(value, list | tuple | Mapping):
            empty.append((name, value))
    if not found:
        yield from empty[:1]


def as_messages(value: Any) -> Any:
    """Return ShareGPT's turns, `{"from": "human", "value": …}`, and LangChain's, `{"type": "ai", …}`, as messages; all else as it is."""
    if not (isinstance(value, list | tuple) and value):
        return value
    if all(map(_is_langchains, value)):
        return [{**turn, **(turn.get("data") or {}), "role": _TYPES[turn["type"]]} for turn in value]
    if not all(map(_is_turn, value)):
        return value
    return [
        {"role": _ROLES.get(turn["from"].lower(), turn["from"]), "content": turn["value"]} for turn in value
    ]


def _is_turn(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("from"), str)
        and "value" in value
        and "role" not in value
    )


def _is_langchains(value: Any) -> bool:
    kind = value.get("type") if isinstance(value, Mapping) and "role" not in value else None
    if not isinstance(kind, str) or kind not in _TYPES:
        return False
    return "content" in value or isinstance(value.get("data"), Mapping)


_TYPES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "AIMessageChunk": "assistant",
}
"""LangChain's types of messages, and the roles that they have."""
_ROLES = {
    "human": "user", "user": "user", "system": "system", "assistant": "assistant", "gpt": "assistant", "chatgpt": "assistant", "model": "assistant", "bot": "assistant", "function_call": "assistant",
    "observation": "tool", "function_response": "tool", "function": "tool",
}  # fmt: skip


def last_said(turns: Sequence[Message]) -> str:
    """Return the text of the policy's last turn; "" if it has none."""
    said = [turn for turn in turns if turn.get("role") in POLICY]
    return content_text(said[-1].get("content")) if said else ""


def decoded(data: bytes) -> Any:
    """Decode JSON. Raises ValueError or RecursionError.

    Python's writers put NaN, infinities and lone surrogates into it, which are no JSON: they are read all the same.
    """
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        first = error
    try:
        return json.loads(data)
    except ValueError:
        raise ValueError(str(first)) from None


_decode = msgspec.json.Decoder().decode
