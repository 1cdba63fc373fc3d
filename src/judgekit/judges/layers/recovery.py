"""Waits for engines that are being restarted.

What an engine says of itself is in `judgekit.judges.health`. `has_answered`: whether it did so before these layers were put
around it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from judgekit.errors import JudgeLoading, JudgeUnavailable
from judgekit.execution.flight import Flights
from judgekit.execution.stopwatch import off_the_clock
from judgekit.judges.health import is_ready

logger = logging.getLogger("judgekit")

_CONFIRM_S = 0.5
"""An engine may fail calls for a moment before it says that it is down: it is asked twice."""
_PAUSE_S, _MAX_PAUSE_S = 0.25, 2.0
"""Pauses between two questions to an engine that is down."""


class Recovery:
    """Lets calls wait until an engine that went down answers again.

    An outage is waited for at most *limit_s*, from its beginning: what is asked later fails at once, until the engine
    answers again. An engine that has never answered is not waited for, unless it says that it is being loaded. One task asks the engine, however
    many calls wait.
    """

    def __init__(self, engine: Any, limit_s: float) -> None:
        self.engine = engine
        self.limit_s = limit_s
        self._answered = False
        self._away_since: float | None = None
        self._back_at = 0.0
        """When its last outage was over."""
        self._probes: Flights[bool] = Flights()

    def __reduce__(self) -> Any:
        return Recovery, (self.engine, self.limit_s)

    def answered(self) -> None:
        """The engine has answered."""
        self._answered = True
        if self._away_since is not None:
            self._back_at = time.monotonic()
            logger.info("%r answers again after %.0f s", self.engine, self._back_at - self._away_since)
            self._away_since = None

    async def wait(self, since: float, error: JudgeUnavailable) -> bool:
        """Wait until the engine is ready; whether it is, and was away after *since* or has lost the call.

        *since* is a time of the monotonic clock, *error* how the engine failed. The wait counts against no
        evaluation's timeout.
        """
        known = self._answered or bool(getattr(self.engine, "has_answered", False))
        if not (known or isinstance(error, JudgeLoading)) or self.limit_s <= 0 or self._gave_up():
            return False
        with off_the_clock():
            ready = await self._probes.join(None, lambda: self._until_ready(error))
        return ready and (self._back_at >= since or error.lost)

    def _gave_up(self) -> bool:
        return self._away_since is not None and time.monotonic() - self._away_since > self.limit_s

    async def _until_ready(self, error: JudgeUnavailable) -> bool:
        """Whether the engine is ready, in the end. *error*: how it was found to be down."""
        pause, confirmed = _PAUSE_S, False
        while True:
            if await is_ready(self.engine):
                if confirmed or self._away_since is not None:
                    self.answered()
                    return True
                confirmed = True
                await asyncio.sleep(_CONFIRM_S)
                continue
            if self._away_since is None:
                self._away_since = time.monotonic()
                logger.warning(
                    "%r does not answer: calls wait up to %g s for it to be restarted (%s)",
                    self.engine,
                    self.limit_s,
                    error,
                )
            if self._gave_up():
                logger.error(
                    "%r has not answered for %g s: calls fail until it does", self.engine, self.limit_s
                )
                return False
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, _MAX_PAUSE_S)
