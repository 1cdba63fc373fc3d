"""The rollouts of one run, and their groups: who has arrived, who waits for whom, what is complete."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Hashable, Mapping

from judgekit.ledger.schema import Comparison
from judgekit.reward.nodes import Evaluation
from judgekit.run.bound_grader import BoundGrader, Deciders
from judgekit.types import Grade, Rollout, text_size


class RolloutState:
    """One rollout being graded."""

    __slots__ = (
        "blocked",
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
        """Graders that have not answered yet, and keys of the group's numbers that are not decided yet."""
        self.blocked = _NOBODY
        """Those of them that are group graders, or numbers of the group, and wait for other members."""
        self.known: Mapping[str, Grade] = {}
        """Grades that it came with, in the order in which they were given: they answer when the tree asks for them."""
        self.compared: Mapping[str, Comparison] = {}
        """By grader, the call that compared it with other members of its group."""
        self.digest = ""
        """See `rollout_digest`; set with its first line in the ledger."""
        self.done = False
        self.ev: Evaluation = _NOT_YET
        self.started = time.perf_counter()
        self.ended = 0.0
        self.weight: int | None = None

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
_NOBODY: frozenset[str] = frozenset()


class Group:
    """Rollouts that compete with each other.

    Members join as they arrive. A group grader starts once all have arrived and it is decided which of them it compares:
    by their grades alone, whichever judge is quicker.
    """

    __slots__ = ("asked", "finished", "first", "id", "members", "numbers", "size", "waiting")

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
        self.asked: dict[str, list[RolloutState]] = {}
        """For the key of each number of the group that is not decided yet, the members that got to its gate."""
        self.numbers: dict[str, float | None] = {}
        """Those that are decided; None for one that is missing."""

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
        state.blocked |= {grader.name}
        self.waiting.setdefault(grader, []).append(state)

    def ask_number(self, state: RolloutState, key: str) -> None:
        """Have *state* wait for a number of the group."""
        state.pending.add(key)
        state.blocked |= {key}
        self.asked.setdefault(key, []).append(state)

    def take_decided(self, deciders: Mapping[str, Deciders]) -> tuple[str, list[RolloutState]] | None:
        """Take the key of a number for which all members that get to its gate are there, with these members."""
        if len(self.members) < self.size:
            return None
        for key in self.asked:
            if not self._undecided(deciders[key]):
                asking = self.asked.pop(key)
                asking.sort(key=lambda state: state.index)
                return key, asking
        return None

    def take_ready(self, deciders: Mapping[str, Deciders]) -> tuple[BoundGrader, list[RolloutState]] | None:
        """Take a group grader for which it is decided whom it compares, with the members that wait for it."""
        if len(self.members) < self.size:
            return None
        for grader in sorted(self.waiting, key=lambda grader: grader.place):
            if not self._undecided(deciders[grader.name]):
                return self._take(grader)
        return None

    def take_waiting(self) -> list[tuple[BoundGrader, list[RolloutState]]]:
        """Take all group graders that have not started."""
        return [self._take(grader) for grader in list(self.waiting)]

    def _undecided(self, deciders: Deciders) -> bool:
        """Whether a grade is still to come that decides who is compared."""
        return any(
            name not in deciders.yielding or name not in state.blocked
            for state in (self.members if deciders.names else ())
            if not state.done
            for name in deciders.names & state.pending
        )

    def _take(self, grader: BoundGrader) -> tuple[BoundGrader, list[RolloutState]]:
        asking = self.waiting.pop(grader)
        asking.sort(key=lambda state: state.index)  # not in the order in which other graders let them through
        for state in asking:
            state.blocked -= {grader.name}
        return grader, asking
