"""What a response only thought, in the forms of the models' chat templates. tests/vllm/test_parsers.py asks vLLM the same."""

from __future__ import annotations

import re

import pytest

from judgekit import Graded, Rollout
from judgekit.graders import (
    Boxed,
    FinalAnswer,
    JsonFormat,
    JsonMatch,
    Length,
    MathEquivalence,
    MultipleChoice,
    RegexFormat,
    TextMatch,
)
from judgekit.graders.rules.thoughts import after_think, last_turn, without_thinking
from tests.graders.thinking_templates import ANSWER, THINKING, THOUGHT


@pytest.mark.parametrize("template", THINKING)
def test_what_is_thought_is_no_answer_in_any_form(template: str) -> None:
    opens, ends = THINKING[template]
    whole = f"{opens}{THOUGHT}{ends}{ANSWER}"
    assert (after_think(whole) or "").strip() == ANSWER
    cut = whole[: whole.index(ends)]
    assert after_think(cut) is None
    assert THOUGHT not in without_thinking(whole)
    assert ANSWER in without_thinking(whole)
    assert without_thinking(cut) == ""
    for text, truth, score in ((whole, "42", 1), (whole, "41", 0), (cut, "41", 0)):
        graded = FinalAnswer().grade(Rollout(response=text, ground_truth=truth))
        assert isinstance(graded, Graded)
        assert graded.score == score, (text, truth)
    graded = Boxed().grade(Rollout(response=cut))
    assert isinstance(graded, Graded)
    assert graded.score == 0


@pytest.mark.parametrize(
    "text",
    [
        "analysis of the sum: 42", "analysis", "analysis: 42", "Analysis\nThe answer is 42", "<channel> 42", "<x:thinker>42", "a thought 42",
        "the assistantfinal is 42", 'print("</think>")', "re.split('<think>', text)", 'Write `<think>` and `</think>`: 42', '{"a": "<think>"}',
    ],
)  # fmt: skip
def test_ordinary_text_is_no_thought(text: str) -> None:
    assert after_think(text) == text
    assert without_thinking(text) == text


def test_messages_of_gpt_oss_keep_their_calls_where_decoding_dropped_the_marks() -> None:
    text = 'analysisI need it.assistantcommentary to=functions.f json{"a": 1}assistantanalysisNow I know.assistantfinalIt is 42.'
    kept = without_thinking(text)
    assert "need" not in kept
    assert "know" not in kept
    assert 'to=functions.f json{"a": 1}' in kept
    assert kept.endswith("It is 42.")
    assert after_think(text) == "It is 42."


def test_marks_in_quotes_end_no_thought_and_begin_none() -> None:
    text = 'I must print "</think>".</think>\n```python\nprint("</think>", \'<think>\')\n```'
    assert after_think(text) == text.partition('".</think>')[2]
    assert after_think('I must print "</think>" and') == 'I must print "</think>" and'
    assert after_think('<think>I must print "</think>" and') is None
    assert without_thinking('<think>I print "</think>" here</think>42') == "42"
    assert after_think('He thought.</think>"42"') == '"42"'
    assert after_think('<think>So it is "yes"</think>"Yes"') == '"Yes"'
    assert after_think("<think>So it is `b`</think>`b`") == "`b`"
    assert after_think("re.split(r'</think>', x)") == "re.split(r'</think>', x)"
    assert after_think('He said "so"</think>42') == "42"


@pytest.mark.parametrize("end", ["<|im_end|>", "</s>", "<seed:eos>", "[|endofturn|]", "[EOS]", "<eos>"])
def test_a_token_that_ends_a_turn_is_no_part_of_it(end: str) -> None:
    graded = FinalAnswer().grade(Rollout(response=f"#### 42{end}", ground_truth="42"))
    assert isinstance(graded, Graded)
    assert graded.score == 1
    assert after_think(f"[1, 2]{end}") == "[1, 2]"
    assert after_think("[1, 2]") == "[1, 2]"
    assert after_think("see [EOS] and more]") == "see [EOS] and more]"


