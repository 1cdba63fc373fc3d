"""Per-run state of rollouts and groups."""

from __future__ import annotations

import time
from collections.abc import Hashable

from judgekit.reward.nodes import Evaluation
from judgekit.types import Grade, Rollout, text_size


class Group:
    """Rollouts that compete with each other."""

    __slots__ = ("finished", "id", "members", "size", "wanted")

    def __init__(self, id_: Hashable, size: float) -> None:
        self.id = id_
        self.size = size
        """Members, those still to come included; infinite while that is not known."""
        self.members: list[RolloutState] = []
        """Those whose grading has begun, until all have ended."""
        self.finished = 0
        self.wanted: dict[str, list[RolloutState]] = {}
        """Members that want a group grader that has not been started yet."""


class RolloutState:
    """One rollout being graded."""

    __slots__ = (
        "blocked",
        "done",
        "ended",
        "ev",
        "grades",
        "group",
        "index",
        "noted",
        "pending",
        "rollout",
        "started",
        "waits",
        "weight",
    )

    def __init__(self, index: int, rollout: Rollout, group: Group) -> None:
        self.index = index
        self.rollout = rollout
        self.group = group
        self.grades: dict[str, Grade] = {}
        self.pending: set[str] = set()
        """Graders that were asked and have not answered."""
        self.blocked = 0
        """Of these, group graders that wait for the other members."""
        self.done = False
        self.ev: Evaluation = _NOT_YET
        self.started = time.perf_counter()
        self.ended = 0.0
        self.weight: int | None = None
        self.noted = self.waits = 0
        """Grades in the ledger, and grades at the last checkpoint: see `Results.checkpoint`."""

    def size(self) -> int:
        """Characters of the rollout: its response, its messages and its reference."""
        if self.weight is None:
            rollout = self.rollout
            self.weight = text_size(rollout.response, rollout.messages)
            if rollout.ground_truth is not None:
                self.weight += text_size(rollout.ground_truth)
        return self.weight


_NOT_YET = Evaluation({}, {})
