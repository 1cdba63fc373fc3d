"""Converts rollout data to text for a judge: references, trajectories, other fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from judgekit.judges.prompts.images import Image, Images, image_in
from judgekit.types import Abstained, Message, plain

Part = tuple[str, str | Image]
"""A trusted heading, and the text or the image under it."""


def as_text(value: Any) -> str | None:
    """Convert a field's value to text; None if it is empty."""
    if isinstance(value, str):
        return value or None
    value = plain(value)
    if value is None:
        return None
    if isinstance(value, Sequence):
        parts = [text for item in value if (text := as_text(item)) is not None]
        if len(parts) < 2:
            return parts[0] if parts else None
        return "\n".join(f"({number}) {part}" for number, part in enumerate(parts, 1))
    if isinstance(value, Mapping):
        return _json(value)
    return str(value)


def encodable(text: str) -> str:
    """Replace lone surrogates, which no tokenizer, no server and no file takes."""
    return text.encode("utf-8", "replace").decode()


def select_references(truth: Any, *, equal: Any = None, starts_with: str | None = None) -> Any:
    """Select references from several, or return Abstained if none is left.

    *equal* keeps the references equal to it; *starts_with* keeps those that begin with this text. Both serve
    data sets that keep the references of many variants in one list (`target_gt` and
    `filter_gt_by_prompt_token` of remote judges for verl).
    """
    truth = plain(truth)
    if not isinstance(truth, list | tuple) or (equal is None and starts_with is None):
        return truth
    kept = [t for t in truth if equal is None or t == equal]
    if starts_with is not None:
        kept = [t for t in kept if isinstance(t, str) and t.lstrip().startswith(starts_with)]
    if not kept:
        what = f"equals {equal!r}" if equal is not None else f"begins with {starts_with!r}"
        return Abstained(f"none of the {len(truth)} references {what}")
    return kept


_ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "result of a tool",
    "function": "result of a tool",
}


def trajectory_parts(messages: Sequence[Message], *, most: int = 256, images: Images = "none") -> list[Part]:
    """Convert a trajectory to parts: a trusted heading, and the text or the image under it.

    Each message is a part, and so are its tool calls, so that no text can look like another message. The headings
    have a number and a known role only; names of tools and other roles are data and stand in the text. If there
    are more than *most* parts, those in the middle are left out, and the next heading says so.

    Messages have OpenAI's format: `content` is text or blocks, `tool_calls` have `function.name` and `arguments`
    (a mapping, or JSON as text), tool results have `role: tool`. What has another form is shown whole, as JSON. *images*: which of their images are parts; see
    `unread_part` first.
    """
    parts: list[Part] = []
    for number, message in enumerate(map(plain, messages), 1):
        role = str(message.get("role", "?"))
        heading = f"[{number}] {_ROLES.get(role, 'another role')}"
        if "role" not in message:  # an item of another format, such as a call by itself
            parts.append((f"{heading}:\n", _json(message)))
            continue
        text, others = _pieces(message.get("content"), images)
        calls = _calls(message)
        refusal = message.get("refusal")
        if role not in _ROLES:
            text = f"{role}: {text}"
        if name := message.get("name"):
            text = f"{name}:\n{text}"
        if text or not (calls or others or refusal):
            parts.append((f"{heading}:\n", text))
        for other in others:
            what = "an image" if isinstance(other, Image) else "after the image"
            parts.append((f"{heading}, {what}:\n", other))
        if refusal:
            parts.append((f"{heading}, a refusal:\n", whole_text(refusal)))
        if calls:
            parts.append((f"{heading}, calls of tools:\n", "\n".join(calls)))
    if (left_out := len(parts) - most) <= 0:
        return parts
    head, tail = parts[: (most + 1) // 2], parts[len(parts) - most // 2 :]
    (heading, shown), *rest = tail
    return [*head, (f"[... {left_out} parts in the middle were left out ...]\n{heading}", shown), *rest]


def conversation(
    messages: Sequence[Message], *, most: int = 256, images: Images = "none"
) -> str | list[Part]:
    """Convert a prompt to material: the text of a single user message, else all messages as `trajectory_parts`."""
    if len(messages) == 1 and messages[0].get("role") == "user":
        text, others = _pieces(messages[0].get("content"), images)
        if not others:
            return text
    return trajectory_parts(messages, most=most, images=images)


def _pieces(content: Any, images: Images) -> tuple[str, list[str | Image]]:
    """A message's text up to its first image, then its images and the texts between them."""
    if images == "none" or isinstance(content, str) or content is None:
        return whole_text(content), []
    first = ""
    rest: list[str | Image] = []
    shown = [(image_in(block, images), block) for block in _blocks(content)]
    for is_image, run in groupby(shown, key=lambda pair: isinstance(pair[0], Image)):
        if is_image:
            rest += [image for image, _ in run if isinstance(image, Image)]
        elif text := "".join(_block_text(block) for _, block in run):
            if rest:
                rest.append(text)
            else:
                first = text
    return first, rest


_MEDIA = ("image", "audio", "video", "file", "document")
"""What types of blocks that are no text begin with, after `input_`."""


def unread_part(messages: Sequence[Message], images: Images = "none") -> str | None:
    """Name the first part of a conversation that a judge cannot read, such as a sound; None if there is none.

    *images*: those that it is shown.
    """
    for message in messages:
        content = message.get("content")
        if isinstance(content, str) or content is None:
            continue
        for block in _blocks(content):
            if isinstance(block, Mapping):
                found = image_in(block, images)
                if isinstance(found, str):
                    return found
                if found is not None:
                    continue
                kind = str(block.get("type", ""))
                if kind.removeprefix("input_").startswith(_MEDIA) or any(f"{m}_url" in block for m in _MEDIA):
                    return f"a part of the type {kind[:40]!r}"
            elif isinstance(block, bytes):
                return "a part of bytes"
    return None


def whole_text(content: Any) -> str:
    """A message's content as text, with every block in it: what is neither text nor known as JSON."""
    if isinstance(content, str):
        return content
    return "".join(map(_block_text, _blocks(content))) if content is not None else ""


def _blocks(content: Any) -> Sequence[Any]:
    content = plain(content)
    return content if isinstance(content, Sequence) and not isinstance(content, bytes) else [content]


def _block_text(block: Any) -> str:
    if block is None:
        return ""
    if isinstance(block, str):
        return block
    if isinstance(block, Mapping):
        if block.keys() <= {"type", "text"} and isinstance(block.get("text"), str | None):
            return block.get("text") or ""
        return _json(block)
    return str(block)


def _calls(message: Message) -> list[str]:
    """A message's calls of tools, and the one of OpenAI's older format."""
    calls = message.get("tool_calls") or []
    made = [*calls] if isinstance(calls, list | tuple) else [calls]
    if older := message.get("function_call"):
        made.append(older)
    return list(map(_call, made))


def _call(call: Any) -> str:
    """A call as text: `name(arguments)` where that is all it says, else all of it."""
    known = (
        {key: value for key, value in call.items() if value is not None} if isinstance(call, Mapping) else {}
    )
    rest = {key: known[key] for key in known.keys() - {"id", "index", "type", "function"}}
    function = known.get("function", rest)
    if (
        not isinstance(function, Mapping)
        or not isinstance(function.get("name"), str)
        or not function.keys() <= {"name", "arguments"}
        or (rest and rest is not function)
        or known.get("type", "function") != "function"
    ):
        return _json(call)
    arguments = function.get("arguments", {})
    return f"{function['name']}({arguments if isinstance(arguments, str) else _json(arguments)})"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
