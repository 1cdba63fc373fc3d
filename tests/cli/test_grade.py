"""`judgekit grade`: what it writes and says, and how it exits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from judgekit.ledger.reader import read_ledger

from ..report.pages import Page
from .command import ROWS, refused, run
from .in_process import call


def test_grade_writes_results_ledger_and_report(files: Path) -> None:
    done = call(
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
    assert (done.returncode, done.stderr) == (0, "")  # the summary says what is missing
    rows = [json.loads(line) for line in (files / "o/g.jsonl").read_text().splitlines()]
    assert [r["reward"] for r in rows] == [1.0, 0.0, None]
    assert rows[0]["extra"] == {"level": "easy"}
    assert rows[0]["grades"]["correct"] == {"kind": "graded", "score": 1.0, "reason": "4 is right"}
    assert rows[2]["missing"] == ["correct"]
    entries = read_ledger(files / "o/l.jsonl").entries
    assert {e.index: e.reward for e in entries} == {0: 1.0, 1: 0.0, 2: None}
    page = (files / "o/r.html").read_text()
    assert "alert('x')" not in page
    assert "<script>alert('x')</script> five" in [r["response"] for r in Page(page).rollouts.values()]
    for word in ("correct", "brief", "mean", "2 scored", "1 excluded", "o/g.jsonl", "o/r.html"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{not json", "rollouts.jsonl, line 2: not JSON"),
        ("[1]", "line 2: a rollout is an object with at least a 'response', not list"),
        ('{"prompt": "x"}', "line 2: the rollout has no 'response'"),
        ('{"respons": "x"}', "if 'respons' is it: --map response=respons"),
        ('{"response": 3}', "line 2: 'response' is text, not int"),
        ('{"response": "x", "messages": "hi"}', "'messages' is a list of messages, not str"),
        ('{"response": "\xff"}', "line 2: not JSON"),
    ],
)
def test_bad_rollouts_are_named_by_their_line(files: Path, line: str, says: str) -> None:
    (files / "rollouts.jsonl").write_bytes((json.dumps(ROWS[0]) + "\n" + line + "\n").encode("latin-1"))
    refused(
        call(files, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl", "--ledger", "l.jsonl"),
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
            "--report reads the ledger: give --ledger, too",
        ),
        (("grade", "reward.yaml", "rollouts.jsonl", "--out", "reward.yaml/g.jsonl"), "cannot write"),
        (("report", "none.jsonl"), "cannot read none.jsonl: No such file"),
        (("report", "rollouts.jsonl"), "line 1: not a line of a judgekit ledger"),
        (("report", "empty.jsonl"), "holds no rollouts yet"),
        (("grade", "reward.yaml", "empty.jsonl", "--out", "g.jsonl"), "empty.jsonl holds no rollouts"),
    ],
)
def test_bad_arguments_are_one_sentence(files: Path, args: tuple[str, ...], says: str) -> None:
    (files / "empty.jsonl").write_text("")
    refused(call(files, *args), says, files)


def test_bad_graders_are_one_sentence(files: Path) -> None:
    (files / "reward.yaml").write_text("graders: {a: {use: final_answr}}")
    refused(
        call(files, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl"),
        "did you mean 'final_answer'",
        files,
    )


MODULE = """
import asyncio
from judgekit import grader

@grader
def broken(response: str) -> float:
    raise ConnectionError("quota \\u202e exceeded\\x1b[31m for " + response[:6])

@grader
async def slow(response: str) -> float:
    print("grading", flush=True)
    await asyncio.sleep(60)
    return 1.0

@grader
async def slow_after_the_first(response: str) -> float:
    if response != "#### 4":
        await slow.grade(type("R", (), {"response": response}))
    return 1.0
