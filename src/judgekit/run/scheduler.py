"""One run: from rollouts to jobs, and from grades to results.

A feed brings in rollouts. Rules run inline; everything else becomes a job for the workers. Once a rollout has the
grades that the reward tree asks for, the tree is evaluated. All state belongs to this run and to one event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import secrets
import sys
import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from contextlib import suppress
from typing import Any

from judgekit.errors import ConfigError, DataError, JudgekitError
from judgekit.execution.threads import in_own_thread
from judgekit.graders.protocol import as_grade, failure, output, per_member
from judgekit.run.grouping import group_by_prompt, group_id, group_key
from judgekit.run.jobs import SLOW_S, BoundGrader, Job
from judgekit.run.results import Results
from judgekit.run.settings import Plan
from judgekit.run.state import Group, RolloutState
from judgekit.run.workers import SLICE_S, Workers, is_interrupt
from judgekit.types import (
    CURRENT_RUN,
    KEEP_PROMPTS,
    Abstained,
    Failed,
    Grade,
    RewardResult,
    Rollout,
    Skipped,
)

logger = logging.getLogger("judgekit")

_WINDOW = 8
"""Groups whose members take turns, so that a huge one does not hold up the others."""
_FLUSH_S = 5.0
"""Seconds for which a run waits until its lines are in the ledger."""
_OPEN = float("inf")
"""Size of a group whose last member is not known yet."""
_REMEMBERED = 256
"""Ended groups of a stream that are remembered. A group that returns much later belongs to the next epoch."""

_numbers = itertools.count()
_process = ""


def _name_process() -> None:
    """Make run ids unique over processes, forked ones included."""
    global _process
    _process = secrets.token_hex(4)


_name_process()
os.register_at_fork(after_in_child=_name_process)


class Run:
    """One batch, stream or group of rollouts through one runner."""

    def __init__(self, plan: Plan, tags: Mapping[str, Any]) -> None:
        self.plan = plan
        self.tree = plan.tree
        self.id = f"{_process}-{next(_numbers):x}"
        self.taken_in = 0
        """Rollouts that the feed has brought in so far."""
        self.results = Results(plan, run=self.id, tags=tags)
        self.workers: Workers
        self.unread: Sized = ()
        """Results of a stream that its consumer has not taken yet."""
        self.known: Sequence[Mapping[str, Grade]] = ()
        self.live: set[Group] = set()
        """Groups with members that wait for a group grader to start."""
        self.deciders: dict[str, tuple[set[str], set[str]]] = {}
        """See `_deciders`, by group grader."""
        self.expired: Failed | None = None
        """From the run's deadline on, the grade of everything that is not graded."""
        self.waiter: asyncio.Future[None] | None = None
        """Set while the feed waits for room."""

    # ---- called by the runner

    async def collect(
        self,
        rollouts: Sequence[Rollout],
        groups: Sequence[list[int]],
        known: Sequence[Mapping[str, Grade]] = (),
    ) -> list[RewardResult]:
        """Return all results, in input order. *known*: for each rollout, grades that are not asked for again."""
        results: list[Any] = [None] * len(rollouts)
        self.known = known

        def keep(result: RewardResult) -> None:
            results[result.index] = result

        self.results.emit = keep
        await self._drive(self._feed(rollouts, groups), len(rollouts))
        ledger = self.plan.ledger
        # hosts start thousands of runs at once: they do not wait for the disk
        if ledger is not None and not self.plan.limits:
            await in_own_thread(ledger.flush, _FLUSH_S)
        self.results.check_failures(results)
        return results

    async def follow(self, members: AsyncIterable[Rollout], emit: Callable[[RewardResult], None]) -> None:
        """Grade the members of one group as they arrive; *emit* gets each result once it is final."""
        self.results.emit = emit
        await self._drive(self._feed_stream(members, one_group=True), None)

    async def stream(
        self, rollouts: Sequence[Rollout] | AsyncIterable[Rollout]
    ) -> AsyncGenerator[RewardResult, None]:
        """Yield each result once it is final, grading no faster than results are taken."""
        ready: deque[RewardResult] = deque()
        changed = asyncio.Event()

        def keep(result: RewardResult) -> None:
            ready.append(result)
            changed.set()

        self.results.emit = keep
        self.unread = ready
        if isinstance(rollouts, AsyncIterable):
            driving = self._drive(self._feed_stream(rollouts), None)
        else:
            driving = self._drive(self._feed(rollouts, group_by_prompt(rollouts)), len(rollouts))
        driver = asyncio.create_task(driving)
        driver.add_done_callback(lambda _: changed.set())
        try:
            while not driver.done() or ready:
                while ready:
                    yield ready.popleft()
                    self.wake()
                if not driver.done():
                    await changed.wait()
                    changed.clear()
            await driver
            self.results.check_failures()
        finally:
            if not driver.done():
                driver.cancel()
                await asyncio.wait([driver])
            if not driver.cancelled():
                driver.exception()  # marks it as seen: it was raised above, or the caller has left

    # ---- the driver

    async def _drive(self, feed: Coroutine[Any, Any, None], total: int | None) -> None:
        """Grade all that *feed* brings in. Owns the workers: none outlives it."""
        plan = self.plan
        context = CURRENT_RUN.set(self.id)
        keeping = KEEP_PROMPTS.set(plan.ledger is not None and plan.ledger.texts)
        try:
            async with asyncio.TaskGroup() as tasks:
                self.workers = Workers(
                    plan, tasks, answer=self._answer, wake=self.wake, out_of_time=self._expire
                )
                try:
                    self.results.open(total)
                    await self._until_written()
                    await feed
                except BaseException:
                    self.workers.stop()
                    raise
            if self.results.settled < self.taken_in:
                raise JudgekitError("a task of this run was cancelled from outside")
            self.results.finish()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            feed.close()  # in case it never began
            self.workers.close()
            self.results.close()
            # GeneratorExit: the loop was closed under this run, which is being collected, perhaps in another
            # context and while another thread's counting holds the lock
            if not isinstance(sys.exception(), GeneratorExit):
                plan.metrics.tell(self.taken_in)
            with suppress(ValueError):
                CURRENT_RUN.reset(context)
                KEEP_PROMPTS.reset(keeping)
            # breaks the reference cycles through the callbacks: with thousands of runs a minute, finding them would
            # cost the garbage collector more time than the grading takes
            del self.workers, self.results.emit

    async def _until_room(self) -> None:
        """Wait until `wake` finds room for more rollouts."""
        while not self._has_room():
            self.workers.watch()
            self.waiter = asyncio.get_running_loop().create_future()
            try:
                await self.waiter
            finally:
                self.waiter = None
            await self._until_written()

    async def _until_written(self) -> None:
        """Wait while the ledger has many lines to write. Under a deadline, a slow disk must not cost grades."""
        if self.plan.ledger is not None and self.plan.settings.deadline_s is None:
            await self.plan.ledger.catch_up()

    def wake(self) -> None:
        """Resume a waiting feed if there is room: a job was answered, or a result taken."""
        if self.waiter is not None and not self.waiter.done() and self._has_room():
            self.waiter.set_result(None)

    # ---- feeds

    async def _feed(self, rollouts: Sequence[Rollout], groups: Sequence[list[int]]) -> None:
        """Bring in a batch, no faster than it is graded and its results are taken."""
        self._start_deadline()
        turn_ends = time.perf_counter() + SLICE_S
        for group, index in _in_fair_order(rollouts, groups):
            state = RolloutState(index, rollouts[index], group)
            if self.known:
                state.known = self.known[index]
            self._take_in(state)
            if self.workers.queued:
                self.workers.start()
            if not self._has_room():
                await self._until_room()
                turn_ends = time.perf_counter() + SLICE_S
            elif time.perf_counter() > turn_ends:
                self.workers.watch()
                await asyncio.sleep(0)
                await self._until_written()
                turn_ends = time.perf_counter() + SLICE_S

    async def _feed_stream(self, rollouts: AsyncIterable[Rollout], *, one_group: bool = False) -> None:
        """Bring in rollouts from an iterator. A group ends where the next one begins.

        *one_group*: all are members of one group; the run's deadline starts with the last.
        """
        if not one_group:
            self._start_deadline()
            self.workers.watch()
        group: Group | None = None
        key: Hashable = None
        compares = self.results.fills or any(grader.mode == "group" for grader in self.plan.graders)
        ended: dict[Hashable, None] = {}  # keys of the last groups, to notice interleaved members
        async for rollout in rollouts:
            if not isinstance(rollout, Rollout):
                raise DataError(f"item {self.taken_in} is a {type(rollout).__name__}, not a judgekit.Rollout")
            last, key = key, None if one_group else group_key(rollout, self.taken_in)
            if group is None or key != last:
                if group is not None:
                    self._complete(group)
                    ended[last] = None
                    if len(ended) > _REMEMBERED:
                        del ended[next(iter(ended))]
                if compares and key in ended:
                    compares = False  # warn once
                    logger.warning(
                        "group %r comes again after other groups, and is graded as another group: the members of a "
                        "group must stand together in an asynchronous input, or go to a judgekit.trainers.GroupCollector",
                        group_id(rollout),
                    )
                group = Group(group_id(rollout), _OPEN, self.taken_in)
            self._take_in(RolloutState(self.taken_in, rollout, group))
            self.workers.start()
            await self._until_room()
        if one_group:
            self._start_deadline()
            self.workers.watch()
        if group is not None:
            self._complete(group)

    def _take_in(self, state: RolloutState) -> None:
        self.taken_in += 1
        state.group.members.append(state)
        if self.plan.ledger is not None:
            self.results.unfinished.add(state)
        self._advance(state)

    def _complete(self, group: Group) -> None:
        """Close the group: its last member has arrived."""
        group.size = len(group.members)
        if group.finished == group.size:
            self.results.settle(group)
        else:
            self._start_group_graders(group)

    def _has_room(self) -> bool:
        backlog = max(4 * self.plan.settings.max_concurrency, 64)
        return self.workers.queued + len(self.unread) < backlog

    def _start_deadline(self) -> None:
        if (deadline_s := self.plan.settings.deadline_s) is not None:
            self.workers.end_after(deadline_s)

    def _expire(self) -> None:
        """End the run at its deadline: missing grades have failed, the others count."""
        deadline_s = self.plan.settings.deadline_s
        self.expired = Failed("DeadlineExceeded", f"not graded within the run's {deadline_s:g} s")
        try:
            self.workers.expire(self.expired)
            for group in list(self.live):
                wanted, group.wanted = group.wanted, {}
                for name, members in wanted.items():
                    self._keep_all(self.plan.by_name[name], members, [self.expired] * len(members), None)
            self.live.clear()
        except BaseException as error:  # MissingRewardError
            self.workers.fail(error)

    # ---- called by the workers

    def _answer(self, job: Job, value: Any, seconds: float | None) -> None:
        if isinstance(value, ConfigError):  # it would hit every other rollout too
            raise value
        if isinstance(value, BaseException):
            value = failure(value)
        if job.grader.mode == "group":
            self._keep_all(job.grader, job.states, per_member(value, len(job.states)), seconds)
        else:
            state = job.states[0]
            state.pending.discard(job.grader.name)
            self._keep(state, job.grader, value, seconds)
            if self.tree.lazy or not state.pending:
                self._advance(state)
        if self.results.unfinished:
            self.results.note(job.states)

    # ---- from rollout to jobs

    def _advance(self, state: RolloutState) -> None:
        """Ask the graders that the rollout needs next, or finish it if it needs none."""
        lazy = self.tree.lazy
        while True:
            if lazy:
                wanted = {self.plan.by_key[key] for key in self.tree.wanted(state.grades, state.rollout)}
                graders = [g for g in self.plan.graders if g in wanted and g.name not in state.pending]
            elif not state.grades:
                graders = self.plan.graders  # type: ignore[assignment]
            else:  # all were asked, or some grades were known before
                graders = [g for g in self.plan.graders if state.known and _lacks(state, g)]
            known = _known(state, graders) if state.known else {}
            if known:  # a known rule answers before others are asked, a known judge after them
                rule = next(iter(known.values())).mode == "inline"
                graders = [g for g in graders if not rule and g not in known.values()]
            graded = False
            for grader in graders:
                if self.expired is not None:
                    self._keep(state, grader, self.expired, None)
                    graded = True
                elif grader.mode == "inline" and not grader.too_big(state):
                    graded |= self._grade_inline(state, grader)
                elif graded and lazy:
                    break  # the rules may have decided that this one is not needed
                elif grader.mode == "group":
                    state.pending.add(grader.name)
                    state.group.wanted.setdefault(grader.name, []).append(state)
                    self.live.add(state.group)
                else:
                    self._enqueue(state, grader.pooled or grader)
            if known and not graded:
                key, grader = next(iter(known.items()))
                state.grades[key] = as_grade(state.known[key], grader.score_range)
            if not (known or (graded and lazy)):
                break
        if not state.pending:
            self._finish(state)
        if state.group.wanted:
            self._start_group_graders(state.group)

    def _grade_inline(self, state: RolloutState, grader: BoundGrader) -> bool:
        """Run a rule inline. Returns False if it returned an awaitable, which became a job."""
        start = time.perf_counter()
        try:
            value = grader.call(state.rollout)
            awaitable = hasattr(value, "__await__")
        except ConfigError:
            raise
        except BaseException as error:  # panics of native code are no Exception
            if is_interrupt(error):
                raise
            value, awaitable = failure(error), False
        if awaitable:
            self._enqueue(state, grader, value)
            return False
        seconds = time.perf_counter() - start
        grader.evaluated += 1
        if seconds > SLOW_S and grader.is_slow():
            logger.warning(
                'grader %r held the event loop for %.0f ms, and everything else with it: give it where="thread" if '
                'it waits, where="process" if it computes',
                grader.name,
                1000 * seconds,
            )
        self._keep(state, grader, value, seconds)
        return True

    def _enqueue(
        self, state: RolloutState, grader: BoundGrader, awaitable: Awaitable[Any] | None = None
    ) -> None:
        state.pending.add(grader.name)
        self.workers.add(grader, (state,), awaitable)

    def _start_group_graders(self, group: Group) -> None:
        """Start the group graders for which it is decided whom they compare, whichever judge is quicker."""
        if len(group.members) < group.size:
            return
        for grader in self.plan.graders:
            if grader.name in group.wanted and not self._undecided(grader, group):
                self._compare(grader, group.wanted.pop(grader.name), group)
        if not group.wanted:
            self.live.discard(group)
        self.workers.start()

    def _undecided(self, grader: BoundGrader, group: Group) -> bool:
        """Whether a grade is still to come that decides who is compared."""
        if grader.name not in self.deciders:
            self.deciders[grader.name] = _deciders(self.plan, grader)
        deciders, yielding = self.deciders[grader.name]
        return any(
            name not in yielding or state not in group.wanted.get(name, ())
            for state in (group.members if deciders else ())
            if not state.done
            for name in deciders & state.pending
        )

    def _compare(self, grader: BoundGrader, wanted: Sequence[RolloutState], group: Group) -> None:
        """Have members compared: those that still need it, for which no grade has come since that decides otherwise."""
        needed = {s for s in wanted if not self.tree.lazy or self._wants(s, grader)}
        members = sorted(needed, key=lambda state: state.index)  # not in the order in which judges answered
        values: Sequence[Any] | None = ()
        if len(members) == 1:
            alone = (
                "the group has one member" if group.size == 1 else "one member of the group was to be graded"
            )
            values = [Abstained(alone)]
        elif members:
            values = self.results.compare(grader, members)
        if values is None:
            self.workers.add(grader, members)
        else:
            self._keep_all(grader, members, values, None)
        for state in wanted:
            if state not in needed:
                state.pending.discard(grader.name)
                self._advance(state)

    def _wants(self, state: RolloutState, grader: BoundGrader) -> bool:
        return not set(grader.keys).isdisjoint(self.tree.wanted(state.grades, state.rollout))

    # ---- from grades to results

    def _keep_all(
        self,
        grader: BoundGrader,
        states: Sequence[RolloutState],
        values: Sequence[Any],
        seconds: float | None,
    ) -> None:
        for state, value in zip(states, values, strict=True):
            self._keep(state, grader, value, seconds)
        for state in states:
            state.pending.discard(grader.name)  # until then it may need what the members before it need
            if not state.done and (self.tree.lazy or not state.pending):
                self._advance(state)

    def _keep(self, state: RolloutState, grader: BoundGrader, value: Any, seconds: float | None) -> None:
        """Keep a grader's answer as its grade, or as the grades of its outputs."""
        if grader.outputs:
            for part, key in zip(grader.outputs, grader.keys, strict=True):
                state.grades[key] = as_grade(output(value, part, grader.outputs), grader.score_range)
        else:
            state.grades[grader.name] = as_grade(value, grader.score_range)
        if seconds is not None:
            for durations, _ in grader.timings:
                durations.append(seconds)

    def _finish(self, state: RolloutState) -> None:
        """Evaluate the tree: all grades are there."""
        grades = state.grades
        if len(grades) < len(self.plan.by_key):
            if state.known:  # grades that the tree does not ask for now are kept
                for key, grader in _known(state, self.plan.graders).items():
                    grades[key] = as_grade(state.known[key], grader.score_range)
            for key in self.plan.by_key:
                if key not in grades:
                    grades[key] = Skipped(self.tree.gate_of.get(key, ""))
        state.ev = self.tree.evaluate(grades, state.rollout)
        state.ended = time.perf_counter()
        state.done = True
        self.results.graded(state)


