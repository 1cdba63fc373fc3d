"""What the harness does in the sandbox, function by function, in the tests' own process."""

from __future__ import annotations

import ast
import base64
import collections
import fractions
import functools
import json
import math
import os
import resource
import string
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from judgekit.graders.rules.programs import code_harness as harness

LIBRARY = f"{harness._ROOTS[0]}/thing.py"
TESTS = harness.TESTS


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder and a process that a harness may take for its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("solution", "__main__", "json"):
        monkeypatch.setitem(sys.modules, name, sys.modules.get(name, types.ModuleType(name)))
    for name in [name for name in vars(unittest.TestCase) if name.startswith("assert")]:
        monkeypatch.setattr(unittest.TestCase, name, vars(unittest.TestCase)[name])
    for module, name in ((unittest, "main"), (math, "floor"), (sys, "argv")):
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setattr(harness, "hide", lambda: None)
    return tmp_path


class Job:
    """A job's files in a folder, and what running it has set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[tuple[Any, ...]] = []

    def limit(self, what: int, values: tuple[int, int]) -> None:
        if values[0] == 13:
            raise ValueError("not allowed")
        self.said.append((what, values))

    def run(self, code: str, **job: Any) -> None:
        (self.folder / "job.json").write_text(json.dumps({"limits": {}, "answer_bytes": 1024, **job}))
        (self.folder / "code.py").write_text(code, errors="surrogatepass")
        (self.folder / "harness.py").write_text("")
        reading, writing = os.pipe()
        os.write(writing, b"the secret")
        os.close(writing)
        with pytest.MonkeyPatch.context() as patch:  # at once: pytest itself captures by these
            patch.setattr(os, "dup", {0: reading}.get)
            patch.setattr(
                os,
                "dup2",
                lambda *args: self.said.append(("input", os.readlink(f"/proc/self/fd/{args[0]}"), args[1])),
            )
            patch.setattr(sys, "setrecursionlimit", lambda *args: self.said.append(("depth", *args)))
            patch.setattr(sys, "set_int_max_str_digits", lambda *args: self.said.append(("digits", *args)))
            patch.setattr(resource, "setrlimit", self.limit)
            harness.main()

    def answer(self) -> Any:
        return json.loads((self.folder / "answer.json").read_text())


@pytest.fixture
def job(alone: Path) -> Job:
    return Job(alone)


def test_a_program_runs_as_it_would_alone(job: Job) -> None:
    job.run(
        "import sys\nwith open('ran', 'w') as file:\n    file.write(f'{sys.argv} {__name__}')", kind="program"
    )
    assert sorted(path.name for path in job.folder.iterdir()) == ["begun", "ran"]
    assert (job.folder / "ran").read_text() == "['code.py'] __main__"
    assert (job.folder / "begun").read_text() == "begun"
    assert job.said == [("depth", 20_000), ("digits", 0)]


def test_a_program_that_has_a_descriptor_says_there_that_it_began(job: Job) -> None:
    reading, writing = os.pipe()
    job.run("", kind="program", begun=writing)
    assert os.read(reading, 10) == b"1"
    assert os.read(reading, 10) == b""
    os.close(reading)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writing)
    assert not (job.folder / "begun").exists()


LIMITS = {"RLIMIT_AS": 5, "RLIMIT_NPROC": 6, "RLIMIT_CPU": 7, "RLIMIT_FSIZE": 13, "RLIMIT_OF_NOTHING": 9}


@pytest.mark.parametrize(
    ("language", "set_"),
    [
        (None, {resource.RLIMIT_AS: 5, resource.RLIMIT_NPROC: 6, resource.RLIMIT_CPU: 7}),
        ("cpp", {resource.RLIMIT_AS: 5, resource.RLIMIT_NPROC: 6, resource.RLIMIT_CPU: 7}),
        ("java", {resource.RLIMIT_CPU: 7}),
    ],
)
def test_limits_are_set_for_good(job: Job, language: str | None, set_: dict[int, int]) -> None:
    job.run("", kind="program", limits=LIMITS, **({"language": language} if language else {}))
    assert job.said[: len(set_)] == [(what, (value, value)) for what, value in set_.items()]
    assert job.said[len(set_) :] == [("depth", 20_000), ("digits", 0)]


def test_an_answer_holds_the_secret_that_came_on_standard_input(job: Job) -> None:
    job.run("def f(x):\n    return {x + 1}", kind="call", function="f", arguments=[1])
    assert job.answer() == {"secret": "the secret", "answer": [2]}
    assert job.said == [("input", "/dev/null", 0), ("depth", 20_000), ("digits", 0)]


@pytest.mark.parametrize("length", [1022, 1023])
def test_an_answer_has_a_size(job: Job, length: int) -> None:
    code = f"def f():\n    return 'x' * {length}"
    if length == 1022:
        job.run(code, kind="call", function="f", arguments=[])
        assert job.answer()["answer"] == "x" * 1022
        return
    with pytest.raises(ValueError, match="^the answer has more than 1 KiB$"):
        job.run(code, kind="call", function="f", arguments=[])
    assert not (job.folder / "answer.json").exists()


def test_a_job_brings_its_own_runner(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "patched", None, raising=False)
    runner = "def patched(source, job):\n    return [source, 'runner' in job]"
    job.run("the source \ud800", kind="patch", runner=runner)
    assert job.answer()["answer"] == ["the source \ud800", False]


def test_tests_and_compilers_are_kinds_of_jobs(job: Job) -> None:
    job.run("x = 1", kind="tests", tests="assert x == 1")
    assert job.answer()["answer"] == {"checks": 1}
    job.run("", kind="compile", command=["there-is-no-such-compiler"], files={})
    assert job.answer() == {"secret": "the secret", "answer": {"missing": ["there-is-no-such-compiler"]}}


def test_a_compiled_program_takes_the_process(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def replaced(*args: Any) -> None:
        raise SystemExit(repr(args))

    monkeypatch.setattr(os, "execvp", replaced)
    files = {"program": base64.b64encode(b"\x00\xff").decode()}
    with pytest.raises(SystemExit, match=r"\('\./program', \['\./program', 'x'\]\)"):
        job.run("raise AssertionError", kind="compiled", files=files, command=["./program", "x"])
    assert (job.folder / "program").read_bytes() == b"\x00\xff"
    assert (job.folder / "program").stat().st_mode & 0o777 == 0o700
    assert job.said == [("depth", 20_000), ("digits", 0)]


# ---- compiling


def test_what_a_compiler_makes_comes_back(alone: Path) -> None:
    (alone / "program").write_text("old")
    (alone / "other").write_text("other")
    job = {"command": ["sh", "-c", "cat in.txt > program; cat > read"], "files": {"in.txt": "text \udcff"}}
    made = harness.compiled("", job)["made"]
    assert {name: base64.b64decode(data) for name, data in made.items()} == {
        "program": b"text \xff",
        "read": b"",
    }


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        ("echo first >&2; echo an error here >&2; echo error two >&2", "an error here"),
        ("echo nothing >&2", "it does not compile"),
        (f"echo error{'x' * 300} >&2", f"error{'x' * 195}"),
    ],
)
def test_what_a_compiler_says_comes_back(alone: Path, says: str, problem: str) -> None:
    job = {"command": ["sh", "-c", f"{says}; exit 1"], "files": {}}
    assert harness.compiled("", job) == {"problem": problem}


# ---- functions


@pytest.mark.parametrize(
    ("code", "name", "arguments", "gives"),
    [
        ("def f(a, b): return a - b", "f", [3, 1], 2),
        ("class Solution:\n    def f(self, a): return sqrt(a)", "f", [4], 2.0),
        ("class A:\n    def f(self, a): return [a]", "A().f", [1], [1]),
        ("def f(a): return a\nclass Solution:\n    def f(self, a): return 0", "f", [1], 1),
        ("def f(a): return List, reduce, deque, heappush, bisect_left, gcd, string, re", "len", [[1]], 1),
        ("sqrt = lambda a: 7", "sqrt", [4], 7),
    ],
)
def test_a_function_is_called(alone: Path, code: str, name: str, arguments: Any, gives: Any) -> None:
    if name == "len":
        name = "(lambda many: len(f(0)) - 7)"
    assert harness.call(code, {"function": name, "arguments": arguments}) == gives


@pytest.mark.parametrize("code", ["x = 1", "Solution = 3"])
def test_a_function_that_is_not_there_is_said(alone: Path, code: str) -> None:
    with pytest.raises(NameError) as raised:
        harness.call(code, {"function": "sqrt", "arguments": [4]})
    assert str(raised.value) == "the code defines no sqrt"


def test_a_program_s_module_can_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "made_up", raising=False)
    module = types.ModuleType("made_up")
    harness.run("import sys\nmine = sys.modules['made_up']\ncode = (lambda: 0).__code__.co_filename", module)
    assert vars(module)["mine"] is module
    assert vars(module)["code"] == "code.py"
    assert vars(module)["__builtins__"] is harness.builtins
    other = types.ModuleType("made_up")
    harness.run("", other)
    assert sys.modules.pop("made_up") is module


# ---- tests


PLUS = "def f(x):\n    return x + 1\n"


@pytest.mark.parametrize(
    ("form", "tests", "entry", "checks"),
    [
        ("asserts", "assert f(1) == 2\nassert f(2) == 3", "", 2),
        ("asserts", "from solution import f\nimport __main__\nassert __main__.f(1) == 2", "", 1),
        ("asserts", "assert __name__ == '__main__' and 'f' not in __builtins__.__dict__", "", 1),
        ("asserts", "def check(g):\n    assert g(1) == 2", "f", 0),
        ("check", "def check(g):\n    assert g(1) == 2", "f", 2),
        ("insert", "def test_execution(s):\n    assert 'f' in s", "", 2),
        ("insert", "def test_execution(s): pass\ndef test_string(s): pass", "", 2),
        ("insert", "test_execution = 3", "", 0),
        (
            "unittest",
            "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(f(1), 2)",
            "",
            2,
        ),
        ("unittest", "def test_a():\n    assert False", "", 0),
        ("pytest", "def test_a():\n    assert f(1) == 2", "", 2),
        (
            "pytest",
            "def setup_module():\n    global y\n    y = 2\ndef test_a():\n    assert f(1) == y",
            "",
            2,
        ),
        ("pytest", "def setUpModule():\n    global y\n    y = 2\ndef test_a():\n    assert f(1) == y", "", 2),
        ("doctest", ">>> x = f(1)\n>>> x\n2\n>>> [x,    1]\n[2,  1]\n", "", 2),
    ],
)
def test_checks_of_each_form_are_counted(alone: Path, form: str, tests: str, entry: str, checks: int) -> None:
    assert harness.tests(PLUS, {"form": form, "tests": tests, "entry": entry}) == {"checks": checks}


def test_tests_without_a_form_are_asserts(alone: Path) -> None:
    assert harness.tests(PLUS, {"tests": "assert f(1) == 2"}) == {"checks": 1}


def test_a_failed_example_is_said(alone: Path) -> None:
    with pytest.raises(AssertionError) as raised:
        harness.tests(PLUS, {"form": "doctest", "tests": ">>> f(1)\n3\n"})
    assert str(raised.value).endswith("Failed example: f(1) Expected: 3 Got: 2")
    assert len(str(raised.value)) <= 120


def test_only_the_end_of_a_failed_example_is_said(alone: Path) -> None:
    with pytest.raises(AssertionError) as raised:
        harness.tests("def f():\n    return 'x' * 500", {"form": "doctest", "tests": ">>> f()\n3\n"})
    assert str(raised.value) == "x" * 119 + "'"


def test_modules_that_are_not_installed_are_said(alone: Path) -> None:
    text = "import not_there.part, also_not_there\nimport os.path\nfrom not_there.other import x"
    assert harness.tests("raise ValueError", {"tests": text}) == {"missing": ["also_not_there", "not_there"]}


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import math\ndef f():\n    math.floor = abs\n    return 1", "math.floor"),
        ("import sys\ndef f():\n    sys.modules['json'] = 3\n    return 1", "json"),
    ],
)
def test_a_program_that_changes_a_library_while_its_tests_run_is_said(
    alone: Path, code: str, what: str
) -> None:
    with pytest.raises(AssertionError) as raised:
        harness.tests(code, {"tests": "assert f() == 1"})
    assert str(raised.value) == f"the program changed {what}"


def test_what_a_program_changes_before_its_tests_is_put_back(alone: Path) -> None:
    code = "import math\nmath.floor = lambda x: 7\nkept = math.floor\n"
    tests = "import math\nassert math.floor(1.5) == 1 and kept(1) == 7"
    assert harness.tests(code, {"tests": tests}) == {"checks": 1}


def test_what_tests_change_themselves_is_put_back_after_them(alone: Path) -> None:
    floor = math.floor
    assert harness.tests("x = 1", {"tests": "import math\nmath.floor = abs\nassert x"}) == {"checks": 1}
    assert math.floor is floor


def test_a_program_s_builtins_are_not_its_tests(alone: Path) -> None:
    code = "def abs(x): return 0\ndef f(x): return x\n__x = __hidden__ = 5"
    tests = "assert f(1) == 1 and abs(-2) == 2 and '__hidden__' not in globals() and '__x' not in globals()"
    assert harness.tests(code, {"tests": tests}) == {"checks": 1}


def test_a_program_that_names_frames_is_not_run(alone: Path) -> None:
    with pytest.raises(AssertionError) as raised:
        harness.tests("open('ran', 'w')\nx = f.__globals__", {"tests": "assert True"})
    assert str(raised.value) == "the program reaches for its tests by __globals__"
    assert not (alone / "ran").exists()


@pytest.mark.parametrize("name", harness._LEADS)
def test_what_leads_to_callers_is_read_in_attributes_and_texts(name: str) -> None:
    for source in (f"a.{name}", f"x = 'b{name}c'", f"def f():\n    return a.{name}()"):
        with pytest.raises(AssertionError) as raised:
            harness.reaches(source)
        assert str(raised.value) == f"the program reaches for its tests by {name}"


@pytest.mark.parametrize(
    "source", ["x = 1\ny = a.b + 'text'", "def (:", "x = '\0'", "(" * 5000, f"{'-' * 200_000}1"]
)
def test_other_sources_reach_for_nothing(source: str) -> None:
    harness.reaches(source)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import b.c as d, a\nfrom e.f import g", ["a", "b.c", "e.f"]),
        ("from . import x\nfrom .y import z", []),
        (
            "import solution, __main__\nfrom __future__ import annotations\ndef f():\n    import json",
            ["json"],
        ),
    ],
)
def test_imports_of_tests_are_read(text: str, names: list[str]) -> None:
    assert harness.imported(ast.parse(text)) == names


def test_a_module_is_there_when_it_is_loaded_or_can_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "made_up", types.ModuleType("made_up"))
    assert harness.there("made_up")
    assert harness.there("this")
    assert not harness.there("not_there")


def test_attributes_that_tests_set_are_read() -> None:
    assert harness.stored(ast.parse("a.b = 1\nc = d.e\nf.g += 1\ndel h.i")) == {"b", "g"}


@pytest.mark.parametrize(
    ("tests", "names", "entry", "shadowed"),
    [
        ("f(abs(1))", {"f", "abs"}, "", {"abs"}),
        ("abs(1)", {"f", "abs"}, "", set()),
        ("abs(1)", {"f", "abs"}, "f", {"abs"}),
        ("abs(1) + f(1)", {"f", "abs"}, "abs", set()),
        ("f(1)", {"f", "g"}, "", set()),
        ("f(1)", {"f", "abs", "len"}, "Solution().len", {"abs", "len"}),
    ],
)
def test_builtins_that_tests_do_not_mean(tests: str, names: set[str], entry: str, shadowed: set[str]) -> None:
    assert harness.shadowing(ast.parse(tests), dict.fromkeys(names), entry) == shadowed


# ---- what leads to the tests


def frame(file: str, back: Any = None, name: str = "f", *, own: bool = False) -> Any:
    code = SimpleNamespace(co_filename=file, co_name=name)
    return SimpleNamespace(f_globals=harness._HERE if own else {}, f_code=code, f_back=back)


PROGRAM = frame("code.py")
TESTING = frame(TESTS, PROGRAM)
OURS = frame("anything", PROGRAM, own=True)


def test_a_hook_stops_what_leads_to_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks: list[Callable[..., None]] = []
    monkeypatch.setattr(sys, "addaudithook", hooks.append)
    harness.hide()
    (hook,) = hooks
    asked: list[Any] = []

    def leads(event: str, args: tuple[Any, ...], asking: Any) -> bool:
        asked.append((event, args, asking.f_code.co_name))
        hook(event, ("again",))
        if args == ("raises",):
            raise ValueError("its own")
        return args == ("there",)

    monkeypatch.setattr(harness, "leads", leads)
    hook("import", ("there",))
    assert asked == []
    hook("sys._getframe", ("elsewhere",))
    with pytest.raises(ValueError, match="its own"):
        hook("open", ("raises",))
    for event in ("ctypes.dlopen", "gc.get_objects"):
        with pytest.raises(RuntimeError) as raised:
            hook(event, ("there",))
        assert str(raised.value) == f"the program reaches for its tests by {event}"
    me = "test_a_hook_stops_what_leads_to_the_tests"
    assert asked == [
        ("sys._getframe", ("elsewhere",), me),
        ("open", ("raises",), me),
        ("ctypes.dlopen", ("there",), me),
        ("gc.get_objects", ("there",), me),
    ]


@pytest.mark.parametrize(
    ("one", "is_trusted", "is_acting"),
    [
        (None, True, False),
        (PROGRAM, False, True),
        (OURS, True, False),
        (TESTING, True, False),
        (frame("<frozen importlib>", PROGRAM), True, True),
        (frame("<string>"), False, True),
        (frame(LIBRARY, PROGRAM), True, True),
        (frame(LIBRARY, frame(LIBRARY, PROGRAM)), True, True),
        (frame(LIBRARY, TESTING), True, False),
        (frame(LIBRARY, OURS), True, False),
        (frame(LIBRARY), True, False),
    ],
)
def test_who_is_trusted_and_who_acts(one: Any, is_trusted: bool, is_acting: bool) -> None:
    assert (harness.trusted(one), harness.acting(one)) == (is_trusted, is_acting)


def test_files_of_a_repository_are_trusted_where_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not harness.known("/repository/a.py")
    monkeypatch.setattr(harness, "TRUSTED", {"/repository/a.py"})
    assert harness.known("/repository/a.py")
    assert not harness.known("/repository/b.py")


INSPECT = f"{harness._ROOTS[0]}/inspect.py"


@pytest.mark.parametrize(
    ("one", "is_handed"),
    [
        (PROGRAM, True),
        (TESTING, False),
        (frame(INSPECT, PROGRAM), True),
        (frame(INSPECT, TESTING), False),
        (frame(LIBRARY, PROGRAM), False),
        *((frame(LIBRARY, PROGRAM, name), True) for name in ("currentframe", "walk_tb", "walk_stack")),
        *((frame(LIBRARY, TESTING, name), False) for name in ("currentframe", "walk_tb", "walk_stack")),
    ],
)
def test_whom_a_frame_is_handed_to(one: Any, is_handed: bool) -> None:
    assert harness.handed(one) is is_handed
    assert harness.leads("sys._getframe", (), one) is is_handed
    for name in ("tb_frame", "gi_frame", "cr_frame", "ag_frame"):
        assert harness.leads("object.__getattr__", (None, name), one) is is_handed


LIBRARY_OF_PROGRAM = frame(LIBRARY, PROGRAM)
THREADS = [frame(f"{harness._ROOTS[0]}{name}") for name in harness._THREADS]
CTYPES = f"{harness._ROOTS[0]}/ctypes/__init__.py"
IMPORTING = "<frozen importlib._bootstrap_external>"


@pytest.mark.parametrize(
    ("event", "args", "one", "it_leads"),
    [
        ("compile", ("x", TESTS), PROGRAM, True),
        ("compile", ("x", TESTS.encode()), PROGRAM, True),
        ("compile", ("x", LIBRARY), LIBRARY_OF_PROGRAM, True),
        ("compile", ("x", "code.py"), PROGRAM, False),
        ("compile", ("x", None), PROGRAM, False),
        ("compile", ("x", TESTS), TESTING, False),
        ("compile", ("x", LIBRARY), frame(IMPORTING, PROGRAM), False),
        ("compile", ("x", LIBRARY), frame("<frozen importlib>.py", PROGRAM), False),
        ("compile", ("x", LIBRARY), frame("<frozen zipimport>", PROGRAM), True),
        (
            "compile",
            ("x", LIBRARY),
            frame(f"{harness._ROOTS[1]}/_pytest/assertion/rewrite.py", PROGRAM),
            False,
        ),
        ("compile", ("x", LIBRARY), frame("/tmp/_pytest/assertion/rewrite.py", PROGRAM), True),
        ("code.__new__", ("x", TESTS), PROGRAM, True),
        ("code.__new__", ("x", TESTS), TESTING, False),
        *(
            case
            for event in ("sys.settrace", "sys.setprofile")
            for case in (
                (event, (), PROGRAM, True),
                (event, (), TESTING, False),
                (event, (), LIBRARY_OF_PROGRAM, True),
                (event, (), frame(f"{harness._ROOTS[0]}/doctest.py", PROGRAM), False),
            )
        ),
        ("open", ("/proc/self/mem", "r", 0), PROGRAM, True),
        ("open", ("/proc/self/mem", "r", 0), frame(LIBRARY), True),
        ("open", ("/proc/self/mem", "r", 0), TESTING, False),
        ("open", ("/process", "r", 0), PROGRAM, False),
        ("open", (3, "r", 0), PROGRAM, False),
        *(
            case
            for event in ("gc.get_objects", "sys._current_frames", "sys.addaudithook")
            for case in (
                (event, (), PROGRAM, True),
                (event, (), frame(LIBRARY), True),
                (event, (), TESTING, False),
            )
        ),
        ("ctypes.dlopen", (), PROGRAM, True),
        ("ctypes.dlopen", (), TESTING, False),
        ("ctypes.dlopen", (), frame(LIBRARY), False),
        ("ctypes.dlopen", (), frame(CTYPES, frame(CTYPES, PROGRAM)), True),
        ("ctypes.dlopen", (), frame(CTYPES, TESTING), False),
        ("ctypes.dlopen", (), frame(CTYPES), False),
        *(("ctypes.dlopen", (), thread, True) for thread in THREADS),
        *(("marshal.loads", (), thread, False) for thread in THREADS),
        ("marshal.loads", (), PROGRAM, True),
        ("sys.monitoring.register_callback", (), PROGRAM, True),
        ("sys.monitoring.register_callback", (), LIBRARY_OF_PROGRAM, False),
    ],
)
def test_what_leads_to_the_tests(event: str, args: Any, one: Any, it_leads: bool) -> None:
    assert harness.leads(event, args, one) is it_leads


@pytest.mark.parametrize(
    ("file", "by", "is_relayed"),
    [
        (LIBRARY, (".py",), True),
        (LIBRARY, ("/threading.py",), False),
        (f"{harness._ROOTS[0]}/site-packages/thing.py", (".py",), False),
        ("/tmp/thing.py", (".py",), False),
        (f"{harness._ROOTS[0]}/thing.so", (".py",), False),
    ],
)
def test_calls_for_somebody_else_are_the_standard_library_s(
    file: str, by: tuple[str, ...], is_relayed: bool
) -> None:
    assert harness.relayed(frame(file), by) is is_relayed
    assert not harness.relayed(None)


def function_in(file: str) -> Any:
    space: dict[str, Any] = {}
    exec(compile("def f(x=1): return x", file, "exec"), space)
    return space["f"]


READ, SET = "object.__getattr__", "object.__setattr__"


@pytest.mark.parametrize(
    ("event", "file", "name", "one", "it_leads"),
    [
        *((READ, TESTS, name, PROGRAM, True) for name in ("__code__", "__defaults__", "__kwdefaults__")),
        *((SET, LIBRARY, name, PROGRAM, True) for name in ("__code__", "__defaults__", "__kwdefaults__")),
        (READ, TESTS, "__code__", TESTING, False),
        (READ, TESTS, "__name__", PROGRAM, False),
        (READ, LIBRARY, "__code__", PROGRAM, False),
        (SET, LIBRARY, "__code__", TESTING, False),
        (SET, LIBRARY, "__code__", LIBRARY_OF_PROGRAM, True),
        (SET, "code.py", "__code__", PROGRAM, False),
    ],
)
def test_attributes_of_functions_that_lead_to_the_tests(
    event: str, file: str, name: str, one: Any, it_leads: bool
) -> None:
    args = (function_in(file), name, None)[: 2 if event == READ else 3]
    assert harness.leads(event, args, one) is it_leads


def test_a_repository_s_own_code_may_change_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    args = (function_in("/repository/a.py"), "__code__", None)
    assert not harness.leads(SET, args, PROGRAM)
    monkeypatch.setattr(harness, "TRUSTED", {"/repository/a.py"})
    assert harness.leads(SET, args, PROGRAM)
    assert not harness.leads(SET, args, frame("/repository/a.py", PROGRAM))


# ---- what libraries are


class Library:
    """A module with a class, as it was and as it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str = "made_up") -> None:
        self.module: Any = types.ModuleType(name)
        code = "x = 1\ndef f(): pass\nclass Thing:\n    y = 2\n    def g(self): pass\n    @property\n    def p(self): pass\n"
        exec(code, vars(self.module))
        monkeypatch.setitem(sys.modules, name, self.module)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    return Library(monkeypatch).module


