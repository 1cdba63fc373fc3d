"""Joins the ledger with verl's dumps, which do not say how a reward was computed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from judgekit import DataError, read_ledger
from judgekit.trainers import Entry


def join_dump(
    ledger: str | os.PathLike[str], dump: str | os.PathLike[str]
) -> Iterator[tuple[dict[str, Any], Entry | None]]:
    """Yield each row of a dump with its ledger entry, or None if there is none.

    *dump*: `trainer.rollout_data_dir`, one JSONL file or a folder of them. Rows of V1 name their trajectory, as the
    entries' ids do; others are matched by `uid` and score, each entry once. Raises DataError for a file that is
    missing or not JSON.
    """
    entries = read_ledger(ledger).entries
    by_id = {entry.id: entry for entry in entries}
    by_group: dict[str, list[Entry]] = {}
    for entry in entries:
        by_group.setdefault(str(entry.group), []).append(entry)
    path = Path(dump)
    files = sorted(path.glob("*.jsonl"), key=lambda f: (len(f.name), f.name)) if path.is_dir() else [path]
    if not files:
        raise DataError(f"there is no .jsonl file in {dump}")
    for file in files:
        for row in _rows(file):
            uid = str(row.get("uid"))
            trajectory, _, _ = uid.rpartition("_")  # uid_session_output
            yield row, by_id.get(trajectory) or _by_score(row, by_group.get(uid, []))


def _by_score(row: dict[str, Any], members: list[Entry]) -> Entry | None:
    score = row.get("score")
    without = -1
    for i, entry in enumerate(members):
        if entry.reward is None:  # what verl's dump has is no reward, but may be near one
            without = i if without < 0 else without
        elif score is None or abs(float(score) - entry.reward) < 1e-5:
            return members.pop(i)
    return members.pop(without) if without >= 0 else None


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = file.read_text("utf-8").split("\n")  # splitlines() would also split at U+2028 and the like
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{file}, line {number}: not JSON ({error.msg})") from None
