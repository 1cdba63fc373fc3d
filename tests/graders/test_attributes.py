"""What each rule says of itself: its range, its limits, where it runs, and the settings that it has where none are given.

The rows stand in `attributes.jsonl`: the rule, its options, its attributes. After a change that is meant,
`python -m tests.graders.test_attributes` writes them anew: read the diff.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .registered import class_of

TABLE = Path(__file__).with_name("attributes.jsonl")
PLAIN = (bool, int, float, str, tuple, list, dict, frozenset, type(None))


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in TABLE.read_text().splitlines()]


def attributes(row: dict[str, Any]) -> dict[str, str]:
    options = row["options"]
    if "correct" in options:
        options = {**options, "correct": class_of(options["correct"])()}
    made = class_of(row["rule"])(**options)
    found = {name: getattr(made, name) for name in dir(made) if not name.startswith("_")}
    return {
        name: repr(sorted(value) if isinstance(value, frozenset) else value)
        for name, value in found.items()
        if isinstance(value, PLAIN)
    }


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['rule']} {row['options']}")
def test_what_a_rule_says_of_itself_has_not_changed(row: dict[str, Any]) -> None:
    assert attributes(row) == row["attributes"]


if __name__ == "__main__":
    made = [{**row, "attributes": attributes(row)} for row in rows()]
    TABLE.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in made))
