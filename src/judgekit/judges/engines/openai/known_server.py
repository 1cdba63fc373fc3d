"""What is known of a server: what it can do, which fields it takes, and whether it may be another by now."""

from __future__ import annotations

import logging
import os
import time
from functools import partial
from typing import Any
from weakref import WeakSet

import msgspec

from judgekit.errors import ConfigError, JudgeError, JudgekitError, JudgeRejected, JudgeUnavailable
from judgekit.execution.flight import Flights
from judgekit.execution.threads import in_own_thread
from judgekit.judges.base import JudgeRequest
from judgekit.judges.engines.http import KEEP_ALIVE_S, Server
from judgekit.judges.engines.openai.completions import choices_of
from judgekit.judges.engines.openai.encoders import load_encoder
from judgekit.judges.engines.openai.first_token import FirstToken
from judgekit.judges.engines.openai.probe import (
    Abilities,
    LogprobStyle,
    check_images,
    find_out,
    first_logprobs,
    served,
    token_ids,
)
from judgekit.judges.engines.openai.request_bodies import RequestBodies, all_but_the_prompt
from judgekit.judges.engines.openai.request_fields import NO_LOGPROBS, SAY, Terms, negotiate
from judgekit.judges.engines.openai.server_sleep import ServerSleep
from judgekit.judges.health import READY_S
from judgekit.judges.prompts.images import IMAGE_TAGS, Images, checked
from judgekit.judges.prompts.tokens import PromptEncoder
from judgekit.judges.verdicts.labels import label_forms, label_token_ids

logger = logging.getLogger("judgekit")