def another(*args: Any) -> None:
    """What a program puts in the place of something else."""


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda it: setattr(it, "f", another), "made_up.f"),
        (lambda it: delattr(it, "f"), "made_up.f"),
        (lambda it: setattr(it, "len", 3), "made_up.len"),
        (lambda it: setattr(it.Thing, "g", another), "Thing.g"),
        (lambda it: setattr(it.Thing, "h", another), "Thing.h"),
        (lambda it: setattr(it.Thing, "h", property(another)), "Thing.h"),
        (lambda it: setattr(it.Thing, "h", staticmethod(another)), "Thing.h"),
        (lambda it: setattr(it.Thing, "p", property(another)), "Thing.p"),
        (lambda it: setattr(it.Thing, "len", 3), "Thing.len"),
        (lambda it: sys.modules.update(made_up=types.ModuleType("made_up")), "made_up"),
        (lambda it: sys.modules.pop("made_up"), "made_up"),
    ],
)
def test_a_change_of_a_library_is_seen_and_put_back(library: Any, change: Any, what: str) -> None:
    before = [dict(vars(library)), dict(vars(library.Thing))]
    thing = library.Thing
    put_back, changed = harness.keeping([], ("made_up",))
    assert changed(set()) == ""
    change(library)
    assert changed(set()) == what
    if "." in what:
        assert changed({what.partition(".")[2]}) == ""
    put_back()
    assert changed(set()) == ""
    assert sys.modules["made_up"] is library
    assert [dict(vars(library)), dict(vars(thing))] == before


