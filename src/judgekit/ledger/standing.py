"""Decides which of several lines of one rollout counts: the latest finished one."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Self, TypeVar

from judgekit.ledger.jsonl import encoded
from judgekit.ledger.schema import RESUMES

_T = TypeVar("_T")


class Standing:
    """Takes a ledger's lines, its files in any order, and knows which lines are superseded.

    A rollout has several lines if it was recorded before it was finished, was graded twice in its run, if its file was
    copied into the folder, or if another run resumed its run. Finished lines count before unfinished ones, then the
    later ones of a run before earlier ones; time decides only for lines whose run did not number them.
    """

    def __init__(self) -> None:
        self.repeated: set[int] = set()
        """Lines superseded by another line of their run."""
        self.replaced: set[int] = set()
        """Lines superseded by a run that resumes theirs, or that theirs resumes."""
        self._by: dict[int, int] = {}
        """For each of them, the line that has superseded it last."""
        self.rollouts = array("q")
        """For each line, a hash that identifies its rollout, also in another ledger."""
        self._orders = array("q")
        self._times = array("d")
        self._finished = bytearray()
        self._runs = array("l")
        self._codes: dict[str, int] = {}
        self._best: list[dict[int, int]] = []
        """For each run, the lines that count, by index and rollout."""
        self._resuming: dict[tuple[int, int], list[int]] = {}
        """Lines of runs that resume others, by the resumed run and the rollout."""
        self._of: dict[int, list[int]] = {}
        """Lines by rollout, up to `_listed`. Only for a ledger with resumed runs."""
        self._listed = 0

    @classmethod
    def of(cls, lines: Iterable[Any]) -> Self:
        """Take all *lines*."""
        made = cls()
        for line in lines:
            made.add(line)
        return made

    def add(self, line: Any) -> int | None:
        """Take an `Entry` or something with its fields. Returns the line of its rollout and run that counted so far."""
        at = len(self.rollouts)
        run, rollout = self._code(line.run), hash((line.id, group_key(line.group), line.rollout_digest))
        finished = line.status != "unfinished"
        self.rollouts.append(rollout)
        self._orders.append(line.order)
        self._times.append(line.time)
        self._finished.append(finished)
        self._runs.append(run)
        place = hash((line.index, rollout))
        other = self._best[run].setdefault(place, at)
        if other != at:
            if self._rank(at) >= self._rank(other):
                self._best[run][place] = at
                self.repeated.add(other)
            else:
                self.repeated.add(at)
        if self._resuming:
            for later in self._resuming.get((run, rollout), ()):
                self._replace(at, later)
        resumes = line.tags.get(RESUMES)
        if isinstance(resumes, list):
            for earlier in {self._code(str(one)) for one in resumes} - {run}:
                self._resuming.setdefault((earlier, rollout), []).append(at)
                for one in self._lines_of(rollout):
                    if self._runs[one] == earlier:
                        self._replace(one, at)
        return other if other != at else None

    def successors(self) -> dict[int, int]:
        """Return for each line that another run has replaced the line that counts in its place; equal rollouts in their order."""
        gone = self.replaced - self.repeated
        wanted = {self.rollouts[at] for at in gone}
        counting: dict[tuple[int, int], list[int]] = {}
        for at, rollout in enumerate(self.rollouts):
            if rollout in wanted and at not in self.replaced and at not in self.repeated:
                counting.setdefault((self._runs[at], rollout), []).append(at)
        seen: Counter[tuple[int, int]] = Counter()
        found: dict[int, int] = {}
        for at in sorted(gone):
            key = self._runs[at], self.rollouts[at]
            lines = counting.get((self._runs[self._last(at)], self.rollouts[at]), [])
            if seen[key] < len(lines):
                found[at] = lines[seen[key]]
            seen[key] += 1
        return found

    def _last(self, at: int) -> int:
        """Return the line that has replaced the one that has replaced … this one."""
        passed = {at}
        while (by := self._by.get(at)) is not None and by not in passed:
            passed.add(at := by)
        return at

    def _rank(self, at: int) -> tuple[int, int, float]:
        return self._finished[at], self._orders[at], self._times[at]

    def _code(self, run: str) -> int:
        if run not in self._codes:
            self._codes[run] = len(self._best)
            self._best.append({})
        return self._codes[run]

    def _lines_of(self, rollout: int) -> list[int]:
        for at in range(self._listed, len(self.rollouts)):
            self._of.setdefault(self.rollouts[at], []).append(at)
        self._listed = len(self.rollouts)
        return self._of[rollout]

    def _replace(self, earlier: int, later: int) -> None:
        kept = self._finished[earlier] and not self._finished[later]
        gone, stays = (later, earlier) if kept else (earlier, later)
        self.replaced.add(gone)
        self._by[gone] = stays


def group_key(group: Any) -> str | bytes:
    """Return what tells a group's name from other names: 1, True and "1" are three."""
    return group if type(group) is str else encoded(group)


def latest(lines: Sequence[_T]) -> list[_T]:
    """Return *lines* without those that another line of their run has superseded."""
    repeated = Standing.of(lines).repeated
    return [line for at, line in enumerate(lines) if at not in repeated]
