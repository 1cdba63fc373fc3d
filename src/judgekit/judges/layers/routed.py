"""Routes requests to replicas of one model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from judgekit.errors import ConfigError, JudgeUnavailable
from judgekit.judges.base import Judge, JudgeReply, JudgeRequest


class Routed:
    """Sends each request to the replica that has cached its prefix.

    Requests of one group share rubric, problem and reference, so they go to the same replica and hit its prefix
    cache (rendezvous hashing of the shared part). If that replica has *spill* more calls in flight than the least
    loaded one, the least loaded one gets the request. If a replica raises JudgeUnavailable, the request goes to
    another; the failed one is skipped for *probe_s* seconds and then probed with one request.
    """

    def __init__(self, replicas: Sequence[Judge], *, spill: int = 16, probe_s: float = 5.0) -> None:
        if not replicas:
            raise ConfigError("routed: give at least one replica")
        if spill < 1 or not probe_s > 0:
            raise ConfigError(
                "routed: spill is a number of calls, at least 1, and probe_s a number of seconds above 0"
            )
        self.replicas = [_Replica(judge, str(number)) for number, judge in enumerate(replicas)]
        self.spill = spill
        self.probe_s = probe_s

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        prefix = shared_prefix(request)
        tried: set[str] = set()
        while True:
            replica = self._choose(prefix, tried)
            tried.add(replica.name)
            replica.in_flight += 1
            try:
                reply: JudgeReply = await replica.judge.complete(request)
            except JudgeUnavailable as error:
                replica.dead_until = time.monotonic() + max(self.probe_s, error.retry_after or 0.0)
                if len(tried) == len(self.replicas):
                    raise
                continue
            finally:
                replica.in_flight -= 1
            replica.dead_until = 0.0
            return reply

    def _choose(self, prefix: bytes, tried: set[str]) -> _Replica:
        now = time.monotonic()
        fresh = [r for r in self.replicas if r.name not in tried]
        for replica in fresh:
            if 0 < replica.dead_until <= now and not replica.in_flight:
                return replica  # this request is the probe
        alive = [r for r in fresh if not r.dead_until] or fresh
        home = max(alive, key=lambda r: blake2b(prefix, key=r.name.encode(), digest_size=8).digest())
        calmest = min(alive, key=lambda r: r.in_flight)
        return calmest if home.in_flight >= calmest.in_flight + self.spill else home

    async def start(self) -> None:
        """Start all replicas."""
        for replica in self.replicas:
            if start := getattr(replica.judge, "start", None):
                await start()

    async def close(self) -> None:
        """Close all replicas."""
        for replica in self.replicas:
            if close := getattr(replica.judge, "close", None):
                await close()

    async def check_labels(self, choices: tuple[str, ...]) -> None:
        """Let a replica that answers check that each label is one token. Raises ConfigError."""
        gone: JudgeUnavailable | None = None
        for replica in self.replicas:
            if check := getattr(replica.judge, "check_labels", None):
                try:
                    await check(choices)
                except JudgeUnavailable as error:
                    gone = error
                else:
                    return
        if gone is not None:
            raise gone

    async def identity(self) -> str:
        """Return the weights' identity, from the first replica that has one."""
        for replica in self.replicas:
            if identity := getattr(replica.judge, "identity", None):
                return str(await identity())
        return repr(self)

    def __repr__(self) -> str:
        return f"Routed({', '.join(repr(r.judge) for r in self.replicas)})"


class _Replica:
    __slots__ = ("dead_until", "in_flight", "judge", "name")

    def __init__(self, judge: Judge, name: str) -> None:
        self.judge: Any = judge
        self.name = name
        self.in_flight = 0
        self.dead_until = 0.0
        """Monotonic time of its next probe; 0 while it works."""


def shared_prefix(request: JudgeRequest) -> bytes:
    """Return what a request shares with its group: everything before its last untrusted piece."""
    pieces = [piece for turn in request.turns for piece in turn.pieces]
    last = max((i for i, piece in enumerate(pieces) if not piece.trusted), default=len(pieces))
    return "".join(piece.text for piece in pieces[:last]).encode("utf-8", "surrogatepass")
