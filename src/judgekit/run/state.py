"""Per-run state of rollouts and groups."""

from __future__ import annotations

import sys
import time
from collections.abc import Hashable, Mapping

from judgekit.ledger.schema import Comparison
from judgekit.reward.nodes import Evaluation
from judgekit.types import Grade, Rollout, text_size


class Group:
    """Rollouts that compete with each other."""

    __slots__ = ("finished", "first", "id", "members", "size", "wanted")

    def __init__(self, id_: Hashable, size: float, first: int) -> None:
        self.id = id_
        self.first = first
        """Index of its first member."""
        self.size = size
        """Number of members, including those still to come; infinite while unknown."""
        self.members: list[RolloutState] = []
        """Members whose grading has begun; emptied once all have finished."""
        self.finished = 0
        self.wanted: dict[str, list[RolloutState]] = {}
        """For each group grader that has not started yet, the members that need it."""


class RolloutState:
    """One rollout being graded."""

    __slots__ = (
        "compared",
        "digest",
        "done",
        "ended",
        "ev",
        "grades",
        "group",
        "index",
        "known",
        "pending",
        "rollout",
        "started",
        "weight",
    )

    def __init__(self, index: int, rollout: Rollout, group: Group) -> None:
        self.index = index
        self.rollout = rollout
        self.group = group
        self.grades: dict[str, Grade] = {}
        self.pending: set[str] = set()
        """Graders that have not answered yet."""
        self.done = False
        self.ev: Evaluation = _NOT_YET
        self.started = time.perf_counter()
        self.ended = 0.0
        self.weight: int | None = None
        self.known: Mapping[str, Grade] = {}
        """Grades that it came with, in the order in which they were given: they answer when the tree asks for them."""
        self.compared: Mapping[str, Comparison] = {}
        """By grader, the call that compared it with other members of its group."""
        self.digest = ""
        """See `rollout_digest`; set with its first line in the ledger."""

    def size(self) -> int:
        """Characters of the rollout's response, messages and reference."""
        if self.weight is None:
            rollout = self.rollout
            try:
                self.weight = text_size(rollout.response, rollout.messages, rollout.ground_truth)
            except Exception:  # of a lazy column of a data set: its graders will meet it, too
                self.weight = sys.maxsize
        return self.weight


_NOT_YET = Evaluation({}, {})
