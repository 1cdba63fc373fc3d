"""The final answer: which number counts, and when two are equal."""

from __future__ import annotations

import json
import math
import os
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit import Abstained, ConfigError, Graded, GradingRunner, Rollout
from judgekit.graders import FinalAnswer, MathEquivalence
from judgekit.graders.rules.notation import shown
from judgekit.graders.rules.numbers import final_answer


@pytest.mark.parametrize(
    ("text", "number"),
    [
        # markers
        ("So 36.\n#### 72", 72),
        ("A: 72", 72),
        ("72 is wrong\nA: 18", 18),
        ("\\boxed{72}", 72),
        ("$\\boxed{\\text{about } 72}$", 72),
        ("The answer is $1,234.50.", 1234.5),
        ("The final answer is: **42**", 42),
        ("**Answer:** 7", 7),
        ("Final Answer: 7 apples in 3 bags", 7),
        ("Answer:\n9", 9),
        ("<answer>5</answer> and 6 more", 5),
        ("The answer is 3 * 4 = 12.", 12),
        ("the answer is x = 12 because 3 * 4 = 12", 12),
        ("#### 5 + 3 = 8", 8),
        # the last marker decides, even without a number
        ("#### 5\nWait.\n#### 6", 6),
        ("\\boxed{5} so the answer is 6", 6),
        ("The answer is 5.\n####", None),
        ("A: ", None),
        # without a marker the last number
        ("She has 3 + 4 = 7 apples", 7),
        ("7 apples, he said", 7),
        ("no number", None),
        ("", None),
        # a list of numbers, and nothing else
        ("-3, 4, 3", None),
        ("-3, 4, 3 cm", None),
        ("3 cm\n4 cm", None),
        ("100 cm, 1 m", 1),
        ("3 pears, 4 apples", 4),
        # signs
        ("A: -5", -5),
        ("A: −5", -5),
        ("A: -$5.50", Fraction(-11, 2)),
        ("A: $-5", -5),
        ("that is 10-5", None),
        ("10 - 5", None),
        ("So:\n- 5", 5),
        # forms of numbers
        ("A: 18.00", 18),
        ("The answer is 1.2×10^3 or so.", 1200),
        ("The answer is $3 \\times 10^{8}$ metres a second", 300000000),
        ("The answer is 2^10 or so.", 1024),
        ("The answer is 1.2×10^3x", None),
        ("A: .5", Fraction(1, 2)),
        ("A: 1,234,567", 1234567),
        ("A: 1{,}234", 1234),
        ("A: 1\\,234", 1234),
        ("A: 1\u202f234", 1234),
        ("A: 1'234", 1234),
        ("A: 1/2", Fraction(1, 2)),
        ("A: 1 1/2", Fraction(3, 2)),
        ("A: \\frac{3}{4}", Fraction(3, 4)),
        ("A: \\dfrac{3}{4}", Fraction(3, 4)),
        ("A: -\\frac{1}{2}", Fraction(-1, 2)),
        ("A: ½", Fraction(1, 2)),
        ("A: 2e3", 2000),
        ("A: 3 \\times 10^4", 30000),
        ("A: 3 × 10^{-2}", Fraction(3, 100)),
        ("A: ７２", 72),
        # characters that stand for a fraction or an exponent do not run into the number before them
        ("A: 3½", Fraction(7, 2)),
        ("A: 3 ½", Fraction(7, 2)),
        ("A: -$3¾ per kg", Fraction(-15, 4)),
        ("A: 10²", 100),
        ("A: -3²", -9),
        ("A: 5 × 10³", 5000),
        ("A: 5 × 10⁻³ m", Fraction(1, 200)),
        ("A: 10⁻²", Fraction(1, 100)),
        ("A: 2¹⁰", 1024),
        ("A: 101₂", 101),
        ("A: ³", None),
        # an exponent is part of its number, and none of its own
        ("A: 10^2", 100),
        ("A: 2^{10}", 1024),
        ("A: 2 ^ -1", Fraction(1, 2)),
        ("A: 0^-1", None),
        ("it is 10^2", 100),
        ("so it has 42 m²", 42),
        ("so it has 42 m^2", 42),
        ("so it has 42 \\text{ cm}^{2}", 42),
        ("it is 7 [^12]", 7),
        ("x^2 = 49, so x_1 = 7", 7),
        ("A: 90^\\circ", 90),
        ("A: 20ᵗʰ", 20),
        ("A: 1e200", 10**200),
        ("A: 1e201", None),
        ("A: 3 × 10^200", 3 * 10**200),
        ("A: 3 × 10^999", None),
        ("A: 2^200", 2**200),
        ("A: 99^101", None),
        ("A: 2^" + "9" * 5000, None),
        ("A: 50%", 50),
        ("A: €20", 20),
        ("A: 20 miles per hour", 20),
        ("A: 007", 7),
        ("A: 1/0", None),
        ("A: " + "9" * 5000, None),
        # thinking is no answer
        ("<think>it is 5</think>\nIt is 6", 6),
        ("<think>the answer is 5", None),
        ("so 5</think> 6", 6),
        ("#### 7<think>", 7),
    ],
)
def test_which_number_counts(text: str, number: Fraction | None) -> None:
    assert final_answer(text) == number


