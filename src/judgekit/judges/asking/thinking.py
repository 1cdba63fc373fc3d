"""Lets a judge think before its verdict, within a budget of its own, in two requests.

The first ends where the thinking ends, or at its budget; the second goes on behind the closed thinking, so that its first
token is the verdict's. A budget that ends the thinking is "budget forcing" (Muennighoff et al. 2025, arXiv:2501.19393).
What the judge thought is data in the second request, as a rollout's text is: no part of it becomes a control token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from judgekit.errors import ConfigError
from judgekit.judges.base import JudgeReply, JudgeRequest

if TYPE_CHECKING:
    from judgekit.judges.asking.tokens import PromptEncoder


class Marks(Struct, frozen=True):
    """How a family of models opens and ends its thinking."""

    start: str
    end: str
    after_start: str = "\n"
    after_end: str = "\n\n"


TAGS = (
    Marks("<think>", "</think>"),
    Marks("<thinking>", "</thinking>"),
    Marks("[THINK]", "[/THINK]", after_start=""),
    Marks("<seed:think>", "</seed:think>"),
)
HARMONY = Marks(
    "<|channel|>analysis<|message|>",
    "<|end|>",
    after_start="",
    after_end="<|start|>assistant<|channel|>final<|message|>",
)
"""gpt-oss: thinking is a message of its own, in another channel (OpenAI's harmony response format)."""


async def think_first(
    request: JudgeRequest,
    encoder: PromptEncoder,
    generate: Callable[[JudgeRequest, list[int]], Awaitable[JudgeReply]],
) -> JudgeReply:
    """Let the judge think, then answer. *generate* makes the reply to a request from the prompt's token ids.

    Raises ConfigError if the model does not think in a known way, and what *encoder* and *generate* raise.
    """
    marks, opening = encoder.thinking()
    close = encoder.token_ids(marks.end + marks.after_end)
    cut_off = encoder.token_ids("\n")
    sampling = request.sampling
    around = len(opening) + len(close) + len(cut_off)
    prompt = encoder.encode(
        request.turns,
        reply_tokens=answer_tokens(request) + sampling.thinking_tokens + around,
        thinking=True,
    )
    begun = [*prompt.ids, *opening]
    plain = msgspec.structs.replace(sampling, thinking=False)
    thinks = msgspec.structs.replace(
        request,
        choices=(),
        json_schema=None,
        stop=(marks.end,),
        sampling=msgspec.structs.replace(plain, max_tokens=sampling.thinking_tokens),
    )
    first = await generate(thinks, begun)
    thought, ended, _ = first.text.partition(marks.end)
    cut = first.finish_reason == "length" and not ended
    ids = [*begun, *encoder.data_ids(thought)[: sampling.thinking_tokens], *(cut_off if cut else ()), *close]
    reply = await generate(msgspec.structs.replace(request, sampling=plain), ids)
    return msgspec.structs.replace(
        reply,
        thinking=thought.strip(),
        thinking_cut=cut,
        usage=first.usage + reply.usage,
        latency_s=first.latency_s + reply.latency_s,
    )


def answer_tokens(request: JudgeRequest) -> int:
    """The most tokens of a reply, without its thinking."""
    return 1 if request.choices else request.sampling.max_tokens or request.max_tokens


def marks_of(prompt: str, template: str) -> tuple[Marks, str]:
    """Return a model's marks, and what opens the thinking behind *prompt*, which its template made for thinking.

    Raises ConfigError if the template knows none of them.
    """
    bare = prompt.rstrip()
    for marks in TAGS:
        if bare.endswith(marks.start):
            return marks, ""
    for marks in TAGS:
        if marks.end in template:
            return marks, marks.start + marks.after_start
    if "<|channel|>" in template and "<|message|>" in template:
        return HARMONY, HARMONY.start
    raise ConfigError(
        "the judge's chat template knows no thinking (of the forms <think>, [THINK], <seed:think> and harmony): write "
        "thinking: false"
    )


def without_thought(prompt: str) -> str:
    """Close the thinking that a template opens whatever it is told, as others do it when thinking is off."""
    bare = prompt.rstrip()
    for marks in TAGS:
        if bare.endswith(marks.start):
            return f"{bare}\n\n{marks.end}\n\n"
    return prompt
