"""Reads a server's answer to a POST: one choice for each prompt, and what a judge said in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from judgekit.errors import JudgeUnavailable
from judgekit.judges.base import JudgeReply
from judgekit.judges.engines.http import words_of
from judgekit.judges.engines.openai.first_token import FirstToken
from judgekit.judges.engines.replies import check_refusal, checked_end, text_of_choice
from judgekit.types import Usage


class OtherCount(Exception):
    """The server sent more or fewer choices than it was asked for: which is whose cannot be known."""


def in_order(answer: Mapping[str, Any], count: int, who: object) -> list[dict[str, Any]]:
    """Return an answer's choices in the order of the prompts. Raises OtherCount unless there is one for each."""
    choices = choices_of(answer, who)
    numbers = [c.get("index") for c in choices] if count > 1 else range(len(choices))
    order = {n: c for n, c in zip(numbers, choices, strict=True) if isinstance(n, int | float)}
    if len(choices) != count or set(order) != set(range(count)):
        raise OtherCount(f"{who} sent {len(choices)} choices for {count} prompt(s)")
    return [order[number] for number in range(count)]


def choices_of(answer: Mapping[str, Any], who: object) -> list[dict[str, Any]]:
    """Return an answer's choices. Raises JudgeUnavailable where it is none, such as an error that came as HTTP 200."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not all(isinstance(c, dict) for c in choices):
        said = words_of(answer).shown if "error" in answer else ""
        raise JudgeUnavailable(f"{who} answered without a choice" + (f": {said}" if said else ""))
    return choices


def reply_of(
    choice: Mapping[str, Any],
    first_token: FirstToken | None,
    who: object,
    *,
    usage: Usage,
    seconds: float,
    model: str,
    identity: str,
) -> JudgeReply:
    """Return what a judge said in a choice. Raises JudgeError where it is no whole reply, or lacks what a verdict needs."""
    probs, mass = None, None
    check_refusal(choice, who)
    if first_token is not None:
        checked_end(choice.get("finish_reason") or "stop", who, written=False)
        probs, mass = first_token.read(choice, who)
        text, finish_reason = max(probs, key=probs.__getitem__), "stop"
    else:
        finish_reason = checked_end(choice.get("finish_reason"), who)
        text = text_of_choice(choice, who)
    return JudgeReply(
        text=text,
        finish_reason=finish_reason,
        choice_probs=probs,
        label_mass=mass,
        usage=usage,
        latency_s=seconds,
        model=model,
        identity=identity,
    )
