"""C++ and Java: right programs are paid, no other is, and a missing compiler is said."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Failed, Graded, GradingRunner, Rollout
from judgekit.graders import Code
from judgekit.graders.rules.programs.sandboxes import LocalSandbox

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from code_compiled_rows import ROWS, programs

NAMES = {"cpp": "g++", "java": "javac"}


def grade(language: str, program: str, truth: Any, **options: Any) -> Any:
    if shutil.which(NAMES[language]) is None:
        pytest.skip(f"this machine has no {NAMES[language]}")
    grader = Code(**{"language": language, "time_s": 5.0, "wall_s": 60.0, **options})
    return grader.grade(Rollout(response=f"```{language}\n{program}\n```", ground_truth=truth))


@pytest.mark.parametrize("name", ROWS)
def test_the_right_program_is_paid_and_no_other(name: str) -> None:
    row = ROWS[name]
    right = grade(row.language, row.right, row.truth)
    assert isinstance(right, Graded), right
    assert right.score == 1.0, right.reason
    assert right.metadata is not None
    assert (right.metadata["form"], right.metadata["checks"]) == (row.recognised, row.checks)
    for kind, program in programs(row).items():
        wall = {"wall_s": 2.0, "time_s": 1.0} if kind == "sleeping" else {}
        found = grade(row.language, program, row.truth, **wall)
        assert isinstance(found, Graded), kind
        assert found.score == 0.0, kind


def test_cases_that_are_python_s_are_an_abstention() -> None:
    for truth in (["assert f(1) == 1"], {"fn_name": "f", "inputs": [[1]], "outputs": [1]}, "void f();", None):
        found = grade("cpp", "int f();", truth)
        assert isinstance(found, Abstained)
    assert (
        "takes inputs and outputs, or tests with a main of their own"
        in grade("cpp", "x", "assert f(1) == 1").reason
    )


def test_tests_in_which_nothing_ran_are_an_abstention() -> None:
    found = grade("cpp", "int add(int a, int b) { return a + b; }", "int main() { return 0; }")
    assert found == Abstained("case 1: none of its checks ran")


NOTHING = "class Main { static void unused(int x) { if (x != 3) throw new AssertionError(); } BODY }"


@pytest.mark.parametrize(
    ("body", "checks"),
    [
        ("public static void main(String[] args) {}", 0),
        ("public static void main(String[] args) { new Solution().add(1, 2); }", 0),
        ("public static void main(String[] args) { unused(new Solution().add(1, 2)); }", 1),
        ("public static void main(String[] args) { assert new Solution().add(1, 2) == 3 || false : 3; }", 1),
        ("public static void main(String[] args) { for (int i = 0; i < 3; i++) assert (i < 3); }", 3),
        (
            "public static void main(String[] args) { Object o = 3; if (o instanceof Integer n && n != 3) throw new Error(); }",
            1,
        ),
    ],
)
def test_checks_of_java_s_tests_are_counted_where_they_run(body: str, checks: int) -> None:
    program = "class Solution { int add(int a, int b) { return a + b; } }"
    found = grade("java", program, NOTHING.replace("BODY", body))
    if not checks:
        assert found == Abstained("case 1: none of its checks ran")
    else:
        assert (found.score, found.metadata["checks"]) == (1.0, checks)
    wrong = grade("java", program.replace("+", "-"), NOTHING.replace("BODY", body))
    assert not (isinstance(wrong, Graded) and wrong.score > 0) or "add" not in body


def test_a_program_that_does_not_compile_says_why() -> None:
    found = grade("cpp", "int main( {", [{"input": "", "output": ""}])
    assert found.score == 0
    assert found.reason.startswith("it does not compile: program.cpp:1:")


def test_a_machine_without_a_compiler_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="language is one of"):
        Code(language="rust")  # type: ignore[arg-type]
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ConfigError, match=r"needs g\+\+, which this machine does not have: install it"):
        Code(language="cpp")


class Without(LocalSandbox):
    """A sandbox whose machine has no compiler."""

    def run(self, code: str, *, job: Any = None, **options: Any) -> Any:
        if job is not None and job["kind"] == "compile":
            job = {**job, "command": ["no-such-compiler"]}
        return super().run(code, job=job, **options)


def test_a_sandbox_without_a_compiler_is_the_machine_s_failure() -> None:
    grader = Code(language="cpp", sandbox=Without())
    rollout = Rollout(response="```cpp\nint main() {}\n```", ground_truth=[{"input": "", "output": ""}])
    (result,) = GradingRunner([grader], missing_reward="mask").run_sync([rollout])
    failed = result.grades["code"]
    assert isinstance(failed, Failed)
    assert "the sandbox has no no-such-compiler" in failed.detail