def test_need_marker() -> None:
    assert final_answer("it is 7", need_marker=True) is None
    assert final_answer("#### 7", need_marker=True) == 7


def grade(response: str, truth: object, **options: float) -> object:
    return FinalAnswer(**options).grade(Rollout(response=response, ground_truth=truth))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("response", "truth", "score"),
    [
        ("#### 72", "72", 1),
        ("#### 72", 72, 1),
        ("#### 72", 72.0, 1),
        ("#### 0.1", 0.1, 1),
        ("#### 1,234.50", "so 36\n#### 1234.5", 1),
        ("#### 71", "72", 0),
        ("#### 720", "72", 0),
        ("#### 7.2", "72", 0),
        ("#### 5", ["4", "5"], 1),
        ("#### 6", ["4", "5"], 0),
        ("nothing", "5", 0),
        ("#### 0.33", "1/3", 0),
        ("A: 18.0", "A: 18", 1),
        # a worked solution whose last line is the number alone
        ("#### 7", "3 + 4 = <<3+4=7>>7 apples.\n7", 1),
        ("#### 4", "3 + 4 = <<3+4=7>>7 apples.\n7", 0),
        ("#### 1057", "190 + 112 = 302\n$3.5 * 302 = $1057\n\n1,057.00\n", 1),
    ],
)
def test_scores(response: str, truth: object, score: float) -> None:
    found = grade(response, truth)
    assert isinstance(found, Graded)
    assert found.score == score


@pytest.mark.parametrize(
    "truth", [None, "", "unknown", [], True, math.nan, {"a": 1}, "4\n5", "Both:\n4\n5", "x = 4\ny = 5"]
)
def test_without_a_number_in_the_reference_it_abstains(truth: object) -> None:
    assert grade("#### 5", truth) == Abstained("the reference has no number")


def test_tolerance_is_relative() -> None:
    assert grade("#### 0.333", "1/3", tolerance=0.01).score == 1  # type: ignore[attr-defined]
    assert grade("#### 0.3", "1/3", tolerance=0.01).score == 0  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="from 0 to below 1"):
        FinalAnswer(tolerance=-1)


def test_reasons_are_short_and_say_what_was_read() -> None:
    assert grade("#### 71.50", "72").reason == "71.5 instead of 72"  # type: ignore[attr-defined]
    assert shown(Fraction(1, 3)) == "1/3"


@given(st.text(max_size=300), st.one_of(st.text(max_size=20), st.integers(), st.floats()))
def test_any_text_gives_a_grade(text: str, truth: object) -> None:
    (result,) = GradingRunner([FinalAnswer()]).run_sync([Rollout(response=text, ground_truth=truth)])
    assert type(result.grades["final_answer"]).__name__ in ("Graded", "Abstained")


@given(st.fractions(min_value=-(10**9), max_value=10**9, max_denominator=10**4))
def test_a_number_reads_back(number: Fraction) -> None:
    assert final_answer(f"#### {shown(number)}") == number or number.denominator not in (1,)
    assert final_answer(f"#### {number.numerator}/{number.denominator}") == number


