"""Lets a judge think before its verdict, within a budget of its own, in two requests.

The first ends where the thinking ends, or at its budget; the second goes on behind the closed thinking, so that its first
token is the verdict's. A budget that ends the thinking is "budget forcing" (Muennighoff et al. 2025, arXiv:2501.19393).
What the judge thought is data in the second request, as a rollout's text is: no part of it becomes a control token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from judgekit.errors import JudgeUnavailable
from judgekit.judges.base import JudgeReply, JudgeRequest
from judgekit.judges.prompts.tokens import PromptEncoder


async def think_first(
    request: JudgeRequest,
    encoder: PromptEncoder,
    generate: Callable[[JudgeRequest, list[int]], Awaitable[JudgeReply]],
    image_tokens: int = 0,
) -> JudgeReply:
    """Let the judge think, then answer. *generate* makes the reply to a request from the prompt's token ids.

    *image_tokens*: see `PromptEncoder.encode`.

    Raises ConfigError if the model does not think in a known way, and what *encoder* and *generate* raise.
    """
    known = encoder.thinking()
    sampling = request.sampling
    around = len(known.opening) + len(known.closing) + len(known.newline)
    prompt = encoder.encode(
        request.turns,
        reply_tokens=answer_tokens(request) + sampling.thinking_tokens + around,
        thinking=True,
        image_tokens=image_tokens,
    )
    begun = [*prompt.ids, *known.opening]
    plain = msgspec.structs.replace(sampling, thinking=False)
    thinks = msgspec.structs.replace(
        request,
        choices=(),
        json_schema=None,
        stop=(known.marks.end,),
        sampling=msgspec.structs.replace(plain, max_tokens=sampling.thinking_tokens),
    )
    first = await generate(thinks, begun)
    if first.finish_reason not in ("stop", "length"):
        raise JudgeUnavailable(f"the judge's thinking was broken off ({first.finish_reason})")
    thought = first.text
    if not known.end_is_token:  # else the text may quote the mark
        thought, _, _ = thought.partition(known.marks.end)
    thought = thought.encode("utf-8", "replace").decode()  # a faulty server's lone surrogates
    cut = first.finish_reason == "length"
    thought_ids = encoder.data_ids(thought)[: sampling.thinking_tokens]
    ids = [*begun, *thought_ids, *(known.newline if cut else ()), *known.closing]
    reply = await generate(msgspec.structs.replace(request, sampling=plain), ids)
    return msgspec.structs.replace(
        reply,
        thinking=thought.strip(),
        thinking_cut=cut,
        usage=first.usage + reply.usage,
        latency_s=first.latency_s + reply.latency_s,
        identity=reply.identity if first.identity == reply.identity else "",
    )


def answer_tokens(request: JudgeRequest) -> int:
    """The most tokens of a reply, without its thinking."""
    return 1 if request.choices else request.sampling.max_tokens or request.max_tokens


def stops(request: JudgeRequest, encoder: PromptEncoder | None) -> dict[str, list[Any]]:
    """Return a request's stops as vLLM has them: as tokens where they are one, for special tokens are not in the text."""
    found: dict[str, list[Any]] = {}
    for text in request.stop:
        ids = encoder.token_ids(text) if encoder is not None else []
        if len(ids) == 1:
            found.setdefault("stop_token_ids", []).append(ids[0])
        else:
            found.setdefault("stop", []).append(text)
    return found
