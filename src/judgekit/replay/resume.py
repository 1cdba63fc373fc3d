"""Resumes a run that ended early: takes known grades from its ledger, so that nothing is paid for twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence

import msgspec
from msgspec import Struct

from judgekit.graders.protocol import is_group_grader
from judgekit.graders.trust import with_trust
from judgekit.ledger.jsonl import encoded
from judgekit.ledger.reader import Reading
from judgekit.ledger.schema import Entry, rollout_digest
from judgekit.run.grouping import group_id
from judgekit.run.results import KnownGrades
from judgekit.run.runner import GradingRunner
from judgekit.types import Failed, Grade, Rollout, Skipped


class Known(Struct, frozen=True):
    """The grades that a ledger holds of some rollouts."""

    grades: Sequence[KnownGrades]
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
    grades of another version of a grader, and of a grader with other settings (its fingerprint). The run asks a group
    grader again where it would compare other members than it has. Equal rollouts have a grade each, in their order.
    """
    ours = runner.spec.graders
    same, other = {}, {}
    for digest, spec in reading.specs.items():
        shared = ours.keys() & spec.graders.keys()
        same[digest] = {name for name in shared if spec.graders[name].same_settings(ours[name])}
        other[digest] = shared - same[digest]
    found: dict[Hashable, list[KnownGrades]] = {}
    """Each rollout's grades, and those of its equals in the order of their indices."""
    runs: dict[Hashable, list[str]] = {}
    changed: dict[Hashable, set[str]] = {}
    others = 0
    for run in sorted(reading.runs(), key=min):  # later ones last: their grades count
        seen: Counter[Hashable] = Counter()
        for i in run:
            entry = reading.entries[i]
            key = entry.rollout
            changed.setdefault(key, set()).update(other.get(entry.spec, ()))
            if not same.get(entry.spec):
                others += 1
                continue
            equals = found.setdefault(key, [])
            if seen[key] == len(equals):
                equals.append(KnownGrades())
            take(equals[seen[key]], entry, runner, same[entry.spec])
            seen[key] += 1
            runs.setdefault(key, []).append(entry.run)
    keys = [(r.id, encoded(group_id(r)), rollout_digest(r)) for r in rollouts]
    waiting = {key: iter(equals) for key, equals in found.items()}
    grades = [next(waiting.get(key, iter(())), KnownGrades()) for key in keys]
    again = {
        name
        for key, known in zip(keys, grades, strict=True)
        for name in changed.get(key, ())
        if name not in known.names()
    }
    return Known(
        grades,
        sum(bool(known.names()) for known in grades),
        list(dict.fromkeys(run for key in keys for run in runs.get(key, ()))),
        others,
        [name for name in ours if name in again],
    )


def take(known: KnownGrades, entry: Entry, runner: GradingRunner, names: Collection[str]) -> None:
    """Add an entry's grades of these *names* that need not be asked for again: all but failures of infrastructure.

    They are trusted as far as the runner's graders are now.

    A grade that compares its rollout with others is taken with the comparison that it is of.
    """
    grades = {
        # its usage was counted when it was spent
        name: msgspec.structs.replace(with_trust(grade, runner.spec.graders[name].trust), usage=None)
        for name, grade in entry.grades.items()
        if name in names and not isinstance(grade, Skipped) and not failed(grade)
    }
    for name, grader in runner.graders.items():
        if is_group_grader(grader):
            given = {key: grades.pop(key) for key in list(grades) if key.partition(".")[0] == name}
            asked = [key for key in runner.spec.graders if key.partition(".")[0] == name]
            if name in entry.compared and len(given) == len(asked):
                known.compared.setdefault(name, {})[entry.compared[name]] = given
    known.update(grades)


def failed(grade: Grade) -> bool:
    """Whether the grade failed for a cause other than the rollout, so that another attempt may help."""
    return isinstance(grade, Failed) and grade.cause == "infrastructure"
