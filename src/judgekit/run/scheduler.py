"""One call of a runner: from rollouts to jobs, from grades to results.

The driver expands rollouts in a fair order: rules run in place, everything else becomes a job for the
workers. When a rollout has the grades that the reward tree asks for it is evaluated, and paid out. All state is
touched by one event loop only and belongs to this run.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from judgekit.errors import ConfigError, FailureRateError
from judgekit.execution.threads import Threads
from judgekit.graders.protocol import as_grade, failure
from judgekit.run.grouping import group_id
from judgekit.run.jobs import RANK, GraderSlot, lanes_of
from judgekit.run.metrics import RunMetrics
from judgekit.run.results import Payout
from judgekit.run.state import Arrivals, Group, Item
from judgekit.run.workers import Job, Workers
from judgekit.types import CURRENT_RUN, Abstained, Failed, Grade, RewardResult, Rollout, Skipped

if TYPE_CHECKING:
    from judgekit.run.runner import GradingRunner

_SLICE_S = 0.005
"""How long rules may hold the event loop before it gets a turn."""
_WINDOW = 8
"""Groups that are expanded in turn, so that a huge one does not hold up the others."""


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
        self.slots = sorted(slots, key=lambda slot: RANK[slot.mode])
        self.by_key = {key: slot for slot in slots for key in slot.keys}
        self.by_name = {slot.name: slot for slot in slots}
        self.rollouts = rollouts
        self.groups = groups
        self.id = secrets.token_hex(6)
        self.metrics = RunMetrics(self.by_key, self.tree.bounds())
        self.lanes, self.lane_of = lanes_of(self.slots, lambda: runner.pool.workers)
        self.threads: Threads | None = None

        self.payout = Payout(runner, self.metrics, run=self.id, tags=tags, wake=self.wake)
        self.live: set[Group] = set()
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

        self.payout.emit = keep
        await self._drive(self._feed())
        return results

    async def follow(self, arrivals: Arrivals, emit: Callable[[RewardResult], None]) -> None:
        """Grade the members of one group as they come; *emit* gets each result as soon as it is final."""
        self.payout.emit = emit
        arrivals.news = self.wake
        await self._drive(self._feed_arrivals(arrivals))

    async def stream(self) -> AsyncGenerator[RewardResult, None]:
        """Each result as soon as it is final."""
        ready: deque[RewardResult] = deque()
        news = asyncio.Event()

        def keep(result: RewardResult) -> None:
            ready.append(result)
            news.set()

        self.payout.emit = keep
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
            self.payout.open(len(self.rollouts))
            await feed
            while self.payout.done < len(self.rollouts) and self.crash is None:
                await self._news()
            if self.crash is not None:
                raise self.crash
            self.payout.rest()
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
        group: Group | None = None
        while True:
            while arrivals.came:
                rollout = arrivals.came.popleft()
                if group is None:
                    group = Group(group_id(rollout), arrivals.expected)
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
                self.payout.settle(group)
            else:
                self._start_group_graders(group)

    def _start_deadline(self) -> None:
        if self.runner.deadline_s is not None:
            loop = asyncio.get_running_loop()
            self.deadline = loop.call_later(self.runner.deadline_s, self._expire)

    def _in_fair_order(self) -> Iterator[Item]:
        """Rollouts, a few groups in turn: early groups end early, and a huge one does not hold up the rest."""
        waiting = iter(self.groups)
        window: deque[tuple[Group, Iterator[int]]] = deque()
        while True:
            while len(window) < _WINDOW and (members := next(waiting, None)) is not None:
                window.append((Group(group_id(self.rollouts[members[0]]), len(members)), iter(members)))
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
        self.payout.close()
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
                wanted = {self.by_key[key] for key in tree.wanted(item.grades, item.rollout)}
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

    def _start_group_graders(self, group: Group) -> None:
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
        item.ev = self.tree.evaluate(grades, item.rollout)
        item.ended = time.perf_counter()
        item.done = True
        self.payout.graded(item)


def _per_member(value: Any, count: int) -> Sequence[Any]:
    """What a group grader answered, one grade per member."""
    if isinstance(value, Failed | Abstained):
        return [value] * count
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == count:
        return value
    got = f"{len(value)} grades" if isinstance(value, Sequence) else type(value).__name__
    return [Failed("WrongGroupGrades", f"{got} for {count} members")] * count
