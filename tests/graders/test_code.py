"""Code against cases, in a sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Failed, Graded, GradingRunner, Rollout
from judgekit.graders import Code
from judgekit.graders.rules.programs import code as rules
from judgekit.graders.rules.programs import sandbox
from judgekit.graders.rules.programs.code import COMPARE, _equal, _same, program_of
from judgekit.graders.rules.programs.code_forms import read_cases
from judgekit.graders.rules.programs.sandbox import (
    OWN,
    Limits,
    MachineBusy,
    SandboxError,
    Way,
    best_way,
    read_answer,
    run_program,
)
from judgekit.graders.rules.programs.sandboxes import LocalSandbox

SUM = [{"input": "1 2", "output": "3"}]
SUMS = [*SUM, {"input": "2 2\n", "output": "4\n"}]
ADD = "a, b = map(int, input().split())\nprint(a + b)"
CALLS = {"fn_name": "f", "inputs": [[1, 2], [2, 2]], "outputs": [3, [4]]}
TESTS = ["assert f(1) == 2", "assert f(2) == 3"]


def grade(code: str, cases: Any, **options: Any) -> Any:
    response = code if options.pop("bare", False) else f"So:\n```python\n{code}\n```"
    return Code(**{"time_s": 5.0, "wall_s": 60.0, **options}).grade(
        Rollout(response=response, ground_truth=cases)
    )


@pytest.mark.parametrize(
    ("code", "cases", "options", "score"),
    [
        (ADD, SUMS, {}, 1),
        (ADD, json.dumps(SUMS), {}, 1),
        (ADD, SUM, {"bare": True}, 1),
        ("print(3)", SUMS, {}, 0.5),
        ("print(3)", SUMS, {"score": "all"}, 0),
        ("print(3", SUM, {}, 0),
        ("raise ValueError('no')", SUM, {}, 0),
        ("print(3); raise SystemExit(1)", SUM, {}, 0),
        ("print('３')", [{"input": "", "output": "３"}], {}, 1),
        (
            "print('🐕', '\\ud83d'.encode('utf-8', 'surrogatepass') and '')",
            [{"input": "", "output": "🐕"}],
            {},
            1,
        ),
        ("def f(a, b):\n    return a + b", CALLS, {}, 1),
        ("class Solution:\n    def f(self, a, b):\n        return a + b", CALLS, {}, 1),
        ("def g(a, b):\n    return a + b", CALLS, {}, 0),
        ("def f(x):\n    return x + 1", TESTS, {}, 1),
        ("def f(x):\n    return 2", TESTS, {}, 0.5),
        (
            "def f(x):\n    return x",
            {"test": "def check(c):\n    assert c(1) == 1", "entry_point": "f"},
            {},
            1,
        ),
        (
            "def f(x):\n    return 0",
            {"test": "def check(c):\n    assert c(1) == 1", "entry_point": "f"},
            {},
            0,
        ),
        ("import os; os._exit(0)", TESTS[:1], {}, 0),
        ("import sys; sys.exit(0)", TESTS[:1], {}, 0),
        ("open('answer.json', 'w').write('{\"answer\": true}')\nimport os; os._exit(0)", TESTS[:1], {}, 0),
        ("import os; os.mkfifo('answer.json'); os._exit(0)", TESTS[:1], {}, 0),
        ("x = 'a' * 10**10", SUM, {}, 0),
        ("print('x' * 10**8)", SUM, {"output_kb": 64}, 0),
        ("f = lambda: f()\nf()", SUM, {}, 0),
        ("import os, subprocess\nsubprocess.Popen(['sleep', '60'])\nprint(3)", SUM, {}, 1),
    ],
)
def test_code_against_cases(code: str, cases: Any, options: Any, score: float) -> None:
    found = grade(code, cases, **options)
    assert isinstance(found, Graded)
    assert found.score == score, found.reason


@pytest.mark.parametrize("response", ["", "<think>x", "```js\nx\n```", "```python\n\n```", "```python"])
def test_no_code_scores_nothing(response: str) -> None:
    found = Code().grade(Rollout(response=response, ground_truth=SUM))
    assert found == Graded(0.0, "there is no code")
    assert program_of("x = 1", False) is None
    assert program_of("```\nx\n```", True) == "x"
    assert program_of("```python\nx\n```\n```python\ny\n```\n```\nz\n```", True) == "y"


@pytest.mark.parametrize(
    "cases", [None, "", [], {}, "words", 5, [5], {"a": 1}, {"inputs": []}, '{"inputs": [}']
)
def test_without_cases_it_abstains(cases: Any) -> None:
    assert isinstance(grade(ADD, cases), Abstained)


@pytest.mark.parametrize(
    ("value", "count", "first"),
    [
        ({"inputs": ["1", "2"], "outputs": ["1", "2"]}, 2, {"input": "1", "output": "1"}),
        ({"inputs": [["a", "b"]], "outputs": [["c"]]}, 1, {"input": "a\nb", "output": "c"}),
        ([{"stdin": "1", "expected_output": 2}], 1, {"input": "1", "output": "2"}),
        ({"test_cases": [{"input": "1", "output": "2"}]}, 1, {"input": "1", "output": "2"}),
        ([{"output": "2"}], 1, {"input": "", "output": "2"}),
        (
            [{"input": "1\n[2]", "output": "3", "metadata": {"func_name": "f"}}],
            1,
            {"job": {"kind": "call", "function": "f", "arguments": [1, [2]]}, "output": 3},
        ),
        (
            {"test_list": ["assert 1"], "test_setup_code": "import os"},
            1,
            {
                "job": {"kind": "tests", "form": "asserts", "tests": "import os\nassert 1", "entry": None},
                "certain": True,
            },
        ),
        (
            "assert f(1)",
            1,
            {
                "job": {"kind": "tests", "form": "asserts", "tests": "assert f(1)", "entry": None},
                "certain": True,
            },
        ),
    ],
)
def test_forms_of_cases(value: Any, count: int, first: Any) -> None:
    cases = read_cases(value)
    assert len(cases) == count
    assert cases[0] == first


@pytest.mark.parametrize(
    ("given", "wanted", "equal"),
    [
        ("1 \n2\n\n", "1\n2", "lines tokens numbers"),
        ("1\n2", "1\n2", "lines exact tokens numbers"),
        ("1 2", "1\n2", "tokens numbers"),
        ("1.0000000001", "1", "numbers"),
        ("1.0000000001 x 2", "1 x 2", "numbers"),
        ("1.1", "1", ""),
        (" 1", "1", "tokens numbers"),
        ("", "", "lines exact tokens numbers"),
        ("", "\n", "lines tokens numbers"),
        ("nan", "nan", "lines exact tokens numbers"),
        ("yes", "Yes", ""),
        ("1000000008", "1000000007", ""),
        ("1000000008.0", "1000000007", ""),
        ("1000000007.0", "1000000007", "numbers"),
        ("+5", "5", "numbers"),
        ("1000000.5", "1000000.6", "numbers"),
        ("9" * 400 + ".5", "9" * 400, ""),
    ],
)
def test_comparing_outputs(given: str, wanted: str, equal: str) -> None:
    assert COMPARE == ("lines", "exact", "tokens", "numbers")
    for how in COMPARE:
        assert Code(compare=how).compare == how
        assert _equal(given, wanted, how) == (how in equal.split())


def test_comparing_answers() -> None:
    assert _same([1, 2.0], (1, 2))
    assert _same(0.1 + 0.2, 0.3)
    assert _same({"1": "a"}, {1: "a"})
    assert _same(3, [3], wrapped=True)
    assert not _same(3, [3])
    assert not _same([], [[]])
    assert not _same(3, [3, 3], wrapped=True)
    assert not _same(True, 1)
    assert not _same("1", 1)
    assert not _same(10**400, 120.0)
    assert not _same(0.5, -(10**400))
    assert not _same(10**12 + 1, 10**12)
    assert _same(10**400, 10**400)


def test_the_network_is_gone_where_that_is_said() -> None:
    found = grade("import socket\nsocket.create_connection(('127.0.0.1', 9), timeout=1)", SUM)
    isolation = Code().isolation()
    assert isolation["network"] == ("none" if found.metadata["network"] == "none" else "open")
    if isolation["network"] == "none":
        assert "nreachable" in found.reason or "refused" in found.reason
        Code(network="forbidden")
    else:
        with pytest.raises(ConfigError, match="cannot block a program.s network"):
            Code(network="forbidden")
    if isolation["files"].startswith("read-only"):
        assert "Read-only" in grade("open('/usr/judgekit-x', 'w')", SUM, time_s=5).reason or os.geteuid() == 0
    assert grade(ADD, SUM, network="on").metadata["network"] == "open"


def test_time_is_the_cpus_and_is_said() -> None:
    assert grade("while True: pass", SUM, time_s=0.5).reason == "case 1: no end within its CPU time"
    assert "no end within 0.5 s" in grade("import time; time.sleep(60)", SUM, time_s=0.5, wall_s=0.5).reason


def test_cases_are_bounded_and_code_may_have_a_beginning() -> None:
    many = grade("print(3)", SUM * 50, max_cases=2)
    assert many.metadata["cases"] == 2
    rollout = Rollout(response="```python\nprint(x)\n```", ground_truth=SUM, extra={"start": "x = 3"})
    assert Code(prefix="extra.start").grade(rollout).score == 1  # type: ignore[union-attr]


async def test_the_event_loop_turns_while_code_runs() -> None:
    runner = GradingRunner([Code(time_s=0.5)])
    rollouts = [Rollout(response="```python\nwhile 1: pass\n```", ground_truth=SUM)]
    turns = 0
    task = asyncio.create_task(runner.run(rollouts))
    while not task.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert turns > 3
    assert [result.reward for result in task.result()] == [0]


PUBLIC_PYTHON = "/usr/bin/python3"
"""An interpreter that every user of the machine may run."""


@pytest.mark.skipif(
    os.geteuid() != 0 or not os.access(PUBLIC_PYTHON, os.X_OK),
    reason="only root can give programs users of their own",
)
def test_a_program_cannot_stop_or_read_a_siblings() -> None:
    """Where there is no isolation but the user's, as in many containers: each rollout's program has its own."""
    way = Way("a plain process", (), True, OWN)
    hostile = """
