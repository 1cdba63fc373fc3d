"""What judges are told of each form of verdict, word for word, and how its edges are read."""

from __future__ import annotations

from typing import Any

import pytest

from judgekit import ConfigError, VerdictError
from judgekit.judges import ChoiceVerdict, JsonVerdict, JudgeReply, LineVerdict


def test_the_words_of_a_choice() -> None:
    assert ChoiceVerdict().words("x") == {
        "HOW_TO_ANSWER": "Answer with one of 0, 1 and nothing else: 1 is the best verdict, 0 the worst.",
        "REMINDER": "Your verdict (0, 1):",
    }
    assert ChoiceVerdict({"C": 0.5, "A": 1.0, "B": -1.0}).words()["HOW_TO_ANSWER"] == (
        "Answer with one of C, A, B and nothing else: A is the best verdict, B the worst."
    )
    words = ChoiceVerdict().words()
    words.clear()
    assert len(ChoiceVerdict().words()) == 2


def test_a_choice_is_this_where_nothing_is_given() -> None:
    form = ChoiceVerdict()
    assert (form.labels, form.min_mass, form.choices, form.score_range) == (
        {"0": 0.0, "1": 1.0},
        0.5,
        ("0", "1"),
        (0.0, 1.0),
    )
    assert (form.name, form.max_tokens, form.json_schema, form.outputs) == ("choice", 1, None, ())
    assert (form.uses_nonce, form.markers) == (False, ())


@pytest.mark.parametrize(
    ("mass", "least", "says"),
    [
        (0.5, 0.5, None),
        (0.49, 0.5, "the labels hold 0.49 of the probability, below min_mass=0.5: the judge did not answer with a label"),
        (0.0, 0.0, "the labels hold 0 of the probability: the judge did not answer with a label"),
        (0.01, 0.0, None),
    ],
)  # fmt: skip
def test_labels_hold_enough_of_the_probability(mass: float, least: float, says: str | None) -> None:
    form = ChoiceVerdict(min_mass=least)
    reply = JudgeReply("1", choice_probs={"0": 0.25, "1": 0.75}, label_mass=mass, thinking="because")
    if says is None:
        verdict = form.read(reply)
        assert (verdict.score, verdict.reason) == (0.75, "because")
        assert verdict.metadata == {"probs": {"0": 0.25, "1": 0.75}, "label_mass": mass}
        return
    with pytest.raises(VerdictError) as told:
        form.read(reply)
    assert str(told.value) == says


def test_scales_of_labels() -> None:
    assert ChoiceVerdict.scale(0, 9).choices == tuple("0123456789")
    assert ChoiceVerdict.scale(1, 10).choices == tuple("ABCDEFGHIJ")
    assert ChoiceVerdict.scale(-1, 1).labels == {"A": 0.0, "B": 0.5, "C": 1.0}
    assert ChoiceVerdict.scale(0, 1, to=(-1, 3), min_mass=0.25).labels == {"0": -1.0, "1": 3.0}
    assert ChoiceVerdict.scale(0, 1, min_mass=0.25).min_mass == 0.25
    assert len(ChoiceVerdict.scale(1, 26).choices) == 26
    for low, high, count in ((1, 1, 1), (1, 27, 27)):
        with pytest.raises(ConfigError, match=f"choice: a scale has 2 to 26 steps, not {count}"):
            ChoiceVerdict.scale(low, high)


def test_spare_labels_are_of_the_other_kind_where_there_are_enough() -> None:
    ten = ChoiceVerdict({letter: float(at) for at, letter in enumerate("ABCDEFGHIJ")}, min_mass=0.25)
    assert ten.spare().choices == tuple("0123456789")
    assert ten.spare().min_mass == 0.25
    eleven = ChoiceVerdict({letter: float(at) for at, letter in enumerate("ABCDEFGHIJK")})
    assert eleven.spare() is eleven
    assert ChoiceVerdict({"7": 1.0, "8": 0.0}).spare().labels == {"A": 0.0, "B": 1.0}
    assert ChoiceVerdict({"7": 1.0, "x": 0.0}).spare().labels == {"0": 0.0, "1": 1.0}


