"""Grouping is a partition that keeps order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit import DataError, Rollout, group_by_prompt
from judgekit.run.grouping import group_id

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


def test_a_hosts_id_never_meets_a_digest() -> None:
    rollouts = [Rollout(response="", prompt="p"), Rollout(response="", group=("p", None))]
    assert group_by_prompt(rollouts) == [[0], [1]]


def test_an_id_that_cannot_be_hashed_is_said() -> None:
    with pytest.raises(DataError, match="rollout 1: its group id must be hashable, not list"):
        group_by_prompt([Rollout(response=""), Rollout(response="", group=[1])])  # type: ignore[arg-type]
