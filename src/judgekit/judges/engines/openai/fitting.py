"""Cuts chat messages to a server's context."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from judgekit.errors import JudgeRejected, JudgeUnavailable
from judgekit.judges.base import Turn
from judgekit.judges.engines.http import Server
from judgekit.judges.engines.openai.budgets import counted_limits
from judgekit.judges.engines.openai.probe import Abilities
from judgekit.judges.prompts.messages import text_messages, text_of

Messages = list[dict[str, Any]]


async def fitting_messages(
    turns: Sequence[Turn],
    server: Server,
    abilities: Abilities,
    *,
    reply_tokens: int,
    template_kwargs: Mapping[str, Any],
) -> Messages:
    """Make chat messages, and cut them until the server counts no more tokens than its context has."""
    strings, context = abilities.control_strings, abilities.context
    limits = await counted_limits(turns, server, abilities)
    if context is None:
        return text_messages(turns, control_strings=strings, limits=limits)
    room = context - reply_tokens
    # no vocabulary has longer tokens in number; without this bound, counting a huge text would take the server seconds
    most = 64 * context
    messages = text_messages(turns, control_strings=strings, max_chars=most, limits=limits)
    while _most_tokens(messages) > room and abilities.version:
        body = {
            "model": abilities.model,
            "messages": [{**m, "content": text_of(m)} for m in messages],  # nobody knows an image's tokens
            "chat_template_kwargs": template_kwargs,
        }
        try:
            count = (await server.post("/tokenize", body, root=True)).get("count")
        except JudgeRejected as error:
            if error.status != 404:
                raise
            break  # behind a gateway that has no such page: what the server then refuses as too long is cut
        if not isinstance(count, int) or count < 1:
            raise JudgeUnavailable(f"{server} answered /tokenize without a count")
        if count <= room:
            break
        messages = shorter(turns, strings, messages, 0.97 * room / count, limits)
    return messages


def shorter(
    turns: Sequence[Turn],
    strings: Sequence[str],
    messages: Messages,
    share: float,
    limits: Sequence[int] | None = None,
) -> Messages:
    """Make the messages again with *share* of their characters. Raises JudgeRejected where nothing is left to cut."""
    length = sum(len(text_of(m)) for m in messages)
    wanted = int(length * share)
    while True:
        try:
            made = text_messages(turns, control_strings=strings, max_chars=wanted, limits=limits)
            break
        except JudgeRejected:  # a few characters of the rollout may be most of the tokens: take less away
            if length - wanted < 2:
                raise
            wanted = (wanted + length) // 2
    if sum(len(text_of(m)) for m in made) >= length:
        raise JudgeRejected("the prompt is too long for the judge's context, also without the rollout's text")
    return made


def _most_tokens(messages: Messages) -> int:
    """A bound on the messages' tokens that needs no tokenizer: one for each byte, and some for the template."""
    texts = list(map(text_of, messages))
    normal = [t if t.isascii() else unicodedata.normalize("NFKC", t) for t in texts]
    return 256 + sum(len(t) if t.isascii() else len(t.encode("utf-8", "surrogatepass")) for t in normal)
