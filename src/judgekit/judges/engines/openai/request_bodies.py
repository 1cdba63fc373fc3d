"""Makes what is sent to a server: prompts, and the fields around them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from judgekit.errors import ConfigError, JudgekitError
from judgekit.execution.together import together
from judgekit.judges.base import JudgeRequest
from judgekit.judges.engines.http import Server
from judgekit.judges.engines.openai.fitting import Messages, fitting_messages
from judgekit.judges.engines.openai.probe import Abilities
from judgekit.judges.engines.thinking import answer_tokens, stops
from judgekit.judges.prompts.thinking_marks import thinking_kwargs
from judgekit.judges.prompts.tokens import PromptEncoder

Prompt = list[int] | Messages
_OURS = frozenset(
    [
        "model",
        "messages",
        "prompt",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "seed",
        "n",
        "best_of",
        "stream",
        "echo",
        "logprobs",
        "top_logprobs",
        "logprob_token_ids",
        "return_tokens_as_token_ids",
        "prompt_logprobs",
        "structured_outputs",
        "response_format",
    ]
)
"""Fields that `extra_body` must not set: replies are read by them."""


class RequestBodies:
    """Makes the bodies of requests to one server.

    *template_kwargs*: for its chat template. *extra_body*: further fields of every request. With an encoder, prompts are token
    ids; without one, chat messages.
    """

    def __init__(
        self,
        server: Server,
        template_kwargs: Mapping[str, Any] | None,
        extra_body: Mapping[str, Any] | None,
    ) -> None:
        self.server = server
        self.template_kwargs = dict(template_kwargs or {})
        self.extra_body = dict(extra_body or {})
        if taken := sorted(_OURS & set(self.extra_body)):
            raise ConfigError(
                f"openai: extra_body must not set {', '.join(taken)}: judgekit sets or needs it"
            )

    async def prompts(
        self, requests: Sequence[JudgeRequest], abilities: Abilities, encoder: PromptEncoder | None
    ) -> Sequence[Prompt | Exception]:
        """Return each request's prompt, or the error that concerns it alone."""
        if encoder is not None:
            return [_token_ids(request, encoder) for request in requests]
        return await together(self._messages(request, abilities) for request in requests)

    async def _messages(self, request: JudgeRequest, abilities: Abilities) -> Messages | Exception:
        """Make chat messages that fit the context, or the error that concerns this request alone."""
        try:
            return await fitting_messages(
                request.turns,
                self.server,
                abilities,
                reply_tokens=reply_tokens(request),
                template_kwargs=self._for_template(request),
            )
        except JudgekitError as error:
            return error

    def _for_template(self, request: JudgeRequest) -> dict[str, Any]:
        return thinking_kwargs(request.sampling.thinking, self.template_kwargs)

    def fields(
        self, request: JudgeRequest, abilities: Abilities, encoder: PromptEncoder | None
    ) -> dict[str, Any]:
        """Return a request's fields, without a prompt."""
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": abilities.model,
            "max_tokens": reply_tokens(request),
            "temperature": 0.0 if request.choices else sampling.temperature,
            **self.extra_body,
        }
        if not request.choices and sampling.temperature > 0:
            body["top_p"] = sampling.top_p
            if sampling.seed is not None:
                body["seed"] = sampling.seed + request.vote
        if sampling.priority:  # SGLang's highest goes first
            body["priority"] = -sampling.priority if abilities.native else sampling.priority
        body |= stops(request, encoder)
        if request.json_schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "verdict", "schema": request.json_schema},
            }
        return body

    def with_prompts(
        self,
        request: JudgeRequest,
        prompts: Sequence[Prompt],
        abilities: Abilities,
        encoder: PromptEncoder | None,
    ) -> tuple[str, dict[str, Any]]:
        """Return the path for *prompts* of requests like this one, and the body: one prompt as it is, several as a list."""
        body = self.fields(request, abilities, encoder)
        several = len(prompts) > 1
        given: Any = list(prompts) if several else prompts[0]
        if encoder is not None:
            body["prompt"] = given
            return "/completions", body
        body["messages"] = given
        if abilities.version or self.template_kwargs or request.sampling.thinking:
            body["chat_template_kwargs"] = self._for_template(request)
        return "/chat/completions/batch" if several else "/chat/completions", body


def _token_ids(request: JudgeRequest, encoder: PromptEncoder) -> list[int] | Exception:
    """Make token ids, or the error that concerns this request alone."""
    try:
        return encoder.encode(request.turns, reply_tokens=reply_tokens(request)).ids
    except JudgekitError as error:
        return error


def reply_tokens(request: JudgeRequest) -> int:
    """The most tokens of a reply; chat messages that ask for thinking get it in the same reply."""
    sampling = request.sampling
    return answer_tokens(request) + (sampling.thinking_tokens if sampling.thinking else 0)


def all_but_the_prompt(request: JudgeRequest) -> Any:
    """Return what requests must have in common to share a POST."""
    schema = json.dumps(request.json_schema, sort_keys=True) if request.json_schema is not None else None
    vote = request.vote if request.sampling.temperature > 0 else 0  # it is part of the seed
    return request.choices, request.sampling, reply_tokens(request), schema, request.stop, vote
