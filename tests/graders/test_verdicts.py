"""What each rule says of some hundred texts: a change of the code that changes one of them changes somebody's reward.

The rows stand in `verdicts/`, a file for each rule and a row for each line: the rule's options, the rollout, the grade. After
a change that is meant, `python -m tests.graders.test_verdicts` writes the grades anew: read the diff, and tell it in the
changelog.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from judgekit import Graded, Rollout
from judgekit.graders.protocol import as_grade

from .registered import class_of

FOLDER = Path(__file__).with_name("verdicts")
RULES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))
PART = 60
"""Rows of one test."""


def rows_of(rule: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / f"{rule}.jsonl").read_text().splitlines()]


def said(rule: str, row: dict[str, Any]) -> dict[str, Any]:
    """What the rule says of a row's rollout: a score, or what there is instead, and why."""
    grader = class_of(rule)(**row["options"])
    grade = as_grade(grader.grade(Rollout(**{"response": "", **row["rollout"]})), grader.score_range)
    if not isinstance(grade, Graded):
        return {
            "score": type(grade).__name__,
            "why": getattr(grade, "reason", "") or getattr(grade, "message", ""),
        }
    told = {"score": grade.score, "why": grade.reason, "metadata": grade.metadata, "turns": grade.turns}
    return dict(
        json.loads(json.dumps({key: value for key, value in told.items() if value not in (None, "")}))
    )


def differences(expected: Any, found: Any, path: str = "") -> Iterator[str]:
    """Where two values part; libraries of other versions may round a number in another way."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted({*expected, *found}):
            yield from differences(expected.get(key), found.get(key), f"{path} {key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for one, other in zip(expected, found, strict=True):
            yield from differences(one, other, path)
    elif isinstance(expected, float) and isinstance(found, float):
        if not math.isclose(expected, found, rel_tol=1e-9, abs_tol=1e-12):
            yield f"{path}: {expected} has become {found}"
    elif expected != found:
        yield f"{path}: {expected!r} has become {found!r}"


PARTS = [(rule, start) for rule in RULES for start in range(0, len(rows_of(rule)), PART)]


@pytest.mark.parametrize(("rule", "start"), PARTS, ids=lambda value: str(value))
def test_what_a_rule_says_has_not_changed(rule: str, start: int) -> None:
    changed = [
        f"{json.dumps({key: row[key] for key in ('options', 'rollout')}, ensure_ascii=False)}:{difference}"
        for row in rows_of(rule)[start : start + PART]
        for difference in differences(row["grade"], said(rule, row))
    ]
    assert not changed, "\n".join(changed)


def write(rules: list[str]) -> None:
    for rule in rules:
        rows = [{**row, "grade": said(rule, row)} for row in rows_of(rule)]
        (FOLDER / f"{rule}.jsonl").write_text(
            "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        )


if __name__ == "__main__":
    write(sys.argv[1:] or RULES)
