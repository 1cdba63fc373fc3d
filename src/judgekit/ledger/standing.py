"""Which of several lines of one rollout counts: the later finished one."""

from __future__ import annotations

from array import array
from typing import Any

from judgekit.ledger.jsonl import encoded
from judgekit.ledger.schema import RESUMES


class Standing:
    """Takes the lines of a ledger, its files in any order, and knows in whose place others stand.

    A rollout has several lines where it was written down before it was finished, or graded twice in its run, where a file was
    copied into its folder, and where another run resumed its. A finished line counts more than an unfinished one, then the later.
    """

    def __init__(self) -> None:
        self.repeated: set[int] = set()
        """Lines in whose place stands another of their run."""
        self.replaced: set[int] = set()
        """… of a run that resumes theirs, or that theirs resumes."""
        self.rollouts = array("q")
        """For each line a hash of what tells its rollout from others, also in another ledger."""
        self._times = array("d")
        self._finished = bytearray()
        self._runs = array("l")
        self._codes: dict[str, int] = {}
        self._best: list[dict[int, int]] = []
        """For each run the lines that count, by index and rollout."""
        self._resuming: dict[tuple[int, int], list[int]] = {}
        """Lines of runs that resume others, by the resumed run and the rollout."""
        self._of: dict[int, list[int]] = {}
        """Lines by rollout: only of a ledger with resumed runs, up to `_listed`."""
        self._listed = 0

    def add(self, line: Any) -> int | None:
        """Take an `Entry`, or what has its fields; returns the line of its rollout and run that counted so far."""
        at = len(self.rollouts)
        run, rollout = self._code(line.run), hash((line.id, encoded(line.group), line.rollout_digest))
        finished = line.status != "unfinished"
        self.rollouts.append(rollout)
        self._times.append(line.time)
        self._finished.append(finished)
        self._runs.append(run)
        place = hash((line.index, rollout))
        other = self._best[run].setdefault(place, at)
        if other != at:
            if (finished, line.time) >= (self._finished[other], self._times[other]):
                self._best[run][place] = at
                self.repeated.add(other)
            else:
                self.repeated.add(at)
        for later in self._resuming.get((run, rollout), ()):
            self._replace(at, later)
        resumes = line.tags.get(RESUMES)
        for earlier in {self._code(str(one)) for one in resumes} - {run} if isinstance(resumes, list) else ():
            self._resuming.setdefault((earlier, rollout), []).append(at)
            for one in self._lines_of(rollout):
                if self._runs[one] == earlier:
                    self._replace(one, at)
        return other if other != at else None

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
        self.replaced.add(later if kept else earlier)
