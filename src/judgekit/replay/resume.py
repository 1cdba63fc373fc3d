"""Resumes a run that ended early: takes known grades from its ledger, so that nothing is paid for twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import msgspec
from msgspec import Struct

from judgekit.ledger.jsonl import encoded
from judgekit.ledger.reader import Reading
from judgekit.ledger.schema import Entry
from judgekit.ledger.writer import rollout_digest
from judgekit.replay.groups import Member, comparing, recorded_groups, take_comparisons
from judgekit.run.grouping import group_by_prompt, group_id
from judgekit.run.runner import GradingRunner
from judgekit.types import Failed, Grade, Rollout, Skipped


class Known(Struct, frozen=True):
    """The grades that a ledger holds of some rollouts."""

    grades: Sequence[Mapping[str, Grade]]
    """Each rollout's grades, for `GradingRunner.run(known=…)`."""
    rollouts: int
    """Number of rollouts with at least one grade."""
    runs: Sequence[str]
    """The runs that gave them, which a new run replaces (tag `RESUMES`)."""
    others: int
    """Number of entries without a grade of the runner's graders, as they are set now."""
    changed: Sequence[str]
    """Graders that these rollouts were graded with by another version or with other settings, and that are asked again."""


def known_grades(reading: Reading, runner: GradingRunner, rollouts: Sequence[Rollout]) -> Known:
    """Return the grades that a ledger holds of *rollouts*, also of runs that ended early.

    A rollout is recognised by its id, its group, and a digest of everything that graders can read. Scores, abstentions
    and failures that the rollout caused are taken. Other failures and skipped grades are asked for again, and so are
    grades of another version of a grader, of a grader with other settings (its fingerprint), and of a group grader
    that compared other members than it would now. Equal rollouts have a grade each, in their order.
    """
    ours = runner.spec.graders
    same, other = {}, {}
    for digest, spec in reading.specs.items():
        shared = ours.keys() & spec.graders.keys()
        same[digest] = {name for name in shared if spec.graders[name].same_settings(ours[name])}
        other[digest] = shared - same[digest]
    of_groups = {key for keys in comparing(runner).values() for key in keys}
    found: dict[Hashable, list[dict[str, Grade]]] = {}
    """Each rollout's grades, and those of its equals in the order of their indices."""
    recorded: dict[bytes, list[list[Member]]] = {}
    runs: dict[Hashable, list[str]] = {}
    changed: dict[Hashable, set[str]] = {}
    others = 0
    for run in sorted(reading.runs(), key=min):  # later ones last: their grades count
        members: dict[int, Member] = {}
        seen: Counter[Hashable] = Counter()
        for i in run:
            entry = reading.entries[i]
            key = entry.rollout
            changed.setdefault(key, set()).update(other.get(entry.spec, ()))
            if not same.get(entry.spec):
                others += 1
                continue
            kept = {name: grade for name, grade in lasting(entry).items() if name in same[entry.spec]}
            equals = found.setdefault(key, [])
            if seen[key] == len(equals):
                equals.append({})
            equals[seen[key]].update((name, grade) for name, grade in kept.items() if name not in of_groups)
            seen[key] += 1
            runs.setdefault(key, []).append(entry.run)
            members[i] = Member(key, entry, kept)
        for group in recorded_groups(reading.entries, list(members)) if of_groups else ():
            of_group = recorded.setdefault(encoded(reading.entries[group[0]].group), [])
            of_group.append([members[i] for i in group])
    keys = [(r.id, encoded(group_id(r)), rollout_digest(r)) for r in rollouts]
    waiting = {key: iter(equals) for key, equals in found.items()}
    grades = [dict(next(waiting.get(key, iter(())), {})) for key in keys]
    for group in group_by_prompt(rollouts) if of_groups else ():
        take_comparisons(
            runner,
            [rollouts[i] for i in group],
            [keys[i] for i in group],
            [grades[i] for i in group],
            recorded.get(keys[group[0]][1], ()),
        )
    again = {
        name
        for key, known in zip(keys, grades, strict=True)
        for name in changed.get(key, ())
        if name not in known
    }
    return Known(
        grades,
        sum(map(bool, grades)),
        list(dict.fromkeys(run for key in keys for run in runs.get(key, ()))),
        others,
        [name for name in ours if name in again],
    )


def lasting(entry: Entry) -> dict[str, Grade]:
    """Return the grades that need not be asked for again: scores, abstentions and what the rollout broke."""
    return {
        name: msgspec.structs.replace(grade, usage=None)  # it was counted when it was spent
        for name, grade in entry.grades.items()
        if not isinstance(grade, Skipped) and not failed(grade)
    }


def failed(grade: Grade) -> bool:
    """Whether the grade failed for a cause other than the rollout, so that another attempt may help."""
    return isinstance(grade, Failed) and grade.cause == "infrastructure"
