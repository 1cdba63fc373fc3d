"""The forms of tests of public data sets: a right program is paid, no other is, and tests that do not run pay nobody."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from judgekit import Abstained, Failed, Graded, GradingRunner, Rollout
from judgekit.graders import Code
from judgekit.graders.rules.programs.code_forms import recognise

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from code_rows import FORMS, HONEST, NOTHING, TRICKS, Form, programs

CODE = Code(time_s=5.0, wall_s=60.0)
SHORT = Code(time_s=1.0, wall_s=1.0)


def grade(grader: Code, form: Form, program: str) -> Any:
    response = f"```python\n{program}```"
    return grader.grade(Rollout(response=response, ground_truth=form.truth, extra=form.extra))


@pytest.mark.parametrize("name", FORMS)
def test_the_right_program_is_paid_and_no_other(name: str) -> None:
    form = FORMS[name]
    right = grade(CODE, form, form.right)
    assert isinstance(right, Graded)
    assert right.score == 1.0, right.reason
    assert right.metadata is not None
    assert right.metadata["form"] == form.recognised
    assert right.metadata["checks"] >= 1
    for kind, program in programs(form).items():
        found = grade(SHORT if kind == "sleeping" else CODE, form, program)
        assert isinstance(found, Graded), kind
        assert found.score == 0.0, kind


@pytest.mark.parametrize("trick", TRICKS)
def test_a_program_that_takes_the_runner_or_its_tests_apart_is_not_paid(trick: str) -> None:
    name, program = TRICKS[trick]
    found = grade(CODE, FORMS[name], program)
    assert isinstance(found, Graded)
    assert found.score == 0.0


@pytest.mark.parametrize("what", HONEST)
def test_right_programs_of_odd_kinds_are_paid(what: str) -> None:
    truth, program = HONEST[what]
    found = grade(CODE, Form("", truth), program)
    assert isinstance(found, Graded)
    assert found.score == 1.0, found.reason


@pytest.mark.parametrize("what", NOTHING)
def test_tests_of_which_nothing_ran_pay_nobody(what: str) -> None:
    form = Form("", NOTHING[what])
    for program in (form.right, "x = 1\n"):
        found = grade(CODE, form, program)
        assert isinstance(found, Abstained), found
        assert found.reason


@pytest.mark.parametrize(
    ("tests", "says"),
    [
        ("def check(candidate):\n    assert candidate(1) == 1", "check(candidate) needs an entry point"),
        ("def test_a(tmp_path):\n    assert f(tmp_path)", "test_a takes tmp_path"),
        ("async def test_a():\n    assert 1", "nothing in the tests runs"),
        ("assert (", "no Python (SyntaxError, line 1)"),
        (">>> f(1)", "no doctest says what is to come out"),
    ],
)
def test_why_nothing_would_run_is_said(tests: str, says: str) -> None:
    assert says in recognise(tests, False).why


def test_checks_are_counted() -> None:
    def checks(tests: Any, code: str = "def f(x):\n    return x\n") -> Any:
        found = CODE.grade(Rollout(response=f"```python\n{code}```", ground_truth=tests))
        assert isinstance(found, Graded), found
        return found.score, found.metadata["checks"]  # type: ignore[index]

    assert checks("for i in range(7):\n    assert f(i) == i") == (1.0, 7)
    assert checks(["assert f(1) == 1", "assert f(2) == 3", "assert f(3) == 3"]) == (2 / 3, 2)
    assert checks("import math\ndef test_a():\n    assert f(1) == 1\ndef test_b():\n    f(1)\n") == (1.0, 3)
    skipped = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertTrue(f(1))\n    @unittest.skip('x')\n    def test_b(self):\n        f(2)\n"
    assert checks(skipped) == (1.0, 2)


def test_objects_of_the_program_compare_by_their_own_equality() -> None:
    code = "import dataclasses, fractions\n@dataclasses.dataclass\nclass P:\n    x: int\ndef f(x): return P(x)\ndef g(): return fractions.Fraction(1, 2)\n"
    tests = ["assert f(1) == P(1)", "assert g() == 0.5 and g() == g()", "assert [f(1), f(2)] == [P(1), P(2)]"]
    found = CODE.grade(Rollout(response=f"```python\n{code}```", ground_truth=tests))
    assert isinstance(found, Graded)
    assert found.score == 1.0, found.reason


@pytest.mark.parametrize(
    ("decorator", "score"),
    [("parametrize('a,b', [(1, 1), (2, 2)])", 1.0), ("parametrize('a,b', [(1, 1), (2, 3)])", 0.0)],
)
def test_parameters_of_pytest(decorator: str, score: float) -> None:
    tests = f"import pytest\n@pytest.mark.{decorator}\ndef test_a(a, b):\n    assert f(a) == b\n"
    found = CODE.grade(Rollout(response="```python\ndef f(x): return x\n```", ground_truth=tests))
    assert isinstance(found, Graded), found
    assert found.score == score
    assert found.metadata is not None
    assert found.metadata["checks"] == (4 if score else 0)


def test_tests_that_need_what_is_not_installed_are_the_machines_failure() -> None:
    tests = "import no_such_module_at_all\nassert f(1) == 1"
    rollout = Rollout(response="```python\ndef f(x): return x\n```", ground_truth=tests)
    (result,) = GradingRunner([CODE], missing_reward="mask").run_sync([rollout])
    failed = result.grades["code"]
    assert isinstance(failed, Failed)
    assert failed.cause == "infrastructure"
    assert "import no_such_module_at_all" in failed.detail


def test_a_form_that_is_written_must_be_the_one() -> None:
    form = FORMS["BigCodeBench"]
    assert grade(Code(form="unittest"), form, form.right).score == 1.0
    assert grade(Code(form="pytest"), form, form.right) == Abstained(
        "the cases at ground_truth are unittest, not pytest"
    )


@pytest.mark.parametrize("wanted", [3, [3]])
@pytest.mark.parametrize("nested", [False, True])
def test_a_case_that_names_its_function_may_have_its_answer_in_a_list(wanted: Any, nested: bool) -> None:
    """PrimeIntellect's rows, which come from APPS."""
    case = {"fn_name": "add", "type": "function_call", "input": [1, 2], "output": wanted}
    cases: Any = {"language": "python", "test_cases": [case]} if nested else [case]
    for body, score in (("a + b", 1), ("a - b", 0)):
        code = f"```python\ndef add(a, b):\n    return {body}\n```"
        found = CODE.grade(Rollout(response=code, ground_truth=cases))
        assert isinstance(found, Graded)
        assert found.score == score


def test_names_that_are_given_are_no_answer() -> None:
    """`operator.add` is among what such sites import: it is not the program's."""
    for name in ("add", "gcd", "reduce"):
        cases = {"fn_name": name, "inputs": [[1, 2]], "outputs": [3]}
        found = CODE.grade(Rollout(response="```python\nx = 1\n```", ground_truth=cases))
        assert isinstance(found, Graded)
        assert found.reason == f"case 1: NameError: the code defines no {name}"
