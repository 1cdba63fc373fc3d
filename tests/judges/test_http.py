"""Connections to a judge server: none is left open where an engine is dropped."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from judgekit.errors import JudgeUnavailable
from judgekit.judges.engines.http import Server

from .fake_server import FakeServer


@pytest.fixture
def running() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def url(running: asyncio.AbstractEventLoop) -> Iterator[str]:
    server = FakeServer("vllm")
    asyncio.run_coroutine_threadsafe(server.__aenter__(), running).result(30)
    yield server.url
    asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), running).result(30)


class _Holder:
    """Holds a server, and itself: only the garbage collector ends it."""

    def __init__(self, server: Server) -> None:
        self.server, self.myself = server, self


@pytest.mark.parametrize("end", ["idle", "closed", "running"])
def test_a_server_that_is_dropped_leaves_no_connection_open(
    url: str, running: asyncio.AbstractEventLoop, end: str
) -> None:
    loop = running if end == "running" else asyncio.new_event_loop()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        holder = _Holder(Server(url))
        if end == "running":
            asyncio.run_coroutine_threadsafe(holder.server.models(), loop).result(30)
        else:
            loop.run_until_complete(holder.server.models())
        if end == "closed":
            loop.close()
        del holder
        gc.collect()
        gc.collect()
        if end == "running":
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), loop).result(30)
        if end == "idle":
            loop.run_until_complete(asyncio.sleep(0.05))
            loop.close()
        loop.set_exception_handler(None)
        del loop
        gc.collect()
    assert complaints == []
    assert [str(w.message) for w in caught if "client" in str(w.message) or "await" in str(w.message)] == []


async def test_an_address_s_query_is_in_no_error() -> None:
    async def round_in_circles(request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect(str(request.rel_url))

    async with FakeServer("provider") as fake:
        fake.once["/v1/chat/completions"] = [round_in_circles] * 30
        server = Server(f"{fake.url}?key=secret")
        with pytest.raises(JudgeUnavailable, match="TooManyRedirects") as info:
            await server.post("/chat/completions", {})
        assert "secret" not in str(info.value)
        await server.close()