class KnownServer:
    """A server as one judge knows it.

    *name*: what messages call it. *lists*: whether it lists its models. *terms*: the request fields that it is taken to know. The
    others are the judge's.
    """

    def __init__(
        self,
        server: Server,
        bodies: RequestBodies,
        *,
        name: str,
        model: str | None,
        lists: bool,
        terms: Terms,
        tokenizer: str | os.PathLike[str] | None,
        logprobs: LogprobStyle | None,
        images: Images,
        sleep: bool,
    ) -> None:
        if logprobs not in (None, "labels", "constrained", "top"):
            raise ConfigError(f"openai: logprobs is labels, constrained or top, not {logprobs!r}")
        self.server = server
        # with connections of its own: a health check must not wait behind requests
        self.health = server.beside(timeout_s=READY_S, max_connections=2)
        self.turns = ServerSleep(server, sleep)
        self.model = model
        self.tokenizer = os.fspath(tokenizer) if tokenizer is not None else None
        self.logprobs = logprobs
        self.images = checked(images)
        if self.images != "none" and tokenizer is not None:
            raise ConfigError("openai: images are sent with chat messages: leave tokenizer out")
        self.abilities: Abilities | None = None
        self.encoder: PromptEncoder | None = None
        self.terms = terms
        """What is known of the fields that it takes."""
        self.negotiated: set[Any] = set()
        """Kinds of requests whose fields it takes."""
        self.heard_at = 0.0
        """Monotonic time of its last answer."""
        self.stale = False
        """Whether it was lost since its abilities were found out: it may come back as another."""
        self._name = name
        self._bodies = bodies
        self._lists = lists
        self._given_terms = terms
        self._entry: Abilities | None = None
        """What its list of models said when its abilities were found out."""
        self._told_at = 0.0
        """Monotonic time at which it last listed its models."""
        self._hung = False
        self._searches: Flights[Abilities] = Flights(lasting=True)
        self._labels: dict[tuple[str, ...], dict[str, list[int]]] = {}

    def __repr__(self) -> str:
        return self._name

    # ---- what it can do

    async def look(self, *, surely: bool = False) -> Abilities:
        """Return what the server can do; all callers wait for one search. *surely*: it is asked where it may be another by now."""
        if self.abilities is not None and (self.is_sure if surely else self.is_told):
            return self.abilities
        # the search belongs to all callers: those that are cancelled leave it running
        return await self._searches.join(None, self._find_out)

    @property
    def is_told(self) -> bool:
        """Whether the server has told what it can do, and is not known to be lost since."""
        # whoever is restarted while no connection to it is open is not lost: nobody notices
        recent = time.monotonic() - self.heard_at < KEEP_ALIVE_S
        return self.abilities is not None and not self.stale and recent

    @property
    def is_sure(self) -> bool:
        """Whether the server is the one that told it, as far as can be seen from here."""
        return self.is_told and self.server.connected_at <= self._told_at

    async def _find_out(self) -> Abilities:
        with self.turns:
            entry = await served(self.server, self.model, lists=self._lists)
            if self.abilities is None or self.stale or entry != self._entry:
                await self._ask(entry)
            self.heard_at = self._told_at = time.monotonic()
            assert self.abilities is not None
            return self.abilities

    async def _ask(self, entry: Abilities) -> None:
        """Ask the server what it can do beside what its list of models says."""
        before, encoder = self.abilities, self.encoder
        if self.tokenizer is not None and (
            encoder is None or before is None or entry.context != before.context
        ):
            encoder = await in_own_thread(
                load_encoder, self.tokenizer, entry.context or _CONTEXT, self._bodies.template_kwargs
            )
        found = await find_out(
            self.server,
            entry,
            encoder=encoder,
            logprobs=self.logprobs,
            template_kwargs=self._bodies.template_kwargs,
        )
        if self.images != "none":
            await check_images(self.server, found.model)
            strings = (*found.control_strings, *IMAGE_TAGS)
            found = msgspec.structs.replace(found, control_strings=strings)
        self.abilities, self._entry, self.encoder, self.stale = found, entry, encoder, False
        self.terms, self.negotiated = self._given_terms, set()
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
        for other in list(_known):
            if other is self or other.server.url != self.server.url or other.abilities is None:
                continue
            if other.abilities.logprobs != style:
                if other.logprobs is not None or self.logprobs is not None:
                    raise ConfigError(
                        f"two judges ask {self.server.url} for logprobs in two styles, {other.abilities.logprobs} and "
                        f"{style}, and vLLM mixes them up: give both the same logprobs="
                    )
                other.stale = True
        _known.add(self)

    async def first_token(self, request: JudgeRequest, abilities: Abilities) -> FirstToken | None:
        """Return how a one-token verdict is asked for and read; None for a reply that is written."""
        if not request.choices:
            return None
        ids = await self._label_ids(request.choices, abilities) if abilities.logprobs == "labels" else {}
        return FirstToken(request.choices, abilities.logprobs, ids)

    async def _label_ids(self, choices: tuple[str, ...], abilities: Abilities) -> dict[str, list[int]]:
        labels = self._labels  # another, once the server has been looked at again
        if choices not in labels:
            forms = {form: await self._ids(form, abilities) for form in label_forms(choices)}
            reply = self.encoder.reply_ids if self.encoder is not None else lambda label: ()
            labels[choices] = label_token_ids(choices, forms.__getitem__, reply)
        return labels[choices]

    async def _ids(self, text: str, abilities: Abilities) -> list[int]:
        if self.encoder is not None:
            return self.encoder.token_ids(text)
        return await token_ids(self.server, abilities.model, text)

    # ---- which fields it takes

    async def negotiate_fields(self, request: JudgeRequest, abilities: Abilities) -> bool:
        """Find out which fields of such requests the server takes; whether it now is known to take others. Raises ConfigError."""
        kind = all_but_the_prompt(request)
        if kind in self.negotiated or abilities.by_ids:
            return False
        before = self.terms
        first_token = await self.first_token(request, abilities)
        fields = first_token.fields(by_ids=False) if first_token is not None else {}
        body = {**self._bodies.fields(request, abilities, self.encoder), **fields, "messages": SAY}
        terms, answer = await negotiate(partial(self.server.post, "/chat/completions"), body, before, self)
        if answer is not None and first_token is not None:
            choices = choices_of(answer, self)
            if not choices:
                raise JudgeUnavailable(f"{self} sent no choice")
            if first_logprobs(choices[0]) is None:
                raise ConfigError(NO_LOGPROBS.format(self, "it drops the field"))
        if abilities is self.abilities:
            self.negotiated.add(kind)
            self.terms = terms
        return terms != before

    # ---- whether it is there

    async def ready(self) -> bool:
        """Whether the server says that it is healthy, and after it hung, whether it answers a request for one token."""
        if self.turns.asleep or not await self.health.healthy():
            return False
        if self._hung and self.abilities is not None:
            try:
                await self.health.post(
                    "/completions", {"model": self.abilities.model, "prompt": "0", "max_tokens": 1}
                )
            except JudgeRejected:
                pass  # an answer, too
            except JudgeError:
                return False
            self._hung = False
        return True

    def hangs(self) -> None:
        """Note that the engine hangs, although the server may say that it is healthy."""
        self._hung = self.stale = True

    def note(self, error: JudgekitError) -> None:
        """Have the server looked at again after it was lost: it may come back as another version or model."""
        self._told_at = 0.0  # behind a proxy that answers for it, too
        if isinstance(error, JudgeUnavailable) and error.lost:
            self.stale = True

    async def close(self) -> None:
        """Close the running loop's connections; those of other loops close with their loop."""
        self._searches.cancel()
        await self.server.close()
        await self.health.close()


_CONTEXT = 32768
"""Context length in tokens where the server does not tell it."""
_known: WeakSet[KnownServer] = WeakSet()
"""vLLM's servers that judges of this process know."""
