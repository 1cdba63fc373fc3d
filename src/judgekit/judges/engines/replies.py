"""Reads what engines and servers answer: texts, token counts, refusals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from judgekit.errors import JudgeRejected, JudgeUnavailable
from judgekit.judges.prompts.material import encodable
from judgekit.types import Usage

TOO_LONG = re.compile(
    r"(?<!took )too long|exceed_context|context.{0,3}(length|size|window)|max_model_len|maximum.{0,20}(tokens|length)"
    r"|input length|session length|max_num_tokens|length of the messages|less than \d+ tokens|max_new_tokens`? must be"
    r"|too large|HTTP 413",
    re.I,
)
"""What engines, servers, and proxies before them, say of a prompt that their context does not hold."""

_ENDS = {
    "stop": "stop",
    "length": "length",
    # in TGI's, Gemini's, Anthropic's and Mistral's words
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "max_tokens": "length",
    "model_length": "length",
}
_REMOVED = ("content_filter", "safety", "refusal", "prohibited_content", "blocklist", "recitation")
"""What providers say of a reply that their filter removed."""
_BROKEN_OFF = ("abort", "error")
"""What vLLM and SGLang say of a reply that they did not finish."""

_MOST_TOKENS = 1 << 32
"""No POST has as many: such a count is none."""


def checked_end(reason: Any, who: object, *, written: bool = True) -> str:
    """Return why a reply ended.

    In vLLM's words, whatever the server's are. Raises JudgeUnavailable if *who* broke it off, or does not say: that is no
    rollout's fault. Raises JudgeRejected for what a provider's content filter removed: it is no verdict, and would be removed
    again. *written*: the reply is a text, which is whole only if it ended in a way that is known.
    """
    if reason is None:
        raise JudgeUnavailable(f"{who} does not say whether its reply is whole: finish_reason is missing")
    said = reason.lower() if isinstance(reason, str) else ""
    if said in _REMOVED:
        raise JudgeRejected(f"{who}: the provider's content filter removed the reply ({reason})")
    if not said or said in _BROKEN_OFF or (written and said not in _ENDS):
        raise JudgeUnavailable(f"{who} broke off its reply ({reason})")
    return _ENDS.get(said, said)


def check_refusal(choice: Mapping[str, Any], who: object) -> None:
    """Raise JudgeRejected if the model refused to answer, and said so in a field of its own."""
    message = choice.get("message")
    if isinstance(message, dict) and isinstance(said := message.get("refusal"), str) and said.strip():
        raise JudgeRejected(f"{who} refused to answer: {said[:200]}")


def text_of_choice(choice: Mapping[str, Any], who: object) -> str:
    """Return the reply's text, without thinking that the server split off: in another field, or in parts of the content.

    Raises JudgeUnavailable if there is none; a judge whose thoughts took all of its tokens has said nothing.
    """
    message = choice.get("message")
    text = choice.get("text")
    if isinstance(message, dict):
        text = message.get("content")
    if isinstance(text, list):
        text = "".join(map(_text_of_part, text)) or None
    if text is None and _ENDS.get(str(choice.get("finish_reason")).lower()) == "length":
        return ""
    if isinstance(text, str):
        return encodable(text)
    thought = isinstance(message, dict) and (message.get("reasoning_content") or message.get("reasoning"))
    why = (
        ": all of it is in the field reasoning_content. Does the server's reasoning parser fit the model, and the judge's "
        "sampling: {thinking: …}?"
        if thought
        else ""
    )
    raise JudgeUnavailable(f"{who} sent a reply without a text{why}")


def _text_of_part(part: Any) -> str:
    """Return a text part's text; thoughts and whatever else a reply may be made of are none."""
    if isinstance(part, str):
        return part
    kind = part.get("type", "text") if isinstance(part, Mapping) else ""
    text = part.get("text") if kind in ("text", "output_text") else None
    return text if isinstance(text, str) else ""


def usage_shares(usage: Any, n: int) -> list[Usage]:
    """Split a POST's token counts evenly among its *n* requests."""
    usage = usage if isinstance(usage, dict) else {}
    counts = {key: _count(usage, key) for key in ("prompt_tokens", "completion_tokens")}
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    counts["cached_tokens"] = min(cached, counts["prompt_tokens"])
    return [
        Usage(calls=1, **{key: value // n + (i < value % n) for key, value in counts.items()})
        for i in range(n)
    ]


def _count(usage: Any, key: str) -> int:
    value = usage.get(key) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and 0 <= value < _MOST_TOKENS else 0
