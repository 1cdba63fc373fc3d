"""Mathematical equivalence and multiple choice."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Failed, Graded, GradingRunner, Rollout
from judgekit.execution.pool import ProcessPool
from judgekit.graders import MathEquivalence, MultipleChoice
from judgekit.graders.rules.answers.choices import Options, choose, read_options

MATHS: list[tuple[str, Any, float | None]] = [
    (r"\boxed{\frac{1}{2}}", "0.5", 1),
    (r"\boxed{\frac12}", 0.5, 1),
    (r"The answer is $\frac{3}{4}$.", r"\frac{6}{8}", 1),
    ("So the answer is 72.", "72", 1),
    ("So the answer is 71.", "72", 0),
    (r"\boxed{x = 5}", "5", 1),
    (r"\boxed{(1, 2)}", "(1,2)", 1),
    (r"\boxed{(2, 1)}", "(1,2)", 0),
    (r"\boxed{[1, 2)}", "[1,2)", 1),
    (r"\boxed{[1, 2]}", "[1,2)", 0),
    (r"\boxed{\{2, 1\}}", r"\{1, 2\}", 1),
    (r"\boxed{50\%}", "0.5", 1),
    (r"\boxed{\text{B}}", "B", 1),
    (r"$x^2+2x+1$", "$(x+1)^2$", 1),
    (r"\boxed{\sqrt{2}/2}", r"\frac{1}{\sqrt{2}}", 1),
    (r"\boxed{1,234}", 1234, 1),
    (r"\boxed{2\pi}", r"2\pi", 1),
    (r"\boxed{5} and \boxed{6}", r"\{5, 6\}", 1),
    (r"\boxed{5} and \boxed{6}", "6", 0),
    (
        r"\boxed{5} is what I thought at first, but that is wrong: I forgot to carry the one. So it is \boxed{6}",
        "6",
        1,
    ),
    (r"<think>\boxed{5}</think> It is \boxed{6}", "6", 1),
    (r"<think>\boxed{5}", "5", 0),
    ("", "5", 0),
    ("I do not know", "5", 0),
    ("答案是 $\\boxed{7}$。", "7", 1),
    (r"\boxed{7}", "so 3 + 4 = 7\n#### 7", 1),
    (r"\boxed{7}", r"therefore $\boxed{7}$ it is", 1),
    (r"\boxed{7}", ["6", "7"], 1),
    (r"\boxed{8}", ["6", "7"], 0),
    (r"\boxed{8}", None, None),
    (r"\boxed{8}", "", None),
    (r"\boxed{8}", True, None),
    (r"\boxed{8}", float("nan"), None),
    (r"\boxed{8}", [], None),
    (r"\boxed{8}", "1" * 30_000, None),
    (r"\boxed{" * 3000, "5", 0),
]


@pytest.mark.parametrize(("response", "truth", "expected"), MATHS)
def test_maths(response: str, truth: Any, expected: float | None) -> None:
    grade = MathEquivalence().grade(Rollout(response=response, ground_truth=truth))
    if expected is None:
        assert isinstance(grade, Abstained)
    else:
        assert isinstance(grade, Graded)
        assert grade.score == expected


def test_maths_runs_where_it_can_be_killed() -> None:
    """Also off the main thread, and an expression that never ends is the rollout's fault."""
    pool = ProcessPool(1)
    try:
        runner = GradingRunner([MathEquivalence(timeout_s=2)], pool=pool)
        rollouts = [
            Rollout(response=rf"\boxed{{{x}}}", ground_truth="7") for x in ("9**9**9**9", "7", "9^{9^{9^9}}")
        ]
        bomb, right, other = runner.run_sync(rollouts)
        grade = bomb.grades["math"]
        assert isinstance(grade, Graded | Failed)
        assert not isinstance(grade, Failed) or grade.cause == "rollout"
        assert right.reward == 1
        assert other.reward == 0
    finally:
        pool.close()


def test_maths_settings() -> None:
    two = Rollout(response=r"\boxed{5} no, \boxed{6}", ground_truth="6")
    assert MathEquivalence(boxes="last").grade(two).score == 1  # type: ignore[union-attr]
    assert (
        MathEquivalence(thinking="keep").grade(Rollout(response=r"<think>\boxed{5}", ground_truth="5")).score
        == 1
    )  # type: ignore[union-attr]
    assert MathEquivalence(extract=["latex"]).grade(Rollout(response="it is 5", ground_truth="5")).score == 0  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="did you mean 'latex'"):
        MathEquivalence(extract=["latx"])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="precision is a whole number"):
        MathEquivalence(precision=-1)


def test_maths_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(ConfigError, match=r"judgekit-rl\[math\]"):
        MathEquivalence()


