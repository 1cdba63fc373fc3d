"""Grades the blocks of a job in Ray actors, which may die.

Plain actors, not Ray Data's: a block is read, graded and written in one place, so that nothing flows between stages, and an actor
starts in half the time.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

from judgekit.data.blocks import Block
from judgekit.data.job import BlockGrader, Job, Outcome
from judgekit.errors import ConfigError, JudgekitError
from judgekit.execution.background import run_blocking

logger = logging.getLogger("judgekit")

_PER_CALL = 16
"""Blocks that an actor gets at once, at most: they follow one another, and are read in one pass over their file."""
_AHEAD = 2
"""Calls that an actor has: one waits there while the other is worked on."""
_DEATHS = 5
"""How often a block's actor may die."""
_SILENT_S = 30.0


class JobActor:
    """One actor of a job, with one runner."""

    def __init__(self, job: bytes) -> None:
        self._job: Job = pickle.loads(job)
        self._grader: BlockGrader | None = None

    def ready(self) -> None:
        """Answers once the actor is there."""

    def grade(self, blocks: list[Block]) -> list[Outcome]:
        """Grade blocks that follow one another."""
        try:
            if self._grader is None:
                self._grader = BlockGrader(self._job)
            return run_blocking(self._grader.grade(blocks))
        except ConfigError as error:  # ours to tell, not Ray's with a traceback
            return [Outcome(blocks[0].name, 0, error=error)]

    def close(self) -> None:
        """Close the runner."""
        if self._grader is not None:
            run_blocking(self._grader.close())


class JobActors:
    """Grades *blocks* in so many actors. `outcomes` yields what became of each, in any order.

    An actor that dies, or whose node does, is started again, elsewhere if need be; what it had in hand is graded again, by
    whichever actor is free. The last calls are small, so that all actors end at about the same time.
    """

    def __init__(self, ray: Any, job: Job, blocks: Sequence[Block], *, actors: int, cpus: float) -> None:
        self._ray = ray
        self._todo = deque(blocks)
        given = pickle.dumps(job.without_blocks())
        actor = ray.remote(JobActor).options(num_cpus=cpus, max_restarts=-1)
        self._actors = [actor.remote(given) for _ in range(actors)]
        self._away: set[int] = set()
        """Actors that died, and are being started again."""
        self._calls: dict[Any, tuple[int, list[Block]]] = {}
        """What is asked of actors: of which, and for which blocks; none where it is only whether it is there."""
        self._deaths: Counter[str] = Counter()
        self._cpus = cpus

    def outcomes(self) -> Iterator[Outcome]:
        """Grade. Raises JudgekitError if actors keep dying with a block."""
        try:
            self._feed()
            answered = False
            while self._calls:
                done, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=_SILENT_S)
                if not done and not answered:  # said once
                    answered = True
                    logger.warning(
                        "no actor has answered for %.0f s: each needs %g free CPUs of the cluster",
                        _SILENT_S,
                        self._cpus,
                    )
                for call in done:
                    found = self._take(call)
                    self._feed()
                    answered = True
                    yield from found
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.get([actor.close.remote() for actor in self._actors], timeout=10)
        finally:
            for actor in self._actors:
                self._ray.kill(actor)

    def _feed(self) -> None:
        """Give blocks to the actors with the least work."""
        load = Counter(number for number, _ in self._calls.values())
        for most in range(1, _AHEAD + 1):
            for number, actor in enumerate(self._actors):
                if not self._todo or number in self._away or load[number] >= most:
                    continue
                size = max(1, min(_PER_CALL, len(self._todo) // (2 * _AHEAD * len(self._actors))))
                blocks = [self._todo.popleft() for _ in range(min(size, len(self._todo)))]
                self._calls[actor.grade.remote(blocks)] = number, blocks
                load[number] += 1

    def _take(self, call: Any) -> list[Outcome]:
        """What a call that is over has brought."""
        number, blocks = self._calls.pop(call)
        errors = self._ray.exceptions
        try:
            found: list[Outcome] | None = self._ray.get(call)
        except (errors.RayActorError, errors.WorkerCrashedError, errors.OutOfMemoryError) as error:
            self._died(number, blocks, error)
            return []
        if not blocks:
            self._away.discard(number)
            self._deaths.pop(f"actor {number}", None)
        return found or []

    def _died(self, number: int, blocks: list[Block], error: Exception) -> None:
        """Put blocks back, and wait for the actor."""
        self._todo.extendleft(reversed(blocks))
        what = [block.name for block in blocks] or [f"actor {number}"]
        self._deaths.update(what)
        if self._deaths[what[0]] >= _DEATHS:
            whose = f"the actor of {what[0]} has died" if blocks else "an actor has not started"
            raise JudgekitError(
                f"{whose} {_DEATHS} times ({str(error).splitlines()[0]}): look at Ray's logs for the reason, such as too "
                "little memory, and --resume"
            )
        if not blocks:  # it died again
            time.sleep(1.0)
        if number not in self._away or not blocks:
            self._away.add(number)
            there = self._actors[number].ready.options(max_task_retries=-1).remote()
            self._calls[there] = number, []
