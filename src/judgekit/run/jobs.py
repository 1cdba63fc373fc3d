"""Bound graders, and the queues in which their jobs wait."""

from __future__ import annotations

import copy
import inspect
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct, field

from judgekit.errors import ConfigError
from judgekit.execution.pickled import PickledGrader
from judgekit.execution.stopwatch import Stopwatch
from judgekit.graders.protocol import is_group_grader
from judgekit.run.state import RolloutState

Mode = Literal["inline", "process", "thread", "async", "group"]
RANK: dict[Mode, int] = {"inline": 0, "process": 1, "thread": 2, "async": 3, "group": 4}
"""Order in which a rollout's graders are asked: rules before judges."""
HOLD_S = 0.25
"""Seconds between two looks at the deadline of an evaluation whose judge is restarting."""
SLOW_S = 0.05
"""A synchronous grader that repeatedly blocks the event loop for longer is reported once."""


class BoundGrader:
    """A grader with its execution mode, limits and timeout."""

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
        self.timeout_s = self.own_timeout_s(timeout_s)
        self.limit: int | None = getattr(grader, "max_concurrency", None)
        self.outputs: tuple[str, ...] = tuple(getattr(grader, "outputs", ()) or ())
        self.keys = tuple(f"{name}.{part}" for part in self.outputs) or (name,)
        """Names of its grades: its own, or `name.part` where one call gives several."""
        self.pickled = PickledGrader(name, grader) if self.mode == "process" else None
        self.inline_limit: int = getattr(grader, "inline_limit", None) or 0
        self.pooled: BoundGrader | None = None
        """The same rule in a worker process, for rollouts larger than its `inline_limit`."""
        if self.mode == "inline" and self.inline_limit:
            with suppress(ConfigError):  # it cannot be sent to a worker
                self.pooled = BoundGrader(name, grader, timeout_s, "process")
        self.timings: list[tuple[deque[float], deque[float]]] = []
        """Latest durations and queue waits of each of its grades; see `Metrics.timings`."""
        self.queue = 0
        """Index of the queue in which its jobs wait; see `assign_queues`."""
        self.unstoppable = False
        """Whether it once ignored a cancellation, which was logged then."""
        self.evaluated = 0
        """Inline evaluations so far."""
        self._slow = 0

    def is_slow(self) -> bool:
        """Count a slow evaluation; True, once, from the second on if at least 1 % are slow.

        A single one may be the fault of the machine or of Python's garbage collector.
        """
        self._slow += 1
        if self._slow < 2 or 100 * self._slow < self.evaluated:
            return False
        self._slow = -(1 << 62)  # reported
        return True

    def own_timeout_s(self, default_s: float) -> float:
        """Return the timeout that the grader asks for; *default_s* if it asks for none."""
        return float(getattr(self.grader, "timeout_s", None) or default_s)

    def copy(self, **changes: Any) -> BoundGrader:
        """Return a copy with other attributes, which its twin in a worker process gets as well."""
        made = copy.copy(self)
        made.__dict__.update(changes)
        if self.pooled is not None:
            made.pooled = self.pooled.copy(**changes)
        return made

    def too_big(self, state: RolloutState) -> bool:
        """Whether the rollout is too large to be graded on the event loop."""
        return self.pooled is not None and state.size() > self.inline_limit


class Queue(Struct, gc=False, eq=False):
    """Jobs that share a limit."""

    # gc=False: hosts start thousands of short runs at once, and tracking their records would cost more than the
    # grading. A run breaks its own reference cycles when it ends.

    limit: float
    active: int = 0
    jobs: deque[Job] = field(default_factory=deque)


class Job(Struct, gc=False, eq=False):
    """One evaluation: a grader and the rollouts that it grades, one or a group's."""

    grader: BoundGrader
    states: Sequence[RolloutState]
    queue: Queue
    awaitable: Awaitable[Any] | None = None
    """What a synchronous grader returned, if that must be awaited."""
    attempt: int = 1
    queued: float = field(default_factory=time.perf_counter)
    started: float | None = None
    """Loop time at which its first attempt began."""
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    """Measures the time that does not count, over all attempts."""

    def deadline(self, now: float) -> float:
        """Return the loop time at which it times out, as far as that is known *now*."""
        assert self.started is not None
        due = self.started + self.grader.timeout_s + self.stopwatch.held_s()
        return max(due, now + HOLD_S) if self.stopwatch.holding else due


def assign_queues(graders: Sequence[BoundGrader], pool_workers: int) -> list[float]:
    """Give each grader its queue, and return the queues' limits.

    A grader with a limit has a queue of its own, process graders share the pool's, all others share the first.
    """
    limits = [math.inf]
    pool: int | None = None
    for bound in [*graders, *(grader.pooled for grader in graders if grader.pooled)]:
        if bound.limit is not None:
            bound.queue = len(limits)
            limits.append(bound.limit)
        elif bound.mode == "process":
            if pool is None:
                pool = len(limits)
                limits.append(pool_workers)
            bound.queue = pool
    return limits
