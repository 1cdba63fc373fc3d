"""Reads what engines and servers answer: texts, token counts, refusals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from judgekit.errors import JudgeUnavailable
from judgekit.types import Usage, content_text

TOO_LONG = re.compile(
    r"too long|context length|context_length|max_model_len|maximum.{0,20}(tokens|length)", re.I
)
"""What engines say of a prompt that their context does not hold."""

_BROKEN_OFF = ("abort", "error")
"""What vLLM and SGLang say of a reply that they did not finish."""

_MOST_TOKENS = 1 << 32
"""No POST has as many: such a count is none."""


def checked_end(reason: Any, who: object) -> str:
    """Return why a reply ended. Raises JudgeUnavailable if *who* broke it off, or does not say: that is no rollout's fault."""
    if reason is None:
        raise JudgeUnavailable(f"{who} does not say whether its reply is whole: finish_reason is missing")
    if not isinstance(reason, str) or reason in _BROKEN_OFF:
        raise JudgeUnavailable(f"{who} broke off its reply ({reason})")
    return reason


def text_of_choice(choice: Mapping[str, Any]) -> str:
    """Return the reply's text, without thinking that the server split off: in another field, or in parts of the content."""
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    return content_text(text) if isinstance(text, str | list) else ""


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