"""


@pytest.fixture
def failing(files: Path) -> Path:
    (files / "mine.py").write_text(MODULE)
    (files / "reward.yaml").write_text("graders: {b: 'mine:broken'}\n")
    return files


def test_where_nothing_is_scored_the_exit_code_is_1_and_the_cause_is_shown(failing: Path) -> None:
    done = call(failing, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl")
    assert done.returncode == 1
    assert done.stderr == "judgekit: no rollout could be scored\n"
    says = "b failed with ConnectionError on 3 rollouts, the first time with: quota exceeded [31m for #### 4"
    assert [line for line in done.stdout.splitlines() if "failed with" in line] == [says]
    assert [json.loads(line)["reward"] for line in (failing / "g.jsonl").read_text().splitlines()] == [
        None
    ] * 3


def test_too_many_failures_exit_with_1_and_keep_the_results(failing: Path) -> None:
    (failing / "reward.yaml").write_text(
        "graders: {b: 'mine:broken', a: final_answer}\nreward: {fallback: [b, a]}\nrunner: {max_failure_rate: 0.1}\n"
    )
    (failing / "rollouts.jsonl").write_text((json.dumps(ROWS[0]) + "\n") * 20)
    done = call(failing, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl")
    assert done.returncode == 1
    assert "b 100.0 % (ConnectionError × 20)" in done.stderr
    assert len((failing / "g.jsonl").read_text().splitlines()) == 20
    assert "20 scored" in done.stdout


def test_a_grader_that_only_abstains_says_why(files: Path) -> None:
    (files / "rollouts.jsonl").write_text(json.dumps({"response": "x", "answer": "4"}) + "\n")
    (files / "reward.yaml").write_text("graders: {a: final_answer}\n")
    done = call(files, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl")
    assert done.returncode == 1
    assert "a abstained on 1 rollouts, the first time with: " in done.stdout


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            ["def check(candidate):\n    assert candidate(1) == 1\n    assert candidate(2) == 2\n"],
            "tests: in the first row, 1 case of the form check with 2 checks\n",
        ),
        (
            ["import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(f(1), 1)\n    def test_b(self):\n        self.assertTrue(f(1))\n"],
            "tests: in the first row, 1 case of the form unittest with 2 checks\n",
        ),
        (
            [{"inputs": ["1", "2"], "outputs": ["1", "2"]}],
            "tests: in the first row, 2 cases of the form stdio with 2 checks\n",
        ),
        (
            [None, ["assert f(1) == 1", "assert f(2) == 2"]],
            "tests: in row 2, the first with cases, 2 cases of the form asserts with 2 checks\n",
        ),
        (["def f(): ..."], "tests: no row has cases that run; the first one: there are no cases at ground_truth\n"),
        (
            ["def test_a(tmp_path):\n    assert f(tmp_path)\n"],
            "tests: no row has cases that run; the first one: fixtures are not made: test_a takes tmp_path\n",
        ),
    ],
)  # fmt: skip
def test_the_form_of_the_first_row_s_tests_is_said(files: Path, rows: list[object], says: str) -> None:
    """A user who takes one form for another sees it before anything is graded."""
    (files / "reward.yaml").write_text("graders: {tests: {use: code, isolation: none}}\n")
    lines = [
        {"response": "```python\ndef f(x): return x\n```", "ground_truth": row, "extra": {"entry_point": "f"}}
        for row in rows
    ]
    (files / "rollouts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = call(files, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl")
    assert says in done.stdout
    assert done.stdout.index("tests: ") < done.stdout.index("grader ")


def test_filled_in_rewards_are_not_in_the_mean(failing: Path) -> None:
    (failing / "reward.yaml").write_text("graders: {b: 'mine:broken'}\nrunner: {missing_reward: 1}\n")
    done = call(failing, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl")
    assert (done.returncode, "mean 1.000" in done.stdout) == (1, False)


def test_a_warning_about_the_batch_stands_once_below_the_table(files: Path) -> None:
    (files / "rollouts.jsonl").write_text((json.dumps(ROWS[0]) + "\n") * 64)
    done = call(files, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    (place,) = [i for i, line in enumerate(lines) if "rewards are the highest one" in line]
    assert lines[place].startswith("warning: ")
    assert place > next(i for i, line in enumerate(lines) if line.startswith("grader"))


@pytest.mark.parametrize(("sig", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_keeps_the_ledger_and_leaves_no_half_file(failing: Path, sig: int, code: int) -> None:
    (failing / "reward.yaml").write_text("graders: {s: 'mine:slow_after_the_first'}\n")
    command = [sys.executable, "-m", "judgekit", "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl"]
    grading = subprocess.Popen(
        [*command, "--ledger", "l.jsonl"],
        cwd=failing,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert grading.stdout is not None
    while grading.stdout.readline() != "grading\n":
        assert grading.poll() is None
    time.sleep(0.2)
    grading.send_signal(sig)
    _, said = grading.communicate(timeout=30)
    assert (grading.returncode, "Traceback" in said) == (code, False), said
    assert [entry.reward for entry in read_ledger(failing / "l.jsonl").entries] == [1.0]
    assert [f.name for f in failing.iterdir() if "g.jsonl" in f.name] == []


def test_ctrl_c_twice_stops_a_rule_that_blocks_the_loop(failing: Path) -> None:
    (failing / "mine.py").write_text(
        "import time\nfrom judgekit import grader\n@grader\ndef stuck(response: str) -> float:\n"
        "    print('grading', flush=True)\n    time.sleep(60)\n    return 1.0\n"
    )
    (failing / "reward.yaml").write_text("graders: {s: 'mine:stuck'}\n")
    command = [sys.executable, "-m", "judgekit", "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl"]
    grading = subprocess.Popen(
        command, cwd=failing, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert grading.stdout is not None
    while grading.stdout.readline() != "grading\n":
        assert grading.poll() is None
    for _ in range(2):
        time.sleep(0.3)
        grading.send_signal(signal.SIGINT)
    grading.communicate(timeout=30)
    assert grading.returncode == 130


# ---- formats, columns, resuming, JSON


def test_a_csv_becomes_a_parquet_file(files: Path) -> None:
    pytest.importorskip("pyarrow")
    (files / "r.csv").write_text("question,completion,answer\n2+2?,#### 4,4\n2+2?,five,4\n")
    done = call(
        files,
        "grade",
        "reward.yaml",
        "r.csv",
        "--map",
        "prompt=question,response=completion,ground_truth=answer",
        "--out",
        "o.parquet",
    )
    assert (done.returncode, done.stderr) == (0, "")
    from judgekit.data import read_rollouts

    again = read_rollouts(files / "o.parquet")
    assert [r.extra["reward"] for r in again] == [1.0, pytest.approx(0.1)]
    assert [r.extra["grade.correct"] for r in again] == [1.0, 0.0]


def test_without_out_there_is_the_table_only(files: Path) -> None:
    before = sorted(p.name for p in files.iterdir())
    done = call(files, "grade", "reward.yaml", "rollouts.jsonl")
    assert done.returncode == 0
    assert "correct" in done.stdout
    assert sorted(p.name for p in files.iterdir()) == before


def test_rollouts_come_from_standard_input_and_go_to_standard_output(files: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "judgekit", "grade", "reward.yaml", "-", "--out", "-"],
        cwd=files,
        input=(files / "rollouts.jsonl").read_text(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert [json.loads(line)["reward"] for line in done.stdout.splitlines()] == [1.0, 0.0, None]
    assert "grading 3 rollouts" in done.stderr


def test_the_summary_as_json(files: Path) -> None:
    done = call(files, "grade", "reward.yaml", "rollouts.jsonl", "--json")
    assert done.returncode == 0
    told = json.loads(done.stdout)
    assert (told["rollouts"], told["groups"], told["statuses"]) == (3, 2, {"scored": 2, "excluded": 1})
    assert told["reward_mean"] == 0.5
    assert told["graders"]["correct"]["graded"] == 2
    assert told["graders"]["correct"]["p50_s"] > 0
    assert "grading 3 rollouts" in done.stderr


def test_a_misnamed_column_is_hinted_at(files: Path) -> None:
    (files / "r.jsonl").write_text('{"response": "#### 4", "groundtruth": "4"}\n')
    done = run(files, "grade", "reward.yaml", "r.jsonl")
    assert (
        "no rollout has a ground_truth; if 'groundtruth' is it: --map ground_truth=groundtruth" in done.stderr
    )


SLOW = """
import asyncio, os
from judgekit import grader

