"""The server of `judgekit view`: the same columns as the report, live; for its token and this host only."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from judgekit import DataError
from judgekit.report import marks
from judgekit.report import view as module
from judgekit.report.search import Texts
from judgekit.report.table import Table
from judgekit.report.view import View

from .ledgers import some, write
from .test_table import append, entry


class Client:
    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.base, _, self.token = url.partition("#")
        self.session = session

    async def get(self, path: str, status: int = 200, **given: Any) -> Any:
        given.setdefault("headers", {"Authorization": f"Bearer {self.token}"})
        async with self.session.get(self.base + path, **given) as reply:
            assert reply.status == status, await reply.text()
            return await reply.json() if status == 200 and "api" in path else await reply.text()

    async def post(self, path: str, body: Any, status: int = 200) -> None:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with self.session.post(self.base + path, json=body, headers=headers) as reply:
            assert reply.status == status, await reply.text()

    async def caught_up(self, rows: int) -> Any:
        while True:
            state = await self.get("api/state")
            if state["caught_up"] and state["facts"]["rows"] == rows:
                return state
            await asyncio.sleep(0.02)


@asynccontextmanager
async def opened(ledger: Path, **options: Any) -> AsyncIterator[Client]:
    async with View(ledger, **options).served() as url, aiohttp.ClientSession() as session:
        yield Client(url, session)


async def test_it_serves_what_the_report_has(tmp_path: Path) -> None:
    path = write(tmp_path / "l.jsonl", some(80))
    async with opened(path) as client:
        state = await client.caught_up(80)
        table = Table(path)
        table.read()
        block = await client.get("api/block/0")
        assert block["numbers"] == table.block(0)["numbers"]
        assert block["codes"] == table.block(0)["codes"]
        assert (await client.get("api/state?first"))["first"] == block
        assert state["first"] is None
        assert state["read"] == state["size"] == path.stat().st_size
        assert (await client.get("api/rollout/7"))["id"] == block["id"][7]
        assert state["facts"]["judges"] == ["judge"]
        assert {signal["name"] for signal in await client.get("api/signals")} >= {"missing", "flat_groups"}
        assert (await client.get("api/costs"))["calls"] == state["facts"]["usage"]["calls"] > 0
        await client.get("api/rollout/80", 404)
        await client.get("api/block/1", 404)
        page = await client.get("")
        assert "connect-src 'self'" in page
        assert "Some words" not in page


async def test_while_a_page_opens_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first rows are there; reading more would hold them up."""
    monkeypatch.setattr(module, "_SLICE", 10)
    monkeypatch.setattr(module, "_OPENING_S", 1e9)
    path = tmp_path / "l.jsonl"
    append(path, *(entry(i) for i in range(10_000)))
    async with opened(path) as client:
        await client.get("")
        rows = (await client.get("api/state"))["facts"]["rows"]
        assert 10 <= rows < 10_000
        await client.get("api/rollout/7")
        assert (await client.get("api/state"))["facts"]["rows"] == rows
        monkeypatch.setattr(module, "_OPENING_S", 0)


async def test_it_follows_a_run_that_still_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_S", 0.01)
    path = tmp_path / "l.jsonl"
    append(path, entry(0))
    async with opened(path) as client:
        await client.caught_up(1)
        append(path, entry(1), entry(2))
        await client.caught_up(3)
        assert (await client.get("api/block/0"))["rows"] == 3


async def test_a_ledger_that_was_replaced_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_POLL_S", 0.01)
    path = tmp_path / "l.jsonl"
    append(path, *(entry(i, response="needle") for i in range(5)))
    async with opened(path) as client:
        first = (await client.caught_up(5))["generation"]
        old = {"Authorization": f"Bearer {client.token}", "Generation": str(first)}
        assert await client.get("api/search?text=needle&from=3", headers=old) == [3, 4]
        path.unlink()
        while "No such file" not in (await client.get("api/state"))["problem"]:
            await asyncio.sleep(0.01)
        assert (await client.get("api/block/0", headers=old))["rows"] == 5  # what was read stays on the page
        append(path, *(entry(i, run="new") for i in range(3)))
        state = await client.caught_up(3)
        assert (state["generation"], state["problem"]) == (first + 1, "")
        for what in ("block/0", "rollout/0", "search?text=x", "signals"):
            assert "is being read again" in await client.get(f"api/{what}", 409, headers=old)
        assert (await client.get("api/rollout/0"))["run"] == "new"


