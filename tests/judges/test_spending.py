"""Providers: budgets, tokens per minute, concurrency that adapts, rate-limit headers."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from aiohttp import web

from judgekit import (
    ConfigError,
    Failed,
    Graded,
    GradingRunner,
    JudgeUnavailable,
    Retry,
    Rollout,
)
from judgekit.config import load_runner
from judgekit.errors import JudgeBudgetSpent, JudgeRejected
from judgekit.graders import JudgeGrader
from judgekit.judges import JudgeReply, JudgeRequest, LineVerdict, OpenAIJudge, Piece, Turn
from judgekit.judges.engines.http import retry_after
from judgekit.judges.layers import pressure
from judgekit.judges.layers.places import Places
from judgekit.judges.layers.pressure import Breaker, Call, Gate, Pause, RateLimit
from judgekit.judges.layers.spending import Budget, Spending, TokenRate
from judgekit.judges.layers.stack import CacheOptions, LayerOptions, Limited, stacked
from judgekit.testing import ScriptedJudge
from judgekit.types import Price, Usage
from tests.judges.fake_server import FakeServer, says

ROLLOUTS = [Rollout(prompt="2+2?", ground_truth="4", response=f"{n}", group=n) for n in range(10)]


def ask(text: str = "a" * 400) -> JudgeRequest:
    return JudgeRequest((Turn("user", (Piece(text),)),), ("0", "1"), accept=lambda reply: None)


def reply(prompt: int = 100, completion: int = 1, cached: int = 0) -> JudgeReply:
    usage = Usage(calls=1, prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached)
    return JudgeReply("1", choice_probs={"0": 0.0, "1": 1.0}, label_mass=1.0, usage=usage)


async def passed(gate: Gate, outcome: object, text: str = "a" * 400) -> Call:
    """Send a call through a gate, with that outcome."""
    call = Call(ask(text))
    await gate.enter(call)
    call.sent, call.outcome = time.monotonic(), outcome
    gate.leave(call)
    return call


# ---- budgets


async def test_a_spent_budget_is_a_failure_with_its_cause_and_never_a_score() -> None:
    judge = ScriptedJudge(reply())
    stack = stacked(judge, LayerOptions(budget=Budget(tokens=303), max_concurrency=1))
    results = await GradingRunner({"judged": JudgeGrader(stack)}).run(ROLLOUTS)
    grades = [r.grades["judged"] for r in results]
    assert sum(isinstance(g, Graded) for g in grades) == len(judge.requests) == 3
    failed = [g for g in grades if isinstance(g, Failed)]
    assert len(failed) == 7
    for grade in failed:
        assert (grade.error, grade.cause, grade.retryable) == ("JudgeBudgetSpent", "infrastructure", False)
        assert "303 tokens of 303 tokens" in grade.detail
    assert {r.reward for r, g in zip(results, grades, strict=True) if isinstance(g, Failed)} != {0.0}


async def test_requests_count_retries_and_calls_in_flight_are_finished() -> None:
    judge = ScriptedJudge([JudgeUnavailable("busy", retry_after=0.0), *[reply()] * 20])
    stack = stacked(judge, LayerOptions(budget=Budget(requests=3)))
    assert (await stack.complete(ask())).text == "1"
    assert (await stack.complete(ask("other"))).text == "1"
    with pytest.raises(JudgeBudgetSpent, match="3 requests of 3 requests"):
        await stack.complete(ask("third"))
    assert len(judge.requests) == 3
    slow = ScriptedJudge(reply(), latency_s=0.01)
    limited = Limited(slow, [Spending(Budget(tokens=101))])
    found = await asyncio.gather(*(limited.complete(ask(str(i))) for i in range(4)))
    assert len(found) == 4
    with pytest.raises(JudgeBudgetSpent, match="404 tokens of 101 tokens"):
        await limited.complete(ask())


def test_prices_count_cached_tokens_apart() -> None:
    usage = Usage(calls=1, prompt_tokens=1_000_000, cached_tokens=400_000, completion_tokens=100_000)
    assert math.isclose(Price(input=0.5, output=2.0, cached_input=0.05).usd(usage), 0.3 + 0.02 + 0.2)
    assert math.isclose(Price(input=0.5, output=2.0).usd(usage), 0.5 + 0.2)


async def test_a_budget_that_will_end_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    spending = Spending(Budget(usd=1.0), Price(input=1.0, output=1.0), "judge")
    for _ in range(10):  # ten tenths are less than 1, to a computer
        await passed(spending, reply(100_000, 0))
    with pytest.raises(JudgeBudgetSpent, match=r"1\.00 US dollars of 1\.00 US dollars"):
        await spending.enter(Call(ask()))
    (line,) = [r.getMessage() for r in caplog.records]
    assert "judge has spent 0.80 US dollars of its budget of 1.00 US dollars" in line


async def test_a_judge_that_tells_no_tokens_cannot_have_a_budget_of_them() -> None:
    silent = ScriptedJudge(reply(prompt=0, completion=0))
    for options in (
        LayerOptions(budget=Budget(tokens=10)),
        LayerOptions(budget=Budget(usd=10), price=Price(1, 1)),
        LayerOptions(tokens_per_minute=1e9),
    ):
        stack = stacked(silent, options)
        for _ in range(7):
            await stack.complete(ask())
        with pytest.raises(ConfigError, match="does not tell how many tokens"):
            await stack.complete(ask())
    assert (await stacked(silent, LayerOptions(budget=Budget(requests=10))).complete(ask())).text == "1"


@pytest.mark.parametrize("first", [True, False])
async def test_one_reply_that_tells_no_tokens_ends_no_run(first: bool) -> None:
    """It is taken to cost what the others did on average, once there are others."""
    told, silent = reply(prompt=99), reply(prompt=0, completion=0)
    judge = ScriptedJudge([silent, told, told, told, told] if first else [told, silent, silent, told, told])
    options = LayerOptions(
        budget=Budget(tokens=300 if first else 400), tokens_per_minute=1e9, max_concurrency=1
    )
    results = await GradingRunner({"judged": JudgeGrader(stacked(judge, options))}).run(ROLLOUTS)
    grades = [r.grades["judged"] for r in results]
    assert sum(isinstance(g, Graded) for g in grades) == len(judge.requests) == 4
    assert {g.error for g in grades if isinstance(g, Failed)} == {"JudgeBudgetSpent"}


@pytest.mark.parametrize(
    ("layers", "says"),
    [
        ("budget: {usd: 20}", "needs the judge's price"),
        ("budget: {}", "give usd, tokens or requests"),
        ("budget: {tokens: 0}", "tokens is a number above 0"),
        ("budget: {eur: 5}", "eur"),
        ("budget: {usd: 1}, price: {input: -1, output: 1}", "at least 0"),
        ("budget: {usd: 1}, price: {input: 1}", "output"),
        ("tokens_per_minute: 0", "tokens_per_minute is a number above 0"),
        ("max_concurrency: 0", "auto or a whole number from 1"),
    ],
)
def test_wrong_limits_are_said(tmp_path: Path, layers: str, says: str) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(
        "graders: {judged: {use: judge, judge: api}}\n"
        f"judges: {{api: {{engine: openai, url: 'http://127.0.0.1:9', model: m, layers: {{{layers}}}}}}}\n"
    )
    with pytest.raises(ConfigError, match=says):
        load_runner(path)


async def test_a_server_is_paid_for_by_its_own_counts(tmp_path: Path) -> None:
    """The user's path: reward.yaml, HTTP, the server's usage."""
    async with FakeServer("provider") as server:
        path = tmp_path / "reward.yaml"
        path.write_text(
            "graders: {judged: {use: judge, judge: api}}\n"
            f"judges:\n  api:\n    engine: openai\n    url: {server.url}\n    model: judge\n"
            "    layers: {max_concurrency: 1, price: {input: 1000000, output: 1000000}, budget: {usd: 30}}\n"
        )
        runner = load_runner(path)
        async with runner:
            grades = [r.grades["judged"] for r in await runner.run(ROLLOUTS)]
    good = [g for g in grades if isinstance(g, Graded)]
    spent = sum(g.usage.prompt_tokens + g.usage.completion_tokens for g in good if g.usage)
    last = good[-1].usage
    assert last is not None
    assert spent >= 30 > spent - last.prompt_tokens - last.completion_tokens
    assert {g.error for g in grades if isinstance(g, Failed)} == {"JudgeBudgetSpent"}


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 7, "completion_tokens": -5}, (7, 0, 0)),
        ({"prompt_tokens": 7, "completion_tokens": 10**400}, (7, 0, 0)),
        ({"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 10**9}}, (7, 7, 0)),
    ],
)
async def test_counts_that_cannot_be_are_none(
    usage: dict[str, object], counted: tuple[int, int, int]
) -> None:
    """A verdict is kept and paid for all the same, and no budget ends by one odd number."""
    async with FakeServer("provider") as server:
        judge = OpenAIJudge(server.url)
        await judge.start()
        choice = {"index": 0, "message": {"content": "### Final Score: 1"}, "finish_reason": "stop"}
        server.fault = says(json.dumps({"choices": [choice], "usage": usage}))
        options = LayerOptions(budget=Budget(usd=1.0), price=Price(1, 1), cache=CacheOptions())
        grader = JudgeGrader(stacked(judge, options), verdict=LineVerdict(nonce=False))
        results = await GradingRunner({"judged": grader}).run(ROLLOUTS[:2])
        await judge.close()
    for result in results:
        grade = result.grades["judged"]
        assert isinstance(grade, Graded)
        assert grade.usage is not None
        found = (grade.usage.prompt_tokens, grade.usage.cached_tokens, grade.usage.completion_tokens)
        assert found == counted


# ---- tokens per minute


async def test_tokens_are_spaced_and_put_right() -> None:
    rate = TokenRate(6000)  # 100 a second
    first = Call(ask("a" * 400))
    await rate.enter(first)
    assert first.reserved == 100.0
    assert 0.9 < rate._line.free_at - time.monotonic() <= 1.0
    first.outcome = reply(50, 0)  # it took half
    rate.leave(first)
    assert rate._line.free_at - time.monotonic() <= 0.5
    second = Call(ask("a" * 400))
    await rate.enter(second)
    assert second.reserved == 50.0
    second.outcome = JudgeUnavailable("down")  # it failed: nothing was taken
    rate.leave(second)
    assert rate._line.free_at <= time.monotonic()


async def test_waiting_for_tokens_counts_against_no_timeout() -> None:
    judge = ScriptedJudge(reply(prompt=100))
    stack = stacked(judge, LayerOptions(tokens_per_minute=60_000))  # a call takes 0.1 s
    results = await GradingRunner({"judged": JudgeGrader(stack)}, timeout_s=0.3).run(ROLLOUTS)
    assert [r.status for r in results] == ["scored"] * 10


@pytest.mark.parametrize("gate", [TokenRate(60), RateLimit(60), Places(1)])
async def test_calls_that_are_cancelled_while_they_wait_have_taken_nothing(gate: Gate) -> None:
    first = Call(ask("a" * 4))
    await gate.enter(first)  # the next one waits
    calls = [Call(ask("a" * 4000)) for _ in range(100)]
    waiting = [asyncio.create_task(gate.enter(call)) for call in calls]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    if isinstance(gate, Places):
        assert gate.taken == 1
    elif isinstance(gate, TokenRate):
        assert gate._line.free_at - time.monotonic() <= 1
    else:
        assert gate._line.free_at - time.monotonic() <= 1


async def test_starts_are_spaced_and_a_place_that_was_given_up_is_not_given_out_twice() -> None:
    rate = RateLimit(1200)  # 0.05 s
    starts: list[float] = []

    async def call() -> None:
        await rate.enter(Call(ask()))
        starts.append(time.monotonic())

    tasks = [asyncio.create_task(call()) for _ in range(6)]
    await asyncio.sleep(0.01)
    tasks[1].cancel()
    tasks[2].cancel()
    tasks += [asyncio.create_task(call()) for _ in range(2)]
    await asyncio.wait(tasks)
    assert len(starts) == 6
    assert min(b - a for a, b in itertools.pairwise(starts)) > 0.04


async def test_breaker_opens_probes_and_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(pressure.time, "monotonic", lambda: now)
    breaker = Breaker(failures=2, open_s=10.0, who="judge x")
    down = JudgeUnavailable("down")
    old = Call(ask())
    await breaker.enter(old)  # began before it opened
    for _ in range(2):
        await passed(breaker, down)
    with pytest.raises(JudgeUnavailable, match="judge x failed 2 times in a row") as info:
        await breaker.enter(Call(ask()))
    assert info.value.retry_after == 10.0
    now += 11
    probe = Call(ask())
    await breaker.enter(probe)
    old.outcome = asyncio.CancelledError()
    breaker.leave(old)  # the end of an old call lets no second probe through
    with pytest.raises(JudgeUnavailable):
        await breaker.enter(Call(ask()))
    probe.outcome = down
    breaker.leave(probe)
    with pytest.raises(JudgeUnavailable):
        await breaker.enter(Call(ask()))
    now += 11
    await passed(breaker, reply())
    await breaker.enter(Call(ask()))
    assert not breaker.is_open


@pytest.mark.parametrize(
    ("outcome", "is_open"),
    [
        (JudgeRejected("too long"), False),  # it still shows that the engine works
        (JudgeBudgetSpent("spent"), True),  # was never sent
        (asyncio.CancelledError(), True),
    ],
)
async def test_what_closes_a_breaker(outcome: BaseException, is_open: bool) -> None:
    breaker = Breaker(failures=2)
    await passed(breaker, JudgeUnavailable("down"))
    await passed(breaker, outcome)
    await passed(breaker, JudgeUnavailable("down"))
    assert breaker.is_open is is_open


async def test_pauses_that_nobody_asked_for_are_short_again_after_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(pressure.time, "monotonic", lambda: now)
    monkeypatch.setattr(pressure.random, "random", lambda: 1.0)
    pause, found = Pause(), []
    for outcome in [*[busy()] * 3, reply(), busy()]:
        call = Call(ask())
        call.sent = now
        call.outcome = outcome
        pause.leave(call)
        found.append(pause._until - now)
        now = max(now, pause._until) + 1
    assert [round(seconds, 6) for seconds in (*found[:3], found[4])] == [0.5, 1.0, 2.0, 0.5]


def busy() -> JudgeUnavailable:
    error = JudgeUnavailable("busy")
    error.refused = True
    return error


class Busy(FakeServer):
    """A provider that takes 12 requests at once, and refuses the others."""

    in_flight = peak = refused = 0

    async def _chat(self, request: web.Request, *, faulty: bool = True) -> web.StreamResponse:
        if self.in_flight >= 12:
            self.refused += 1
            return web.json_response({"error": {"message": "slow down"}}, status=429)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            await asyncio.sleep(0.01)
            return await super()._chat(request, faulty=faulty)
        finally:
            self.in_flight -= 1


async def test_an_endpoint_that_takes_a_few_is_not_flooded() -> None:
    async with Busy("provider") as server:
        judge = OpenAIJudge(server.url, model="judge")
        await judge.start()
        server.refused = 0
        options = LayerOptions(retry=Retry(attempts=8, wait_initial_s=0.01, budget=1.0))
        rollouts = [Rollout(prompt="2+2?", ground_truth="4", response=f"{n}", group=n) for n in range(400)]
        runner = GradingRunner({"judged": JudgeGrader(stacked(judge, options))})
        results = await runner.run(rollouts)
        await judge.close()
    assert all(isinstance(r.grades["judged"], Graded) for r in results)
    assert server.peak > 6
    assert server.refused < 200


# ---- what a server says


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m2.5s"}, 62.5),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20ms"}, 0.02),
        ({"x-ratelimit-remaining-tokens": "12", "x-ratelimit-reset-tokens": "20s"}, None),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"}, None),
        ({"Retry-After": "Mon, 01 Jan 2024 00:00:00 +99999999999999"}, None),
        ({"Retry-After": "0001-01-01T00:00:00+23:59"}, 0.0),
        ({"Retry-After": "9999-12-31T23:59:59-23:59"}, None),
        ({"Retry-After": "9" * 5000 + "s"}, None),
        ({"Retry-After": "86400"}, 86400.0),
        ({"Retry-After": "2026-01-01T00:00:00"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait_is_read_in_the_forms_of_providers(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(headers) == seconds


def test_a_time_is_read_as_well() -> None:
    when = datetime.now(UTC) + timedelta(seconds=1000)
    for headers in (
        {"Retry-After": format_datetime(when, usegmt=True)},
        {"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": when.isoformat()},
    ):
        found = retry_after(headers)
        assert found is not None
        assert 100 < found <= 1000
