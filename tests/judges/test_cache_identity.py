"""A reply is stored under the identity of what made it, and under no other."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from judgekit import Failed, Graded, GradingRunner, JudgeUnavailable, Retry, Rollout
from judgekit.graders import JudgeGrader
from judgekit.judges import (
    CacheOptions,
    JudgeReply,
    JudgeRequest,
    LayerOptions,
    OpenAIJudge,
    Piece,
    Turn,
    openai_judge,
    stacked,
)
from judgekit.judges.engines.replicas import Routed
from judgekit.judges.layers import cache
from judgekit.judges.layers.cache import Cached, DiskCache

from .fake_server import FakeServer

RETRY = Retry(attempts=50, wait_initial_s=0.01, wait_max_s=0.1, budget=50)


def ask(text: str = "candidate") -> JudgeRequest:
    turns = (Turn("user", (Piece(f"{text}: "), Piece(text, trusted=False))),)
    return JudgeRequest(turns=turns, choices=("0", "1"), accept=lambda reply: None)


def says(score: float, identity: str | None = None) -> JudgeReply:
    return JudgeReply("1", choice_probs={"0": 1 - score, "1": score}, label_mass=1.0, identity=identity)


def layers(path: Path | None) -> LayerOptions:
    return LayerOptions(cache=CacheOptions(path=path), retry=RETRY)


async def score(judge: Any, text: str = "candidate") -> float:
    reply = await judge.complete(ask(text))
    assert reply.choice_probs is not None
    return round(float(reply.choice_probs["1"]), 6)


class Engine:
    """A user's engine, which says what it is; *carries*: also in its replies. *swap*: it is another after the next call."""

    def __init__(self, name: str, score: float = 0.9, *, carries: bool = False) -> None:
        self.name, self.score, self.carries = name, score, carries
        self.swap: tuple[str, float] | None = None
        self.up = True
        self.calls = 0

    def __repr__(self) -> str:
        return "Engine()"

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        if not self.up:
            raise JudgeUnavailable("connection refused")
        self.calls += 1
        await asyncio.sleep(0)
        if self.swap is not None:
            (self.name, self.score), self.swap = self.swap, None
        return says(self.score, self.name if self.carries else None)

    async def identity(self) -> str:
        if not self.up:
            raise JudgeUnavailable("connection refused")
        return self.name


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM replies").fetchone()[0])


@pytest.mark.parametrize("carries", [False, True])
async def test_what_other_weights_say_in_flight_is_never_found_under_the_old_ones(
    tmp_path: Path, carries: bool
) -> None:
    filed_wrong = 0
    for number in range(50):
        path = tmp_path / f"{number}.sqlite"
        engine = Engine("old", carries=carries)
        engine.swap = ("new", 0.1)
        judge = stacked(engine, layers(path))
        assert await score(judge) == 0.1
        filed_wrong += await score(judge) != 0.1  # they still serve
        engine.name, engine.score = "old", 0.9
        filed_wrong += await score(judge) != 0.9  # in memory
        await judge.close()
        later = stacked(engine, layers(path))
        filed_wrong += await score(later) != 0.9  # on disk
        await later.close()
    assert filed_wrong == 0


class Swapped:
    """A server that dies with a request in flight and comes back with other weights, under its name and address."""

    def __init__(self) -> None:
        self.old, self.new = FakeServer(score=0.9), FakeServer(score=0.1)
        self.old.root, self.new.root = "/models/old", "/models/new"
        self.hit, self.held = asyncio.Event(), asyncio.Event()

    async def begin(self) -> str:
        await self.old.__aenter__()
        for path, handler in (
            ("/v1/chat/completions", self.old._chat),
            ("/v1/chat/completions/batch", self.old._batch),
        ):
            self.old.once[path] = [partial(self._held, handler)] * 100
        return self.old.url

    async def _held(self, handler: Any, request: web.Request) -> web.StreamResponse:
        if "candidate" in await request.text():
            self.hit.set()
            await self.held.wait()
        response: web.StreamResponse = await handler(request)
        return response

    async def swap(self) -> None:
        await self.hit.wait()
        await self.old.__aexit__()
        self.new.port = self.old.port
        await self.new.__aenter__()


