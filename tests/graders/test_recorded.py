"""Cases of the kinds in which other programs' recorded verdicts differed from ours."""

from __future__ import annotations

from typing import Any

import pytest

from judgekit import Graded, Rollout
from judgekit.graders import (
    FinalAnswer,
    JsonFormat,
    MathEquivalence,
    TextMatch,
    ToolCallFormat,
    ToolCallMatch,
)
from judgekit.graders.rules.english import sentences
from judgekit.graders.rules.instructions.constraints import capital_word_frequency


def score(grader: Any, response: str, truth: Any = None, **fields: Any) -> float | None:
    grade = grader.grade(Rollout(response=response, ground_truth=truth, **fields))
    return grade.score if isinstance(grade, Graded) else None


@pytest.mark.parametrize(
    ("gold", "response", "right"),
    [
        # several boxes are one answer, in the reference as in the response
        ("$\\boxed{1}$ and $\\boxed{-2}$", "$\\boxed{-2,1}$", 1.0),
        ("$\\boxed{1}$ and $\\boxed{2}$", "$\\boxed{2}$", 0.0),
        ("$\\boxed{1}$ and $\\boxed{2}$", "$\\boxed{1}$ and $\\boxed{2}$", 1.0),
        ("so we have $\\boxed{3}$.", "$\\boxed{3}$", 1.0),
        ("\\boxed{3}", "$\\boxed{3}$", 1.0),
        # an escaped dollar is money, no LaTeX
        ("\\$18.90", "\\boxed{18.90}", 1.0),
        ("\\$18.90", "\\boxed{\\$18.90}", 1.0),
        ("\\$6", "$\\boxed{6}$", 1.0),
        ("\\$10{,}000", "$\\boxed{10000}$", 1.0),
        ("We pay \\boxed{\\$6}", "$\\boxed{6}$", 1.0),
        ("\\$\\frac{1}{2}", "$\\boxed{\\frac12}$", 1.0),
        ("\\$36", "$\\boxed{35}$", 0.0),
        ("$\\frac{3}{4}$", "$\\boxed{0.75}$", 1.0),
    ],
)
def test_references_of_mathematics(gold: str, response: str, right: float) -> None:
    assert score(MathEquivalence(), response, gold) == right


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("one thing. two things. three things.", 3),
        ("one thing. Two things. three things.", 3),
        ("is it? yes. no.", 3),
        ("we met e.g. there. it rained.", 2),
        ("It costs approx. five. Fine.", 2),
        ("これは文です。これも文です。", 2),
        ("no end", 1),
        ("i said no. not now", 2),
    ],
)
def test_sentences_of_texts_without_capitals(text: str, count: int) -> None:
    assert len(sentences(text)) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("I'm here", 1),
        ("I'll go, I've been", 2),
        ("DON'T", 2),
        ("USA and U.S.A", 2),
        ("it’s OK", 1),
        ("no", 0),
    ],
)
def test_contractions_in_capitals(text: str, count: int) -> None:
    for n in range(4):
        assert capital_word_frequency(text, n, "at least") == (count >= n)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<answer>Paris</answer>", 1.0),
        ("<answer>Paris", 0.0),
        ("<answer>Paris</answer> and <answer>Rome", 1.0),
        ("<answer>Rome</answer> <answer>Paris</answer>", 0.0),  # side by side: Search-R1 takes the last
        ("<answer>Rome</answer> No, wait. <answer>Paris</answer>", 1.0),
        ("Paris</answer>", 0.0),
        ("</answer><answer>Paris", 0.0),
        ("<answer>Rome</answer> or Paris</answer>", 0.0),
        ("<answer>Paris</answer> or Rome</answer>", 1.0),
        ("<answer>Rome <answer>Paris</answer>", 1.0),
        ("<answer> Paris </answer> or so", 1.0),
        ("<think><answer>Rome</answer></think><answer>Paris</answer>", 1.0),
    ],
)
def test_an_answer_has_both_tags(response: str, answer: float) -> None:
    assert score(TextMatch(part="answer"), response, {"target": ["Paris", "paris"]}) == answer


