"""Where in a trainer's tokens a reward lies."""

from __future__ import annotations

import math
import random

import pytest

from judgekit.trainers import placed, turn_runs


@pytest.mark.parametrize(
    ("mask", "runs"),
    [
        ([], []),
        ([0, 0], []),
        ([1], [(0, 1)]),
        ([0, 1, 1, 0, 0, 1, 0], [(1, 3), (5, 6)]),
        ([1, 1, 0, 1], [(0, 2), (3, 4)]),
        ([True, False, True], [(0, 1), (2, 3)]),
    ],
)
def test_turns_are_the_runs_of_the_mask(mask: list[int], runs: list[tuple[int, int]]) -> None:
    assert turn_runs(mask) == runs


def test_a_turns_part_lies_on_its_last_token_and_the_outcome_on_the_policys_last() -> None:
    assert placed(1.0, (0.25, 0.5), [[1, 1, 0, 1, 0]]) == ([[0.0, 0.25, 0.0, 0.75, 0.0]], True)
    assert placed(1.0, (0.25, 0.5), [[1, 0], [0, 1, 0]]) == ([[0.25, 0.0], [0.0, 0.75, 0.0]], True)


@pytest.mark.parametrize("masks", [[[1, 0, 1, 0, 1, 0]], [[1, 1, 1]], [[0, 0]], [[1, 1], [1]]])
def test_another_number_of_turns_is_not_guessed_at(masks: list[list[int]]) -> None:
    """All of the reward lies on the last token, and is told to be unplaced."""
    rewards, found = placed(1.0, (0.25, 0.25, 0.5) if masks == [[1, 1], [1]] else (0.5, 0.5), masks)
    assert (sum(map(sum, rewards)), rewards[-1][-1], found) == (1.0, 1.0, False)


def test_a_reward_without_turns_lies_on_the_last_token() -> None:
    assert placed(0.5, (), [[1, 1, 0]]) == ([[0.0, 0.0, 0.5]], True)
    assert placed(0.5, (), [[]]) == ([[]], True)


def test_nothing_is_lost() -> None:
    rng = random.Random(0)
    for _ in range(300):
        turns = tuple(rng.uniform(-1, 1) for _ in range(rng.randint(1, 8)))
        mask: list[int] = []
        for _ in turns:
            mask += [1] * rng.randint(1, 5) + [0] * rng.randint(1, 4)
        reward = rng.uniform(-2, 2)
        (tokens,), found = placed(reward, turns, [mask])
        assert found
        assert math.fsum(tokens) == pytest.approx(reward, abs=1e-12)
        assert all(mask[at] for at, value in enumerate(tokens) if value)
