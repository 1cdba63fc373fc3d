"""One meaning of a rollout's fields, whatever trainer it comes from."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from judgekit.trainers import fields_of_row, plain, rollout_of, truth_of, turns_of_tokens

WORDS = ["<pad>", "I", "look", "it", "up", "\nuser\n", "tool", "says", "42", "\nassistant\n", "So", "42!"]
PROMPT = [{"role": "user", "content": "How many?"}]


def decode(ids: Any) -> str:
    return " ".join(WORDS[i] for i in ids)


def test_turns_are_rebuilt_from_the_mask() -> None:
    ids = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    mask = [1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1]
    assert turns_of_tokens(ids, mask, decode) == [
        {"role": "assistant", "content": "I look it up"},
        {"role": "tool", "content": " tool says 42 "},
        {"role": "assistant", "content": "So 42!"},
    ]


@pytest.mark.parametrize(
    ("ids", "mask", "turns"),
    [
        ([], None, []),
        ([], [], []),
        ([10, 11], None, [("assistant", "So 42!")]),
        ([5, 9], [0, 0], []),
        ([7, 10], [0, 1], [("tool", "says"), ("assistant", "So")]),
        ([10, 7], [1, 0], [("assistant", "So"), ("tool", "says")]),
        ([10, 5, 11], [1, 0, 1], [("assistant", "So"), ("tool", ""), ("assistant", "42!")]),
        ([10, 5], [1, 0], [("assistant", "So")]),
    ],
)
def test_runs_at_the_edges(ids: list[int], mask: list[int] | None, turns: list[tuple[str, str]]) -> None:
    assert [(t["role"], t["content"]) for t in turns_of_tokens(ids, mask, decode)] == turns


@pytest.mark.parametrize("role", ["assistant", "tool", "user", "system", "observation", "ipython"])
def test_the_roles_that_a_template_writes_around_a_tool_s_text_are_removed(role: str) -> None:
    for text, content in (
        (f"\n{role}\n\nfound 42\n{role}\n", "found 42"), (f" {role} \nfound\n{role}\n42", f"found\n{role}\n42"),
        (f"  \n{role}\n \nfound 42\n\t\n", "found 42"), (f"the {role}\nsays", f"the {role}\nsays"), (f"{role}", ""),
    ):  # fmt: skip
        turns = turns_of_tokens([1, 2, 3], [1, 0, 1], lambda ids, text=text: text if ids == [2] else "I")  # type: ignore[misc]
        assert turns[1] == {"role": "tool", "content": content}


def test_the_prompt_is_kept_as_it_was_given() -> None:
    turns = [{"role": "assistant", "content": "42"}]
    for prompt, kept in (("Q?", "Q?"), (PROMPT, PROMPT), (tuple(PROMPT), PROMPT)):
        made = rollout_of({}, prompt=prompt, turns=turns)
        assert (made.prompt, made.response) == (kept, "42")
        assert made.messages == ({"role": "user", "content": "Q?" if prompt == "Q?" else "How many?"}, *turns)
    assert (made.group, made.id, made.response_tokens, made.finish_reason) == (None, "", None, None)
    assert (made.data_source, dict(made.extra)) == ("", {})


def test_columns_of_data_sets_that_have_a_place_are_no_extra() -> None:
    columns = {
        "data_source": 3, "extra_info": "no mapping", "ground_truth": "42", "raw_prompt": object(),
        "reward_model": {}, "reward_spec": {}, "other": 1,
    }  # fmt: skip
    fields = fields_of_row(columns)
    assert fields == {"ground_truth": "42", "data_source": "3", "extra": {"other": 1}}


def test_the_response_is_the_last_turn_and_no_tool_s_text() -> None:
    turns = [
        {"role": "assistant", "content": "I look it up"},
        {"role": "tool", "content": "42"},
        {"role": "assistant", "content": [{"type": "text", "text": "So 42!"}]},
        {"role": "tool", "content": "late"},
    ]
    made = rollout_of({}, prompt=PROMPT, turns=turns, response_tokens=7, finish_reason="stop")
    assert made.response == "So 42!"
    assert list(made.messages) == [*PROMPT, *turns]
    assert (made.response_tokens, made.finish_reason) == (7, "stop")
    assert rollout_of({}, prompt="Q?", turns=[]).response == ""
    assert list(rollout_of({}, prompt="Q?", turns=[]).messages) == [{"role": "user", "content": "Q?"}]


@pytest.mark.parametrize(
    ("columns", "truth"),
    [
        ({"reward_model": {"ground_truth": "42", "style": "rule"}}, "42"),
        ({"reward_spec": {"ground_truth": "42"}}, "42"),
        ({"ground_truth": "42"}, "42"),
        ({"reward_model": {"ground_truth": 0}, "ground_truth": "other"}, 0),
        ({"reward_model": None, "ground_truth": "42"}, "42"),
        ({"reward_model": "a model"}, None),
        ({"reward_model": {"style": "rule"}, "ground_truth": "42"}, "42"),
        ({"solution": "So 6 × 7 is 42.", "answer": "42"}, "42"),
        ({"label": "1", "solution": "42"}, "42"),
        ({"expected_answer": "42", "answer": None}, "42"),
        ({"label": "42"}, "42"),
        ({}, None),
    ],
)
def test_the_ground_truth_is_found_in_either_format(columns: dict[str, Any], truth: Any) -> None:
    assert rollout_of(columns, prompt="Q?", turns=[]).ground_truth == truth
    assert truth_of(columns) == truth


def test_the_ground_truth_is_in_the_column_that_is_named() -> None:
    row = {"reward_model": {"ground_truth": "x"}, "answer": "x", "short": "42", "none": None}
    for name, truth in (("short", "42"), ("reward_model", "x"), ("none", None)):
        assert rollout_of(row, prompt="Q?", turns=[], truths=(name,)).ground_truth == truth


def test_what_is_left_over_goes_into_extra() -> None:
    columns = {
        "data_source": "maths",
        "index": 3,
        "extra_info": {"level": 5, "index": 4},
        "raw_prompt": PROMPT,
    }
    made = rollout_of(columns, prompt=PROMPT, turns=[], group="u", id="u_0", fields={"level": 1, "turn": 2})
    assert (made.data_source, made.group, made.id) == ("maths", "u", "u_0")
    hidden = {"judgekit.columns": {"index": 3}}  # for functions that were written for columns
    assert dict(made.extra) == {"index": 4, "level": 5, "turn": 2, **hidden}
    same = rollout_of({"index": 3, "extra_info": {"index": 3}}, prompt=PROMPT, turns=[])
    assert dict(same.extra) == {"index": 3}
    assert columns["extra_info"] == {"level": 5, "index": 4}


def test_numpy_values_become_python_s() -> None:
    np = pytest.importorskip("numpy")
    columns = {
        "data_source": np.str_("maths"),
        "reward_model": {"ground_truth": "42"},
        "tags": np.array(["a", "b"]),
        "weight": np.float32(0.5),
        "nested": np.array([{"n": 1}], dtype=object),
    }
    made = rollout_of(columns, prompt="Q?", turns=[])
    assert dict(made.extra) == {"tags": ["a", "b"], "weight": 0.5, "nested": [{"n": 1}]}
    assert type(made.extra["weight"]) is float


def test_numpy_inside_other_values_becomes_python_s() -> None:
    """As pandas reads the columns of verl's parquet files: a list of accepted answers is an array."""
    np = pytest.importorskip("numpy")
    accepted = np.array(["4", "four"], dtype=object)
    columns = {
        "reward_model": {"ground_truth": accepted},
        "extra_info": {"choices": accepted, "pairs": [(np.int64(1), "a")], "table": np.array([[1, 2]])},
    }
    made = rollout_of(columns, prompt="Q?", turns=[], fields={"scores": {"inner": np.float32(0.5)}})
    assert made.ground_truth == ["4", "four"]
    assert type(made.ground_truth) is list
    assert dict(made.extra) == {
        "choices": ["4", "four"],
        "pairs": [(1, "a")],
        "table": [[1, 2]],
        "scores": {"inner": 0.5},
    }
    assert type(made.extra["pairs"][0][0]) is int
    assert type(made.extra["scores"]["inner"]) is float


def test_values_without_numpy_are_not_copied() -> None:
    ids = list(range(1000))
    assert plain(ids) is ids
    longest = pytest.importorskip("numpy").longdouble(1)
    assert plain(longest) is longest  # which has no value of Python's


def test_the_module_needs_no_numpy() -> None:
    assert "numpy" not in sys.modules["judgekit.trainers.rollouts"].__dict__


@pytest.mark.parametrize("nothing", [None, "", [], {}, float("nan")])
def test_a_reference_that_is_not_given_hides_no_other(nothing: Any) -> None:
    assert truth_of({"answer": nothing, "solution": "#### 42"}) == "#### 42"
    assert truth_of({"reward_model": {"ground_truth": nothing}, "label": 0}) == 0
    # no calls, no fields
    assert truth_of({"answer": nothing}) == (nothing if isinstance(nothing, list | dict) else None)


def test_columns_that_cannot_be_compared_are_kept() -> None:
    class Odd:
        def __ne__(self, other: object) -> bool:
            raise RuntimeError("ambiguous")

    odd = Odd()
    made = rollout_of({"level": odd, "extra_info": {"level": odd}}, prompt="q", turns=[])
    assert made.extra["level"] is odd
    assert made.extra["judgekit.columns"] == {"level": odd}
