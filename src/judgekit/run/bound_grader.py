"""A grader as a run uses it: where its calls run, how long they may take, and how many at once."""

from __future__ import annotations

import copy
import inspect
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from judgekit.errors import ConfigError
from judgekit.execution.limits import Limit
from judgekit.execution.pickled import PickledGrader
from judgekit.execution.pool import ProcessPool
from judgekit.execution.threads import call_in_thread
from judgekit.graders.function import lifetimes
from judgekit.graders.protocol import is_group_grader
from judgekit.metrics.metrics import Timings
from judgekit.reward.tree import RewardTree

logger = logging.getLogger("judgekit")

Where = Literal["inline", "process", "thread", "async"]
_ORDER: dict[Where, int] = {"inline": 0, "process": 1, "thread": 2, "async": 3}
SLOW_S = 0.05
"""A synchronous grader that repeatedly blocks the event loop for longer is reported once."""


class BoundGrader:
    """A grader with its limits, its timeout, and where it runs."""

    def __init__(
        self, name: str, grader: Any, timeout_s: float, where: Where | None = None, place: int = 0
    ) -> None:
        self.name = name
        self.grader = grader
        self.compares = is_group_grader(grader)
        """Whether it grades the rollouts of a group together. Its calls get a list of rollouts."""
        self.grades_alone = bool(getattr(grader, "grades_alone", False))
        """Whether its calls may get a single rollout, although it compares."""
        self.breakable = bool(getattr(grader, "breakable", True))
        """Whether a failure of its can be the rollout's fault."""
        self.turnless = getattr(grader, "gives_turns", None) is False
        """Whether its grades are known to say nothing of turns."""
        self.call: Callable[..., Any] = grader.grade_group if self.compares else grader.grade
        if where is not None:
            self.where: Where = where
        elif inspect.iscoroutinefunction(self.call):
            self.where = "async"
        else:
            self.where = getattr(grader, "where", "inline")
        low, high = grader.score_range
        self.score_range = (float(low), float(high))
        self.timeout_s = self.own_timeout_s(timeout_s)
        self.limit: int | None = getattr(grader, "max_concurrency", None)
        self.outputs: tuple[str, ...] = tuple(getattr(grader, "outputs", ()) or ())
        self.keys = tuple(f"{name}.{part}" for part in self.outputs) or (name,)
        """Names of its grades: its own, or `name.part` where one call gives several."""
        self.pickled: PickledGrader | None = None
        if self.where == "process":
            if any(callable(getattr(one, "start", None)) for one in lifetimes(grader)):
                raise ConfigError(
                    f"grader {name!r} has a start(), which its worker process would not see: make what it needs in warm_up(), which "
                    "each worker calls, or leave where='process' out"
                )
            self.pickled = PickledGrader(name, _OfGroups(grader) if self.compares else grader)
        self.inline_limit: int = getattr(grader, "inline_limit", None) or 0
        self.pooled: BoundGrader | None = None
        """The same rule in a worker process, for rollouts larger than its `inline_limit`."""
        if self.inline and self.inline_limit:
            with suppress(ConfigError):  # it cannot be sent to a worker
                self.pooled = BoundGrader(name, grader, timeout_s, "process")
        self.judges = judges_of(grader)
        """The judges and reward models that it asks, as far as they are known."""
        self.timings: list[Timings] = []
        """Of each of its grades; see `Metrics.timings`."""
        self.place = place
        """Its place in the user's order."""
        self.queue = 0
        """Index of the queue in which its calls wait; see `assign_queues`."""
        self.unstoppable = False
        """Whether it once ignored a cancellation, which was logged then."""
        self._evaluated = self._slow = 0

    @property
    def inline(self) -> bool:
        """Whether it grades a rollout on the event loop, at once."""
        return self.where == "inline" and not self.compares

    @property
    def follows(self) -> bool:
        """Whether its judges say how many calls they are sent at once."""
        return bool(self.judges) and all(hasattr(judge, "places") for judge in self.judges)

    @property
    def rank(self) -> int:
        """Its place in the order in which a rollout's graders are asked: rules before judges."""
        return len(_ORDER) if self.compares else _ORDER[self.where]

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

    def too_big(self, size: Callable[[], int]) -> bool:
        """Whether a rollout of that many characters is too large to be graded on the event loop."""
        return self.pooled is not None and size() > self.inline_limit

    def begin(self, subject: Any, pool: ProcessPool) -> Awaitable[Any]:
        """Return an awaitable of the grader's answer. *subject*: a rollout, or a group's list of them."""
        if self.where == "async":
            return self.call(subject)  # type: ignore[no-any-return]
        if self.where == "process":
            return pool.grade(self.pickled, subject, timeout_s=self.timeout_s)
        return self._called(subject)

    async def _called(self, subject: Any) -> Any:
        value = (
            await call_in_thread(self.call, subject) if self.where == "thread" else self.call_here(subject)
        )
        return await value if hasattr(value, "__await__") else value

    def call_here(self, subject: Any) -> Any:
        """Call the grader on the event loop. One that repeatedly holds it up is reported once."""
        start = time.perf_counter()
        value = self.call(subject)
        self._evaluated += 1
        seconds = time.perf_counter() - start
        if seconds > SLOW_S and self._is_slow():
            logger.warning(
                'grader %r held the event loop for %.0f ms, and everything else with it: give it where="thread" if '
                'it waits, where="process" if it computes',
                self.name,
                1000 * seconds,
            )
        return value

    def _is_slow(self) -> bool:
        """Count a slow evaluation; True, once, from the second on if at least 1 % are slow.

        A single one may be the fault of the machine or of Python's garbage collector.
        """
        self._slow += 1
        if self._slow < 2 or 100 * self._slow < self._evaluated:
            return False
        self._slow = -(1 << 62)  # reported
        return True