import contextlib, glob, os, signal, time
time.sleep(0.3)
for name in glob.glob(os.path.dirname(os.getcwd()) + "/judgekit-*/*"):
    if os.path.dirname(name) != os.getcwd():
        with contextlib.suppress(PermissionError):
            print("read", open(name).read(100))
with contextlib.suppress(ProcessLookupError):
    os.kill(-1, signal.SIGKILL)
"""
    with ThreadPoolExecutor(2) as threads:
        innocent = threads.submit(
            run_program,
            "import time; time.sleep(2); print('fine')",
            way=way,
            python=PUBLIC_PYTHON,
            limits=Limits(),
        )
        finished = run_program(hostile, way=way, python=PUBLIC_PYTHON, limits=Limits())
    assert finished.output == ""
    assert (innocent.result().code, innocent.result().output) == (0, "fine\n")
    assert best_way(PUBLIC_PYTHON, False).isolation()["user"] == "its own"


def test_an_interpreter_in_tmp_and_behind_a_link_is_seen(tmp_path: Path) -> None:
    """A program has a /tmp of its own; a clone with its environment may stand in the machine's."""
    (tmp_path / "env").symlink_to(sys.prefix)
    assert str(tmp_path).startswith(tempfile.gettempdir())
    assert best_way(str(tmp_path / "env" / "bin" / "python"), False).read_only


