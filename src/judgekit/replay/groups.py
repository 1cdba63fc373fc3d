"""The groups of a ledger's rollouts, and the grades of graders that compare a group's members."""

from __future__ import annotations

from collections.abc import Sequence

from judgekit.ledger.jsonl import encoded
from judgekit.ledger.schema import Entry


def recorded_groups(entries: Sequence[Entry], run: Sequence[int]) -> list[list[int]]:
    """Split the indices of a run's entries into the groups in which they were graded."""
    found: dict[tuple[int, bytes], list[int]] = {}
    for i in run:
        found.setdefault((entries[i].group_first, encoded(entries[i].group)), []).append(i)
    return list(found.values())