@pytest.mark.parametrize("routed", [False, True])
async def test_a_server_that_comes_back_with_other_weights_in_flight(tmp_path: Path, routed: bool) -> None:
    path = tmp_path / "cache.sqlite"
    server, other = Swapped(), FakeServer(score=0.9)
    other.root = "/models/old"
    url = await server.begin()
    async with other:

        def made() -> Any:
            return stacked(openai_judge([url, other.url]) if routed else OpenAIJudge(url), layers(path))

        judge = made()
        texts = [f"candidate {i}" for i in range(16)]
        calls = [asyncio.create_task(score(judge, text)) for text in texts]
        await server.swap()
        said = [await call for call in calls]
        assert set(said) <= {0.1, 0.9}
        assert routed or set(said) == {0.1}
        server.held.set()
        await judge.close()
        await server.new.__aexit__()

    again = FakeServer(score=0.9, port=server.old.port)
    again.root = "/models/old"
    async with again:
        judge = stacked(OpenAIJudge(url), layers(path))
        found = [await score(judge, text) for text in texts]
        await judge.close()
    filed_wrong = sum(each != 0.9 for each in found)
    assert filed_wrong == 0


async def test_a_server_that_is_replaced_while_nobody_asks_is_found_out_after_the_call(
    tmp_path: Path,
) -> None:
    """Nothing was lost, and it was heard a moment ago: only the new connection tells."""
    path = tmp_path / "cache.sqlite"
    old, new = FakeServer(score=0.9), FakeServer(score=0.1)
    old.root, new.root = "/models/old", "/models/new"
    async with old:
        judge = stacked(OpenAIJudge(old.url), layers(path))
        assert await score(judge, "candidate 0") == 0.9
        new.port = old.port
    async with new:
        assert await score(judge, "candidate 1") == 0.1
        await judge.close()
    async with FakeServer(score=0.9, port=new.port) as again:
        again.root = "/models/old"
        judge = stacked(OpenAIJudge(again.url), layers(path))
        assert [await score(judge, f"candidate {i}") for i in range(2)] == [0.9, 0.9]
        assert len([b for b in again.bodies if "candidate" in json.dumps(b)]) == 1
        await judge.close()


async def test_replicas_that_differ_answer_and_nothing_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    one, two = FakeServer(score=0.9), FakeServer(score=0.1)
    one.root, two.root = "/models/one", "/models/two"
    async with one, two:
        judge = stacked(openai_judge([one.url, two.url]), layers(path))
        said = {await score(judge, f"candidate {i}") for i in range(32)}
        assert said == {0.1, 0.9}
        await judge.close()
        judge = stacked(OpenAIJudge(one.url), layers(path))
        filed_wrong = sum([await score(judge, f"candidate {i}") != 0.9 for i in range(32)])
        await judge.close()
    assert filed_wrong == 0
    users = Routed([Engine("one"), Engine("two", 0.1)])
    judge = stacked(users, layers(tmp_path / "users.sqlite"))
    for _ in range(2):
        for i in range(8):
            await score(judge, str(i))
    await judge.close()
    assert sum(replica.judge.calls for replica in users.replicas) == 16


async def test_replicas_of_one_model_share_what_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    async with FakeServer() as one, FakeServer() as two:
        for _ in range(2):
            judge = stacked(openai_judge([one.url, two.url]), layers(path))
            for i in range(32):
                await score(judge, f"candidate {i}")
            await judge.close()
        assert one.asked()
        assert two.asked()
        assert len(one.asked()) + len(two.asked()) == 32


async def test_a_replica_that_has_not_said_what_it_is_is_used_and_not_stored() -> None:
    one, two = Engine("weights", carries=True), Engine("weights", carries=True)
    routed = Routed([one, two])
    two.up = False
    assert await routed.identity() == "weights"
    assert routed.replicas[1].identity is None
    assert routed._signed(routed.replicas[1], says(0.9, "weights")).identity == ""
    assert routed._signed(routed.replicas[0], says(0.9, "weights")).identity == "weights"
    assert routed._signed(routed.replicas[0], says(0.9, "other weights")).identity == ""


async def test_a_reply_whose_maker_is_not_certain_is_used_and_not_stored() -> None:
    engine = Engine("weights")

    class Uncertain:
        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            return msgspec.structs.replace(await engine.complete(request), identity="")

    judge = Cached(Uncertain(), identify=engine)
    assert [await score(judge) for _ in range(2)] == [0.9, 0.9]
    assert (engine.calls, judge.hits) == (2, 0)


async def test_an_engine_that_is_lost_after_its_reply_costs_no_verdict() -> None:
    class Lost(Engine):
        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            reply = await super().complete(request)
            self.up = False
            return reply

    engine = Lost("weights")
    judge = Cached(engine)
    assert await score(judge) == 0.9
    engine.up = True
    assert (await score(judge), engine.calls, judge.hits) == (0.9, 2, 0)


