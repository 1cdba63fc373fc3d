"""The Python client: results as from a runner, tries that grade nothing twice, errors that say what to do."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from judgekit import (
    ConfigError,
    DataError,
    FailureRateError,
    GradingRunner,
    JudgekitError,
    JudgeUnavailable,
    MissingRewardError,
    Rollout,
    Weighted,
    grader,
)
from judgekit.errors import ServiceUnavailable
from judgekit.execution.background import run_blocking
from judgekit.graders import FinalAnswer
from judgekit.service import RewardClient
from judgekit.testing import make_groups

from .serving import Gate, serving, until

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RUNNER = {"correct": FinalAnswer()}


@asynccontextmanager
async def between(url: str, *faults: Handler) -> AsyncIterator[str]:
    """A server before the service: each of *faults* answers one request, the others are passed on."""
    import aiohttp

    waiting = list(faults)
    async with aiohttp.ClientSession() as session:

        async def passed(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            if waiting:
                fault = waiting.pop(0)
                if fault is cut:
                    async with session.post(url + request.path, data=body, headers=request.headers) as reply:
                        lines = (await reply.read()).splitlines(keepends=True)
                    broken = web.StreamResponse(headers={"Content-Length": "100000"})
                    await broken.prepare(request)
                    await broken.write(b"".join(lines[:5]) + lines[5][:10])
                    return await lose(request)
                if fault is lose:
                    async with session.post(url + request.path, data=body, headers=request.headers) as reply:
                        await reply.read()
                return await fault(request)
            async with session.post(url + request.path, data=body, headers=request.headers) as reply:
                raw = await reply.read()
                return web.Response(body=raw, status=reply.status, content_type=reply.content_type)

        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/rewards", passed)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
        await runner.cleanup()


async def lose(request: web.Request) -> web.StreamResponse:
    """The service has graded, and its answer is lost."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def cut(request: web.Request) -> web.StreamResponse:
    """A stream breaks off in the middle of its sixth line."""
    raise AssertionError