def test_real_solutions_agree_with_their_labels() -> None:
    """2,640 labelled model solutions, where the data is there."""
    path = Path(os.environ.get("JUDGEKIT_DATA", "../shared/data")) / "gsm8k_solutions_dev.jsonl"
    if not path.exists():
        pytest.skip("the labelled solutions are not here")
    grader = FinalAnswer()
    seen = 0
    for line in path.read_text().splitlines():
        row = json.loads(line)
        for solution in row.values():
            if isinstance(solution, dict):
                found = grader.grade(Rollout(response=solution["solution"], ground_truth=row["ground_truth"]))
                assert isinstance(found, Graded)
                assert found.score == solution["is_correct"]
                seen += 1
    assert seen == 2640


def test_mathematics_is_read_without_what_nobody_sees_and_without_a_denial() -> None:
    for truth in ("5", "0"):
        for text in (
            f"The answer is\u200b x={truth}+1.",
            f"x\u2060={truth}+1",
            f"\\boxed{{\\text{{not }} {truth}}}",
        ):
            assert MathEquivalence().grade(Rollout(response=text, ground_truth=truth)).score == 0, text  # type: ignore[union-attr]
    right = Rollout(response="The answer is\u200b x=\ufeff5.", ground_truth="x=5")
    assert MathEquivalence().grade(right).score == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    [
        "Not x=5.", "It is anything but x = 5.", "I am sure that it is not x=5.", "So it is -(5).", "The answer is -(5).", "x=-(5)",
        "\\boxed{-(5)}", "2(5)", "The answer is 2(5).", "<answer>-(5)</answer>",
        "The answer is x=5 (or x=-5).", "The answer is 5 (or 6).", "The answer is x=-5 or x=5.", "\\boxed{x=6, x=5}", "#### x = 4 and x = 5",
        "<answer>x=-(-6) or x=5</answer>",
    ],
)  # fmt: skip
def test_a_number_that_an_expression_changes_or_a_denial_names_is_no_answer(text: str) -> None:
    for rule in (FinalAnswer(), MathEquivalence()):
        for truth in ("5", "x=5"):
            found = rule.grade(Rollout(response=text, ground_truth=truth))
            assert not isinstance(found, Graded) or found.score == 0, (rule, truth, found)


@pytest.mark.parametrize(
    "text",
    [
        "It is by no means 50.", "So it is not quite 50.", "nowhere near 50", "It is not at all 50.", "In no case 50.", "We can rule out 50.", "Nobody gets 50 here.",
        "50 does not solve it.", "The answer is false if it is 50.", "It is not true that it is 50.", "I do not believe that it is 50.",
        "The answer was 50 before, but no longer is.", "It is 61, or else 50.", "It is one of 61, 72, 50.", "between 61 and 50", "It is 61 (or 50).", "61 and 50",
        "Candidates: 61, 72, 50", "If not 61, then 50.", "The answer is 50. Or 61. Or 72.", "#### 50. Or 61.", "That makes 8 \\times 50.", "8 * 50", "f(50)", "It is log(50).",
    ],
)  # fmt: skip
def test_dodges_without_a_marker_are_no_answers(text: str) -> None:
    """Nor is what is listed behind a marked one."""
    for rule in (FinalAnswer(), MathEquivalence()):
        found = rule.grade(Rollout(response=text, ground_truth="50"))
        assert not isinstance(found, Graded) or found.score == 0, (rule, found)


