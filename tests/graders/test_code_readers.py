"""How the cases of code are read, what its runs come to, and what is said of both."""

from __future__ import annotations

import base64
import json
import pickle
import re
import shutil
import zlib
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Graded, Rollout
from judgekit.graders import Code
from judgekit.graders.rules.programs import code as rules
from judgekit.graders.rules.programs import code_compiled as compiled
from judgekit.graders.rules.programs import code_forms as forms
from judgekit.graders.rules.programs.sandbox import Finished, Limits, MachineBusy, SandboxError

# ---- forms


def written_as(form: str, text: str, entry: str | None = None, certain: bool = True) -> Any:
    return {"job": {"kind": "tests", "form": form, "tests": text, "entry": entry}, "certain": certain}


def call(function: str, arguments: Any, output: Any) -> Any:
    return {"job": {"kind": "call", "function": function, "arguments": arguments}, "output": output}


def packed(value: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


ONE = {"input": "1", "output": "2"}


@pytest.mark.parametrize(
    ("value", "cases"),
    [
        ([ONE], [ONE]),
        (ONE, [ONE]),
        (json.dumps([ONE]), [ONE]),
        (packed(json.dumps([ONE])), [ONE]),
        (packed([ONE]), [ONE]),
        (packed([ONE])[:-8], []),
        (base64.b64encode(b"x").decode(), []),
        ("words", []),
        (3, []),
        ([3, "", "  "], []),
        ([{"stdin": None, "stdout": ["a", ["b", 1]]}], [{"input": "", "output": "a\nb\n1"}]),
        ([{"inputs": [1, 2], "expected_output": 3, "time_limit": 1, "memory_limit": None}], [{"input": "1\n2", "output": "3", "time_limit": 1}]),
        ({"official_tests": [ONE], "time_limit": 2, "memory_limit": 3}, [{**ONE, "time_limit": 2, "memory_limit": 3}]),
        ({"official_tests": [{**ONE, "time_limit": 1}], "time_limit": 2}, [{**ONE, "time_limit": 1}]),
        ({"public_tests": {"input": ["1"], "output": ["2"]}, "private_tests": [ONE]}, [ONE, ONE]),
        ({"public_tests": {"input": "1", "output": "2"}}, [ONE]),
        *(({key: [ONE]}, [ONE]) for key in (*forms._GROUPS, "cases", "test_cases", "input_output")),
        *(({key: "assert f()"}, [written_as("asserts", "assert f()")]) for key in forms._TESTS),
        *(({key: ["assert f()"]}, [written_as("asserts", "assert f()")]) for key in forms._TESTS),
        ({"test": " ", "tests": "assert f()"}, [written_as("asserts", "assert f()")]),
        ({"test": "x = 1"}, [{"why": "nothing in the tests runs: they only define"}]),
        ({"test": []}, []),
        ({"inputs": "1", "outputs": ["2"]}, []),
        ({"fn_name": "f", "inputs": [[1, 2], "3\n\n4", 5], "outputs": [3, "7", 6]}, [call("f", [1, 2], 3), call("f", [3, 4], 7), call("f", [5], 6)]),
        ({"fn_name": "f", "inputs": ["odd"], "outputs": [3]}, []),
        ({"fn_name": "f", "inputs": ["1"], "outputs": [["x"]]}, [{**call("f", [1], ["x"]), "wrapped": True}]),
        ({"input": ["1", "3"], "output": ["2", "4"]}, [ONE, {"input": "3", "output": "4"}]),
        ([{"input": ["1", "3"], "output": ["2", "4"]}], [{"input": "1\n3", "output": "2\n4"}]),
        ([{**ONE, "testtype": "functional"}], [{"why": "the cases call a function that they do not name: give cases: the path of what holds metadata, too"}]),
        ({"inputs": ["1", "2"], "outputs": ["1"]}, [{"why": "there are 2 inputs and 1 outputs"}]),
        ({"fn_name": 3, "inputs": ["1"], "outputs": ["2"]}, [ONE]),
        ({"metadata": {"func_name": "f"}, "cases": [{**ONE, "testtype": "functional"}]}, [call("f", [1], 2)]),
        ({"metadata": '{"func_name": "f"}', "cases": [ONE]}, [ONE]),
        ({"metadata": "odd", "cases": [ONE]}, [ONE]),
        ({"metadata": "[1]", "cases": [ONE]}, [ONE]),
        ([{**ONE, "fn_name": "f"}], [call("f", [1], 2)]),
        ({"test_list": ["assert f()"], "test_imports": ["import a", "import b"]}, [written_as("asserts", "import a\nimport b\nassert f()")]),
        ({"test_list": ["assert f()"]}, [written_as("asserts", "\nassert f()")]),
        ({"test_start": "def check(c):\n", "test": ["    assert c()\n", "    assert c(1)"], "entry_point": "f"}, [written_as("check", "def check(c):\n    assert c()\n    assert c(1)", "f")]),
        ({"code_context": "def test_execution(s): pass", "test": "assert 1"}, [written_as("insert", "def test_execution(s): pass")]),
        ({"code_context": "def test_string(s): pass"}, [written_as("insert", "def test_string(s): pass")]),
        ({"code_context": "x = 1"}, [{"why": "code_context has no test_execution"}]),
        ({"assert_case": ["assert f()"]}, [written_as("asserts", "assert f()")]),
        ({"assert_case": [], "tests": "assert f()"}, [written_as("asserts", "assert f()")]),
        ({"test": "def check(c):\n    assert c()"}, [{"why": "check(candidate) needs an entry point: the reference has no entry_point"}]),
        (["assert f()", {"output": None, "tests": "assert g()"}], [written_as("asserts", "assert f()"), written_as("asserts", "assert g()")]),
        (">>> f()\n1\n", [written_as("doctest", ">>> f()\n1\n")]),
        ("unittest", [{"why": "nothing in the tests runs: they only define"}]),
    ],
)  # fmt: skip
def test_cases_of_data_sets_are_read(value: Any, cases: Any) -> None:
    assert forms.read_cases(value) == cases


def test_an_entry_and_a_function_may_come_from_elsewhere() -> None:
    check = "def check(c):\n    assert c()"
    assert forms.read_cases(check, entry="g") == [written_as("check", check, "g")]
    assert forms.read_cases({"test": check, "entry_point": "f"}, entry="g") == [
        written_as("check", check, "f")
    ]
    assert forms.read_cases({"test": check, "entry_point": 3}, entry="g") == [written_as("check", check, "g")]
    assert forms.read_cases([{**ONE, "testtype": "functional"}], "f") == [call("f", [1], 2)]
    assert forms.read_cases([{**ONE, "testtype": "stdin"}], "f") == [ONE]


CASE = "import unittest\nclass T(unittest.TestCase):\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("assert f()", ("asserts", True, "")),
        ("for x in y:\n    assert f(x)", ("asserts", False, "")),
        ("np.testing.assert_equal(f(), 1)", ("asserts", False, "")),
        ("def g():\n    assert f()\ng()", ("asserts", False, "")),
        ("def g():\n    pass\ng()", (None, False, "nothing in the tests runs: they only define")),
        ("def g():\n    assert f()", (None, False, "nothing in the tests runs: they only define")),
        ("class A:\n    assert f()", (None, False, "nothing in the tests runs: they only define")),
        ("x = lambda: assert_(f())", (None, False, "nothing in the tests runs: they only define")),
        ("def (", (None, False, "the tests are no Python (SyntaxError, line 1)")),
        ("def check(c):\n    assert c()", (None, False, "check(candidate) needs an entry point: the reference has no entry_point")),
        ("def check():\n    assert f()", (None, False, "nothing in the tests runs: they only define")),
        ("def check(c):\n    assert c()\ncheck(f)", ("asserts", False, "")),
        ("def test_a():\n    assert f()", ("pytest", True, "")),
        ("def test_a():\n    f()", ("pytest", True, "")),
        ("def test_a():\n    raise ValueError", ("pytest", True, "")),
        ("@pytest.mark.skip\ndef test_a():\n    assert f()", ("pytest", False, "")),
        ("@xfail\ndef test_a():\n    assert f()", ("pytest", False, "")),
        ("def test_a():\n    pass", (None, False, "no test function checks anything")),
        ("def test_a(tmp_path):\n    assert f()", (None, False, "fixtures are not made: test_a takes tmp_path")),
        ("def test_a(x=1):\n    assert f()", ("pytest", True, "")),
        ("@pytest.mark.parametrize('a, b', [(1, 2)])\ndef test_a(a, b):\n    assert f()", ("pytest", True, "")),
        ("@pytest.mark.parametrize(['a'], [1])\ndef test_a(a, b):\n    assert f()", (None, False, "fixtures are not made: test_a takes b")),
        ("@other('a')\ndef test_a(a):\n    assert f()", (None, False, "fixtures are not made: test_a takes a")),
        ("@pytest.mark.parametrize()\ndef test_a(a):\n    assert f()", (None, False, "fixtures are not made: test_a takes a")),
        ("def test_a():\n    assert f()\ntest_a()", ("asserts", False, "")),
        ("async def g(): pass\ndef test_a():\n    assert f()", (None, False, "the tests are asynchronous")),
        ("class TestA:\n    def test_a(self):\n        assert f()", ("pytest", True, "")),
        ("class A:\n    def test_a(self):\n        assert f()", (None, False, "nothing in the tests runs: they only define")),
        (f"{CASE}    def test_a(self):\n        self.assertTrue(f())", ("unittest", True, "")),
        (f"{CASE}    @unittest.skip\n    def test_a(self):\n        self.assertTrue(f())", ("unittest", False, "")),
        (f"{CASE}    def test_a(self):\n        pass", (None, False, "no test of its classes checks anything")),
        ("class T(TestCase):\n    x = 1\nclass U(T):\n    def test_a(self):\n        f()", ("unittest", True, "")),
        ("@skip\nclass T(TestCase):\n    def test_a(self):\n        f()", ("unittest", False, "")),
        (f"{CASE}    def test_a(self):\n        f()\ndef test_b():\n    pass", ("pytest", True, "")),
        (">>> f()\n1", ("doctest", True, "")),
        ("'''\n>>> f()\n1\n'''", ("doctest", True, "")),
        (">>> f()", (None, False, "no doctest says what is to come out")),
        (">>>f()\n>>> f()\n1", (None, False, "the doctests cannot be read (line 1 of the docstring for <string> lacks blank after >>>: '>>>f()')")),
        ("", (None, False, "no doctest says what is to come out")),
    ],
)  # fmt: skip
def test_the_form_of_a_text_is_recognised(text: str, found: Any) -> None:
    assert forms.recognise(text, False) == found


