"""Asks a server what its model's chat template makes of messages: vLLM shows it as token ids, and those as text."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from judgekit.errors import JudgeRejected, JudgeUnavailable
from judgekit.judges.engines.http import Server
from judgekit.judges.prompts.messages import control_strings, template_of
from judgekit.judges.prompts.rendered import Messages, Rendered, Shape, Show, look
from judgekit.judges.prompts.thinking_marks import thinking_kwargs

logger = logging.getLogger("judgekit")

UNSHOWN = "the server does not show what its chat template makes of a message"


async def rendered_by(
    server: Server,
    model: str | None,
    shape: Shape,
    *,
    template_kwargs: Mapping[str, Any] | None = None,
    generation_prompt: bool = True,
) -> Rendered:
    """Look at what a server makes of messages, and add the control strings that it tells.

    *template_kwargs*: what requests give to the chat template; None: nothing. Raises JudgeError where the server does not answer.
    """
    info = await _told(server)
    template = template_of(info)
    strings = control_strings(info, template)
    show = _shows(server, model, template_kwargs, generation_prompt)
    try:
        found = await look(show, shape, strings, template)
    except JudgeRejected as error:
        if error.status in (401, 403):
            raise
        logger.debug("%s: %s: %s", server, UNSHOWN, error)
        return Rendered(strings, UNSHOWN)
    except JudgeUnavailable as error:
        if error.lost or error.refused:
            raise
        logger.debug("%s: %s: %s", server, UNSHOWN, error)
        return Rendered(strings, UNSHOWN)
    if found.unverified:
        logger.warning("%s: prompts are unverified: %s", server, found.unverified)
    return Rendered((*strings, *found.strings), found.unverified)


async def _told(server: Server) -> dict[str, Any]:
    """Return the tokenizer's configuration; nothing if the server does not tell it."""
    try:
        return await server.get("/tokenizer_info", root=True)
    except JudgeRejected:
        return {}


def _shows(
    server: Server, model: str | None, template_kwargs: Mapping[str, Any] | None, generation_prompt: bool
) -> Show:
    named = {"model": model} if model is not None else {}

    async def show(messages: Messages, thinking: bool) -> str:
        body = {**named, "messages": messages, "add_generation_prompt": generation_prompt}
        if template_kwargs is not None:
            body["chat_template_kwargs"] = thinking_kwargs(thinking, template_kwargs)
        ids = (await server.post("/tokenize", body, root=True)).get("tokens")
        if not isinstance(ids, list):
            raise JudgeUnavailable(f"{server} answered /tokenize without token ids")
        text = (await server.post("/detokenize", {**named, "tokens": ids}, root=True)).get("prompt")
        if not isinstance(text, str):
            raise JudgeUnavailable(f"{server} answered /detokenize without a text")
        return text

    return show
