"""A judge's layers, under many orders in which calls can go on, fail, be shared and be cancelled."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from judgekit import JudgeTimeout, JudgeUnavailable, Retry
from judgekit.errors import JudgeBudgetSpent
from judgekit.judges import CacheOptions, JudgeReply, JudgeRequest, LayerOptions, Piece, Turn
from judgekit.judges.layers.spending import Budget, Spending
from judgekit.judges.layers.stack import BreakerOptions, _Layers
from judgekit.types import Price, Usage

from ..schedules import under_schedules


def ask(text: str) -> JudgeRequest:
    return JudgeRequest((Turn("user", (Piece(text),)),), accept=lambda reply: None)


class Flaky:
    """Answers with what it was asked, after some turns of the loop; sometimes not, and sometimes not in time."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.calls = self.answered = self.at_work = self.peak = 0

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        self.calls += 1
        self.at_work += 1
        self.peak = max(self.peak, self.at_work)
        try:
            for _ in range(self.rng.randrange(4)):
                await asyncio.sleep(0)
            drawn = self.rng.random()
            if drawn < 0.2:
                raise JudgeUnavailable("away")
            if drawn < 0.25:
                await asyncio.sleep(60)
            self.answered += 1
            return JudgeReply(request.turns[0].text, usage=Usage(10, 1, 1))
        finally:
            self.at_work -= 1


def some(rng: random.Random) -> LayerOptions:
    return LayerOptions(
        max_concurrency=rng.randint(1, 4),
        attempt_timeout_s=0.02,
        retry=Retry(attempts=3, wait_initial_s=0.001, wait_max_s=0.002, budget=1),
        cache=CacheOptions() if rng.random() < 0.5 else None,
        breaker=BreakerOptions(failures=3, open_s=0.001) if rng.random() < 0.3 else None,
        budget=Budget(requests=rng.choice([8, 100])) if rng.random() < 0.5 else None,
        price=Price(1.0, 1.0),
    )


async def program(rng: random.Random) -> None:
    engine = Flaky(rng)
    layers = _Layers(engine, engine, some(rng), None)
    gates: Any = layers.retrying.inner.gates if layers.retrying is not None else ()
    spending = next((gate for gate in gates if isinstance(gate, Spending)), None)

    async def one(text: str) -> str:
        for _ in range(rng.randrange(6)):
            await asyncio.sleep(0)
        return (await layers.outer.complete(ask(text))).text  # type: ignore[no-any-return]

    texts = [f"{rng.randrange(10)}" for _ in range(16)]
    tasks = [asyncio.create_task(one(text)) for text in texts]
    for task in rng.sample(tasks, rng.randrange(8)):
        for _ in range(rng.randrange(6)):
            await asyncio.sleep(0)
        task.cancel()
    for text, found in zip(texts, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
        known = (asyncio.CancelledError, JudgeUnavailable, JudgeTimeout, JudgeBudgetSpent)
        assert found == text or isinstance(found, known), repr(found)
    for _ in range(100):
        await asyncio.sleep(0)
    assert (engine.at_work, layers.places.taken) == (0, 0)
    assert engine.peak <= layers.places.limit
    if spending is not None:
        assert spending.requests == engine.calls <= spending.budget.requests
    again = texts[0]
    for _ in range(200):  # no gate is shut for ever
        try:
            assert (await one(again)) == again
            break
        except JudgeBudgetSpent:
            assert spending is not None
            assert engine.calls == spending.budget.requests
            break
        except (JudgeUnavailable, JudgeTimeout):
            await asyncio.sleep(0.001)
    else:
        raise AssertionError("nothing is answered any more")


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_layers_answer_each_its_own_and_keep_no_place(first: int) -> None:
    under_schedules(program, range(first, first + 100))