@pytest.mark.parametrize(
    ("given", "how", "reminder"),
    [
        ({}, "Reason briefly, then end with the line\n### Final Score [CODE]: <score>\nwhere <score> is a whole number from 0 (worst) to 1 (best) and CODE is the code that you are given at the end.", "End with the line ### Final Score [k3]: <score>"),
        ({"nonce": False, "integer": False, "high": 2.5}, "Reason briefly, then end with the line\n### Final Score: <score>\nwhere <score> is a number from 0 (worst) to 2.5 (best).", "End with the line ### Final Score: <score>"),
        ({"own_line": False, "nonce": False}, "Reason briefly, then end with\n### Final Score: <score>\nwhere <score> is a whole number from 0 (worst) to 1 (best).", "End with ### Final Score: <score>"),
        ({"values": {"yes": 1, "no": 0}, "nonce": False}, "Reason briefly, then end with the line\n### Final Score: <score>\nwhere <score> is one of yes, no.", "End with the line ### Final Score: <score>"),
        ({"line": "A: {a} B: {b}", "nonce": False}, "Reason briefly, then end with the line\nA: <a> B: <b>\nwhere <a>, the score of response A, and <b>, that of response B, are each a whole number from 0 (worst) to 1 (best).", "End with the line A: <a> B: <b>"),
        ({"line": "Grade= {score} points"}, "Reason briefly, then end with the line\nGrade [CODE]= <score> points\nwhere <score> is a whole number from 0 (worst) to 1 (best) and CODE is the code that you are given at the end.", "End with the line Grade [k3]= <score> points"),
        ({"line": "Grade {score}"}, "Reason briefly, then end with the line\nGrade [CODE] <score>\nwhere <score> is a whole number from 0 (worst) to 1 (best) and CODE is the code that you are given at the end.", "End with the line Grade [k3] <score>"),
    ],
)  # fmt: skip
def test_the_words_of_a_line(given: dict[str, Any], how: str, reminder: str) -> None:
    assert LineVerdict(**given).words("k3") == {"HOW_TO_ANSWER": how, "REMINDER": reminder}


def test_a_line_is_this_where_nothing_is_given() -> None:
    form = LineVerdict()
    assert (form.line, form.own_line, form.uses_nonce, form.max_tokens) == (
        "### Final Score: {score}",
        True,
        True,
        512,
    )
    assert (form.markers, form.score_range, form.values, form.choices, form.outputs) == (
        (),
        (0.0, 1.0),
        {},
        (),
        (),
    )
    assert LineVerdict(nonce=False).markers == ("### Final Score:",)
    assert LineVerdict(line="A: {a} B: {b}", high=9).score_range == (0.0, 1.0)
    assert LineVerdict(low=1, high=5, to=(-1, 1)).score_range == (-1.0, 1.0)
    assert LineVerdict(values={"yes": 2, "no": -1, "so": 0}).score_range == (-1.0, 2.0)
    assert LineVerdict(line="xy {score}", nonce=False).markers == ("xy",)


FIVE = {"low": 1, "high": 5, "nonce": False}
PAIR = {"line": "A: {a}, B: {b}", "low": 1, "high": 10, "nonce": False}