@pytest.mark.parametrize(
    "change",
    [
        lambda it: setattr(it, "x", 2),
        lambda it: setattr(it, "new", another),
        lambda it: setattr(it, "_", another),
        lambda it: setattr(it.Thing, "y", 3),
        lambda it: setattr(it.Thing, "z", 3),
        lambda it: setattr(it.Thing, "_", another),
        lambda it: setattr(it.Thing, "p", property(it.Thing.p.fget)),
    ],
)
def test_other_changes_of_a_library_are_nothing(library: Any, change: Any) -> None:
    put_back, changed = harness.keeping([], ("made_up",))
    change(library)
    after = [dict(vars(library)), dict(vars(library.Thing))]
    assert changed(set()) == ""
    put_back()
    assert [dict(vars(library)), dict(vars(library.Thing))] == after


@pytest.mark.parametrize(
    ("name", "imports", "only", "kept"),
    [
        ("made_up", [], None, False),
        ("made_up", ["made_up"], None, True),
        ("made_up", ["other"], None, False),
        ("made_up.part", ["made_up"], None, False),
        ("made_up.part", ["made_up.part"], None, True),
        ("made_up.testing.part", ["made_up"], None, True),
        ("made_up.testing", ["other"], None, False),
        ("_pytest.made_up", ["pytest"], None, True),
        ("_pytest.made_up", ["made_up"], None, False),
        ("other.made_up", ["pytest"], None, False),
        ("string.made_up", [], None, True),
        ("os.made_up", [], None, False),
        ("concurrent.made_up", [], None, False),
        ("made_up.part", [], ("made_up",), True),
        ("made_up", ["made_up"], ("string",), False),
    ],
)
def test_which_libraries_are_kept(
    monkeypatch: pytest.MonkeyPatch, name: str, imports: list[str], only: Any, kept: bool
) -> None:
    module = Library(monkeypatch, name).module
    _, changed = harness.keeping(imports, only)
    module.f = another
    assert changed(set()) == (f"{name}.f" if kept else "")


