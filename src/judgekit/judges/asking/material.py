"""Rollout data as text for a judge: references, trajectories, anything else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from judgekit.types import Abstained, Message, content_text


def as_text(value: Any) -> str | None:
    """A field's value as text; None where there is nothing to show."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        parts = [text for item in value if (text := as_text(item)) is not None]
        if len(parts) < 2:
            return parts[0] if parts else None
        return "\n".join(f"({number}) {part}" for number, part in enumerate(parts, 1))
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def select_references(truth: Any, *, equal: Any = None, starts_with: str | None = None) -> Any:
    """The accepted references among several, or the Abstained that says why none is left.

    *equal* keeps the one that equals it; *starts_with* keeps those that begin with this text. Both come from
    a data set that carries the references of many variants in one list (`target_gt` and
    `filter_gt_by_prompt_token` of remote judges for verl).
    """
    if not isinstance(truth, list | tuple) or (equal is None and starts_with is None):
        return truth
    kept = [t for t in truth if equal is None or t == equal]
    if starts_with is not None:
        kept = [t for t in kept if isinstance(t, str) and t.lstrip().startswith(starts_with)]
    if not kept:
        what = f"equals {equal!r}" if equal is not None else f"begins with {starts_with!r}"
        return Abstained(f"none of the {len(truth)} references {what}")
    return kept


def trajectory_text(messages: Sequence[Message]) -> str:
    """A whole trajectory, one numbered block a message, tool calls and their answers included.

    Messages are OpenAI's: `content` a text or blocks, `tool_calls` with `function.name` and `arguments` (a
    mapping, or JSON as text), `role: tool` for answers.
    """
    blocks: list[str] = []
    for number, message in enumerate(messages, 1):
        role = str(message.get("role", "?"))
        name = message.get("name")
        lines = [f"[{number}] {role}{f' {name}' if name else ''}"]
        if text := content_text(message.get("content")):
            lines.append(text)
        for call in message.get("tool_calls") or ():
            function = call.get("function", call) if isinstance(call, Mapping) else {}
            arguments = function.get("arguments", {})
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False, default=str)
            lines.append(f"calls {function.get('name', '?')}({arguments})")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)
