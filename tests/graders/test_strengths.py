"""Strengths are the most probable ones, and rounds pair whom they should."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit.graders.judged.strengths import PRECISION, Game, Pairings, Place, chance, strengths


def slopes(games: list[Game], found: list[float], place: float) -> list[float]:
    """The derivative of the log posterior by each strength."""
    made = [-PRECISION * strength for strength in found]
    for first, second, share in games:
        off = share - 1 / (1 + math.exp(found[second] - found[first] - place))
        made[first] += off
        made[second] -= off
    return made


@given(st.integers(1, 12), st.integers(0, 60), st.floats(-2, 2), st.randoms(use_true_random=False))
def test_nothing_is_more_probable(size: int, count: int, place: float, rng: random.Random) -> None:
    """The posterior is concave: where its derivatives are 0 is its only top."""
    pairs = [rng.sample(range(size), 2) for _ in range(count if size > 1 else 0)]
    games = [Game(i, j, rng.choice([0.0, 1.0, 0.5, rng.random()])) for i, j in pairs]
    before = Place(place, 3.0)
    found, after = strengths(games, [rng.uniform(-3, 3) for _ in range(size)], before)
    assert max(map(abs, slopes(games, found, after.worth))) < 1e-7
    off = [share - chance(found[first] - found[second] + after.worth) for first, second, share in games]
    assert math.fsum(off) + 3.0 * (place - after.worth) == pytest.approx(0, abs=1e-7)
    assert after.precision >= 3.0 - 1e-9
    assert sum(found) == pytest.approx(0, abs=1e-6)
    assert all(map(math.isfinite, found))


@pytest.mark.parametrize(("seed", "start", "place"), [(37, -3.0, 2.0), (43, 3.0, -2.0), (140, -3.0, -2.0), (1383, 3.0, 2.0)])  # fmt: skip
def test_the_top_is_found_where_whole_steps_lead_beyond_it_and_back(
    seed: int, start: float, place: float
) -> None:
    rng = random.Random(seed)
    games = [Game(*rng.sample((0, 1), 2), rng.choice([0.0, 1.0, 0.5])) for _ in range(60)]
    found, after = strengths(games, [start, -start], Place(place, 3.0))
    assert max(map(abs, slopes(games, found, after.worth))) < 1e-7


def test_sure_verdicts_and_those_that_contradict_each_other_have_strengths() -> None:
    beaten, _ = strengths([Game(0, 1, 1.0)] * 50, [0.0, 0.0])
    assert 2 < beaten[0] < 10
    assert beaten[0] == pytest.approx(-beaten[1])
    assert strengths([Game(0, 1, 1.0), Game(1, 2, 1.0), Game(2, 0, 1.0)], [0.0] * 3)[0] == pytest.approx(
        [0, 0, 0]
    )
    assert strengths([], []) == ([], Place())
    assert chance(800) == 1
    assert chance(-800) == pytest.approx(0)


def test_a_place_term_is_learnt_from_one_group_after_another() -> None:
    rng, place = random.Random(0), Place()
    for _ in range(50):
        quality = [rng.gauss(0, 1) for _ in range(8)]
        games = [
            Game(i, j, chance(quality[i] - quality[j] + 0.7))
            for i in range(8)
            for j in range(8)
            if i != j and rng.random() < 0.4
        ]
        place = place.learnt(place, strengths(games, [0.0] * 8, place)[1])
    # somewhat less: the prior holds strengths together, and the term with them
    assert place.worth == pytest.approx(0.65, abs=0.06)


@given(st.integers(1, 33), st.integers(1, 40), st.integers(0, 5))
def test_members_meet_once_then_once_more_in_the_other_places(size: int, rounds: int, seed: int) -> None:
    pairings, rng = Pairings(size, rounds, seed), random.Random(seed)
    strength = [rng.gauss(0, 1) for _ in range(size)]
    games = []
    while found := pairings.next(strength):
        games += found
        strength = [value + rng.gauss(0, 0.1) for value in strength]
    assert all(first != second for first, second in games)
    assert len(set(games)) == len(games)
    pairs = {frozenset(game) for game in games}
    met_twice = len(games) - len(pairs)
    if met_twice:
        assert len(pairs) == size * (size - 1) / 2 or rounds >= size - 1
    played = [sum(player in game for game in games) for player in range(size)]
    assert max(played, default=0) <= max(min(rounds, 2 * (size - 1)), 0) or rounds >= size - 1
    if size > 1 and rounds < size - 1:
        first = [sum(game[0] == player for game in games) for player in range(size)]
        assert all(abs(2 * f - p) <= 4 for f, p in zip(first, played, strict=True))


def test_groups_that_overlap_in_time_all_teach() -> None:
    games = [Game(0, 1, 0.7), Game(2, 0, 0.7), Game(1, 2, 0.7)]
    start = Place()
    _, one = strengths(games, [0.0] * 3, start)
    together = start.learnt(start, one).learnt(start, one)
    assert together.precision == pytest.approx(2 * one.precision - start.precision)
    assert together.worth > one.worth > start.worth


def test_who_is_lost_meets_nobody() -> None:
    pairings = Pairings(6, 12, 0)
    pairings.next([0.0] * 6)
    while games := pairings.next([0.0] * 6, without=(2, 4)):
        assert not {2, 4} & {player for game in games for player in game}


def test_neighbours_meet() -> None:
    pairings = Pairings(16, 4, 0)
    pairings.next([0.0] * 16)
    by_strength = [float(-player) for player in range(16)]
    gaps = [abs(first - second) for first, second in pairings.next(by_strength)]
    assert sum(gaps) / len(gaps) < 2
