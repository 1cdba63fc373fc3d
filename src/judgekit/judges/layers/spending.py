"""Keeps a judge within what its provider allows, and within what its user wants to pay."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from judgekit.errors import ConfigError, JudgeBudgetSpent
from judgekit.judges.base import JudgeRequest, Turn
from judgekit.judges.layers.pressure import Call, Line
from judgekit.types import Price, Usage

logger = logging.getLogger("judgekit")

_WARN_AT = 0.8
"""Share of a budget at which it is said that it will end."""
_CHARS_PER_TOKEN = 4
"""Before the first reply."""
_SILENT = 8
"""So many first replies that tell no tokens are those of a judge that never tells; fewer may be a server's hiccup."""


class Budget(Struct, frozen=True, forbid_unknown_fields=True):
    """How much a process may ask of a judge, in all."""

    usd: float | None = None
    """US dollars; needs a `price`."""
    tokens: float | None = None
    """Tokens of prompts and replies."""
    requests: float | None = None
    """Requests, retries included."""

    def __post_init__(self) -> None:
        if not any(limit is not None for limit in (self.usd, self.tokens, self.requests)):
            raise ConfigError("budget: give usd, tokens or requests")
        for name in ("usd", "tokens", "requests"):
            limit = getattr(self, name)
            if limit is not None and not 0 < limit < float("inf"):
                raise ConfigError(f"budget: {name} is a number above 0, not {limit!r}")


class Spending:
    """Counts what a judge is asked and costs, and refuses calls when *budget* is spent.

    The counts are this process's, from its start, over all runners. Calls that are in flight when a budget is spent are
    finished and counted. What a call cost that failed is not known: it counts as a request.
    """

    def __init__(self, budget: Budget, price: Price | None = None, who: str = "the judge") -> None:
        if budget.usd is not None and price is None:
            raise ConfigError(
                "budget: usd needs the judge's price, such as price: {input: 0.15, output: 0.6} (US dollars per million tokens)"
            )
        self.budget = budget
        self.price = price
        self.who = who
        self.requests = 0
        self.tokens = 0.0
        self.usd = 0.0
        self._counted = self._silent = 0
        """Replies in these sums, and those before the first that told its tokens."""
        self._warned = False

    async def enter(self, call: Call, /) -> None:
        """Count a request: the last gate before it is sent. Raises JudgeBudgetSpent."""
        for name, spent, limit in self._limits():
            if spent >= limit * (1 - 1e-9):  # sums of prices are rounded
                raise JudgeBudgetSpent(
                    f"the budget of {self.who} is spent: {_amount(name, spent)} of {_amount(name, limit)}"
                )
        self.requests += 1

    def leave(self, call: Call, /) -> None:
        """Count what a request cost; on average what the others did, where its reply does not tell.

        Raises ConfigError if the judge never tells its tokens.
        """
        if isinstance(call.outcome, BaseException):
            return
        usage = usage_of(call.outcome)
        if usage.prompt_tokens:
            tokens: float = usage.prompt_tokens + usage.completion_tokens
            usd = self.price.usd(usage) if self.price is not None else 0.0
        elif self._counted:
            tokens, usd = self.tokens / self._counted, self.usd / self._counted
        else:
            tokens = usd = 0.0
            self._silent += 1
            if self._silent >= _SILENT and (self.budget.tokens or self.budget.usd):
                raise ConfigError(
                    f"{self.who} does not tell how many tokens it used: its budget can only be in requests"
                )
        if tokens:
            self.tokens += tokens
            self.usd += usd
            self._counted += 1
        near = [one for one in self._limits() if one[1] >= _WARN_AT * one[2] * (1 - 1e-9)]
        if near and not self._warned:
            self._warned = True
            name, spent, limit = near[0]
            logger.warning(
                "%s has spent %s of its budget of %s", self.who, _amount(name, spent), _amount(name, limit)
            )

    def _limits(self) -> list[tuple[str, float, float]]:
        """Each limit that is set: its name, what is spent of it, and itself."""
        found: list[tuple[str, float, float]] = []
        for name, spent in (("usd", self.usd), ("tokens", self.tokens), ("requests", self.requests)):
            limit = getattr(self.budget, name)
            if limit is not None:
                found.append((name, spent, limit))
        return found


def _amount(name: str, value: float) -> str:
    return f"{value:,.2f} US dollars" if name == "usd" else f"{value:,.0f} {name}"


class TokenRate:
    """Spaces requests so that they take *per_minute* tokens a minute, prompts and replies together.

    What a request will take is guessed from its length and from the requests before it, and put right when its reply is there.
    """

    def __init__(self, per_minute: float, who: str = "the judge") -> None:
        if not 0 < per_minute < float("inf"):
            raise ConfigError(f"tokens_per_minute is a number above 0, not {per_minute!r}")
        self.per_minute = per_minute
        self.who = who
        self._line = Line()
        self._chars = self._silent = 0
        self._tokens = 0.0

    async def enter(self, call: Call, /) -> None:
        """Wait for the next start, and reserve the call's tokens."""

        def reserve() -> float:
            per_char = self._tokens / self._chars if self._chars else 1 / _CHARS_PER_TOKEN
            call.reserved = chars_of(call.request) * per_char
            return self._seconds(call.reserved)

        await self._line.start(reserve)

    def leave(self, call: Call, /) -> None:
        """Put the reservation right by what the request took; it was right where the reply does not tell.

        Raises ConfigError if the judge never tells its tokens.
        """
        if isinstance(call.outcome, BaseException):
            self._line.free_at -= self._seconds(call.reserved)
            return
        usage = usage_of(call.outcome)
        if tokens := usage.prompt_tokens + usage.completion_tokens:
            self._line.free_at += self._seconds(tokens - call.reserved)
            self._chars += chars_of(call.request)
            self._tokens += tokens
        elif not self._tokens:
            self._silent += 1
            if self._silent >= _SILENT:
                raise ConfigError(
                    f"{self.who} does not tell how many tokens it used: leave tokens_per_minute out"
                )

    def _seconds(self, tokens: float) -> float:
        return tokens * 60.0 / self.per_minute


def usage_of(reply: Any) -> Usage:
    """What a judge's reply, or a reward model's, cost."""
    usage: Usage = reply[1] if isinstance(reply, tuple) else reply.usage
    return usage


def chars_of(request: Any) -> int:
    """The length of what a judge is asked, or a reward model."""
    turns: Sequence[Turn] = request.turns if isinstance(request, JudgeRequest) else request
    return sum(len(piece.text) for turn in turns for piece in turn.pieces)
