"""Keys, the limit of requests in flight, and the end of a service."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
from collections.abc import AsyncIterator

import aiohttp
import anyio
import pytest

from judgekit import ConfigError, GradingRunner
from judgekit.service.server import RewardServer, bound_socket
from judgekit.service.service import RewardService

from .serving import Address, Gate, serving, until
from .test_forms import openrlhf, rank, slime

BODY = {"rollouts": [{"response": "x"}]}


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Authorization", "Bearer geheim-ü", 200),
        ("Authorization", "bearer geheim-ü", 200),
        ("Authorization", basic("judgekit:geheim-ü"), 200),
        ("Authorization", basic(":geheim-ü"), 200),
        ("XRL-Authorization", "Bearer geheim-ü", 200),
        ("Authorization", "Digest geheim-ü", 401),
        ("Authorization", "Bearer geheim", 401),
        ("Authorization", "Bearer geheim-ü2", 401),
        ("Authorization", "Bearer", 401),
        ("Authorization", "Bearer ", 401),
        ("Authorization", "geheim-ü", 401),
        ("Authorization", basic("geheim-ü:judgekit"), 401),
        ("Authorization", basic("judgekit:"), 401),
        ("Authorization", "Basic !!!", 401),
        ("Authorization", "Basic ü", 401),
        ("X-Other", "Bearer geheim-ü", 401),
    ],
)
async def test_the_key(header: str, value: str, status: int) -> None:
    gate = Gate()
    async with serving(GradingRunner([gate]), api_key="geheim-ü") as address:
        reply = await address.post("/v1/rewards", BODY, **{header: value})
        assert reply.status == status
        if status == 401:
            assert "Bearer" in reply.headers["WWW-Authenticate"]
            assert "geheim" not in reply.error[2]
            assert gate.asked == []
            assert (await address.get("/metrics")).status == 401
            assert (await address.get("/nothing")).status == 401
        assert (await address.get("/health")).json["status"] == "ok"


async def test_a_client_that_knows_only_an_address_sends_the_key_in_it() -> None:
    async with serving(GradingRunner([Gate()], missing_reward=0.0), api_key="k/1") as address:
        url = address.url.replace("http://", "http://judgekit:k%2F1@")
        async with (
            aiohttp.ClientSession() as session,
            session.post(url + "/openrlhf", json=openrlhf("x")) as response,
        ):
            assert response.status == 200


@pytest.mark.parametrize(
    ("header", "value", "who"),
    [
        ("Host", "evil.example", "a name of another's"),
        ("Host", "evil.example:8080", "a name of another's"),
        ("Host", "127.0.0.1.evil.example", "a name of another's"),
        ("Host", "10.0.0.1", "an address that is not this machine's own"),
        ("Origin", "https://evil.example", "a page"),
        ("Origin", "null", "a page of a file"),
        ("Sec-Fetch-Site", "cross-site", "a page's form"),
    ],
)
async def test_without_a_key_no_page_in_a_browser_can_use_it(header: str, value: str, who: str) -> None:
    gate = Gate()
    async with serving(GradingRunner([gate], missing_reward=0.0)) as address:
        for path, body in [("/v1/rewards", BODY), ("/slime", slime("x"))]:
            plain = {"Content-Type": "text/plain", header: value}
            reply = await address.post(path, body, **plain)
            assert reply.error[0] == 403, who
            assert "JUDGEKIT_SERVICE_KEY" in reply.error[2]
        assert (await address.get("/metrics", **{header: value})).status == 403
        assert gate.asked == []
    async with serving(GradingRunner([gate]), api_key="k") as address:
        reply = await address.post("/v1/rewards", BODY, **{header: value, "Authorization": "Bearer k"})
        assert reply.status == 200  # whoever has the key may


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:1", "127.0.0.1:99", "[::1]:8080", socket.gethostname()]
)
async def test_this_machines_own_names_are_taken(host: str) -> None:
    async with serving(GradingRunner([Gate()])) as address:
        assert (await address.post("/v1/rewards", BODY, Host=host)).status == 200


@contextlib.asynccontextmanager
async def unfinished(address: Address, count: int) -> AsyncIterator[None]:
    """Requests whose bodies do not arrive."""
    host, port = address.url.removeprefix("http://").split(":")
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(count):
            stream = await anyio.connect_tcp(host, int(port))
            stack.push_async_callback(anyio.aclose_forcefully, stream)
            await stream.send(
                b"POST /v1/rewards HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
            )
        await until(lambda: len(address.server._reading) == count)
        yield


async def test_bodies_that_do_not_arrive_hold_no_place_and_end() -> None:
    async with (
        serving(GradingRunner([Gate()]), requests=2, body_s=1.0) as address,
        unfinished(address, 20),
    ):
        assert (await address.post("/v1/rewards", BODY)).status == 200
        await until(lambda: not address.server._reading)
        assert address.service.requests["/v1/rewards", 408] == 20


async def test_bodies_that_do_not_arrive_hold_up_no_stop() -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with serving(GradingRunner([Gate()])) as address:
            await stack.enter_async_context(unfinished(address, 20))
        assert address.service.requests["/v1/rewards", 408] == 20


async def test_a_body_that_is_nearly_there_when_the_service_stops_is_refused_and_may_come_again() -> None:
    async with aiohttp.ClientSession() as session:
        async with serving(GradingRunner([Gate()])) as address:

            async def slow() -> AsyncIterator[bytes]:
                yield b'{"rollouts": '
                await until(lambda: address.server.stopping)
                yield b'[{"response": "x"}]}'

            async def ask() -> tuple[int, str | None]:
                async with session.post(address.url + "/v1/rewards", data=slow()) as response:
                    return response.status, response.headers.get("Retry-After")

            asked = asyncio.create_task(ask())
            await until(lambda: address.server._reading)
        assert await asked == (503, "1")


async def test_past_the_limit_requests_are_refused_cleanly_and_may_come_again() -> None:
    gate = Gate(open=False)
    async with serving(GradingRunner([gate], missing_reward=0.0), requests=3) as address:
        taken = [asyncio.create_task(address.post("/slime", slime(str(i)))) for i in range(3)]
        await until(lambda: len(gate.asked) == 3)
        large = {"rollouts": [{"response": "x" * 3_000_000}]}
        refused = await asyncio.gather(
            *(address.post(path, body) for path, body in [("/slime", slime("y")), ("/v1/rewards", large)] * 5)
        )
        for reply in refused:
            assert reply.error[:2] == (503, "Overloaded")
            assert reply.headers["Retry-After"] == "1"
        assert (await address.get("/health")).status == 200
        gate.opened.set()
        assert [reply.status for reply in await asyncio.gather(*taken)] == [200] * 3
        assert (await address.post("/slime", slime("y"))).status == 200
        assert sorted(gate.asked) == ["0", "1", "2", "y"]


async def test_what_is_graded_for_clients_that_have_gone_counts() -> None:
    gate = Gate(open=False)
    async with serving(GradingRunner([gate], missing_reward=0.0), requests=1) as address:
        sent = asyncio.create_task(address.post("/slime", slime("x")))
        await until(lambda: gate.asked)
        sent.cancel()
        await asyncio.wait([sent])
        await until(lambda: address.service.in_flight == 0)
        assert (await address.post("/slime", slime("y"))).error[0] == 503
        gate.opened.set()
        await until(lambda: address.service.answers.running == 0)
        assert (await address.post("/slime", slime("y"))).status == 200


async def test_a_stop_finishes_what_was_taken_and_takes_no_more() -> None:
    gate = Gate(open=False)
    async with aiohttp.ClientSession() as session:
        async with serving(GradingRunner([gate])) as address:

            async def ask() -> int:
                async with session.post(address.url + "/v1/rewards", json=BODY) as response:
                    await response.read()
                    return response.status

            asked = asyncio.create_task(ask())
            await until(lambda: gate.asked)
            asyncio.get_running_loop().call_later(0.1, gate.opened.set)
        assert await asked == 200
        with pytest.raises(aiohttp.ClientConnectionError):
            await ask()


async def test_a_stopping_service_says_so() -> None:
    async with serving(GradingRunner([Gate()])) as address:
        address.server.stopping = True
        reply = await address.post("/v1/rewards", BODY)
        assert reply.error[:2] == (503, "Stopping")
        assert reply.headers["Retry-After"] == "1"
        health = await address.get("/health")
        assert (health.status, health.json["status"]) == (503, "stopping")


async def test_a_stop_waits_only_so_long_and_then_refuses() -> None:
    gate = Gate(open=False)
    async with aiohttp.ClientSession() as session:
        async with serving(GradingRunner([gate]), stop_s=0.05) as address:

            async def ask() -> tuple[int, str]:
                async with session.post(address.url + "/v1/rewards", json=BODY) as response:
                    return response.status, await response.text()

            asked = asyncio.create_task(ask())
            await until(lambda: gate.asked)
        status, text = await asked
    assert status == 503
    assert "the service stopped before this was graded" in text


async def test_a_stop_grades_a_group_that_is_not_complete_once_its_time_is_over() -> None:
    async with aiohttp.ClientSession() as session:
        async with serving(GradingRunner([rank], missing_reward=0.25), group_wait_s=0.2) as address:

            async def ask(text: str) -> float:
                async with session.post(address.url + "/slime?group=3", json=slime(text)) as response:
                    return float((await response.json())["reward"])

            asked = [asyncio.create_task(ask(text)) for text in ("x", "xx")]
            await until(lambda: address.service.in_flight == 2)
        assert await asyncio.gather(*asked) == [0.0, 1.0]


async def test_an_address_that_was_taken_while_the_judges_were_loaded_is_refused() -> None:
    with bound_socket("127.0.0.1", 0) as first, bound_socket("127.0.0.1", first.getsockname()[1]) as second:
        first.listen()
        server = RewardServer(RewardService(GradingRunner([Gate()])))
        with pytest.raises(ConfigError, match="cannot listen: Address already in use"):
            async with server.serve(second):
                pass


def test_an_address_that_is_taken_or_elsewhere_is_refused() -> None:
    with bound_socket("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(ConfigError, match="is taken: choose another --port"):
            bound_socket("127.0.0.1", taken.getsockname()[1])
    for host in ("203.0.113.1", "no such host"):
        with pytest.raises(ConfigError, match="is not an address of this machine"):
            bound_socket(host, 0)