@pytest.mark.parametrize(
    ("response", "strict", "any_marker"),
    [
        ("#### 72", 1.0, 1.0),
        ("The answer is 72", 0.0, 1.0),
        ("\\boxed{72}", 0.0, 1.0),
        ("#### 72\nThe answer is 71", 1.0, 0.0),
        ("#### 71\nThe answer is 72", 0.0, 1.0),
        ("72", 0.0, 0.0),
        ("#### $1,072", 0.0, 0.0),
    ],
)
def test_only_one_marker_can_be_asked_for(response: str, strict: float, any_marker: float) -> None:
    assert score(FinalAnswer(need_marker="####"), response, "#### 72") == strict
    assert score(FinalAnswer(need_marker=True), response, {"target": "72"}) == any_marker


@pytest.mark.parametrize("brackets", [0, 1, 199, 200, 5_000])
def test_json_is_found_behind_any_number_of_brackets(brackets: int) -> None:
    assert score(JsonFormat(where="anywhere"), "{x} " * brackets + 'then {"a": 1}') == 1.0


ACCEPTED = [
    {
        "plan": {
            "budget": [{"min": [300000], "max": [400000, ""]}],
            "city": ["New York", "NYC"],
            "unit": ["", "km"],
            "stops": [[{"name": ["A", "a"]}, {"name": ["B"]}]],
        }
    }
]
RIGHT = {"budget": {"min": 300000}, "city": "NYC", "stops": [{"name": "a"}, {"name": "B"}]}


@pytest.mark.parametrize(
    ("change", "right"),
    [
        ({}, 1.0),
        ({"unit": "km"}, 1.0),
        ({"unit": ""}, 1.0),
        ({"unit": "miles"}, 0.0),
        ({"budget": {"min": 300000, "max": 400000}}, 1.0),
        ({"budget": {"min": 300000, "max": ""}}, 1.0),
        ({"budget": {"min": 1}}, 0.0),
        ({"budget": {"max": 400000}}, 0.0),
        ({"budget": {"min": 300000, "other": 1}}, 0.0),
        ({"budget": 300000}, 0.0),
        ({"stops": [{"name": "A"}, {"name": "B"}]}, 1.0),
        ({"stops": [{"name": "B"}, {"name": "A"}]}, 0.0),
        ({"stops": [{"name": "A"}]}, 0.0),
        ({"stops": "A"}, 0.0),
        ({"city": None}, 0.0),
        ({"more": 1}, 0.0),
    ],
)
def test_accepted_values_inside_objects_and_lists(change: dict[str, Any], right: float) -> None:
    call = {"function": {"name": "plan", "arguments": {**RIGHT, **change}}}
    messages = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    assert score(ToolCallMatch(of="exact"), "", ACCEPTED, messages=messages) == right


@pytest.mark.parametrize(
    ("given", "exact", "standardised"),
    [("New York", 1.0, 1.0), ("new-york", 0.0, 1.0), ("NEW YORK.", 0.0, 1.0), ("York", 0.0, 0.0)],
)
def test_texts_are_compared_as_bfcl_does_on_request(given: str, exact: float, standardised: float) -> None:
    call = {"function": {"name": "go", "arguments": {"city": given}}}
    messages = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    truth = [{"go": {"city": ["New York"]}}]
    assert score(ToolCallMatch(of="exact"), "", truth, messages=messages) == exact
    assert score(ToolCallMatch(of="exact", text="standardised"), "", truth, messages=messages) == standardised


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        ("dict", {"a": 1}, 1.0),
        ("dict", 1, 0.0),
        ("float", 0.5, 1.0),
        ("float", "x", 0.0),
        ("tuple", [1], 1.0),
        ("any", "x", 1.0),
        ("ArrayList", [1], 1.0),
        ("HashMap", {}, 1.0),
        ("String", "x", 1.0),
        ("String", 1, 0.0),
        ("integer", 1, 1.0),
        ("integer", 1.5, 0.0),
    ],
)
def test_types_of_other_languages_in_a_tool_s_schema(kind: str, value: Any, fits: float) -> None:
    parameters = {
        "type": "dict",
        "properties": {"x": {"type": kind}, "type": {"type": "string"}},
        "required": ["x"],
    }
    tools = [{"name": "go", "parameters": parameters}]
    call = {"function": {"name": "go", "arguments": {"x": value, "type": "t"}}}
    messages = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    assert score(ToolCallFormat(tools=tools), "", messages=messages) == fits
