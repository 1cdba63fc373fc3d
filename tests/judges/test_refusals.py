"""An endpoint that refuses (429, 503) pauses everybody and costs no reward; waiting for one's turn costs nobody's time."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from aiohttp import web

from judgekit import (
    ConfigError,
    Failed,
    Graded,
    GradingRunner,
    JudgeRejected,
    JudgeUnavailable,
    Retry,
    Rollout,
)
from judgekit.graders import JudgeGrader
from judgekit.judges import (
    JudgeReply,
    JudgeRequest,
    LayerOptions,
    LineVerdict,
    OpenAIJudge,
    Piece,
    Turn,
    stacked,
)
from judgekit.judges.layers.spending import Budget
from judgekit.testing import ScriptedJudge
from judgekit.types import Usage
from tests.judges.fake_server import FakeServer


def rollouts(n: int) -> list[Rollout]:
    return [Rollout(prompt="2+2?", ground_truth="4", response=f"{i}", group=i) for i in range(n)]


def ask(text: str = "a") -> JudgeRequest:
    return JudgeRequest((Turn("user", (Piece(text),)),), ("0", "1"), accept=lambda reply: None)


def refusal(retry_after: float | None) -> JudgeUnavailable:
    error = JudgeUnavailable("HTTP 429: slow down", retry_after)
    error.refused = True
    return error


class Refusing(ScriptedJudge):
    """Refuses for *seconds* from its *after*-th call on."""

    def __init__(self, after: int, seconds: float, retry_after: float | None) -> None:
        super().__init__("1", latency_s=0.002)
        self.after = after
        self.seconds = seconds
        self.retry_after = retry_after
        self.calls = self.refused = 0
        self.until: float | None = None

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        self.calls += 1
        now = time.monotonic()
        if self.calls > self.after and self.until is None:
            self.until = now + self.seconds
        if self.until is not None and now < self.until:
            self.refused += 1
            raise refusal(self.retry_after)
        return await super().complete(request)


@pytest.mark.parametrize("retry_after", [6.0, None])
@pytest.mark.parametrize("in_flight", [4, 64])
async def test_a_refusal_costs_no_reward_no_attempt_and_no_time(
    retry_after: float | None, in_flight: int
) -> None:
    """It lasts for longer than an evaluation may, and than three attempts and their budget would."""
    judge = Refusing(10, 6.0, retry_after)
    runner = GradingRunner({"judge": JudgeGrader(stacked(judge))}, timeout_s=4.0, max_concurrency=in_flight)
    results = await runner.run(rollouts(100))
    assert sum(isinstance(result.grades["judge"], Graded) for result in results) == 100
    assert judge.refused >= 1


async def test_what_is_asked_for_holds_back_everybody() -> None:
    judge = Refusing(0, 0.2, 0.2)
    stack = stacked(judge)
    await asyncio.gather(*(stack.complete(ask(str(i))) for i in range(4)))
    assert judge.refused == 1  # the others had not been sent yet, and nobody came before the time
    assert judge.calls == 5


async def test_a_refusal_beyond_the_wait_for_a_restart_fails_at_once_in_the_servers_words() -> None:
    judge = ScriptedJudge(refusal(3000.0))
    runner = GradingRunner({"judge": JudgeGrader(stacked(judge))}, timeout_s=30)
    (result,) = await runner.run(rollouts(1))
    grade = result.grades["judge"]
    assert isinstance(grade, Failed)
    assert (grade.error, grade.detail) == ("JudgeUnavailable", "HTTP 429: slow down")
    assert len(judge.requests) == 1


async def test_without_a_wait_for_restarts_a_refusal_is_retried_like_others() -> None:
    judge = ScriptedJudge(refusal(0.0))
    options = LayerOptions(restart_wait_s=0, retry=Retry(attempts=3, wait_initial_s=0, budget=10))
    with pytest.raises(JudgeUnavailable):
        await stacked(judge, options).complete(ask())
    assert len(judge.requests) == 3


class Poor(FakeServer):
    async def _chat(self, request: web.Request, *, faulty: bool = True) -> web.StreamResponse:
        error = {"message": "You exceeded your current quota", "code": "insufficient_quota"}
        return web.json_response({"error": error}, status=429)


async def test_a_quota_that_is_used_up_is_not_waited_for() -> None:
    async with Poor("provider") as server:
        judge = OpenAIJudge(server.url, model="judge")
        with pytest.raises(JudgeRejected, match="exceeded your current quota"):
            await stacked(judge).complete(ask())
        await judge.close()


async def test_waiting_for_a_place_in_front_of_a_judge_is_nobodys_time() -> None:
    """Each call takes a third of the limit, and the last one waits for more than ten of them."""
    judge = ScriptedJudge("1", latency_s=0.1)
    stack = stacked(judge, LayerOptions(max_concurrency=1))
    results = await GradingRunner({"judge": JudgeGrader(stack)}, timeout_s=0.3).run(rollouts(12))
    assert sum(isinstance(result.grades["judge"], Graded) for result in results) == 12
    assert judge.peak_in_flight == 1


async def test_a_budget_is_spent_by_what_was_sent() -> None:
    judge = ScriptedJudge("1")
    stack = stacked(judge, LayerOptions(budget=Budget(requests=10), requests_per_minute=60))
    calls = [asyncio.create_task(stack.complete(ask(str(i)))) for i in range(40)]
    while not judge.requests:
        await asyncio.sleep(0.001)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    assert len(judge.requests) == 1
    spending = stack._layers.outer.inner.inner.gates[-1]
    assert spending.requests == 1


def test_a_stack_is_used_from_many_loops_and_threads_at_a_time() -> None:
    class Echo:
        running = most = 0

        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.001)
            self.running -= 1
            return JudgeReply(request.turns[0].text)

    echo = Echo()
    stack = stacked(echo, LayerOptions(max_concurrency=3))
    found: list[str] = []

    async def use(number: int) -> None:
        replies = await asyncio.gather(*(stack.complete(ask(f"{number} {i}")) for i in range(8)))
        found.extend(reply.text for reply in replies)

    threads = [threading.Thread(target=lambda n=n: asyncio.run(use(n))) for n in range(8)]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(f"{n} {i}" for n in range(8) for i in range(8))
    assert echo.most == 3


async def test_a_judge_with_a_client_of_another_loop_says_so() -> None:
    lock = asyncio.Lock()

    class Bound(ScriptedJudge):
        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            async with lock:
                return await super().complete(request)

    async def hold() -> None:
        async with lock:
            await asyncio.sleep(3600)

    holders = [asyncio.create_task(hold()) for _ in range(2)]
    await asyncio.sleep(0.01)  # the lock is bound to this loop now
    with pytest.raises(ConfigError, match=r"make its client, session or lock in its start\(\)"):
        await GradingRunner({"judge": JudgeGrader(Bound("1"))}).run(rollouts(1))
    for holder in holders:
        holder.cancel()


async def test_what_a_judge_is_called_with_is_the_callers_context() -> None:
    from contextvars import ContextVar

    span: ContextVar[str] = ContextVar("span", default="none")
    seen: list[Any] = []

    class Looks(ScriptedJudge):
        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            seen.append((span.get(), threading.current_thread().name))
            return await super().complete(request)

    span.set("the run's")
    await GradingRunner({"judge": JudgeGrader(stacked(Looks("1")))}).run(rollouts(2))
    assert seen == [("the run's", "judgekit-loop")] * 2


async def test_what_a_reply_has_cost_that_is_asked_again_is_kept_when_the_time_is_up() -> None:
    class Second(ScriptedJudge):
        """Answers once, without a verdict, and then never."""

        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            if self.requests:
                await asyncio.sleep(3600)
            self.requests.append(request)
            return JudgeReply("no verdict", usage=Usage(calls=1, prompt_tokens=100, completion_tokens=7))

    grader = JudgeGrader(stacked(Second("1")), verdict=LineVerdict(nonce=False))
    (result,) = await GradingRunner({"judge": grader}, timeout_s=0.2).run(rollouts(1))
    grade = result.grades["judge"]
    assert isinstance(grade, Failed)
    assert (grade.error, grade.usage) == (
        "GraderTimeout",
        Usage(calls=1, prompt_tokens=100, completion_tokens=7),
    )
    assert result.usage.prompt_tokens == 100


async def test_whoever_says_when_to_come_again_is_obeyed_like_a_server() -> None:
    judge = ScriptedJudge(JudgeUnavailable("the daily quota is used up", retry_after=3000))
    results = await GradingRunner({"judge": JudgeGrader(stacked(judge))}, timeout_s=30).run(rollouts(16))
    details = [getattr(result.grades["judge"], "detail", "") for result in results]
    assert details == ["the daily quota is used up"] * 16


@pytest.mark.parametrize("retry_after", ["1", None])
async def test_an_endpoint_that_refuses_to_say_what_it_is_is_not_asked_without_a_pause(
    retry_after: str | None,
) -> None:
    """What is asked beside requests passes no gate that holds it back."""
    refused = 0

    async def refuse(request: web.Request) -> web.Response:
        nonlocal refused
        refused += 1
        headers = {} if retry_after is None else {"Retry-After": retry_after}
        return web.json_response({"error": {"message": "slow down"}}, status=429, headers=headers)

    async with FakeServer() as server:
        server.once["/v1/models"] = [refuse] * 100_000
        judge = stacked(OpenAIJudge(server.url, model="judge"))
        run = asyncio.create_task(GradingRunner({"judge": JudgeGrader(judge)}).run(rollouts(4)))
        await asyncio.sleep(2.0)
        server.once.clear()
        results = await run
        await judge.close()
    assert [result.reward for result in results] == pytest.approx([0.75] * 4)
    assert 1 <= refused <= 16
