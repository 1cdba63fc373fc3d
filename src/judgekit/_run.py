"""One call of a runner: from rollouts to jobs, from grades to results.

The driver expands rollouts in a fair order: rules run in place, everything else becomes a job for the
workers. When a rollout has the grades that the reward tree asks for it is evaluated, and when its group is
complete the group's transform and the policy for missing rewards are applied. All state is touched by one
event loop only and belongs to this run.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import secrets
import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, Literal

from judgekit._context import CURRENT_RUN
from judgekit._threads import Threads
from judgekit._workers import Job, Lane, Workers
from judgekit.errors import ConfigError, FailureRateError, MissingRewardError
from judgekit.grader import as_grade, failure, is_group_grader
from judgekit.grouping import group_id
from judgekit.metrics import RunMetrics
from judgekit.pool import is_picklable
from judgekit.reward import Evaluation, Weighted
from judgekit.transforms import NEUTRAL, TRANSFORMS, gdpo, is_flat, mean
from judgekit.types import (
    Abstained,
    Failed,
    Grade,
    RewardResult,
    Rollout,
    Skipped,
    Status,
    Usage,
    text_size,
)

if TYPE_CHECKING:
    from judgekit.ledger import Entry
    from judgekit.runner import GradingRunner

logger = logging.getLogger("judgekit")

_SLICE_S = 0.005
"""How long rules may hold the event loop before it gets a turn."""
_WINDOW = 8
"""Groups that are expanded in turn, so that a huge one does not hold up the others."""

Mode = Literal["inline", "process", "thread", "async", "group"]
_RANK: dict[Mode, int] = {"inline": 0, "process": 1, "thread": 2, "async": 3, "group": 4}
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


class _Group:
    __slots__ = ("asked", "expanded", "finished", "id", "items", "size")

    def __init__(self, id_: Hashable, size: int) -> None:
        self.id = id_
        self.size = size
        self.expanded = 0
        self.finished = 0
        self.items: list[Item] = []
        self.asked: dict[str, list[Item]] = {}
        """Members that want a group grader that has not been started yet."""


class Item:
    """A rollout on its way."""

    __slots__ = (
        "blocked",
        "done",
        "ended",
        "ev",
        "grades",
        "group",
        "index",
        "pending",
        "rollout",
        "started",
        "weight",
    )

    def __init__(self, index: int, rollout: Rollout, group: _Group) -> None:
        self.index = index
        self.rollout = rollout
        self.group = group
        self.grades: dict[str, Grade] = {}
        self.pending: set[str] = set()
        """Graders that were asked and have not answered."""
        self.blocked = 0
        """Of these, group graders that wait for the other members."""
        self.done = False
        self.ev: Evaluation = _NOT_YET
        self.started = time.perf_counter()
        self.ended = 0.0
        self.weight: int | None = None

    def size(self) -> int:
        """Characters of the rollout: its response and its messages."""
        if self.weight is None:
            self.weight = text_size(self.rollout.response, self.rollout.messages)
        return self.weight


_NOT_YET = Evaluation({}, {})


class Arrivals:
    """The members of one group, whose grading begins as each of them comes."""

    def __init__(self, size: int) -> None:
        self.expected = size
        """Members that have come or are still to come."""
        self.came: deque[Rollout] = deque()
        self.news: Callable[[], None] = lambda: None
        """Wakes the run that takes them in; to be called after every change."""


class Run:
    """One batch of rollouts through one runner."""

    def __init__(
        self,
        runner: GradingRunner,
        slots: Sequence[GraderSlot],
        rollouts: list[Rollout],
        groups: list[list[int]],
        tags: Mapping[str, Any],
    ) -> None:
        self.runner = runner
        self.tree = runner.reward
        self.slots = sorted(slots, key=lambda slot: _RANK[slot.mode])
        self.by_key = {key: slot for slot in slots for key in slot.keys}
        self.by_name = {slot.name: slot for slot in slots}
        self.rollouts = rollouts
        self.groups = groups
        self.tags = tags
        self.id = secrets.token_hex(6)
        self.metrics = RunMetrics(self.by_key, self.tree.bounds())
        self.lanes, self.lane_of = _lanes(self.slots, lambda: runner.pool.workers)
        self.threads: Threads | None = None

        self.relative = runner.transform != "none"
        """Whether every result waits for its group."""
        self.fills = self.relative or runner.on_missing == "neutral"
        """Whether a result without a reward waits for its group."""
        self.emitted = 0
        self.emit: Callable[[RewardResult], None] = lambda result: None
        self.entries: list[Entry] = []
        self.bar: Any = None

        self.deferred: list[Item] = []
        """Members of groups without one valid reward: their neutral fill is the batch's mean, known at its end."""
        self.live: set[_Group] = set()
        """Groups with members that wait for a group grader to be started."""
        self.expired: Failed | None = None
        """Set at the batch's deadline: the grade of all that is not graded."""
        self.crash: BaseException | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.deadline: asyncio.TimerHandle | None = None

    # ---- what the runner calls

    async def collect(self) -> list[RewardResult]:
        """All results, in input order."""
        results: list[Any] = [None] * len(self.rollouts)

        def keep(result: RewardResult) -> None:
            results[result.index] = result

        self.emit = keep
        await self._drive(self._feed())
        return results

    async def follow(self, arrivals: Arrivals, emit: Callable[[RewardResult], None]) -> None:
        """Grade the members of one group as they come; *emit* gets each result as soon as it is final."""
        self.emit = emit
        arrivals.news = self.wake
        await self._drive(self._feed_arrivals(arrivals))

    async def stream(self) -> AsyncGenerator[RewardResult, None]:
        """Each result as soon as it is final."""
        ready: deque[RewardResult] = deque()
        news = asyncio.Event()

        def keep(result: RewardResult) -> None:
            ready.append(result)
            news.set()

        self.emit = keep
        driver = asyncio.create_task(self._drive(self._feed()))
        driver.add_done_callback(lambda _: news.set())
        try:
            while not driver.done() or ready:
                while ready:
                    yield ready.popleft()
                if not driver.done():
                    await news.wait()
                    news.clear()
            await driver
        finally:
            if not driver.done():
                driver.cancel()
                await asyncio.wait([driver])
            if not driver.cancelled():
                driver.exception()  # seen: it was raised above, or the caller has left

    # ---- the driver

    async def _drive(self, feed: Coroutine[Any, Any, None]) -> None:
        """Grade what *feed* brings, to the last result."""
        runner = self.runner
        context = CURRENT_RUN.set(self.id)
        self.workers = Workers(
            self,
            self.lanes,
            max_concurrency=runner.max_concurrency,
            retry=runner.retry,
            budget=runner.budget,
            gates=runner.gates,
        )
        try:
            if runner.ledger is not None:
                runner.ledger.begin(runner.spec())
            if runner.progress:
                from tqdm import tqdm

                self.bar = tqdm(total=len(self.rollouts), unit="rollout", desc="grading", smoothing=0.05)
            await feed
            while self.emitted + len(self.deferred) < len(self.rollouts) and self.crash is None:
                await self._news()
            if self.crash is not None:
                raise self.crash
            if self.deferred:
                fill = self._typical_reward()
                for item in self.deferred:
                    self._emit_missing(item, fill)
        finally:
            feed.close()  # where it was not even begun
            CURRENT_RUN.reset(context)
            if self.deadline is not None:
                self.deadline.cancel()
            try:
                await self.workers.close()
            finally:
                self._close()
        self._check_failure_rate()

    async def _feed(self) -> None:
        """Bring in all rollouts, no faster than they are graded."""
        self._start_deadline()
        backlog = max(4 * self.runner.max_concurrency, 64)
        turn_ends = time.perf_counter() + _SLICE_S
        for item in self._in_fair_order():
            self._advance(item)
            if self.workers.queued:
                self.workers.start()
            while self.workers.queued >= backlog and self.crash is None:
                await self._news()
                turn_ends = time.perf_counter() + _SLICE_S
            if self.crash is not None:
                raise self.crash
            if time.perf_counter() > turn_ends:
                await asyncio.sleep(0)
                turn_ends = time.perf_counter() + _SLICE_S

    async def _feed_arrivals(self, arrivals: Arrivals) -> None:
        """Bring in the members of one group as they come; the deadline begins with the last of them."""
        group: _Group | None = None
        while True:
            while arrivals.came:
                rollout = arrivals.came.popleft()
                if group is None:
                    group = _Group(group_id(rollout), arrivals.expected)
                item = Item(len(self.rollouts), rollout, group)
                self.rollouts.append(rollout)
                group.items.append(item)
                group.expanded += 1
                group.size = max(arrivals.expected, group.expanded)
                self._advance(item)
                self.workers.start()
            if self.crash is not None:
                raise self.crash
            if len(self.rollouts) >= arrivals.expected:
                break
            await self._news()
        if group is None:
            return
        self._start_deadline()
        if group.size != group.expanded:  # some left: what waited for them need not any longer
            group.size = group.expanded
            if group.finished == group.size:
                self._settle(group)
                group.items = []
            else:
                self._start_group_graders(group)

    def _start_deadline(self) -> None:
        if self.runner.deadline_s is not None:
            loop = asyncio.get_running_loop()
            self.deadline = loop.call_later(self.runner.deadline_s, self._expire)

    def _in_fair_order(self) -> Iterator[Item]:
        """Rollouts, a few groups in turn: early groups end early, and a huge one does not hold up the rest."""
        waiting = iter(self.groups)
        window: deque[tuple[_Group, Iterator[int]]] = deque()
        while True:
            while len(window) < _WINDOW and (members := next(waiting, None)) is not None:
                window.append((_Group(group_id(self.rollouts[members[0]]), len(members)), iter(members)))
            if not window:
                return
            group, left = window.popleft()
            index = next(left, None)
            if index is None:
                continue
            window.append((group, left))
            item = Item(index, self.rollouts[index], group)
            group.items.append(item)
            group.expanded += 1
            yield item

    async def _news(self) -> None:
        self.waiter = asyncio.get_running_loop().create_future()
        try:
            await self.waiter
        finally:
            self.waiter = None

    def _close(self) -> None:
        if self.threads is not None:
            self.threads.close()
        if self.bar is not None:
            self.bar.close()
        if self.runner.ledger is not None:
            if self.entries:
                self.runner.ledger.write(self.entries)
                self.entries = []
            self.runner.ledger.flush()
        self.runner.metrics.add_run(self.metrics)
        self.metrics.warn()

    def _check_failure_rate(self) -> None:
        allowed = self.runner.max_failure_rate
        if allowed is None:
            return
        shown = ", ".join(
            f"{name} {100 * rate:.1f} % ({', '.join(self.metrics.graders[name].errors)})"
            for name, rate in self.metrics.failure_rates().items()
            if rate > allowed
        )
        if shown:
            raise FailureRateError(f"more grades failed than max_failure_rate={allowed:g} allows: {shown}")

    def _expire(self) -> None:
        """The batch's deadline: what is graded counts, the rest has failed."""
        self.expired = Failed(
            "DeadlineExceeded", f"not graded within the batch's {self.runner.deadline_s:g} s"
        )
        self.workers.expire(self.expired)
        for group in list(self.live):
            asked, group.asked = group.asked, {}
            for name, members in asked.items():
                self._answer_group(self.by_name[name], members, [self.expired] * len(members), None)
        self.live.clear()
        self.wake()

    # ---- what the workers call

    async def perform(self, job: Job) -> Any:
        slot = job.slot
        rollout = job.items[0].rollout
        if job.awaitable is not None:
            awaitable, job.awaitable = job.awaitable, None
            return await awaitable
        if slot.mode == "async":
            return await slot.call(rollout)
        if slot.mode == "group":
            return await slot.call([item.rollout for item in job.items])
        if slot.mode == "process":
            return await self.runner.pool.grade(slot.grader, rollout, timeout_s=slot.timeout_s)
        if slot.mode == "thread":
            if self.threads is None:
                self.threads = Threads()
            value = await self.threads.call(slot.call, rollout)
        else:  # a rule whose awaitable failed and is tried again
            value = slot.call(rollout)
        return await value if hasattr(value, "__await__") else value

    def answer(self, job: Job, value: Any, seconds: float | None) -> None:
        if isinstance(value, ConfigError):  # every other rollout would meet it too
            self._fail(value)
            return
        if isinstance(value, BaseException):
            value = failure(value)
        try:
            values = _per_member(value, len(job.items)) if job.slot.mode == "group" else [value]
            for item in job.items:
                item.pending.discard(job.slot.name)
            self._keep_all(job.slot, job.items, values, seconds)
        except Exception as error:  # MissingRewardError, or a fault of ours: it ends the run
            self._fail(error)

    def taken(self, job: Job, waited_s: float) -> None:
        for key in job.slot.keys:
            self.metrics.graders[key].waits.append(waited_s)

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def _fail(self, error: BaseException) -> None:
        if self.crash is None:
            self.crash = error
        self.wake()

    # ---- from rollout to jobs

    def _advance(self, item: Item) -> None:
        """Ask the graders that the rollout needs next; finish it where it needs none."""
        tree = self.tree
        while True:
            if tree.lazy:
                wanted = {self.by_key[key] for key in tree.wanted(item.grades)}
                slots = [slot for slot in self.slots if slot in wanted and slot.name not in item.pending]
            else:
                slots = [] if item.grades else self.slots
            again = False
            for slot in slots:
                if self.expired is not None:
                    self._keep(item, slot, self.expired, None)
                    again = True
                elif slot.mode == "inline" and not slot.too_big(item):
                    again |= self._grade_inline(item, slot)
                elif again and tree.lazy:
                    break  # a rule may have decided that this one is not needed
                elif slot.mode == "group":
                    item.pending.add(slot.name)
                    item.blocked += 1
                    item.group.asked.setdefault(slot.name, []).append(item)
                    self.live.add(item.group)
                else:
                    self._enqueue(item, slot.pooled or slot)
            if not (again and tree.lazy):
                break
        if not item.pending:
            self._finish(item)
        if item.group.asked:
            self._start_group_graders(item.group)

    def _grade_inline(self, item: Item, slot: GraderSlot) -> bool:
        """Run a rule in place; False where it turned out to be awaitable and became a job."""
        start = time.perf_counter()
        try:
            value = slot.call(item.rollout)
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:
            value = failure(error)
        else:
            if hasattr(value, "__await__"):
                self._enqueue(item, slot, value)
                return False
        self._keep(item, slot, value, time.perf_counter() - start)
        return True

    def _enqueue(self, item: Item, slot: GraderSlot, awaitable: Awaitable[Any] | None = None) -> None:
        item.pending.add(slot.name)
        self.workers.add(Job(slot, [item], self.lane_of[slot], awaitable))

    def _start_group_graders(self, group: _Group) -> None:
        """Start the group graders that no member can still join."""
        if group.expanded < group.size:
            return
        for name in list(group.asked):
            members = group.asked.get(name)
            if members is None:
                continue
            asked = {id(item) for item in members}
            if any(not i.done and id(i) not in asked and len(i.pending) > i.blocked for i in group.items):
                continue  # a member that is still being graded may want it too
            del group.asked[name]
            slot = self.by_name[name]
            if len(members) == 1:
                why = (
                    "the group has one member"
                    if group.size == 1
                    else "one member of the group was to be graded"
                )
                self._answer_group(slot, members, [Abstained(why)], None)
            else:
                for item in members:
                    item.blocked -= 1
                self.workers.add(Job(slot, members, self.lane_of[slot]))
        if not group.asked:
            self.live.discard(group)
        self.workers.start()

    def _answer_group(
        self, slot: GraderSlot, members: list[Item], values: list[Any], seconds: float | None
    ) -> None:
        """Answer members whose group grader was not even started."""
        for item in members:
            item.blocked -= 1
            item.pending.discard(slot.name)
        try:
            self._keep_all(slot, members, values, seconds)
        except Exception as error:
            self._fail(error)

    # ---- from grades to results

    def _keep_all(
        self, slot: GraderSlot, items: list[Item], values: Sequence[Any], seconds: float | None
    ) -> None:
        for item, value in zip(items, values, strict=True):
            self._keep(item, slot, value, seconds)
        for item in items:
            if not item.done and (self.tree.lazy or not item.pending):
                self._advance(item)

    def _keep(self, item: Item, slot: GraderSlot, value: Any, seconds: float | None) -> None:
        """Keep a grader's answer as a grade, and count it."""
        if not slot.outputs:
            self._keep_one(item, slot.name, as_grade(value, slot.score_range), seconds)
            return
        for part, key in zip(slot.outputs, slot.keys, strict=True):
            if isinstance(value, Mapping):
                part_value = value[part] if part in value else Failed("KeyError", f"no score {part!r}")
            elif value is None or isinstance(value, Abstained | Failed):
                part_value = value
            else:
                names = ", ".join(slot.outputs)
                part_value = Failed("TypeError", f"expected scores for {names}, not {type(value).__name__}")
            self._keep_one(item, key, as_grade(part_value, slot.score_range), seconds)

    def _keep_one(self, item: Item, key: str, grade: Grade, seconds: float | None) -> None:
        item.grades[key] = grade
        metrics = self.metrics.graders[key]
        metrics.add(grade)
        if seconds is not None:
            metrics.seconds.append(seconds)

    def _finish(self, item: Item) -> None:
        """All grades are there: evaluate the tree, and hand the result on as soon as nothing else can change it."""
        grades = item.grades
        if len(grades) < len(self.by_key):
            for key in self.by_key:
                if key not in grades:
                    grades[key] = skipped = Skipped(self.tree.gate_of.get(key, ""))
                    self.metrics.graders[key].add(skipped)
        item.ev = ev = self.tree.evaluate(grades)
        item.ended = time.perf_counter()
        item.done = True
        group = item.group
        group.finished += 1
        if ev.value is None:
            if not self.fills:
                self._emit_missing(item, None)
        elif not self.relative:
            self._emit(item, ev.value, "scored")
        if group.finished == group.size:
            self._settle(group)
            group.items = []  # members and group refer to each other: do not leave them to the collector

    def _settle(self, group: _Group) -> None:
        """All members are graded: transform, fill, and emit those that waited."""
        valid = [item for item in group.items if item.ev.value is not None]
        raw = [item.ev.value for item in valid if item.ev.value is not None]
        lone = len(raw) < 2 and self.relative
        self.metrics.groups += 1
        self.metrics.flat_groups += len(raw) >= 2 and is_flat(raw)
        self.metrics.empty_groups += lone or not raw
        if not self.fills:
            return
        values = self._transformed(valid, raw)
        fill = NEUTRAL.get(self.runner.transform)
        if fill is None and len(valid) < group.size:
            if not values:
                self.deferred += group.items
                self.wake()
                return
            fill = mean(values)
        if self.relative:
            for item, value in zip(valid, values, strict=True):
                if not lone:
                    self._emit(item, value, "scored")
                elif self.runner.on_missing == "mask":  # one member has no rank and no deviation
                    self._emit(item, None, "masked")
                else:
                    self._emit(item, fill, "neutral")
        for item in group.items:
            if item.ev.value is None:
                self._emit_missing(item, fill)

    def _transformed(self, valid: list[Item], raw: list[float]) -> list[float]:
        if not raw:
            return []
        if self.runner.transform != "gdpo":
            return TRANSFORMS[self.runner.transform](raw)
        root = self.tree.root
        assert isinstance(root, Weighted)
        scale = 1.0 / sum(abs(t.weight) for t in root.terms) if root.normalize else 1.0
        weights = {t.label: t.weight * scale for t in root.terms if t.weight}
        return gdpo([item.ev.terms for item in valid], weights)

    def _typical_reward(self) -> float:
        """For a group without one valid reward: a number like the others', the same for all its members, so
        that group-relative advantages are zero and batch statistics stay where they are."""
        if self.metrics.rewards.n:
            return self.metrics.rewards.mean_y
        known = self.runner.metrics.mean_reward
        if known is not None:
            return known
        low, high = self.tree.bounds()
        return (low + high) / 2 if math.isfinite(low + high) else 0.0

    def _emit_missing(self, item: Item, fill: float | None) -> None:
        policy = self.runner.on_missing
        if policy == "raise":
            why = "; ".join(
                f"{name}: {_describe(item.grades.get(name))}" for name in dict.fromkeys(item.ev.missing)
            )
            raise MissingRewardError(f"rollout {item.index} of group {item.group.id!r} has no reward ({why})")
        if policy == "mask":
            self._emit(item, None, "masked")
        elif policy == "neutral":
            self._emit(item, fill, "neutral")
        else:
            self._emit(item, float(policy), "written")

    def _emit(self, item: Item, reward: float | None, status: Status) -> None:
        ev = item.ev
        usage = _NO_USAGE
        for grade in item.grades.values():
            spent = getattr(grade, "usage", None)
            if spent is not None:
                usage = usage + spent
        result = RewardResult(
            index=item.index,
            group=item.group.id,
            reward=reward,
            status=status,
            raw_reward=ev.value,
            contributions=ev.contributions,
            grades=item.grades,
            missing=tuple(dict.fromkeys(ev.missing)) if ev.missing else (),
            policies=tuple(ev.policies) if ev.policies else (),
            usage=usage,
            wall_s=item.ended - item.started,
        )
        self.emitted += 1
        self.metrics.add_result(result, item.rollout)
        ledger = self.runner.ledger
        if ledger is not None:
            spec = self.runner.spec().digest
            self.entries.append(ledger.entry(result, item.rollout, spec=spec, run=self.id, tags=self.tags))
            if len(self.entries) >= 64:
                ledger.write(self.entries)
                self.entries = []
        if self.bar is not None:
            self.bar.update()
        self.emit(result)
        self.wake()


_NO_USAGE = Usage()


def _lanes(
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


def _per_member(value: Any, count: int) -> Sequence[Any]:
    """What a group grader answered, one grade per member."""
    if isinstance(value, Failed | Abstained):
        return [value] * count
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == count:
        return value
    got = f"{len(value)} grades" if isinstance(value, Sequence) else type(value).__name__
    return [Failed("WrongGroupGrades", f"{got} for {count} members")] * count


def _describe(grade: Grade | None) -> str:
    if isinstance(grade, Failed):
        return f"{grade.error}: {grade.detail}" if grade.detail else grade.error
    if isinstance(grade, Abstained):
        return f"abstained, {grade.reason}"
    return "not graded"
