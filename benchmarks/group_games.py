"""Judges that compare, by arithmetic: what a comparison says of members whose quality is known."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import combinations
from statistics import correlation, fmean

from judgekit import Failed, Grade, Graded
from judgekit.graders.judged.strengths import Game, chance, strengths


class Referee:
    """A judge of a group of *size*: it sees quality sharply, prefers the first place, and has an opinion of its own on each pair.

    *sharp*: logits a unit of quality. *place*: logits for standing first. *noise*: of its opinion of a pair, in units of quality.
    *labels*: it says who is better, or that both are equal, and no share. *fails*: share of its calls that fail.
    """

    def __init__(
        self,
        rng: random.Random,
        size: int,
        *,
        sharp: float = 1.5,
        place: float = 0.0,
        noise: float = 0.5,
        labels: bool = False,
        fails: float = 0.0,
        circular: bool = False,
    ) -> None:
        self.quality = [rng.gauss(0, 1) for _ in range(size)]
        self.opinions = {pair: rng.gauss(0, noise) for pair in combinations(range(size), 2)}
        if circular:  # each prefers its successor of three to itself
            self.opinions |= {(i, j): 2.0 if (j - i) % 3 == 1 else -2.0 for i, j in self.opinions}
        self.sharp, self.place, self.labels, self.fails = sharp, place, labels, fails
        self.rng = rng
        self.calls = 0

    def share(self, first: int, second: int) -> float:
        """Return the share of the one that stands first."""
        opinion = self.opinions[first, second] if first < second else -self.opinions[second, first]
        found = chance(self.sharp * (self.quality[first] - self.quality[second] + opinion) + self.place)
        return (1.0 if found > 0.6 else 0.0 if found < 0.4 else 0.5) if self.labels else found

    async def ask(self, players: Sequence[int]) -> Grade:
        self.calls += 1
        if self.rng.random() < self.fails:
            return Failed("JudgeUnavailable", "down")
        return Graded(self.share(*players) if len(players) == 2 else 0.5)


def circle(size: int, opponents: int) -> list[tuple[int, int]]:
    """The pairs of the schedule without rounds: all, or each member with its neighbours on a shuffled circle."""
    if size - 1 <= opponents:
        return list(combinations(range(size), 2))
    order = list(range(size))
    random.Random(f"0 {size}").shuffle(order)
    return sorted(
        {
            (min(a, b), max(a, b))
            for distance in range(1, opponents // 2 + 1)
            for place in range(size)
            if (a := order[place]) != (b := order[(place + distance) % size])
        }
    )


def win_rates(referee: Referee, opponents: int) -> list[float]:
    """Scores by the share of the comparisons won, of pairs in both orders."""
    taken: list[list[float]] = [[] for _ in referee.quality]
    for i, j in circle(len(referee.quality), opponents):
        share = (referee.share(i, j) + 1 - referee.share(j, i)) / 2
        taken[i].append(share)
        taken[j].append(1 - share)
    return [math.fsum(shares) / len(shares) for shares in taken]


def strengths_of_same(referee: Referee, opponents: int) -> list[float]:
    """Strengths from the very same comparisons."""
    pairs = circle(len(referee.quality), opponents)
    games = [Game(a, b, referee.share(a, b)) for i, j in pairs for a, b in ((i, j), (j, i))]
    return strengths(games, [0.0] * len(referee.quality))[0]


def chances(found: Sequence[float]) -> list[float]:
    """Scores by strengths: the mean chance against the others."""
    return [
        fmean(chance(own - other) for j, other in enumerate(found) if j != i) for i, own in enumerate(found)
    ]


def closeness(scores: Sequence[float], quality: Sequence[float]) -> float:
    """Correlation of advantages with those of the truth; 0 for scores that are all equal."""
    return correlation(scores, quality) if max(scores) > min(scores) else 0.0
