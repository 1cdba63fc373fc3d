"""The rollouts of one run, and their groups: who has arrived, who waits for whom, what is complete."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Hashable

from judgekit.reward.nodes import Evaluation
from judgekit.run.bound_grader import BoundGrader
from judgekit.types import Grade, Rollout, text_size


class RolloutState:
    """One rollout being graded."""

    __slots__ = (
        "blocked",
        "compared",
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
        """Graders that have not answered yet."""
        self.blocked = 0
        """How many of them are group graders that wait for other members."""
        self.compared: dict[str, list[RolloutState]] = {}
        """For each group grader that was asked about it, the members that it compares."""
        self.done = False
        self.ev: Evaluation = _NOT_YET
        self.started = time.perf_counter()
        self.ended = 0.0
        self.weight: int | None = None
        self.noted = self.waits = 0
        """Number of grades in the ledger, and at the last checkpoint: see `Results.checkpoint`."""

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


class Group:
    """Rollouts that compete with each other.

    Members join as they arrive. A group grader starts once all have arrived and none of them can still come to need it.
    """

    __slots__ = ("finished", "first", "id", "members", "size", "waiting")

    def __init__(self, id_: Hashable, first: int, size: float = math.inf) -> None:
        self.id = id_
        self.first = first
        """Index of its first member."""
        self.size = size
        """Number of members, including those still to come; infinite while unknown."""
        self.members: list[RolloutState] = []
        """Members that have arrived; emptied once all are graded."""
        self.finished = 0
        """Members whose grades are complete."""
        self.waiting: dict[BoundGrader, list[RolloutState]] = {}
        """For each group grader that has not started yet, the members that need it."""

    def close(self) -> None:
        """Note that no further member will arrive."""
        self.size = len(self.members)

    @property
    def graded(self) -> bool:
        """Whether all members have arrived, and all their grades."""
        return self.finished == self.size

    def ask(self, state: RolloutState, grader: BoundGrader) -> None:
        """Have *state* wait for a group grader."""
        state.pending.add(grader.name)
        state.blocked += 1
        self.waiting.setdefault(grader, []).append(state)

    def take_ready(self) -> tuple[BoundGrader, list[RolloutState]] | None:
        """Take a group grader that may start, with the members that it compares.

        It may start once every member without its grades needs it. Where all members wait for group graders, and none of
        these is needed by all, the first in the user's order starts: what is compared depends on grades alone, and never
        on which grader was quicker.
        """
        if len(self.members) < self.size or not self.waiting:
            return None
        left = [state for state in self.members if not state.done]
        for grader, asking in self.waiting.items():
            if len(asking) == len(left):
                return self._take(grader, asking)
        if all(len(state.pending) == state.blocked for state in left):
            first = min(self.waiting, key=lambda grader: grader.place)
            return self._take(first, self.waiting[first])
        return None

    def take_waiting(self) -> list[tuple[BoundGrader, list[RolloutState]]]:
        """Take all group graders that have not started."""
        return [self._take(grader, asking) for grader, asking in list(self.waiting.items())]

    def _take(
        self, grader: BoundGrader, asking: list[RolloutState]
    ) -> tuple[BoundGrader, list[RolloutState]]:
        del self.waiting[grader]
        asking.sort(key=lambda state: state.index)  # not in the order in which other graders let them through
        for state in asking:
            state.blocked -= 1
            state.compared[grader.name] = asking
        return grader, asking