def test_a_class_is_kept_where_it_was_made(library: Any) -> None:
    class Elsewhere:
        pass

    library.Elsewhere = Elsewhere
    _, changed = harness.keeping([], ("made_up",))
    Elsewhere.g = another  # type: ignore[attr-defined]
    assert changed(set()) == ""


def test_one_property_is_another_s_when_it_reads_the_same() -> None:
    one = property(another)
    assert harness.one_member(one, one)
    assert harness.one_member(one, property(another))
    assert not harness.one_member(one, property(lambda self: None))
    assert not harness.one_member(another, one)
    assert not harness.one_member(one, another)


# ---- comparing


class Equal:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class EqualToTwo:
    def __eq__(self, other: object) -> bool:
        return bool(other == 2)

    __hash__ = None  # type: ignore[assignment]


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return self.x == getattr(other, "x", None)

    def __hash__(self) -> int:
        return hash(self.x)


class Unequal:
    def __ne__(self, other: object) -> bool:
        return False


class Int(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1

    def __int__(self) -> int:
        return 99


class Partial:
    __eq__ = functools.partial(lambda other: True)  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


def kind(of: type, **members: Any) -> Any:
    return type("Kind", (of,), {"__iter__": lambda self: iter(()), "__eq__": lambda *_: True, **members})


def test_the_methods_of_a_program_s_classes_are_found() -> None:
    assert harness.own(Equal(), "__eq__") is Equal.__eq__
    for value in (3, "x", [1], {}, object(), collections.deque()):
        assert harness.own(value, "__eq__") is None
        assert not harness.made(value)
    assert harness.own(object(), "__lt_of_nothing__") is None
    assert harness.own([], "__contains__") is None
    assert harness.made(Equal())
    assert harness.made(Partial())
    assert not harness.made(Equal(), "__lt__")
    assert not harness.made(fractions.Fraction(1))
    space: dict[str, Any] = {}
    exec(compile("class A:\n    def __eq__(self, other): return True", TESTS, "exec"), space)
    assert not harness.made(space["A"]())


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Int(3), 3),
        (kind(float)(1.5), 1.5),
        (kind(str)("a"), "a"),
        (kind(list)([1, 2]), [1, 2]),
        (kind(tuple)((1, 2)), (1, 2)),
        (kind(dict)({1: 2}), {1: 2}),
        (kind(set)({1, 2}), {1, 2}),
        (kind(frozenset)({1, 2}), frozenset({1, 2})),
        (kind(collections.deque)([1, 2]), collections.deque([1, 2])),
        ([Int(3), [Int(4)]], [3, [4]]),
        ((Int(3),), (3,)),
        ({Int(3): Int(4)}, {3: 4}),
        ({"a": Int(4)}, {"a": 4}),
        ({Int(3)}, {3}),
        (frozenset({Int(3)}), frozenset({3})),
        (collections.deque([Int(3)]), collections.deque([3])),
    ],
)
def test_a_value_is_what_python_makes_of_it(value: Any, plain: Any) -> None:
    found = harness.base(value)
    assert type(found) is type(plain)
    assert repr(found) == repr(plain)