# ---- while the engine is away


ROLLOUTS = [Rollout(prompt="p", ground_truth="1", response=f"candidate {i}", group=i) for i in range(4)]


async def grades(judge: Any) -> list[Any]:
    async with GradingRunner({"judge": JudgeGrader(judge)}, resources=(judge,)) as runner:
        return [result.grades["judge"] for result in await runner.run(ROLLOUTS)]


@pytest.mark.parametrize("urls", [1, 2])
async def test_verdicts_on_disk_are_found_while_the_server_is_away(tmp_path: Path, urls: int) -> None:
    path = tmp_path / "cache.sqlite"
    options = LayerOptions(
        cache=CacheOptions(path=path), retry=Retry(attempts=2, wait_initial_s=0.0, wait_max_s=0.0)
    )
    async with FakeServer() as one, FakeServer() as two:
        addresses = [one.url, two.url][:urls]
        before = await grades(stacked(openai_judge(addresses), options))

    async def offline() -> list[Any]:
        return [
            result.grades["judge"]
            for result in await GradingRunner(
                {"judge": JudgeGrader(stacked(openai_judge(addresses), options))}
            ).run(ROLLOUTS)
        ]

    found = await offline()
    assert [grade.score for grade in found] == [grade.score for grade in before]
    stored = rows(path)
    other = stacked(openai_judge(addresses, extra_body={"reasoning_effort": "high"}), options)
    (failed, *_) = (await GradingRunner({"judge": JudgeGrader(other)}).run(ROLLOUTS[:1]))[0].grades.values()
    assert isinstance(failed, Failed)  # another judge at the same address
    await other.close()
    assert rows(path) == stored  # nothing is stored while it is away


async def test_an_engine_that_is_away_is_not_asked_for_each_verdict_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_AWAY_S", 1000.0)

    class Counts(Engine):
        asked = 0

        async def identity(self) -> str:
            self.asked += 1
            return await super().identity()

    engine = Counts("old")
    judge = Cached(engine, disk=DiskCache(tmp_path / "cache.sqlite"))
    assert [await score(judge, text) for text in "abc"] == [0.9] * 3
    engine.up, engine.asked = False, 0
    assert [await score(judge, text) for text in "abcabc"] == [0.9] * 6
    assert engine.asked == 1
    judge.disk.close()


async def test_what_is_not_stored_waits_and_is_stored_under_what_came_back(tmp_path: Path) -> None:
    engine = Engine("old")
    judge = Cached(engine, disk=DiskCache(tmp_path / "cache.sqlite"))
    assert await score(judge, "a") == 0.9
    engine.up = False
    assert await score(judge, "a") == 0.9
    with pytest.raises(JudgeUnavailable):
        await score(judge, "b")
    engine.up, engine.name, engine.score = True, "new", 0.1
    assert [await score(judge, text) for text in "ba"] == [0.1, 0.1]
    engine.name = "old"
    assert [await score(judge, text) for text in "ab"] == [0.9, 0.1]
    assert engine.calls == 4
    judge.disk.close()


async def test_engines_that_show_nothing_are_not_taken_for_each_other(tmp_path: Path) -> None:
    """They are known by their class, and only while all of it were the same; without identity, by this process alone."""

    class Nameless(Engine):
        __repr__ = object.__repr__

    path = tmp_path / "cache.sqlite"

    async def run(engine: Engine) -> float | None:
        judge = Cached(engine, disk=DiskCache(path))
        try:
            return await score(judge)
        except JudgeUnavailable:
            return None
        finally:
            judge.disk.close()

    def away(engine: Engine) -> Engine:
        engine.up = False
        return engine

    assert await run(Nameless("one")) == 0.9
    assert await run(away(Nameless("one"))) == 0.9
    assert await run(Nameless("two", 0.1)) == 0.1
    assert await run(away(Nameless("two"))) is None
    assert await run(Nameless("one", 0.3)) == 0.9

    class Mute:
        def __init__(self, score: float) -> None:
            self.score = score

        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            return says(self.score)

    for each in (0.2, 0.4):
        cached = Cached(Mute(each), disk=DiskCache(path))
        assert [await score(cached) for _ in range(2)] == [each, each]
        cached.disk.close()


async def test_a_graded_rollout_names_what_judged_it(tmp_path: Path) -> None:
    async with FakeServer() as server:
        (grade, *_) = await grades(stacked(OpenAIJudge(server.url), layers(tmp_path / "c.sqlite")))
    assert isinstance(grade, Graded)
    assert grade.metadata["model"] == "/models/judge"
