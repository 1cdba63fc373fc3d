"""Rollouts on their way through a run, in their groups."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable

from judgekit.reward.nodes import Evaluation
from judgekit.types import Grade, Rollout, text_size


class Group:
    """Rollouts that compete with each other."""

    __slots__ = ("asked", "expanded", "finished", "id", "items", "size")

    def __init__(self, id_: Hashable, size: int) -> None:
        self.id = id_
        self.size = size
        self.expanded = 0
        self.finished = 0
        self.items: list[Item] = []
        self.asked: dict[str, list[Item]] = {}
        """Members that want a group grader that has not been started yet."""


class Item:
    """A rollout on its way."""

    __slots__ = (
        "blocked",
        "done",
        "ended",
        "ev",
        "grades",
        "group",
        "index",
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
        """Graders that were asked and have not answered."""
        self.blocked = 0
        """Of these, group graders that wait for the other members."""
        self.done = False
        self.ev: Evaluation = _NOT_YET
        self.started = time.perf_counter()
        self.ended = 0.0
        self.weight: int | None = None

    def size(self) -> int:
        """Characters of the rollout: its response and its messages."""
        if self.weight is None:
            self.weight = text_size(self.rollout.response, self.rollout.messages)
        return self.weight


_NOT_YET = Evaluation({}, {})


class Arrivals:
    """The members of one group, whose grading begins as each of them comes."""

    def __init__(self, size: int) -> None:
        self.expected = size
        """Members that have come or are still to come."""
        self.came: deque[Rollout] = deque()
        self.news: Callable[[], None] = lambda: None
        """Wakes the run that takes them in; to be called after every change."""