async def test_an_answer_that_was_begun_before_a_replacement_is_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_POLL_S", 0.01)
    path = tmp_path / "l.jsonl"
    append(path, *(entry(i) for i in range(5)))
    begun, over = threading.Event(), threading.Event()
    monkeypatch.setattr(Texts, "rows", lambda *given: begun.set() or (over.wait(20) and [4]))
    async with opened(path) as client:
        await client.caught_up(5)
        searching = asyncio.create_task(client.get("api/search?text=x", 409))
        await asyncio.to_thread(begun.wait, 20)
        await asyncio.sleep(0.1)  # some polls: a search must not hold them up
        path.unlink()
        append(path, entry(0, run="new"))
        await client.caught_up(1)
        over.set()
        assert "is being read again" in await searching


async def test_nobody_without_the_token_and_no_other_host_reads(tmp_path: Path) -> None:
    path = write(tmp_path / "l.jsonl", some(4))
    async with opened(path) as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer \xe9"}):
            for what in ("api/state", "api/rollout/0", "api/search?text=x"):
                assert "open the address" in await client.get(what, 403, headers=headers)
        token = {"Authorization": f"Bearer {client.token}"}
        await client.get("api/state", 403, headers={**token, "Host": "evil.example"})
        await client.get("", 403, headers={"Host": f"evil.example:{client.base.split(':')[2]}"})
        assert "l.jsonl" not in await client.get("", headers={})  # not even which ledger it is


async def test_a_token_in_no_encoding_is_a_wrong_one(tmp_path: Path) -> None:
    path = write(tmp_path / "l.jsonl", some(4))
    async with opened(path) as client:
        host = client.base.removeprefix("http://").strip("/")
        reader, writer = await asyncio.open_connection(*host.split(":"))
        writer.write(
            b"GET /api/state HTTP/1.1\r\nAuthorization: Bearer \xff\xfe\r\nHost: "
            + host.encode()
            + b"\r\n\r\n"
        )
        assert b"403" in await reader.readline()
        writer.close()


async def test_marks_are_written_beside_the_ledger(tmp_path: Path) -> None:
    path = write(tmp_path / "l.jsonl", some(4))
    async with opened(path) as client:
        await client.caught_up(4)
        await client.post("api/mark", {"row": 2, "mark": "bad", "note": "wrong unit"})
        (mark,) = marks.read_marks(path).values()
        marked = await client.get("api/rollout/2")
        assert (mark.run, mark.index, mark.id) == (marked["run"], marked["index"], marked["id"])
        assert (mark.mark, mark.note) == ("bad", "wrong unit")
        assert (await client.get("api/state"))["marks"][0]["mark"] == "bad"
        for wrong in ({"row": 0, "mark": "superb"}, {"row": "0"}, {}, {"row": 0, "more": 1}):
            await client.post("api/mark", wrong, 400)
        await client.post("api/mark", {"row": 4, "mark": "bad"}, 404)
        await client.post("api/mark", {"row": -1, "mark": "bad"}, 404)


async def test_a_mark_that_cannot_be_kept_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "l.jsonl", some(4))
    async with opened(path) as client:
        await client.caught_up(4)
        monkeypatch.setattr(marks, "marks_path", lambda ledger: Path("/dev/full"))
        await client.post("api/mark", {"row": 0, "mark": "bad"}, 507)


async def test_marks_that_cannot_be_read_are_said_and_hide_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "l.jsonl", some(4))
    marks.marks_path(path).write_text("nonsense\n")
    async with opened(path) as client:
        state = await client.caught_up(4)
        assert "line 1: not a mark" in state["problem"]
        assert (await client.get("api/block/0"))["rows"] == 4


async def test_a_ledger_that_breaks_or_goes_keeps_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_POLL_S", 0.01)
    path = tmp_path / "l.jsonl"
    append(path, entry(0))
    async with opened(path) as client:
        await client.caught_up(1)
        path.write_bytes(path.read_bytes() + b'{"type": "other"}\n')
        while not (state := await client.get("api/state"))["problem"]:
            await asyncio.sleep(0.01)
        assert "nothing more is read: " in state["problem"]
        assert "line 2: not a line of a judgekit ledger" in state["problem"]
        assert (await client.get("api/block/0"))["rows"] == 1
        path.unlink()
        assert (await client.get("api/state"))["facts"]["rows"] == 1
        assert "not in the ledger any more" in await client.get("api/rollout/0", 410)


async def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "l.jsonl", some(4))
    async with View(path).served() as url:
        port = int(url.split(":")[2].split("/")[0])
        with pytest.raises(DataError, match=f"cannot serve on port {port}"):
            async with View(path).served(port):
                pass