@pytest.mark.parametrize("value", [True, None, 2, 1j, b"x", [1, "x"], {1: 2}, (1,), {1}, range(3), object()])
def test_a_plain_value_stays_itself(value: Any) -> None:
    assert harness.base(value) is value


X, SAME = EqualToTwo(), math.nan


@pytest.mark.parametrize(
    ("how", "left", "right", "found"),
    [
        ("eq", 1, 1, True),
        ("eq", 1, 2, False),
        ("ne", 1, 2, True),
        ("ne", [1], [1], False),
        ("lt", 1, 2, True),
        ("lt", 2, 2, False),
        ("le", 2, 2, True),
        ("gt", 2, 1, True),
        ("gt", 2, 2, False),
        ("ge", 2, 2, True),
        ("In", 1, [1], True),
        ("In", 2, [1], False),
        ("NotIn", 2, [1], True),
        ("In", "a", "abc", True),
        ("NotIn", "a", "abc", False),
        ("In", X, [1, X], True),
        ("NotIn", X, [1, X], False),
        ("In", X, [2], False),
        ("NotIn", X, [2], True),
        ("In", Point(1), [Point(1)], True),
        ("In", X, kind(object, __contains__=lambda self, one: True)(), True),
        ("eq", X, 2, False),
        ("ne", X, 2, True),
        ("eq", 2, X, False),
        ("ne", 2, X, True),
        ("eq", [X], [2], False),
        ("eq", Unequal(), 2, False),
        ("ne", Unequal(), 2, True),
        ("eq", Int(3), 4, False),
        ("eq", [Int(3)], [4], False),
        ("eq", [Int(3)], [3], True),
        ("eq", Point(1), Point(1), True),
        ("ne", Point(1), Point(1), False),
        ("eq", Point(1), Point(2), False),
        ("eq", [Point(1)], [Point(1)], True),
        ("ne", [Point(1)], [Point(1)], False),
        ("eq", [Point(1)], (Point(1),), False),
        ("eq", [Point(1)], [Point(1), 2], False),
        ("eq", {"a": Point(1)}, {"a": Point(1)}, True),
        ("eq", {"a": Point(1)}, {"b": Point(1)}, False),
        ("eq", {"a": Point(1)}, {"a": X}, False),
        ("eq", {"a": X}, {"a": 2}, False),
        ("eq", (SAME, []), (SAME, []), True),
        ("eq", ([], SAME), ([], -SAME), False),
    ],
)
def test_values_are_compared(how: str, left: Any, right: Any, found: bool) -> None:
    assert harness.compared(how, left, right) is found


