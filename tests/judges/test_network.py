"""What networks do between a judge and its server: no wrong grade, no grade lost that could be had, and words that say why."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from judgekit import Failed, Graded, GradingRunner, Retry, Rollout
from judgekit.graders import JudgeGrader
from judgekit.judges import LayerOptions, OpenAIJudge, stacked

from .fake_server import FakeServer

SCORE = 0.75


class Relay:
    """Passes bytes on to a server, or does with them what a bad network does."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.port = 0
        self.refuses = False
        """Whether new connections are closed at once."""
        self.silent = False
        """Whether nothing of what the server says arrives, on any connection."""
        self.drips = False
        """Whether it arrives a byte at a time."""
        self.says: bytes | None = None
        """What is answered instead, as by a portal that wants a login."""
        self.tls: ssl.SSLContext | None = None
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Close the address and every connection."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        there: asyncio.StreamWriter | None = None
        try:
            if self.refuses:
                return
            answers, there = await asyncio.open_connection("127.0.0.1", self.to)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._pass(reader, there, asks=True, back=writer))
                ways.create_task(self._pass(answers, writer))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(writer)
            for end in (writer, there):
                if end is not None:
                    end.transport.abort()

    async def _pass(
        self, source: Any, to: Any, *, asks: bool = False, back: asyncio.StreamWriter | None = None
    ) -> None:
        while data := await source.read(1 << 16):
            if asks and self.says is not None:
                assert back is not None
                back.write(self.says)
                continue
            if self.silent and not asks:
                await asyncio.Event().wait()
            for part in (data[i : i + 1] for i in range(len(data))) if self.drips and not asks else (data,):
                to.write(part)
                await to.drain()
                if self.drips and not asks:
                    await asyncio.sleep(0.05)
        raise ConnectionResetError  # ends the other way, too


@asynccontextmanager
async def relayed(tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[FakeServer, Relay]]:
    async with FakeServer("vllm", score=SCORE) as server:
        relay = Relay(server.port)
        relay.tls = tls
        await relay.listen()
        try:
            yield server, relay
        finally:
            await relay.close()


def judged(address: str, *, timeout_s: float = 30.0) -> GradingRunner:
    engine = OpenAIJudge(f"{address}/v1", model="judge")
    options = LayerOptions(
        max_concurrency=4,
        retry=Retry(attempts=3, wait_initial_s=0.01, wait_max_s=0.02),
        restart_wait_s=30.0,
    )
    grader = JudgeGrader(stacked(engine, options))
    return GradingRunner({"judge": grader}, timeout_s=timeout_s, resources=[engine])


def batch(name: str) -> list[Rollout]:
    return [
        Rollout(prompt="p", ground_truth="t", response=f"candidate {name} {i}", id=str(i)) for i in range(12)
    ]


async def grades(runner: GradingRunner, name: str) -> list[Any]:
    return [result.grades["judge"] for result in await runner.run(batch(name))]


def scored(found: list[Any]) -> bool:
    return all(isinstance(grade, Graded) and abs(grade.score - SCORE) < 1e-6 for grade in found)


async def later(seconds: float, act: Any) -> None:
    await asyncio.sleep(seconds)
    act()


@pytest.mark.parametrize("fault", ["silent", "drips"])
async def test_connections_that_say_nothing_or_a_byte_at_a_time_are_timed_out(fault: str) -> None:
    """A firewall that forgot the connection, a link that is all but down: the rollout has no grade, and it is nobody's 0."""
    async with relayed() as (_, relay), judged(f"http://127.0.0.1:{relay.port}", timeout_s=1.0) as runner:
        assert scored(await grades(runner, "before"))
        setattr(relay, fault, True)
        found = await grades(runner, "meanwhile")
        assert {(type(g), g.error, g.cause) for g in found} == {(Failed, "GraderTimeout", "infrastructure")}
        setattr(relay, fault, False)
        assert scored(await grades(runner, "after"))


async def test_a_portals_page_costs_no_grade(caplog: pytest.LogCaptureFixture) -> None:
    page = b"<html>please log in</html>"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(page)
    async with relayed() as (_, relay), judged(f"http://127.0.0.1:{relay.port}") as runner:
        assert scored(await grades(runner, "before"))
        relay.says = head + page
        back = asyncio.create_task(later(1.5, lambda: setattr(relay, "says", None)))
        assert scored(await grades(runner, "meanwhile"))
        await back
    assert "that are not JSON" in caplog.text


async def test_a_name_that_is_not_found_for_a_while_costs_no_grade(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known = True
    resolve = socket.getaddrinfo

    def found(host: Any, *args: Any, **options: Any) -> Any:
        if host == "judge.test":
            if not known:
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            host = "127.0.0.1"
        return resolve(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    async with relayed() as (_, relay), judged(f"http://judge.test:{relay.port}") as runner:
        assert scored(await grades(runner, "before"))

        def forget() -> None:
            nonlocal known
            known = False
            monkeypatch.setattr("aiohttp.connector._DNSCacheTable.expired", lambda self, key: True)
            for writer in list(relay._open):  # those that are open need no name
                writer.transport.abort()

        def know() -> None:
            nonlocal known
            known = True

        forget()
        back = asyncio.create_task(later(1.5, know))
        assert scored(await grades(runner, "meanwhile"))
        await back
    assert "name resolution" in caplog.text


def certificate(folder: Path, days: int) -> ssl.SSLContext:
    """One for 127.0.0.1, signed by itself, which is valid for so many days; -1: it ended yesterday."""
    key, request, made, more = (folder / f"{days}.{end}" for end in ("key", "csr", "pem", "ext"))
    more.write_text("subjectAltName=IP:127.0.0.1\n")
    asks = (
        "req",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        f"/CN=judge {days}",
        "-keyout",
        key,
        "-out",
        request,
    )
    signs = (
        "x509",
        "-req",
        "-in",
        request,
        "-signkey",
        key,
        "-days",
        str(days),
        "-extfile",
        more,
        "-out",
        made,
    )
    for command in (asks, signs):
        subprocess.run(["openssl", *command], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made, key)
    return context


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")
async def test_a_certificate_that_ends_is_said_and_one_that_is_renewed_costs_no_grade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="judgekit")
    valid, ended = certificate(tmp_path, 2), certificate(tmp_path, -1)
    trusted = tmp_path / "trusted.pem"
    trusted.write_text((tmp_path / "2.pem").read_text() + (tmp_path / "-1.pem").read_text())
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", ssl.create_default_context(cafile=trusted))
    async with relayed(valid) as (_, relay), judged(f"https://127.0.0.1:{relay.port}") as runner:
        assert scored(await grades(runner, "before"))
        await relay.close()
        relay.tls = ended
        await relay.listen()
        grading = asyncio.create_task(grades(runner, "meanwhile"))
        while "certificate has expired" not in caplog.text:
            assert not grading.done()
            await asyncio.sleep(0.05)
        await relay.close()
        relay.tls = valid
        with suppress(OSError):
            await relay.listen()
        assert scored(await grading)