def test_a_sandbox_that_does_not_start_is_a_failure_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SandboxError, match="did not start"):
        run_program("", way=Way("odd", ("sh", "-c", "echo odd >&2; exit 1"), True), limits=Limits())
    with pytest.raises(SandboxError, match="cannot be started"):
        best_way("/nowhere/python", True)
    with pytest.raises(ConfigError, match="cannot be started"):
        Code(python="/nowhere/python", network="forbidden")
    rollout = Rollout(response="x", ground_truth=SUM)
    with pytest.raises(ConfigError, match="code: /nowhere/python cannot be started"):
        GradingRunner([Code(python="/nowhere/python")]).run_sync([rollout])
    with monkeypatch.context() as patch:
        patch.setattr(
            LocalSandbox,
            "run",
            lambda *_, **__: run_program("", way=Way("odd", ("false",), True), limits=Limits()),
        )
        (result,) = GradingRunner([Code()]).run_sync([rollout])
    failed = result.grades["code"]
    assert isinstance(failed, Failed)
    assert failed.cause == "infrastructure"


def test_a_plain_process_is_used_only_where_that_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in most containers, which have neither bubblewrap nor the right to namespaces."""
    best_way.cache_clear()
    monkeypatch.setattr(
        sandbox.shutil, "which", lambda name, **_: None if name in ("bwrap", "unshare") else name
    )
    rollout = Rollout(response=f"```python\n{ADD}\n```", ground_truth=SUM)
    try:
        with pytest.raises(ConfigError, match="bubblewrap.*sandbox service.*isolation: none"):
            GradingRunner([Code()]).run_sync([rollout])
        plain = Code(isolation="none")
        assert plain.isolation()["by"] == "a plain process"
        assert plain.grade(rollout).score == 1.0  # type: ignore[union-attr]
    finally:
        best_way.cache_clear()


BREAKS = {
    "its sign of life is deleted": "import os\nos.remove('begun') if os.path.exists('begun') else None",
    "its answer is a folder": "import os\nos.mkdir('answer.json')",
    "its answer is a link": "import os\nos.symlink('/etc/passwd', 'answer.json')",
    "its answer cannot be read": "import os\nopen('answer.json', 'w').close(); os.chmod('answer.json', 0)",
    "its folders are nested deeply": "import os\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')",
    "its folder has no rights": "import os\nos.chmod('.', 0)",
    "a folder in it has no rights": "import os\nos.makedirs('s/t/u'); open('s/x', 'w').close(); os.chmod('s/t', 0); os.chmod('s', 0)",
    "its folder has another name": "import os\nos.rename(os.getcwd(), os.getcwd() + 'x')",
    "it has many files": "for i in range(300): open(str(i), 'w').close()",
    "it links to what is not its own": "import os\nos.symlink('/', 'root'); os.mkdir('s'); os.symlink('/etc', 's/etc')",
}


@pytest.mark.parametrize("harm", BREAKS)
@pytest.mark.parametrize("cases", [SUM, {"fn_name": "f", "inputs": [[1, 2]], "outputs": [3]}, TESTS[:1]])
def test_a_program_that_harms_its_folder_is_not_passed_and_leaves_nothing(
    harm: str, cases: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = f"try:\n    {BREAKS[harm].replace(chr(10), chr(10) + '    ')}\nexcept OSError: pass\ndef f(*_): return 4\nprint(4)"
    found = grade(code, cases)
    assert isinstance(found, Graded)
    assert found.score == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "answer",
    [
        "10**400",
        "-10**4000",
        "10**5000",
        "float('inf')",
        "float('nan')",
        "'\\ud800'",
        "eval('[' * 90 + ']' * 90)",
        "functools.reduce(lambda x, _: [x], range(900))",
        "functools.reduce(lambda x, _: {'a': x}, range(900))",
        "{1: {2: 3}}",
        "object()",
    ],
)
@pytest.mark.parametrize("wanted", [120, [120.5]])
def test_an_odd_answer_is_not_passed(answer: str, wanted: Any) -> None:
    found = grade(
        f"import functools\ndef f(n): return {answer}", {"fn_name": "f", "inputs": [[5]], "outputs": [wanted]}
    )
    assert isinstance(found, Graded)
    assert found.score == 0
    assert len(found.reason or "") < 200


@pytest.mark.parametrize(
    ("answer", "wanted", "score"),
    [
        ("[[]] * 4_000_000", 3, 0),
        ("'x' * 70_000", "x", 0),
        ("'x' * 60_000", "x", 0),
        ("[[]] * 100_000", [[]] * 100_000, 1),
        ("[0.1 + 0.2] * 10_000", [0.3] * 10_000, 1),
    ],
)
def test_an_answer_is_read_only_up_to_a_size_that_could_be_right(
    answer: str, wanted: Any, score: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def reading(data: bytes, secret: str) -> Any:
        read.append(len(data))
        return read_answer(data, secret)

    monkeypatch.setattr(sandbox, "read_answer", reading)
    found = grade(f"def f(n): return {answer}", {"fn_name": "f", "inputs": [[5]], "outputs": [wanted]})
    assert isinstance(found, Graded)
    assert found.score == score, found.reason
    assert max(read, default=0) <= 65_536 + 100 + 8 * len(json.dumps(wanted))
    if not read:
        assert found.reason == "case 1: ValueError: the answer has more than 64 KiB"


@pytest.mark.parametrize(("more", "score"), [(10, 1), (100_000, 0)])
def test_a_file_that_is_larger_than_an_answer_may_be_is_none(more: int, score: int) -> None:
    """Written by a program that goes around the harness, and finds the secret."""
    code = f"""