@pytest.mark.parametrize(("left", "right"), [(1, 1), ([1], [1]), ([[]], ([],)), ({1}, {1}), ("a", "a")])
def test_plain_values_need_no_look_inside(left: Any, right: Any) -> None:
    assert harness.inside(left, right) is None


@pytest.mark.parametrize("other", [Equal(), object(), X])
def test_what_is_equal_to_everything_is_equal_to_nothing(other: Any) -> None:
    for values in ((Equal(), other), (other, Equal())):
        for what in (lambda a, b: harness.compared("eq", a, b), harness.given):
            with pytest.raises(AssertionError) as raised:
                what(*values)
            assert str(raised.value) == "a Equal is equal to everything"


@pytest.mark.parametrize(("how", "turned"), [("lt", "gt"), ("le", "ge"), ("gt", "lt"), ("ge", "le")])
def test_what_decides_itself_what_it_is_compared_to_is_refused(how: str, turned: str) -> None:
    for name in (how, turned):
        thing = type("Less", (), {f"__{name}__": lambda self, other: True})()
        for values in ((thing, 3), (3, thing)):
            with pytest.raises(AssertionError) as raised:
                harness.compared(how, *values)
            assert str(raised.value) == "a Less decides itself what it is compared to"
    other = next(name for name in ("lt", "le") if name not in (how, turned))
    thing = type("Less", (), {f"__{other}__": lambda self, other: True})()
    with pytest.raises(TypeError):
        harness.compared(how, thing, 3)


def test_objects_of_the_program_may_be_ordered_among_themselves() -> None:
    thing = type("Less", (), {"__lt__": lambda self, other: True})
    assert harness.compared("lt", thing(), thing()) is True


def test_differences_are_python_s() -> None:
    assert harness.minus(5, 3) == 2
    assert harness.minus(Int(5), Int(3)) == 2
    near = type("Near", (), {"__sub__": lambda self, other: 0, "__rsub__": lambda self, other: 0})()
    assert harness.minus(near, near) == 0
    only_left = type("Near", (), {"__sub__": lambda self, other: 0})()
    only_right = type("Near", (), {"__rsub__": lambda self, other: 0})()
    for values in ((near, 3), (3, near), (only_left, 3), (3, only_right)):
        with pytest.raises(AssertionError) as raised:
            harness.minus(*values)
        assert str(raised.value) == "an object of the program decides itself how far off it is"


def test_arguments_of_assertions_are_python_s() -> None:
    assert harness.given(Int(5), "x", Int(3)) == [5, "x", 3]
    assert harness.given() == []
    assert harness.given(1) == [1]
    assert harness.given(Point(1), Point(1)) == [Point(1), Point(1)]
    assert len(harness.given(1, 1, Equal())) == 3
    for values in ((X, 3), (3, X)):
        with pytest.raises(AssertionError) as raised:
            harness.given(*values)
        assert str(raised.value) == "a EqualToTwo decides itself what it is equal to"


