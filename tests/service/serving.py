"""Serves a runner on a real socket of this process, and sends it requests as trainers' clients do."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
from msgspec import Struct

from judgekit import GradingRunner
from judgekit.service.server import Limits, RewardServer, bound_socket
from judgekit.service.service import RewardService


class Reply(Struct):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> tuple[int, str, str]:
        """Status, type and message; fails where a client could take the answer for a score."""
        assert list(self.json) == ["error"]
        assert self.headers["Content-Type"].startswith("application/json")
        return self.status, self.json["error"]["type"], self.json["error"]["message"]


class Address:
    """A served runner."""

    def __init__(self, server: RewardServer, url: str, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.service = server.service
        self.url = url
        self.session = session

    async def post(self, path: str, body: Any, *, timeout_s: float | None = None, **headers: str) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with self.session.post(
            self.url + path,
            data=io.BytesIO(data),
            headers={"Content-Type": "application/json", **sent},
            timeout=timeout,
        ) as response:
            return Reply(response.status, response.headers, await response.text())

    async def get(self, path: str, body: Any = None, **headers: str) -> Reply:
        async with self.session.get(self.url + path, json=body, headers=headers) as response:
            return Reply(response.status, response.headers, await response.text())


@contextlib.asynccontextmanager
async def serving(
    runner: GradingRunner,
    *,
    group: int = 1,
    group_wait_s: float = 60.0,
    api_key: str | None = None,
    port: int = 0,
    **limits: Any,
) -> AsyncIterator[Address]:
    """Serve *runner*, on a free port if none is given. *limits*: see `Limits`."""
    service = RewardService(runner, group=group, group_wait_s=group_wait_s)
    server = RewardServer(service, api_key=api_key, limits=Limits(**limits))
    listener = bound_socket("127.0.0.1", port)
    async with (
        server.serve(listener),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        yield Address(server, f"http://127.0.0.1:{listener.getsockname()[1]}", session)


class Gate:
    """A grader that counts its calls by response, and answers once it is open."""

    name, version, score_range, inputs = "gate", "1", (0.0, 1.0), ("response",)

    def __init__(self, *, open: bool = True, score: float = 1.0) -> None:
        self.asked: list[str] = []
        self.score = score
        self.error: Exception | None = None
        self.opened = asyncio.Event()
        if open:
            self.opened.set()

    async def grade(self, rollout: Any) -> Any:
        self.asked.append(rollout.response)
        await self.opened.wait()
        if self.error is not None:
            raise self.error
        return self.score


async def until(true: Any) -> None:
    """Wait until *true* holds."""
    while not true():
        await asyncio.sleep(0.005)