def test_a_check_is_given_a_candidate() -> None:
    assert forms.recognise("def check(c):\n    assert c()", True) == ("check", True, "")
    assert forms.recognise("def check(c):\n    assert f()", True) == (
        None,
        False,
        "check does nothing with its candidate",
    )


@pytest.mark.parametrize(
    ("case", "form", "checks"),
    [
        (ONE, "stdio", 1),
        (call("f", [1], 2), "calls", 1),
        ({"main": "int main() { assert(1); assert (2); static_assert(1); }"}, "main", 2),
        ({"main": "int main() {}"}, "main", 1),
        (written_as("doctest", ">>> f()\n1\n  >>> g()\nx >>> y\n"), "doctest", 2),
        (written_as("pytest", "def test_a():\n    f()\ndef test_b():\n    pass\ndef g():\n    f()"), "pytest", 1),
        (written_as("unittest", "class T:\n    def test_a(self):\n        f()\n    def test_b(self):\n        g()"), "unittest", 2),
        (written_as("asserts", "assert f()\nassert_equal(1)\nfor x in y:\n    assert x"), "asserts", 3),
        (written_as("check", "def check(c):\n    c()"), "check", 1),
    ],
)  # fmt: skip
def test_checks_are_counted_as_they_are_written(case: Any, form: str, checks: int) -> None:
    assert forms.form_of(case) == form
    assert forms.written(case) == checks


