"""Recomputes rewards from a ledger's grades, with other weights, transforms and settings."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from judgekit.errors import ConfigError, DataError, did_you_mean
from judgekit.execution.background import run_blocking
from judgekit.graders.trust import Thresholds, with_trust
from judgekit.ledger.reader import Reading, read_ledger
from judgekit.ledger.schema import TEXTS, Entry, GraderSpec, Spec
from judgekit.ledger.standing import Standing
from judgekit.ledger.writer import Ledger
from judgekit.replay.recorded_groups import recorded_groups, recorded_rollout
from judgekit.reward.explain import FILLED_BY_RUN
from judgekit.reward.nodes import Node, Range, Switch, Weighted, as_node, score_names, walk
from judgekit.reward.spec import parse
from judgekit.reward.transforms import TransformName
from judgekit.run.runner import GradingRunner
from judgekit.run.settings import MissingReward
from judgekit.types import Failed, Grade, Graded, Message, RewardResult, Rollout, Skipped


class Replay(Struct, frozen=True):
    """Recomputed rewards: `results[i]` belongs to `entries[i]`."""

    entries: Sequence[Entry]
    results: Sequence[RewardResult]
    specs: Mapping[str, Spec]
    """How the rewards were recomputed, by the digest of the spec that the entry has."""

    def write(self, ledger: Ledger) -> None:
        """Write the recomputed rewards to another ledger, as for a comparison, with all grades that this one holds.

        Blocks while the disk is behind.
        """
        for spec in self.specs.values():
            ledger.begin(spec)
        for number, (entry, result) in enumerate(zip(self.entries, self.results, strict=True)):
            if number % _LINES == 0:
                ledger.flush()
            changes = {name: getattr(result, name) for name in _RECOMPUTED}
            kept = {k: g for k, g in entry.grades.items() if not isinstance(g, Skipped)}
            grades = {**entry.grades, **result.grades, **kept}
            digest = self.specs[entry.spec].digest
            ledger.write(msgspec.structs.replace(entry, spec=digest, grades=grades, **changes))


def replay(
    ledger: str | os.PathLike[str] | Reading,
    reward: Node | Mapping[str, float] | str | None = None,
    *,
    transform: TransformName | None = None,
    missing_reward: MissingReward | None = None,
    drop_if: str | None = None,
    trust: Mapping[str, tuple[float, float] | None] = {},
) -> Replay:
    """Recompute the rewards of a ledger's rollouts from its grades.

    *reward*, *transform*, *missing_reward*, *drop_if*: as in GradingRunner; None keeps what each rollout was graded with, and an
    empty *drop_if* drops no group. *trust*: for
    graders, the scores up to which and from which on they are trusted now; None takes every score. A grade that the
    new reward needs and a rollout lacks (its gate was not passed) has failed with "NotRecorded"; `FailedOnce` asks for
    failed grades. An unfinished rollout stays unfinished, without a reward.

    Raises DataError if the ledger cannot be read, or lacks what a switch reads, and ConfigError if the reward names a
    grade that the ledger does not have.
    """
    # groups are compared whole, also where another run has replaced a part of one
    reading = ledger if isinstance(ledger, Reading) else read_ledger(ledger, replaced=True)
    entries = reading.entries
    left_out = Standing.of(entries).replaced
    kept = [i for i in range(len(entries)) if i not in left_out]
    if not kept:
        raise DataError("the ledger holds no rollouts")
    last = reading.specs.get(entries[kept[-1]].spec)
    if last is None:
        raise DataError("the ledger does not say how its last rollout was graded: its spec line is missing")
    given = None if reward is None else _node(reward)
    if trust := _changed(reading, trust):
        reading = _trusted(reading, trust)
        entries = reading.entries
    settings: dict[str, Any] = {
        "transform": transform,
        "missing_reward": missing_reward,
        "drop_if": drop_if,
    }
    ways: dict[str, _Ways] = {}
    for digest in dict.fromkeys(entry.spec for entry in entries):
        own = reading.specs.get(digest, last)
        ways[digest] = _Ways(
            reading.specs,
            parse(own.reward) if given is None else given,
            **{name: getattr(own, name) if value is None else value for name, value in settings.items()},
            trust=trust,
        )
        _check_switches(ways[digest].root, [entries[i] for i in kept if entries[i].spec == digest])
    results = _recomputed(reading, left_out, ways)
    return Replay(
        [entries[i] for i in kept],
        [msgspec.structs.replace(results[i], index=at) for at, i in enumerate(kept)],
        {digest: ways[digest].spec(digest) for digest in dict.fromkeys(entries[i].spec for i in kept)},
    )


def _changed(reading: Reading, trust: Mapping[str, Thresholds | None]) -> Mapping[str, Thresholds | None]:
    """Return those of *trust* that are not how the ledger's graders were trusted. Raises ConfigError for a grader it does not have."""
    graders = [(name, one) for spec in reading.specs.values() for name, one in spec.graders.items()]
    held = {name for name, _ in graders}
    for name in trust:
        if name not in held:
            raise ConfigError(f"trust: the ledger holds no grades of {name!r}{did_you_mean(name, held)}")
    return {name: trust[name] for name, one in graders if name in trust and one.trust != trust[name]}


def _trusted(reading: Reading, trust: Mapping[str, Thresholds | None]) -> Reading:
    """Return the ledger as it would be if graders had been trusted otherwise."""
    entries = []
    for entry in reading.entries:
        changed = {
            name: with_trust(grade, trust[name]) for name, grade in entry.grades.items() if name in trust
        }
        entries.append(
            msgspec.structs.replace(entry, grades={**entry.grades, **changed}) if changed else entry
        )
    return msgspec.structs.replace(reading, entries=entries)