import json, os, sys
def f(n):
    frame = sys._getframe()
    while frame:
        secret = frame.f_locals.get('said', '')
        frame = frame.f_back
        if len(secret) == 32:
            with open('answer.json', 'w') as file:
                json.dump({{'secret': secret, 'answer': 3, 'x': 'x' * {more}}}, file)
            os._exit(0)
"""
    assert grade(code, {"fn_name": "f", "inputs": [[5]], "outputs": [3]}).score == score


def test_what_cannot_be_compared_is_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> bool:
        raise RecursionError

    monkeypatch.setattr(rules, "_same", refuse)
    found = grade("def f(a, b): return 3", CALLS)
    assert found.score == 0
    assert found.reason == "case 1: what it gave cannot be compared (RecursionError)"


@pytest.mark.skipif(os.geteuid() != 0, reason="others are this user already")
@pytest.mark.parametrize("harm", BREAKS)
def test_deleting_needs_no_root(harm: str) -> None:
    """In a child process, which gives up root: what the program would leave is deleted all the same."""
    script = """
import os, sys, tempfile
from pathlib import Path
from judgekit.graders.rules.programs.sandbox import _delete
home = os.open(sys.argv[1], os.O_RDONLY)
work = Path(tempfile.mkdtemp(dir=sys.argv[1]))
os.chown(work, 65534, 65534)
os.fchmod(home, 0o777)
os.fchdir(home)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
work = Path(work.name)
os.chdir(work)
folder = os.open(".", os.O_RDONLY)
exec(sys.argv[2])
os.fchdir(home)
_delete(work, folder)
print(os.listdir(home))
"""
    with tempfile.TemporaryDirectory() as home:  # which, unlike pytest's, others may enter
        done = subprocess.run(
            [sys.executable, "-c", script, home, BREAKS[harm]], capture_output=True, text=True
        )
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    ("busy_s", "program", "how"),
    [
        (4, "while time.process_time() < 1: pass", "ended"),
        (4, "time.sleep(60)", "time"),
        (30, "while time.process_time() < 4: pass", "busy"),
        (30, "os.nice(19)\nwhile time.process_time() < 4: pass", "time"),
        (
            30,
            "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile time.process_time() < 4: pass",
            "time",
        ),
    ],
)
def test_waiting_for_a_busy_machine_is_not_the_program_s_time(
    tmp_path: Path, busy_s: float, program: str, how: str
) -> None:
    """Others want the program's processor: it has a tenth of it. A program that steps back itself does not wait."""
    cpu = str(min(os.sched_getaffinity(0)))
    way = Way("a plain process", ("taskset", "-c", cpu), True)
    begun = tmp_path / "begun"
    tmp_path.chmod(0o777)
    spin = f"""
import os, time
while not os.path.exists({str(begun)!r}): time.sleep(0.005)
end = time.time() + {busy_s}
while time.time() < end: pass
"""
    # sessions of their own: Linux may share processors among sessions, not among processes
    others = [
        subprocess.Popen(["taskset", "-c", cpu, sys.executable, "-c", spin], start_new_session=True)
        for _ in range(9)
    ]
    try:
        code = f"import os, time\nopen({str(begun)!r}, 'w').close()\n{program}\n"
        limits = Limits(time_s=5, wall_s=2)
        if how == "busy":
            with pytest.raises(MachineBusy, match="waited . s for a processor"):
                run_program(code, way=way, limits=limits)
        else:
            assert run_program(code, way=way, limits=limits).how == how
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_processes_that_wait_for_each_other_wait_for_no_machine() -> None:
    """Their time was not taken by others: as much as they computed with all processors, they are not held up."""
    code = """
import os, time
start = time.monotonic()
children = []
for _ in range(8):
    child = os.fork()
    if child == 0:
        while time.process_time() < 0.5: pass
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
print(time.monotonic() - start)
"""
    finished = run_program(
        code, way=Way("a plain process", (), True), limits=Limits(time_s=20, wall_s=60, processes=16)
    )
    took, processors = float(finished.output), len(os.sched_getaffinity(0))
    assert finished.held_up_s <= max(0.0, took - 8 * 0.5 / processors) + 0.3


