"""Two ledgers side by side: which rollouts are in both, and what their rewards and grades became."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from judgekit.metrics import Moments
from judgekit.report.gradient import gradient
from judgekit.report.table import STATES, Table

_LISTED = 500
"""Rollouts that are listed, the most different ones first."""


def comparison(before: Table, after: Table) -> dict[str, Any]:
    """Compare two ledgers of the same rollouts. Fits JSON; figures that are not known are null.

    Two lines belong together where id, group and everything that a grader can read are equal: a reward, a judge or a
    weight was changed between the two. Where no two do (two training runs), only the sides' own figures remain.
    *before* and *after* of a changed reward are raw: without the group's transform, and without what fills a missing one;
    *reward* is what the trainer gets, and *gradient* what GRPO makes of it.
    """
    pairs = _pairs(before, after)
    names = list(dict.fromkeys([*before.graders, *after.graders]))

    def moved(kind: str, row: int, other: int) -> float:
        return _difference(before.numbers[kind][row], after.numbers[kind][other])

    changed = [
        (*how_far, row, other)
        for row, other in pairs
        if any(how_far := (moved("raw", row, other), moved("reward", row, other)))
    ]
    changed.sort(reverse=True)
    return {
        "before": _side(before),
        "after": _side(after),
        "pairs": len(pairs),
        "rewards_changed": len(changed),
        "raw_rewards_changed": sum(raw > 0 for raw, *_ in changed),
        "graders": {name: _grader(before, after, name, pairs) for name in names},
        "gradient": gradient(before, after, pairs),
        "changed": [
            {
                "row": other,
                "id": after.texts["id"][other],
                "group": after.names["group"].values[after.codes["group"][other]]["id"],
                "before": _known(before.numbers["raw"][row]),
                "after": _known(after.numbers["raw"][other]),
                "reward": [_known(before.numbers["reward"][row]), _known(after.numbers["reward"][other])],
                "grades": {
                    name: [_grade(before, name, row), _grade(after, name, other)]
                    for name in names
                    if _grade(before, name, row) != _grade(after, name, other)
                },
            }
            for *_, row, other in changed[:_LISTED]
        ],
    }


def _pairs(before: Table, after: Table) -> list[tuple[int, int]]:
    """Finished rows of the same rollout; equal ones (a file with copies) in the order of their runs and rows."""
    rows: dict[int, list[int]] = defaultdict(list)
    for row in _finished(before):
        rows[before.identities[row]].append(row)
    found = []
    for other in _finished(after):
        waiting = rows.get(after.identities[other])
        if waiting:
            found.append((waiting.pop(0), other))
    return found


def _finished(table: Table) -> list[int]:
    """Return the rows that have an outcome, run by run: runs that were graded at the same time lie mixed in a ledger."""
    runs = table.codes["run"]
    rows = [row for row in table.shown() if table.status(row) != "unfinished"]
    return sorted(rows, key=lambda row: runs[row])


def _side(table: Table) -> dict[str, Any]:
    shown = list(table.shown())
    finished = [row for row in _finished(table) if table.status(row) != "dropped"]  # those are in no mean
    rewards = [x for row in finished if (x := table.numbers["raw"][row]) == x]
    return {
        "ledger": table.path.name,
        "rollouts": len(shown),
        "reward_mean": math.fsum(rewards) / len(rewards) if rewards else None,
        "missing": len(finished) - len(rewards),
        "unfinished": len(shown) - len(_finished(table)),
    }


def _grader(before: Table, after: Table, name: str, pairs: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """How a grader's grades moved between the rollouts that are in both."""
    moments, moved, kinds = Moments(), 0, 0
    for row, other in pairs:
        old, new = _grade(before, name, row), _grade(after, name, other)
        if isinstance(old, float) and isinstance(new, float):
            moments.add(old, new)
            moved += _difference(old, new) > 0
        else:
            kinds += old != new
    return {
        "both_graded": moments.n,
        "mean_before": moments.mean_x if moments.n else None,
        "mean_after": moments.mean_y if moments.n else None,
        "correlation": moments.correlation if moments.vary else None,
        "scores_moved": moved,
        "kinds_changed": kinds,
    }


def _grade(table: Table, name: str, row: int) -> float | str:
    """The score, or the kind of a grade that is none."""
    column = table.graders.get(name)
    if column is None:
        return "absent"
    return column.score[row] if STATES[column.state[row]] == "graded" else STATES[column.state[row]]


def _difference(old: float, new: float) -> float:
    """How far a number moved, but for rounding; infinitely where one of the two is missing."""
    if math.isnan(old) or math.isnan(new):
        return 0.0 if math.isnan(old) and math.isnan(new) else math.inf
    return 0.0 if math.isclose(old, new, rel_tol=1e-9, abs_tol=1e-12) else abs(new - old)


def _known(x: float) -> float | None:
    return x if math.isfinite(x) else None