def _known(state: RolloutState, graders: Sequence[BoundGrader]) -> dict[str, BoundGrader]:
    """Return which of the graders' missing grades the rollout came with, in the order in which they were given."""
    by_key = {key: grader for grader in graders for key in grader.keys}
    return {
        key: by_key[key]
        for key, grade in state.known.items()
        if key in by_key and key not in state.grades and not isinstance(grade, Skipped)
    }


def _deciders(plan: Plan, grader: BoundGrader) -> tuple[set[str], set[str]]:
    """Return the graders that decide whom a group grader compares; and those of them that wait while it waits, too."""
    asked_after = plan.tree.deciders
    deciders = {plan.by_key[name].name for key in grader.keys for name in asked_after[key]} - {grader.name}
    later = plan.graders[plan.graders.index(grader) + 1 :]
    return deciders, {
        other.name for other in later for key in other.keys if not asked_after[key].isdisjoint(grader.keys)
    }


def _lacks(state: RolloutState, grader: BoundGrader) -> bool:
    return grader.name not in state.pending and not all(key in state.grades for key in grader.keys)


def _in_fair_order(rollouts: Sequence[Rollout], groups: Sequence[list[int]]) -> Iterator[tuple[Group, int]]:
    """Yield rollouts of a few groups in turn, so that early groups end early and a huge one holds up no other."""
    waiting = iter(groups)
    window: deque[tuple[Group, Iterator[int]]] = deque()
    while True:
        while len(window) < _WINDOW and (members := next(waiting, None)) is not None:
            first = members[0]
            window.append((Group(group_id(rollouts[first]), len(members), first), iter(members)))
        if not window:
            return
        group, left = window.popleft()
        index = next(left, None)
        if index is not None:
            window.append((group, left))
            yield group, index
