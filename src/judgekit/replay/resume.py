"""Resumes a run that ended early: takes known grades from its ledger, so that nothing is paid for twice."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import msgspec
from msgspec import Struct

from judgekit.graders.protocol import is_group_grader
from judgekit.ledger.jsonl import encoded
from judgekit.ledger.reader import Reading
from judgekit.ledger.schema import Entry
from judgekit.ledger.writer import rollout_digest
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
    that not all members of the group have.
    """
    ours = runner.spec.graders
    same, other = {}, {}
    for digest, spec in reading.specs.items():
        shared = ours.keys() & spec.graders.keys()
        same[digest] = {name for name in shared if spec.graders[name].same_settings(ours[name])}
        other[digest] = shared - same[digest]
    found: dict[Hashable, dict[str, Grade]] = {}
    runs: dict[Hashable, list[str]] = {}
    changed: dict[Hashable, set[str]] = {}
    others = 0
    for entry in reading.entries:
        key = entry.rollout
        changed.setdefault(key, set()).update(other.get(entry.spec, ()))
        if not same.get(entry.spec):
            others += 1
            continue
        kept = {name: grade for name, grade in lasting(entry).items() if name in same[entry.spec]}
        found.setdefault(key, {}).update(kept)
        runs.setdefault(key, []).append(entry.run)
    keys = [(r.id, encoded(group_id(r)), rollout_digest(r)) for r in rollouts]
    grades = [dict(found.get(key, {})) for key in keys]
    drop_parts_of_groups(runner, rollouts, grades)
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


def drop_parts_of_groups(
    runner: GradingRunner, rollouts: Sequence[Rollout], grades: Sequence[dict[str, Grade]]
) -> None:
    """Remove a group grader's grades if not all members of the group have one: it must be asked about all."""
    of_groups = {name for name, grader in runner.graders.items() if is_group_grader(grader)}
    for key in [key for key in runner.spec.graders if key.partition(".")[0] in of_groups]:
        for members in group_by_prompt(rollouts):
            if not all(key in grades[i] for i in members):
                for i in members:
                    grades[i].pop(key, None)


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