CITIES = {"A": "Paris", "B": "London", "C": "New York", "D": "York"}


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("B", "B"),
        ("(B)", "B"),
        ("b", "B"),
        ("B. London", "B"),
        ("(c) New York", "C"),
        ("The answer is B", "B"),
        ("The answer is (B).", "B"),
        ("**Answer:** B", "B"),
        ("Answer: $B$", "B"),
        (r"\boxed{B}", "B"),
        (r"Final answer: \boxed{\text{(B)}}.", "B"),
        ("<answer>B</answer>", "B"),
        ("#### C", "C"),
        ("A is wrong. So the answer is D", "D"),
        ("Answer: A\nNo, wait.\nAnswer: B", "B"),
        ("<think>Answer: A</think>B", "B"),
        ("<think>Answer: A", None),
        ("", None),
        ("London", "B"),
        ("I think it's London.", "B"),
        ("The answer is New York", "C"),
        ("Answer: York", "D"),
        ("Answer: B or C", None),
        ("Answer: B and C", None),
        ("Both A and B", None),
        ("Answer: E", None),
        ("I pick option C because", "C"),
        ("(A) is wrong, so it must be (D)", "D"),
        ("It is London, not Paris", "B"),
        ("The answer is a city", None),
        ("A good question! I choose D", "D"),
        ("Answer: (A) Paris\n\nExplanation: (B) is wrong", "A"),
        ("My answer is B, since A is wrong", "B"),
        ("答案是 B", "B"),
        ("Answer：B", "B"),
        ("x" * 10**6 + "\nAnswer: B", "B"),
        ("Answer: B. No wait, C.", "C"),
        ("The answer is B. Actually, it's (C).", "C"),
        ("The answer is B. Actually, A is too large.", "B"),
        ("#### Step 1: Read\nA is wrong.\n\nAnswer: C", "C"),
        ("B. London is wrong.", None),
        ("(B) London is not the answer.", None),
        ("B. London isn't the capital.", None),
        ("B) London cannot be it.", None),
        ("B. London isn't the capital, so it's A.", "A"),
        ("B. London is the capital and is not small.", "B"),
        ("(B) is right, as A is wrong", "B"),
        ("A. Paris - wrong\nB. London - right\nC. New York - wrong", None),
        ("B is the wrong answer.", None),
        ("B is an incorrect choice.", None),
        ("B is tempting but wrong.", None),
        ("B \u274c", None),
        ("B: No", None),
        ("B) wrong", None),
        ("B is the right answer.", "B"),
        ("The answer is \u201cB\u201d.", "B"),
        ("I think the answer is A. Actually, on reflection, B is correct.", "B"),
        ("B, not A", "B"),
        ("Probably B", "B"),
        ("I am not sure, but I think B.", "B"),
        ("Some people think B.", None),
        ("The answer is clearly B", "B"),
        ("Answer: the correct one is B", "B"),
        ("Answer: London (C)", None),
        ("Answer: London (B)", "B"),
        ('{"answer": "B", "reason": "A is wrong"}', "B"),
    ],
)
def test_which_option_is_chosen(response: str, letter: str | None) -> None:
    assert choose(response, Options("ABCD", CITIES, {name: name for name in "ABCD"})).letter == letter


YES_NO = ["Yes", "No", "It cannot be determined", "Maybe"]


