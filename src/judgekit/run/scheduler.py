"""One run: from rollouts to jobs, and from grades to results.

A feed brings in rollouts. Rules run inline; everything else becomes an evaluation with a task of its own. Once a rollout
has the grades that the reward tree asks for, the tree is evaluated. All state belongs to this run and to one event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from contextlib import aclosing, asynccontextmanager
from contextvars import Context, copy_context
from functools import partial
from typing import Any

import anyio

from judgekit.errors import ConfigError, JudgekitError
from judgekit.execution.threads import in_own_thread
from judgekit.execution.turns import give_way
from judgekit.fork import in_child
from judgekit.graders.protocol import as_grade, failure, output, per_member
from judgekit.ledger.schema import tagged_step
from judgekit.reward.schedules import checked_step
from judgekit.run.bound_grader import BoundGrader
from judgekit.run.evaluations import SLICE_S, Evaluations, Job
from judgekit.run.grouping import group_by_prompt, group_id, group_key, not_a_rollout
from judgekit.run.groups import Group, RolloutState
from judgekit.run.results import ResultList, Results
from judgekit.run.settings import Plan
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
_REMEMBERED = 256
"""Ended groups of a stream that are remembered. A group that returns much later belongs to the next epoch."""

_numbers = itertools.count()
_process = ""


@in_child
def _name_process() -> None:
    """Make run ids unique over processes, forked ones included."""
    global _process
    _process = secrets.token_hex(4)


_name_process()


class Run:
    """One batch, stream or group of rollouts through one runner."""

    def __init__(self, plan: Plan, tags: Mapping[str, Any]) -> None:
        self.plan = plan
        self.tree = plan.tree.at(checked_step(tagged_step(tags))) if plan.tree.fades else plan.tree
        self.id = f"{_process}-{next(_numbers):x}"
        self.taken_in = 0
        """Rollouts that the feed has brought in so far."""
        self.results = Results(plan, self.tree, run=self.id, tags=tags)
        self.evaluations: Evaluations
        self.unread: Sized = ()
        """Results of a stream that its consumer has not taken yet."""
        self.known: Sequence[Mapping[str, Grade]] = ()
        self.waiting: dict[Group, None] = {}
        """Groups with members that wait for a group grader to start."""
        self.arriving: Group | None = None
        """The group of a stream whose members may still be coming."""
        self.expired: Failed | None = None
        """From the run's deadline on, the grade of everything that is not graded."""
        self.room: asyncio.Future[None] | None = None
        """Set while the feed waits for room."""
        self.reading: asyncio.Timeout | None = None
        """The scope in which the feed runs, to interrupt it."""

    # ---- called by the runner

    async def collect(
        self,
        rollouts: Sequence[Rollout],
        groups: Sequence[Sequence[int]],
        known: Sequence[Mapping[str, Grade]] = (),
    ) -> list[RewardResult]:
        """Return all results, in input order. *known*: for each rollout, grades that are not asked for again."""
        results: list[Any] = [None] * len(rollouts)
        self.known = known

        self.results.emit = partial(_keep_in_place, results)
        await self._drive(self._feed(rollouts, groups), len(rollouts), batch=True)
        ledger = self.plan.ledger
        # hosts start thousands of runs at once: they do not wait for the disk
        if ledger is not None and not self.plan.limits:
            await in_own_thread(ledger.flush, _FLUSH_S)
        self.results.check_failures(results)
        return ResultList(results)

    async def follow(self, members: AsyncIterable[Rollout], emit: Callable[[RewardResult], None]) -> None:
        """Grade the members of one group as they arrive; *emit* gets each result once it is final."""
        self.results.emit = emit
        await self._drive(self._feed_stream(members, one_group=True), None)

    async def stream(
        self, rollouts: Iterable[Rollout] | AsyncIterable[Rollout]
    ) -> AsyncGenerator[RewardResult, None]:
        """Yield each result once it is final, grading no faster than results are taken."""
        ready: deque[RewardResult] = deque()
        changed = asyncio.Event()

        def keep(result: RewardResult) -> None:
            ready.append(result)
            changed.set()

        self.results.emit = keep
        self.results.streams = True
        self.unread = ready
        if isinstance(rollouts, Sequence):
            driving = self._drive(self._feed(rollouts, group_by_prompt(rollouts)), len(rollouts), batch=True)
        elif isinstance(rollouts, AsyncIterable):
            driving = self._drive(self._feed_stream(rollouts), None)
        else:
            driving = self._drive(self._feed_stream(_one_by_one(rollouts)), None)
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
            await _end(driver)

    # ---- the driver

    async def _drive(
        self, feed: Coroutine[Any, Any, None], total: int | None, *, batch: bool = False
    ) -> None:
        """Grade all that *feed* brings in. Owns the evaluations: none outlives it. *batch*: it waits for room alone."""
        plan = self.plan
        self.evaluations = Evaluations(plan, self._context(), self)
        try:
            self.results.open(total)
            if plan.ledger is not None:
                await self._until_written()
            await (feed if batch else self._read(feed))
            while (over := self.evaluations.over()) is not None:
                await over
            self.evaluations.check()
            if self.results.settled < self.taken_in:
                raise JudgekitError("judgekit lost track of a rollout; please report this")
            self.results.finish()
        except GeneratorExit:
            # the loop was closed under this run, which is being collected, perhaps while another thread's counting
            # holds the lock
            self.evaluations.abandon()
            self.results.close()
            raise
        except BaseException:
            await self.evaluations.close()
            self._conclude()
            raise
        else:
            self._conclude()
        finally:
            feed.close()  # in case it never began
            # breaks the reference cycles through the callbacks: with thousands of runs a minute, finding them would
            # cost the garbage collector more time than the grading takes
            del self.evaluations, self.results.emit

    def _conclude(self) -> None:
        self.evaluations.abandon()
        self.results.close()
        self.plan.metrics.tell(self.taken_in)

    def _context(self) -> Context:
        """Return the context of this run's evaluations: the caller's, with what names the run."""
        ledger = self.plan.ledger
        keep = ledger is not None and ledger.texts
        context = copy_context()
        context.run(CURRENT_RUN.set, self.id)
        if keep != context.get(KEEP_PROMPTS, False):
            context.run(KEEP_PROMPTS.set, keep)
        return context

    async def _read(self, feed: Coroutine[Any, Any, None]) -> None:
        """Run the feed until it has brought in everything, or is stopped."""
        scope = self.reading = asyncio.timeout(None)
        try:
            async with scope:
                await feed
        except TimeoutError:
            if not scope.expired():  # the source's own
                raise
        finally:
            self.reading = None
            self.evaluations.interrupting = False
        if self.arriving is not None:
            self._complete(self.arriving)

    def stop_reading(self) -> None:
        if self.room is not None and not self.room.done():
            self.room.set_result(None)
        reading, self.reading = self.reading, None
        if reading is not None:
            self.evaluations.interrupting = True
            reading.reschedule(asyncio.get_running_loop().time())

    async def _until_room(self) -> None:
        """Wait until `wake` finds room for more rollouts."""
        while not self._has_room():
            self.evaluations.watch()
            self.room = asyncio.get_running_loop().create_future()
            try:
                await self.room
            finally:
                self.room = None
            self.evaluations.check()
            await self._until_written()

    async def _until_written(self) -> None:
        """Wait while the ledger has many lines to write. Under a deadline, a slow disk must not cost grades."""
        if self.plan.ledger is not None and self.plan.settings.deadline_s is None:
            await self.plan.ledger.catch_up()

    def wake(self) -> None:
        """Resume a waiting feed if there is room: an evaluation was answered, or a result taken."""
        if self.room is not None and not self.room.done() and self._has_room():
            self.room.set_result(None)

    # ---- feeds

    async def _feed(self, rollouts: Sequence[Rollout], groups: Sequence[Sequence[int]]) -> None:
        """Bring in a batch, no faster than it is graded and its results are taken."""
        self._start_deadline()
        turn_ends = time.perf_counter() + SLICE_S
        for group, index in _in_fair_order(rollouts, groups):
            state = RolloutState(index, rollouts[index], group)
            if self.known:
                state.known = self.known[index]
            self._take_in(state)
            if self.evaluations.queued:
                self.evaluations.start()
            full, long = not self._has_room(), time.perf_counter() > turn_ends
            if long:
                self.evaluations.watch()
                await give_way()
                self.evaluations.check()
                await self._until_written()
            if full:
                await self._until_room()
            if long or full:
                turn_ends = time.perf_counter() + SLICE_S

    async def _feed_stream(self, rollouts: AsyncIterable[Rollout], *, one_group: bool = False) -> None:
        """Bring in rollouts from an iterator, and close it. A group ends where the next one begins.

        *one_group*: all are members of one group; the run's deadline starts with the last.
        """
        if not one_group:
            self._start_deadline()
            self.evaluations.watch()
        key: Hashable = None
        compares = self.results.fills or bool(self.tree.functions)
        compares = compares or any(grader.compares for grader in self.plan.graders)
        ended: dict[Hashable, None] = {}  # keys of the last groups, to notice interleaved members
        async with _closed_at_the_end(rollouts) as members:
            async for rollout in members:
                if not isinstance(rollout, Rollout):
                    raise not_a_rollout(rollout, self.taken_in)
                last, key = key, None if one_group else group_key(rollout, self.taken_in)
                if self.arriving is None or key != last:
                    if self.arriving is not None:
                        self._complete(self.arriving)
                        ended[last] = None
                        if len(ended) > _REMEMBERED:
                            del ended[next(iter(ended))]
                    if compares and key in ended:
                        compares = False  # warn once
                        logger.warning(
                            "group %r comes again after other groups, and is graded as another group: the members of a "
                            "group must stand together in a streamed input, or go to a judgekit.trainers.GroupCollector",
                            group_id(rollout),
                        )
                    self.arriving = Group(group_id(rollout), self.taken_in)
                self._take_in(RolloutState(self.taken_in, rollout, self.arriving))
                self.evaluations.start()
                await self._until_room()
        if one_group:
            self._start_deadline()
            self.evaluations.watch()

    def _take_in(self, state: RolloutState) -> None:
        self.taken_in += 1
        state.group.members.append(state)
        if self.plan.ledger is not None:
            self.results.unfinished[state] = None
        self._advance(state)

    def _complete(self, group: Group) -> None:
        """Close the group: its last member has arrived."""
        self.arriving = None
        group.close()
        if group.graded:
            self.results.settle(group)
        else:
            self._decide_numbers(group)
            self._start_group_graders(group)

    def _has_room(self) -> bool:
        backlog = self.evaluations.queued + len(self.unread)
        return backlog < 64 or backlog < 4 * self.evaluations.most

    def _start_deadline(self) -> None:
        if (deadline_s := self.plan.settings.deadline_s) is not None:
            self.evaluations.end_after(deadline_s)

    def out_of_time(self) -> None:
        """End the run at its deadline: missing grades have failed, the others count."""
        deadline_s = self.plan.settings.deadline_s
        self.expired = Failed("DeadlineExceeded", f"not graded within the run's {deadline_s:g} s")
        try:
            self.evaluations.expire(self.expired)
            for group in list(self.waiting):
                for grader, members in group.take_waiting():
                    self._keep_all(grader, members, [self.expired] * len(members), None)
            self.waiting.clear()
            if self.reading is not None and (self.arriving is not None or not self.taken_in):
                logger.warning("the deadline ended the reading of a stream after %d rollouts", self.taken_in)
                self.stop_reading()
        except BaseException as error:  # MissingRewardError
            self.evaluations.fail(error)

    # ---- called by the evaluations

    def answer(self, job: Job, value: Any, seconds: float | None) -> None:
        value = _checked(value)
        if job.grader.compares:
            self._keep_all(job.grader, job.states, per_member(value, len(job.states)), seconds)
        else:
            state = job.states[0]
            self._keep(state, job.grader, value, seconds)
            if self.tree.lazy or not state.pending:
                self._advance(state)
        if self.results.unfinished:
            self.results.note(job.states)

    # ---- from rollout to evaluations

    def _advance(self, state: RolloutState) -> None:
        """Ask the graders that the rollout needs next, or finish it if it needs none."""
        lazy = self.tree.lazy
        while True:
            graders = self._needed(state)
            known = _known(state, graders) if state.known else {}
            if known:  # a known rule answers before others are asked, a known judge after them
                rule = next(iter(known.values())).inline
                graders = [g for g in graders if not rule and g not in known.values()]
            graded = self._ask(state, graders)
            if known and not graded:
                key, grader = next(iter(known.items()))
                state.grades[key] = as_grade(state.known[key], grader.score_range, state.rollout)
            if not (known or (graded and lazy)):
                break
        if not state.pending:
            self._finish(state)
        group = state.group
        if group.asked:
            self._decide_numbers(group)
        if group.waiting:
            self._start_group_graders(group)

    def _needed(self, state: RolloutState) -> Sequence[BoundGrader]:
        """Return the graders that the rollout needs now and that have not been asked."""
        if self.tree.lazy:
            keys = self.tree.wanted(state.grades, state.rollout, state.group.numbers)
            if self.tree.functions:
                keys = self._without_numbers(state, keys)
            wanted = {self.plan.by_key[key] for key in keys}
            return [g for g in self.plan.graders if g in wanted and g.name not in state.pending]
        if not state.grades:
            return self.plan.graders
        if not state.known:  # all were asked
            return ()
        return [g for g in self.plan.graders if _lacks(state, g)]

    def _without_numbers(self, state: RolloutState, keys: Sequence[str]) -> list[str]:
        """Have the rollout wait for the group's numbers among *keys*, and return the others."""
        for key in keys:
            if key in self.tree.functions and key not in state.pending:
                state.group.ask_number(state, key)
        return [key for key in keys if key not in self.tree.functions]

    def _decide_numbers(self, group: Group) -> None:
        """Decide the group's numbers whose members are all there, and have these go on."""
        while (taken := group.take_decided(self.plan.deciders)) is not None:
            key, asking = taken
            found = (self.tree.probe(state.grades, state.rollout, group.numbers) for state in asking)
            group.numbers[key] = self.tree.number(key, found)
            for state in asking:  # the others keep waiting until their turn, for what they may need, too
                state.blocked -= {key}
                state.pending.discard(key)
                self._advance(state)

    def _ask(self, state: RolloutState, graders: Sequence[BoundGrader]) -> bool:
        """Ask the graders, rules first. Returns whether one of them has answered at once."""
        graded = False
        alone = (state,)
        for grader in graders:
            if self.expired is not None:
                self._keep(state, grader, self.expired, None)
                graded = True
            elif grader.inline and not grader.too_big(state.size):
                graded |= self._grade_inline(state, grader)
            elif graded and self.tree.lazy:
                break  # the rules may have decided that this one is not needed
            elif grader.compares:
                state.group.ask(state, grader)
                self.waiting[state.group] = None
            else:
                state.pending.add(grader.name)
                self.evaluations.add(grader.pooled or grader, alone)
        return graded

    def _grade_inline(self, state: RolloutState, grader: BoundGrader) -> bool:
        """Run a rule inline. Returns False if its answer comes later."""
        answer = self.evaluations.grade_inline(grader, state)
        if answer is None:
            state.pending.add(grader.name)
            return False
        value, seconds = answer
        grade = _checked(value)
        del answer, value  # as in `grade_inline`
        self._keep(state, grader, grade, seconds)
        return True

    def _start_group_graders(self, group: Group) -> None:
        """Start the group graders for which it is decided whom they compare."""
        while (ready := group.take_ready(self.plan.deciders)) is not None:
            self._compare(group, *ready)
        if not group.waiting:
            self.waiting.pop(group, None)
        self.evaluations.start()

    def _compare(self, group: Group, grader: BoundGrader, asking: Sequence[RolloutState]) -> None:
        """Have members compared: those that still need it, for which no grade has come since that decides otherwise."""
        members = [state for state in asking if not self.tree.lazy or self._wants(state, grader)]
        values: Sequence[Any] | None = ()
        if len(members) == 1 and not grader.grades_alone:
            one = (
                "the group has one member" if group.size == 1 else "one member of the group was to be graded"
            )
            values = [Abstained(one)]
        elif members:
            values = self.results.compare(grader, members)
        if values is None:
            self.evaluations.add(grader, members)
        else:
            self._keep_all(grader, members, values, None)
        for state in asking if len(members) < len(asking) else ():
            if state not in members:
                state.pending.discard(grader.name)
                self._advance(state)

    def _wants(self, state: RolloutState, grader: BoundGrader) -> bool:
        wanted = self.tree.wanted(state.grades, state.rollout, state.group.numbers)
        return not set(grader.keys).isdisjoint(wanted)

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
            state.pending.add(
                grader.name
            )  # until its turn below: others must not start what it may need, too
        for state in states:
            state.pending.discard(grader.name)
            if not state.done and (self.tree.lazy or not state.pending):
                self._advance(state)

    def _keep(self, state: RolloutState, grader: BoundGrader, value: Any, seconds: float | None) -> None:
        """Keep a grader's answer as its grade, or as the grades of its outputs."""
        state.pending.discard(grader.name)
        if grader.outputs:
            for part, key in zip(grader.outputs, grader.keys, strict=True):
                state.grades[key] = as_grade(
                    output(value, part, grader.outputs), grader.score_range, state.rollout
                )
        else:
            state.grades[grader.name] = as_grade(value, grader.score_range, state.rollout)
        if seconds is not None:
            for timings in grader.timings:
                timings.seconds.append(seconds)

    def _finish(self, state: RolloutState) -> None:
        """Evaluate the tree: all grades are there."""
        grades = state.grades
        if len(grades) < len(self.plan.by_key):
            if state.known:  # grades that the tree does not ask for now are kept
                for key, grader in _known(state, self.plan.graders).items():
                    grades[key] = as_grade(state.known[key], grader.score_range, state.rollout)
            for key in self.plan.by_key:
                if key not in grades:
                    grades[key] = Skipped(self.tree.gate_of.get(key, ""))
        state.ev = self.tree.evaluate(grades, state.rollout, state.group.numbers)
        state.ended = time.perf_counter()
        state.done = True
        self.results.graded(state)


