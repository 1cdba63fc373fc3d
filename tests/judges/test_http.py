"""Connections to a judge server: none is left open where an engine is dropped."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading
import warnings
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web

from judgekit.errors import JudgeUnavailable
from judgekit.judges.engines.http import Server

from .fake_server import FakeServer, says


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
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        server = Server(f"http://127.0.0.1:{nobody_listens.getsockname()[1]}?key=secret")
        with pytest.raises(JudgeUnavailable) as info:
            await server.post("/chat/completions", {})
    assert "secret" not in str(info.value)
    await server.close()


async def test_a_redirect_takes_no_key_and_no_rollout_elsewhere() -> None:
    async with FakeServer("provider") as fake, FakeServer("provider") as elsewhere:
        address = f"{elsewhere.url}/chat/completions?key=secret"
        fake.once["/v1/chat/completions"] = [says("", status=307, Location=address)]
        fake.once["/health"] = [says("", status=302, Location=address)]
        fake.once["/metrics"] = [says("", status=302, Location=address)]
        server = Server(fake.url, api_key="key", key_header="api-key")
        with pytest.raises(
            JudgeUnavailable, match=f"HTTP 307, to {elsewhere.url}/chat/completions: "
        ) as info:
            await server.post("/chat/completions", {})
        assert "secret" not in str(info.value)
        assert (await server.healthy(), await server.page("/metrics")) == (True, None)  # it lists its models
        assert elsewhere.bodies == elsewhere.headers == []
        await server.close()


@contextlib.asynccontextmanager
async def raw(*parts: bytes) -> AsyncIterator[Server]:
    """A server that answers with these bytes, whatever it is asked."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            for part in parts:
                writer.write(part)
                await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listening:
        server = Server(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", timeout_s=20)
        yield server
        await server.close()


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNK = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
BOMB = zlib.compress(b" " * (80 << 20))


@pytest.mark.parametrize(
    "parts",
    [
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[CHUNK] * 80, b"0\r\n\r\n"),
        (HEAD + b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(BOMB), BOMB),
    ],
)
async def test_a_body_without_end_is_not_read(parts: tuple[bytes, ...]) -> None:
    async with raw(*parts) as server:
        with pytest.raises(JudgeUnavailable, match="more than 64 MiB"):
            await server.post("/chat/completions", {})
        assert await server.page("/metrics") is None


@pytest.mark.parametrize(
    "location", ["http://\u2603\u200d..x/", "http://" + "a" * 300 + ".com/", "http://[::1"]
)
async def test_an_address_that_is_none_is_an_error_of_ours(location: str) -> None:
    async with raw(f"HTTP/1.1 302 X\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()) as server:
        with pytest.raises(JudgeUnavailable, match="HTTP 302"):
            await server.post("/chat/completions", {})
        assert (await server.healthy(), await server.page("/metrics")) == (False, None)


async def test_a_name_that_is_none_is_an_error_of_ours() -> None:
    server = Server("http://" + "a" * 300 + ".com")
    with pytest.raises(JudgeUnavailable):
        await server.post("/chat/completions", {})
    assert (await server.healthy(), await server.page("/metrics")) == (False, None)
    await server.close()


async def test_the_reply_to_another_request_is_no_reply() -> None:
    """A proxy that mixes replies up: with the retries that users have, every verdict is that of its own rollout."""
    waiting: list[tuple[asyncio.Future[web.StreamResponse], web.StreamResponse]] = []

    async def swapped(request: web.Request) -> web.StreamResponse:
        own = await server.well(request)
        waiting.append((asyncio.get_running_loop().create_future(), own))
        mine = waiting[-1][0]
        if len(waiting) == 2:
            (first, one), (second, other) = waiting
            first.set_result(other)
            second.set_result(one)
            server.fault = None
        return await mine

    async with FakeServer("vllm") as server:
        api = Server(server.url)
        body = {"max_tokens": 1, "messages": [{"role": "user", "content": "a candidate"}]}
        assert (await api.post("/chat/completions", body))["choices"]
        server.fault = swapped
        outcomes = await asyncio.gather(
            *(api.post("/chat/completions", body) for _ in range(2)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [JudgeUnavailable] * 2
        assert "another request" in str(outcomes[0])
        assert (await api.post("/chat/completions", body))["choices"]
        await api.close()
