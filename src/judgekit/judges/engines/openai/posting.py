"""Sends prompts to a server, several in one POST where it takes that, and says what a refusal is about."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from judgekit.errors import JudgekitError, JudgeRejected, JudgeUnavailable, RolloutError
from judgekit.execution.together import together
from judgekit.judges.base import JudgeReply, JudgeRequest
from judgekit.judges.blame import about_prompt
from judgekit.judges.engines.openai import sglang
from judgekit.judges.engines.openai.completions import OtherCount, in_order, reply_of
from judgekit.judges.engines.openai.first_token import FirstToken
from judgekit.judges.engines.openai.fitting import shorter
from judgekit.judges.engines.openai.known_server import KnownServer
from judgekit.judges.engines.openai.probe import Abilities
from judgekit.judges.engines.openai.request_bodies import Prompt, RequestBodies
from judgekit.judges.engines.openai.request_fields import Terms
from judgekit.judges.engines.openai.router import Routing
from judgekit.judges.engines.replies import TOO_LONG, usage_shares

logger = logging.getLogger("judgekit")

_DEFAULT_TERMS = Terms()
Asked = Sequence[tuple[JudgeRequest, Prompt]]
"""Requests that differ only in their prompts, each with its own."""


class Posting:
    """Sends the requests of one judge. *identity_of*: what its replies are filed under, for what the server can do."""

    def __init__(
        self,
        known: KnownServer,
        bodies: RequestBodies,
        routing: Routing,
        identity_of: Callable[[Abilities], str],
    ) -> None:
        self._known = known
        self._bodies = bodies
        self._routing = routing
        self._identity_of = identity_of

    async def post(self, asked: Asked, abilities: Abilities) -> list[JudgeReply | Exception]:
        """Send prompts in one POST; if it is refused, in two halves, so that only what is refused alone fails."""
        try:
            replies = await self._send(asked, abilities)
        except JudgeRejected as error:
            if len(asked) == 1:
                return [await self._refused(*asked[0], abilities, error)]
            halves = (asked[: len(asked) // 2], asked[len(asked) // 2 :])
            return await self._posts(halves, abilities)
        except OtherCount as error:
            if len(asked) == 1:
                return [JudgeUnavailable(str(error))]
            if abilities is self._known.abilities:
                logger.warning("%s: prompts are sent one by one from now on", error)
                self._known.abilities = msgspec.structs.replace(abilities, batches=False)
            return await self._posts([[one] for one in asked], abilities)
        except JudgekitError as error:
            self._known.note(error)
            return [error] * len(asked)
        return replies

    async def _posts(self, parts: Sequence[Asked], abilities: Abilities) -> list[JudgeReply | Exception]:
        """Send each part in a POST of its own."""
        outcomes: list[list[JudgeReply | Exception] | Exception]
        outcomes = await together(self.post(part, abilities) for part in parts)
        return [
            reply
            for part, outcome in zip(parts, outcomes, strict=True)
            for reply in ([outcome] * len(part) if isinstance(outcome, Exception) else outcome)
        ]

    async def _send(self, asked: Asked, abilities: Abilities) -> list[JudgeReply | Exception]:
        """Send one POST; returns one outcome for each prompt, in order. Raises if the POST as a whole failed."""
        start = time.perf_counter()
        first_token = await self._known.first_token(asked[0][0], abilities)
        answer = await self._answer(asked, abilities, first_token)
        self._known.heard_at = time.monotonic()
        ordered = in_order(answer, len(asked), self._known)
        seconds = time.perf_counter() - start
        shares = usage_shares(answer.get("usage"), len(asked))
        identity = self._identity_of(abilities)
        replies: list[JudgeReply | Exception] = []
        for choice, (_, prompt), share in zip(ordered, asked, shares, strict=True):
            if abilities.by_ids:
                share = msgspec.structs.replace(share, prompt_tokens=len(prompt))
            try:
                replies.append(
                    reply_of(
                        choice,
                        first_token,
                        self._known,
                        usage=share,
                        seconds=seconds,
                        model=abilities.root,
                        identity=identity,
                    )
                )
            except JudgekitError as error:
                replies.append(error)
        return replies

    async def _answer(
        self, asked: Asked, abilities: Abilities, first_token: FirstToken | None
    ) -> Mapping[str, Any]:
        """Send one POST; returns the server's answer."""
        known, request = self._known, asked[0][0]
        prompts = [prompt for _, prompt in asked]
        path, body = self._bodies.with_prompts(request, prompts, abilities, known.encoder)
        if first_token is not None:
            body |= first_token.fields(by_ids=abilities.by_ids)
        if known.terms != _DEFAULT_TERMS:
            body = known.terms.applied(body)
        headers = self._routing.headers(request)
        if not abilities.native:
            return await known.server.post(path, body, headers=headers)
        wanted = [i for ids in first_token.ids.values() for i in ids] if first_token is not None else []
        completion = known.terms.applied(self._bodies.fields(request, abilities, known.encoder))
        prompt: Any = prompts if len(prompts) > 1 else prompts[0]
        body = sglang.generate_body(
            completion, prompt, wanted, abilities.model if abilities.adapter else None
        )
        return sglang.as_completion(await known.server.post(sglang.PATH, body, root=True, headers=headers))

    async def _refused(
        self, request: JudgeRequest, prompt: Prompt, abilities: Abilities, error: JudgeRejected
    ) -> JudgeReply | Exception:
        """Say what a refusal is about: cut a prompt that is too long, and negotiate the fields that the server takes."""
        if (
            isinstance(prompt, list)
            and prompt
            and isinstance(prompt[0], dict)
            and TOO_LONG.search(str(error))
        ):
            return await self._cut_and_sent(request, prompt, abilities, error)
        if error.status == 404:
            self._known.stale = True  # the server may have another model now
        if about_prompt(error) and not abilities.version:
            try:
                if await self._known.negotiate_fields(request, abilities):
                    (reply,) = await self.post([(request, prompt)], abilities)
                    return reply
            except JudgekitError as second:
                return second
        return error

    async def _cut_and_sent(
        self, request: JudgeRequest, prompt: list[Any], abilities: Abilities, error: JudgeRejected
    ) -> JudgeReply | Exception:
        """Send a prompt again that was refused as too long, with less of its data."""
        try:
            less = shorter(request.turns, abilities.control_strings, prompt, 0.6)
        except JudgeRejected:
            if any(p.image and p.max_tokens is not None for turn in request.turns for p in turn.pieces):
                return RolloutError(f"the rollout has too many images for the judge: {error}")
            return error
        (reply,) = await self.post([(request, less)], abilities)
        return reply