def test_an_object_that_cannot_be_compared_is_equal_to_nothing() -> None:
    harness.refuse(Point(1), 3)
    harness.refuse(3, Equal())
    harness.refuse(object(), 3)
    every_number = type("Same", (), {"__eq__": lambda self, other: isinstance(other, int)})()
    for thing in (Equal(), every_number):
        with pytest.raises(AssertionError):
            harness.refuse(thing, 3)


@pytest.mark.parametrize("value", [True, None, 3, 1.5, 1j, "x", [1], (1,), {1}, {1: 2}, b"x"])
def test_another_value_is_of_the_same_kind(value: Any) -> None:
    other = harness.other_than(value)
    assert other != value
    like = value is not True and isinstance(value, int | float | complex | str | list | tuple)
    assert type(other) is (type(value) if like else object)
    if isinstance(value, str | list | tuple):
        assert other[: len(value)] == value
        assert len(other) > len(value)
    elif like:
        assert abs(other) > abs(value)
    assert harness.other_than(value) != other


# ---- the tests' text


def rewritten(text: str) -> str:
    found = ast.unparse(harness.text_of(ast.parse(text)))
    for name in ("_COUNT", "_COMPARE", "_MINUS", "_GIVEN"):
        found = found.replace(getattr(harness, name), name)
    return found


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("assert f(1) == 2", "assert _COMPARE('eq', f(1), 2)\n_COUNT()"),
        ("assert a != b", "assert _COMPARE('ne', a, b)\n_COUNT()"),
        ("assert a < b", "assert _COMPARE('lt', a, b)\n_COUNT()"),
        ("assert a <= b", "assert _COMPARE('le', a, b)\n_COUNT()"),
        ("assert a > b", "assert _COMPARE('gt', a, b)\n_COUNT()"),
        ("assert a >= b", "assert _COMPARE('ge', a, b)\n_COUNT()"),
        ("assert a in b", "assert _COMPARE('In', a, b)\n_COUNT()"),
        ("assert a not in b", "assert _COMPARE('NotIn', a, b)\n_COUNT()"),
        ("assert a is b", "assert a is b\n_COUNT()"),
        ("assert a < b < c", "assert a < b < c\n_COUNT()"),
        ("assert abs(a - b) < 1", "assert _COMPARE('lt', abs(_MINUS(a, b)), 1)\n_COUNT()"),
        ("assert a + b", "assert a + b\n_COUNT()"),
        ("assert a\nx = a - b == c", "assert a\n_COUNT()\nx = a - b == c"),
        ("x = f(a) == b", "x = _COMPARE('eq', f(a), b)"),
        ("x = a == f(b)", "x = _COMPARE('eq', a, f(b))"),
        ("a == b", "a == b"),
        ("f(a == b, a - b)", "f(a == b, a - b)"),
        ("self.assertEqual(a - 1, b)", "self.assertEqual(_MINUS(a, 1), b)\n_COUNT()"),
        ("self.assertTrue(a == b)\na == b", "self.assertTrue(_COMPARE('eq', a, b))\n_COUNT()\na == b"),
        ("np.testing.assert_equal(a, b, 3)", "np.testing.assert_equal(*_GIVEN(a, b), 3)\n_COUNT()"),
        ("case.assertEqual(a, b)", "case.assertEqual(*_GIVEN(a, b))\n_COUNT()"),
        ("case.assertTrue(a)", "case.assertTrue(a)\n_COUNT()"),
        ("my_Assert(a, b)", "my_Assert(a, b)\n_COUNT()"),
        ("f()(a, b)", "f()(a, b)"),
    ],
)
def test_checks_of_a_text_are_counted_and_compared(text: str, becomes: str) -> None:
    tree = ast.parse(text)
    before = ast.dump(tree)
    assert rewritten(text) == becomes
    harness.text_of(tree)
    assert ast.dump(tree) == before


def test_a_text_keeps_its_lines() -> None:
    tree = harness.text_of(
        ast.parse("\nassert f(1) == 2\n\nassert abs(\n    a - b\n) < 1\n\nt.assertEqual(1, 2)")
    )
    lines = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    assert lines == [2, 2, 4, 4, 8, 8]
    called = {
        node.func.id: node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called[harness._MINUS] == 5


def test_checking_counts_and_stands_before_unittest_s_assertions(alone: Path) -> None:
    kept = dict(vars(unittest.TestCase))
    space: dict[str, Any] = {}
    counted = harness.checking(space)
    assert counted() == 0
    space[harness._COUNT]()
    space[harness._COUNT](3)
    assert counted() == 4
    assert space[harness._COMPARE] is harness.compared
    assert space[harness._MINUS] is harness.minus
    assert space[harness._GIVEN] is harness.given
    assert unittest.main("module", verbosity=2) is None  # type: ignore[func-returns-value]
    now = vars(unittest.TestCase)
    changed = {name for name, value in kept.items() if now[name] is not value}
    assert {"assertEqual", "assertIn", "assertListEqual", "assertGreater", "assertAlmostEqual"} <= changed
    assert all(name.startswith("assert") for name in changed)
    kinds = ("Is", "True", "False", "Raises", "Warns", "Logs", "NoLogs", "Regex")
    assert not [name for name in changed if name.startswith(kinds, len("assert"))]
    with pytest.raises(AssertionError, match="a EqualToTwo decides itself"):
        unittest.TestCase().assertEqual(X, 2)  # noqa: PT009


def test_an_assertion_gets_what_its_arguments_are() -> None:
    got: list[Any] = []

    def kept(self: Any, *args: Any, **named: Any) -> str:
        got.append((self, args, named))
        return "said"

    asserting = harness._asserting(kept, lambda *values: [f"<{value}>" for value in values])
    assert asserting("me", 1, 2, 3, a=4, b=5) == "said"
    assert got == [("me", ("<1>", "<2>", 3), {"a": "<4>", "b": "<5>"})]
    assert asserting.__name__ == "kept"


# ---- running what tests define


def case_of(body: str) -> Any:
    space: dict[str, Any] = {"unittest": unittest}
    exec(f"class Case(unittest.TestCase):\n{body}", space)
    return space["Case"]


SKIPPED = "    @unittest.skip('later')\n    def test_b(self): pass\n"


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("    def test_a(self): pass\n    def test_b(self): pass\n", 2),
        ("    pass", 0),
    ],
)
def test_tests_of_a_case_are_counted(body: str, count: int) -> None:
    assert harness._unittest(case_of(body)) == count


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("    def test_a(self): self.assertEqual(1, 2)", "AssertionError: 1 != 2"),
        ("    def test_a(self): raise KeyError('x')", "KeyError: 'x'"),
        ("    def test_a(self): self.skipTest('no')", "a test was skipped while it ran: no"),
        (
            f"{SKIPPED}    def test_c(self): self.skipTest('no')",
            "a test was skipped while it ran: no",
        ),
        (
            "    @unittest.expectedFailure\n    def test_a(self): pass",
            "a test passed that is expected to fail",
        ),
    ],
)
def test_a_case_that_does_not_pass_says_why(body: str, says: str) -> None:
    with pytest.raises(AssertionError) as raised:
        harness._unittest(case_of(body))
    assert str(raised.value) == says


