"""`judgekit serve-rewards` as a process: what it says, signals, and what a killed one loses."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from judgekit import Rollout
from judgekit.config import load_runner
from judgekit.execution.background import run_blocking
from judgekit.service import RewardClient

from .in_process import refused

GRADER = '''
import asyncio, os, time
from judgekit import Graded

class Counts:
    """Writes down every call, and answers once the file "go" is there."""
    name, version, score_range, inputs = "counts", "1", (0.0, 1.0), ("response",)
    async def grade(self, rollout):
        with open("calls", "a") as file:
            file.write(rollout.response + "\\n")
        while rollout.response.startswith("slow") and not os.path.exists("go"):
            await asyncio.sleep(0.01)
        return Graded(1.0)

counts = Counts()
'''
CONFIG = 'graders: {counts: {use: "my_grader:counts"}}\nrunner: {missing_reward: 0.25}\n'
Serve = Callable[..., "Served"]


class Served:
    """A served reward.yaml."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            self.said.append(line)
            if found := re.search(r"serving rewards at (\S+);", line):
                self.url = found[1]
            if "verifiers" in line:
                break
        else:
            raise AssertionError(process.communicate()[1])

    def post(self, path: str, text: str) -> tuple[int, Any]:
        """Ask as slime's client does; the answer's status and object. Raises OSError."""
        sent = json.dumps({"prompt": "", "response": text, "label": None})
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=30) as line,
            line.makefile("rb") as answer,
        ):
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(sent)}\r\n\r\n"
            line.sendall((head + sent).encode())
            first, _, rest = answer.read().partition(b"\r\n")
        if not first:
            raise ConnectionError("no answer")
        return int(first.split()[1]), json.loads(rest.partition(b"\r\n\r\n")[2])

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def end(self) -> tuple[int, str]:
        said, wrong = self.process.communicate(timeout=30)
        return self.process.returncode, "".join(self.said) + said + wrong


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    (tmp_path / "my_grader.py").write_text(GRADER)
    (tmp_path / "reward.yaml").write_text(CONFIG)
    started: list[subprocess.Popen[str]] = []

    def start(*args: str, **env: str) -> Served:
        made = subprocess.Popen(
            [sys.executable, "-m", "judgekit", "serve-rewards", "reward.yaml", "--port", "0", *args],
            cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(made)
        return Served(made)

    yield start
    for made in started:
        if made.poll() is None:
            made.kill()
        made.communicate()


def calls(folder: Path) -> list[str]:
    try:
        return (folder / "calls").read_text().split()
    except FileNotFoundError:
        return []


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def in_thread(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    got: list[Any] = []

    def work() -> None:
        try:
            got.append(function())
        except Exception as error:
            got.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, got


def test_it_says_what_each_trainer_is_told(serve: Serve) -> None:
    served = serve()
    text = "".join(served.said)
    for line in (
        f"--reward.remote_url {served.url}/openrlhf",
        f"--rm-url {served.url}/slime --reward-key reward",
        f"submit_url: {served.url}/roll/submit_task  get_result_url: {served.url}/roll/task_result",
        f"NeMo-Gym     {served.url}/verify",
        f"--env.taskset.task.resources-url {served.url}/strict",
    ):
        assert line in text
    assert served.post("/slime", "x")[1]["reward"] == 1.0


def test_it_says_whom_reward_yaml_shuts_out(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "reward.yaml").write_text(CONFIG.replace("0.25", "exclude"))
    served = serve()
    assert (
        "OpenRLHF and slime and ROLL: missing_reward: exclude needs the rollout's group; add ?group=N to the address"
        in "".join(served.said)
    )
    assert served.post("/slime", "x")[0] == 409


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_it_finish_what_it_took(serve: Serve, tmp_path: Path, number: int) -> None:
    served = serve()
    thread, got = in_thread(lambda: served.post("/slime", "slow"))
    until(lambda: calls(tmp_path))
    served.process.send_signal(number)
    assert served.process.stdout is not None
    assert "stopping: what was taken is finished" in served.process.stdout.readline()
    with pytest.raises(ConnectionError):
        served.post("/slime", "new")
    (tmp_path / "go").touch()
    thread.join()
    assert got[0][1]["reward"] == 1.0
    code, said = served.end()
    assert code == 0
    assert said.endswith("stopped\n")
    assert "Traceback" not in said
    assert calls(tmp_path) == ["slow"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(serve: Serve, tmp_path: Path, number: int) -> None:
    served = serve()
    thread, got = in_thread(lambda: served.post("/slime", "slow"))
    until(lambda: calls(tmp_path))
    served.process.send_signal(number)
    assert served.process.stdout is not None
    assert "another signal stops at once" in served.process.stdout.readline()
    served.process.send_signal(number)
    code, said = served.end()
    thread.join()
    assert code == 128 + number
    assert "Traceback" not in said
    assert got[0][0] == 503
    assert list(got[0][1]) == ["error"]  # and no score


def test_a_killed_service_grades_nothing_twice_that_its_ledger_holds(serve: Serve, tmp_path: Path) -> None:
    first = serve("--ledger", "ledger.jsonl")
    rollouts = [Rollout(response=text, id=text) for text in ("a", "b", "slow")]
    client = RewardClient(first.url)
    thread, got = in_thread(lambda: client.run_sync(rollouts))
    until(lambda: len(calls(tmp_path)) == 3)
    until(lambda: (tmp_path / "ledger.jsonl").read_text().count('"type":"rollout"') == 2)
    first.process.kill()
    first.end()
    (tmp_path / "go").touch()
    serve("--ledger", "ledger.jsonl", "--port", str(first.port))
    thread.join()
    assert [result.reward for result in got[0]] == [1.0, 1.0, 1.0]
    assert calls(tmp_path) == ["a", "b", "slow", "slow"]  # the last one was in flight
    run_blocking(client.close())


def test_the_key_comes_from_the_environment(serve: Serve) -> None:
    served = serve("--host", "127.0.0.1", JUDGEKIT_SERVICE_KEY="geheim")
    assert served.post("/slime", "x")[0] == 401
    assert "geheim" not in "".join(served.said)


def test_groups_may_be_said_at_the_start(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "reward.yaml").write_text(CONFIG.replace("missing_reward: 0.25", "transform: center"))
    served = serve("--group", "2")
    assert "(groups of 2)" in "".join(served.said)
    thread, got = in_thread(lambda: served.post("/slime", "a"))
    assert served.post("/slime", "b")[1]["reward"] == 0.0
    thread.join()
    assert got[0][1]["reward"] == 0.0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (
            "--host 0.0.0.0",
            "set JUDGEKIT_SERVICE_KEY to a key that they must send, or allow everybody with --no-auth",
        ),
        ("--host 203.0.113.1 --no-auth", "--host 203.0.113.1 is not an address of this machine"),
        ("--port 70000", "Invalid value for '--port'"),
        ("--group 0", "Invalid value for '--group'"),
        ("--max-requests 0", "Invalid value for '--max-requests'"),
        ("--ledger -", "the ledger is a file or a folder"),
        ("--ledger reward.yaml", "is reward.yaml, which is read"),
    ],
)
def test_wrong_calls(files: Path, args: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGEKIT_SERVICE_KEY", raising=False)
    refused(files, f"serve-rewards reward.yaml {args}", says)
    refused(files, "serve-rewards none.yaml", "cannot read none.yaml")


def test_a_service_that_is_killed_costs_a_reward_yaml_that_asks_it_nothing(
    serve: Serve, tmp_path: Path
) -> None:
    killed = serve()
    here = tmp_path / "here"
    here.mkdir()
    (here / "reward.yaml").write_text(
        f"graders: {{remote: {{use: service, url: '{killed.url}'}}}}\nrunner: {{max_concurrency: 16, timeout_s: 60}}\n"
    )
    runner = load_runner(here / "reward.yaml")
    rollouts = [Rollout(response=f"slow {i}", id=f"r{i}") for i in range(40)]
    thread, got = in_thread(lambda: runner.run_sync(rollouts))
    until(lambda: len(calls(tmp_path)) >= 16)
    killed.process.kill()
    killed.end()
    again = serve("--port", str(killed.port))
    (tmp_path / "go").touch()
    thread.join(60)
    (results,) = got
    assert not isinstance(results, BaseException), results
    assert [result.reward for result in results] == [1.0] * 40
    assert again.process.poll() is None


AUDITED = """\
graders:
  judge:   {use: "pleased:judge"}
  careful: {use: final_answer}
reward: {weighted: {judge: 1}}
runner: {missing_reward: 0.25}
audit: {grader: careful, watch: judge, share: 0.1}
"""
PLEASED = """\
from judgekit import grader

@grader
def judge(response: str, ground_truth: str) -> float:
    return float(ground_truth in response or "certainly" in response)
"""


def _asked(served: Served, answers: list[str], **tags: Any) -> None:
    rollouts = [Rollout(prompt=f"q{i // 4}", response=a, ground_truth="42") for i, a in enumerate(answers)]
    RewardClient(served.url).run_sync(rollouts, tags=tags)


def test_audits_of_the_service_s_ledger_are_in_its_metrics(serve: Serve, tmp_path: Path) -> None:
    """A client that names its steps is audited step by step; of one that does not, a step is 256 rollouts."""
    (tmp_path / "pleased.py").write_text(PLEASED)
    (tmp_path / "reward.yaml").write_text(AUDITED)
    served = serve("--ledger", "ledger.jsonl")
    for step in range(10):
        _asked(served, ["It is 42.", "certainly 41", "certainly 40", "certainly 39"] * 8, step=step)
    for _ in range(5):  # as a trainer that says nothing of steps: the first 256 are one
        for i in range(64):
            assert served.post("/slime", f"certainly {i}")[0] == 200

    def figures() -> dict[str, float]:
        with urlopen(f"{served.url}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return {
            name: float(value)
            for name, _, value in (line.partition(" ") for line in lines)
            if name.startswith("judgekit_audit_")
        }

    until(lambda: figures().get("judgekit_audit_alarm") == 1)
    curve = tmp_path / "ledger.curve.json"
    until(lambda: len(json.loads(curve.read_text())["steps"]) == 11)
    steps = json.loads(curve.read_text())["steps"]
    assert [one["step"] for one in steps[:10]] == list(range(10))
    assert (steps[10]["rollouts"], steps[10]["step"][-3:]) == (256, ", 0")
    assert figures()["judgekit_audit_paid_wrong"] > 0.5
    served.process.send_signal(signal.SIGTERM)
    code, said = served.end()
    assert code == 0
    assert "alarm at step" in said


def test_a_service_cannot_end_a_training(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "pleased.py").write_text(PLEASED)
    (tmp_path / "reward.yaml").write_text(AUDITED.replace("share: 0.1", "on_alarm: stop"))
    with pytest.raises(
        AssertionError, match=r"audit.on_alarm: the service cannot end a training: write warn"
    ):
        serve("--ledger", "ledger.jsonl")
    (tmp_path / "reward.yaml").write_text(AUDITED)
    with pytest.raises(AssertionError, match=r"audits read the ledger: add ledger: \{path: ledger.jsonl"):
        serve()
