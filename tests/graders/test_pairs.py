"""Two lists are paired so that the paired are as alike as they can be together."""

from __future__ import annotations

import itertools
import random

import pytest

from judgekit.graders.rules import pairs
from judgekit.graders.rules.pairs import best_pairs


def total(alike: list[list[float]], found: list[int | None]) -> float:
    used = [j for j in found if j is not None]
    assert len(used) == len(set(used))
    return sum(alike[i][j] for i, j in enumerate(found) if j is not None)


def best(alike: list[list[float]]) -> float:
    """The best of all pairings, tried one by one."""
    rows, columns = len(alike), len(alike[0])
    if rows > columns:
        return best([[row[j] for row in alike] for j in range(columns)])
    return max(
        sum(alike[i][j] for i, j in enumerate(order))
        for order in itertools.permutations(range(columns), rows)
    )


@pytest.mark.parametrize("seed", range(60))
def test_no_other_pairing_is_better(seed: int) -> None:
    rng = random.Random(seed)
    rows, columns = rng.randint(1, 6), rng.randint(1, 6)
    values = (0.0, 0.25, 0.5, 1.0) if seed % 2 else tuple(rng.random() for _ in range(20))
    alike = [[rng.choice(values) for _ in range(columns)] for _ in range(rows)]
    found = best_pairs(alike)
    assert total(alike, found) == pytest.approx(best(alike), abs=1e-9)
    assert all(j is None or alike[i][j] > 0 for i, j in enumerate(found))


@pytest.mark.parametrize("alike", [[], [[]], [[], []]])
def test_nothing_is_paired_with_nothing(alike: list[list[float]]) -> None:
    assert best_pairs(alike) == [None] * len(alike)


def test_what_is_like_nothing_is_not_paired() -> None:
    assert best_pairs([[0.0, 0.0], [0.0, 1.0]]) == [None, 1]


def test_the_closest_pair_is_not_always_in_the_best_pairing(monkeypatch: pytest.MonkeyPatch) -> None:
    alike = [[0.9, 0.8], [0.85, 0.0]]
    assert best_pairs(alike) == [1, 0]
    monkeypatch.setattr(pairs, "_MOST_STEPS", 7)  # as for lists that are too long
    assert best_pairs(alike) == [0, None]


def test_long_lists_are_paired_too() -> None:
    size = 400
    alike = [[float(i == (j * 7) % size) for j in range(size)] for i in range(size)]
    assert total(alike, best_pairs(alike)) == size
