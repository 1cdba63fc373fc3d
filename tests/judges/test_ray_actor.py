"""The actor's side of a Ray judge, without Ray: mailboxes, and engines that are being loaded."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from judgekit.errors import JudgeLoading
from judgekit.judges import JudgeRequest, Piece, Turn
from judgekit.judges.engines.ray.actor import JudgeActor
from judgekit.judges.engines.ray.judge import _Link
from judgekit.judges.engines.ray.packing import Answer, pack_requests, unpack_answers
from judgekit.testing import ScriptedJudge


class Loading(ScriptedJudge):
    """An engine that is there after it was asked for a while."""

    asked = 0

    async def ready(self) -> bool:
        self.asked += 1
        return self.asked > 3


def actor(factory: str = "judgekit.testing:ScriptedJudge", **options: Any) -> JudgeActor:
    return JudgeActor({"factory": factory, "options": {"script": "1", **options}}, "digest")


def batch(*numbers: int) -> bytes:
    return pack_requests([(n, JudgeRequest(turns=(Turn("user", (Piece(str(n)),)),))) for n in numbers])


async def answers(made: JudgeActor, life: str, got: int) -> tuple[int, list[Answer]]:
    data = await made.collect("me", life, got, 5.0)
    assert data is not None
    return unpack_answers(data)


async def test_what_a_lost_reply_carried_is_sent_again() -> None:
    made = actor()
    life = await made.submit("me", batch(1, 2))
    while made._boxes["me"].tasks:
        await asyncio.sleep(0)
    first, found = await answers(made, life, 0)
    assert (first, [a.number for a in found]) == (0, [1, 2])
    assert await answers(made, life, 0) == (first, found)  # that reply was lost
    await made.submit("me", batch(3))
    while made._boxes["me"].tasks:
        await asyncio.sleep(0)
    first, found = await answers(made, life, 1)
    assert (first, [a.number for a in found]) == (1, [2, 3])
    first, found = await answers(made, life, 0)  # an old call that comes late changes nothing
    assert (first, [a.number for a in found]) == (1, [2, 3])


async def test_two_calls_for_answers_lose_none() -> None:
    """As after a blip of the network: one of them was given up by the caller, and still waits here."""
    made = actor(latency_s=0.01)
    life = await made.submit("me", batch(1))
    lost = asyncio.create_task(made.collect("me", life, 0, 5.0))
    first, found = await answers(made, life, 0)
    await lost
    assert [a.number for a in found] == [1]
    data = await made.collect("me", life, first + len(found), 0.0)
    assert data is not None
    assert unpack_answers(data) == (1, [])
    assert await made.collect("me", "another life", 0, 0.0) is None


async def test_a_caller_that_was_forgotten_loses_no_answer() -> None:
    """Its process trained for ten minutes, and another one asked meanwhile."""
    made = actor()
    calls = {name: _Remote(getattr(made, name)) for name in ("submit", "collect", "cancel")}
    link = _Link(SimpleNamespace(**calls), "actor", lambda error: None)
    requests = [JudgeRequest(turns=(Turn("user", (Piece(str(n)),)),)) for n in range(4)]
    for _ in range(2):
        replies = await asyncio.wait_for(asyncio.gather(*map(link.ask, requests)), 20)
        assert [reply.text for reply in replies] == ["1"] * 4
        made._boxes[link._caller].seen -= 601
        await made.submit("another", batch(1))
        assert link._caller not in made._boxes
    for _ in range(2):
        await link.ask(requests[0])
        assert len(made._boxes[link._caller].ready) == 1  # those before are acknowledged
    await link.close()


async def test_an_engine_that_is_being_loaded_takes_no_requests() -> None:
    """The caller has other replicas, and a limit for its wait."""
    made = actor("tests.judges.test_ray_actor:Loading")
    life = await made.submit("me", batch(1))
    _, (answer,) = await answers(made, life, 0)
    assert answer.error == "JudgeLoading"
    assert "is being loaded" in str(answer.result())
    assert isinstance(answer.result(), JudgeLoading)
    while not await made.ready():
        pass
    await made.submit("me", batch(2))
    _, found = await answers(made, life, 1)
    assert [a.error for a in found] == [""]
    await made.drain()
    assert not await made.ready()


class _Remote:
    """A method of an actor, as Ray's handles have it."""

    def __init__(self, method: Any) -> None:
        self.method = method

    def remote(self, *arguments: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self.method(*arguments))


class PanicException(BaseException):
    """What a panic of native code (a tokenizer's) becomes."""


class Speechless(Exception):
    def __str__(self) -> str:
        raise IndexError


class Fails(ScriptedJudge):
    async def complete(self, request: JudgeRequest, /) -> Any:
        raise {"1": PanicException("not a char boundary"), "2": Speechless()}[request.turns[0].text]


async def test_whatever_an_engine_raises_is_an_answer() -> None:
    """Its caller waits in another process, and hears of nothing else."""
    made = actor("tests.judges.test_ray_actor:Fails")
    life = await made.submit("me", batch(1, 2))
    while made._boxes["me"].tasks:
        await asyncio.sleep(0)
    _, found = await answers(made, life, 0)
    assert [str(a.result()) for a in found] == [
        "PanicException: not a char boundary",
        "Speechless: (its text cannot be had: str() raised IndexError)",
    ]