@pytest.mark.parametrize(
    "text",
    [
        "It cannot be 61, so it is 50.", "In 2020, 50 of them came.", "It is not true that it is 61. It is 50.", "Between 61 and 72 there is a gap. It is 50.",
        "The sum of 20 and 30 is 50.", "5 * 10 = 50", "f(5) = 50", "If not all are counted, it is 50.", "Either 20 and 30, or 10 and 40: always 50.",
        "Total\n* 50", "It is *50*.", "It is **50**.", "(50)", "That is 20 dollars and 30 more, so 50.", "The answer is 50. Or, in words, fifty.", "5 does not solve it. 50",
    ],
)  # fmt: skip
def test_a_last_number_is_an_answer_where_it_is_said(text: str) -> None:
    assert FinalAnswer().grade(Rollout(response=text, ground_truth="50")).score == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "score"),
    [
        *((f"The answer is {said}.", 0) for said in ("3 hours (or 4)", "3 hours (or -3)", "3 hours (or 4 hours)", "3% (or 4)")),
        *((f"The answer is {said}.", 1) for said in ("3 hours (or 180 minutes)", "3 hours or 180 minutes", "3 eggs (or 1/4 dozen)")),
        *((f"The answer is {said}.", 0) for said in ("x = 4 or x = 3", "x = 4, x = 3")),
        *((f"The answer is {said}.", 1) for said in ("x = 2 + 1, x = 3", "2x = 6, x = 3", "x = 3 or x = 3.0", "x = 6/2, x = 3")),
    ],
)  # fmt: skip
def test_a_number_beside_another_is_one_of_several_unless_they_are_the_same(text: str, score: float) -> None:
    assert FinalAnswer().grade(Rollout(response=text, ground_truth="3")).score == score  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    [
        "x=5",
        "So x=5.",
        "It is not y=3, so x=5",
        "(5)",
        "\\boxed{(5)}",
        "x = $5$",
        "not 3 but x=5",
        "The answer is 5 (or five).",
        "The answer is 5 (or 5.0).",
        "The answer is x = 10/2, x = 5.",
    ],
)
def test_an_equation_s_value_is_an_answer(text: str) -> None:
    for rule in (FinalAnswer(), MathEquivalence()):
        assert rule.grade(Rollout(response=text, ground_truth="5")).score == 1, rule  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        # another answer is put in the answer's place
        ("The answer is 42. Wait, no, it's 43.", "43", "42"),
        ("The answer is 42, sorry, 43.", "43", "42"),
        ("The answer is 42 — no, 43.", "43", "42"),
        ("The answer is 42, or rather 43.", "43", "42"),
        ("The answer is 42. That is wrong. It should be 43.", "43", "42"),
        ("\\boxed{42}\n\nWait, no, it's 43.", "43", "42"),
        ("#### 42\nOops, that's 43", "43", "42"),
        ("<answer>42</answer> Sorry, I mean 43.", "43", "42"),
        ("The answer is 42. Wait, no, it's not 43.", None, "43"),
        # and here it is not
        ("The answer is 42. Actually, it's a nice number.", "42", "43"),
        ("The answer is 42. Actually, 43 is prime.", "42", "43"),
        ("The answer is 42. Wait, let me check: 6*7=42. Yes.", "42", "7"),
        ("Thus, Rose had 60 - 56 = 4 incorrect answers.", "4", "56"),
        ("It is 42, incorrect.", None, "42"),
        ("The answer is not 41. The answer is 42.", "42", "41"),
        ("The answer cannot be 41, so the answer is 42.", "42", "41"),
        ("There is no doubt that the answer is 42.", "42", "1"),
        ("I doubt that the answer is 42.", None, "42"),
        # Markdown's headings are no markers
        ("It is 6.\n##### 5\nso 6 it is", "6", "5"),
        ("#### Final Answer\n42", "42", "1"),
        ("#### Conclusion\nShe has 42 apples.", "42", "1"),
        ("#### Step 1: Add\n40+2=42\n\nShe has 42.", "42", "1"),
        ("#### 1. Add\n40+2=42", "42", "1"),
        ("#### Therefore:\n42", "42", "1"),
        ("#### 42\nThat is it, in 3 steps.", "42", "3"),
        ("Answer - 42", "42", "-42"),
        ("Answer -42", "-42", "42"),
        ("The answer:\n- 42", "42", "-42"),
        ("The answer is:\n\n$$\n42\n$$\n\nIt is 6 * 7.", "42", "7"),
        ("Answer:\n```\n42\n```", "42", "4"),
        # what somebody could do is as certain as what she did
        ("Aunt May has 133 + 15 = 148 gallons.", "148", "15"),
        ("Therefore, he could read 36 * 2 = 72 pages.", "72", "2"),
        ("So she could buy 9 tickets.", "9", "1"),
        ("It could be 9.", None, "9"),
        ("She may have 9.", None, "9"),
        # a title ends no sentence
        ("The answer is: Mr. Johnson has 12+10=22 students.", "22", "12"),
    ],
)
def test_what_a_response_stands_by(text: str, right: str | None, wrong: str) -> None:
    for rule in (FinalAnswer(), MathEquivalence()):
        assert rule.grade(Rollout(response=text, ground_truth=wrong)).score == 0, rule  # type: ignore[union-attr]
        if right is not None:
            assert rule.grade(Rollout(response=text, ground_truth=right)).score == 1, rule  # type: ignore[union-attr]


