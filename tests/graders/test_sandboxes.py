"""Code in a sandbox here and in one behind a URL; the forms of competitive programming; limits and early stops."""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Failed, Graded, GradingRunner, Rollout
from judgekit.graders import Code
from judgekit.graders.rules.programs import code_forms, sandboxes
from judgekit.graders.rules.programs.code import limits_of
from judgekit.graders.rules.programs.code_forms import read_cases
from judgekit.graders.rules.programs.sandbox import Finished, Limits, SandboxError
from judgekit.graders.rules.programs.sandboxes import LocalSandbox, RemoteSandbox, Sandbox

ADD = "a, b = map(int, input().split())\nprint(a + b)"
F_ADD = "def f(a, b):\n    return a + b"
SOLUTION = "class Solution:\n    def f(self, a, b):\n        return a + b"


class Service(BaseHTTPRequestHandler):
    """Runs what it is sent as SandboxFusion does, without its isolation."""

    answer: Any = None
    """What to say instead: a status, or a body."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body: Any = self.answer
        if isinstance(body, int):
            self.send_error(body)
            return
        if body is None:
            body = json.dumps(self._run(asked)).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def _run(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in asked["files"].items():
                (Path(folder) / name).write_bytes(base64.b64decode(text))
            try:
                done = subprocess.run(
                    [sys.executable, "-I", "-c", asked["code"]],
                    input=asked["stdin"],
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    timeout=asked["run_timeout"],
                )
                result = {
                    "status": "Finished",
                    "return_code": done.returncode,
                    "stdout": done.stdout,
                    "stderr": done.stderr,
                }
            except subprocess.TimeoutExpired:
                result = {"status": "TimeLimitExceeded", "return_code": None, "stdout": "", "stderr": ""}
            found = [name for name in asked["fetch_files"] if (Path(folder) / name).is_file()]
            files = {name: base64.b64encode((Path(folder) / name).read_bytes()).decode() for name in found}
        return {"status": "Success", "message": "", "run_result": result, "files": files}

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/run_code"
    server.shutdown()
    thread.join()
    server.server_close()


def grade(code: str, cases: Any, **options: Any) -> Any:
    given = Rollout(response=f"```python\n{code}\n```", ground_truth=cases)
    return Code(**{"time_s": 10.0, "wall_s": 60.0, **options}).grade(given)


def packed(cases: Any) -> str:
    """Cases as LiveCodeBench packs its private ones."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


PAIRS = [{"input": "1 2", "output": "3"}, {"input": "2 2\n", "output": "4\n"}]
FORMS: list[tuple[str, Any, float]] = [
    (ADD, PAIRS, 1),
    ("print(3)", PAIRS, 0.5),
    ("import sys\nsys.exit(1)", PAIRS, 0),
    ("print(3", PAIRS, 0),
    (ADD, {"inputs": ["1 2", "2 2"], "outputs": ["3", "4"]}, 1),
    (ADD, {"public_tests": {"input": ["1 2"], "output": ["3"]}, "private_tests": {"input": ["2 2"], "output": ["5"]}}, 0.5),
    (ADD, {"official_tests": PAIRS, "time_limit": 2.0, "memory_limit": 256.0}, 1),
    (ADD, {"public_test_cases": json.dumps([{"input": "1 2", "output": "3", "testtype": "stdin"}])}, 1),
    (F_ADD, {"fn_name": "f", "inputs": [[1, 2], [2, 2]], "outputs": [3, 4]}, 1),
    (F_ADD, {"fn_name": "f", "inputs": [[1, 2], [2, 2]], "outputs": [3, 5]}, 0.5),
    (SOLUTION, {"fn_name": "f", "inputs": [[1, 2]], "outputs": [[3]]}, 1),
    (SOLUTION, [{"input": "1\n2", "output": "3", "metadata": {"func_name": "f"}}], 1),
    (F_ADD, {"private_test_cases": packed([{"input": "1\n2", "output": "3", "testtype": "functional"}]), "metadata": '{"func_name": "f"}'}, 1),
    (ADD, {"public_test_cases": packed([{"input": "1 2", "output": "3", "testtype": "stdin"}]), "metadata": '{"func_name": "f"}'}, 1),
    (ADD, packed([{"input": "1 2", "output": "3"}, {"input": "1 2", "output": "4"}]), 0.5),
    ("def g(): ...", {"fn_name": "f", "inputs": [[1, 2]], "outputs": [3]}, 0),
    (F_ADD, ["assert f(1, 2) == 3", "assert f(1, 1) == 3"], 0.5),
    (F_ADD, {"test": "def check(candidate):\n    assert candidate(1, 2) == 3", "entry_point": "f"}, 1),
    (F_ADD + "\nraise SystemExit(0)", ["assert f(1, 2) == 4"], 0),
    ("print('{\"secret\": \"\", \"answer\": true}')", ["assert False"], 0),
]  # fmt: skip


