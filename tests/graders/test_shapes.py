"""Inputs of repeated fragments take linear time: quadratic code would take minutes for these, and end by the timeout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from judgekit import Rollout
from judgekit.graders import MultipleChoice
from judgekit.graders.rules.agents.expected import shallow
from judgekit.graders.rules.agents.literals import literal
from judgekit.graders.rules.agents.trajectory import read_trajectory
from judgekit.graders.rules.answers.mathtext import readable, same_words, wordy
from judgekit.graders.rules.committed import last_boxed
from judgekit.graders.rules.english import sentences, words
from judgekit.graders.rules.format.markup import Script
from judgekit.graders.rules.instructions.ifbench.custom import mcq_count_length
from judgekit.graders.rules.instructions.ifbench.form import emoji, parentheses, quotes, sub_bullets
from judgekit.graders.rules.numbers import final_answer, read_quantity
from judgekit.graders.rules.rule import code_blocks

pytestmark = pytest.mark.timeout(60)


def talk(role: str, text: str) -> Rollout:
    messages = ({"role": "user", "content": "q"}, {"role": role, "content": text})
    return Rollout(response="", messages=messages)


def choice_of(text: str) -> Any:
    options = {"options": ["x", "y"]}
    return MultipleChoice().grade(Rollout(response=text, ground_truth="B", extra=options))


SHAPES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "boxes": (last_boxed, "\\boxed" * 400_000),
    "boxes and fboxes": (last_boxed, "\\fbox\\boxed" * 300_000),
    "tildes": (code_blocks, "~" * 1_000_000 + "`"),
    "ticks and spaces": (code_blocks, "```" + " " * 1_000_000 + "`"),
    "fences": (code_blocks, "```\n" * 200_000),
    "full stops": (sentences, ". " * 300_000),
    "question marks": (sentences, "? " * 300_000),
    "marks": (Script("Latin").grade, Rollout(response="a" + "\u0301" * 400_000)),
    "ligatures": (final_answer, "\ufdfa" * 2_000_000),
    "action and spaces": (read_trajectory, talk("assistant", "Action: a" + " " * 300_000 + "x")),
    "actions": (read_trajectory, talk("assistant", ("Action: a" + " " * 500 + "x\n") * 500)),
    "blank lines": (sub_bullets, "\n" * 1_000_000),
    "quotes": (quotes, "\"'" * 300_000),
    "brackets": (parentheses, "([" * 300_000),
    "emoji": (emoji, "so \U0001f44d. " * 60_000),
    "questions": (mcq_count_length, "Question 1\n" * 100_000),
    "vowel signs": (words, "\u0915\u093f" * 500_000),
    "new and spaces": (lambda text: literal(text, "Array", "", "java"), "new" + " " * 1_000_000),
    "puts": (
        lambda text: literal(text, "HashMap", "", "java"),
        "new HashMap<>() {{" + 'put("a", (' * 100_000,
    ),
    "lists": (lambda text: literal(text, "array", "", "javascript"), "[" * 300_000),
    "numbers and spaces": (lambda text: readable(text, answer=True), "1" + " " * 500_000 + "/ 1 " * 100_000),
    "digits": (lambda text: readable(text, answer=True), "1" * 1_000_000 + "\\," * 100_000),
    "texts": (wordy, "\\text{" * 200_000),
    "ands": (lambda text: same_words(text, text), "a and " * 100_000),
    "wide data": (shallow, [[0] * 1000] * 1000),
    "an answer and spaces": (final_answer, "#### 1 " * 500 + " " * 60_000),
    "a reference of blank lines": (read_quantity, "\n" * 200_000),
    "answers and full stops": (final_answer, "answer is " * 3_000 + ". " * 15_000),
    "answers and dashes": (final_answer, "answer: " * 3_000 + "- " * 15_000),
    "answers and options": (choice_of, "#### 1 " * 3_000 + "(A) " * 10_000),
    "answers and quotes": (choice_of, "answer: " * 3_000 + '"' * 30_000),
    "options": (choice_of, "pick (A) " * 7_000),
    "open answers": (read_trajectory, talk("user", "<information>" * 200_000 + "</")),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_time_is_linear(shape: str) -> None:
    call, given = SHAPES[shape]
    call(given)


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("\\boxed{1} and \\boxed{2}", "2"),
        ("\\boxed{1} then \\boxed", "1"),
        ("\\fbox {a}", "a"),
        ("\\boxed{{a}\\}}", "{a}\\}"),
        ("\\boxed{1} \\boxed{2", None),
        ("\\boxed 5", None),
        ("none", None),
    ],
)
def test_the_last_box_counts(text: str, box: str | None) -> None:
    assert last_boxed(text) == box


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("Action: search[cats]", [("search", "cats")]),
        ("**Action:** `search` [cats]", [("search", "cats")]),
        ("Action: search (cats)", [("search", "cats")]),
        ("Action: search\nAction Input: cats", [("search", "cats")]),
        ("Action: search  **\n  Action Input : cats\nObservation: x", [("search", "cats")]),
        ("Action: look up[cats]", [("look up", "cats")]),
        ("Action: a", [("a", {})]),
        ("Action: stop", [("stop", {})]),
    ],
)
def test_actions_are_read(text: str, calls: list[tuple[str, Any]]) -> None:
    found = read_trajectory(talk("assistant", text)).calls
    assert [(call.name, call.arguments) for call in found] == calls


def test_answers_in_tags_are_read() -> None:
    text = "a<information>one</information> b <tool_response> two </tool_response><information>three"
    observations = read_trajectory(talk("user", text)).observations
    assert [o.text for o in observations] == ["one", "two"]


def test_sentences_need_a_word() -> None:
    assert sentences("One. ... Two? ! Three.") == ["One.", "... Two?", "! Three."]