COUNTED = [
    ("five apples", "5", 1), ("The answer is five apples.", "5", 1), ("Answer: twenty-five dollars", "25", 1),
    (r"\boxed{\text{five apples}}", "5", 1), ("The answer is one half.", "0.5", 1), ("Two thirds", "2/3", 1),
    ("The answer is two and a half hours.", "2.5", 1), ("The answer is three quarters of an hour.", "3/4", 1),
    ("The answer is a dozen.", "12", 1), ("The answer is five, not six.", "5", 1), ("The answer is a hundred.", "100", 1),
    ("The answer is five or six apples.", "5", 0), ("The answer is one of them.", "1", 0), ("The answer is one more than five.", "1", 0),
    ("The answer is three times five.", "3", 0), ("The answer is ten to twelve.", "10", 0), ("The answer is one in five.", "1", 0),
    ("The answer is not five apples.", "5", 0),
]  # fmt: skip
AROUND = [
    ("The answer is 5xy", "5", 0), ("The answer is 5 xy", "5", 0), (r"\boxed{5xy}", "5", 0), ("5 x^2", "5", 0), ("The answer is 5theta", "5", 0),
    ("The answer is 130miles", "130", 1), ("So it is 130miles", "130", 1), ("The answer is 20apples.", "20", 1),
    ("Answer: Total: 42", "42", 1), ("The answer is x:42", "42", 0), ("The answer is $8 for 3 gallons of milk.", "8", 1),
    ("The answer is 119 dollars after 7 days.", "119", 1), ("The answer is 64 then 7", "64", 0), ("The answer is 1 in 6.", "1", 0),
    ("The answer is 42 or more.", "42", 0), ("The answer is 42 apples or fewer", "42", 0), ("The answer is 42+.", "42", 0),
    ("The answer is 42, more or less.", "42", 1), ("The answer is 90 minutes, or 1.5 hours.", "90", 1),
    ("The answer is 90 minutes, or 1.5 hours.", "1.5", 0), ("The answer is 90 minutes or 2 hours.", "90", 0),
    ("The answer is > 42", "42", 0), ("x > 42", "42", 0),
    ("x>42", "42", 0),
    ("She has 6*7=<<6*7=42>>42 apples.", "42", 1), (r"\boxed{x \ge 42}", "42", 0), ("The answer is 42 squared", "42", 0),
    ("The answer is half of 42", "42", 0), ("The answer is twice 42", "42", 0), ("The answer is the square root of 42.", "42", 0),
    ("The answer is 42 divided by 2", "42", 0), ("The answer is 42 factorial", "42", 0), ("=> 42", "42", 1),
    ("The answer is 42<|im_end|>", "42", 1), ("The answer is 42.<turn|>", "42", 1), ("#### 42[e~[", "42", 1), ("The answer is 42.<|eot_id|><|endoftext|>\n", "42", 1), ("#### 42</s>", "42", 1),
    ("42<\uff5cend\u2581of\u2581sentence\uff5c>", "42", 1), ("Answer: 42, as 6 * 7 = 42.", "42", 1), ("The answer is 3.5 cups.", "7/2", 1),
    ("The answer is now 42", "42", 1), ("Answer: #42", "42", 1), ("Answer: the 42nd", "42", 1), ("Answer: 42 \u00b0C", "42", 1),
    ("Answer: 42 kg\u00b7m/s", "42", 1), ("Answer: 42 N\u00b7m", "42", 1), ("Answer: 42 x\u00b7m", "42", 0),
    ("Answer: 42 (cm)", "42", 1), ("The answer is <42>.", "42", 1), ("Answer: 42 \u2705", "42", 1), ("__42__", "42", 1),
    ("The answer is 42 - not 41.", "42", 1), (r"\boxed{\text{42 apples}}", "42", 1), (r"\boxed{\text{3.14 cm}}", "3.14", 1),
    (r"\boxed{1\,\frac{1}{2}}", "1.5", 1), (r"\boxed{10\ 000}", "10000", 1), (r"\boxed{10,\!000}", "10000", 1), (r"\boxed{{42}}", "42", 1),
]  # fmt: skip


