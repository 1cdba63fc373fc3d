"""The groups of a ledger's rollouts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from judgekit.ledger.jsonl import encoded
from judgekit.ledger.schema import Entry
from judgekit.run.grouping import group_id
from judgekit.types import Rollout


def recorded_groups(entries: Sequence[Entry], run: Sequence[int]) -> list[list[int]]:
    """Split the indices of a run's entries into the groups in which they were graded."""
    found: dict[tuple[int, bytes], list[int]] = {}
    for i in run:
        found.setdefault((entries[i].group_first, encoded(entries[i].group)), []).append(i)
    return list(found.values())


def recorded_rollout(entry: Entry) -> Rollout:
    """Make an entry's rollout, without the group id that its run made of its prompt: a switch may read the host's."""
    rollout = entry.to_rollout()
    bare = msgspec.structs.replace(rollout, group=None)
    return bare if group_id(bare) == rollout.group else rollout