@pytest.mark.parametrize(
    ("given", "text", "score", "reason"),
    [
        (FIVE, "so\n\n### Final Score: 4/5", 4.0, "so"),
        (FIVE, "### Final Score: 4 out of 5.0", 4.0, ""),
        (FIVE, "### Final Score: **4** / 5", 4.0, ""),
        ({**FIVE, "to": (0, 1)}, "### Final Score: 5", 1.0, ""),
        ({**FIVE, "to": (0, 1)}, "### Final Score: 1", 0.0, ""),
        ({**FIVE, "to": (5, 6), "integer": False}, "### Final Score: 2.5", 5.375, ""),
        (PAIR, "A: 3, B: 7", 0.0, ""),
        (PAIR, "A: 7, B: 3", 1.0, ""),
        (PAIR, "A: 7, B: 7", 0.5, ""),
        (PAIR, "A: **7**, B: 7/10", 0.5, ""),
        ({"values": {"True": 1, "False": 0}, "nonce": False}, "### Final Score: false.", 0.0, ""),
        ({"values": {"good": 1, "very good": 2, "bad": 0}, "nonce": False}, "### Final Score: Very Good", 2.0, ""),
        ({"own_line": False, "nonce": False, "line": "Verdict: {score}"}, "It is right. Verdict: 1.", 1.0, "It is right."),
        ({"own_line": False, "nonce": False, "line": "Verdict: {score}"}, "x" * 600 + " Verdict: 1**", 1.0, "x" * 600),
        ({"nonce": False, "line": "Overall: {score}"}, "OVERALL:  score: 1", 1.0, ""),
    ],
)  # fmt: skip
def test_a_line_is_read(given: dict[str, Any], text: str, score: float, reason: str) -> None:
    verdict = LineVerdict(**given).read(JudgeReply(text))
    assert (verdict.score, verdict.reason, verdict.scores) == (pytest.approx(score), reason, None)