@pytest.mark.parametrize(
    ("response", "options", "letter"),
    [
        # an option's own words are no retraction of its letter
        ("Answer: B. No", YES_NO, "B"),
        ("Answer: B) No.", YES_NO, "B"),
        ("Answer: (B) No", YES_NO, "B"),
        ("The answer is **B. No**.", YES_NO, "B"),
        ("The answer is B: No, it is not.", YES_NO, "B"),
        ("B. No", YES_NO, "B"),
        ("B. No, since 4 is even.", YES_NO, "B"),
        ("C. It cannot be determined", YES_NO, "C"),
        ("Answer: C. It cannot be determined", YES_NO, "C"),
        ("Answer: C. It cannot be determined.\n\nThe data do not say.", YES_NO, "C"),
        ("Answer: D. Maybe", YES_NO, "D"),
        (r"\boxed{B. \text{No}}", YES_NO, "B"),
        ("<answer>B. No</answer>", YES_NO, "B"),
        ("Answer: B. False", ["True", "False"], "B"),
        ("B. False", ["True", "False"], "B"),
        ("Answer: B. That is wrong", ["That is right", "That is wrong"], "B"),
        ("Answer: B. Not sure", ["Sure", "Not sure"], "B"),
        # what follows them may still be one
        ("Answer: B. No. No, wait, A.", YES_NO, "A"),
        ("Answer: B. No. That is wrong.", YES_NO, None),
        ("Answer: A. Yes. No, that is wrong.", YES_NO, None),
        ("Answer: A. No", YES_NO, None),
        ("Answer: A. No", ["4", "5"], None),
        # a letter is no article
        ("Answer: A) Rome", ["Paris", "Rome"], "A"),
        ("Answer: (A) Rome", ["Paris", "Rome"], "A"),
        ("Answer: A. Rome", ["Paris", "Rome"], "A"),
        ("Answer: Vitamin", ["Vitamin A", "Vitamin C"], None),
        ("Answer: Vitamin A", ["Vitamin C", "Vitamin A"], "B"),
        ("It is vitamin A that helps.", ["Vitamin C", "Vitamin A"], "B"),
        ("Answer: hepatitis A", ["Hepatitis B", "Hepatitis A"], "B"),
        ("Answer: a cat", ["Dog", "Cat"], "B"),
        ("Answer: A cat", ["Dog", "Cat"], "B"),
        ("Answer: the cat", ["A dog", "A cat"], "B"),
        # a reply by a word
        ("Yes, there is no doubt.", YES_NO, "A"),
        ("No, there is no such river.", YES_NO, "B"),
        ("No. The river does not reach the sea.", YES_NO, "B"),
        ("Yes, alternatively no.", YES_NO, None),
        ("Yes, or maybe", YES_NO, None),
        ("False, it is not true.", ["True", "False"], "B"),
        ("Yes. No.", YES_NO, None),
        ("Answer: Yes. No adverse effects were seen.", YES_NO, "A"),
        ("Answer: No. Yes.", YES_NO, None),
        ("Yes and no.", YES_NO, None),
        ("Yes, no, maybe.", YES_NO, None),
        ("Yes? I doubt it.", YES_NO, None),
        ("Yes, it could be, but it is not. So no.", YES_NO, "B"),
        ("False, as 4 is even.", ["True", "False"], "B"),
    ],
)
def test_an_option_s_own_words_are_no_doubt(response: str, options: list[str], letter: str | None) -> None:
    found = read_options(options)
    assert found is not None
    assert choose(response, found).letter == letter


@pytest.mark.parametrize(
    ("truth", "options", "score"),
    [
        ("B", list(CITIES.values()), 1),
        ("(b)", list(CITIES.values()), 1),
        ("London", list(CITIES.values()), 1),
        (1, list(CITIES.values()), 1),
        ("1", list(CITIES.values()), 1),
        (["A", "B"], None, 1),
        ("C", None, 0),
        ("B", CITIES, 1),
        ("B", {"text": list(CITIES.values()), "label": ["A", "B", "C", "D"]}, 1),
        ("B. London", ["A. Paris", "B. London"], 1),
        ("Z", list(CITIES.values()), None),
        (7, list(CITIES.values()), None),
        (None, None, None),
        ("", None, None),
        (True, None, None),
        ("Berlin", list(CITIES.values()), None),
    ],
)
def test_references_and_options(truth: Any, options: Any, score: float | None) -> None:
    rollout = Rollout(response="Answer: B", ground_truth=truth, extra={"options": options} if options else {})
    grade = MultipleChoice().grade(rollout)
    assert (grade.score if isinstance(grade, Graded) else None) == score


def test_options_that_are_letters_or_numbers() -> None:
    by_number = MultipleChoice(options=["2", "3", "4"])
    assert by_number.grade(Rollout(response="B", ground_truth="3")).score == 1  # type: ignore[union-attr]
    assert MultipleChoice(first=1).grade(Rollout(response="A", ground_truth=1)).score == 1  # type: ignore[union-attr]
    for build in (
        lambda: MultipleChoice(letters=1),
        lambda: MultipleChoice(first=2),
        lambda: MultipleChoice(options=["a"]),
    ):
        with pytest.raises(ConfigError):
            build()


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("Correct answer: B\n\nWhy the other answers are wrong:\n- A is in France.", 1),
        ("The correct answer is B. The other answers are not capitals of the UK.", 1),
        ("Answer: B. No other answer is possible.", 1),
        ("The best choice is B. The other option is wrong.", 1),
        ("**Answer: B**\n\n**Incorrect:** A, C", 1),
        ("The answer is B. The wrong option is A.", 1),
        ("Answer: B. The other choices are incorrect.", 1),
        ("Answer: B. The other option is A.", 0),
    ],
)
def test_remarks_on_other_options_take_nothing_back(response: str, score: float) -> None:
    grade = MultipleChoice().grade(
        Rollout(response=response, ground_truth="B", extra={"options": ["Paris", "London", "Rome"]})
    )
    assert isinstance(grade, Graded)
    assert grade.score == score