CPP = "int main() { return 0; }"


@pytest.mark.parametrize(
    ("value", "cases"),
    [
        (CPP, [{"main": CPP, "certain": False}]),
        *(({key: CPP}, [{"main": CPP, "certain": False}]) for key in ("test", "tests", "test_code")),
        (json.dumps({"test": CPP}), [{"main": CPP, "certain": False}]),
        ([ONE], [ONE]),
        (f" {json.dumps([ONE])}", [ONE]),
        ({"test": "void f();"}, [{"why": "the tests have no main: cpp takes inputs and outputs, or tests with a main of their own"}]),
        ("{odd", [{"why": "the tests have no main: cpp takes inputs and outputs, or tests with a main of their own"}]),
        (["assert f()"], [{"why": "the cases are asserts, which are Python's: cpp takes inputs and outputs, or tests with a main of their own"}]),
        ({"fn_name": "f", "inputs": [1], "outputs": [1]}, [{"why": "the cases are calls, which are Python's: cpp takes inputs and outputs, or tests with a main of their own"}]),
        ([], []),
        (None, []),
    ],
)  # fmt: skip
def test_cases_of_compiled_languages_are_read(value: Any, cases: Any) -> None:
    assert forms.compiled_cases(value, "cpp", compiled.has_main) == cases


