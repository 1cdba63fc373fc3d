"""Labels: what a person, or a better grader, says of rollouts; and which lines of a ledger they are about."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from judgekit.errors import DataError
from judgekit.ledger.jsonl import numbered_lines
from judgekit.ledger.schema import Entry, logger
from judgekit.rollouts.rows import decoded

_WORDS: dict[Any, bool] = {
    "1": True,
    "true": True,
    "right": True,
    "good": True,
    "correct": True,
    "0": False,
    "false": False,
    "wrong": False,
    "bad": False,
    "incorrect": False,
}
WAYS = (
    "a label names its rollout by id, by run and index, or by rollout_digest, as the ledger's lines have them: "
    '{"id": "q7-3", "label": 1}'
)


def read_labels(path: str | os.PathLike[str], entries: Sequence[Entry]) -> dict[int, bool]:
    """Return whether rollouts are right, by their place in *entries*.

    *path*: JSON lines with `label` (1 or 0, true or false, "right" or "wrong", "good" or "bad"; null is none yet). Raises
    DataError for a line that is no label, for two labels of one rollout, for a name that several rollouts have, and if no
    label joins; labels that do not, beside others that do, are counted in the log.
    """
    places = _Places(entries)
    found: dict[int, tuple[bool, int]] = {}
    lost: list[str] = []
    for number, line in numbered_lines(Path(path)):
        row = _row(path, number, line)
        label = row["label"]
        if label is None or label != label:  # as Python writes one that is missing
            continue
        right = _WORDS.get(label.strip().lower()) if isinstance(label, str) else label
        if right not in (0, 1):
            raise DataError(
                f"{path}, line {number}: {label!r} is no label: 1 or 0, true or false, right or wrong"
            )
        place, name = places.find(row, f"{path}, line {number}")
        if place is None:
            lost.append(name)
            continue
        before, line_before = found.get(place, (bool(right), number))
        if before != bool(right):
            raise DataError(
                f"{path}: lines {line_before} and {number} say different things of one rollout ({name})"
            )
        found[place] = bool(right), number
    if not found:
        raise DataError(
            f"{path}: none of {len(lost)} labels is about a rollout of the ledger, the first names {lost[0] if lost else 'none'}, "
            f"the ledger has {places.example()}: {WAYS}"
        )
    if lost:
        logger.warning(
            "%s: %d of its labels are about no rollout of the ledger, the first names %s, and count for nothing",
            path,
            len(lost),
            lost[0],
        )
    return {place: right for place, (right, _) in found.items()}


def of_marks(marks: Mapping[tuple[str, int], bool], entries: Sequence[Entry]) -> dict[int, bool]:
    """Return whether rollouts are right, by their place in *entries*, from marks by run and index."""
    places = {(entry.run, entry.index): place for place, entry in enumerate(entries)}
    return {places[key]: right for key, right in marks.items() if key in places}


def _row(path: Any, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = decoded(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}, line {number}: not JSON ({error})") from None
    if not isinstance(row, dict) or "label" not in row:
        raise DataError(f"{path}, line {number}: there is no label: {WAYS}")
    return row


class _Places:
    """Where the rollouts stand, by each of their names."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.by: dict[tuple[Any, ...], list[int]] = {}
        for place, entry in enumerate(entries):
            for name in {("run", entry.run, entry.index), ("id", entry.id), ("digest", entry.rollout_digest)}:
                self.by.setdefault(name, []).append(place)

    def find(self, row: Mapping[str, Any], where: str) -> tuple[int | None, str]:
        """Return the place of the rollout that a label names, and the name. The last line of several equal rollouts counts."""
        if "run" in row and "index" in row:
            name: tuple[Any, ...] = ("run", row["run"], row["index"])
        elif row.get("rollout_digest"):
            name = ("digest", row["rollout_digest"])
        elif row.get("id") not in (None, ""):
            name = ("id", str(row["id"]))
        else:
            raise DataError(f"{where}: it names no rollout: {WAYS}")
        shown = " ".join(map(str, name))
        if not all(isinstance(part, str | int) for part in name):
            raise DataError(f"{where}: {shown} is no name of a rollout: {WAYS}")
        places = self.by.get(name, [])
        if len({self.entries[place].rollout_digest for place in places}) > 1:
            raise DataError(f"{where}: {len(places)} rollouts have the {shown}: name them by run and index")
        return (places[-1] if places else None), shown

    def example(self) -> str:
        entry = self.entries[0]
        return f"id {entry.id}" if entry.id else f"run {entry.run} index {entry.index}"