def _keep_in_place(results: list[RewardResult], result: RewardResult) -> None:
    results[result.index] = result


def _checked(value: Any) -> Any:
    """Return what a grader returned, or the failure that its exception is. Raises its ConfigError."""
    if isinstance(value, ConfigError):  # it would hit every other rollout too
        raise value
    return failure(value) if isinstance(value, BaseException) else value


def _known(state: RolloutState, graders: Sequence[BoundGrader]) -> dict[str, BoundGrader]:
    """Return which of the graders' missing grades the rollout came with, in the order in which they were given."""
    by_key = {key: grader for grader in graders for key in grader.keys}
    return {
        key: by_key[key]
        for key, grade in state.known.items()
        if key in by_key and key not in state.grades and not isinstance(grade, Skipped)
    }


def _lacks(state: RolloutState, grader: BoundGrader) -> bool:
    return grader.name not in state.pending and not all(key in state.grades for key in grader.keys)


async def _one_by_one(rollouts: Iterable[Rollout]) -> AsyncIterator[Rollout]:
    """Read a synchronous iterator as it goes, and close it."""
    source = iter(rollouts)
    try:
        for rollout in source:
            yield rollout
    finally:
        if callable(close := getattr(source, "close", None)):
            close()


@asynccontextmanager
async def _closed_at_the_end(source: AsyncIterable[Rollout]) -> AsyncIterator[AsyncIterator[Rollout]]:
    """Iterate over *source*, and close the iterator if it can be closed."""
    members: Any = aiter(source)
    if hasattr(members, "aclose"):
        async with aclosing(members):
            yield members
    else:
        yield members


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end, whatever cancels the caller meanwhile."""
    cancelled: BaseException | None = None
    if not task.done():
        task.cancel()
    while not task.done():
        try:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if not task.cancelled():
        task.exception()  # marks it as seen: it was raised already, or the caller has left
    if cancelled is not None:
        raise cancelled


def _in_fair_order(
    rollouts: Sequence[Rollout], groups: Sequence[Sequence[int]]
) -> Iterator[tuple[Group, int]]:
    """Yield rollouts of a few groups in turn, so that early groups end early and a huge one holds up no other."""
    if len(groups) == 1:  # as most hosts hand them over
        (only,) = groups
        yield from zip(itertools.repeat(Group(group_id(rollouts[only[0]]), only[0], len(only))), only)
        return
    waiting = iter(groups)
    window: deque[tuple[Group, Iterator[int]]] = deque()
    while True:
        while len(window) < _WINDOW and (members := next(waiting, None)) is not None:
            first = members[0]
            window.append((Group(group_id(rollouts[first]), first, len(members)), iter(members)))
        if not window:
            return
        group, left = window.popleft()
        index = next(left, None)
        if index is not None:
            window.append((group, left))
            yield group, index
