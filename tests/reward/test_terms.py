"""The terms of a weighted sum: what each was, given what it contributed; sums beyond the floats; what a form keeps."""

from __future__ import annotations

import math

import pytest

from judgekit import ConfigError, Gate, Score, Weighted
from judgekit.reward.nodes import Turns, _sum
from judgekit.reward.transforms import NEUTRAL, TRANSFORMS


@pytest.mark.parametrize("normalize", [True, False])
def test_a_term_s_value_is_known_from_what_it_contributed(normalize: bool) -> None:
    root = Weighted({"a": 3.0, "b": -1.0, "seen": 0.0}, normalize=normalize)
    total = 4.0 if normalize else 1.0
    assert root.values({"a": 3 * 0.5 / total, "b": -0.25 / total}) == {"a": 0.5, "b": 0.25}
    assert root.values({}) == {}


@pytest.mark.parametrize("normalize", [True, False])
def test_it_is_known_too_where_another_s_weight_went_to_it(normalize: bool) -> None:
    """`renormalise`: the contributions are those of the terms that there are."""
    root = Weighted({"a": 3.0, "b": (1.0, Score("b", if_missing="renormalise"))}, normalize=normalize)
    value = root.value({"a": 0.5, "b": None})
    assert value is not None
    assert root.values({"a": value}) == {"a": pytest.approx(0.5)}


def test_a_weight_that_moves_is_that_of_its_step() -> None:
    root = Weighted({"a": [[0, 1.0], [10, 3.0]], "b": 1.0}, normalize=True)
    assert root.values({"a": 0.25, "b": 0.5}, 0) == {"a": 0.5, "b": 1.0}
    assert root.values({"a": 0.75, "b": 0.25}, 10) == {"a": 1.0, "b": 1.0}


def test_two_terms_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two terms are called '1', of which one is not text"):
        Weighted({"1": 1.0, 1: 1.0})  # type: ignore[dict-item]


def test_a_sum_is_exact_and_beyond_the_floats_what_it_is_told_to_be() -> None:
    assert _sum([1e308, 1.0, -1e308], 0.0) == 1.0
    assert _sum([1e308, 1e308], math.inf) == math.inf
    assert _sum([-1e308, -1e308], -math.inf) == -math.inf
    assert _sum([math.inf, -math.inf], 7.0) == 7.0
    assert _sum([], 7.0) == 0.0


def test_a_gate_is_no_term_whose_weight_goes_to_others() -> None:
    """So its highest value bounds the sum's."""
    ranges = {"a": (0.0, 1.0), "b": (0.0, 1.0)}
    root = Weighted({"a": 1.0, "gate": (1.0, Gate("b > 0", 0.5, 0.25))})
    assert root.bounds(ranges) == (0.25, 1.5)
    dropping = Weighted({"a": 1.0, "b": (1.0, Score("b", if_missing="renormalise"))})
    assert dropping.bounds(ranges) == (0.0, 2.0)


@pytest.mark.parametrize("how", ["mean", "sum", "change"])
@pytest.mark.parametrize("more", [{}, {"if_missing": 0.5}, {"if_missing": "renormalise"}, {"if_broken": 0.0}])
def test_turns_are_written_with_all_that_was_said_of_them(how: str, more: dict[str, object]) -> None:
    node = Turns("a", how=how, **more)  # type: ignore[arg-type]
    assert node.spec() == {"turns": "a", "how": how, **more}


@pytest.mark.parametrize("name", [*TRANSFORMS, "gdpo"])
def test_a_neutral_value_is_what_a_flat_group_gets(name: str) -> None:
    if name in NEUTRAL and name in TRANSFORMS:
        assert set(TRANSFORMS[name]([0.7, 0.7, 0.7])) == {NEUTRAL[name]}
    assert ("none" in NEUTRAL) is False
    assert NEUTRAL["gdpo"] == 0.0
