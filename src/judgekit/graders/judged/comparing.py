"""Finds out whose failure a judge's refusal is: by asking it the same with a harmless text in the rollout's place."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from judgekit.errors import JudgekitError, JudgeRejected, RolloutError, attribute
from judgekit.execution.stopwatch import off_the_clock
from judgekit.judges.blame import about_prompt
from judgekit.types import Usage

logger = logging.getLogger("judgekit")

HARMLESS = "I do not know. (This text stands in for another, to see whether the judge answers.)"
_COMPARISONS = 3
"""How often a prompt is refused, and the harmless one accepted in between, before the rollout is at fault."""
_LONGEST_S = 600.0
"""After that, a comparison shows nothing."""
_T = TypeVar("_T")


@asynccontextmanager
async def aside() -> AsyncIterator[None]:
    """Compare outside of the evaluation's time: else a slow refusal would end as a time-out. Raises TimeoutError at its own end."""
    with off_the_clock():
        async with asyncio.timeout(_LONGEST_S):
            yield


def spend(error: BaseException, usage: Usage | None) -> None:
    """Add what was consumed to what an error says of it."""
    error.usage = (attribute(error, "usage") or Usage()) + (usage or Usage())  # type: ignore[attr-defined]


def _with(error: JudgekitError, usage: Usage) -> JudgekitError:
    error.usage = usage  # type: ignore[attr-defined]
    return error


class Comparisons:
    """What comparisons have shown of a grader's judges."""

    def __init__(self, asker: str) -> None:
        self._asker = asker
        self._fickle: list[Any] = []
        """Judges that have refused a request and then accepted it."""

    async def again(
        self,
        judge: object,
        refused: Callable[[], Awaitable[_T]],
        harmless: Callable[[], Awaitable[Usage]],
        error: JudgekitError,
    ) -> tuple[_T, Usage]:
        """Ask a judge again what it refused with *error*, each time after something *harmless*.

        Returns its answer, and what was spent beside it.

        Raises RolloutError if the one is refused every time, and the other accepted every time: behind a router one server of
        many may refuse what the others accept. Else raises *error*, or what else happens meanwhile. Both errors' usage has what
        the comparison cost.
        """
        # kept apart: a judge may raise the same error every time
        spent = attribute(error, "usage") or Usage()
        try:
            async with aside():
                for _ in range(_COMPARISONS):
                    try:
                        spent += await harmless()
                    except JudgekitError:
                        raise _with(error, spent) from None  # it refuses everything now
                    try:
                        answer = await refused()
                    except JudgeRejected as second:
                        if not about_prompt(second):
                            raise
                        continue
                    self._note(judge, error)
                    return answer, spent
        except TimeoutError:
            raise _with(error, spent) from None
        if self._is_fickle(judge):
            raise _with(error, spent)
        raise _with(RolloutError(f"the judge refuses this text, and accepts others: {error}"), spent)

    def _note(self, judge: object, error: JudgekitError) -> None:
        """Remember that a judge accepts what it refused, and say so once."""
        if self._is_fickle(judge):
            return
        self._fickle.append(judge)
        logger.warning(
            "%s: %s refuses requests that it accepts when they are sent again (%s): do all servers behind it have the same "
            "settings? No refusal is taken as the rollout's fault",
            self._asker,
            judge,
            error,
        )

    def _is_fickle(self, judge: object) -> bool:
        return any(known is judge for known in self._fickle)
