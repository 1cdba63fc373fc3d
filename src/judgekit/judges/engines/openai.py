"""A judge behind any OpenAI-compatible server: vLLM, a router, SGLang, an API provider.

How verdicts are read depends on what the server supports, which is probed once:

* `tokens`: there is a tokenizer and the server accepts token ids. Prompts are encoded here, so that untrusted
  text cannot become a control token, and requests with short replies share one POST.
* `labels`: a vLLM server: label logprobs over the full vocabulary, by token id.
* `constrained`: a vLLM server without those: the choice is constrained, so there is no label mass.
* `top`: any other server: the labels among the most likely first tokens.

Each server is asked in one style only, because vLLM corrupts one style of logprobs when a batch mixes two.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from judgekit.errors import ConfigError, JudgeError, JudgeRejected, JudgeUnavailable
from judgekit.judges.asking.labels import label_token_ids, normalised
from judgekit.judges.asking.prompt import disarm
from judgekit.judges.base import Judge, JudgeReply, JudgeRequest, Turn
from judgekit.judges.engines.http import Server
from judgekit.judges.layers.coalescing import Coalescing
from judgekit.judges.layers.recovery import READY_S
from judgekit.judges.layers.routed import Routed
from judgekit.types import Usage

if TYPE_CHECKING:
    from judgekit.judges.asking.tokens import PromptEncoder

Style = Literal["tokens", "labels", "constrained", "top"]

_CHARS_PER_TOKEN = 3
"""Without a tokenizer, token budgets are converted to characters at this rate."""
_CUT = " [... the middle was cut ...] "
_TOGETHER_TOKENS = 32
"""Only requests with replies of at most this length share a POST, which returns when its slowest is done."""


class OpenAIJudge:
    """A judge behind one OpenAI-compatible server.

        judge = OpenAIJudge("http://127.0.0.1:8000/v1", model="Qwen/Qwen2.5-1.5B-Instruct")

    *url*, *api_key* and *timeout_s* come from LLM_JUDGE_SERVER_URL, LLM_JUDGE_SERVER_API_KEY and
    LLM_JUDGE_SERVER_TIMEOUT if they are not given (timeout: 60 s for one attempt). *model*: its name on the
    server; None takes the only one served. *tokenizer*: folder or hub name of the model's tokenizer (needs
    transformers): prompts are then sent as token ids, if the server accepts them. *chat_template_kwargs*: for
    the chat template. *extra_body*: further fields of every request. *identity*: names the weights in caches;
    by default the server's own name for its model.

    For several servers of the same weights see `openai_judge`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout_s: float | None = None,
        tokenizer: str | os.PathLike[str] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        identity: str | None = None,
        max_connections: int = 256,
    ) -> None:
        self.server = Server(url, api_key=api_key, timeout_s=timeout_s, max_connections=max_connections)
        # with connections of its own: a health check must not wait behind requests
        self._health = Server(
            self.server.url, api_key=api_key, timeout_s=min(READY_S, self.server.timeout_s), max_connections=2
        )
        self.model = model
        self.tokenizer = os.fspath(tokenizer) if tokenizer is not None else None
        self._template_kwargs = dict(chat_template_kwargs or {})
        self._extra_body = dict(extra_body or {})
        self._identity = identity
        self._encoder: PromptEncoder | None = None
        self._facts: _Facts | None = None
        self._labels: dict[tuple[str, ...], dict[str, list[int]]] = {}
        self._asking: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._together = Coalescing(self, key=_all_but_the_prompt)

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        facts = await self._know()
        if facts.batches and _reply_tokens(request) <= _TOGETHER_TOKENS:
            return await self._together.complete(request)
        (reply,) = await self.complete_many([request])
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def complete_many(self, requests: Sequence[JudgeRequest], /) -> Sequence[JudgeReply | Exception]:
        """Send one request, or several that differ only in their prompts, in one POST."""
        facts = await self._know()
        try:
            return await self._ask(requests, facts)
        except JudgeRejected as error:
            if len(requests) == 1:
                return [error]
            # one of them was rejected: send each by itself, so that the others get their verdict
            return [(await self.complete_many([request]))[0] for request in requests]
        except JudgeError as error:
            return [error] * len(requests)

    async def start(self) -> None:
        """Ask the server what it serves. Raises JudgeUnavailable if it does not answer."""
        try:
            await self._know()
        except BaseException:
            await self.close()  # a judge that did not start is never closed
            raise

    async def ready(self) -> bool:
        """Whether the server says that it is healthy."""
        return await self._health.healthy()

    async def identity(self) -> str:
        """Return the given identity, or the server's name for its model, with its address."""
        if self._identity is None:
            facts = await self._know()
            self._identity = f"{facts.root} at {self.server.url}"
        return self._identity

    async def close(self) -> None:
        """Close the running loop's connections; those of other loops close with their loop."""
        await self.server.close()
        await self._health.close()

    def __repr__(self) -> str:
        return f"OpenAIJudge({self.server.url!r}, model={self.model!r})"

    # ---- requests

    async def _ask(self, requests: Sequence[JudgeRequest], facts: _Facts) -> list[JudgeReply | Exception]:
        """Send one POST."""
        start = time.perf_counter()
        first, together = requests[0], len(requests) > 1
        body = self._body(first, facts)
        sent = [0] * len(requests)
        if facts.style == "tokens":
            prompts = [self._encode(request) for request in requests]
            sent = [len(p) for p in prompts]
            body["prompt"] = prompts if together else prompts[0]
            path = "/completions"
        else:
            talks = [text_messages(request.turns) for request in requests]
            body["messages"] = talks if together else talks[0]
            if facts.vllm or self._template_kwargs or first.sampling.thinking:
                body["chat_template_kwargs"] = {
                    "enable_thinking": first.sampling.thinking,
                    **self._template_kwargs,
                }
            path = "/chat/completions/batch" if together else "/chat/completions"
        if first.choices:
            body |= await self._choice_fields(first.choices, facts)
        answer = await self.server.post(path, body)
        choices = answer.get("choices")
        if not isinstance(choices, list) or not choices or not all(isinstance(c, dict) for c in choices):
            raise JudgeUnavailable(f"{self} answered without a choice")
        by_index = {c.get("index"): c for c in choices} if together else {0: choices[0]}
        usages = _shares(answer.get("usage"), len(requests))
        replies: list[JudgeReply | Exception] = []
        for number, (request, usage) in enumerate(zip(requests, usages, strict=True)):
            choice = by_index.get(number)
            if choice is None:
                replies.append(JudgeUnavailable(f"{self} sent no answer to one of {len(requests)} prompts"))
                continue
            try:
                replies.append(self._reply(request, choice, usage, sent[number], facts, start))
            except JudgeError as error:
                replies.append(error)
        return replies

    def _body(self, request: JudgeRequest, facts: _Facts) -> dict[str, Any]:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": facts.model,
            "max_tokens": _reply_tokens(request),
            "temperature": 0.0 if request.choices else sampling.temperature,
            **self._extra_body,
        }
        if not request.choices and sampling.temperature > 0:
            body["top_p"] = sampling.top_p
            if sampling.seed is not None:
                body["seed"] = sampling.seed + request.vote
        if request.json_schema is not None and facts.schemas:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "verdict", "schema": request.json_schema},
            }
        return body

    def _encode(self, request: JudgeRequest) -> list[int]:
        assert self._encoder is not None
        return self._encoder.encode(
            request.turns, reply_tokens=_reply_tokens(request), thinking=request.sampling.thinking
        ).ids

    def _reply(
        self,
        request: JudgeRequest,
        choice: Mapping[str, Any],
        usage: Mapping[str, int],
        sent: int,
        facts: _Facts,
        start: float,
    ) -> JudgeReply:
        text, finish_reason = _text_of(choice), str(choice.get("finish_reason"))
        probs, mass = None, None
        if request.choices:
            probs, mass = self._read(choice, request.choices, facts)
            text, finish_reason = max(probs, key=probs.__getitem__), "stop"
        return JudgeReply(
            text=text,
            finish_reason=finish_reason,
            choice_probs=probs,
            label_mass=mass,
            usage=Usage(
                calls=1,
                prompt_tokens=sent or usage["prompt_tokens"],
                cached_tokens=usage["cached_tokens"],
                completion_tokens=usage["completion_tokens"],
            ),
            latency_s=time.perf_counter() - start,
            model=facts.root,
        )

    # ---- one-token reads

    def _label_fields(self, labels: Mapping[str, Sequence[int]]) -> dict[str, Any]:
        ids = [i for label_ids in labels.values() for i in label_ids]
        return {"logprobs": 1, "logprob_token_ids": ids, "return_tokens_as_token_ids": True}

    async def _choice_fields(self, choices: tuple[str, ...], facts: _Facts) -> dict[str, Any]:
        if facts.style == "tokens":
            return self._label_fields(await self._label_ids(choices, facts))
        if facts.style == "labels":
            return {**self._label_fields(await self._label_ids(choices, facts)), "logprobs": True}
        if facts.style == "constrained":
            return {
                "structured_outputs": {"choice": list(choices)},
                "logprobs": True,
                "top_logprobs": len(choices),
            }
        return {"logprobs": True, "top_logprobs": 20}

    def _read(
        self, choice: Any, choices: tuple[str, ...], facts: _Facts
    ) -> tuple[dict[str, float], float | None]:
        """Return the labels' probabilities and their mass, from a choice with logprobs."""
        found = _first_logprobs(choice)
        if found is None:
            raise JudgeUnavailable(
                f"{self} sent no logprobs of the first token, so it cannot give one-token verdicts: use the verdict format line or json"
            )
        masses: dict[str, float]
        if facts.style in ("tokens", "labels"):
            labels = self._labels[choices]
            masses = {
                label: math.fsum(math.exp(found[f"token_id:{i}"]) for i in ids if f"token_id:{i}" in found)
                for label, ids in labels.items()
            }
            if not any(f"token_id:{i}" in found for ids in labels.values() for i in ids):
                raise JudgeUnavailable(f"{self} sent none of the requested label logprobs")
        else:
            masses = dict.fromkeys(choices, 0.0)
            for token, logprob in found.items():
                if token.strip() in masses:
                    masses[token.strip()] += math.exp(logprob)
        probs, mass = normalised(masses)
        return probs, None if facts.style == "constrained" else mass

    async def _label_ids(self, choices: tuple[str, ...], facts: _Facts) -> dict[str, list[int]]:
        known = self._labels.get(choices)
        if known is None:
            forms = {
                form: await self._token_ids(form, facts) for label in choices for form in (label, f" {label}")
            }
            known = self._labels[choices] = label_token_ids(choices, forms.__getitem__)
        return known

    async def _token_ids(self, text: str, facts: _Facts) -> list[int]:
        if self._encoder is not None:
            return self._encoder.token_ids(text)
        body = {"model": facts.model, "prompt": text, "add_special_tokens": False}
        answer = await self.server.post("/tokenize", body, root=True)
        tokens = answer.get("tokens")
        if not isinstance(tokens, list):
            raise JudgeUnavailable(f"{self} answered /tokenize in an unknown format")
        return tokens

    # ---- what the server is

    async def _know(self) -> _Facts:
        if self._facts is None:
            loop = asyncio.get_running_loop()
            lock = self._asking.setdefault(loop, asyncio.Lock())
            async with lock:
                if self._facts is None:
                    self._facts = await self._find_out()
        return self._facts

    async def _find_out(self) -> _Facts:
        models = await self.server.models()
        names = [str(m["id"]) for m in models]
        if self.model is None and len(names) != 1:
            raise ConfigError(
                f"{self.server.url} serves {', '.join(names) or 'no model'}: name the judge with model="
            )
        model = self.model or names[0]
        entry = next((m for m in models if m["id"] == model), None)
        if entry is None and len(names) < 50:  # providers list hundreds of models, and not always all
            raise ConfigError(f"{self.server.url} serves {', '.join(names)}, not {model!r}")
        entry = entry or {}
        context = entry.get("max_model_len")
        version = await self._version()
        facts = _Facts(model=model, root=str(entry.get("root") or model), vllm=version is not None)
        if self.tokenizer is not None and self._encoder is None:
            self._encoder = await asyncio.get_running_loop().run_in_executor(
                None, _load_encoder, self.tokenizer, int(context or 32768), self._template_kwargs
            )
        if facts.vllm:
            facts.style = "tokens" if self._encoder is not None else "labels"
            facts.batches = facts.style == "tokens" or await self._takes_batches(facts)
            if not await self._sends_labels(facts):
                facts.style, facts.batches = "constrained", False
        return facts

    async def _version(self) -> str | None:
        """Return vLLM's version, or None for other servers."""
        try:
            answer = await self.server.get("/version", root=True)
        except JudgeError:
            return None
        version = answer.get("version")
        return version if isinstance(version, str) else None

    async def _takes_batches(self, facts: _Facts) -> bool:
        probe = {
            "model": facts.model,
            "messages": [[{"role": "user", "content": "0"}]] * 2,
            "max_tokens": 1,
            "temperature": 0.0,
        }
        try:
            answer = await self.server.post("/chat/completions/batch", probe)
        except JudgeError:
            return False
        return isinstance(answer.get("choices"), list) and len(answer["choices"]) == 2

    async def _sends_labels(self, facts: _Facts) -> bool:
        """Check that the server honours `logprob_token_ids`, which older ones silently ignore."""
        try:
            ids = await self._token_ids("0", facts)
            fields: dict[str, Any] = {
                "max_tokens": 1,
                "temperature": 0.0,
                "model": facts.model,
                **self._label_fields({"0": ids[:1]}),
            }
            if facts.style == "tokens":
                answer = await self.server.post("/completions", {**fields, "prompt": ids})
            else:
                fields |= {"logprobs": True, "messages": [{"role": "user", "content": "0"}]}
                answer = await self.server.post("/chat/completions", fields)
            found = _first_logprobs(_first_choice(answer, str(self)))
        except (JudgeRejected, JudgeUnavailable):
            return False
        return found is not None and f"token_id:{ids[0]}" in found


