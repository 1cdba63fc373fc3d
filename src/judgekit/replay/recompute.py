"""Recomputes rewards from a ledger's grades, with other weights, transforms and settings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from judgekit.errors import ConfigError, DataError, did_you_mean
from judgekit.execution.background import run_blocking
from judgekit.ledger.reader import Reading, read_ledger
from judgekit.ledger.schema import Entry, Spec
from judgekit.ledger.writer import Ledger
from judgekit.replay.groups import recorded_groups
from judgekit.reward.nodes import Node, Range, Switch, Weighted, as_node, score_names, walk
from judgekit.reward.spec import parse
from judgekit.reward.transforms import TransformName
from judgekit.run.runner import GradingRunner
from judgekit.run.settings import MissingReward
from judgekit.types import Failed, Grade, RewardResult, Rollout, Skipped


class Replay(Struct, frozen=True):
    """Recomputed rewards: `results[i]` belongs to `entries[i]`."""

    entries: Sequence[Entry]
    results: Sequence[RewardResult]
    spec: Spec
    """How the rewards were recomputed."""

    def write(self, ledger: Ledger) -> None:
        """Write the recomputed rewards to another ledger, as for a comparison, with all grades that this one holds."""
        ledger.begin(self.spec)
        for entry, result in zip(self.entries, self.results, strict=True):
            names = ("reward", "status", "raw_reward", "contributions", "missing", "policies")
            changes = {name: getattr(result, name) for name in names}
            grades = {**result.grades, **entry.grades}
            ledger.write(msgspec.structs.replace(entry, spec=self.spec.digest, grades=grades, **changes))


def replay(
    ledger: str | os.PathLike[str] | Reading,
    reward: Node | Mapping[str, float] | str | None = None,
    *,
    transform: TransformName | None = None,
    missing_reward: MissingReward | None = None,
) -> Replay:
    """Recompute the rewards of a ledger's rollouts from its grades.

    *reward*, *transform*, *missing_reward*: as in GradingRunner; None keeps the ledger's. A grade that the new reward
    needs and a rollout lacks (its gate was not passed) has failed with "NotRecorded"; `FailedOnce` asks for failed
    grades.

    Raises DataError if the ledger cannot be read, or lacks what a switch reads, and ConfigError if the reward names a
    grade that the ledger does not have.
    """
    reading = ledger if isinstance(ledger, Reading) else read_ledger(ledger)
    if not reading.entries:
        raise DataError("the ledger holds no rollouts")
    spec = reading.specs.get(reading.entries[-1].spec)
    if spec is None:
        raise DataError("the ledger does not say how its last rollout was graded: its spec line is missing")
    if reward is None:
        root = parse(spec.reward)
    else:
        root = Weighted(reward) if isinstance(reward, Mapping) else as_node(reward)
    _check_switches(root, reading)
    known = {name: g for s in reading.specs.values() for name, g in s.graders.items()}
    graders: dict[str, _Recorded] = {}
    for key in score_names(root):
        if key not in known:
            raise ConfigError(
                f"the reward names {key!r}, which the ledger holds no grades of{did_you_mean(key, known)}"
            )
        name, _, part = key.partition(".")
        recorded = graders.setdefault(name, _Recorded(name, known[key].version, known[key].bounds()))
        if part:
            recorded.outputs += (part,)
    runner = GradingRunner(
        graders,
        root,
        transform=spec.transform if transform is None else transform,  # type: ignore[arg-type]
        missing_reward=spec.missing_reward if missing_reward is None else missing_reward,
    )
    results: list[Any] = [None] * len(reading.entries)
    for members in reading.runs():  # run by run: a fill is the mean of its own run
        groups = recorded_groups(reading.entries, members)
        rollouts = [[_rollout(reading.entries[i]) for i in group] for group in groups]
        for group, found in zip(groups, run_blocking(runner.run_groups(rollouts)), strict=True):
            for i, result in zip(group, found, strict=True):
                results[i] = msgspec.structs.replace(result, index=i)
    made = runner.spec
    spec = Spec.of(
        known,
        reward=made.reward,
        transform=made.transform,
        missing_reward=made.missing_reward,
    )
    return Replay(reading.entries, results, spec)


def _check_switches(root: Node, reading: Reading) -> None:
    """Raise DataError if a switch reads a field that the ledger does not hold."""
    for node in walk(root):
        field = node.by.partition(".")[0] if isinstance(node, Switch) else ""
        if field in _TEXTS and any(entry.response is None for entry in reading.entries):
            raise DataError(
                f"the reward switches by {field}, which this ledger does not hold (Ledger(texts=True) keeps it)"
            )


_TEXTS = ("prompt", "messages", "response", "ground_truth", "extra")


class _Recorded:
    """A grader that returns the ledger's grade."""

    def __init__(self, name: str, version: str, score_range: Range) -> None:
        self.name = name
        self.version = version
        self.score_range = score_range
        self.outputs: tuple[str, ...] = ()

    def grade(self, rollout: Rollout, /) -> Any:
        recorded: Mapping[str, Grade] = rollout.extra[_GRADES]
        grades = {name: grade for name, grade in recorded.items() if not isinstance(grade, Skipped)}
        if self.outputs:
            return {part: grades.get(f"{self.name}.{part}", _NOT_RECORDED) for part in self.outputs}
        return grades.get(self.name, _NOT_RECORDED)


_GRADES = "judgekit recorded grades"
_NOT_RECORDED = Failed("NotRecorded", "the ledger holds no such grade of this rollout")


def _rollout(entry: Entry) -> Rollout:
    return msgspec.structs.replace(entry.to_rollout(), extra={**entry.extra, _GRADES: entry.grades})
