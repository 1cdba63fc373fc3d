"""Graders as a run uses them, and the lanes in which their jobs wait."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from judgekit.errors import ConfigError
from judgekit.execution.pool import is_picklable
from judgekit.graders.protocol import is_group_grader
from judgekit.run.workers import Lane

if TYPE_CHECKING:
    from judgekit.run.state import Item

Mode = Literal["inline", "process", "thread", "async", "group"]
RANK: dict[Mode, int] = {"inline": 0, "process": 1, "thread": 2, "async": 3, "group": 4}
"""Order in which a rollout's graders are asked: rules before judges."""


class GraderSlot:
    """A grader as a runner uses it."""

    __slots__ = (
        "call",
        "grader",
        "inline_limit",
        "keys",
        "limit",
        "mode",
        "name",
        "outputs",
        "pooled",
        "score_range",
        "timeout_s",
    )

    def __init__(self, name: str, grader: Any, timeout_s: float, mode: Mode | None = None) -> None:
        self.name = name
        self.grader = grader
        if mode is not None:
            self.mode: Mode = mode
        elif is_group_grader(grader):
            self.mode = "group"
        elif inspect.iscoroutinefunction(grader.grade):
            self.mode = "async"
        else:
            self.mode = getattr(grader, "where", "inline")
        self.call: Callable[..., Any] = grader.grade_group if self.mode == "group" else grader.grade
        low, high = grader.score_range
        self.score_range = (float(low), float(high))
        self.timeout_s = float(getattr(grader, "timeout_s", None) or timeout_s)
        self.limit: int | None = getattr(grader, "max_concurrency", None)
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"grader {name!r}: max_concurrency is at least 1, not {self.limit}")
        self.outputs: tuple[str, ...] = tuple(getattr(grader, "outputs", ()) or ())
        self.keys = tuple(f"{name}.{part}" for part in self.outputs) or (name,)
        """Names of its grades: its own, or `name.part` where one call gives several."""
        self.pooled: GraderSlot | None = None
        """The same rule in a worker process, for rollouts larger than its `inline_limit`."""
        self.inline_limit: int = getattr(grader, "inline_limit", None) or 0
        if self.mode == "inline" and self.inline_limit and is_picklable(grader):
            self.pooled = GraderSlot(name, grader, timeout_s, "process")

    def too_big(self, item: Item) -> bool:
        """Whether this rollout would keep the event loop from its work for too long."""
        return self.pooled is not None and item.size() > self.inline_limit


def lanes_of(
    slots: Sequence[GraderSlot], pool_workers: Callable[[], int]
) -> tuple[list[Lane], dict[GraderSlot, Lane]]:
    """The lanes of a run, and each grader's: its own where it has a limit, the pool's, or the common one."""
    common = Lane(math.inf)
    pool: Lane | None = None
    lanes: list[Lane] = []
    of: dict[GraderSlot, Lane] = {}
    for slot in [*slots, *(slot.pooled for slot in slots if slot.pooled is not None)]:
        lane = common
        if slot.limit is not None:
            lane = Lane(slot.limit)
            lanes.append(lane)
        elif slot.mode == "process":
            if pool is None:
                pool = Lane(pool_workers())
                lanes.append(pool)
            lane = pool
        of[slot] = lane
    return [*lanes, common], of