# ---- compiled languages


def test_sources_without_tests() -> None:
    assert compiled.source_of("cpp", "code", None) == compiled.Source({"program.cpp": "code"}, "")
    for code, name, main in (
        ("class A { static void main(String[] a) {} }", "Program.java", "A"),
        ("class B {} class A { static void main (String[] a) {} }", "Program.java", "A"),
        ("public final class C { }", "C.java", "C"),
        ("class A {}", "Program.java", "Main"),
        ("/* class B { static void main(String[] a) */ record A() { static void main(String[] a) {} }", "Program.java", "A"),
    ):  # fmt: skip
        assert compiled.source_of("java", code, None) == compiled.Source({name: code}, main)


@pytest.mark.parametrize(
    ("language", "code", "by"),
    [
        ("cpp", "bool operator  ==(A, B);", "operator =="),
        ("cpp", "bool operator<=>(A, B);", "operator<=>"),
        ("cpp", "A operator-(A, B);", "operator-"),
        ("cpp", "double fabs(double x)", "double fabs("),
        ("cpp", "void __assert_fail()", "__assert_fail"),
        ("java", "public boolean equals (Object o)", "boolean equals ("),
    ],
)
def test_a_program_that_decides_what_it_is_equal_to_is_refused(language: str, code: str, by: str) -> None:
    says = f"the program decides itself what it is equal to, by {by}"
    assert compiled.source_of(language, code, "tests") == says
    for hidden in (f"// {code}", f"/* {code} */", f'"{code}"'):
        assert compiled.source_of(language, hidden, "int main() {}") != says
    assert compiled.source_of(language, code, None) != says


def test_tests_of_cpp_stand_behind_the_program() -> None:
    code = "#define assert(x)\nint f();\nint main() { return f(); }"
    source = compiled.source_of(
        "cpp", code, "void g() { assert (f()); }\nint main() { assert(f() == 1); int x; }"
    )
    assert isinstance(source, compiled.Source)
    text = source.files["program.cpp"]
    name = re.search(r"k_\w{16}", text)[0]  # type: ignore[index]
    assert text.startswith(
        f"#define assert(x)\nint f();\nint {name}_own() {{ return f(); }}\n#undef assert\n\n#include"
    )
    assert (
        f"void g() {{ {name}_check(f()); }}\nint main() {{ {name}_end {name}_here;  {name}_check(f() == 1);"
        in text
    )
    numbers = [[int(n) for n in found.split(",")] for found in re.findall(r"\[\] = \{([\d,]+)\}|b\[\] = \{([\d,]+)\}", text)[0] if found]  # fmt: skip
    pairs = re.search(r"a\[\] = \{([\d,]+)\}, b\[\] = \{([\d,]+)\};", text)
    assert numbers
    assert pairs is not None
    hidden, key = ([int(n) for n in part.split(",")] for part in pairs.groups())
    assert "".join(chr(a ^ b) for a, b in zip(hidden, key, strict=True)) == source.token
    assert source.token not in text
    assert source.checks(f"said\n{source.token}:12\n") == 12
    assert source.checks(f"{source.token}:12\nmore") is None
    assert compiled.Source({}, "").checks(":3") is None


def test_tests_of_java_count_themselves() -> None:
    tests = "class T { static void main(String[] a) { assert f(); assert(g()); if (h()) throw x; } }"
    source = compiled.source_of("java", "public class P {}", tests)
    assert isinstance(source, compiled.Source)
    assert [*source.files] == ["P.java", "T.java", f"{source.main}.java"]
    assert source.files["T.java"] == compiled._IMPORTS + (
        f"class T {{ static void main(String[] a) {{ assert {source.main}.ran() && f(); assert {source.main}.ran() && (g()); "
        f"if ({source.main}.ran() && h()) throw x; }} }}"
    )
    last = source.files[f"{source.main}.java"]
    assert "        T.main(args);\n" in last
    hidden, key = (
        [int(n) for n in part.split(",")]
        for part in re.search(r"a = \{(.*?)\}, b = \{(.*?)\};", last).groups()
    )  # type: ignore[union-attr]
    assert "".join(chr(a ^ b) for a, b in zip(hidden, key, strict=True)) == source.token
    plain = compiled.source_of("java", "class P {}", "void main() { if (a) b(); }")
    assert isinstance(plain, compiled.Source)
    assert [*plain.files][:2] == ["Program.java", "Main.java"]
    assert plain.files["Main.java"].endswith("if (a) b(); }")


