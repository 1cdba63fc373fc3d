"""Advantages of turns: siblings only, unbiased where the policy decides when to stop."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from judgekit.reward.turns import turn_advantages


def test_a_turns_return_is_compared_with_the_same_turn_of_the_others() -> None:
    got = turn_advantages([[1.0, 2.0], [0.0, 4.0], [5.0]], ["g"] * 3)
    assert got == [[3.0 - 4.5, 2.0 - 4.0], [4.0 - 4.0, 4.0 - 2.0], [5.0 - 3.5]]


def test_later_turns_count_less_with_a_discount() -> None:
    assert turn_advantages([[1.0, 2.0], [0.0, 0.0]], "gg", gamma=0.5) == [[2.0, 2.0], [-2.0, -2.0]]


def test_a_turn_that_nobody_else_reached_is_compared_with_their_last() -> None:
    got = turn_advantages([[0.0, 0.0, 6.0], [1.0], [1.0, 2.0]], ["g"] * 3)
    assert got[0] == [6.0 - 2.0, 6.0 - 2.0, 6.0 - 1.5]


def test_groups_and_missing_members_are_apart() -> None:
    """A missing member is not there; who has no sibling gets 0."""
    rewards = [[1.0, 1.0], None, [3.0], (), [7.0, 1.0]]
    got = turn_advantages(rewards, ["a", "a", "a", "b", "b"])
    assert got == [[-1.0, -2.0], [], [1.0], [], [0.0, 0.0]]
    valid = [i for i, one in enumerate(rewards) if one]
    alone = turn_advantages([rewards[i] for i in valid], ["aaabb"[i] for i in valid])
    assert [got[i] for i in valid] == alone


def test_outcomes_alone_give_grpo_with_leave_one_out() -> None:
    rng = random.Random(0)
    outcomes = [rng.random() for _ in range(6)]
    got = turn_advantages([[0.0, 0.0, x] for x in outcomes], ["g"] * 6)
    for i, x in enumerate(outcomes):
        other = (sum(outcomes) - x) / 5
        assert got[i] == pytest.approx([x - other] * 3, abs=1e-12)


GOES_ON, EARNS, OUTCOME = (0.6, 0.3), (0.5, 1.0, 0.2), (0.3, 0.0, 1.0)


def rewards_of(turns: int) -> list[float]:
    return [EARNS[t] + (OUTCOME[turns - 1] if t == turns - 1 else 0.0) for t in range(turns)]


def chance(turns: int) -> float:
    return (1 - GOES_ON[0], GOES_ON[0] * (1 - GOES_ON[1]), GOES_ON[0] * GOES_ON[1])[turns - 1]


def scores(turns: int) -> list[tuple[int, float]]:
    """The derivative of the log probability by the logit of each decision to go on."""
    return [(t, 1 - GOES_ON[t] if turns > t + 1 else -GOES_ON[t]) for t in range(min(turns, 2))]


@pytest.mark.parametrize("members", [2, 4])
def test_the_gradient_keeps_its_expectation_where_the_policy_stops(members: int) -> None:
    """By enumeration of all groups: the policy goes on after turn 1 and 2 or not, and turns earn unlike amounts."""
    true, got = [0.0, 0.0], [0.0, 0.0]
    for turns in (1, 2, 3):
        for t, slope in scores(turns):
            true[t] += chance(turns) * slope * sum(rewards_of(turns))
    for group in itertools.product((1, 2, 3), repeat=members):
        weight = math.prod(map(chance, group))
        advantages = turn_advantages([rewards_of(turns) for turns in group], ["g"] * members)
        for i, turns in enumerate(group):
            for t, slope in scores(turns):
                got[t] += weight * slope * advantages[i][t] / members
    assert got == pytest.approx(true, rel=1e-9)