@pytest.mark.parametrize(("code", "cases", "score"), FORMS)
def test_both_sandboxes_agree(url: str, code: str, cases: Any, score: float) -> None:
    here, there = grade(code, cases), grade(code, cases, sandbox=url)
    assert isinstance(here, Graded)
    assert isinstance(there, Graded)
    assert (here.score, there.score) == (score, score)
    assert here.metadata["passed"] == there.metadata["passed"]  # type: ignore[index]


class _Runs:
    """Is unpickled by a call, as an attack would be."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("judgekit-was-here",)


@pytest.mark.parametrize(
    "text",
    [
        base64.b64encode(zlib.compress(pickle.dumps(_Runs()))).decode(),
        base64.b64encode(zlib.compress(pickle.dumps({"inputs": _Runs()}))).decode(),
        base64.b64encode(zlib.compress(b"no pickle")).decode(),
        base64.b64encode(zlib.compress(pickle.dumps("[" * 10_000))).decode(),
        base64.b64encode(pickle.dumps("[]")).decode(),
        packed([{"input": "1 2", "output": "3"}])[:-8],
        "AAAA",
    ],
)
def test_packed_cases_run_nothing(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(grade(ADD, text), Abstained)
    assert not list(tmp_path.iterdir())


def test_packed_cases_have_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_forms, "_UNPACKED", 1000)
    assert isinstance(grade(ADD, packed([{"input": "1 " * 1000, "output": "3"}])), Abstained)


def test_a_program_that_never_ends_or_writes_too_much(url: str) -> None:
    for sandbox in (None, url):
        ended = grade("while True: pass", PAIRS[:1], sandbox=sandbox, time_s=1.0, wall_s=3.0)
        assert (ended.score, "no end" in ended.reason) == (0, True)
        wrote = grade("print('x' * 100_000)", PAIRS[:1], sandbox=sandbox, output_kb=4)
        assert (wrote.score, wrote.reason) == (0, "case 1: more than 4 KiB of output")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (500, "answered 500"),
        (404, "answered 404"),
        (b"not JSON", "did not answer in JSON"),
        (b"[1]", "answered list, not an object"),
        (b"[" * 10_000, "did not answer in JSON"),
        (b"{}", "failed"),
        (b'{"status": "SandboxError", "message": "no place"}', "no place"),
        (b'{"run_result": {"status": "Error", "stderr": "no python"}, "files": {}}', "did not start the program: no python"),
    ],
)  # fmt: skip
def test_a_service_that_fails_is_not_the_rollout_s_fault(
    url: str, answer: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Service, "answer", answer)
    runner = GradingRunner([Code(sandbox=url)], missing_reward="mask")
    (result,) = runner.run_sync([Rollout(response=f"```python\n{ADD}\n```", ground_truth=PAIRS)])
    failed = result.grades["code"]
    assert isinstance(failed, Failed)
    assert (failed.error, failed.cause) == ("SandboxError", "infrastructure")
    assert says in failed.detail


@pytest.mark.parametrize(
    "harm",
    [
        "os.remove('begun') if os.path.exists('begun') else None",
        "[os.remove(name) for name in os.listdir('.')]; sys.stderr.write('no python'); os._exit(127)",
        "os.mkdir('answer.json')",
        "os.chmod('.', 0)",
        "os.kill(os.getpid(), 9)",
    ],
)
@pytest.mark.parametrize(
    "cases", [PAIRS[:1], {"fn_name": "f", "inputs": [[1, 2]], "outputs": [3]}, ["assert f(1, 2) == 3"]]
)
def test_a_program_that_hides_that_it_began_is_not_passed(url: str, harm: str, cases: Any) -> None:
    for sandbox in (None, url):
        found = grade(f"import os, sys\n{harm}\ndef f(*_): return 4\nprint(4)", cases, sandbox=sandbox)
        assert isinstance(found, Graded)
        assert found.score == 0


def test_a_reply_that_is_too_long_is_the_program_s(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxes, "MAX_REPLY_BYTES", 10_000)
    found = grade("print('x' * 20_000)", PAIRS[:1], sandbox=url)
    assert (found.score, found.reason) == (0, "case 1: more than 1024 KiB of output")


def test_a_large_answer_is_none_with_a_service(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    big = base64.b64encode(b"[" + b"1," * 100_000 + b"1]").decode()
    reply = {
        "run_result": {"status": "Finished", "return_code": 0},
        "files": {"begun": "x", "answer.json": big},
    }
    read: list[int] = []
    monkeypatch.setattr(Service, "answer", json.dumps(reply).encode())
    monkeypatch.setattr(
        sandboxes, "read_answer", lambda data, secret: (read.append(len(data)), (None, False))[1]
    )
    assert grade(F_ADD, ["assert True"], sandbox=url).score == 0
    assert read == [0]


@pytest.mark.parametrize(
    "files", [{"begun": "x"}, {"begun": "x", "answer.json": "!!"}, {"begun": "x", "answer.json": "e30="}]
)
def test_an_answer_without_the_secret_is_none(url: str, files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = {"run_result": {"status": "Finished", "return_code": 0}, "files": files}
    monkeypatch.setattr(Service, "answer", json.dumps(reply).encode())
    assert grade(F_ADD, ["assert True"], sandbox=url).score == 0


def test_a_service_that_is_not_there() -> None:
    sandbox = RemoteSandbox("http://127.0.0.1:9/run_code", slack_s=1)
    with pytest.raises(SandboxError, match="cannot be reached"):
        sandbox.run("print(1)", limits=Limits())


class Counting:
    """A sandbox of one's own: it keeps what it was asked, and every program prints 3."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Limits]] = []

    def run(
        self, code: str, *, limits: Limits, stdin: str = "", job: Mapping[str, Any] | None = None
    ) -> Finished:
        self.asked.append((stdin, limits))
        return Finished("ended", 0, "3\n", "")

    def isolation(self) -> dict[str, str]:
        return {"by": "counting", "network": "none"}


