"""A judge behind any OpenAI-compatible server: vLLM, a router, SGLang, an API provider.

With a tokenizer, prompts are sent as token ids, so that untrusted text cannot become a control token; without one they
are sent as chat messages. How one-token verdicts are read depends on what the server can do, see `LogprobStyle`.

A server is asked in one style of logprobs only, by all judges of this process: where requests of two styles meet in
one batch, vLLM sends wrong numbers for one of them.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec

from judgekit.errors import ConfigError, JudgeRejected, JudgeTimeout, JudgeUnavailable
from judgekit.judges.base import JudgeReply, JudgeRequest
from judgekit.judges.blame import about_prompt
from judgekit.judges.engines.engine_load import EngineLoad
from judgekit.judges.engines.http import Server
from judgekit.judges.engines.openai.batching import Coalescing
from judgekit.judges.engines.openai.known_server import KnownServer
from judgekit.judges.engines.openai.posting import Posting
from judgekit.judges.engines.openai.probe import Abilities, LogprobStyle
from judgekit.judges.engines.openai.providers import deployment, provider_of
from judgekit.judges.engines.openai.request_bodies import RequestBodies, all_but_the_prompt, reply_tokens
from judgekit.judges.engines.openai.request_fields import LimitField, given_terms
from judgekit.judges.engines.openai.router import routing_of
from judgekit.judges.engines.thinking import think_first
from judgekit.judges.prompts.images import Images
from judgekit.judges.verdicts.labels import check_beginnings

logger = logging.getLogger("judgekit")

_TOGETHER_TOKENS = 32
"""Only requests with replies of at most this length share a POST, which returns when its slowest is done."""


class OpenAIJudge:
    """A judge behind one OpenAI-compatible server.

        judge = OpenAIJudge("http://127.0.0.1:8000/v1", model="Qwen/Qwen2.5-1.5B-Instruct")

    *url*, *api_key* and *timeout_s* come from LLM_JUDGE_SERVER_URL, LLM_JUDGE_SERVER_API_KEY and
    LLM_JUDGE_SERVER_TIMEOUT if they are not given (timeout: 60 s for one attempt, from when it has a connection).
    *provider*: openai, azure, gemini or anthropic, for an address that is not their own. *max_tokens_field*: the field that
    limits a reply, max_tokens or max_completion_tokens; by default the one that the server takes. *omit*: fields that requests
    leave out (response_format, seed, temperature, top_p).
    *model*: its name on the server; None takes the only one served. *tokenizer*: folder or hub name of the model's
    tokenizer (needs transformers): prompts are sent as token ids, and a server that takes none is a ConfigError.
    *chat_template_kwargs*: for the chat template. *extra_body*: further fields of every request. *identity*: names
    the weights in caches; by default what the server tells, see `identity`. *logprobs*: how one-token verdicts
    are read; by default found out by asking the server. *router*: what stands in front of replicas, see `ROUTERS`: requests
    that share a prompt, a reference and criteria of the data set name their group to it, so that one replica has them in its
    prefix cache, and no POST has requests of two groups. *routing_header*: another header for that. *images*: of the conversations it judges, for a model that sees: none,
    those that come as data, or any, also at addresses, which the server fetches (a rollout may name any address that the
    server can reach). They are sent with chat messages, so without *tokenizer*. *sleep*: the server sleeps between grading
    phases, see `judgekit.judges.awake`.

    What the server refuses is JudgeRejected; whose failure that is, graders find out (`judges/blame.py`). Prompts that are too
    long for the server are cut before.

    For several servers of the same weights see `openai_judge`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout_s: float | None = None,
        provider: str | None = None,
        max_tokens_field: LimitField | None = None,
        omit: Sequence[str] = (),
        tokenizer: str | os.PathLike[str] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        identity: str | None = None,
        logprobs: LogprobStyle | None = None,
        router: str | None = None,
        routing_header: str | None = None,
        images: Images = "none",
        sleep: bool = False,
    ) -> None:
        given = url or os.environ.get("LLM_JUDGE_SERVER_URL", "")
        self.provider = provider_of(given, provider)
        self.server = Server(
            given,
            api_key=api_key,
            timeout_s=timeout_s,
            key_header=self.provider.key_header,
        )
        self.model = model if model is not None else deployment(self.server.url)
        self._bodies = RequestBodies(self.server, chat_template_kwargs, extra_body)
        self._known_server = KnownServer(
            self.server,
            self._bodies,
            name=repr(self),
            model=self.model,
            lists=self.provider.lists_models,
            terms=given_terms(max_tokens_field, omit, self.provider.without),
            tokenizer=tokenizer,
            logprobs=logprobs,
            images=images,
            sleep=sleep,
        )
        self.tokenizer = self._known_server.tokenizer
        self.logprobs = logprobs
        self.images = self._known_server.images
        self.routing = routing_of(router, routing_header)
        self._omit = sorted(omit)
        self._identity = identity
        self._digests: dict[LogprobStyle | None, str] = {}
        self._posting = Posting(self._known_server, self._bodies, self.routing, self._identity_of)
        # behind a router, a POST has one group's requests: more of them have as many in flight
        self._together = Coalescing(self, max_out=64 if self.routing.routed else 16, key=self._sharing)

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        with self._known_server.turns:
            return await self._complete(request)

    async def _complete(self, request: JudgeRequest) -> JudgeReply:
        abilities = await self._known_server.look()
        encoder = self._known_server.encoder
        if request.sampling.thinking and encoder is not None:
            return await think_first(request, encoder, partial(self._generate, abilities))
        if abilities.batches and reply_tokens(request) <= _TOGETHER_TOKENS:
            return await self._together.complete(request)
        (reply,) = await self.complete_many([request])
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _generate(self, begun: Abilities, request: JudgeRequest, ids: list[int]) -> JudgeReply:
        """Make the reply to a request whose prompt is *ids*, if the server is still the one that it was made for."""
        abilities = await self._known_server.look()
        if abilities != msgspec.structs.replace(begun, batches=abilities.batches):
            raise JudgeUnavailable(f"{self} has come back as another")
        (reply,) = await self._posting.post([(request, ids)], abilities)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def complete_many(self, requests: Sequence[JudgeRequest], /) -> Sequence[JudgeReply | Exception]:
        """Send requests that differ only in their prompts, in one POST. Each has an outcome of its own."""
        abilities = await self._known_server.look()
        made = await self._bodies.prompts(requests, abilities, self._known_server.encoder)
        outcomes: list[JudgeReply | Exception | None] = [
            p if isinstance(p, Exception) else None for p in made
        ]
        asked = [
            (request, prompt)
            for request, prompt in zip(requests, made, strict=True)
            if not isinstance(prompt, Exception)
        ]
        replies = iter(await self._posting.post(asked, abilities)) if asked else iter(())
        return [next(replies) if outcome is None else outcome for outcome in outcomes]

    def _sharing(self, request: JudgeRequest) -> Any:
        """Return what requests have in common if they share a POST, which a router sends to one replica."""
        return all_but_the_prompt(request), self.routing.key(request)

    async def start(self) -> None:
        """Wake a server that still sleeps, and ask it what it can do. Raises JudgeUnavailable if it does not answer."""
        try:
            if not self._known_server.turns.asleep:
                await self._known_server.turns.wake_up()
            await self._known_server.look()
        except BaseException:
            await self.close()  # a judge that did not start is never closed
            raise

    @property
    def can_sleep(self) -> bool:
        """Whether it was made to sleep between grading phases."""
        return self._known_server.turns.able

    async def sleep(self) -> None:
        """Let the server give its GPU's memory back, see `ServerSleep`."""
        await self._known_server.turns.sleep()

    async def wake_up(self) -> None:
        """Let the server take its GPU's memory again. Raises JudgeUnavailable if it sleeps on."""
        await self._known_server.turns.wake_up()

    async def check_request(self, request: JudgeRequest) -> None:
        """Raise ConfigError if such requests cannot be answered.

        The labels must be tokens, a model that is to think must be able to, and the server must take the fields.
        """
        abilities = await self._known_server.look()
        if request.sampling.thinking:
            if self._known_server.encoder is not None:
                self._known_server.encoder.check_thinking(request.sampling.thinking_tokens)
            elif request.choices:
                raise ConfigError(
                    f"{self}: a verdict of one token after thinking needs prompts as token ids: give the judge its tokenizer: "
                    "(folder or hub name), or take the format line or json"
                )
        await self._known_server.first_token(request, abilities)  # raises where a label is no token
        if request.choices and abilities.logprobs == "top":
            check_beginnings(request.choices)
        if not abilities.version:  # vLLM takes them all
            try:
                await self._known_server.negotiate_fields(request, abilities)
            except JudgeRejected as error:
                if not about_prompt(error) and error.status != 404:
                    raise
                raise ConfigError(
                    f"{self} refuses a request that has no rollout's text in it, so it would refuse all: {error}"
                ) from None
            except (JudgeUnavailable, JudgeTimeout) as error:  # a refusal in the run will settle it
                logger.info("%s: what fields it takes is not known yet: %s", self, error)

    async def ready(self) -> bool:
        """Whether the server says that it is healthy, and after it hung, whether it answers a request for one token."""
        return await self._known_server.ready()

    @property
    def has_answered(self) -> bool:
        """Whether the server has ever told what it can do."""
        return self._known_server.abilities is not None

    @property
    def weights(self) -> str | None:
        """What the server says it has loaded, as far as it was asked."""
        found = self._known_server.abilities
        return (found.identity or found.root) if found is not None else None

    @property
    def unverified(self) -> str:
        """Why it is not known that the server renders a rollout's text as it was written; empty: it does, as far as it was asked."""
        return self._known_server.abilities.unverified if self._known_server.abilities is not None else ""

    async def progress(self) -> object:
        """Return what the engine has done so far, where the server's `/metrics` tell it (vLLM's do)."""
        return await self._known_server.health.work_done()

    async def load(self) -> EngineLoad | None:
        """Return how busy the engine is; None where the server's `/metrics` do not tell it."""
        return await self._known_server.health.load()

    def hangs(self) -> None:
        """Note that the engine hangs, although the server may say that it is healthy."""
        self._known_server.hangs()

    async def identity(self) -> str:
        """Return what the verdicts depend on: the given identity, or what the server tells.

        `judgekit serve` tells the weights and the engine's arguments; of another server only its address, model and
        version are known. All with a digest of *chat_template_kwargs*, *extra_body*, *omit* and *tokenizer*, and of how labels
        are read. A server that may be another by now is asked again.
        """
        return self._identity_of(
            None if self._identity is not None else await self._known_server.look(surely=True)
        )

    @property
    def known(self) -> bool:
        """Whether the server is the one that said what it is, as far as can be seen from here."""
        return self._identity is not None or self._known_server.is_sure

    @property
    def likeness(self) -> str:
        """What servers of the same weights have in common, as far as it was asked: the identity without the address."""
        return self._identity_of(self._known_server.abilities, address="")

    @property
    def known_as(self) -> str:
        """The address and the settings: what the judge is known by while the server does not answer."""
        return f"{self.model} at {self.server.url} {self._settings(self.logprobs)}"

    def _identity_of(self, abilities: Abilities | None, address: str | None = None) -> str:
        logprobs, name = self.logprobs, self._identity or ""
        if self._identity is None and abilities is not None:
            logprobs = abilities.logprobs
            address = f" at {self.server.url}" if address is None else address
            name = f"{abilities.root}{address} {abilities.version}".rstrip()
            if abilities.identity:  # the same, wherever it is served
                name = f"{abilities.identity} {abilities.version}"
        return f"{name} {self._settings(logprobs)}"

    def _settings(self, logprobs: LogprobStyle | None) -> str:
        """Return a digest of what is not the server's; it is asked for with every reply."""
        if logprobs not in self._digests:
            bodies = self._bodies
            given = [bodies.template_kwargs, bodies.extra_body, self._omit, self.tokenizer, logprobs]
            settings = json.dumps(given, sort_keys=True, default=str)
            self._digests[logprobs] = blake2b(settings.encode(), digest_size=8).hexdigest()
        return self._digests[logprobs]

    async def close(self) -> None:
        """Close the running loop's connections; those of other loops close with their loop."""
        await self._known_server.close()

    def __repr__(self) -> str:
        return f"OpenAIJudge({self.server.url!r}, model={self.model!r})"
