"""Asks for a ledger's failed grades again, and takes all others from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from judgekit.errors import ConfigError, DataError, FailureRateError, did_you_mean
from judgekit.ledger.reader import Reading
from judgekit.ledger.schema import RESUMES, Entry, logger
from judgekit.replay.recorded_groups import recorded_groups, recorded_rollout
from judgekit.replay.resume import failed, take
from judgekit.run.bound_grader import BoundGrader
from judgekit.run.results import KnownGrades
from judgekit.run.runner import GradingRunner
from judgekit.types import Grade, RewardResult, Rollout, Skipped


class Again(Struct, frozen=True):
    """Rewards after failed grades were asked for again: `results[i]` belongs to `entries[i]`."""

    entries: Sequence[Entry]
    results: Sequence[RewardResult]
    asked: int
    """Number of rollouts of which at least one grade was asked for."""
    still_failed: int
    """Number of rollouts of which a grade has failed again."""
    excess: FailureRateError | None = None
    """Set if more grades failed again than the runner's `max_failure_rate` allows."""


class FailedOnce:
    """The failed grades of a ledger, and the runner that asks for them again.

    Grades that failed because of the rollout count as graded. A group grader that failed on one member is asked about
    the whole group. Skipped grades are asked for if their gate passes now.

    *new*: ask graders that the ledger has no grades of, too. Raises DataError if the ledger lacks the texts of a rollout that
    must be graded, and ConfigError if it has no grades of one of the runner's graders, or those of another version: then
    there is more to ask for than failures.
    """

    def __init__(self, reading: Reading, runner: GradingRunner, *, new: bool = False) -> None:
        reading = _with_texts(reading)
        if not reading.entries:
            raise DataError("the ledger holds no rollouts")
        self._entries = reading.entries
        self._runner = runner
        self.changed = self._check_graders(reading, new=new)
        """Graders whose settings have changed since: their new grades stand beside those of the ledger."""
        self._runs = [recorded_groups(reading.entries, run) for run in reading.runs()]
        self._rollouts = [recorded_rollout(entry) for entry in reading.entries]
        self._known = [KnownGrades() for _ in reading.entries]
        for entry, known in zip(reading.entries, self._known, strict=True):
            take(known, entry, runner, runner.spec.graders)
            if entry.response is None and not runner.spec.graders.keys() <= known.names():
                raise DataError(_NO_TEXTS)
        if any(entry.response is None for entry in reading.entries):
            self._runner = runner.with_calls(_not_called)
        self.failed = sum(any(map(failed, entry.grades.values())) for entry in reading.entries)
        """Number of rollouts with a grade to ask for."""

    def _check_graders(self, reading: Reading, *, new: bool) -> Sequence[str]:
        held = {name for entry in reading.entries for name in entry.grades}
        changed: set[str] = set()
        for name, grader in self._runner.spec.graders.items():
            if name not in held and not new:
                raise ConfigError(
                    f"the ledger holds no grades of {name!r}, and only failed grades are asked again{did_you_mean(name, held)}"
                )
            for spec in reading.specs.values():
                other = spec.graders.get(name)
                if other is not None and not other.same_as(grader):
                    raise ConfigError(
                        f"the ledger's grades of {name!r} are of version {other.version} and range {other.bounds()}, and this "
                        f"grader is {grader.version} with {grader.bounds()}: they cannot be mixed"
                    )
                if other is not None and other.fingerprint and not other.same_settings(grader):
                    changed.add(name)
        return [name for name in self._runner.spec.graders if name in changed]

    async def ask(self) -> Again:
        """Ask run by run, since a fill is the mean of its own run."""
        results: list[Any] = [None] * len(self._entries)
        excess: FailureRateError | None = None
        for groups in self._runs:
            members = sorted((i for group in groups for i in group), key=lambda i: self._entries[i].index)
            place = {i: at for at, i in enumerate(members)}
            tags = {k: v for k, v in self._entries[members[0]].tags.items() if k != RESUMES}
            try:
                made: Sequence[RewardResult] = await self._runner.run(
                    [self._rollouts[i] for i in members],
                    tags=tags,
                    known=[self._known[i] for i in members],
                    groups=[[place[i] for i in group] for group in groups],
                )
            except FailureRateError as error:
                excess, made = error, error.results
            for i, result in zip(members, made, strict=True):
                results[i] = msgspec.structs.replace(result, index=i)
        asked = sum(
            any(
                not (isinstance(grade, Skipped) or _had(known, name, grade))
                for name, grade in result.grades.items()
            )
            for known, result in zip(self._known, results, strict=True)
        )
        still = sum(any(map(failed, result.grades.values())) for result in results)
        return Again(self._entries, results, asked, still, excess)


def _with_texts(reading: Reading) -> Reading:
    """Leave out groups of which a killed process has left grades alone, without the texts that the rest needs."""
    entries = reading.entries
    if not any(entry.status == "unfinished" and entry.response is None for entry in entries):
        return reading
    left: list[int] = []
    for run in reading.runs():
        for group in recorded_groups(entries, run):
            if all(entries[i].status != "unfinished" or entries[i].response is not None for i in group):
                left += group
    logger.warning(
        "%d rollouts are left out: their process was killed before they were finished. Resume its run to grade them",
        len(entries) - len(left),
    )
    return msgspec.structs.replace(reading, entries=[entries[i] for i in sorted(left)])


_NO_TEXTS = (
    "grading again needs the rollouts' texts, which this ledger does not hold (Ledger(texts=True) keeps them)"
)


def _not_called(grader: BoundGrader) -> Any:
    """Let no grader compare rollouts without their texts, as it would where the reward asks it about others than before."""
    if not grader.compares:
        return grader.call

    def call(rollouts: Sequence[Rollout], /) -> Any:
        raise ConfigError(_NO_TEXTS)

    return call


def _had(known: KnownGrades, name: str, grade: Grade) -> bool:
    calls = known.compared.get(name.partition(".")[0], {}).values()
    return name in known or any(given.get(name) is grade for given in calls)