CASES = [{"input": str(i), "output": "3" if i % 2 else "4"} for i in range(8)]


@pytest.mark.parametrize(
    ("options", "runs", "score"),
    [
        ({}, 8, 0.5),
        ({"score": "all"}, 1, 0),
        ({"stop_after": 1}, 1, 0),
        ({"stop_after": 2}, 3, 1 / 8),
        ({"stop_after": 4}, 7, 3 / 8),
        ({"stop_after": 5}, 8, 0.5),
        ({"max_cases": 3}, 3, 1 / 3),
        ({"max_cases": 2, "stop_after": 2}, 2, 0.5),
    ],
)
def test_early_stops(options: Any, runs: int, score: float) -> None:
    sandbox = Counting()
    found = grade("print(3)", CASES, sandbox=sandbox, **options)
    assert (len(sandbox.asked), found.score) == (runs, pytest.approx(score))
    assert isinstance(sandbox, Sandbox)
    assert isinstance(LocalSandbox(), Sandbox)


@pytest.mark.parametrize(
    ("own", "time_s", "memory_mb"),
    [
        ({}, 10, 1024),
        ({"time_limit": 2}, 2, 1024),
        ({"time_limit": 2.5}, 2.5, 1024),
        ({"time_limit": "3"}, 3, 1024),
        ({"time_limit": "2 seconds"}, 2, 1024),
        ({"time_limit": "0.5 seconds"}, 0.5, 1024),
        ({"time_limit": {"seconds": 2, "nanos": 500_000_000}}, 2.5, 1024),
        ({"time_limit": 99}, 10, 1024),
        ({"time_limit": None}, 10, 1024),
        ({"time_limit": -1}, 10, 1024),
        ({"time_limit": True}, 10, 1024),
        ({"time_limit": "soon"}, 10, 1024),
        ({"time_limit": float("nan")}, 10, 1024),
        ({"memory_limit": 256}, 10, 256),
        ({"memory_limit": 256.0}, 10, 256),
        ({"memory_limit": "256 megabytes"}, 10, 256),
        ({"memory_limit": 268_435_456}, 10, 256),
        ({"memory_limit": 8}, 10, 64),
        ({"memory_limit": 9999}, 10, 1024),
        ({"memory_limit": 0}, 10, 1024),
        ({"time_limit": 1, "memory_limit": 512}, 1, 512),
    ],
)
def test_limits_of_a_case(own: Any, time_s: float, memory_mb: int) -> None:
    found = limits_of(own, Limits(time_s=10, wall_s=30, memory_mb=1024))
    assert (found.time_s, found.memory_mb) == (time_s, memory_mb)
    assert found.wall_s == pytest.approx(max(3 * time_s, 10))


def test_limits_come_with_the_cases() -> None:
    whole = read_cases({"inputs": ["1", "2"], "outputs": ["1", "2"], "time_limit": "2 seconds"})
    assert [case["time_limit"] for case in whole] == ["2 seconds"] * 2
    each = read_cases([{"input": "1", "output": "1", "memory_limit": 64}, {"input": "2", "output": "2"}])
    assert [case.get("memory_limit") for case in each] == [64, None]
    sandbox = Counting()
    grade("print(3)", {"official_tests": CASES[:1], "time_limit": 2}, sandbox=sandbox)
    assert [limits.time_s for _, limits in sandbox.asked] == [2]


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Code(sandbox="sandbox:8080"), "is not the URL of a sandbox"),
        (lambda: Code(sandbox="ftp://host/run_code"), "is not the URL of a sandbox"),
        (lambda: Code(sandbox=5), "an object with run"),  # type: ignore[arg-type]
        (
            lambda: Code(sandbox="http://h/run_code", network="forbidden"),
            "only the service knows its network",
        ),
        (lambda: Code(stop_after=0), "stop_after is a whole number"),
    ],
)
def test_wrong_settings_are_said(build: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()
