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

CONFIG = "config"
"""Tag of a run: the fingerprint of its graders' and judges' settings."""


class Known(Struct, frozen=True):
    """The grades that a ledger holds of some rollouts."""

    grades: Sequence[Mapping[str, Grade]]
    """Each rollout's grades, for `GradingRunner.run(known=…)`."""
    rollouts: int
    """Number of rollouts with at least one grade."""
    runs: Sequence[str]
    """The runs that gave them, which a new run replaces (tag `RESUMES`)."""
    others: int
    """Number of entries that were left out because they were graded with other settings."""


def known_grades(
    reading: Reading, runner: GradingRunner, rollouts: Sequence[Rollout], *, config: str = ""
) -> Known:
    """Return the grades that a ledger holds of *rollouts*, also of runs that ended early.

    A rollout is recognised by its id, its group, and a digest of everything that graders can read. Scores, abstentions
    and failures that the rollout caused are taken. Other failures and skipped grades are asked for again, and so are
    grades of another version of a grader, of a run with another *config* (its tag `CONFIG`), and of a group grader
    that not all members of the group have.
    """
    found: dict[Hashable, dict[str, Grade]] = {}
    runs: dict[Hashable, list[str]] = {}
    others = 0
    for entry in reading.entries:
        spec = reading.specs.get(entry.spec)
        if spec is None or entry.tags.get(CONFIG, "") != config:
            others += 1
            continue
        key = entry.rollout
        ours = runner.spec.graders
        same = {name for name, grader in spec.graders.items() if name in ours and grader.same_as(ours[name])}
        kept = {name: grade for name, grade in lasting(entry).items() if name in same}
        found.setdefault(key, {}).update(kept)
        runs.setdefault(key, []).append(entry.run)
    keys = [(r.id, encoded(group_id(r)), rollout_digest(r)) for r in rollouts]
    grades = [dict(found.get(key, {})) for key in keys]
    drop_parts_of_groups(runner, rollouts, grades)
    return Known(
        grades,
        sum(map(bool, grades)),
        list(dict.fromkeys(run for key in keys for run in runs.get(key, ()))),
        others,
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