SEARCHED = "<think>I search.</think>\n<search>6*7</search>\n"


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (SEARCHED + "<information>6*7 = 42</information>", ""),
        (SEARCHED + "<information>6*7 = 42", ""),
        (SEARCHED, ""),
        (SEARCHED + "<information>41</information> It is 42.", "It is 42."),
        (SEARCHED + "<information>41</information>\n<think>So.</think>\nIt is 42.", "It is 42."),
        ("<code>print(6*7)</code>\n<interpreter>\n42\n</interpreter>", "<code>print(6*7)</code>"),
        ('<tool_call>\n{"a": 42}\n</tool_call>\n<tool_response>\nThe answer is \\boxed{42}\n</tool_response>', ""),
        ("<tool_call>{}</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>42</tool_response>", ""),
        ("<tool_call>{}</tool_call>\n<tool_call>{}</tool_call>\n<tool_response>41</tool_response>\n<tool_response>42</tool_response>", ""),
        # what stands before a check is said last
        (r"It is \boxed{42}. I check: <tool_call>{}</tool_call><tool_response>41</tool_response>", r"It is \boxed{42}. I check: <tool_call>{}</tool_call>"),
        ("<code>print(6*7)</code><answer>42</answer><interpreter>42</interpreter>", None),
        ('<tool_call>{"name": "final_answer", "arguments": {"answer": 42}}</tool_call>', None),
        # tags that are spoken of, or not closed, and what is no trajectory
        (SEARCHED + "<information>41</information>The `<information>` says 41, so the answer is 42.", "The `<information>` says 41, so the answer is 42."),
        (SEARCHED + "<information>41</information>My <search> gave 41; the answer is 42.", "My <search> gave 41; the answer is 42."),
        ("I'll call <tool_call> never. The answer is 42.", None),
        ('<tool_call>{"a": 1}\n\nThe answer is 42.', None),
        ("<information>42</information>", None),
        ("In HTML: <code>42</code>", None),
        ("Wrap it in <code>x</code>; the <interpreter> then runs it and prints 42.", None),
    ],
)  # fmt: skip
def test_what_a_tool_said_is_no_answer(text: str, last: str | None) -> None:
    """None: all of it is the policy's."""
    last = text if last is None else last
    assert (last_turn(text) or "").strip() == last
    paid = float("42" in last)
    rollout = Rollout(response=text, ground_truth="42")
    for rule in (FinalAnswer(), MathEquivalence(), TextMatch(how="contains")):
        graded = rule.grade(rollout)
        assert isinstance(graded, Graded)
        assert graded.score == paid, rule.name


def test_a_long_result_of_a_tool_is_no_answer() -> None:
    text = SEARCHED + "<information>" + "a document. " * 6000 + " The answer is 41.</information>"
    for rule in (FinalAnswer(), MathEquivalence()):
        graded = rule.grade(Rollout(response=text, ground_truth="41"))
        assert isinstance(graded, Graded)
        assert graded.score == 0


def test_the_element_search_of_html_is_an_answer() -> None:
    said = (
        "Option A is <nav>…</nav>, option B is <search>…</search>. A `<search>` is right, so the answer is B"
    )
    graded = MultipleChoice(options=["<nav>", "<search>"]).grade(Rollout(response=said, ground_truth="B"))
    assert isinstance(graded, Graded)
    assert graded.score == 1


def test_a_letter_that_a_tool_said_is_no_choice() -> None:
    for text, score in (
        (SEARCHED + "<information>B</information>", 0),
        (SEARCHED + "<information>A</information> B", 1),
    ):
        graded = MultipleChoice().grade(Rollout(response=text, ground_truth="B"))
        assert isinstance(graded, Graded)
        assert graded.score == score


@pytest.mark.parametrize("end", ["<|im_end|>", "</s>", "<|eot_id|>\n"])
def test_what_ends_a_turn_is_no_part_of_it(end: str) -> None:
    rules = (
        (JsonFormat(where="whole"), '{"a": 1}', None),
        (JsonMatch(where="whole"), '{"a": 1}', {"a": 1}),
        (RegexFormat("</answer>$", match="search", where="inline"), "x</answer>", None),
        (RegexFormat(".*</answer>", where="inline"), "x</answer>", None),
        (Length(soft_max=8, hard_max=9), "good bye", None),
        (Length(unit="words", soft_max=2, hard_max=3), "good bye ", None),
    )
    for rule, text, truth in rules:
        for ended in ("", end):
            graded = rule.grade(Rollout(response=text + ended, ground_truth=truth))  # type: ignore[attr-defined]
            assert isinstance(graded, Graded)
            assert graded.score == 1, (rule.name, ended)
    asks = RegexFormat(rf".*{re.escape(end.strip())}\s*", where="inline")  # it may be asked for
    assert asks.grade(Rollout(response="bye" + end)) == Graded(1.0)
    assert isinstance(asks.grade(Rollout(response="bye")), Graded)