def test_names_of_java_s_tests_are_the_tests_own() -> None:
    assert (
        compiled.source_of("java", "class T {} class Other {}", "class T { U u; }")
        == "the program defines T, which its tests use"
    )
    assert isinstance(
        compiled.source_of("java", "class Solution {} class V {}", "class T { Solution s; }"), compiled.Source
    )


def test_commands_of_compiled_languages() -> None:
    source = compiled.Source({"a": "text"}, "Main")
    assert source.job("cpp") == {
        "kind": "compile",
        "language": "cpp",
        "files": {"a": "text"},
        "command": ["g++", "-O1", "-std=c++20", "-w", "-o", "program", "a"],
    }
    assert source.job("java")["command"] == [
        "javac",
        "-nowarn",
        "-J-XX:+UseSerialGC",
        "-J-XX:-UsePerfData",
        "a",
    ]
    made = {"kind": "compiled", "language": "cpp", "files": {"b": "c"}, "command": ["./program"]}
    assert source.run("cpp", {"b": "c"}, 100) == made
    command = "java -XX:+UseSerialGC -XX:-UsePerfData -XX:TieredStopAtLevel=1 -Xmx{}m -Xss64m -ea -cp . Main"
    for memory_mb, heap in ((100, 50), (40, 32)):
        assert " ".join(source.run("java", {}, memory_mb)["command"]) == command.format(heap)


# ---- what runs come to


class Answers:
    """A sandbox that ends as it is told, once for each case."""

    def __init__(self, *finished: Any) -> None:
        self.finished, self.asked = [*finished], []  # type: ignore[var-annotated]

    def run(self, code: str, *, limits: Limits, stdin: str = "", job: Any = None) -> Finished:
        self.asked.append((code, limits, stdin, job))
        found = self.finished.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found  # type: ignore[no-any-return]

    def isolation(self) -> dict[str, str]:
        return {"network": "none"}


def says(output: str, code: int = 0, errors: str = "") -> Finished:
    return Finished("ended", code, output, errors)


def answer(value: Any) -> Finished:
    return Finished("ended", 0, "", "", value, True)


def grade(cases: Any, *finished: Any, response: str = "```python\nx\n```", **options: Any) -> Any:
    sandbox = Answers(*finished)
    return Code(sandbox=sandbox, **options).grade(
        Rollout(response=response, ground_truth=cases)
    ), sandbox.asked


TWO = [ONE, {"input": "3", "output": "4"}]
ASSERT = ["assert f()"]
LOOP = ["for x in y:\n    assert x"]


def metadata(form: str, passed: int, cases: int, checks: int) -> dict[str, Any]:
    return {"passed": passed, "cases": cases, "form": form, "checks": checks, "network": "none"}