@pytest.mark.parametrize(("text", "truth", "score"), [*COUNTED, *AROUND])
def test_a_number_is_read_with_what_stands_around_it(text: str, truth: str, score: float) -> None:
    for rule in (FinalAnswer(), MathEquivalence()):
        assert rule.grade(Rollout(response=text, ground_truth=truth)).score == score, rule  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "truth", "score"),
    [
        ("5 m^2", "5 m", 0), ("5 m", "5 m^2", 0), ("5 m^3", "5 m^2", 0), (r"\boxed{5\,\text{m}^{2}}", "5 m", 0), ("25 cm2", "25 cm", 0),
        ("5 m²", "5 m^2", 1), ("5 square meters", "5 m^2", 1), ("10000 cm^2", "1 m^2", 1), ("1 m^3", "1000 L", 1), ("5 m^2", "5", 1), ("5", "5 m^2", 1),
        ("100 km/h", "100 m/s", 0), (r"\boxed{100\,\text{km/h}}", "100 m/s", 0), ("60 mph", "60 km/h", 0), ("$5 per hour", "$5 per day", 0),
        ("10 m/s^2", "10 m/s", 0), ("100 km/h", "100 kilometers per hour", 1), ("36 km/h", "10 m/s", 1), ("60 mph", "60 miles per hour", 1),
        (r"\boxed{100 \frac{\text{km}}{\text{h}}}", "100 km/h", 1), ("$5 per hour", "$5", 1), ("$5", "$5 an hour", 1), ("3 apples per day", "3", 1),
        ("2 hours and 30 minutes", "2.5 hours", 1),
        ("2 hours 30 minutes", "150 minutes", 1),
        ("5 feet 6 inches", "66 inches", 1),
        ("2 dollars and 50 cents", "$2.50", 1),
        ("$2 and 50 cents", "2.5", 1),
        ("2 hours 90 minutes", "3.5 hours", 0),
        ("3 dozen", "36", 1), ("3 dozen", "3", 1), ("36 eggs", "3 dozen eggs", 1), ("2 dozen", "3 dozen", 0),
    ],
)  # fmt: skip
def test_units_of_area_rates_and_dozens(text: str, truth: str, score: float) -> None:
    assert grade(f"The answer is {text}.", truth).score == score  # type: ignore[attr-defined]
    assert grade(text, truth).score == score  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["The answer is 1{}", "The answer is{} 2"])
def test_an_answer_that_is_corrected_again_and_again_is_none_and_fails_nothing(text: str) -> None:
    again = ", no, it's 2" if text.endswith("{}") else " not 2 but"
    for times, score in ((1, 1.0), (3, 1.0), (50, 0.0), (5000, 0.0)):
        grade = FinalAnswer().grade(Rollout(response=text.format(again * times), ground_truth="2"))
        assert isinstance(grade, Graded)
        assert grade.score == score


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("The answer is 42. I hope this answer is clear!", 1),
        ("The answer is 42. Let me know if the answer is unclear.", 1),
        ("#### 42\n\nThe other answers are wrong.", 1),
        ("\\boxed{42}\n\nNote: a common incorrect answer is 41.", 1),
        ("\\boxed{42}\n\nIncorrect: forgetting the carry gives 32.", 1),
        ("#### 42\nFalse: 41", 1),
        ("The answer is 42. The answer is correct.", 1),
        ("The answer is 42. The wrong answer is 41.", 1),
        ("The wrong answer is 42.", 0),
        ("The answer is 42. The answer is wrong.", 0),
        ("The answer is 42. That is incorrect.", 0),
        ("The answer is 42. Incorrect.", 0),
        ("One answer is 42. The other answer is 7.", 0),
        ("The answer is 42. The previous answer is wrong.", 0),
        ("The answer is 41. The correct answer is 42.", 1),
        ("The answer is 42. The answer is correct: 42", 1),
        ("Answer: 42\nThis answer is based on the passage.", 1),
        ("The answer is 42. No other answer is possible.", 1),
        ("The answer is 42. The answer is not clear.", 0),
        ("The answer is 42. The other answer is not 7.", 1),
    ],
)
def test_remarks_on_an_answer_are_none(response: str, score: float) -> None:
    grade = FinalAnswer().grade(Rollout(response=response, ground_truth="42"))
    assert isinstance(grade, Graded)
    assert grade.score == score
