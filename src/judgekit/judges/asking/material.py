"""Converts rollout data to text for a judge: references, trajectories, other fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from judgekit.types import Abstained, Message, content_text


def as_text(value: Any) -> str | None:
    """Convert a field's value to text; None if it is empty."""
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
    """Select references from several, or return Abstained if none is left.

    *equal* keeps the references equal to it; *starts_with* keeps those that begin with this text. Both serve
    data sets that keep the references of many variants in one list (`target_gt` and
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
    """Format a whole trajectory, one numbered block per message, with tool calls and results.

    Messages have OpenAI's format: `content` is text or blocks, `tool_calls` have `function.name` and `arguments`
    (a mapping, or JSON as text), tool results have `role: tool`.
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