@pytest.mark.parametrize(
    ("cases", "finished", "found"),
    [
        (TWO, [says("2\n"), says("4")], (1.0, "all 2 cases pass", metadata("stdio", 2, 2, 2))),
        (TWO, [says("2"), says("5")], (0.5, "case 2: '5' instead of '4'", metadata("stdio", 1, 2, 1))),
        ([ONE], [says("2", 1)], (0.0, "case 1: exit code 1", metadata("stdio", 0, 1, 0))),
        ([ONE], [says("2", -11)], (0.0, "case 1: killed by signal 11", metadata("stdio", 0, 1, 0))),
        ([ONE], [says("2", 139)], (0.0, "case 1: killed by signal 11", metadata("stdio", 0, 1, 0))),
        ([ONE], [says("2", -9)], (0.0, "case 1: no end within its CPU time", metadata("stdio", 0, 1, 0))),
        ([ONE], [says("2", 152)], (0.0, "case 1: no end within its CPU time", metadata("stdio", 0, 1, 0))),
        ([ONE], [says("2", 128)], (0.0, "case 1: exit code 128", metadata("stdio", 0, 1, 0))),
        ([ONE], [says("2", 1, f"a\n {'e' * 200} \n\n")], (0.0, f"case 1: {'e' * 150}", metadata("stdio", 0, 1, 0))),
        ([ONE], [Finished("time", 0, "", "")], (0.0, "case 1: no end within 30 s", metadata("stdio", 0, 1, 0))),
        ([ONE], [Finished("memory", 0, "", "")], (0.0, "case 1: more than 1024 MiB of memory, all its processes together", metadata("stdio", 0, 1, 0))),
        ([ONE], [Finished("processes", 0, "", "")], (0.0, "case 1: more than 32 processes, all its processes together", metadata("stdio", 0, 1, 0))),
        ([ONE], [Finished("output", 0, "", "")], (0.0, "case 1: more than 1024 KiB of output", metadata("stdio", 0, 1, 0))),
        ([{**ONE, "fn_name": "f"}], [answer(2)], (1.0, "all 1 cases pass", metadata("calls", 1, 1, 1))),
        ([{**ONE, "fn_name": "f"}], [answer("x" * 99)], (0.0, f"case 1: {rules._SHORT.repr('x' * 99)[:60]} instead of 2", metadata("calls", 0, 1, 0))),
        ([{**ONE, "fn_name": "f"}], [says("")], (0.0, "case 1: it ended before its tests did", metadata("calls", 0, 1, 0))),
        (ASSERT, [answer({"checks": 3})], (1.0, "all 1 cases pass", metadata("asserts", 1, 1, 3))),
        (ASSERT, [answer({"checks": 0})], (0.0, "case 1: none of its checks ran", metadata("asserts", 0, 1, 0))),
        (ASSERT, [answer({"checks": "x"})], (0.0, "case 1: none of its checks ran", metadata("asserts", 0, 1, 0))),
        (LOOP, [answer({"checks": 0})], "case 1: none of its checks ran"),
        (None, [], "there are no cases at ground_truth"),
        (["x = 1"], [], "nothing in the tests runs: they only define"),
        ("[" * 100_000, [], "there are no cases at ground_truth"),
    ],
)  # fmt: skip
def test_what_a_program_has_come_to(cases: Any, finished: Any, found: Any) -> None:
    grade_, _ = grade(cases, *finished)
    assert grade_ == (Abstained(found) if isinstance(found, str) else Graded(*found))


def test_what_is_run_for_a_case() -> None:
    _, asked = grade(TWO, says("2"), says("4"), time_s=2.0, wall_s=12.0)
    assert [(code, stdin, job) for code, _, stdin, job in asked] == [("x", "1", None), ("x", "3", None)]
    assert asked[0][1] == Limits(2.0, 12.0, answer_kb=64)
    _, ((code, _, stdin, job),) = grade(ASSERT, answer({"checks": 1}))
    assert (code, stdin, job) == ("x", "", written_as("asserts", "assert f()")["job"])


def test_cases_stop_where_enough_have_failed() -> None:
    three = [*TWO, ONE]
    found, asked = grade(three, says("x"), says("y"), says("2"), stop_after=2)
    assert (found.score, len(asked), found.reason) == (0.0, 2, "case 1: 'x' instead of '2'")
    found, asked = grade(three, says("2"), says("y"), says("2"), score="all")
    assert (found.score, len(asked)) == (0.0, 2)
    found, asked = grade(three, says("2"), says("4"), says("2"), score="all")
    assert (found.score, len(asked)) == (1.0, 3)
    found, asked = grade(three, says("2"), says("4"), max_cases=2)
    assert (found.score, len(asked), found.metadata["cases"]) == (1.0, 2, 2)


def test_a_machine_that_fails_is_no_grade() -> None:
    for error, number in ((SandboxError("no"), 1), (MachineBusy("no"), 2), (SandboxError("no"), 2)):
        with pytest.raises(type(error), match="no"):
            grade(TWO, *[says("2")] * (number - 1), error)
    with pytest.raises(SandboxError) as raised:
        grade(ASSERT, answer({"missing": ["a", "b"]}))
    assert str(raised.value) == "the tests import a, b, which the sandbox's Python does not have"


def test_code_may_have_a_beginning() -> None:
    sandbox = Answers(says("2"))
    rollout = Rollout(response="```python\nx\n```", ground_truth=[ONE], extra={"start": "import a"})
    Code(sandbox=sandbox, prefix="extra.start").grade(rollout)
    assert sandbox.asked[0][0] == "import a\nx"
    assert grade([ONE], response="```java\nx\n```")[0] == Graded(0.0, "there is no code")


