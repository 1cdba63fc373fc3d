"""Lets a vLLM server sleep between grading phases."""

from __future__ import annotations

import asyncio

from judgekit.errors import ConfigError, JudgeLoading, JudgeRejected, JudgeUnavailable
from judgekit.judges.engines.http import Server

_DRAIN_S = 0.01
"""Pause between two looks at whether the running requests are done."""


class ServerSleep:
    """Whether a judge's server sleeps; a context manager around each request to it, which raises JudgeLoading while it does.

    The server needs `--enable-sleep-mode` and VLLM_SERVER_DEV_MODE=1, and no other clients.
    """

    def __init__(self, server: Server, able: bool) -> None:
        self.able = able
        self.asleep = False
        self._turned = True
        """Whether the server has confirmed its last turn: one whose answer was lost may have come through."""
        self._server = server
        self._at_work = 0
        self._callers = 0
        """Callers of `sleep` who wait for it."""

    def __enter__(self) -> None:
        if self.asleep:
            raise JudgeLoading(
                f"{self._server} sleeps: wake it up for a grading phase with judgekit.judges.awake"
            )
        self._at_work += 1

    def __exit__(self, *_: object) -> None:
        self._at_work -= 1

    async def sleep(self) -> None:
        """Let the server sleep once the requests are done. Raises ConfigError where it cannot."""
        if not self.able:
            raise ConfigError(f"the judge at {self._server} cannot sleep: make it with sleep=True")
        if self.asleep and self._turned:
            return
        self.asleep, self._turned = True, False
        self._callers += 1
        try:
            await self._fall_asleep()
        finally:
            self._callers -= 1

    async def _fall_asleep(self) -> None:
        try:
            while self._at_work:
                await asyncio.sleep(_DRAIN_S)
        except BaseException:
            if self._callers == 1:  # all who waited for it have given up
                self.asleep, self._turned = False, True
            raise
        if not self.asleep:  # it was woken meanwhile
            return
        try:  # a call that is lost may have come through: the server is taken to sleep
            await self._server.call("/sleep?level=1&mode=wait")
        except JudgeRejected as error:
            self.asleep, self._turned = False, True
            raise ConfigError(
                f"{self._server} cannot sleep ({error}): start vLLM with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1"
            ) from None
        self._turned = True

    async def wake_up(self) -> None:
        """Let the server take its GPU's memory again. Raises JudgeUnavailable if it sleeps on.

        It may sleep since before this judge was made, by a trainer that ended.
        """
        if self.asleep or (self.able and await self._server.sleeping()):
            self._turned = False
            await self._server.call("/wake_up")
            if await self._server.sleeping():
                raise JudgeUnavailable(f"{self._server} sleeps on")
            self.asleep, self._turned = False, True