class _Facts:
    """What a server supports."""

    def __init__(self, *, model: str, root: str, vllm: bool) -> None:
        self.model = model
        self.root = root
        self.vllm = vllm
        self.style: Style = "top"
        self.batches = False
        """Whether one POST can carry several prompts."""
        self.schemas = True
        """Whether a reply can be constrained to a JSON schema."""


def openai_judge(
    url: str | Sequence[str] | None = None,
    *,
    model: str | None = None,
    api_key: str | None = None,
    timeout_s: float | None = None,
    tokenizer: str | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    extra_body: Mapping[str, Any] | None = None,
    identity: str | None = None,
    max_connections: int = 256,
) -> Judge:
    """Make an `OpenAIJudge`, or a `Routed` over several servers of the same weights.

    *url*: one address, or several, in a list or separated by commas (as in LLM_JUDGE_SERVER_URL).
    """
    given = url if url is not None else os.environ.get("LLM_JUDGE_SERVER_URL", "")
    each = [part.strip() for part in given.split(",")] if isinstance(given, str) else list(given)
    judges = [
        OpenAIJudge(
            one,
            model=model,
            api_key=api_key,
            timeout_s=timeout_s,
            tokenizer=tokenizer,
            chat_template_kwargs=chat_template_kwargs,
            extra_body=extra_body,
            identity=identity,
            max_connections=max_connections,
        )
        for one in each
    ]
    return judges[0] if len(judges) == 1 else Routed(judges)


