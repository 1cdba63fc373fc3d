"""Graders that go wrong in every way and in every place, importable by pool workers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from judgekit import Graded, GradingRunner, JudgeUnavailable, RewardResult, Rollout, RolloutError
from judgekit.trainers import collector

Collector: Any = getattr(collector, "GroupCollector", None) or vars(collector)["Rendezvous"]

PLACES = ("inline", "thread", "process", "async", "group", "collected", "collected group")
BAD = "5"
"""Id of the rollout that the fault strikes; its group is 4..7."""


class PanicException(BaseException):
    """What a panic in a Rust extension (tokenizers, polars, …) becomes."""


class Speechless(Exception):
    """An error that cannot be printed."""

    def __str__(self) -> str:
        raise IndexError("no such argument")

    __repr__ = __str__


class ApiError(Exception):
    """An API client's error, with a `usage` that is not ours."""

    usage = {"total_tokens": 7}  # noqa: RUF012


class OddFlags(Exception):
    """Attributes that the runner may look at, and that raise when it does."""

    @property
    def retryable(self) -> bool:
        raise RuntimeError("ask somebody else")

    usage = retryable


class Scalar:
    """Like a numpy or torch scalar."""

    ndim = 0

    def __init__(self, value: float) -> None:
        self.value = value

    def item(self) -> float:
        return self.value

    def __float__(self) -> float:
        return self.value


def _recurse(depth: int = 0) -> int:
    return _recurse(depth + 1) + 1


def strike(fault: str) -> Any:
    """Raise or return what a broken grader raises or returns."""
    match fault:
        case "down":
            raise JudgeUnavailable("overloaded")
        case "panic":
            raise PanicException("called `Option::unwrap()` on a `None` value")
        case "unprintable error":
            raise Speechless("x")
        case "error with odd usage":
            raise ApiError("429")
        case "error with odd flags":
            raise OddFlags
        case "bytes of a proxy":
            return float(b"\xff<html>502 bad gateway</html>".decode())
        case "host name":
            return "judge..internal".encode("idna")
        case "no memory":
            raise MemoryError
        case "recursion":
            return _recurse()
        case "cancelled":
            raise asyncio.CancelledError
        case "interrupt":
            raise KeyboardInterrupt
        case "exit":
            raise SystemExit(3)
        case "stop":
            raise StopIteration
        case "rollout":
            raise RolloutError("a length bomb")
        case "huge":
            return 10**400
        case "graded huge":
            return Graded(10**400)
        case "graded without reason":
            return Graded(1.0, None)  # type: ignore[arg-type]
        case "graded text":
            return Graded("0.5")  # type: ignore[arg-type]
        case "wrong usage":
            return Graded(0.5, usage={"prompt_tokens": 3})  # type: ignore[arg-type]
        case "wrong metadata":
            return Graded(0.5, metadata=7)  # type: ignore[arg-type]
        case "complex":
            return 0.5j
        case "list":
            return [0.5]
        case "object":
            return object
    raise AssertionError(fault)


def true_score(rollout: Rollout) -> float:
    return int(rollout.id) % 4 / 4


class Hostile:
    """Gives every rollout its true score but one, which it strikes with *fault*."""

    name, version, score_range = "judge", "1", (0.0, 1.0)

    def __init__(self, fault: str, where: str = "inline") -> None:
        self.fault = fault
        self.where = where

    def warm_up(self) -> None:
        """Nothing to load: from here on, memory and recursion are the rollout's."""

    def grade(self, rollout: Rollout, /) -> Any:
        return strike(self.fault) if rollout.id == BAD else true_score(rollout)


class HostileAsync(Hostile):
    """The same on the event loop."""

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        del self.where

    async def grade(self, rollout: Rollout, /) -> Any:  # type: ignore[override]
        await asyncio.sleep(0)
        return strike(self.fault) if rollout.id == BAD else true_score(rollout)


class HostileGroup:
    """The same for whole groups: what raises costs the group, what is returned costs its member."""

    name, version, score_range = "judge", "1", (0.0, 1.0)

    def __init__(self, fault: str) -> None:
        self.fault = fault

    async def grade_group(self, rollouts: Sequence[Rollout], /) -> list[Any]:
        await asyncio.sleep(0)
        return [strike(self.fault) if r.id == BAD else true_score(r) for r in rollouts]


def hostile(fault: str, place: str) -> Any:
    """The grader of a place."""
    if place in ("inline", "thread", "process"):
        return Hostile(fault, place)
    return HostileGroup(fault) if place.endswith("group") else HostileAsync(fault)


def twelve() -> list[Rollout]:
    """Three groups of four."""
    return [Rollout(id=str(i), group=i // 4, prompt=f"p{i // 4}", response=f"r{i}") for i in range(12)]


async def grade_in(place: str, runner: GradingRunner, rollouts: list[Rollout]) -> list[RewardResult]:
    """Grade them as a batch, or in the collected places as members that arrive one by one."""
    if not place.startswith("collected"):
        return await runner.run(rollouts)
    meeting = Collector(runner)
    try:
        async with asyncio.TaskGroup() as tasks:
            members = [tasks.create_task(meeting.arrive(r.group, r, size=4)) for r in rollouts]
    finally:
        await meeting.close()
    return [member.result() for member in members]
