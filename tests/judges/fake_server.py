"""A loopback HTTP server that behaves like the servers that judges live behind, well or badly."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from chat_templates import rendered

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
TOKENS = {"0": 10, "1": 11, " 0": 20, " 1": 21, "A": 12, "B": 13}


class FakeServer:
    """An OpenAI-compatible server.

    *kind*: "vllm" (label logprobs and batches), "old vllm" (ignores the label fields without a word),
    "provider" (top logprobs only). *score*: probability of label 1. *fault*: a handler in place of the
    completions and of /classify. *once*: handlers that answer one request each, by path. /tokenize counts one token for each
    three characters of messages.
    """

    def __init__(
        self,
        kind: str = "vllm",
        *,
        score: float = 0.75,
        models: tuple[str, ...] = ("judge",),
        port: int = 0,
    ) -> None:
        self.kind = kind
        self.score = score
        self.models = models
        self.fault: Handler | None = None
        self.once: dict[str, list[Handler]] = {}
        self.info: dict[str, Any] | None = None
        """What /tokenizer_info answers; None: 404."""
        self.template: str | None = None
        """A chat template, which /tokenize and /detokenize show; every character is a token."""
        self.tokens_of: Callable[[str], int] = lambda text: len(text) // 3
        """How many tokens a text has."""
        self.tokenized = 0
        """Chats that were shown."""
        self.root = "/models/judge"
        self.listed = 0
        """Requests of /v1/models."""
        self.metrics: str | None = None
        self.more_models: list[dict[str, Any]] = []
        self.turns: list[str] = []
        """Calls to sleep and to wake up."""
        self.asleep = False
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        """Headers and bodies of what was generated for."""
        self.key: str | None = None
        self.port = port
        self.mass = 0.9

    async def __aenter__(self) -> FakeServer:
        @web.middleware
        async def once(request: web.Request, handler: Handler) -> web.StreamResponse:
            waiting = self.once.get(request.path)
            return await (waiting.pop(0) if waiting else handler)(request)

        app = web.Application(client_max_size=64 << 20, middlewares=[once])
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        if "vllm" in self.kind:
            app.router.add_get("/version", self._version)
            app.router.add_post("/tokenize", self._tokenize)
            app.router.add_post("/detokenize", self._detokenize)
            app.router.add_get("/tokenizer_info", self._tokenizer_info)
            app.router.add_post("/sleep", self._turn)
            app.router.add_post("/wake_up", self._turn)
            app.router.add_get("/is_sleeping", self._is_sleeping)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/classify", self._classify)
        if self.kind == "vllm":
            app.router.add_post("/v1/chat/completions/batch", self._batch)
            app.router.add_post("/v1/completions", self._completions)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def asked(self) -> list[dict[str, Any]]:
        """Bodies of what was asked after the probes of the first contact."""
        return [b for b in self.bodies if "candidate" in json.dumps(b).lower() or "prompt" in b]

    async def _models(self, request: web.Request) -> web.Response:
        self.listed += 1
        if (refused := self._refused(request)) is not None:
            return refused
        entry = {"max_model_len": 4096, "root": self.root} if "vllm" in self.kind else {}
        data = [{"id": m, **entry} for m in self.models]
        return web.json_response({"object": "list", "data": [*data, *self.more_models]})

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if "vllm" in self.kind else 404)

    async def _turn(self, request: web.Request) -> web.Response:
        self.turns.append(str(request.rel_url))
        self.asleep = request.path == "/sleep"
        return web.Response(status=200)

    async def _is_sleeping(self, request: web.Request) -> web.Response:
        return web.json_response({"is_sleeping": self.asleep})

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=self.metrics or "", status=200 if self.metrics is not None else 404)

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0"})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "messages" in body and self.template is not None:
            self.tokenized += 1
            variables = {
                "add_generation_prompt": body["add_generation_prompt"],
                **body.get("chat_template_kwargs", {}),
            }
            shown = rendered(self.template, body["messages"], **variables)
            return web.json_response({"count": len(shown), "tokens": list(map(ord, shown))})
        if "messages" in body:
            return web.json_response({"count": len("".join(m["content"] for m in body["messages"])) // 3})
        text = body["prompt"]
        return web.json_response(
            {"tokens": [TOKENS[text]] if text in TOKENS else [1] * max(2, self.tokens_of(text))}
        )

    async def _detokenize(self, request: web.Request) -> web.Response:
        if self.template is None:
            return web.json_response({}, status=404)
        return web.json_response({"prompt": "".join(map(chr, (await request.json())["tokens"]))})

    async def _tokenizer_info(self, request: web.Request) -> web.Response:
        return web.json_response(self.info or {}, status=200 if self.info is not None else 404)

    async def _classify(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        if self.fault is not None:
            return await self.fault(request)
        return web.json_response({"data": [{"probs": [self.score]}], "usage": {"prompt_tokens": 7}})

    def _refused(self, request: web.Request) -> web.Response | None:
        self.headers.append(dict(request.headers))
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response(
                {"error": {"message": f"bad key {request.headers.get('Authorization')}"}}, status=401
            )
        return None

    async def _answer(
        self,
        request: web.Request,
        make: Callable[[dict[str, Any]], list[dict[str, Any]]],
        *,
        faulty: bool = True,
    ) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.paths.append(request.path)
        self.requests.append((dict(request.headers), body))
        if (refused := self._refused(request)) is not None:
            return refused
        if (
            faulty
            and self.fault is not None
            and "max_tokens" in body
            and (len(self.asked()) or not body.get("logprobs"))
        ):
            return await self.fault(request)
        prompts = body.get("prompt", [0] * 7)
        count = sum(map(len, prompts)) if isinstance(prompts[0], list) else len(prompts)
        usage = {
            "prompt_tokens": count,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 4},
        }
        named = {"id": f"cmpl-{request.headers['X-Request-Id']}"} if "vllm" in self.kind else {}
        return web.json_response({**named, "choices": make(body), "usage": usage})

    def hold(self) -> tuple[asyncio.Event, asyncio.Event]:
        """Let requests wait; returns what tells that one has arrived, and what lets them go on."""
        arrived, go_on = asyncio.Event(), asyncio.Event()

        async def held(request: web.Request) -> web.StreamResponse:
            arrived.set()
            await go_on.wait()
            return await self.well(request)

        self.fault = held
        return arrived, go_on

    async def well(self, request: web.Request) -> web.StreamResponse:
        """Answer a request for chat as a server without `fault` does: for faults that hit some requests only."""
        answer = self._batch if request.path.endswith("batch") else self._chat
        return await answer(request, faulty=False)

    async def _chat(self, request: web.Request, *, faulty: bool = True) -> web.StreamResponse:
        return await self._answer(request, lambda body: [{"index": 0, **self._choice(body)}], faulty=faulty)

    async def _batch(self, request: web.Request, *, faulty: bool = True) -> web.StreamResponse:
        return await self._answer(
            request,
            lambda body: [{"index": i, **self._choice(body)} for i in range(len(body["messages"]))][::-1],
            faulty=faulty,
        )

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        def make(body: dict[str, Any]) -> list[dict[str, Any]]:
            prompts = body["prompt"] if isinstance(body["prompt"][0], list) else [body["prompt"]]
            top = {f"token_id:{i}": math.log(p) for i, p in self._by_id(body).items()}
            return [
                {"index": i, "text": "1", "finish_reason": "length", "logprobs": {"top_logprobs": [top]}}
                for i in range(len(prompts))
            ]

        return await self._answer(request, make)

    def _by_id(self, body: dict[str, Any]) -> dict[int, float]:
        shares = {11: self.score, 21: 0.0, 10: 1 - self.score, 20: 0.0, 12: 0.5, 13: 0.5}
        return {i: max(shares.get(i, 0.0) * self.mass, 1e-9) for i in body.get("logprob_token_ids") or [99]}

    def _choice(self, body: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": "### Final Score: 1" if not body.get("logprobs") else "1"}
        if not body.get("logprobs"):
            return {"message": message, "finish_reason": "stop", "logprobs": None}
        if self.kind == "vllm" and body.get("logprob_token_ids"):
            entries = [
                {"token": f"token_id:{i}", "logprob": math.log(p)} for i, p in self._by_id(body).items()
            ]
        else:
            constrained = bool(body.get("structured_outputs"))
            total = 1.0 if constrained else self.mass
            shares = {
                "1": self.score * total,
                "0": (1 - self.score) * total * 0.5,
                " 0": (1 - self.score) * total * 0.5,
            }
            if not constrained:
                shares["Sure"] = 1 - self.mass
            entries = [{"token": t, "logprob": math.log(p)} for t, p in shares.items() if p > 0]
        first = {"token": entries[0]["token"], "logprob": entries[0]["logprob"], "top_logprobs": entries}
        return {"message": message, "finish_reason": "length", "logprobs": {"content": [first]}}


async def hang(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(3600)
    raise AssertionError


async def half_a_body(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"choices": [{"index": 0, "mess')
    assert request.transport is not None
    request.transport.close()
    return response


async def nothing_at_all(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def says(body: str, *, status: int = 200, content_type: str = "application/json", **headers: str) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(
            body=body.encode(), status=status, headers={"Content-Type": content_type, **headers}
        )

    return answer