@grader
async def slow(response: str) -> float:
    with open("asked.txt", "a") as file:
        file.write(response + "\\n")
    number = int(response)
    await asyncio.sleep(0 if number % 2 == 0 or os.environ.get("FAST") else 60)
    return number / 100
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_command_goes_on_with_resume(files: Path, how: signal.Signals) -> None:
    """No group is finished when it is stopped: half of each has its grade, which waits for the others."""
    (files / "mine.py").write_text(SLOW)
    (files / "slow.yaml").write_text(
        "graders: {slow: 'mine:slow'}\nrunner: {max_concurrency: 64, transform: center}\n"
    )
    rows = [{"prompt": f"p{i // 4}", "response": str(i), "ground_truth": "1"} for i in range(40)]
    (files / "r.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    command = [
        sys.executable,
        "-m",
        "judgekit",
        "grade",
        "slow.yaml",
        "r.jsonl",
        "--out",
        "o.jsonl",
        "--ledger",
        "l.jsonl",
    ]
    process = subprocess.Popen(command, cwd=files, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (files / "l.jsonl").exists() and (files / "l.jsonl").read_text().count('"type":"rollout"') >= 20:
            break
        time.sleep(0.05)
    process.send_signal(how)
    _, said = process.communicate(timeout=60)
    assert process.returncode == (-9 if how == signal.SIGKILL else 128 + how)
    if how != signal.SIGKILL:
        assert "what was graded is in l.jsonl; --resume goes on from there" in said
    assert not (files / "o.jsonl").exists()
    (files / "asked.txt").write_text("")
    done = subprocess.run(
        [*command, "--resume", "--force"],
        cwd=files,
        env={**os.environ, "FAST": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert "l.jsonl holds grades of 20 of the 40 rollouts" in done.stdout
    asked = (files / "asked.txt").read_text().split()
    assert sorted(map(int, asked)) == list(range(1, 40, 2))
    rewards = [json.loads(line)["raw_reward"] for line in (files / "o.jsonl").read_text().splitlines()]
    assert rewards == [i / 100 for i in range(40)]
    assert len(read_ledger(files / "l.jsonl").entries) == 40


def test_resume_without_a_ledger_yet_begins(files: Path) -> None:
    done = call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl", "--resume")
    assert done.returncode == 0
    assert "there is no ledger at l.jsonl yet: nothing to resume" in done.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--resume",), "--resume reads the ledger: give --ledger, too"),
        (("--json", "--out", "-"), "--json and --out - both write to standard output"),
        (("--map", "response"), "--map: 'response' is not field=column"),
        (("--map", "respons=x"), "a rollout has no field 'respons'; did you mean 'response'"),
        (("--map", "response=a,response=b"), "--map: 'response' has two columns, a and b"),
        (("--map", "response=nothing"), "line 1: there is no column 'nothing'"),
        (("--out", "o.parquet.gz"), "Parquet compresses by itself"),
    ],
)
def test_wrong_options_are_one_sentence(files: Path, args: tuple[str, ...], says: str) -> None:
    refused(call(files, "grade", "reward.yaml", "rollouts.jsonl", *args), says, files)


NOISY = """
import os

from judgekit import grader

print("loaded")
os.write(1, b"loaded, past Python\\n")


@grader(where="process")
def kind(response: str) -> float:
    print("debug", response)
    os.write(1, b"debug, past Python\\n")
    return 1.0
"""


@pytest.mark.parametrize("option", [["--json"], ["--out", "-"]])
def test_what_graders_print_stands_among_no_rows_and_no_summary(files: Path, option: list[str]) -> None:
    (files / "noisy.py").write_text(NOISY)
    (files / "noisy.yaml").write_text('graders: {kind: {use: "noisy:kind"}}\nreward: kind\n')
    done = run(files, "grade", "noisy.yaml", "rollouts.jsonl", *option)
    assert done.returncode == 0
    assert [type(json.loads(line)) for line in done.stdout.splitlines()] == [dict] * (3 if option[1:] else 1)
    assert "debug" in done.stderr


def test_a_ledger_that_another_tool_has_written_again_is_one(files: Path) -> None:
    grade = ["grade", "reward.yaml", "rollouts.jsonl", "--ledger"]
    assert call(files, *grade, "l.jsonl").returncode == 0
    text = (files / "l.jsonl").read_text()
    (files / "bom.jsonl").write_text("\ufeff" + text)
    (files / "spaces.jsonl").write_text("".join(json.dumps(json.loads(x)) + "\n" for x in text.splitlines()))
    for name in ("bom.jsonl", "spaces.jsonl"):
        assert "3 rewards recomputed, 0 changed" in call(files, "replay", name).stdout
        assert "holds grades of 3 of the 3" in call(files, *grade, name, "--resume").stdout


def test_each_reward_of_a_ledger_is_replayed_as_it_was(files: Path) -> None:
    (files / "other.yaml").write_text(
        "graders: {long: {use: length, soft_max: 2, hard_max: 90}}\nreward: long\n"
    )
    for reward in ("reward.yaml", "other.yaml"):
        call(files, "grade", reward, "rollouts.jsonl", "--ledger", "l.jsonl")
    said = call(files, "replay", "l.jsonl").stdout
    assert "6 rewards recomputed, 0 changed" in said


def test_a_ledger_whose_name_ends_with_a_slash_is_a_folder(files: Path) -> None:
    """For file systems that several machines share: a file for each process."""
    for more in ((), ("--resume",)):
        done = call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "runs/", *more)
        assert done.returncode == 0, done.stderr
    assert (files / "runs").is_dir()
    assert len(list((files / "runs").glob("*.jsonl"))) >= 1
