"""docs/hosts-verl.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def test_every_test_that_is_named_exists() -> None:
    text = (ROOT / "docs" / "hosts-verl.md").read_text()
    file = ""
    named = 0
    for name in re.findall(r"`([^`]+)`", text):
        if match := re.fullmatch(r"(test_\w+\.py|…)(?:::(\w+)(…?))?", name):
            file = match[1] if match[1] != "…" else file
            source = (HERE / file).read_text()
            if match[2]:
                assert re.search(rf"def {match[2]}{'' if match[3] else chr(92) + '('}", source), name
            named += 1
        elif name.startswith("tests/"):
            assert (ROOT / name).exists(), name
    assert named > 30


def test_every_row_names_a_test_or_says_that_there_is_none() -> None:
    for line in (ROOT / "docs" / "hosts-verl.md").read_text().splitlines():
        if line.startswith("| ") and not line.startswith(("| S3", "| S4", "| what")):
            last = line.strip("|").split("|")[-1].strip()
            assert re.search(r"`(test_|tests/|…)", last) or last == "none", line
