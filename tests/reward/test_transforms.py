"""Group transforms: their values, ties, and that nothing yields NaN."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit.reward.transforms import TRANSFORMS, gdpo, is_flat, mean

finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("name", "rewards", "expected"),
    [
        ("none", [1, 2], [1, 2]),
        ("center", [0, 1, 2], [-1, 0, 1]),
        ("zscore", [0, 1, 2], [-1, 0, 1]),
        ("zscore", [1, 1, 1], [0, 0, 0]),
        ("zscore", [0.1, 0.1, 0.1], [0, 0, 0]),
        ("zscore", [0.1 + 0.2, 0.3], [0, 0]),
        ("loo", [0, 0, 3], [-1.5, -1.5, 3]),
        ("rank", [5, -1, 5, 9], [0.5, 0, 0.5, 1]),
        ("rank", [2, 2, 2], [0.5, 0.5, 0.5]),
        ("rank", [1e6, 1e6 + 1e-5, 2e6], [0.25, 0.25, 1]),
        ("rank", [2e-12, 1e-12], [1, 0]),
        ("rank", [7], [0.5]),
        ("rank", [0.1 + 0.2, 0.3], [0.5, 0.5]),
        ("rank", [0.1 + 0.2 - 0.3, 1, 0], [0.25, 1, 0.25]),
        ("rank", [1.7e308, -1.7e308], [1, 0]),
        ("zscore", [1e308, -1e308], [math.sqrt(0.5), -math.sqrt(0.5)]),
        ("zscore", [5], [0]),
        ("loo", [5], [0]),
        ("center", [5], [0]),
    ],
)
def test_values(name: str, rewards: list[float], expected: list[float]) -> None:
    assert TRANSFORMS[name](rewards) == pytest.approx(expected)


@given(st.sampled_from(sorted(TRANSFORMS)), st.lists(finite, min_size=1, max_size=10))
def test_never_nan_and_equal_stay_equal(name: str, rewards: list[float]) -> None:
    out = TRANSFORMS[name](rewards)
    assert len(out) == len(rewards)
    assert all(map(math.isfinite, out))
    for i, a in enumerate(rewards):
        for j, b in enumerate(rewards):
            if a == b:
                assert out[i] == out[j]
            elif a > b:
                assert out[i] >= out[j]


@given(st.lists(finite, min_size=1, max_size=10), st.randoms())
def test_permuting_a_group_permutes_its_numbers(rewards: list[float], random: object) -> None:
    order = list(range(len(rewards)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for transform in TRANSFORMS.values():
        straight = transform(rewards)
        assert transform([rewards[i] for i in order]) == pytest.approx([straight[i] for i in order], rel=1e-6)


@given(st.lists(finite, min_size=1, max_size=10))
def test_mean_stays_between_the_ends(rewards: list[float]) -> None:
    assert min(rewards) <= mean(rewards) * (1 + 1e-12) or mean(rewards) == pytest.approx(min(rewards))
    assert math.isfinite(mean(rewards))


def test_gdpo_weighs_terms_after_normalising_each() -> None:
    terms = [{"a": 100.0, "b": 0.0}, {"a": 0.0, "b": 0.001}]
    s = math.sqrt(0.5)
    assert gdpo(terms, {"a": 1, "b": 1}) == pytest.approx([0, 0])
    assert gdpo(terms, {"a": 1, "b": 0.5}) == pytest.approx([s / 2, -s / 2])
    assert gdpo([{"a": 1.0}, {}, {"a": 2.0}], {"a": 1})[1] == 0
    assert gdpo([{}, {"b": 1.0}], {"a": 1, "b": 1}) == [0, 0]


def test_float_noise_is_not_spread() -> None:
    assert is_flat([0.1 * 3, 0.3])
    assert is_flat([0, 0])
    assert not is_flat([0, 1e-12])
    assert not is_flat([1, 1.001])