@pytest.mark.parametrize(
    ("given", "text", "says"),
    [
        (FIVE, "### Final Score: 0", "the score 0 is not a whole number from 1 (worst) to 5 (best)"),
        (FIVE, "### Final Score: 6", "the score 6 is not a whole number from 1 (worst) to 5 (best)"),
        (FIVE, "### Final Score: 2.5", "the score 2.5 is not a whole number from 1 (worst) to 5 (best)"),
        (FIVE, "a\nnothing", "the reply's last line is not '### Final Score: {score}' but 'nothing'"),
        (FIVE, "x" * 90, f"the reply's last line is not '### Final Score: {{score}}' but {'x' * 80!r}"),
        ({**FIVE, "own_line": False}, "none", "the reply's end is not '### Final Score: {score}' but 'none'"),
        (FIVE, "```\n### Final Score: 4", "the verdict line is inside a code fence"),
        (PAIR, "A: 3, B: 11", "the score 11 is not a whole number from 1 (worst) to 10 (best)"),
        ({"own_line": False, "nonce": False}, "### Final Score: 1" + " " * 3 + "x" * 500, "the reply's end is not"),
        ({}, "### Final Score: 1", "the reply's last line is not '### Final Score [k3]: {score}' but '### Final Score: 1'"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_verdict_is_said(given: dict[str, Any], text: str, says: str) -> None:
    with pytest.raises(VerdictError) as told:
        LineVerdict(**given).read(JudgeReply(text), "k3")
    assert str(told.value).startswith(says)
    assert told.value.raw == text


@pytest.mark.parametrize(
    "text",
    [
        "**final score [k3]:** 1",
        "# Final Score [k3]: 1",
        "### FINAL SCORE [K3]: 1",
        "_Final_ **Score** [k3]: 1",
    ],
)
def test_with_a_code_bold_text_and_capitals_make_no_difference(text: str) -> None:
    assert LineVerdict().read(JudgeReply(text), "k3").score == 1.0


def test_the_words_and_the_schema_of_an_object() -> None:
    form = JsonVerdict(low=1, high=10, integer=True, scores=["clear", "true"], max_reason=50)
    assert form.words("k3") == {
        "HOW_TO_ANSWER": 'Answer with one JSON object and nothing else:\n{"code": "CODE", "reason": "<why, briefly>", "clear": <score>, '
        '"true": <score>}\nwhere each score is a whole number from 1 (worst) to 10 (best) and CODE is the code that you are given at '
        "the end.",
        "REMINDER": 'Answer with the JSON object {"code": "k3", "reason": "<why, briefly>", "clear": <score>, "true": <score>}',
    }
    number = {"type": "integer", "minimum": 1, "maximum": 10}
    assert form.json_schema == {
        "type": "object",
        "properties": {
            "code": {"type": "string", "maxLength": 16},
            "reason": {"type": "string", "maxLength": 50},
            "clear": number,
            "true": number,
        },
        "required": ["code", "reason", "clear", "true"],
        "additionalProperties": False,
    }
    bare = JsonVerdict(nonce=False)
    assert bare.words("k3") == {
        "HOW_TO_ANSWER": 'Answer with one JSON object and nothing else:\n{"reason": "<why, briefly>", "score": <score>}\nwhere each '
        "score is a number from 0 (worst) to 1 (best).",
        "REMINDER": "Answer with the JSON object.",
    }
    assert bare.json_schema is not None
    assert bare.json_schema["properties"] == {
        "reason": {"type": "string", "maxLength": 600},
        "score": {"type": "number", "minimum": 0.0, "maximum": 1.0},
    }
    assert (bare.max_tokens, bare.outputs, bare.score_range, bare.choices, bare.markers) == (
        512,
        (),
        (0.0, 1.0),
        (),
        (),
    )
    assert JsonVerdict().uses_nonce is True


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"code": "k3", "reason": "", "score": 1, "x": 1}', "the reply is not an object with the keys code, reason, score"),
        ('{"code": "k4", "reason": "", "score": 1}', "the reply does not contain this prompt's code"),
        ('{"code": "k3", "reason": 1, "score": 1}', "the reason is not text"),
        ('{"code": "k3", "reason": "", "score": "1"}', "'score' is not a number but '1'"),
        ('{"code": "k3", "reason": "", "score": true}', "'score' is not a number but True"),
        ('{"code": "k3", "reason": "", "score": 1e15}', "'score' is not a number but 1000000000000000.0"),
        ('{"code": "k3", "reason": "", "score": 2}', "the score 2 is not a number from 0 (worst) to 1 (best)"),
        ('{"code": "k3", "reason": "", "score": NaN}', "the reply is not one JSON object: NaN is not a score"),
        ('{"code": "k3", "code": "k3", "reason": "", "score": 1}', "the reply is not one JSON object: a key occurs twice"),
        ("nothing", "the reply is not one JSON object: it has none"),
        ("<think>hm", "the reply ends inside its thinking"),
    ],
)  # fmt: skip
def test_an_object_that_is_no_verdict_is_said(text: str, says: str) -> None:
    with pytest.raises(VerdictError) as told:
        JsonVerdict().read(JudgeReply(text), "k3")
    assert str(told.value) == says


def test_the_score_of_an_object_is_the_mean_of_its_scores() -> None:
    form = JsonVerdict(low=0, high=10, to=(0, 1), scores=["a", "b"])
    verdict = form.read(JudgeReply('{"code": "k3", "reason": "so", "a": 10, "b": 5}'), "k3")
    assert (verdict.score, verdict.reason, verdict.scores) == (0.75, "so", {"a": 1.0, "b": 0.5})


@pytest.mark.parametrize(("lines", "read"), [(15, True), (16, True), (40, True)])
def test_prose_may_have_lines_that_begin_like_an_object(lines: int, read: bool) -> None:
    good = '{"code": "k3", "reason": "", "score": 1}'
    text = "First\n" + "{x\n" * lines + good
    assert (JsonVerdict().read(JudgeReply(text), "k3").score == 1.0) is read


def test_of_a_cut_reply_no_verdict_is_read() -> None:
    for form in (LineVerdict(), JsonVerdict()):
        with pytest.raises(VerdictError, match=r"^the reply was cut \(length\) before its verdict$"):
            form.read(JudgeReply("x", finish_reason="length"), "k3")
