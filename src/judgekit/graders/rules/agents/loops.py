"""A rule against agents that repeat their actions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any, Literal

from judgekit.graders.rules.agents.trajectory import read_trajectory
from judgekit.graders.rules.calls import Call
from judgekit.graders.rules.rule import Rule, at_least, one_of
from judgekit.graders.rules.work import Paced
from judgekit.types import Abstained, Grade, Graded, Rollout

PIECES = 64
"""Actions with more words are compared in this many pieces."""


class ActionLoop(Paced, Rule):
    """Scores how little a trajectory repeats actions: 1 (never) to 0 (always the same).

    An action is a tool call: its name and arguments. The order of words and values counts, the order of keys does
    not. *measure*: "pairs": 1 minus the share of pairs of actions that are equal; "repeats": 1 minus the share of
    actions, after the first, that were done before; "cycles": 1 minus the share of actions that repeat a cycle of up
    to *max_period* actions (A A, A B A B, …), so that returning to an action much later costs nothing. *near*:
    actions of one tool that differ in one word of their arguments, in case or in punctuation also count as equal,
    and so do chains of them. *ignore*: tools that may be called repeatedly.

    A single action scores 1. Abstains without actions. The metadata has the numbers of actions, distinct actions and
    repeats, the longest run of one action, and the longest cycle (its period, its turns and where it begins). Time and memory grow with the length of the trajectory.

    Source: the pair share is OpenJudge's `ActionLoopDetectionGrader`, there over unordered sets of words.
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("messages", "response")
    abstains = "there are no actions"
    dodge = "calls no tool"
    inline_limit = 100_000
    timeout_s = 10.0

    def __init__(
        self,
        *,
        measure: Literal["pairs", "repeats", "cycles"] = "pairs",
        near: bool = False,
        max_period: int = 8,
        ignore: Sequence[str] = (),
        name: str = "action_loop",
    ) -> None:
        one_of(name, "measure", measure, ("pairs", "repeats", "cycles"))
        at_least(name, "max_period", max_period, 1, whole=True)
        self.name = name
        self.measure = measure
        self.near = near
        self.max_period = max_period
        self.ignore = frozenset([ignore] if isinstance(ignore, str) else ignore)

    def here(self, rollout: Rollout) -> Grade:
        calls = [call for call in read_trajectory(rollout).calls if call.name not in self.ignore]
        if not calls:
            return Abstained("there are no actions")
        actions = near_classes(calls) if self.near else number([call.key() for call in calls])
        n = len(actions)
        counts = Counter(actions)
        repeats = n - len(counts)
        cycle, turning = cycles(actions, self.max_period)
        if n == 1:
            score = 1.0
        elif self.measure == "pairs":
            score = 1.0 - sum(c * (c - 1) for c in counts.values()) / (n * (n - 1))
        elif self.measure == "repeats":
            score = 1.0 - repeats / (n - 1)
        else:
            score = 1.0 - turning / (n - 1)
        metadata = {
            "actions": n,
            "different": len(counts),
            "repeats": repeats,
            "longest_run": longest_run(actions),
            "cycle": cycle,
        }
        reason = "" if not repeats else f"{repeats} of {n} actions were done before"
        if repeats:
            most, times = counts.most_common(1)[0]
            reason += f"; {calls[actions.index(most)].name[:60]} {times} times"
        return Graded(min(max(score, 0.0), 1.0), reason, metadata)


def number(keys: Sequence[Hashable]) -> list[int]:
    """Replace keys by small numbers, equal for equal keys."""
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(key, len(seen)) for key in keys]


def longest_run(actions: Sequence[int]) -> int:
    """Return the length of the longest run of one action."""
    best = run = 1 if actions else 0
    for before, action in pairwise(actions):
        run = run + 1 if action == before else 1
        best = max(best, run)
    return best


def cycles(actions: Sequence[int], max_period: int) -> tuple[dict[str, int] | None, int]:
    """Return the longest cycle, and the number of actions that repeat any cycle.

    For every period, a stretch in which each action equals the one a period earlier is a cycle, from its first full
    turn on.
    """
    n = len(actions)
    turning = bytearray(n)
    best: dict[str, int] | None = None
    longest = 0
    for period in range(1, min(max_period, n // 2) + 1):
        run = 0
        for i in range(period, n + 1):
            if i < n and actions[i] == actions[i - period]:
                run += 1
                continue
            if run >= period:
                turns = run // period
                for place in range(i - run, i - run + turns * period):
                    turning[place] = 1
                if turns * period > longest:
                    longest = turns * period
                    best = {"period": period, "turns": turns + 1, "start": i - run - period}
            run = 0
    return best, sum(turning)


def near_classes(calls: Sequence[Call]) -> list[int]:
    """Return the class number of each action, where nearly equal actions share a class.

    Two word sequences that differ in one word are equal once that word is left out. So every action is looked up
    by its variants with one gap, which avoids comparing all pairs.
    """
    parent = list(range(len(calls)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first: dict[str, int] = {}
    for i, call in enumerate(calls):
        for key in _rests(call.name, _pieces(_words(call.arguments))):
            j = first.setdefault(key, i)
            if j != i:
                parent[root(i)] = root(j)
    return number([root(i) for i in range(len(calls))])


def _rests(name: str, words: Sequence[str]) -> list[str]:
    """Return an action's variants without each word in turn, and itself; a single word only itself."""
    text = " ".join([name, *words, ""])
    if len(words) < 2:
        return [text]
    keys, start = [text], len(name)
    for word in words:
        end = start + len(word) + 1
        keys.append(f"{text[:start]}\0{text[end:]}")
        start = end
    return keys


_WORD = re.compile(r"\w+(?:[.+/-]+\w+)*")


def _words(value: Any) -> list[str]:
    """Return the words of a call's arguments, in order; a mapping's by its keys."""
    words: list[str] = []
    left = [value]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            for key in sorted(part, key=str, reverse=True):
                left += (part[key], str(key))
        elif isinstance(part, list | tuple):
            left.extend(reversed(part))
        else:
            words += _WORD.findall(str(part).casefold())
    return words


def _pieces(words: Sequence[str]) -> list[str]:
    if len(words) <= PIECES:
        return list(words)
    size = -(-len(words) // PIECES)
    return [" ".join(words[i : i + size]) for i in range(0, len(words), size)]
