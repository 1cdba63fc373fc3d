"""Answers of mathematics as the field writes them, class by class."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgekit import Abstained, Graded, GradingRunner, Rollout
from judgekit.execution.pool import ProcessPool
from judgekit.graders import MathEquivalence
from judgekit.graders.rules.answers.mathtext import readable, same_words, too_large, whole_answer, wordy

BOXES = [
    (r"$\boxed{1}$ and $\boxed{2}$", r"\boxed{1} and \boxed{2}", 1),
    (r"$\boxed{1}$ and $\boxed{2}$", r"\boxed{2} and \boxed{1}", 1),
    (r"$\boxed{1}$ and $\boxed{2}$", r"\boxed{1,2}", 1),
    (r"$\boxed{1}$ and $\boxed{2}$", r"\boxed{2, 1}", 1),
    (r"$\boxed{1}$ and $\boxed{2}$", r"\boxed{\{1, 2\}}", 1),
    (r"$\boxed{1}$ and $\boxed{2}$", r"\boxed{1}", 0),
    (r"$\boxed{1}$ and $\boxed{2}$", r"\boxed{2}", 0),
    (r"$\boxed{1}$ and $\boxed{2}$", r"\boxed{1} and \boxed{3}", 0),
    (r"$\boxed{1}$ and $\boxed{2}$", r"\boxed{1,2,3}", 0),
    (r"$\boxed{1}$ and $\boxed{2}$", r"\boxed{12}", 0),
    (r"\boxed{1}, \boxed{2}, \boxed{3}", r"\boxed{3,2,1}", 1),
    (r"\boxed{1}, \boxed{2}, \boxed{3}", r"\boxed{3,2}", 0),
    (r"$x=\boxed{1}$ or $x=\boxed{2}$", r"\boxed{1} or \boxed{2}", 1),
    (r"\boxed{x=1} and \boxed{x=2}", r"\boxed{1,2}", 1),
    (r"\boxed{\frac{1}{2}} and \boxed{-3}", r"\boxed{0.5, -3}", 1),
    (r"\boxed{5}", r"\boxed{5}", 1),
    (r"so $\boxed{5}$, as $2+3=5$", r"\boxed{5}", 1),
    (r"\boxed{5}", r"\boxed{5} and \boxed{6}", 0),
    (r"\fbox{5}", r"\boxed{5}", 1),
    (r"\boxed{\sqrt{2}} and \boxed{-\sqrt{2}}", r"\boxed{\pm\sqrt{2}}", 1),
]
MONEY = [
    (r"\$18.90", r"\boxed{18.90}", 1),
    (r"\$18.90", r"\boxed{\$18.90}", 1),
    (r"\$18.90", r"$\boxed{\$18.9}$", 1),
    (r"\$18.90", r"\boxed{18.80}", 0),
    (r"\$1,250", r"\boxed{1250}", 1),
    (r"\$1,250", r"\boxed{\$1{,}250}", 1),
    (r"\$1,250", r"\boxed{1,25}", 0),
    ("$18.90", r"\boxed{18.9}", 1),
    ("$5", r"\boxed{5}", 1),
    ("$5", r"\boxed{\$5.00}", 1),
    ("5", r"\boxed{\$5}", 1),
    (r"\text{\$}5", r"\boxed{5}", 1),
    ("18.90 dollars", r"\boxed{18.90}", 1),
    ("18.90", r"\boxed{18.90 dollars}", 1),
    ("18.90", r"\boxed{18.90\text{ dollars}}", 1),
    ("18.90", "It costs $18.90.", 1),
    (r"\$6", r"It costs \$6.", 1),
    (r"\$6", r"It costs \$7.", 0),
    (r"We pay \boxed{\$6}", r"\boxed{6}", 1),
    ("€20", r"\boxed{20}", 1),
    ("20", r"\boxed{20 €}", 1),
    ("£3.50", r"\boxed{£3.5}", 1),
    (r"\$\frac{1}{2}", r"\boxed{0.5}", 1),
]
UNMARKED = [
    ("72", "72", 1),
    ("72", "71", 0),
    ("72", "so 70 + 2 = 72", 1),
    (r"\frac{1}{2}", r"\frac{1}{2}", 1),
    (r"\frac{3}{4}", "3/4", 1),
    (r"\frac{3}{4}", r"\frac{6}{8}.", 1),
    ("x^2+1", "x^2+1", 1),
    ("x^2+1", "1 + x^2", 1),
    ("x^2+1", "x^2-1", 0),
    ("(1,2)", "(1, 2)", 1),
    ("(1,2)", "(2, 1)", 0),
    (r"\sqrt{2}", r"\sqrt{2}", 1),
    (r"\sqrt{2}", "1.5", 0),
    ("2x+3", "3+2x", 1),
    (r"\{1,2\}", r"\{2,1\}", 1),
    ("[0,1)", "[0,1)", 1),
    ("[0,1)", "[0,1]", 0),
    ("5", "x=5", 1),
    (r"3\pi", r"3\pi", 1),
    ("-5", "-5", 1),
    (r"\sin(x)", r"\sin(x)", 1),
    ("x^2+1", "I think it is x^2+1, but who knows", 0),
    ("72", "I do not know", 0),
]
RELATIONS = [
    (r"x \in [-2,7]", r"\boxed{-2 \le x \le 7}", 0, 1),
    (r"[-2,7]", r"\boxed{-2 \le x \le 7}", 0, 1),
    (r"[-2,7]", r"\boxed{-2 \leq x \leq 7}", 0, 1),
    (r"[-2,7]", r"\boxed{-2 < x < 7}", 0, 0),
    (r"(-2,7)", r"\boxed{-2 < x < 7}", 0, 1),
    (r"[0,1)", r"\boxed{0 \le x < 1}", 0, 1),
    (r"[0,1)", r"\boxed{0 \le x \le 1}", 0, 0),
    (r"(0,1]", r"\boxed{0 < x \le 1}", 0, 1),
    (r"(5,\infty)", r"\boxed{x>5}", 0, 1),
    (r"(5,\infty)", r"\boxed{x \ge 5}", 0, 0),
    (r"[5,\infty)", r"\boxed{x \ge 5}", 0, 1),
    (r"(-\infty,5)", r"\boxed{x<5}", 0, 1),
    (r"(-\infty,5]", r"\boxed{x \le 5}", 0, 1),
    (r"(-\infty,5]", r"\boxed{x \ge 5}", 0, 0),
    (r"x>5", r"\boxed{x>5}", 1, 1),
    (r"x>5", r"\boxed{5<x}", 1, 1),
    (r"x>5", r"\boxed{x<5}", 0, 0),
    (r"x \in [-2,7]", r"\boxed{[-2,7]}", 1, 1),
    (r"x \in [-2,7]", r"\boxed{[-2,8]}", 0, 0),
    (r"[-2,7]", r"\boxed{x \in [-2,7]}", 1, 1),
]
MIXED = [
    ("1 1/2", r"\boxed{1.5}", 1),
    ("1 1/2", r"\boxed{3/2}", 1),
    ("1 1/2", r"\boxed{1\frac{1}{2}}", 1),
    ("1 1/2", r"\boxed{1/2}", 0),
    ("1 1/2", r"\boxed{11/2}", 0),
    (r"1 \frac{1}{2}", r"\boxed{1.5}", 1),
    (r"1\frac{1}{2}", r"\boxed{\frac{3}{2}}", 1),
    (r"1\frac12", r"\boxed{1.5}", 1),
    (r"1\tfrac{1}{2}", r"\boxed{1.5}", 1),
    (r"1\dfrac{1}{2}", r"\boxed{3/2}", 1),
    ("1.5", r"\boxed{1 1/2}", 1),
    ("1.5", "The answer is 1 1/2.", 1),
    ("0.5", "The answer is 1 1/2.", 0),
    ("2 3/4", r"\boxed{2\frac{3}{4}}", 1),
    ("2 3/4", r"\boxed{2.75}", 1),
    ("2 3/4", r"\boxed{2.34}", 0),
    ("-1 1/2", r"\boxed{-1.5}", 1),
    ("-1 1/2", r"\boxed{-0.5}", 0),
    ("-1.5", r"\boxed{-1\frac{1}{2}}", 1),
    ("10 1/10", r"\boxed{10.1}", 1),
    ("1/2", r"\boxed{1 1/2}", 0),
]
THOUSANDS = [
    ("10,080", r"\boxed{10080}", 1),
    ("10,080", r"\boxed{10,080}", 1),
    ("10,080", r"\boxed{10,081}", 0),
    (r"10{,}080", r"\boxed{10080}", 1),
    (r"10,\!080", r"\boxed{10080}", 1),
    (r"10\,080", r"\boxed{10080}", 1),
    ("10080", r"\boxed{10\,080}", 1),
    ("10080", r"\boxed{10\;080}", 1),
    ("10080", r"\boxed{10~080}", 1),
    ("10080", "\\boxed{10\u202f080}", 1),
    ("10 080", r"\boxed{10080}", 1),
    ("10080", r"\boxed{10 080}", 1),
    ("10080", r"\boxed{80}", 0),
    ("1,234,567", r"\boxed{1234567}", 1),
    ("1234567", r"\boxed{1,234,567}", 1),
    (r"1\ 000\ 000", r"\boxed{1000000}", 1),
    ("1,234,567.5", r"\boxed{1234567.5}", 1),
    ("(1,234)", r"\boxed{(1,234)}", 1),
    ("1,234", r"\boxed{(1,234)}", 0),
    ("6.02e23", r"\boxed{6.02 \times 10^{23}}", 1),
    (r"6.02 \times 10^{23}", r"\boxed{6.02e23}", 1),
    ("6.02e23", r"\boxed{6.02e22}", 0),
    ("20 $cm^{2}$", r"\boxed{20}", 1),
]
WORDS = [
    (r"\text{June 20}", r"\boxed{\text{June 20}}", 1),
    ("June 20", r"\boxed{June 20}", 1),
    ("June 20", r"\boxed{\text{June } 20}", 1),
    ("June 20", r"\boxed{\text{20 June}}", 1),
    ("June 20", r"\boxed{\text{June 20th}}", 1),
    ("June 20", r"\boxed{\text{June 21}}", 0),
    ("June 20", r"\boxed{\text{July 20}}", 0),
    ("June 20", r"\boxed{20}", 0),
    ("June 20", "So the answer is June 20.", 1),
    ("June 20", "So the answer is June 19.", 0),
    ("June 20, 2020", r"\boxed{\text{20 June 2020}}", 1),
    ("Monday", r"\boxed{\text{monday}}", 1),
    ("Monday", r"\boxed{Tuesday}", 0),
    ("listen", r"\boxed{silent}", 0),
    ("Yes", r"\boxed{\text{yes}}", 1),
    ("Yes", r"\boxed{\text{no}}", 0),
    ("2:15 p.m.", r"\boxed{2:15 \text{ PM}}", 1),
    ("2:15 p.m.", r"\boxed{2:15 \text{ a.m.}}", 0),
    ("12:30", r"\boxed{12:30}", 1),
    ("Alice and Bob", r"\boxed{\text{Bob, Alice}}", 1),
    ("Alice and Bob", r"\boxed{\text{Alice}}", 0),
    (r"12\text{ meters}", r"\boxed{12 \text{ metres}}", 1),
    (r"12\text{ meters}", r"\boxed{13 \text{ meters}}", 0),
    ("12 square units", r"\boxed{12 \text{ square units}}", 1),
    (["Tuesday", "Monday"], r"\boxed{\text{Monday}}", 1),
    (r"so it is \boxed{\text{even}}", r"\boxed{even}", 1),
]
LATEX = [
    ("5", r"\fbox{5}", 1),
    ("1/2", r"so $\fbox{\frac12}$ is it", 1),
    ("5", r"\fbox{6}", 0),
    ("5", r"\boxed{5\\}", 1),
    ("5", r"\boxed{\boldsymbol{5}}", 1),
    ("5", r"\boxed{\underline{5}}", 1),
    ("5", r"\boxed{5~\text{cm}}", 1),
    ("5", "So\n\\[\n5\\,\\text{cm}\n\\]", 1),
    ("5", r"The answer is $\$5$.", 1),
    ("5", "She spent $3 and has $5 left.", 1),
    ("18", "Twice is 2 * 8 = $<<2*8=16>>16.\nSo he has $16 + $2 = $<<16+2=18>>18.", 1),
    ("18", "Twice is 8*2=$<<8*2=16>>16.\nSo he has 16+2=$<<16+2=18>>18.", 1),
    ("34", "So each pays $102 / 3 = $<<102/3=34.0>>34.", 1),
    ("5", "`5`", 1),
    ("-5", "\\boxed{\u20135}", 1),
    ("10000", r"\boxed{10\text{,}000}", 1),
    (r"30^\circ", r"\boxed{30\degree}", 1),
    (r"\emptyset", r"\boxed{\varnothing}", 1),
    ("3+4i", r"\boxed{3+4\mathrm{i}}", 1),
    ("7", r"\boxed{3+4\mathrm{i}}", 0),
    ("25", r"\boxed{25 cm^2}", 1),
    ("25 cm^2", r"\boxed{25\,\text{cm}^{2}}", 1),
    ("3m^2", r"\boxed{3}", 0),
    (r"\{1,2\}", r"1 \text{ and } 2", 1),
    (
        r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
        r"<answer>\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}</answer>",
        1,
    ),
    ("Monday", "Monday", 1),
    (r"\textbf{(C)}\ 5", r"\boxed{C}", 1),
    (r"\textbf{(C)}\ 5", r"\boxed{\text{(C)}}", 1),
    (r"\text{(C) }\frac{1}{2}", r"\boxed{0.5}", 1),
    (r"(C) 5", r"\boxed{(C)}", 1),
    (r"\textbf{(C)}\ 5", r"\boxed{\textbf{(C)}\ 5}", 1),
    (r"\textbf{(C)}\ 5", r"\boxed{B}", 0),
    (r"\textbf{(C)}\ 5", r"\boxed{6}", 0),
    ("3/4 cup", r"\boxed{0.75}", 1),
    ("infinity", r"\boxed{\infty}", 1),
    (r"\infty", r"\boxed{\text{infinity}}", 1),
    ("33.33", r"\boxed{33.33\%}", 1),
    (r"50.5\%", r"\boxed{50.5}", 1),
    ("33.33", r"\boxed{33.34\%}", 0),
    ("5%", r"\boxed{5\,\%}", 1),
    ("1/3", r"\boxed{0.\overline{3}}", 1),
    ("-7/6", r"\boxed{-1.1\overline{6}}", 1),
    ("1/3", r"\boxed{0.\overline{6}}", 0),
    ("A,B,C", r"\boxed{\text{A, B, C}}", 1),
    ("5,6", r"\boxed{\text{5 and 6}}", 1),
    ("5", r"\boxed{\text{5 and 6}}", 0),
    ("2,3", "The answer is $2$ and $3$.", 1),
    ("2,3", "The solutions of the equation are $2$ and $4$.", 0),
    ("2", "The answer is $2$ or $3$.", 0),
    ("Monday", "It is not Monday", 0),
]
KINDS = [
    (r"\{1,2\}", r"\boxed{(1,2)}", 0),
    ("(1,2)", r"\boxed{\{1,2\}}", 0),
    ("(1,2,3)", r"\boxed{\left\{1,2,3\right\}}", 0),
    ("(1,2)", r"\boxed{1,2}", 1),
    (r"\{1,2\}", r"\boxed{1,2}", 1),
    ("(1,2)", r"\boxed{(x,y)=(1,2)}", 1),
    ("(1,2)", r"The answer is $\left(1,2\right)$.", 1),
    ("1,2", "The answer is $1,2$.", 1),
    ("1.2", "The answer is $1,2$.", 1),
    ("1,2", "The answer is $1,3$.", 0),
    (r"f(\{1,2\})", r"\boxed{(1,2)}", 0),
]
ALL = [*BOXES, *MONEY, *UNMARKED, *MIXED, *THOUSANDS, *WORDS, *LATEX, *KINDS]


def score(grader: MathEquivalence, response: str, truth: Any) -> float:
    grade = grader.grade(Rollout(response=response, ground_truth=truth))
    assert isinstance(grade, Graded), grade
    return grade.score


@pytest.mark.parametrize(("gold", "response", "right"), ALL)
def test_answers(gold: Any, response: str, right: float) -> None:
    assert score(MathEquivalence(), response, gold) == right


@pytest.mark.parametrize(("gold", "response", "apart", "together"), RELATIONS)
def test_sets_and_relations(gold: str, response: str, apart: float, together: float) -> None:
    assert score(MathEquivalence(), response, gold) == apart
    assert score(MathEquivalence(set_relations=True), response, gold) == together


@pytest.mark.parametrize(
    ("gold", "response"), [(r"\{1,2\}", r"\boxed{(1,2)}"), ("(1,2)", r"\boxed{\{1,2\}}")]
)
def test_sets_and_tuples_are_equal_where_kinds_do_not_matter(gold: str, response: str) -> None:
    assert score(MathEquivalence(strict=False), response, gold) == 1


@pytest.mark.parametrize(
    ("gold", "response", "right"),
    [
        ("5", "The answer is 5.", 1), ("5", r"\boxed{5}", 1), ("5", "#### 5", 1), ("3/4", r"\boxed{\frac{3}{4}}", 1), ("0.75", "So it is 3/4.", 1),
        ("1234", "Answer: 1,234", 1), ("5", r"\boxed{6}", 0), ("5", "The answer is 6.", 0), (r"\frac{1}{2}", "0.5", 1),
    ],
)  # fmt: skip
def test_without_latex_numbers_are_read(gold: str, response: str, right: float) -> None:
    assert score(MathEquivalence(extract=["expr"]), response, gold) == right


BOMBS = [
    "9^{9^{9^{9}}}", "10^{10^{10}}", "1000000!", "2^{1000000000}", r"\binom{10^9}{10^8}", "3^{3^{3^3}}",
    "10000000!!", "(10^{10})!", r"\sum_{i=1}^{10^9} i^i", r"\boxed{9^{9^{9^9}}}", "#### 9^{9^{9^9}}",
    "$7^{7^{7^{7}}}$", "2^{2^{2^{2^{2^2}}}}", r"\frac{1}{9^{9^{9^9}}}", "1+10^{10^{10}}", "-9^{9^{9^9}}",
    r"\sqrt{9^{9^{9^9}}}", "10^{-10^{10}}", "(9^{9^9})^{9^9}", "99999999999!",
]  # fmt: skip


@pytest.mark.parametrize("gold", BOMBS)
def test_a_bomb_in_the_reference_is_not_the_rollout_s_fault(gold: str) -> None:
    grade = MathEquivalence().grade(Rollout(response=r"\boxed{5}", ground_truth=gold))
    assert isinstance(grade, Abstained)
    with_another = MathEquivalence().grade(Rollout(response=r"\boxed{5}", ground_truth=[gold, "5"]))
    assert isinstance(with_another, Graded)


@pytest.mark.parametrize(
    "gold", ["2^{100}", "100!", r"\sqrt{\sqrt{\sqrt{\sqrt{2}}}}", "x^{y^{z}}", r"e^{i\pi}", "10^{1000}", r"\binom{100}{50}"]
)  # fmt: skip
def test_large_references_are_no_bombs(gold: str) -> None:
    assert score(MathEquivalence(), f"\\boxed{{{gold}}}", gold) == 1


def test_nobody_is_blamed_in_a_run() -> None:
    pool = ProcessPool(1)
    try:
        runner = GradingRunner([MathEquivalence(timeout_s=5)], pool=pool, missing_reward="mask")
        rollouts = [Rollout(response=r"\boxed{5}", ground_truth=gold) for gold in BOMBS]
        results = runner.run_sync(rollouts)
        assert all(isinstance(result.grades["math"], Abstained) for result in results)
    finally:
        pool.close()


@given(st.integers(0, 10**6), st.integers(1, 99), st.integers(2, 100))
@settings(max_examples=25, deadline=None)
def test_numbers_are_equal_however_they_are_written(whole: int, part: int, of: int) -> None:
    grader = MathEquivalence()
    comma, thin = f"{whole:,}", f"{whole:,}".replace(",", r"\,")
    forms = [str(whole), comma, thin, rf"\${whole}", comma.replace(",", "{,}")]
    for gold in forms:
        for form in forms:
            assert score(grader, f"\\boxed{{{form}}}", gold) == 1
        assert score(grader, f"\\boxed{{{whole + 1}}}", gold) == 0
    if part < of:
        small = whole % 1000
        mixed = f"{small} {part}/{of}"
        assert score(grader, f"\\boxed{{\\frac{{{small * of + part}}}{{{of}}}}}", mixed) == 1
        assert score(grader, f"\\boxed{{\\frac{{{small * of + part + 1}}}{{{of}}}}}", mixed) == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x_1 1/2", "x_1 1/2"), ("1 3/2", "1 3/2"), ("1 1/0", "1 1/0"), ("2/1 1/2", "2/1 1/2"),
        ("(1,\\ 234)", "(1,\\ 234)"), ("1\\,23", "1\\,23"), ("5 dollars and 30 cents", "5 dollars and 30 cents"),
        ("2e", "2e"), ("x2e3", "x2e3"), ("\\$x", "\\$x"), ("10 20 30", "10 20 30"), ("3 000 and 4", "3 000 and 4"),
    ],
)  # fmt: skip
def test_what_is_no_number_is_left_alone(text: str, found: str) -> None:
    assert readable(text, answer=True) == found


def test_what_counts_as_words() -> None:
    assert all(map(wordy, ["June 20", r"\text{Bob}", "no solution", "2:15 pm", "even"]))
    assert not any(
        map(wordy, ["xyz", "2x+3", r"\frac{1}{2}", "x = abcd", "sqrt(2)", "B", "12:30", "", "5 cm"])
    )
    assert same_words("The Cat!", "the cat")
    assert whole_answer("x = 5.") == "x = 5"
    assert whole_answer("it is what it is") is None
    assert whole_answer("1\n2") is None
    assert whole_answer("sqrt(2)") == "sqrt(2)"
    assert not too_large("a text")


@pytest.mark.parametrize(
    ("response", "truth", "right"),
    [
        ("The area of $ABC$ is 12", "12", 1.0),
        ("Thus $AB = 5$ and the area of $ABC$ is 12.", "12", 1.0),
        ("Final Answer: The largest $n$ is 34.", "34", 1.0),
        ("$2 + 118 = 120$. Final Answer: The volume of $ABCDEFGH$ is 120. I hope it is correct.", "120", 1.0),
        ("The most points that could be in the domain of $f(x)$ is 19.", "19", 1.0),
        ("the probability of \\(A\\) is 1/2.", "0.5", 1.0),
        ("so the value of $x$ is -3.", "-3", 1.0),
        ("The area of $ABC$ is 12, so the perimeter is 30.", "12", 0.0),
        ("The area of $ABC$ is not 12.", "12", 0.0),
        ("The area of $ABC$ might be 12.", "12", 0.0),
        ("Final Answer: The largest $n$ might be 34.", "34", 0.0),
        ("$x$ is 12 or 13", "12", 0.0),
        ("Suppose the side of $ABC$ is 3. Then $AB = 4$.", "3", 0.0),
    ],
)
def test_a_number_that_mathematics_is_said_to_be_is_the_answer(
    response: str, truth: str, right: float
) -> None:
    grade = MathEquivalence().grade(Rollout(response=response, ground_truth=truth))
    assert isinstance(grade, Graded)
    assert grade.score == right


@pytest.mark.parametrize("filler", ["\t", " ", "\u2705", "$$\n", "no, "])
def test_a_long_row_of_one_thing_takes_no_long_time(filler: str) -> None:
    """With cubic time, a row of spaces broke the grader."""
    assert score(MathEquivalence(), f"The answer is 5 {filler * 2000}.", "6") == 0