def _node(reward: Node | Mapping[str, float] | str) -> Node:
    return Weighted(reward) if isinstance(reward, Mapping) else as_node(reward)


def _recomputed(
    reading: Reading, left_out: Collection[int], ways: Mapping[str, _Ways]
) -> dict[int, RewardResult]:
    """Return the new result of each entry, run by run: a fill is the mean of its own run."""
    entries = reading.entries
    results: dict[int, RewardResult] = {}
    for run in reading.runs():
        if all(i in left_out for i in run):
            continue
        results.update((i, _unfinished(entries[i])) for i in run if entries[i].status == "unfinished")
        groups = recorded_groups(entries, [i for i in run if i not in results])
        way = ways[entries[run[0]].spec]
        runner = way.runner(entries[run[0]].spec)
        members = [[_with_grades(entries[i]) for i in group] for group in groups]
        made = run_blocking(runner.run_groups(members, tags=entries[run[0]].tags))
        for group, found in zip(groups, made, strict=True):
            results.update((i, way.as_filled(entries[i], one)) for i, one in zip(group, found, strict=True))
    return results


class _Ways:
    """How the rewards are recomputed, for each of the ledger's specs: a grader's range may differ between them."""

    def __init__(
        self,
        specs: Mapping[str, Spec],
        root: Node,
        *,
        transform: Any,
        missing_reward: Any,
        drop_if: str | None,
        trust: Mapping[str, Thresholds | None],
    ) -> None:
        self._specs = specs
        self._trust = trust
        self._all = {name: grader for spec in specs.values() for name, grader in spec.graders.items()}
        self.root = root
        self._settings = {
            "transform": transform,
            "missing_reward": missing_reward,
            "drop_if": drop_if or None,
        }
        self._names = score_names(root)
        for name in self._names:
            if name not in self._all:
                raise ConfigError(
                    f"the reward names {name!r}, which the ledger holds no grades of{did_you_mean(name, self._all)}"
                )
        self._runners: dict[Any, GradingRunner] = {}

    def _graders(self, digest: str) -> dict[str, GraderSpec]:
        own = self._specs.get(digest)
        return self._all if own is None else {**self._all, **own.graders}

    def runner(self, digest: str) -> GradingRunner:
        """Return the runner for rollouts of a spec; specs with equal ranges share it."""
        known = self._graders(digest)
        ranges = tuple(known[name].bounds() for name in self._names)
        if ranges not in self._runners:
            graders: dict[str, _Recorded] = {}
            for key in self._names:
                name, _, part = key.partition(".")
                recorded = graders.setdefault(name, _Recorded(name, known[key].version, known[key].bounds()))
                if part:
                    recorded.outputs += (part,)
            self._runners[ranges] = GradingRunner(graders, self.root, **self._settings)
        return self._runners[ranges]

    def spec(self, digest: str) -> Spec:
        """Describe how rollouts of a spec are rewarded now."""
        graders = {
            name: msgspec.structs.replace(one, trust=self._trust.get(name, one.trust))
            for name, one in self._graders(digest).items()
        }
        return Spec.of(graders, reward=self.root.spec(), **self._settings)

    def as_filled(self, entry: Entry, result: RewardResult) -> RewardResult:
        """Keep the fill that the run gave for want of any reward in the group, if nothing else is asked for.

        The run may have taken the mean of runs before it, of which the ledger need not know.
        """
        own = self._specs.get(entry.spec)
        if own is None or FILLED_BY_RUN not in entry.policies or FILLED_BY_RUN not in result.policies:
            return result
        settings = {name: getattr(own, name) for name in self._settings}
        same = settings == self._settings and parse(own.reward).spec() == self.root.spec() and not self._trust
        return msgspec.structs.replace(result, reward=entry.reward) if same else result


def _unfinished(entry: Entry) -> RewardResult:
    return RewardResult(
        index=entry.index,
        group=entry.to_rollout().group,
        reward=None,
        status="unfinished",  # type: ignore[arg-type]
        raw_reward=None,
        contributions={},
        grades=entry.grades,
    )


def _check_switches(root: Node, entries: Sequence[Entry]) -> None:
    """Raise DataError if a switch reads a field that the ledger does not hold."""
    for node in walk(root):
        field = node.by.partition(".")[0] if isinstance(node, Switch) else ""
        if field in TEXTS and any(entry.response is None for entry in entries):
            raise DataError(
                f"the reward switches by {field}, which this ledger does not hold (Ledger(texts=True) keeps it)"
            )


_RECOMPUTED = (
    "reward",
    "status",
    "raw_reward",
    "contributions",
    "turns",
    "group_numbers",
    "missing",
    "policies",
)
_LINES = 10_000
"""Lines that are handed to a ledger before they are waited for."""


class _Recorded:
    """A grader that returns the ledger's grade."""

    breakable = False  # the run that wrote the ledger has asked

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


def _with_grades(entry: Entry) -> Rollout:
    rollout = recorded_rollout(entry)
    return msgspec.structs.replace(
        rollout,
        extra={**entry.extra, _GRADES: entry.grades},
        messages=rollout.messages or _turns_of(entry),
    )


def _turns_of(entry: Entry) -> list[Message]:
    """Return messages that stand for the policy's turns, of a ledger that keeps no texts."""
    graded = [grade.turns for grade in entry.grades.values() if isinstance(grade, Graded) and grade.turns]
    count = max(map(len, (entry.turns, *graded)))
    return [{"role": role} for _ in range(count) for role in ("assistant", "tool")]
