"""Writes tests/slow.txt anew: the tests that `make unit` and `make mutation` leave out, for they take long.

.venv/core/bin/python -m pytest -q tests --junitxml=times.xml && python3 tools/slow_tests.py times.xml

With the files of other environments' runs, too (of tests/vllm, of adapters/verl/tests …); what a file of this call does not
tell of stays as it was.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SLOW = Path(__file__).resolve().parents[1] / "tests" / "slow.txt"
ONE_S, ALL_S = 2.0, 10.0
"""A function is slow if one of its cases takes so long, or all of them together."""


def mark_slow(items: Iterable[Any]) -> None:
    """Mark the tests that SLOW names, for `-m "not slow"`."""
    slow = set(SLOW.read_text().split())
    for item in items:
        if item.nodeid.partition("[")[0] in slow:
            item.add_marker("slow")


def main(*files: str) -> None:
    seconds: dict[str, list[float]] = defaultdict(list)
    for case in (case for file in files for case in ET.parse(file).iter("testcase")):
        name = str(case.get("name")).partition("[")[0]
        path, within = str(case.get("classname")), ""
        while not (SLOW.parents[1] / f"{path.replace('.', '/')}.py").exists():  # the last parts are classes
            path, _, part = path.rpartition(".")
            within = f"{part}::{within}"
        seconds[f"{path.replace('.', '/')}.py::{within}{name}"].append(float(case.get("time") or 0))
    slow = [name for name, found in seconds.items() if max(found) >= ONE_S or sum(found) >= ALL_S]
    kept = set(SLOW.read_text().split()) - set(seconds)
    SLOW.write_text("".join(f"{name}\n" for name in sorted({*slow, *kept})))
    print(
        f"{len(slow)} of {len(seconds)} test functions take {sum(sum(seconds[s]) for s in slow):.0f} of "
        f"{sum(map(sum, seconds.values())):.0f} s"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