def text_messages(turns: Sequence[Turn]) -> list[dict[str, str]]:
    """Make chat messages of *turns*, with control strings broken up and over-long pieces cut."""
    messages = []
    for turn in turns:
        content = ""
        for piece in turn.pieces:
            text = piece.text
            if not piece.trusted:
                limit = piece.max_tokens * _CHARS_PER_TOKEN if piece.max_tokens is not None else len(text)
                if len(text) > limit:
                    text = text[: (limit + 1) // 2] + _CUT + text[len(text) - limit // 2 :]
                text = disarm(text)
            content += text
        messages.append({"role": turn.role, "content": content})
    return messages


def _first_choice(answer: Mapping[str, Any], who: str) -> dict[str, Any]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise JudgeUnavailable(f"{who} answered without a choice")
    return choices[0]


def _text_of(choice: Mapping[str, Any]) -> str:
    """Return the reply's text, without thinking that the server split off."""
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    return text if isinstance(text, str) else ""


def _first_logprobs(choice: Mapping[str, Any]) -> dict[str, float] | None:
    """Return the first token's logprobs by token, from either API; None if there are none."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict):
        return None
    found: dict[str, float] = {}
    with contextlib.suppress(KeyError, IndexError, TypeError, ValueError, AttributeError):
        if logprobs.get("content"):
            first = logprobs["content"][0]
            for entry in [*(first.get("top_logprobs") or []), first]:
                found[str(entry["token"])] = float(entry["logprob"])
        else:
            found = {str(token): float(value) for token, value in logprobs["top_logprobs"][0].items()}
    good = {token: value for token, value in found.items() if value <= 1e-3}  # no NaN, no probability above 1
    return good or None


def _shares(usage: Any, n: int) -> list[dict[str, int]]:
    """Split a POST's token counts evenly among its *n* requests."""
    usage = usage if isinstance(usage, dict) else {}
    counts = {key: _count(usage, key) for key in ("prompt_tokens", "completion_tokens")}
    counts["cached_tokens"] = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    return [{key: value // n + (i < value % n) for key, value in counts.items()} for i in range(n)]


def _count(usage: Any, key: str) -> int:
    value = usage.get(key) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value >= 0 else 0


def _reply_tokens(request: JudgeRequest) -> int:
    return 1 if request.choices else request.sampling.max_tokens or request.max_tokens


def _all_but_the_prompt(request: JudgeRequest) -> Any:
    """Return what requests must have in common to share a POST."""
    schema = json.dumps(request.json_schema, sort_keys=True) if request.json_schema is not None else None
    vote = request.vote if request.sampling.temperature > 0 else 0  # it is part of the seed
    return request.choices, request.sampling, _reply_tokens(request), schema, vote


_one_import = threading.Lock()
"""transformers imports its parts on demand, which fails where two threads do it at once."""


def _load_encoder(tokenizer: str, context: int, template_kwargs: Mapping[str, Any]) -> PromptEncoder:
    from judgekit.judges.asking.tokens import PromptEncoder

    try:
        with _one_import:
            from transformers import AutoTokenizer
    except ImportError:
        raise ConfigError(
            "openai: prompts as token ids need transformers: install judgekit-rl[tokenizers]"
        ) from None
    try:
        loaded = AutoTokenizer.from_pretrained(tokenizer)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"openai: cannot load the tokenizer {tokenizer}: {str(error).splitlines()[0]}"
        ) from None
    return PromptEncoder(loaded, context_tokens=context, chat_template_kwargs=template_kwargs)