class Deciders(NamedTuple):
    """On which graders, and numbers of the group, it depends whom a group grader compares, or whom such a number counts."""

    names: frozenset[str]
    yielding: frozenset[str] = frozenset()
    """Those of them that wait while it waits, too: they depend on it, and come later in the user's order."""


def deciders(graders: Sequence[BoundGrader], tree: RewardTree) -> dict[str, Deciders]:
    """Return the deciders of each group grader, by its name, and of the group's numbers, by their keys.

    *graders*: in the user's order.
    """
    by_key = {key: grader for grader in graders for key in grader.keys}

    def named(keys: Iterable[str]) -> frozenset[str]:
        return frozenset(by_key[key].name if key in by_key else key for key in keys)

    found = {key: Deciders(named(names)) for key, names in tree.function_deciders.items()}
    for at, grader in enumerate(graders):
        if grader.compares:
            names = named(name for key in grader.keys for name in tree.deciders[key]) - {grader.name}
            later = {
                g.name
                for g in graders[at + 1 :]
                if any(tree.deciders[key] & {*grader.keys} for key in g.keys)
            }
            waiting = later | {grader.name}  # a number that names one of them is decided no sooner than it
            later |= {key for key, names in tree.function_deciders.items() if named(names) & waiting}
            found[grader.name] = Deciders(names, frozenset(later))
    return found


class _OfGroups:
    """A group grader as the worker processes call it: it grades a list of rollouts."""

    def __init__(self, grader: Any) -> None:
        self.grade = grader.grade_group
        if callable(warm_up := getattr(grader, "warm_up", None)):
            self.warm_up = warm_up


def judges_of(grader: Any) -> tuple[Any, ...]:
    """Return the judges and reward models that a grader asks: those of a panel's members and of routes, too."""
    members = getattr(grader, "members", None)
    found: dict[int, Any] = {}
    for one in members.values() if isinstance(members, Mapping) else [grader]:
        judge = getattr(one, "judge", None) or getattr(one, "model", None)
        routes: Any = getattr(judge, "routes", None)
        asked = (
            [*routes.values(), getattr(judge, "default", None)] if isinstance(routes, Mapping) else [judge]
        )
        found.update((id(each), each) for each in asked if each is not None)
    return tuple(found.values())


class QueueLimit(NamedTuple):
    """How many evaluations of one queue may be in flight."""

    fixed: float
    judges: tuple[Any, ...] = ()
    """Those that are asked, if they are known."""
    follows: bool = False
    """Whether as many are in flight as these are sent calls at once: unless the run has a number for all its evaluations."""


OTHERS = 32
"""Evaluations in flight, with "auto", of all graders together that wait for what is not known."""


def under(limits: Sequence[QueueLimit], whole: Limit) -> tuple[QueueLimit, ...]:
    """Return the queues' limits in runs that have *whole* for all evaluations together."""
    others = OTHERS if whole == "auto" else math.inf
    return tuple(
        QueueLimit(
            limit.fixed if limit.judges else min(limit.fixed, others),
            limit.judges,
            bool(limit.judges) and whole == "auto",
        )
        for limit in limits
    )


def assign_queues(graders: Sequence[BoundGrader], pool_workers: int) -> list[QueueLimit]:
    """Give each grader its queue, and return the queues' limits.

    A grader with a limit has a queue of its own, under whatever names it is used, and so have the graders of a judge; process
    graders share the pool's, all others share the first.
    """
    limits = [QueueLimit(math.inf)]
    places: dict[Any, int] = {}
    for bound in [*graders, *(grader.pooled for grader in graders if grader.pooled)]:
        key: Any
        if bound.limit is not None:
            key, limit = id(bound.grader), QueueLimit(bound.limit)
        elif bound.where == "process":
            key, limit = "pool", QueueLimit(pool_workers)
        elif bound.follows:
            key, limit = tuple(map(id, bound.judges)), QueueLimit(math.inf, bound.judges)
        else:
            continue
        bound.queue = places.setdefault(key, len(limits))
        if bound.queue == len(limits):
            limits.append(limit)
    return limits
