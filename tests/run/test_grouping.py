"""Grouping is a partition that keeps order."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit import DataError, Rollout, group_by_prompt
from judgekit.run.grouping import check_groups, group_id

ids = st.one_of(st.none(), st.integers(0, 3), st.text(max_size=2), st.tuples(st.integers(0, 2)))


@given(st.lists(st.tuples(ids, st.sampled_from(["p", "q"]), st.sampled_from([None, "1", 1, [1], {"a": 1}]))))
def test_a_partition_in_order(rows: list[tuple[object, str, object]]) -> None:
    rollouts = [Rollout(response="", group=g, prompt=p, ground_truth=t) for g, p, t in rows]  # type: ignore[arg-type]
    groups = group_by_prompt(rollouts)
    assert sorted(i for g in groups for i in g) == list(range(len(rollouts)))
    assert all(g == sorted(g) for g in groups)
    assert [g[0] for g in groups] == sorted(g[0] for g in groups)
    for members in groups:
        assert len({repr(group_id(rollouts[i])) for i in members}) == 1
    assert len({group_id(rollouts[g[0]]) for g in groups}) == len(groups) or any(
        g is not None for g, _, _ in rows
    )


def test_without_an_id_prompt_and_truth_decide_never_the_prompt_alone() -> None:
    rows = [("p", "1"), ("p", "2"), ("p", "1"), ("q", "1"), ("p", 1)]
    rollouts = [Rollout(response="", prompt=p, ground_truth=t) for p, t in rows]
    assert group_by_prompt(rollouts) == [[0, 2], [1], [3], [4]]


def test_chat_prompts_are_compared_by_content() -> None:
    rollouts = [Rollout(response="", prompt=[{"role": "user", "content": c}]) for c in "aba"]
    assert group_by_prompt(rollouts) == [[0, 2], [1]]
    assert group_id(rollouts[0]) == group_id(rollouts[2]) != group_id(rollouts[1])


@pytest.mark.parametrize("column", ["images", "image", "videos"])
def test_the_images_beside_a_prompt_are_part_of_it(column: str) -> None:
    """ "<image>How many cubes are there?" is asked of many images, and answered alike."""
    rollouts = [
        Rollout(
            response="2",
            prompt="<image>How many?",
            ground_truth="2",
            extra={column: [{"bytes": image, "path": None}]},
        )
        for image in (b"one", b"two", b"one")
    ]
    assert group_by_prompt(rollouts) == [[0, 2], [1]]
    assert group_id(rollouts[0]) == group_id(rollouts[2]) != group_id(rollouts[1])


def test_a_hosts_id_never_meets_a_digest() -> None:
    rollouts = [Rollout(response="", prompt="p"), Rollout(response="", group=("p", None))]
    assert group_by_prompt(rollouts) == [[0], [1]]


def test_an_id_that_cannot_be_hashed_is_said() -> None:
    with pytest.raises(DataError, match="rollout 1: its group id must be hashable, not list"):
        group_by_prompt([Rollout(response=""), Rollout(response="", group=[1])])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "ids",
    [
        [1, True, 1.0],
        [0, False, 0.0, "0", None],
        [(1,), (True,), (1.0,), ("ids", 1)],
        [("a", (1, 2)), ("a", (True, 2))],
        [np.int64(1), np.True_, np.float64(1.0)],
    ],
)
def test_ids_that_are_equal_to_python_only_are_different_groups(ids: list[Any]) -> None:
    rollouts = [Rollout(response="", prompt="p", group=g) for g in (*ids, *ids)]
    assert group_by_prompt(rollouts) == [[i, i + len(ids)] for i in range(len(ids))]


def test_a_number_of_numpy_is_the_number() -> None:
    assert group_by_prompt([Rollout(response="", group=g) for g in (1, np.int64(1))]) == [[0, 1]]


def test_an_id_that_equals_nothing_is_said() -> None:
    with pytest.raises(DataError, match="a group id is nan"):
        group_by_prompt([Rollout(response="", group=float("nan"))])


class Answer:
    def __init__(self, text: str) -> None:
        self.text = text


def image(seed: int) -> np.ndarray:
    return np.full((100, 100), 0.5) * (np.arange(10_000).reshape(100, 100) != 5_000 + seed)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (image(1), image(2)),  # their reprs are the same
        ({"x": np.arange(5_000)}, {"x": np.where(np.arange(5_000) == 2_500, 0, np.arange(5_000))}),
        (np.float64(1.0), np.float64(2.0)),
        (Answer("a"), Answer("b")),
        ([Answer("a"), {"k": {1, 2}}], [Answer("a"), {"k": {1, 3}}]),
        (10**30, 10**30 + 1),
        ({"a": "\ud800"}, {"a": "\ud801"}),
        ({1: "a"}, {"1": "a"}),
        (float("nan"), None),
        (1 + 2j, 2 + 1j),
        (Answer, Rollout),
    ],
    ids=range(11),
)
def test_truths_are_compared_by_all_that_they_hold(one: Any, other: Any) -> None:
    copies = [one, other, copy.deepcopy(one), copy.deepcopy(other)]
    rollouts = [Rollout(response="", prompt="p", ground_truth=t) for t in copies]
    assert group_by_prompt(rollouts) == [[0, 2], [1, 3]]
    assert group_id(rollouts[0]) == group_id(rollouts[2]) != group_id(rollouts[1])


@pytest.mark.parametrize("truth", [lambda: 1, threading.Lock(), [(x for x in ())]], ids=range(3))
def test_a_truth_that_cannot_be_compared_is_said(truth: Any) -> None:
    with pytest.raises(DataError, match="give the rollouts their `group`"):
        group_by_prompt([Rollout(response="", ground_truth=truth)])


def test_a_truth_that_holds_itself_is_said() -> None:
    truth: list[Any] = []
    truth.append(truth)
    with pytest.raises(DataError, match="holds itself"):
        group_by_prompt([Rollout(response="", ground_truth=truth)])


class Incomparable:
    """An id whose like is found among the others, and which refuses to be compared."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError


def test_an_id_that_cannot_be_compared_is_said_with_its_place() -> None:
    rollouts = [Rollout(response="", group=group) for group in (Incomparable(), Incomparable())]
    says = "^rollout 1: comparing its group id, a Incomparable, raised ZeroDivisionError$"
    with pytest.raises(DataError, match=says):
        group_by_prompt(rollouts)


def test_given_groups_are_read_once_and_lose_those_without_members() -> None:
    groups = (iter(members) for members in ([1, np.int64(0)], [], [2]))
    assert check_groups(groups, 3) == [[1, 0], [2]]