def test_cpu_time_that_is_used_up_is_used_up_on_a_busy_machine_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop without an end is no machine's fault, however long it waited besides."""

    def wait(watch: sandbox.Watch, *_: Any) -> None:
        watch.held_up_s = 1000.0

    monkeypatch.setattr(sandbox.Watch, "_wait", wait)
    code = "import os\nos.fork()\nwhile True: pass"
    finished = run_program(code, way=Way("a plain process", (), True), limits=Limits(time_s=2, wall_s=2))
    assert finished.held_up_s > 3 * 2
    assert finished.how == "time"


def test_deleting_ends_before_the_grader_s_time_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = Code(max_cases=5, wall_s=30.0)
    assert rule.timeout_s > rule.budget_s + 5 * sandbox.DELETING_S
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sandbox, "DELETING_S", -1.0)
    found = grade("open('x', 'w').close()\nprint(3)", SUM)
    assert found.score == 1
    assert list(tmp_path.glob("*/x"))


def test_the_secret_of_an_answer_is_in_no_file() -> None:
    look = "import os\nfor name in os.listdir('.'):\n    print(name)"
    assert grade_output(look) == []


def grade_output(code: str) -> list[str]:
    way = best_way(sys.executable, False)
    return run_program(
        code, way=way, limits=Limits(), job={"kind": "tests", "form": "asserts", "tests": ""}
    ).output.split()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"compare": "line"}, "did you mean 'lines'"),
        ({"score": "any"}, "score is one of"),
        ({"wall_s": 5}, "wall_s is a number of at least 10"),
        ({"time_s": 0}, "time_s is a number of at least 0.1"),
        ({"memory_mb": 1}, "memory_mb is a whole number of at least 64"),
        ({"max_cases": 0}, "max_cases"),
        ({"network": "none"}, "network is one of"),
    ],
)
def test_wrong_settings_are_said(options: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Code(**options)


def test_all_tests_of_a_rollout_share_one_budget() -> None:
    """Twenty programs that sleep would take twenty times their limit of wall time."""
    found = grade("import time\ntime.sleep(100)", SUM * 20, time_s=1.0, wall_s=1.0, budget_s=2.0)
    assert found.score == 0
    rule = Code(time_s=1.0, wall_s=1.0, budget_s=2.0)
    asked: list[float] = []

    class Asked:
        def run(self, code: str, *, limits: Limits, **_: Any) -> Any:
            asked.append(limits.wall_s)
            time.sleep(limits.wall_s)
            return sandbox.Finished("time", 0, "", "")

        def isolation(self) -> dict[str, str]:
            return {"network": "none"}

    rule.sandbox = Asked()
    rule.grade(Rollout(response="```python\nx\n```", ground_truth=SUM * 20))
    assert 2 <= len(asked) <= 3
    assert sum(asked) <= 2.0


def test_a_case_that_has_no_time_left_to_start_is_the_rollout_s() -> None:
    """What the other cases left of the budget may be too short even for the sandbox."""
    rule = Code(time_s=1.0, wall_s=1.0, budget_s=1.0)
    runs = 0

    class Late:
        def run(self, code: str, *, limits: Limits, **_: Any) -> Any:
            nonlocal runs
            runs += 1
            time.sleep(0.6)
            if runs == 2:
                raise SandboxError("did not start")
            return sandbox.Finished("ended", 0, "3", "")

        def isolation(self) -> dict[str, str]:
            return {"network": "none"}

    rule.sandbox = Late()
    found = rule.grade(Rollout(response="```python\nx\n```", ground_truth=SUM * 3))
    assert isinstance(found, Graded)
    assert (runs, found.score) == (2, 1 / 3)
    assert found.reason == "case 2: the time for all cases, 1 s, is used up"


TOGETHER = {
    "memory": "import os, time\nfor i in range(6):\n    if os.fork() == 0:\n        b = bytearray(100 << 20); b[::4096] = b'x' * len(b[::4096]); time.sleep(20); os._exit(0)\ntime.sleep(20)",
    "memory in files of memory": "import os, time\nfor i in range(20):\n    os.write(os.memfd_create('a'), b'x' * (15 << 20))\ntime.sleep(20)",
    "CPU time": "import os\nfor i in range(4):\n    if os.fork() == 0:\n        while True: pass\nfor i in range(4): os.wait()",
    "processes": "import os, time\nfor i in range(100):\n    try:\n        if os.fork() == 0:\n            time.sleep(2); os._exit(0)\n    except OSError: pass\ntime.sleep(2)\n",
}
SAYS = {
    "memory": "more than 128 MiB of memory, all its processes together",
    "memory in files of memory": "more than 128 MiB of memory, all its processes together",
    "CPU time": "no end within",
    "processes": "",
}


@pytest.mark.parametrize("what", TOGETHER)
def test_processes_of_a_program_share_its_limits(what: str) -> None:
    """Each has its own limits, and may start others: 20 seconds are never waited for."""
    limits = Limits(time_s=2, wall_s=60, memory_mb=128)
    finished = run_program(TOGETHER[what], way=best_way(sys.executable, False), limits=limits)
    assert (
        finished.how == {"CPU time": "time", "processes": "ended"}.get(what, "memory") or what == "processes"
    )
    found = grade(TOGETHER[what], SUM, time_s=2, wall_s=60, memory_mb=128)
    assert found.score == 0
    assert SAYS[what] in found.reason
