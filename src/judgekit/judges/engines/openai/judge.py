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
import time
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any
from weakref import WeakSet

import msgspec

from judgekit.errors import (
    ConfigError,
    JudgeError,
    JudgekitError,
    JudgeRejected,
    JudgeTimeout,
    JudgeUnavailable,
    RolloutError,
)
from judgekit.execution.flight import Flights
from judgekit.execution.threads import in_own_thread
from judgekit.execution.together import together
from judgekit.judges.base import JudgeReply, JudgeRequest
from judgekit.judges.blame import about_prompt
from judgekit.judges.engines.engine_load import EngineLoad
from judgekit.judges.engines.http import KEEP_ALIVE_S, Server, words_of
from judgekit.judges.engines.openai import sglang
from judgekit.judges.engines.openai.batching import Coalescing
from judgekit.judges.engines.openai.encoders import load_encoder
from judgekit.judges.engines.openai.first_token import FirstToken
from judgekit.judges.engines.openai.fitting import Messages, fitting_messages, shorter
from judgekit.judges.engines.openai.probe import (
    Abilities,
    LogprobStyle,
    check_images,
    find_out,
    first_logprobs,
    served,
    token_ids,
)
from judgekit.judges.engines.openai.providers import deployment, provider_of
from judgekit.judges.engines.openai.request_fields import (
    NO_LOGPROBS,
    SAY,
    LimitField,
    Terms,
    given_terms,
    settle,
)
from judgekit.judges.engines.openai.router import routing_of
from judgekit.judges.engines.openai.server_sleep import ServerSleep
from judgekit.judges.engines.replies import (
    TOO_LONG,
    check_refusal,
    checked_end,
    text_of_choice,
    usage_shares,
)
from judgekit.judges.engines.thinking import answer_tokens, stops, think_first
from judgekit.judges.health import READY_S
from judgekit.judges.prompts.images import IMAGE_TAGS, Images, checked
from judgekit.judges.prompts.thinking_marks import thinking_kwargs
from judgekit.judges.prompts.tokens import PromptEncoder
from judgekit.judges.verdicts.labels import check_beginnings, label_forms, label_token_ids
from judgekit.types import Usage

logger = logging.getLogger("judgekit")

