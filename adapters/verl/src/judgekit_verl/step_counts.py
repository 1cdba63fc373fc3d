"""Collects the counts of all reward workers in a named Ray actor, for the driver.

verl does not show a worker's failures to the driver: with V1 an exception in one rollout only makes the batch
smaller. So workers send their counts here, and the hook in the driver reads them once per step.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import ray
from msgspec import Struct

from judgekit import AuditAlarm, FailureRateError
from judgekit.trainers import AuditBeside, Counts, StepCounts, check_failure_rate

logger = logging.getLogger("judgekit")
NAME = "judgekit-verl-counts"
_QUIET = 2
"""Polls after which a complete step is reported."""


_kept: list[Any] = []


class Taken(Struct, frozen=True, kw_only=True):
    """What the workers counted since the driver last asked."""

    counts: Counts
    training: Counts
    """Of the rollouts that the policy is trained on, without validation's."""
    fatal: str
    """Why the training must end, if it must."""


class _StepCounts:
    """The actor's state: counts since the driver last asked."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget what an earlier training in this cluster left."""
        self._counts = Counts()
        self._training = Counts()
        self._step = Counts()
        self._last_step: Counts | None = None
        self._fatal = ""

    def add(self, counts: Counts, training: bool = True) -> None:
        self._counts.merge(counts)
        if training:
            self._training.merge(counts)
            self._step.merge(counts)

    def last_step(self, rollouts: int) -> dict[str, float]:
        """The figures of the last so many rollouts for training, or of what there is so far."""
        if self._step.rollouts >= rollouts:
            self._last_step, self._step = self._step, Counts()
        return (self._last_step or self._step).figures()

    def fatal(self, reason: str) -> None:
        self._fatal = self._fatal or reason

    def ended(self) -> str:
        """Why the training must end, if it must."""
        return self._fatal

    def take(self) -> Taken:
        taken = Taken(counts=self._counts, training=self._training, fatal=self._fatal)
        self._counts, self._training = Counts(), Counts()
        return taken


def counts_actor() -> Any:
    """Return this cluster's actor; the first caller creates it."""
    actor = (
        ray.remote(_StepCounts).options(name=NAME, get_if_exists=True, num_cpus=0, max_restarts=-1).remote()
    )
    _kept.append(actor)  # Ray ends a named actor when its creator drops the handle
    return actor


class StepWatch:
    """In the driver: reports each step as soon as all its rollouts are counted.

    verl's V1 trainer enters our code only when it asks for a step's rollouts, so a thread reads the counts meanwhile:
    the last step is told as well, and a worker that cannot go on is told before verl stops for want of rollouts. What
    must end the training is raised by `begin`, in the trainer's own thread.
    """

    _newest: StepWatch | None = None
    """Of this process: reading takes the counts away, so that an earlier one must not go on."""

    def __init__(
        self,
        actor: Any,
        max_failure_rate: float | None,
        *,
        every_s: float = 1.0,
        audits: AuditBeside | None = None,
    ) -> None:
        StepWatch._newest = self
        self._audits = audits
        self._audited: dict[str, float] = {}
        self._actor = actor
        self._steps = StepCounts(max_failure_rate)
        self._every_s = every_s
        self._expected = 0
        self._per_step = 0
        """Rollouts of a step, for trainers that do not say when one begins."""
        self._training = Counts()
        """Since `figures` was last called."""
        self._quiet = 0
        """Polls since all that was asked for has been counted."""
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, step: Any, rollouts: int) -> None:
        """Say that this many rollouts of *step* are asked for from now on. Raises FailureRateError, AuditAlarm, RuntimeError."""
        with self._lock:
            self._read()
            if step != self._steps.step:
                self._audit()
            if self._error is None and step != self._steps.step:
                self._expected = 0
                self._try(lambda: self._steps.begin(step))
            self._expected += rollouts
            self._quiet = 0
            if self._error is not None:
                raise self._error
        self._start()

    def follow(self, rollouts: int) -> None:
        """Count so many rollouts as a step. What must end the training reaches the agent-loop workers, who raise it."""
        self._per_step = rollouts
        self._start()

    def figures(self) -> dict[str, float]:
        """The figures of the rollouts for training that were graded since the last call, for the trainer's metrics."""
        with self._lock:
            self._read()
            training, self._training = self._training, Counts()
        return {**training.figures(), **self._audited}

    @classmethod
    def newest(cls) -> StepWatch | None:
        """The watch of this process, if it drives the rollouts."""
        return cls._newest

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="judgekit-steps", daemon=True)
            self._thread.start()

    def poll(self) -> None:
        """Read the counts; report the step if it is complete."""
        with self._lock:
            if self is not StepWatch._newest:
                return
            self._read()
            if 0 < self._per_step <= self._steps.rollouts and self._error is None:
                self._try(self._steps.end)
                self._audit()
                if self._error is not None:
                    ray.get(self._actor.fatal.remote(str(self._error)))
                return
            complete = 0 < self._expected <= self._steps.rollouts
            self._quiet = self._quiet + 1 if complete else 0
            if (
                self._error is None and self._quiet == _QUIET
            ):  # asynchronous trainers ask for a step in many batches
                self._try(self._steps.report)

    def _read(self) -> None:
        taken: Taken = ray.get(self._actor.take.remote())
        self._steps.add(taken.counts)
        self._training.merge(taken.training)
        if taken.fatal and self._error is None:
            self._error = RuntimeError(f"judgekit: a reward worker cannot go on: {taken.fatal}")
            logger.error("%s", self._error)

    def _audit(self) -> None:
        """Read what audits have found since."""
        if self._audits is not None and self._error is None:
            self._try(self._read_audits)

    def _read_audits(self) -> None:
        assert self._audits is not None
        self._audited = self._audits.figures()

    def _try(self, call: Any) -> None:
        try:
            call()
        except (FailureRateError, AuditAlarm) as error:
            self._error = error
            logger.error("%s", error)

    def _follow(self) -> None:
        pause = threading.Event()
        while self._error is None and self is StepWatch._newest:
            pause.wait(self._every_s)
            try:
                self.poll()
            except Exception as error:  # Ray has been shut down, or the actor with it
                logger.debug("judgekit no longer reads the steps' counts: %s", error)
                return


def report(counts: Counts, fatal: str, max_failure_rate: float | None) -> None:
    """Log the driver's line. Raises FailureRateError or RuntimeError if the training must end."""
    if fatal:
        raise RuntimeError(f"judgekit: a reward worker cannot go on: {fatal}")
    if counts.rollouts:
        logger.log(logging.WARNING if counts.unusual else logging.INFO, "%s", counts.line())
        check_failure_rate(counts, max_failure_rate)
