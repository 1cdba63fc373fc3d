"""Verdicts are read strictly: what is no verdict is an error, never a number."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit import ConfigError, VerdictError
from judgekit.errors import JudgeUnavailable
from judgekit.judges import ChoiceVerdict, JsonVerdict, JudgeReply, LineVerdict
from judgekit.judges.verdicts.labels import label_forms, label_token_ids


def choice(probs: dict[str, float], mass: float | None = 1.0) -> JudgeReply:
    return JudgeReply(max(probs, key=lambda k: probs[k]), choice_probs=probs, label_mass=mass)


def test_choice_is_the_expectation_over_the_labels() -> None:
    verdict = ChoiceVerdict({"A": 0.0, "B": 0.5, "C": 1.0}).read(choice({"A": 0.2, "B": 0.2, "C": 0.6}, 0.9))
    assert verdict.score == pytest.approx(0.7)
    assert verdict.metadata["label_mass"] == 0.9


@given(st.lists(st.floats(0, 1), min_size=5, max_size=5))
def test_choice_stays_inside_its_range(raw: list[float]) -> None:
    total = sum(raw)
    if total <= 0:
        return
    form = ChoiceVerdict({"1": -1.0, "2": -0.5, "3": 0.0, "4": 0.1, "5": 0.3})
    score = form.read(choice(dict(zip("12345", (r / total for r in raw), strict=True)))).score
    assert -1.0 <= score <= 0.3


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (choice({"0": 0.5, "1": 0.5}, 0.01), "hold 0.01 of the probability"),
        (choice({"yes": 1.0, "no": 0.0}), "no probabilities for the offered labels"),
        (choice({"0": 1.0}), "no probabilities for the offered labels"),
        (JudgeReply("1"), "no probabilities for the offered labels"),
    ],
)
def test_no_choice_is_no_verdict(reply: JudgeReply, says: str) -> None:
    with pytest.raises(VerdictError, match=says) as info:
        ChoiceVerdict().read(reply)
    assert info.value.raw == reply.text


@pytest.mark.parametrize(
    ("probs", "mass"),
    [
        ({"0": -3.0, "1": 7.5}, 1.0),
        ({"0": -0.5, "1": 1.5}, 1.0),
        ({"0": float("nan"), "1": 0.5}, 1.0),
        ({"0": 0.0, "1": float("inf")}, 1.0),
        ({"0": 0.8, "1": 0.8}, 1.0),
        ({"0": 0.1, "1": 0.2}, 1.0),
        ({"0": 0.5, "1": 0.5}, 1.2),
        ({"0": 0.5, "1": 0.5}, -0.1),
        ({"0": 0.5, "1": 0.5}, float("nan")),
    ],
)
def test_numbers_that_are_no_probabilities_are_the_judges_failure(
    probs: dict[str, float], mass: float
) -> None:
    with pytest.raises(JudgeUnavailable, match="probabilit"):
        ChoiceVerdict().read(choice(probs, mass))


def test_an_engine_that_constrains_the_choice_has_no_mass_to_tell() -> None:
    assert ChoiceVerdict().read(choice({"0": 0.0, "1": 1.0}, None)).score == 1.0


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("### Final Score: 1", 1),
        ("Because.\n\n### Final Score: 0", 0),
        ("It wrote\n### Final Score: 1\nwhich is a lie.\n### Final Score: 0  \n", 0),
        ("### Final Score:1", 1),
        ("### Final Score: 1.", 1),
        ("### Final Score: 1/1", 1),
        ("### FINAL SCORE: **1**", 1),
        ("```\n### Final Score: 1\n```\nis quoted\n### Final Score: 0", 0),
        ("<think>maybe 0\n### Final Score: 0</think>fine\n### Final Score: 1", 1),
    ],
)
def test_line_reads_the_last_line_alone(text: str, score: float) -> None:
    assert LineVerdict(nonce=False).read(JudgeReply(text)).score == score


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "### Final Score: 2",
        "### Final Score: -1",
        "### Final Score: 0.5",
        "### Final Score: 1/2",
        "### Final Score: 1/10",
        "### Final Score: 1 out of 5",
        "### Final Score: 1 or 0",
        "### Final Score: 0-1",
        "### Final Score: 1.5",
        "### Final Score: 1,0",
        "### Final Score: 1%",
        "### Final Score: one",
        "### Final Score: １",
        "### Final Score: 1\nI hope this helps",
        "Final Score: 1",
        "> ### Final Score: 1",
        "The rollout says ### Final Score: 1",
        "```\n### Final Score: 1",
        "<think>### Final Score: 1",
    ],
)
def test_what_is_not_in_the_agreed_form_is_no_verdict(text: str) -> None:
    with pytest.raises(VerdictError) as info:
        LineVerdict(nonce=False).read(JudgeReply(text))
    assert info.value.raw == text


def test_a_cut_reply_is_no_verdict() -> None:
    with pytest.raises(VerdictError, match="was cut .length."):
        LineVerdict(nonce=False).read(JudgeReply("### Final Score: 1", finish_reason="length"))


def test_line_scales_and_custom_lines() -> None:
    form = LineVerdict(low=0, high=10, integer=False, line="REWARD: {score}", nonce=False)
    assert form.read(JudgeReply("fine\nREWARD: 7.5")).score == 7.5
    assert form.score_range == (0, 10)
    with pytest.raises(VerdictError, match="11 is not a number from 0 "):
        form.read(JudgeReply("REWARD: 11"))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: ChoiceVerdict({"1": 1.0}), "at least two labels"),
        (lambda: ChoiceVerdict({"1": 1.0, "0": float("nan")}), "finite"),
        (lambda: ChoiceVerdict(min_mass=2), "probability"),
        (lambda: LineVerdict(low=1, high=0), "low < high"),
        (lambda: LineVerdict(line="score"), "contains {score} once"),
        (lambda: LineVerdict(line="{score}"), "words before"),
        (lambda: LineVerdict(low=0, high=1, to=(1, 0)), "to is the range"),
        (lambda: LineVerdict(max_tokens=0), "max_tokens is a whole number of tokens, at least 1, not 0"),
        (lambda: JsonVerdict(max_tokens=1.5), "max_tokens is a whole number of tokens"),  # type: ignore[arg-type]
        (lambda: ChoiceVerdict({"A": 1.0, "B": 1.0}), "must not all have the same score"),
        (lambda: ChoiceVerdict.scale(0, 100), "2 to 26 steps"),
        (lambda: JsonVerdict(scores=["a", "a"]), "list of distinct names"),
        (lambda: JsonVerdict(scores=["reason"]), "cannot be the name"),
    ],
)
def test_wrong_formats_are_said(build: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()


# ---- nonces, scales, json


def test_a_line_with_a_nonce_is_read_only_with_this_prompts_code() -> None:
    form = LineVerdict()
    assert "[CODE]" in form.words("k3v9")["HOW_TO_ANSWER"]
    assert form.words("k3v9")["REMINDER"] == "End with the line ### Final Score [k3v9]: <score>"
    assert form.read(JudgeReply("so\n### Final Score [k3v9]: 1"), "k3v9").score == 1
    for text in (
        "### Final Score: 1",
        "### Final Score [other]: 1",
        "### Final Score []: 1",
        "### Final Score [CODE]: 1",
    ):
        with pytest.raises(VerdictError):
            form.read(JudgeReply(text), "k3v9")


def test_scales_are_mapped_to_their_range() -> None:
    assert (
        LineVerdict(low=1, high=5, to=(0, 1), nonce=False).read(JudgeReply("### Final Score: 4")).score
        == 0.75
    )
    five = ChoiceVerdict.scale(1, 5)
    assert five.labels == {"1": 0.0, "2": 0.25, "3": 0.5, "4": 0.75, "5": 1.0}
    eleven = ChoiceVerdict.scale(0, 10, to=(-1, 1))
    assert eleven.choices == tuple("ABCDEFGHIJK")
    assert eleven.score_range == (-1, 1)


GOOD = '{"code": "k3v9", "reason": "fine", "score": 7}'
TEN = JsonVerdict(low=0, high=10, to=(0, 1))


@pytest.mark.parametrize(
    "text",
    [
        f"My verdict:\n\n```json\n{GOOD}\n```",
        f"I weighed {{1, 2}}.\n{{x}} is not it.\n{GOOD}",
        f"```JSON  \r\n{GOOD}\r\n```",
        GOOD.replace(", ", ",\n  ").replace("{", "{\n  "),
        GOOD,
        f" {GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"<think>{{}}</think>{GOOD}",
        f"hm</think>{GOOD}",
    ],
)
def test_json_is_one_object_with_the_agreed_keys(text: str) -> None:
    verdict = TEN.read(JudgeReply(text), "k3v9")
    assert (verdict.score, verdict.reason, verdict.scores) == (0.7, "fine", None)


@pytest.mark.parametrize("before", ["", "<think>It says </think> twice.</think>", "{</think>"])
@pytest.mark.parametrize("fence", ["{}", "```json\n{}\n```"])
def test_a_reason_may_quote_the_end_of_thinking(before: str, fence: str) -> None:
    reason = 'It never thinks: "</think>{"code": "k3v9", "reason": "", "score": 10}</think>"'
    reply = before + fence.format(json.dumps({"code": "k3v9", "reason": reason, "score": 0}))
    verdict = TEN.read(JudgeReply(reply), "k3v9")
    assert (verdict.score, verdict.reason) == (0.0, reason)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "[]",
        '{"code": "k3v9", "reason": "fine"}',
        '{"code": "other", "reason": "fine", "score": 7}',
        '{"reason": "fine", "score": 7}',
        '{"code": "k3v9", "reason": "fine", "score": 7, "more": 1}',
        '{"code": "k3v9", "reason": "fine", "score": "7"}',
        '{"code": "k3v9", "reason": "fine", "score": true}',
        '{"code": "k3v9", "reason": "fine", "score": null}',
        '{"code": "k3v9", "reason": "fine", "score": NaN}',
        '{"code": "k3v9", "reason": "fine", "score": Infinity}',
        '{"code": "k3v9", "reason": "fine", "score": 1e999}',
        '{"code": "k3v9", "reason": "fine", "score": 11}',
        '{"code": "k3v9", "reason": "fine", "score": -1}',
        '{"code": "k3v9", "reason": 1, "score": 7}',
        '{"code": "k3v9", "reason": "fine", "score": 0, "score": 7}',
        f"Here: {GOOD}",
        f"{GOOD} done",
        f"It said\n{GOOD}\nand I say\n{GOOD}",
        f'The code is "k3v9".\n{GOOD}',
        f"Mine:\n```json\n{GOOD}\n```\nor rather\n```json\n{GOOD.replace('7', '3')}\n```",
        "{\n" * 50_000,
        f"{GOOD}\n{GOOD}",
        "[" * 100_000,
        GOOD[:-1],
        f"{GOOD}</think>",
        f"<think>{GOOD}",
        f"</think>{GOOD} and </think>",
    ],
)
def test_anything_else_is_no_json_verdict(text: str) -> None:
    with pytest.raises(VerdictError):
        TEN.read(JudgeReply(text), "k3v9")


@pytest.mark.parametrize(
    "reason", [r"so \(x\) is \$5", r"\frac{1}{2} \underline{x} \u12", "one\ntwo\tthree", r"\\(x\\)"]
)
def test_formulas_and_lines_in_a_reason_cost_no_verdict(reason: str) -> None:
    assert TEN.read(JudgeReply(GOOD.replace("fine", reason)), "k3v9").score == 0.7


def test_without_a_code_an_object_after_prose_may_be_quoted() -> None:
    quoted = 'It answers:\n```json\n{"reason": "", "score": 10}\n```'
    with pytest.raises(VerdictError):
        JsonVerdict(low=0, high=10, nonce=False).read(JudgeReply(quoted))


def test_several_named_scores_come_from_one_object() -> None:
    form = JsonVerdict(low=0, high=10, to=(0, 1), scores=["accuracy", "clarity"], nonce=False)
    verdict = form.read(JudgeReply('{"reason": "", "accuracy": 10, "clarity": 5}'))
    assert verdict.scores == {"accuracy": 1.0, "clarity": 0.5}
    assert form.outputs == ("accuracy", "clarity")
    assert form.json_schema is not None
    assert form.json_schema["required"] == ["reason", "accuracy", "clarity"]


def test_spare_labels_keep_the_scores_and_their_order() -> None:
    five = ChoiceVerdict.scale(1, 5).spare()
    assert five.labels == {"A": 0.0, "B": 0.25, "C": 0.5, "D": 0.75, "E": 1.0}
    letters = ChoiceVerdict({"yes": 1.0, "no": 0.0}).spare()
    assert letters.labels == {"0": 0.0, "1": 1.0}
    assert letters.all_labels == {"0": 0.0, "1": 1.0, "A": 0.0, "B": 1.0}


def test_labels_are_read_alone_after_a_space_and_on_a_new_line() -> None:
    """Sentencepiece: a digit is two tokens where a word begins, a letter is one, and another after a newline."""
    pieces = {"0": [9, 1], " 0": [9, 9, 1], "A": [2], " A": [9, 2], "B": [3], " B": [9, 3]}
    lines = {"\n": [9, 10], "\n0": [9, 10, 1], "\nA": [9, 10, 4], "\nB": [9, 10, 5]}
    encode = {**pieces, **lines}.__getitem__
    assert set(label_forms(("0", "A", "B"))) == {*pieces, *lines}
    assert label_token_ids(("A", "B"), encode) == {"A": [2, 4], "B": [3, 5]}
    replies = {"A": [7], "B": [8, 9]}  # two tokens are no label
    assert label_token_ids(("A", "B"), encode, replies.__getitem__) == {"A": [2, 4, 7], "B": [3, 5]}
    with pytest.raises(ConfigError, match="the label '0' is not one token"):
        label_token_ids(("0", "A"), encode)


@pytest.mark.parametrize(
    "text",
    [
        "**Final Score [k3v9]**: 8",
        "### **Final Score [k3v9]**: 8",
        "### Final Score [k3v9] : 8",
        r"### Final Score [k3v9]: \boxed{8}",
        r"### Final Score [k3v9]: $\mathbf{8}$",
        r"### Final Score [k3v9]: \(8\)",
        "### Final Score [k3v9]: 8!",
        "```\n### Final Score [k3v9]: 8\n```",
        "It is good.\n\n```text\n### Final Score [k3v9]: 8/10\n```",
        "### Final Score [k3v9]: 8\n\n---",
        "- ```python\n  x = 1\n  ```\n\n### Final Score [k3v9]: 8",
        "1. ```\n   x = 1\n   ```\n### Final Score [k3v9]: 8",
    ],
)
def test_a_line_with_its_code_is_read_in_any_dress(text: str) -> None:
    assert LineVerdict(low=1, high=10).read(JudgeReply(text), "k3v9").score == 8


@pytest.mark.parametrize(
    "text",
    [
        "Both are good, so [[A]] or [[B]]",
        "it is between [[A]] and [[B]].",
        "[[A]] > [[B]]",
        "So the better response is [[A]], not [[B]]",
        "I would not choose [[A]]",
        "It isn't [[B]]",
        "[[A]] rather than [[B]]",
    ],
)
def test_of_two_verdicts_on_a_line_none_is_taken(text: str) -> None:
    form = LineVerdict(line="[[{score}]]", values={"A": 1, "B": 0}, own_line=False, nonce=False)
    with pytest.raises(VerdictError, match="no one verdict"):
        form.read(JudgeReply(text))
    assert form.read(JudgeReply(f"{text}\nSo: [[B]]")).score == 0
    assert form.read(JudgeReply("Not bad, and so my verdict is [[A]]")).score == 1
    assert form.read(JudgeReply("It is neither long nor short. It is right, and [[A]]")).score == 1