async def half(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"results":[{"index"')
    return await lose(request)


def says(status: int, text: str = "", **headers: str) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(
            status=status, text=text, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    return answer


ROLLOUTS = [
    Rollout(response="#### 4", ground_truth="4", group=(1, "a"), id="x"),
    Rollout(
        response="#### 5", ground_truth="4", group=(1, "a"), messages=({"role": "user", "content": "?"},)
    ),
    Rollout(response="#### 5", ground_truth="5", prompt=[{"role": "user", "content": "?"}]),
]


async def test_results_are_a_runners() -> None:
    runner = GradingRunner(RUNNER, transform="center")
    expected = await runner.run(ROLLOUTS)
    async with serving(runner) as address, RewardClient(address.url) as client:
        assert await client.healthy()
        got = await client.run(ROLLOUTS, tags={"step": 1})
        streamed = [result async for result in client.stream(ROLLOUTS)]
    for results in (got, sorted(streamed, key=lambda result: result.index)):
        for one, other in zip(results, expected, strict=True):
            assert (one.index, one.group, one.reward, one.status) == (
                other.index,
                other.group,
                other.reward,
                other.status,
            )
            assert one.grades == other.grades
            assert one.contributions == other.contributions
    assert not await client.healthy()


async def test_weights_that_move_take_the_call_s_step() -> None:
    runner = GradingRunner(
        {"one": FinalAnswer(name="one"), "two": FinalAnswer(name="two")},
        Weighted({"one": [(0, 1.0), (100, 0.0)], "two": [(0, 0.0), (100, 0.5)]}),
    )
    right = [Rollout(response="#### 4", ground_truth="4")]
    async with serving(runner) as address, RewardClient(address.url) as client:
        assert [one.reward for one in await client.run(right, step=0)] == [1.0]
        assert [one.reward for one in await client.run(right, step=100, tags={"run": "x"})] == [0.5]
        assert [one.reward async for one in client.stream(right, step=100)] == [0.5]
        assert [one.reward for one in await asyncio.to_thread(client.run_sync, right, step=100)] == [0.5]


@pytest.mark.parametrize(
    "fault",
    [
        lose,
        half,
        says(502, "<html>"),
        says(503, '{"error":{"type":"Overloaded","message":"full"}}', Retry_After="0"),
        says(429),
        says(200, "<html>a captive portal</html>"),
        says(200, '{"results":[{"index":0}]}'),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_lost_answer_is_asked_for_again_and_graded_once(fault: Handler, stream: bool) -> None:
    gate = Gate()
    rollouts = make_groups(4, 4)
    async with (
        serving(GradingRunner([gate])) as address,
        between(address.url, fault, fault) as url,
        RewardClient(url) as client,
    ):
        if stream:
            got = [result async for result in client.stream(rollouts)]
        else:
            got = await client.run(rollouts)
    assert sorted(result.index for result in got) == list(range(16))
    assert len(gate.asked) == 16


async def test_a_stream_that_breaks_off_goes_on_with_what_is_missing() -> None:
    gate = Gate()
    async with (
        serving(GradingRunner([gate])) as address,
        between(address.url, cut, cut) as url,
        RewardClient(url) as client,
    ):
        got = [result.index async for result in client.stream(make_groups(4, 4))]
    assert sorted(got) == list(range(16))
    assert len(gate.asked) == 16


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_outlives_a_restart_of_the_service(stream: bool) -> None:
    """Its first life ends with the call half graded, and says so in the stream's last line."""
    gate = Gate(open=False)

    @grader
    async def slow(rollout: Rollout) -> float:
        return 1.0 if rollout.response == "a" else await gate.grade(rollout)

    async def call(client: RewardClient) -> list[int]:
        if stream:
            return [result.index async for result in client.stream(rollouts)]
        return [result.index for result in await client.run(rollouts)]

    rollouts = [Rollout(response=text) for text in "ab"]
    async with serving(GradingRunner([slow]), stop_s=0.0) as first:
        client = RewardClient(first.url)
        asked = asyncio.create_task(call(client))
        await until(lambda: gate.asked)
    gate.opened.set()
    async with serving(GradingRunner([slow]), port=int(first.url.rpartition(":")[2])):
        assert sorted(await asked) == [0, 1]
        await client.close()


async def test_a_key_of_the_callers_survives_a_restarted_program() -> None:
    gate = Gate()
    async with serving(GradingRunner([gate])) as address:
        for _ in range(2):
            async with RewardClient(address.url) as client:
                await client.run(ROLLOUTS, key="step-7")
        assert len(gate.asked) == 3
        async with RewardClient(address.url) as client:
            with pytest.raises(ConfigError, match="choose a new one"):
                await client.run(ROLLOUTS[:1], key="step-7")


async def test_a_service_that_is_full_is_waited_for() -> None:
    gate = Gate(open=False)
    async with (
        serving(GradingRunner([gate]), requests=1) as address,
        RewardClient(address.url) as client,
    ):
        both = [asyncio.create_task(client.run([Rollout(response=text)])) for text in "ab"]
        await until(lambda: address.service.requests["/v1/rewards", 503] > 0)
        gate.opened.set()
        assert [results[0].reward for results in await asyncio.gather(*both)] == [1.0, 1.0]


async def test_a_service_that_stays_away_is_an_error_after_the_deadline() -> None:
    client = RewardClient("http://127.0.0.1:9", deadline_s=0.3)
    with pytest.raises(ServiceUnavailable, match="http://127.0.0.1:9 cannot be reached"):
        await client.run(ROLLOUTS)
    with pytest.raises(ServiceUnavailable):
        async for _ in client.stream(ROLLOUTS):
            pass
    await client.close()


async def test_a_service_that_hangs_is_an_error_after_the_deadline() -> None:
    gate = Gate(open=False)
    async with (
        serving(GradingRunner([gate])) as address,
        RewardClient(address.url, timeout_s=0.1, deadline_s=0.5) as client,
    ):
        with pytest.raises(ServiceUnavailable):
            await client.run(ROLLOUTS)
        assert len(gate.asked) == 3  # asked again, not graded again
        gate.opened.set()


@pytest.mark.parametrize("stream", [False, True])
async def test_errors_of_grading_are_the_runners_and_final(stream: bool) -> None:
    gate = Gate()
    gate.error = JudgeUnavailable("the judge is down")

    async def call(client: RewardClient, rollouts: list[Rollout]) -> None:
        if stream:
            async for _ in client.stream(rollouts):
                pass
        else:
            await client.run(rollouts)

    async with (
        serving(GradingRunner([gate], missing_reward="raise")) as address,
        RewardClient(address.url) as client,
    ):
        with pytest.raises(MissingRewardError, match="the judge is down"):
            await call(client, ROLLOUTS)
    async with (
        serving(GradingRunner([gate], max_failure_rate=0.1)) as address,
        RewardClient(address.url) as client,
    ):
        with pytest.raises(FailureRateError, match="max_failure_rate"):
            await call(client, ROLLOUTS * 10)
        assert len(gate.asked) in (1, 2, 3, *range(30, 34))


async def test_refusals_say_what_to_do() -> None:
    async with serving(GradingRunner([Gate()]), api_key="k", body_bytes=2000) as address:
        async with RewardClient(address.url) as client:
            with pytest.raises(ConfigError, match="check api_key or JUDGEKIT_SERVICE_KEY"):
                await client.run(ROLLOUTS)
        async with RewardClient(address.url, api_key="k") as client:
            with pytest.raises(DataError, match="send fewer rollouts at once"):
                await client.run([Rollout(response="x" * 3_000_000)])
            with pytest.raises(DataError, match="cannot be sent as JSON: object is no JSON"):
                await client.run([Rollout(response="x", extra={"o": object()})])
    async with between("", says(500, "<html>")) as url, RewardClient(url) as client:
        with pytest.raises(JudgekitError, match="answered HTTP 500"):
            await client.run(ROLLOUTS)


async def test_what_json_cannot_hold_well_arrives() -> None:
    import numpy

    seen: list[Rollout] = []

    class Reads:
        name, version, score_range, inputs = "reads", "1", (0.0, 1.0), ("response", "extra")

        def grade(self, rollout: Rollout) -> float:
            seen.append(rollout)
            return 1.0

    odd = [
        Rollout(response="a\ud800b", extra={"n": 10**40, 3: "key"}, group="\udfff"),
        Rollout(response="x", extra={"a": numpy.float32(0.5), "b": numpy.arange(3)}, group=("t", 1)),
    ]
    async with serving(GradingRunner([Reads()])) as address, RewardClient(address.url) as client:
        results = [*await client.run(odd[:1]), *await client.run(odd[1:])]
    assert [result.group for result in results] == ["\udfff", ("t", 1)]
    assert (seen[0].response, seen[0].extra) == ("a\ud800b", {"n": 10**40, "3": "key"})
    assert seen[1].extra == {"a": 0.5, "b": [0, 1, 2]}


async def test_one_client_serves_many_loops_and_threads() -> None:
    gate = Gate()
    async with serving(GradingRunner([gate])) as address:
        client = RewardClient(address.url)
        got: list[Any] = []

        def elsewhere() -> None:
            got.append(asyncio.run(client.run(ROLLOUTS)))
            got.append(client.run_sync(ROLLOUTS))

        threads = [threading.Thread(target=elsewhere) for _ in range(3)]
        for thread in threads:
            thread.start()
        got.append(await client.run(ROLLOUTS))
        while any(thread.is_alive() for thread in threads):
            await asyncio.sleep(0.01)
        copy = pickle.loads(pickle.dumps(client))
        got.append(await copy.run(ROLLOUTS))
        await copy.close()
        await client.close()
        await asyncio.to_thread(run_blocking, client.close())
        assert len(got) == 8
        assert all(len(results) == 3 for results in got)


def test_wrong_settings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGEKIT_SERVICE_URL", raising=False)
    for url, says_ in (
        (None, "set JUDGEKIT_SERVICE_URL"),
        ("ftp://x", "is not a server address"),
        ("http://", "is not a server address"),
        ("http://u:p@h", "must not contain a password"),
    ):
        with pytest.raises(ConfigError, match=says_):
            RewardClient(url)
    with pytest.raises(ConfigError, match="timeout_s is a number of seconds above 0"):
        RewardClient("x", timeout_s=0)
    with pytest.raises(ConfigError, match="max_connections is at least 1"):
        RewardClient("x", max_connections=0)
    monkeypatch.setenv("JUDGEKIT_SERVICE_URL", "host:80/path/")
    monkeypatch.setenv("JUDGEKIT_SERVICE_KEY", "secret")
    client = RewardClient()
    assert client.url == "http://host:80/path"
    assert "secret" not in repr(client) + repr(vars(client))