@pytest.mark.parametrize(
    ("cases", "options", "about"),
    [
        ([ONE], {}, "1 case of the form stdio with 1 check"),
        (TWO, {}, "2 cases of the form stdio with 2 checks"),
        (TWO, {"max_cases": 1}, "2 cases of the form stdio with 2 checks, of which 1 cases run"),
        (TWO, {"max_cases": 2}, "2 cases of the form stdio with 2 checks"),
        (None, {}, Abstained("there are no cases at ground_truth")),
        (TWO, {"form": "calls"}, Abstained("the cases at ground_truth are stdio, not calls")),
        (TWO, {"form": "stdio"}, "2 cases of the form stdio with 2 checks"),
    ],
)
def test_what_a_row_says_is_told(cases: Any, options: Any, about: Any) -> None:
    assert Code(sandbox=Answers(), **options).about_data(Rollout(response="", ground_truth=cases)) == about


@pytest.mark.parametrize(
    ("made", "ran", "score", "reason"),
    [
        (answer({"made": {"program": "x"}}), says("2"), 1.0, "all 1 cases pass"),
        (answer({"problem": "line 3"}), None, 0.0, "it does not compile: line 3"),
        (Finished("time", 0, "", ""), None, 0.0, "it does not compile: no end within 60 s"),
        (says("", 1, "why"), None, 0.0, "it does not compile: why"),
        (answer([1]), None, 0.0, "it does not compile: it ended before its tests did"),
    ],
)
def test_a_program_is_compiled_before_it_runs(made: Any, ran: Any, score: float, reason: str) -> None:
    found, asked = grade([ONE], made, ran, response="```cpp\nx\n```", language="cpp", memory_mb=512)
    assert (found.score, found.reason) == (score, reason)
    assert asked[0] == (
        "",
        Limits(20.0, 60.0, 1024),
        "",
        compiled.Source({"program.cpp": "x"}, "").job("cpp"),
    )
    if ran is not None:
        assert asked[1][3] == {
            "kind": "compiled",
            "language": "cpp",
            "files": {"program": "x"},
            "command": ["./program"],
        }


def test_a_sandbox_without_a_compiler_is_the_machine_s_failure() -> None:
    with pytest.raises(SandboxError) as raised:
        grade([ONE], answer({"missing": ["g++"]}), response="```cpp\nx\n```", language="cpp")
    assert str(raised.value) == "the sandbox has no g++, which language: cpp needs"


def test_tests_with_a_main_count_their_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled.secrets, "token_hex", lambda n: "ab" * n)
    made = answer({"made": {}})
    token = "ab" * 16
    for ran, found in (
        (says(f"\n{token}:2\n"), (1.0, "all 1 cases pass", metadata("main", 1, 1, 2))),
        (says(f"\n{token}:2\n", 3), (0.0, "case 1: exit code 3", metadata("main", 0, 1, 0))),
        (says("2"), (0.0, "case 1: it ended before its tests did", metadata("main", 0, 1, 0))),
        (says(f"\n{token}:0\n"), "case 1: none of its checks ran"),
    ):
        result, _ = grade(CPP, made, ran, response="```c++\nx\n```", language="cpp")
        assert result == (Abstained(found) if isinstance(found, str) else Graded(*found))
    refused, asked = grade(CPP, response="```cpp\noperator==\n```", language="cpp")
    assert refused.reason == "the program decides itself what it is equal to, by operator=="
    assert asked == []


@pytest.mark.parametrize(
    ("value", "number"),
    [(2, 2.0), (2.5, 2.5), ("2 seconds", 2.0), (" 2.5s", 2.5), ("s", None), ({"seconds": 2, "nanos": 500_000_000}, 2.5),
     ({"seconds": "1"}, 1.0), ({"nanos": 1e9}, 1.0), ({}, None), (0, None), (-1, None), (True, None), (None, None), (1e15, None), (1e14, 1e14)],
)  # fmt: skip
def test_quantities_are_read(value: Any, number: float | None) -> None:
    assert rules._quantity(value) == number


