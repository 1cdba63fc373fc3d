"""What a response only thought, in the forms of the models' chat templates. tests/vllm/test_parsers.py asks vLLM the same."""

from __future__ import annotations

import pytest

from judgekit import Graded, Rollout
from judgekit.graders import Boxed, FinalAnswer
from judgekit.graders.rules.thoughts import after_think, without_thinking
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
