"""Reads what engines and servers answer: texts, token counts, refusals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from judgekit.errors import JudgeRejected, JudgeUnavailable
from judgekit.judges.asking.material import encodable
from judgekit.types import Usage, content_text

TOO_LONG = re.compile(
    r"too long|context length|context_length|max_model_len|maximum.{0,20}(tokens|length)", re.I
)
"""What engines say of a prompt that their context does not hold."""

_ENDS = ("stop", "length")
_BROKEN_OFF = ("abort", "error")
"""What vLLM and SGLang say of a reply that they did not finish."""

_MOST_TOKENS = 1 << 32
"""No POST has as many: such a count is none."""


def checked_end(reason: Any, who: object, *, written: bool = True) -> str:
    """Return why a reply ended.

    Raises JudgeUnavailable if *who* broke it off, or does not say: that is no rollout's fault. Raises JudgeRejected for what a
    provider's content filter removed: it is no verdict, and would be removed again. *written*: the reply is a text, which is
    whole only if it ended in a way that is known.
    """
    if reason is None:
        raise JudgeUnavailable(f"{who} does not say whether its reply is whole: finish_reason is missing")
    if reason == "content_filter":
        raise JudgeRejected(f"{who}: the provider's content filter removed the reply")
    if not isinstance(reason, str) or reason in _BROKEN_OFF or (written and reason not in _ENDS):
        raise JudgeUnavailable(f"{who} broke off its reply ({reason})")
    return reason


def text_of_choice(choice: Mapping[str, Any], who: object) -> str:
    """Return the reply's text, without thinking that the server split off: in another field, or in parts of the content.

    Raises JudgeUnavailable if there is none; a judge whose thoughts took all of its tokens has said nothing.
    """
    message = choice.get("message")
    text = choice.get("text")
    if isinstance(message, dict):
        text = message.get("content")
        if text is None:
            text = message.get("refusal")
    if text is None and choice.get("finish_reason") == "length":
        return ""
    if not isinstance(text, str | list):
        raise JudgeUnavailable(f"{who} sent a reply without a text")
    return encodable(content_text(text))


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