def test_a_test_that_is_marked_as_skipped_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    harness._unittest(case_of(SKIPPED))
    whole = unittest.skip("later")(case_of("    def test_a(self): pass\n"))
    harness._unittest(whole)

    class Loader:
        def loadTestsFromTestCase(self, case: Any) -> Any:
            def run(result: Any) -> None:
                result.testsRun = 3
                result.skipped = [(whole("test_a"), "later")]

            return SimpleNamespace(run=run)

    monkeypatch.setattr(unittest, "TestLoader", Loader)
    assert harness._unittest(whole) == 2


def test_classes_of_tests_run_as_pytest_runs_them() -> None:
    ran: list[Any] = []

    class TestOne:
        value = 5

        def setup_method(self, method: Any) -> None:
            ran.append(("before", method))

        def test_a(self) -> None:
            ran.append(("a", self.value))
            self.value = 6

        def test_b(self) -> None:
            ran.append(("b", self.value))

        def helper(self) -> None:
            raise AssertionError

        def teardown_method(self) -> None:
            ran.append(("after", self.value))

    count = lambda: ran.append("counted")  # noqa: E731
    harness._pytest(TestOne, count)
    assert ran == [
        *[("before", None), ("a", 5), "counted", ("after", 6)],
        *[("before", None), ("b", 5), "counted", ("after", 5)],
    ]

    class Helper:
        def test_a(self) -> None:
            raise AssertionError

    def helper() -> None:
        raise AssertionError

    del ran[:]
    harness._pytest(Helper, count)
    harness._pytest(helper, count)
    assert ran == []


def test_a_test_is_called_for_each_of_its_parameters() -> None:
    calls: list[Any] = []

    @pytest.mark.parametrize("a", [1, 2])
    @pytest.mark.parametrize(("b", "c"), [(3, 4), pytest.param(5, 6)])
    def test_one(a: int, b: int, c: int) -> None:
        calls.append((a, b, c))

    harness._each(test_one, lambda: calls.append("counted"))
    assert calls[1::2] == ["counted"] * 4
    assert sorted(calls[::2]) == [(1, 3, 4), (1, 5, 6), (2, 3, 4), (2, 5, 6)]


@pytest.mark.parametrize("mark", [pytest.mark.skip, pytest.mark.skipif(True, reason=""), pytest.mark.xfail])
def test_a_marked_test_is_not_called(mark: Any) -> None:
    def test_one() -> None:
        raise ValueError("it is called")

    harness._each(mark(test_one), lambda: None)


def test_a_test_with_another_mark_is_called() -> None:
    with pytest.raises(ValueError, match="it is called"):
        harness._each(pytest.mark.slow(plain_test), lambda: None)


def plain_test() -> None:
    raise ValueError("it is called")


@pytest.mark.parametrize(
    ("names", "values", "rows"),
    [
        ("a", [1, (2, 3)], [{"a": 1}, {"a": (2, 3)}]),
        ("a, b", [(1, 2)], [{"a": 1, "b": 2}]),
        (["a", "b"], [(1, 2)], [{"a": 1, "b": 2}]),
        (("a",), [1], [{"a": 1}]),
        ("a", [pytest.param((1, 2)), 3], [{"a": (1, 2)}, {"a": 3}]),
        ("a,b", [pytest.param(1, 2), (3, 4)], [{"a": 1, "b": 2}, {"a": 3, "b": 4}]),
    ],
)
def test_parameters_are_read(names: Any, values: Any, rows: Any) -> None:
    assert harness._parameters(names, values) == rows


def test_only_the_form_s_own_tests_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    space: dict[str, Any] = {
        harness._COUNT: lambda more=1: ran.append(more),
        "setUpModule": lambda: ran.append("up"),
        "setup_module": 3,
        "Case": case_of("    def test_a(self): pass\n    def test_b(self): pass\n"),
        "test_a": plain_test,
        "Plain": type("Plain", (), {}),
        "test_execution": lambda source: ran.append(source),
        "test_string": None,
        "check": lambda one: ran.append(("checked", one)),
        "f": 5,
    }
    expected: dict[str, list[Any]] = {
        "check": [("checked", 5), 1],
        "insert": ["the source", 1],
        "unittest": ["up", 2],
        "asserts": [],
    }
    for form, said in expected.items():
        del ran[:]
        harness.executed(form, space, ["Case", "test_a", "Plain"], "f", "the source")
        assert ran == said
    monkeypatch.setattr(plain_test, "__name__", "test_a")
    with pytest.raises(ValueError, match="it is called"):
        harness.executed("pytest", space, ["Case", "test_a"], "f", "")


# ---- answers


@pytest.mark.parametrize(
    ("value", "gives"),
    [
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({2, 1}), [1, 2]),
        ({"b", 1}, ["b", 1]),
        (SimpleNamespace(tolist=lambda: [[1]]), [[1]]),
        (range(3), [0, 1, 2]),
        (iter("ab"), ["a", "b"]),
    ],
)
def test_values_become_json(value: Any, gives: Any) -> None:
    assert harness.plain(value) == gives


def test_the_standard_library_is_kept_but_for_what_programs_may_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put_back, changed = harness.keeping([])
    capwords = string.capwords
    monkeypatch.setattr(os, "getcwd", another)
    assert changed(set()) == ""
    monkeypatch.setattr(string, "capwords", another)
    assert changed(set()) == "string.capwords"
    put_back()
    assert string.capwords is capwords
    assert os.getcwd is another