_TOGETHER_TOKENS = 32
"""Only requests with replies of at most this length share a POST, which returns when its slowest is done."""
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
        # with connections of its own: a health check must not wait behind requests
        self._health = self.server.beside(timeout_s=READY_S, max_connections=2)
        self._given_terms = self._terms = given_terms(max_tokens_field, omit, self.provider.without)
        self._omit = sorted(omit)
        self._settled: set[Any] = set()
        """Kinds of requests whose fields the server takes."""
        self.model = model if model is not None else deployment(self.server.url)
        self.tokenizer = os.fspath(tokenizer) if tokenizer is not None else None
        if logprobs not in (None, "labels", "constrained", "top"):
            raise ConfigError(f"openai: logprobs is labels, constrained or top, not {logprobs!r}")
        self.logprobs = logprobs
        self.routing = routing_of(router, routing_header)
        self._turns = ServerSleep(self.server, sleep)
        self.images = checked(images)
        if self.images != "none" and tokenizer is not None:
            raise ConfigError("openai: images are sent with chat messages: leave tokenizer out")
        self._template_kwargs = dict(chat_template_kwargs or {})
        self._extra_body = dict(extra_body or {})
        if taken := sorted(_OURS & set(self._extra_body)):
            raise ConfigError(
                f"openai: extra_body must not set {', '.join(taken)}: judgekit sets or needs it"
            )
        self._identity = identity
        self._digests: dict[LogprobStyle | None, str] = {}
        self._encoder: PromptEncoder | None = None
        self._abilities: Abilities | None = None
        self._entry: Abilities | None = None
        """What the server's list of models said when its abilities were found out."""
        self._heard_at = 0.0
        """Monotonic time of its last answer."""
        self._told_at = 0.0
        """Monotonic time at which it last listed its models."""
        self._stale = False
        """Whether the server was lost since its abilities were found out: it may come back as another."""
        self._searches: Flights[Abilities] = Flights(lasting=True)
        self._labels: dict[tuple[str, ...], dict[str, list[int]]] = {}
        self._hung = False
        # behind a router, a POST has one group's requests: more of them have as many in flight
        self._together = Coalescing(self, max_out=64 if self.routing.routed else 16, key=self._sharing)

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        with self._turns:
            return await self._complete(request)

    async def _complete(self, request: JudgeRequest) -> JudgeReply:
        abilities = await self._know()
        if request.sampling.thinking and self._encoder is not None:
            return await think_first(request, self._encoder, partial(self._generate, abilities))
        if abilities.batches and _reply_tokens(request) <= _TOGETHER_TOKENS:
            return await self._together.complete(request)
        (reply,) = await self.complete_many([request])
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _generate(self, begun: Abilities, request: JudgeRequest, ids: list[int]) -> JudgeReply:
        """Make the reply to a request whose prompt is *ids*, if the server is still the one that it was made for."""
        abilities = await self._know()
        if abilities != msgspec.structs.replace(begun, batches=abilities.batches):
            raise JudgeUnavailable(f"{self} has come back as another")
        (reply,) = await self._post([(request, ids)], abilities)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def complete_many(self, requests: Sequence[JudgeRequest], /) -> Sequence[JudgeReply | Exception]:
        """Send requests that differ only in their prompts, in one POST. Each has an outcome of its own."""
        abilities = await self._know()
        made: Sequence[_Prompt | Exception]
        if self._encoder is not None:
            made = [self._encode(r) for r in requests]
        else:
            made = await together(self._fitting(r, abilities) for r in requests)
        outcomes: list[JudgeReply | Exception | None] = [
            p if isinstance(p, Exception) else None for p in made
        ]
        asked = [
            (request, prompt)
            for request, prompt in zip(requests, made, strict=True)
            if not isinstance(prompt, Exception)
        ]
        replies = iter(await self._post(asked, abilities)) if asked else iter(())
        return [next(replies) if outcome is None else outcome for outcome in outcomes]

    async def start(self) -> None:
        """Wake a server that still sleeps, and ask it what it can do. Raises JudgeUnavailable if it does not answer."""
        try:
            if not self._turns.asleep:
                await self._turns.wake_up()
            await self._know()
        except BaseException:
            await self.close()  # a judge that did not start is never closed
            raise

    @property
    def can_sleep(self) -> bool:
        """Whether it was made to sleep between grading phases."""
        return self._turns.able

    async def sleep(self) -> None:
        """Let the server give its GPU's memory back, see `ServerSleep`."""
        await self._turns.sleep()

    async def wake_up(self) -> None:
        """Let the server take its GPU's memory again. Raises JudgeUnavailable if it sleeps on."""
        await self._turns.wake_up()

    async def check_request(self, request: JudgeRequest) -> None:
        """Raise ConfigError if such requests cannot be answered.

        The labels must be tokens, a model that is to think must be able to, and the server must take the fields.
        """
        abilities = await self._know()
        if request.sampling.thinking:
            if self._encoder is not None:
                self._encoder.check_thinking(request.sampling.thinking_tokens)
            elif request.choices:
                raise ConfigError(
                    f"{self}: a verdict of one token after thinking needs prompts as token ids: give the judge its tokenizer: "
                    "(folder or hub name), or take the format line or json"
                )
        if request.choices and abilities.logprobs == "labels":
            await self._label_ids(request.choices, abilities)
        if request.choices and abilities.logprobs == "top":
            check_beginnings(request.choices)
        if not abilities.version:  # vLLM takes them all
            try:
                await self._settle(request, abilities)
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
        if self._turns.asleep or not await self._health.healthy():
            return False
        if self._hung and self._abilities is not None:
            try:
                await self._health.post(
                    "/completions", {"model": self._abilities.model, "prompt": "0", "max_tokens": 1}
                )
            except JudgeRejected:
                pass  # an answer, too
            except JudgeError:
                return False
            self._hung = False
        return True

    @property
    def has_answered(self) -> bool:
        """Whether the server has ever told what it can do."""
        return self._abilities is not None

    @property
    def weights(self) -> str | None:
        """What the server says it has loaded, as far as it was asked."""
        return (self._abilities.identity or self._abilities.root) if self._abilities is not None else None

    @property
    def unverified(self) -> str:
        """Why it is not known that the server renders a rollout's text as it was written; empty: it does, as far as it was asked."""
        return self._abilities.unverified if self._abilities is not None else ""

    async def progress(self) -> object:
        """Return what the engine has done so far, where the server's `/metrics` tell it (vLLM's do)."""
        return await self._health.work_done()

    async def load(self) -> EngineLoad | None:
        """Return how busy the engine is; None where the server's `/metrics` do not tell it."""
        return await self._health.load()

    def hangs(self) -> None:
        """Note that the engine hangs, although the server may say that it is healthy."""
        self._hung = self._stale = True

    async def identity(self) -> str:
        """Return what the verdicts depend on: the given identity, or what the server tells.

        `judgekit serve` tells the weights and the engine's arguments; of another server only its address, model and
        version are known. All with a digest of *chat_template_kwargs*, *extra_body*, *omit* and *tokenizer*, and of how labels
        are read. A server that may be another by now is asked again.
        """
        return self._identity_of(None if self._identity is not None else await self._know(surely=True))

    @property
    def known(self) -> bool:
        """Whether the server is the one that said what it is, as far as can be seen from here."""
        return self._identity is not None or (self._is_told and self.server.connected_at <= self._told_at)

    @property
    def likeness(self) -> str:
        """What servers of the same weights have in common, as far as it was asked: the identity without the address."""
        return self._identity_of(self._abilities, address="")

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
            given = [self._template_kwargs, self._extra_body, self._omit, self.tokenizer, logprobs]
            settings = json.dumps(given, sort_keys=True, default=str)
            self._digests[logprobs] = blake2b(settings.encode(), digest_size=8).hexdigest()
        return self._digests[logprobs]

    async def close(self) -> None:
        """Close the running loop's connections; those of other loops close with their loop."""
        self._searches.cancel()
        await self.server.close()
        await self._health.close()

    def __repr__(self) -> str:
        return f"OpenAIJudge({self.server.url!r}, model={self.model!r})"

    # ---- prompts

    def _encode(self, request: JudgeRequest) -> list[int] | Exception:
        """Make token ids, or the error that concerns this request alone."""
        assert self._encoder is not None
        try:
            return self._encoder.encode(request.turns, reply_tokens=_reply_tokens(request)).ids
        except JudgekitError as error:
            return error

    async def _fitting(self, request: JudgeRequest, abilities: Abilities) -> Messages | Exception:
        """Make chat messages that fit the context, or the error that concerns this request alone."""
        try:
            return await fitting_messages(
                request.turns,
                self.server,
                abilities,
                reply_tokens=_reply_tokens(request),
                template_kwargs=self._for_template(request),
            )
        except JudgekitError as error:
            return error

    def _for_template(self, request: JudgeRequest) -> dict[str, Any]:
        return thinking_kwargs(request.sampling.thinking, self._template_kwargs)

    # ---- requests

    def _sharing(self, request: JudgeRequest) -> Any:
        """Return what requests have in common if they share a POST, which a router sends to one replica."""
        return _all_but_the_prompt(request), self.routing.key(request)

    async def _post(
        self, asked: Sequence[tuple[JudgeRequest, _Prompt]], abilities: Abilities
    ) -> list[JudgeReply | Exception]:
        """Send prompts in one POST; if it is refused, in two halves, so that only what is refused alone fails."""
        try:
            replies = await self._send(asked, abilities)
        except JudgeRejected as error:
            if len(asked) == 1:
                return [await self._refused(*asked[0], abilities, error)]
            halves = (asked[: len(asked) // 2], asked[len(asked) // 2 :])
            return await self._posts(halves, abilities)
        except _OtherCount as error:
            if len(asked) == 1:
                return [JudgeUnavailable(str(error))]
            if abilities is self._abilities:
                logger.warning("%s: prompts are sent one by one from now on", error)
                self._abilities = msgspec.structs.replace(abilities, batches=False)
            return await self._posts([[one] for one in asked], abilities)
        except JudgekitError as error:
            self._note(error)
            return [error] * len(asked)
        return replies

    async def _posts(
        self, parts: Sequence[Sequence[tuple[JudgeRequest, _Prompt]]], abilities: Abilities
    ) -> list[JudgeReply | Exception]:
        """Send each part in a POST of its own."""
        outcomes: list[list[JudgeReply | Exception] | Exception]
        outcomes = await together(self._post(part, abilities) for part in parts)
        return [
            reply
            for part, outcome in zip(parts, outcomes, strict=True)
            for reply in ([outcome] * len(part) if isinstance(outcome, Exception) else outcome)
        ]

    async def _send(
        self,
        asked: Sequence[tuple[JudgeRequest, _Prompt]],
        abilities: Abilities,
    ) -> list[JudgeReply | Exception]:
        """Send one POST; returns one outcome for each prompt, in order. Raises if the POST as a whole failed."""
        start = time.perf_counter()
        first_token = await self._first_token(asked[0][0], abilities)
        answer = await self._answer(asked, abilities, first_token)
        self._heard_at = time.monotonic()
        ordered = self._in_order(answer, len(asked))
        seconds = time.perf_counter() - start
        shares = usage_shares(answer.get("usage"), len(asked))
        replies: list[JudgeReply | Exception] = []
        for choice, (_, prompt), share in zip(ordered, asked, shares, strict=True):
            if abilities.by_ids:
                share = msgspec.structs.replace(share, prompt_tokens=len(prompt))
            try:
                replies.append(self._reply(choice, first_token, share, abilities, seconds))
            except JudgekitError as error:
                replies.append(error)
        return replies

    async def _answer(
        self,
        asked: Sequence[tuple[JudgeRequest, _Prompt]],
        abilities: Abilities,
        first_token: FirstToken | None,
    ) -> Mapping[str, Any]:
        """Send one POST; returns the server's answer."""
        request, prompt = asked[0]
        several = len(asked) > 1
        body = self._body(request, abilities)
        prompts: Any = [p for _, p in asked] if several else prompt
        if self._encoder is not None:
            body["prompt"] = prompts
            path = "/completions"
        else:
            body["messages"] = prompts
            if abilities.version or self._template_kwargs or request.sampling.thinking:
                body["chat_template_kwargs"] = self._for_template(request)
            path = "/chat/completions/batch" if several else "/chat/completions"
        if first_token is not None:
            body |= first_token.fields(by_ids=abilities.by_ids)
        if self._terms != _DEFAULT_TERMS:
            body = self._terms.applied(body)
        headers = self.routing.headers(request)
        if not abilities.native:
            return await self.server.post(path, body, headers=headers)
        wanted = [i for ids in first_token.ids.values() for i in ids] if first_token is not None else []
        completion = self._terms.applied(self._body(request, abilities))
        body = sglang.generate_body(
            completion, prompts, wanted, abilities.model if abilities.adapter else None
        )
        return sglang.as_completion(await self.server.post(sglang.PATH, body, root=True, headers=headers))

    def _in_order(self, answer: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
        """Return an answer's choices in the order of the prompts. Raises _OtherCount unless there is one for each."""
        choices = self._choices(answer)
        numbers = [c.get("index") for c in choices] if count > 1 else range(len(choices))
        order = {n: c for n, c in zip(numbers, choices, strict=True) if isinstance(n, int | float)}
        if len(choices) != count or set(order) != set(range(count)):
            raise _OtherCount(f"{self} sent {len(choices)} choices for {count} prompt(s)")
        return [order[number] for number in range(count)]

    def _choices(self, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return an answer's choices. Raises JudgeUnavailable where it is none, such as an error that came as HTTP 200."""
        choices = answer.get("choices")
        if not isinstance(choices, list) or not all(isinstance(c, dict) for c in choices):
            said = words_of(answer).shown if "error" in answer else ""
            raise JudgeUnavailable(f"{self} answered without a choice" + (f": {said}" if said else ""))
        return choices

    def _reply(
        self,
        choice: Mapping[str, Any],
        first_token: FirstToken | None,
        usage: Usage,
        abilities: Abilities,
        seconds: float,
    ) -> JudgeReply:
        probs, mass = None, None
        check_refusal(choice, self)
        if first_token is not None:
            checked_end(choice.get("finish_reason") or "stop", self, written=False)
            probs, mass = first_token.read(choice, self)
            text, finish_reason = max(probs, key=probs.__getitem__), "stop"
        else:
            finish_reason = checked_end(choice.get("finish_reason"), self)
            text = text_of_choice(choice, self)
        return JudgeReply(
            text=text,
            finish_reason=finish_reason,
            choice_probs=probs,
            label_mass=mass,
            usage=usage,
            latency_s=seconds,
            model=abilities.root,
            identity=self._identity_of(abilities),
        )

    async def _refused(
        self, request: JudgeRequest, prompt: _Prompt, abilities: Abilities, error: JudgeRejected
    ) -> JudgeReply | Exception:
        """Say what a refusal is about: cut a prompt that is too long, and settle the fields that the server takes."""
        if (
            isinstance(prompt, list)
            and prompt
            and isinstance(prompt[0], dict)
            and TOO_LONG.search(str(error))
        ):
            return await self._cut_and_sent(request, prompt, abilities, error)
        if error.status == 404:
            self._stale = True  # the server may have another model now
        if about_prompt(error) and not abilities.version:
            try:
                if await self._settle(request, abilities):
                    (reply,) = await self._post([(request, prompt)], abilities)
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
        (reply,) = await self._post([(request, less)], abilities)
        return reply

    async def _settle(self, request: JudgeRequest, abilities: Abilities) -> bool:
        """Find out which fields of such requests the server takes; whether it now is known to take others. Raises ConfigError."""
        kind = _all_but_the_prompt(request)
        if kind in self._settled or abilities.by_ids:
            return False
        before = self._terms
        first_token = await self._first_token(request, abilities)
        fields = first_token.fields(by_ids=False) if first_token is not None else {}
        body = {**self._body(request, abilities), **fields, "messages": SAY}
        terms, answer = await settle(partial(self.server.post, "/chat/completions"), body, before, self)
        if answer is not None and first_token is not None:
            choices = self._choices(answer)
            if not choices:
                raise JudgeUnavailable(f"{self} sent no choice")
            if first_logprobs(choices[0]) is None:
                raise ConfigError(NO_LOGPROBS.format(self, "it drops the field"))
        if abilities is self._abilities:
            self._settled.add(kind)
            self._terms = terms
        return terms != before

    def _body(self, request: JudgeRequest, abilities: Abilities) -> dict[str, Any]:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": abilities.model,
            "max_tokens": _reply_tokens(request),
            "temperature": 0.0 if request.choices else sampling.temperature,
            **self._extra_body,
        }
        if not request.choices and sampling.temperature > 0:
            body["top_p"] = sampling.top_p
            if sampling.seed is not None:
                body["seed"] = sampling.seed + request.vote
        if sampling.priority:  # SGLang's highest goes first
            body["priority"] = -sampling.priority if abilities.native else sampling.priority
        body |= stops(request, self._encoder)
        if request.json_schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "verdict", "schema": request.json_schema},
            }
        return body

    # ---- one-token verdicts

    async def _first_token(self, request: JudgeRequest, abilities: Abilities) -> FirstToken | None:
        if not request.choices:
            return None
        ids = await self._label_ids(request.choices, abilities) if abilities.logprobs == "labels" else {}
        return FirstToken(request.choices, abilities.logprobs, ids)

    async def _label_ids(self, choices: tuple[str, ...], abilities: Abilities) -> dict[str, list[int]]:
        labels = self._labels  # another, once the server has been looked at again
        if choices not in labels:
            forms = {form: await self._ids(form, abilities) for form in label_forms(choices)}
            reply = self._encoder.reply_ids if self._encoder is not None else lambda label: ()
            labels[choices] = label_token_ids(choices, forms.__getitem__, reply)
        return labels[choices]

    async def _ids(self, text: str, abilities: Abilities) -> list[int]:
        if self._encoder is not None:
            return self._encoder.token_ids(text)
        return await token_ids(self.server, abilities.model, text)

    # ---- what the server can do

    @property
    def _is_told(self) -> bool:
        # whoever is restarted while no connection to it is open is not lost: nobody notices
        recent = time.monotonic() - self._heard_at < KEEP_ALIVE_S
        return self._abilities is not None and not self._stale and recent

    async def _know(self, *, surely: bool = False) -> Abilities:
        """Return what the server can do; all callers wait for one search. *surely*: it is asked where it may be another by now."""
        if self._abilities is not None and (self.known if surely else self._is_told):
            return self._abilities
        # the search belongs to all callers: those that are cancelled leave it running
        return await self._searches.join(None, self._find_out)

    async def _find_out(self) -> Abilities:
        with self._turns:
            entry = await served(self.server, self.model, lists=self.provider.lists_models)
            if self._abilities is None or self._stale or entry != self._entry:
                await self._look(entry)
            self._heard_at = self._told_at = time.monotonic()
            assert self._abilities is not None
            return self._abilities

    async def _look(self, found: Abilities) -> None:
        entry = found
        before = self._abilities
        encoder = self._encoder
        if self.tokenizer is not None and (
            encoder is None or before is None or found.context != before.context
        ):
            encoder = await in_own_thread(
                load_encoder, self.tokenizer, found.context or _CONTEXT, self._template_kwargs
            )
        found = await find_out(
            self.server,
            found,
            encoder=encoder,
            logprobs=self.logprobs,
            template_kwargs=self._template_kwargs,
        )
        if self.images != "none":
            await check_images(self.server, found.model)
            strings = (*found.control_strings, *IMAGE_TAGS)
            found = msgspec.structs.replace(found, control_strings=strings)
        self._abilities, self._entry, self._encoder, self._stale = found, entry, encoder, False
        self._terms, self._settled = self._given_terms, set()
        self._labels = {}  # not cleared: a request that is being made has the old ones
        if found != before:
            if before is not None:
                logger.warning("%s has come back as another: %s, before %s", self, found, before)
            if self.logprobs is None and found.logprobs == "constrained":
                logger.warning(
                    "%s cannot send the labels' probabilities (vLLM can from 0.20 on): its replies are constrained to "
                    "the labels, and whether it would have answered with one of them is not known",
                    self,
                )
        if found.version:
            self._check_style(found.logprobs)

    def _check_style(self, style: LogprobStyle) -> None:
        """Hold all judges of this process that ask this server to one style of logprobs."""
        for other in list(_judges):
            if other is self or other.server.url != self.server.url or other._abilities is None:
                continue
            if other._abilities.logprobs != style:
                if other.logprobs is not None or self.logprobs is not None:
                    raise ConfigError(
                        f"two judges ask {self.server.url} for logprobs in two styles, {other._abilities.logprobs} and "
                        f"{style}, and vLLM mixes them up: give both the same logprobs="
                    )
                other._stale = True
        _judges.add(self)

    def _note(self, error: JudgekitError) -> None:
        """Have the server looked at again after it was lost: it may come back as another version or model."""
        self._told_at = 0.0  # behind a proxy that answers for it, too
        if isinstance(error, JudgeUnavailable) and error.lost:
            self._stale = True


_DEFAULT_TERMS = Terms()
_CONTEXT = 32768
"""Context length in tokens where the server does not tell it."""
_Prompt = list[int] | Messages
_judges: WeakSet[OpenAIJudge] = WeakSet()
"""Judges whose vLLM server is known."""


class _OtherCount(Exception):
    """The server sent more or fewer choices than it was asked for: which is whose cannot be known."""


def _reply_tokens(request: JudgeRequest) -> int:
    """The most tokens of a reply; chat messages that ask for thinking get it in the same reply."""
    sampling = request.sampling
    return answer_tokens(request) + (sampling.thinking_tokens if sampling.thinking else 0)


def _all_but_the_prompt(request: JudgeRequest) -> Any:
    """Return what requests must have in common to share a POST."""
    schema = json.dumps(request.json_schema, sort_keys=True) if request.json_schema is not None else None
    vote = request.vote if request.sampling.temperature > 0 else 0  # it is part of the seed
    return request.choices, request.sampling, _reply_tokens(request), schema, request.stop, vote
