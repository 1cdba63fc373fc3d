"""The command line: what it writes, and that bad input ends as one sentence and exit code 2."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from judgekit.ledger.reader import read_ledger
from tests.judges.fake_server import FakeServer

CONFIG = "graders: {correct: final_answer, brief: {use: length, soft_max: 10, hard_max: 20}}\nreward: {weighted: {correct: 0.9, brief: 0.1}}\n"
ROWS: list[Any] = [
    {"prompt": "2+2?", "response": "#### 4", "ground_truth": "4", "group": ["a", 1], "level": "easy"},
    {
        "prompt": "2+2?",
        "response": "<script>alert('x')</script> five",
        "ground_truth": "4",
        "group": ["a", 1],
    },
    {"prompt": "3?", "response": "#### 3", "ground_truth": None, "id": 7},
]


def run(cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "judgekit", *args], cwd=cwd, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "reward.yaml").write_text(CONFIG)
    (tmp_path / "rollouts.jsonl").write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    return tmp_path


def test_grade_writes_results_ledger_and_report(files: Path) -> None:
    done = run(
        files,
        "grade",
        "reward.yaml",
        "rollouts.jsonl",
        "--out",
        "o/g.jsonl",
        "--ledger",
        "o/l.jsonl",
        "--report",
        "o/r.html",
    )
    assert (done.returncode, done.stderr) == (0, "1 of 3 rewards are missing (1 excluded)\n")
    rows = [json.loads(line) for line in (files / "o/g.jsonl").read_text().splitlines()]
    assert [r["reward"] for r in rows] == [1.0, 0.0, None]
    assert rows[0]["extra"] == {"level": "easy"}
    assert rows[0]["grades"]["correct"] == {"kind": "graded", "score": 1.0, "reason": "4 is right"}
    assert rows[2]["missing"] == ["correct"]
    entries = read_ledger(files / "o/l.jsonl").entries
    assert {e.index: e.reward for e in entries} == {0: 1.0, 1: 0.0, 2: None}
    page = (files / "o/r.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(&#x27;x&#x27;)" in page
    assert "no reward" in page
    assert "<svg" in page
    for word in ("correct", "brief", "mean", "2 scored", "1 excluded", "o/g.jsonl", "o/r.html"):
        assert word in done.stdout


def test_report_alone(files: Path) -> None:
    run(files, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl", "--ledger", "l.jsonl")
    done = run(files, "report", "l.jsonl", "--rows", "1")
    assert done.returncode == 0
    assert "2 more are in the ledger" in (files / "l.html").read_text()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{not json", "rollouts.jsonl, line 2: not JSON"),
        ("[1]", "line 2: a rollout is an object with at least a 'response', not list"),
        ('{"prompt": "x"}', "line 2: the rollout has no 'response'"),
        ('{"respons": "x"}', "did you mean 'respons'?"),
        ('{"response": 3}', "line 2: 'response' is text, not int"),
        ('{"response": "x", "messages": "hi"}', "'messages' is a list of messages, not str"),
        ('{"response": "\xff"}', "line 2: not JSON"),
    ],
)
def test_bad_rollouts_are_named_by_their_line(files: Path, line: str, says: str) -> None:
    (files / "rollouts.jsonl").write_bytes((json.dumps(ROWS[0]) + "\n" + line + "\n").encode("latin-1"))
    refused(
        run(files, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl", "--ledger", "l.jsonl"),
        says,
        files,
    )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("grade", "none.yaml", "rollouts.jsonl", "--out", "g.jsonl"), "cannot read none.yaml: No such file"),
        (("grade", "reward.yaml", "none.jsonl", "--out", "g.jsonl"), "cannot read none.jsonl: No such file"),
        (
            ("grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl", "--report", "r.html"),
            "give --ledger, too",
        ),
        (("grade", "reward.yaml", "rollouts.jsonl", "--out", "reward.yaml/g.jsonl"), "cannot write"),
        (("report", "none.jsonl"), "cannot read the ledger none.jsonl"),
        (("report", "rollouts.jsonl"), "line 1: not a line of a judgekit ledger"),
        (("report", "empty.jsonl"), "holds no rollouts yet"),
        (("grade", "reward.yaml", "empty.jsonl", "--out", "g.jsonl"), "empty.jsonl holds no rollouts"),
    ],
)
def test_bad_arguments_are_one_sentence(files: Path, args: tuple[str, ...], says: str) -> None:
    (files / "empty.jsonl").write_text("")
    refused(run(files, *args), says, files)


def test_bad_graders_are_one_sentence(files: Path) -> None:
    (files / "reward.yaml").write_text("graders: {a: {use: final_answr}}")
    refused(
        run(files, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl"),
        "did you mean 'final_answer'",
        files,
    )


def refused(done: subprocess.CompletedProcess[str], says: str, folder: Path) -> None:
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert not [
        f.name for f in folder.iterdir() if f.name in ("g.jsonl", "r.html", "o") or f.name.startswith(".g")
    ]


def test_replay_with_other_weights(files: Path) -> None:
    run(files, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl", "--ledger", "l.jsonl")
    (files / "other.yaml").write_text(CONFIG.replace("correct: 0.9, brief: 0.1", "correct: 0.5, brief: 0.5"))
    done = run(files, "replay", "l.jsonl", "--reward", "other.yaml", "--out", "new.jsonl")
    assert done.returncode == 0
    assert "3 rewards computed anew, 0 of them changed" in done.stdout
    rows = [json.loads(line) for line in (files / "new.jsonl").read_text().splitlines()]
    rows.sort(key=lambda row: row["index"])
    assert [row["reward"] for row in rows] == [1.0, 0.0, None]
    assert rows[0]["contributions"] == {"correct": 0.5, "brief": 0.5, "residual": 0.0}
    assert [row["was"] for row in rows] == [1.0, 0.0, None]


async def test_check_of_a_server_and_of_none(files: Path) -> None:
    async with FakeServer() as server:
        done = await asyncio.to_thread(run, files, "check", server.url, "--burst", "4")
        assert (done.returncode, done.stderr) == (0, "")
        assert "model       /models/judge at http://127.0.0.1:" in done.stdout
        assert "throughput" in done.stdout
        url = server.url
    done = await asyncio.to_thread(run, files, "check", url)
    assert done.returncode == 2
    assert "cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("serve", "--engine", "grpc"), "--engine is ray or http, not 'grpc'"),
        (("serve", "--engine-arg", "nonsense"), "--engine-arg is key=value, not 'nonsense'"),
        (("serve", "--model", "/no/such/model"), "no model at /no/such/model"),
    ],
)
def test_serve_says_what_is_wrong(files: Path, args: tuple[str, ...], says: str) -> None:
    refused(run(files, *args), says, files)


def test_serve_of_nothing_shows_and_stops_nothing(files: Path) -> None:
    for flag in ("--status", "--stop"):
        done = run(files, "serve", "--name", "nobody-serves-this", flag)
        assert done.returncode == 0
        assert "no judge named nobody-serves-this" in done.stdout


def test_version() -> None:
    assert run(Path.cwd(), "--version").stdout.startswith("judgekit ")


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (CONFIG, 0, ["2 graders, rewards from 0 to 1"]),
        (
            "graders: {a: final_answer}\nreward: {gate: {if: a >= 0, then: 1, otherwise: 0}}\n"
            "judges: {j: {engine: openai, url: 'http://127.0.0.1:1', model: m}}\nledger: {path: l.jsonl}\n",
            0,
            [
                "warning: judges.j: no grader asks it, and it is started all the same; take it out",
                "warning: reward: the gate a >= 0 always passes: a lies in 0..1",
                "1 graders, rewards from 0 to 1",
            ],
        ),
        (
            "graders: {a: final_answr}\n",
            2,
            ["graders.a: there is no 'final_answr'; did you mean 'final_answer'?"],
        ),
        ("graders: {a: final_answer}\nledger: {path: 3}\n", 2, ["ledger.path: expected"]),
        (
            "graders: {a: final_answer}\nreward: {gate: {if: a > 1, then: 1, otherwise: 0}}\n",
            2,
            ["can never pass"],
        ),
    ],
)
def test_lint(files: Path, text: str, code: int, says: list[str]) -> None:
    (files / "reward.yaml").write_text(text)
    before = sorted(files.iterdir())
    done = run(files, "lint", "reward.yaml")
    lines = (done.stdout if code == 0 else done.stderr).splitlines()
    assert done.returncode == code, done.stderr
    assert len(lines) == len(says)
    assert all(part in line for part, line in zip(says, lines, strict=True))
    assert (done.stdout if code else done.stderr) == ""
    assert sorted(files.iterdir()) == before


def test_schema_is_printed(files: Path) -> None:
    done = run(files, "schema")
    assert (done.returncode, json.loads(done.stdout)["title"]) == (0, "reward.yaml")
