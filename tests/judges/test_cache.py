"""The cache asks what it needs, keeps what it can read, and a call that is given up costs nobody else."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from judgekit import JudgeUnavailable
from judgekit.judges import (
    CacheOptions,
    JudgeReply,
    JudgeRequest,
    LayerOptions,
    OpenAIJudge,
    Piece,
    Turn,
    stacked,
)
from judgekit.judges.layers.cache import Cached, DiskCache

from .fake_server import FakeServer

REPLY = JudgeReply("1", choice_probs={"0": 0.0, "1": 1.0}, label_mass=1.0)


def ask(text: str = "candidate") -> JudgeRequest:
    turns = (Turn("user", (Piece("C: "), Piece(text, trusted=False))),)
    return JudgeRequest(turns=turns, choices=("0", "1"), accept=lambda reply: None)


class Engine:
    """Answers after *gate* is set; counts what it is asked."""

    def __init__(self, *, name: str = "m") -> None:
        self.name = name
        self.calls = self.identities = self.cancelled = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.dies = self.fails = False
        """Whether its next call cancels itself, or fails."""

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        self.calls += 1
        try:
            await asyncio.sleep(0)
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            await asyncio.sleep(0.05)  # an engine takes time to give up
            raise
        dies, self.dies, fails, self.fails = self.dies, False, self.fails, False
        if dies:
            raise asyncio.CancelledError
        if fails:
            raise JudgeUnavailable("down")
        return REPLY

    async def identity(self) -> str:
        self.identities += 1
        return self.name


async def test_identity_is_asked_only_where_replies_are_kept() -> None:
    engine = Engine()
    judge: Any = Cached(engine, entries=0)
    await asyncio.gather(*(judge.complete(ask(f"{i % 3}")) for i in range(9)))
    assert (engine.calls, engine.identities) == (3, 0)
    await stacked(engine, LayerOptions(cache=CacheOptions())).complete(ask())
    assert engine.identities == 2  # before the call, and after it


async def test_joining_a_call_that_is_being_cancelled_costs_nothing() -> None:
    engine = Engine()
    engine.gate.clear()
    judge = Cached(engine, entries=0)
    first = asyncio.create_task(judge.complete(ask()))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.sleep(0.01)  # the engine is giving up now
    second = asyncio.create_task(judge.complete(ask()))
    await asyncio.sleep(0.1)
    engine.gate.set()
    assert await second == REPLY
    assert (engine.calls, engine.cancelled) == (2, 1)
    with pytest.raises(asyncio.CancelledError):
        await first
    assert len(judge._flights) == 0


async def test_a_call_that_dies_under_those_who_joined_is_made_again() -> None:
    engine = Engine()
    engine.gate.clear()
    engine.dies = True
    judge = Cached(engine, entries=0)
    calls = [asyncio.create_task(judge.complete(ask())) for _ in range(4)]
    await asyncio.sleep(0.01)
    engine.gate.set()
    found = await asyncio.gather(*calls, return_exceptions=True)
    # who made it is told; the others share a new call
    assert [type(f) for f in found] == [JudgeUnavailable, JudgeReply, JudgeReply, JudgeReply]
    assert engine.calls == 2
    assert len(judge._flights) == 0


async def test_those_who_joined_get_a_reply_where_the_first_gives_up() -> None:
    """The call is nobody's: it goes on, and one of those who stay pays for it."""
    engine = Engine()
    engine.gate.clear()
    judge = Cached(engine, entries=0)
    first, gone, *rest = (asyncio.create_task(judge.complete(ask())) for _ in range(5))
    await asyncio.sleep(0.01)
    gone.cancel()
    first.cancel()
    await asyncio.sleep(0.1)
    engine.gate.set()
    assert all(reply.choice_probs == REPLY.choice_probs for reply in await asyncio.gather(*rest))
    assert (engine.calls, judge.joins) == (1, 2)


async def test_those_who_joined_share_a_failure() -> None:
    engine = Engine()
    engine.gate.clear()
    engine.fails = True
    judge = Cached(engine, entries=0)
    calls = [asyncio.create_task(judge.complete(ask())) for _ in range(3)]
    await asyncio.sleep(0.01)
    engine.gate.set()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(f) for f in found] == [JudgeUnavailable] * 3
    assert engine.calls == 1
    assert len(judge._flights) == 0


@pytest.mark.parametrize("row", [b"\xc0\xff\xee", b"", b"\x81\xa4text\x07", b"\x80"])
async def test_a_row_that_cannot_be_read_is_a_miss_and_is_replaced(tmp_path: Path, row: bytes) -> None:
    path = tmp_path / "cache.sqlite"
    engine = Engine()

    async def once() -> JudgeReply:
        judge = Cached(engine, disk=DiskCache(path))
        try:
            return await judge.complete(ask())
        finally:
            judge.disk.close()

    await once()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE replies SET reply = ?", (row,))
    connection.close()
    assert (await once()).choice_probs == REPLY.choice_probs
    assert engine.calls == 2
    await once()
    assert engine.calls == 2


async def test_what_changes_verdicts_is_part_of_the_key(tmp_path: Path) -> None:
    path = str(tmp_path / "cache.sqlite")
    different: list[dict[str, Any]] = [
        {"extra_body": {"reasoning_effort": "low"}},
        {"extra_body": {"reasoning_effort": "high"}},
        {"chat_template_kwargs": {"thinking": True}},
        {"identity": "a"},
        {"identity": "a", "extra_body": {"reasoning_effort": "high"}},
        {},
    ]
    async with FakeServer("provider") as server:
        for options in [*different, *different]:
            judge: Any = stacked(
                OpenAIJudge(server.url, model="judge", **options), LayerOptions(cache=CacheOptions(path=path))
            )
            await judge.complete(ask())
            await judge.close()
        assert len(server.bodies) == len(different)


@pytest.mark.parametrize(("image", "calls"), [("data:image/png;base64,AA==", 1), ("https://host/a.png", 3)])
async def test_what_is_behind_an_address_is_looked_at_in_each_run(
    tmp_path: Path, image: str, calls: int
) -> None:
    engine = Engine()
    turns = (Turn("user", (Piece("C: "), Piece("", trusted=False, image=image))),)
    request = JudgeRequest(turns=turns, choices=("0", "1"), accept=lambda reply: None)

    async def run(name: str) -> None:
        for _ in range(2):
            await judge.complete(msgspec.structs.replace(request, run=name))

    for names in (("first", "second"), ("third",)):  # two processes, one file
        judge = Cached(engine, disk=DiskCache(tmp_path / "cache.sqlite"))
        for name in names:
            await run(name)
        await asyncio.to_thread(judge.disk.close)
    assert engine.calls == calls


def test_replies_for_a_file_that_cannot_be_opened_do_not_pile_up(tmp_path: Path) -> None:
    """A training run would keep all of them in memory, for a thread that has given up."""
    (tmp_path / "file").write_text("no folder")
    disk = DiskCache(tmp_path / "file" / "cache.sqlite")
    for i in range(100):
        disk.put(str(i).encode(), b"reply")
    disk.close()
    assert disk._queue.empty()
