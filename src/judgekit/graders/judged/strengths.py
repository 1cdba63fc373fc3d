"""Strengths from comparisons: Bradley-Terry with a Gaussian prior, of verdicts that are shares.

A comparison of i, which stands first, with j gives i a share of 1 / (1 + exp(-(strength of i - strength of j + place))).
Source: Bradley and Terry 1952 (Biometrika 39, "Rank analysis of incomplete block designs: I"); the place term as in Davidson
and Beaver 1977 (Biometrics 33, "On extending the Bradley-Terry model to incorporate within-pair order effects").
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

PRECISION: Final = 0.25
"""Of the prior of strengths: a standard deviation of 2, in logits."""
_PLACE_PRECISION: Final = 4.0
"""Of the prior of the place term: it takes some groups to move it."""
_LONGEST: Final = 2.0
"""Most that a Newton step moves a strength."""
_HALVINGS: Final = 40
"""Of a Newton step, at most: a smaller one moves nothing."""
_ROUNDING: Final = 1e-12
"""Relative error of a logarithm of a probability."""


class Game(NamedTuple):
    """A comparison that was decided: the *share*, 0 to 1, of the one that stood *first*."""

    first: int
    second: int
    share: float


class Place(NamedTuple):
    """What standing first is worth to a judge, learnt from one group after another."""

    worth: float = 0.0
    """In logits: at 0.7, equal responses get 67 % in the first place."""
    precision: float = _PLACE_PRECISION
    """How sure that is: 1 over its variance."""

    def learnt(self, before: Place, after: Place) -> Place:
        """Return the term with what one group has taught: *before* it began, and *after*. Groups may overlap in time."""
        precision = self.precision + after.precision - before.precision
        total = self.precision * self.worth + after.precision * after.worth - before.precision * before.worth
        return Place(total / precision, precision)


UNKNOWN: Final = Place()
"""The place term of a judge that nothing is known of."""


def chance(difference: float) -> float:
    """Return the share that a difference of strengths gives, 0 to 1."""
    if difference >= 0:
        return 1.0 / (1.0 + math.exp(-difference))
    odds = math.exp(max(difference, -700.0))
    return odds / (1.0 + odds)


def strengths(
    games: Sequence[Game], start: Sequence[float], place: Place = UNKNOWN, *, precise: float = 1e-9
) -> tuple[list[float], Place]:
    """Return the most probable strength of each player, in logits, and the place term with what these games say of it.

    *start*: a strength for each, where Newton's method starts. *place*: what earlier groups say. *precise*: at which step it ends.
    """
    size = len(start)
    found = [*start, place.worth]
    pivot = place.precision
    likely = _log_posterior(found, games, place)
    for _ in range(100):
        slope = [-PRECISION * strength for strength in found]
        slope[size] = place.precision * (place.worth - found[size])
        rows = [[0.0] * (size + 1) for _ in found]
        for at, row in enumerate(rows):
            row[at] = PRECISION if at < size else place.precision
        for first, second, share in games:
            expected = chance(found[first] - found[second] + found[size])
            off, curvature = share - expected, expected * (1.0 - expected)
            for one, sign in ((first, 1), (second, -1), (size, 1)):
                slope[one] += sign * off
                row = rows[one]
                row[first] += sign * curvature
                row[second] -= sign * curvature
                row[size] += sign * curvature
        steps = _solved(rows, slope)
        pivot = rows[size][size]
        longest = max(map(abs, steps))
        scale = min(1.0, _LONGEST / longest) if longest else 0.0
        for _ in range(_HALVINGS):  # a whole step may lead beyond the top, and the next one back
            there = [value + scale * step for value, step in zip(found, steps, strict=True)]
            then = _log_posterior(there, games, place)
            if then >= likely - _ROUNDING * (1.0 + abs(likely)):
                break
            scale /= 2
        found, likely = there, then
        if scale * longest < precise:
            break
    return found[:size], Place(found[size], pivot)


def _log_posterior(found: Sequence[float], games: Sequence[Game], place: Place) -> float:
    """Return how probable strengths and place term are, as a logarithm, up to a constant."""
    *players, worth = found
    total = -0.5 * PRECISION * sum(strength * strength for strength in players)
    total -= 0.5 * place.precision * (worth - place.worth) ** 2
    for first, second, share in games:
        difference = found[first] - found[second] + worth
        total += share * difference - max(difference, 0.0) - math.log1p(math.exp(-abs(difference)))
    return total


def _solved(rows: list[list[float]], right: list[float]) -> list[float]:
    """Solve a positive definite system by elimination, in place: the last pivot is what the others leave of the last curvature."""
    size = len(right)
    for at in range(size):
        row, value = rows[at], right[at]
        for below in range(at + 1, size):
            if factor := rows[below][at] / row[at]:
                other = rows[below]
                other[at:] = [x - factor * y for x, y in zip(other[at:], row[at:], strict=True)]
                right[below] -= factor * value
    found = [0.0] * size
    for at in reversed(range(size)):
        known = sum(rows[at][after] * found[after] for after in range(at + 1, size))
        found[at] = (right[at] - known) / rows[at][at]
    return found


class Pairings:
    """Who meets whom, in which place, round by round (a Swiss tournament).

    Neighbours in the order of strengths that have not met yet meet, and stand first about as often as second. *rounds*: how many
    each plays. Where there are enough for everybody to meet everybody, these games are one round, and the others return
    games in the other places.
    """

    def __init__(self, size: int, rounds: int, seed: int) -> None:
        self.rounds = min(rounds, 2 * (size - 1))
        self.order = list(range(size))
        random.Random(f"{seed} {size}").shuffle(self.order)
        self.played = [0] * size
        self.first = [0] * size
        """How often each has stood first."""
        self._met: Counter[tuple[int, int]] = Counter()
        """How often each pair has met, the smaller number first."""
        self._stood: set[tuple[int, int]] = set()

    def next(self, strengths: Sequence[float], without: Sequence[int] = ()) -> list[tuple[int, int]]:
        """Return the games of the next round, who stands first first; none after the last.

        *without*: who plays no longer.
        """
        if self.rounds <= 0:
            return []
        there = [player for player in self.order if player not in without]
        if self.rounds >= len(there) - 1 and not self._met:
            pairs = [(a, b) for at, a in enumerate(there) for b in there[at + 1 :]]
            if both := self.rounds >= 2 * (len(there) - 1):
                pairs += pairs
            self.rounds -= (1 + both) * (len(there) - 1)
        else:
            self.rounds -= 1
            there.sort(key=lambda player: -strengths[player])  # equal ones stay in the shuffled order
            if len(there) % 2:  # whoever has played most sits out
                there.remove(max(there, key=self.played.__getitem__))
            pairs = next((found for times in (1, 2) if (found := self._neighbours(there, times))), [])
        return [self._placed(*pair) for pair in pairs]

    def _neighbours(self, there: list[int], times: int) -> list[tuple[int, int]]:
        """Pair those who have met less than *times*, from the strongest on or from the weakest: whichever leaves fewer out."""
        tries = []
        for line in (there, there[::-1]):
            pairs: list[tuple[int, int]] = []
            left = list(line)
            while left:
                one = left.pop(0)
                other = next((o for o in left if self._met[min(one, o), max(one, o)] < times), None)
                if other is not None:
                    left.remove(other)
                    pairs.append((one, other))
            tries.append(pairs)
        return max(tries, key=len)

    def _placed(self, one: int, other: int) -> tuple[int, int]:
        """Note a game, and return its players in their places."""
        ahead = self.first[one] * 2 - self.played[one] - (self.first[other] * 2 - self.played[other])
        if (one, other) in self._stood or ((other, one) not in self._stood and ahead > 0):
            one, other = other, one
        self._stood.add((one, other))
        self._met[min(one, other), max(one, other)] += 1
        self.first[one] += 1
        for player in (one, other):
            self.played[player] += 1
        return one, other
