"""Intervals and thresholds from numbers of one's own: what they are, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from judgekit import DataError, evidence
from judgekit.evidence import interval, thresholds
from judgekit.evidence.shares import Share, design_effect, most, share
from judgekit.graders.trust import with_trust
from judgekit.types import Graded


@pytest.mark.parametrize(
    ("hits", "totals", "share", "low", "high"),
    [
        ([8, 3, 8], [8, 8, 8], 19 / 24, 0.1368, 0.9891),
        ([1, 0, 1, 1], [1, 1, 1, 1], 0.75, 0.1563, 0.9798),
        ([0, 0], [4, 4], 0.0, 0.0, 0.9746),
        ([4, 4], [4, 4], 1.0, 0.0254, 1.0),
        ([2, 0, 1], [2, 0, 3], 0.6, 0.0066, 0.9971),
        ([3], [4], 0.75, None, None),
    ],
)
def test_intervals_from_counts(
    hits: list[int], totals: list[int], share: float, low: float | None, high: float | None
) -> None:
    found = interval(hits, totals)
    assert (found.n, found.prompts) == (sum(totals), sum(total > 0 for total in totals))
    assert found.value == pytest.approx(share)
    assert (found.low, found.high) == (
        (None, None) if low is None else (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))
    )


def test_a_lower_level_is_narrower_and_counts_may_be_floats_or_truths() -> None:
    wide, narrow = interval([1, 0, 1, 1], [1, 1, 1, 1]), interval([1.0, 0.0, 1.0, 1.0], [True] * 4, level=0.9)
    assert narrow.value == wide.value
    assert (narrow.low, narrow.high) == (pytest.approx(0.2364, abs=1e-4), pytest.approx(0.9668, abs=1e-4))


def test_of_nothing_nothing_is_known() -> None:
    assert interval([], []) == interval([0, 0], [0, 0]) == Share(None, None, None, 0, 0)


@pytest.mark.parametrize(
    ("hits", "totals", "level", "says"),
    [
        ([1, 2], [3], 0.95, "two lists of one length, not of the shapes (2,) and (1,)"),
        ([[1]], [[3]], 0.95, "two lists of one length"),
        ([4], [3], 0.95, "no more hits than there are in total"),
        ([-1], [3], 0.95, "whole numbers from 0"),
        ([0.5], [3], 0.95, "whole numbers from 0"),
        ([1], [3.5], 0.95, "whole numbers from 0"),
        ([float("nan")], [3], 0.95, "whole numbers from 0"),
        ([1], [float("inf")], 0.95, "whole numbers from 0"),
        (["1"], ["3"], 0.95, "whole numbers from 0"),
        ([1], [3], 0, "the level of an interval is between 0 and 1, not 0"),
        ([1], [3], 1, "the level of an interval is between 0 and 1, not 1"),
    ],
)
def test_counts_that_are_none(hits: Any, totals: Any, level: float, says: str) -> None:
    with pytest.raises(DataError) as raised:
        interval(hits, totals, level)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("hits", "prompts", "effect"),
    [
        ([1, 1, 0, 0], [0, 0, 1, 1], 2.0714),  # each prompt says one thing
        ([1, 0, 1, 0], [0, 0, 1, 1], 1.0),  # never below independent ones
        ([1, 1, 1, 1], [0, 0, 1, 1], 1.3),  # without an error, as alike as is taken for granted
        ([1, 1, 0, 1], [0, 1, 2, 3], 1.0556),
        ([1, 0], [0, 0], 1.3),
    ],
)
def test_how_alike_rollouts_of_a_prompt_are(hits: list[int], prompts: list[int], effect: float) -> None:
    assert design_effect(np.array(hits, dtype=float), np.array(prompts)) == pytest.approx(effect, abs=1e-4)


def test_prompts_are_told_apart_by_name() -> None:
    by_name = share([True, False, True, True], ["a", "a", "b", "c"])
    assert by_name == share([True, False, True, True], [7, 7, 3, 5])
    assert by_name.prompts == 3
    assert share([True], ["a"]) == Share(1.0, None, None, 1, 1)


def test_an_upper_limit_holds_in_19_of_20_cases() -> None:
    upper = most([False] * 1000, range(1000))
    assert 2.7 / 1000 < upper < 3.1 / 1000  # the rule of three
    assert most([], []) == 1.0


# ---- thresholds


SCORES = [0.02] * 200 + [0.98] * 200 + [0.6] * 20
LABELS = [0] * 200 + [1] * 200 + [0] * 20
PROMPTS = [f"q{i}" for i in range(420)]


@pytest.mark.parametrize("scale", [1, 10])
def test_thresholds_leave_out_what_is_unsure(scale: int) -> None:
    found = thresholds([scale * x for x in SCORES], LABELS, PROMPTS, 0.05, score_range=(0, scale))
    assert (found.error, found.wrong, found.labels) == (0.05, 0.0, None)
    assert (found.low, found.high) == (pytest.approx(0.02 * scale), pytest.approx(0.98 * scale))
    assert found.kept == pytest.approx(400 / 420)


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.9), (0.3, 0.8), (0.02, 0.98), (0.35, 0.65)])
def test_what_a_threshold_says_is_kept_is_what_trust_keeps(low: float, high: float) -> None:
    scores = [low] * 200 + [high] * 200 + [0.5] * 20
    found = thresholds(scores, LABELS, PROMPTS, 0.05)
    assert found.low is not None
    assert found.high is not None
    trusted = [isinstance(with_trust(Graded(x), (found.low, found.high)), Graded) for x in scores]
    assert sum(trusted) / len(trusted) == found.kept


def test_where_no_threshold_reaches_the_error_it_says_how_many_labels_would() -> None:
    found = thresholds(SCORES, LABELS, PROMPTS, 0.001)
    assert (found.low, found.high, found.kept, found.wrong) == (None, None, None, None)
    assert found.labels == 2703  # 1.645² (1 / 0.001 - 1)


def test_scores_of_the_middle_call_right() -> None:
    prompts = [str(i) for i in range(600)]
    assert thresholds([0.5] * 600, [1] * 600, prompts, 0.05).wrong == 0.0
    assert thresholds([0.5] * 600, [0] * 600, prompts, 0.05).low is None
    assert thresholds([0.5] * 600, [True] * 600, prompts, 0.05) == thresholds(
        [0.5] * 600, [1] * 600, prompts, 0.05
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scores": [0.5]}, "three lists of one length, not of the shapes (1,), (2,) and (2,)"),
        ({"labels": [1]}, "three lists of one length"),
        ({"prompts": ["a"]}, "three lists of one length"),
        ({"scores": [[0.5]], "labels": [[1]], "prompts": [["a"]]}, "three lists of one length"),
        ({"error": 0}, "the error is a share between 0 and 1, not 0"),
        ({"error": 1}, "the error is a share between 0 and 1, not 1"),
        ({"scores": [0.5, 1.1]}, "scores are in 0..1: give score_range"),
        ({"scores": [-0.1, 1.0]}, "scores are in 0..1: give score_range"),
        ({"scores": [0.5, float("nan")]}, "scores are in 0..1: give score_range"),
        ({"labels": [1, 2]}, "labels are 1 or 0, true or false"),
        ({"scores": [], "labels": [], "prompts": []}, "there are no labels"),
    ],
)
def test_lists_that_do_not_fit(change: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {
        "scores": [0.0, 1.0],
        "labels": [0, 1],
        "prompts": ["a", "b"],
        "error": 0.1,
    } | change
    with pytest.raises(DataError) as raised:
        thresholds(**given)
    assert says in str(raised.value)


def test_the_package_has_no_other_names() -> None:
    assert evidence.interval is interval
    with pytest.raises(AttributeError, match="no attribute 'intervals'"):
        evidence.intervals  # noqa: B018
