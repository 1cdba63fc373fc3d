"""What a judge has used, as budgets and rates count it, and what they say of it."""

from __future__ import annotations

from typing import Any

import pytest

from judgekit import ConfigError
from judgekit.errors import JudgeBudgetSpent, JudgeUnavailable
from judgekit.judges.base import JudgeReply, JudgeRequest, Piece, Turn
from judgekit.judges.layers.pressure import Call
from judgekit.judges.layers.spending import Budget, Spending, TokenRate, chars_of, usage_of
from judgekit.types import Price, Usage


def request(chars: int = 8) -> JudgeRequest:
    return JudgeRequest((Turn("user", (Piece("x" * (chars - 3)), Piece("abc"))),), max_tokens=1)


def reply(prompt: int, completion: int = 0) -> JudgeReply:
    return JudgeReply("1", usage=Usage(calls=1, prompt_tokens=prompt, completion_tokens=completion))


def left(gate: Any, outcome: Any, **fields: Any) -> None:
    call = Call(fields.pop("request", request()))
    call.outcome = outcome
    for name, value in fields.items():
        setattr(call, name, value)
    gate.leave(call)


async def entered(gate: Any, times: int = 1) -> None:
    for _ in range(times):
        await gate.enter(Call(request()))


async def test_a_budget_of_requests_is_spent_to_the_last_one() -> None:
    spending = Spending(Budget(requests=3))
    await entered(spending, 3)
    with pytest.raises(
        JudgeBudgetSpent, match=r"^the budget of the judge is spent: 3 requests of 3 requests$"
    ):
        await entered(spending)
    assert spending.requests == 3


async def test_a_budget_of_tokens_and_dollars_counts_replies() -> None:
    spending = Spending(Budget(tokens=1000, usd=1000), Price(2e6, 10e6), "it")
    left(spending, reply(400, 20))
    assert (spending.tokens, spending.usd) == (420, 1000.0)
    with pytest.raises(
        JudgeBudgetSpent, match=r"^the budget of it is spent: 1,000.00 US dollars of 1,000.00 US dollars$"
    ):
        await entered(spending)
    assert spending.requests == 0
    spending = Spending(Budget(tokens=1234.4))
    left(spending, reply(1200, 34))
    await entered(spending)
    left(spending, reply(1))
    with pytest.raises(JudgeBudgetSpent, match="1,235 tokens of 1,234 tokens"):
        await entered(spending)


async def test_sums_that_are_rounded_are_spent_too() -> None:
    spending = Spending(Budget(usd=0.3), Price(100_000.0, 0.0))
    for _ in range(3):
        left(spending, reply(1))
    assert spending.usd != 0.3 or spending.usd == pytest.approx(0.3)
    with pytest.raises(JudgeBudgetSpent):
        await entered(spending)


async def test_a_reply_that_does_not_tell_costs_what_the_others_did() -> None:
    spending = Spending(Budget(tokens=10_000, usd=1.0), Price(1.0, 2.0))
    left(spending, reply(0))
    assert spending.tokens == 0.0
    left(spending, reply(100, 10))
    left(spending, reply(200, 10))
    assert (spending.tokens, spending.usd) == (320, pytest.approx(340e-6))
    left(spending, reply(0))
    assert (spending.tokens, spending.usd) == (480, pytest.approx(510e-6))
    left(spending, JudgeUnavailable("down"))
    left(spending, (0.5, Usage(1, 100, 0, 5)))
    assert spending.tokens == 585


@pytest.mark.parametrize(
    ("budget", "raises"), [({"tokens": 1.0}, True), ({"usd": 1.0}, True), ({"requests": 100}, False)]
)
async def test_a_judge_that_never_tells_its_tokens_has_no_budget_of_them(
    budget: dict[str, float], raises: bool
) -> None:
    spending = Spending(Budget(**budget), Price(1.0, 1.0), "it")
    for _ in range(7):
        left(spending, reply(0))
    if not raises:
        for _ in range(9):
            left(spending, reply(0))
        return
    says = "^it does not tell how many tokens it used: its budget can only be in requests$"
    with pytest.raises(ConfigError, match=says):
        left(spending, reply(0))


async def test_a_budget_that_ends_soon_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    spending = Spending(Budget(requests=10), who="it")
    await entered(spending, 7)
    left(spending, reply(1))
    assert caplog.messages == []
    await entered(spending)
    for _ in range(2):
        left(spending, reply(1))
    assert caplog.messages == ["it has spent 8 requests of its budget of 10 requests"]


def test_a_budget_in_dollars_needs_a_price() -> None:
    with pytest.raises(
        ConfigError, match=r"budget: usd needs the judge's price, such as price: \{input: 0.15"
    ):
        Spending(Budget(usd=1.0))
    assert Spending(Budget(requests=1)).who == "the judge"


@pytest.mark.parametrize("per_minute", [0, -1.0, float("inf"), float("nan")])
def test_a_rate_of_tokens_is_above_0(per_minute: float) -> None:
    with pytest.raises(ConfigError, match="tokens_per_minute is a number above 0, not "):
        TokenRate(per_minute)


async def test_tokens_are_guessed_by_length_and_put_right() -> None:
    rate = TokenRate(60.0)
    first = Call(request(40))
    await rate.enter(first)
    assert first.reserved == 10.0
    start = rate._line.free_at
    first.outcome = reply(15, 5)
    rate.leave(first)
    assert rate._line.free_at == pytest.approx(start + 10)
    rate._line.free_at = 0.0
    second = Call(request(10))
    await rate.enter(second)
    assert second.reserved == 5.0  # half a token for each character
    start = rate._line.free_at
    second.outcome = JudgeUnavailable("down")
    rate.leave(second)
    assert rate._line.free_at == pytest.approx(start - 5)
    left(rate, reply(0), reserved=7.0)
    assert rate._line.free_at == pytest.approx(start - 5)
    for _ in range(20):  # it has told once
        left(rate, reply(0))


async def test_a_judge_that_never_tells_its_tokens_has_no_rate_of_them() -> None:
    rate = TokenRate(60.0)
    for _ in range(7):
        left(rate, reply(0))
    with pytest.raises(
        ConfigError, match="^the judge does not tell how many tokens it used: leave tokens_per_minute out$"
    ):
        left(rate, reply(0))


def test_lengths_and_costs_of_judges_and_reward_models() -> None:
    assert chars_of(request(8)) == chars_of(request(8).turns) == 8
    assert usage_of(reply(3)) == Usage(1, 3, 0, 0)
    assert usage_of((0.5, Usage(2))) == Usage(2)
