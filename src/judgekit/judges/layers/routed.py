"""One judge out of several replicas of the same weights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from judgekit.errors import ConfigError, JudgeUnavailable
from judgekit.judges.base import Judge, JudgeReply, JudgeRequest


class Routed:
    """Sends each request to a replica: the one that has seen its prefix, unless that is busy or dead.

    Requests of one group share rubric, problem and reference, so they go to the same replica and hit its
    prefix cache (rendezvous hashing of the shared part). Where that replica has *spill* more calls in flight
    than the least loaded one, the least loaded one takes the request. A replica that raises JudgeUnavailable
    is left out for *probe_s* seconds, the request goes to another, and then one request probes it.
    """

    def __init__(self, replicas: Sequence[Judge], *, spill: int = 16, probe_s: float = 5.0) -> None:
        if not replicas:
            raise ConfigError("routed: give at least one replica")
        if spill < 1 or not probe_s > 0:
            raise ConfigError("routed: spill is a number of calls of at least 1, probe_s of seconds above 0")
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
                return replica  # its rest is over: this request is the probe
        alive = [r for r in fresh if not r.dead_until] or fresh
        home = max(alive, key=lambda r: blake2b(prefix, key=r.name.encode(), digest_size=8).digest())
        calmest = min(alive, key=lambda r: r.in_flight)
        return calmest if home.in_flight >= calmest.in_flight + self.spill else home

    async def start(self) -> None:
        """Start every replica that can be started."""
        for replica in self.replicas:
            if start := getattr(replica.judge, "start", None):
                await start()

    async def close(self) -> None:
        """Close every replica that can be closed."""
        for replica in self.replicas:
            if close := getattr(replica.judge, "close", None):
                await close()

    async def identity(self) -> str:
        """The weights' identity, as the first replica that answers tells it."""
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
        """Monotonic time at which it may be probed; 0 while it is well."""


def shared_prefix(request: JudgeRequest) -> bytes:
    """What a request shares with those of its group: everything before its last untrusted piece."""
    pieces = [piece for turn in request.turns for piece in turn.pieces]
    last = max((i for i, piece in enumerate(pieces) if not piece.trusted), default=len(pieces))
    return "".join(piece.text for piece in pieces[:last]).encode("utf-8", "surrogatepass")
