"""What `judgekit grade` says while it works and what it counts, in this process."""

from __future__ import annotations

import json
from pathlib import Path

from .in_process import call

ENGINE = """
from judgekit.testing import ScriptedJudge

events = []

class Engine(ScriptedJudge):
    def __init__(self):
        super().__init__("1")

    async def start(self):
        with open("events", "a") as file: file.write("start ")

    async def close(self):
        with open("events", "a") as file: file.write("close ")
"""
JUDGED = "graders: {correct: final_answer, judge: {use: judge, judge: j}}\njudges: {j: {engine: 'own_engine:Engine'}}\n"


def judged(folder: Path) -> None:
    (folder / "own_engine.py").write_text(ENGINE)
    (folder / "judged.yaml").write_text(JUDGED)


def test_judges_are_started_before_they_are_asked_and_closed_at_the_end(files: Path) -> None:
    judged(files)
    done = call(files, "grade", "judged.yaml", "rollouts.jsonl")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "starting the judges (a local engine takes about half a minute) …\ngrading 3 rollouts with correct, judge …\n"
    )
    events = (files / "events").read_text().split()
    assert (events[0], events[1:].count("close"), events[-1]) == ("start", 1, "close")
    assert call(files, "grade", "reward.yaml", "rollouts.jsonl").stdout.startswith(
        "grading 3 rollouts with correct, brief …\n"
    )


def test_seconds_and_known_rollouts_are_counted(files: Path) -> None:
    grade = ("grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl", "--json")
    told = json.loads(call(files, *grade).stdout)
    assert told["known_rollouts"] == 0
    assert 0 <= told["seconds"] < 600  # of the run, not since the machine's start
    told = json.loads(call(files, *grade, "--resume").stdout)
    assert (told["known_rollouts"], told["rollouts"]) == (3, 3)
    lines = (files / "rollouts.jsonl").read_text().splitlines()
    more = json.dumps({"prompt": "5?", "response": "#### 5", "ground_truth": "5"})
    (files / "rollouts.jsonl").write_text("\n".join([*filter(None, lines), more]) + "\n")
    told = json.loads(call(files, *grade, "--resume").stdout)
    assert (told["known_rollouts"], told["rollouts"]) == (3, 4)


def test_the_files_that_were_written_are_named(files: Path) -> None:
    grade = (
        "grade",
        "reward.yaml",
        "rollouts.jsonl",
        "--out",
        "g.jsonl",
        "--ledger",
        "l.jsonl",
        "--report",
        "r.html",
    )
    told = call(files, *grade).stdout.splitlines()[-3:]
    assert told == [
        "graded rollouts  g.jsonl",
        "ledger           l.jsonl",
        "report           r.html  (open it in a browser)",
    ]
    told = call(files, *grade, "--force").stdout.splitlines()[-3:]
    assert told[1] == "ledger           l.jsonl (appended: reports count each of its runs)"
    told = call(files, *grade, "--force", "--resume").stdout.splitlines()
    assert told[0] == "l.jsonl holds grades of 3 of the 3 rollouts"
    assert told[-2] == "ledger           l.jsonl"