@pytest.mark.parametrize(
    ("case", "limits"),
    [
        ({}, Limits(10.0, 60.0, 1024, answer_kb=64)),
        ({"time_limit": 2}, Limits(2.0, 12.0, 1024, answer_kb=64)),
        ({"time_limit": 1}, Limits(1.0, 10.0, 1024, answer_kb=64)),
        ({"time_limit": 20}, Limits(10.0, 60.0, 1024, answer_kb=64)),
        ({"memory_limit": 256}, Limits(10.0, 60.0, 256, answer_kb=64)),
        ({"memory_limit": 5}, Limits(10.0, 60.0, 64, answer_kb=64)),
        ({"memory_limit": 4096}, Limits(10.0, 60.0, 1024, answer_kb=64)),
        ({"memory_limit": 256 << 20}, Limits(10.0, 60.0, 256, answer_kb=64)),
        ({"output": "x" * 1022}, Limits(10.0, 60.0, 1024, answer_kb=72)),
        ({"output": "x" * (4 << 20)}, Limits(10.0, 60.0, 1024)),
    ],
)
def test_a_case_has_limits_of_its_own(case: Any, limits: Limits) -> None:
    assert rules.limits_of(case, Limits(10.0, 60.0)) == limits


def test_sizes_of_what_is_no_json() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert rules._size(loop) == 1 << 30
    assert rules._size(object) == len(json.dumps(str(object)))


@pytest.mark.parametrize(
    ("response", "whole", "language", "code"),
    [
        ("```py\na\n```\n```python3\nb\n```\n```\nc\n```", True, "python", "b"),
        ("```\na\n```\n```java\nb\n```", True, "python", "a"),
        ("```java\nb\n```", True, "python", None),
        ("words", True, "python", "words"),
        ("words", False, "python", None),
        ("  ", True, "python", None),
        ("<think>x", True, "python", None),
        *((f"```{fence}\na\n```", True, language, "a") for language, fences in compiled.FENCES.items() for fence in fences),
    ],
)  # fmt: skip
def test_the_code_of_a_response(response: str, whole: bool, language: str, code: str | None) -> None:
    assert rules.program_of(response, whole, language) == code


def test_fences_of_languages() -> None:
    assert compiled.FENCES == {
        "python": ("python", "py", "python3"),
        "cpp": ("cpp", "c++", "cc", "cxx"),
        "java": ("java",),
    }


@pytest.mark.parametrize(
    ("given", "wanted", "same"),
    [
        (1, 1.0, True), (1.0, 1.0 + 1e-10, True), (1.0, 1.0 + 1e-8, False), (0.0, 1e-10, True), (True, True, True), (1, True, False),
        (None, None, True), ("a", "a", True), ([1, [2.0]], [1, [2]], True), ([1], [1, 2], False), ([1], 1, False),
        ({"1": 2}, {1: 2}, True), ({"1": 2}, {"1": 3}, False), ({"1": 2}, {"2": 2}, False), (1, [1], False), ([], [[]], False), (1, [1, 1], False),
    ],
)  # fmt: skip
def test_answers_that_are_the_same(given: Any, wanted: Any, same: bool) -> None:
    assert rules._same(given, wanted) is same


def test_settings_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    least: dict[str, Any] = {
        "budget_s": 1.0,
        "time_s": 0.1,
        "memory_mb": 64,
        "output_kb": 1,
        "processes": 1,
        "max_cases": 1,
        "stop_after": 1,
    }
    rule = Code(sandbox=Answers(), **least)
    assert rule.limits == Limits(0.1, pytest.approx(0.3), 64, 1, processes=1)
    assert rule.timeout_s == 1.0 + 22.0 + 10.0
    for name, value in least.items():
        with pytest.raises(ConfigError, match=f"^code: {name} is a "):
            Code(sandbox=Answers(), **{name: value / 2})
    for name in ("score", "compare", "language", "form", "network", "isolation"):
        with pytest.raises(ConfigError, match=f"^code: {name} is one of"):
            Code(sandbox=Answers(), **{name: "odd"})
    assert Code(sandbox=Answers(), max_concurrency=3).max_concurrency == 3
    plain = Code(sandbox=Answers())
    assert (plain.limits, plain.stop_after, plain.budget_s, plain.max_cases) == (Limits(), None, 60.0, 20)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError) as raised:
        Code(language="java")
    assert str(raised.value) == (
        "code: language java needs javac, which this machine does not have: install it, or give the URL of a sandbox "
        "service that has it as sandbox"
    )
