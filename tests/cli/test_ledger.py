"""`judgekit report`, `compare`, `view` and `replay`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from judgekit.ledger.reader import read_ledger

from ..report.ledgers import some, write
from ..report.pages import Page
from .command import CONFIG, refused
from .in_process import call


def test_report_alone(files: Path) -> None:
    call(files, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl", "--ledger", "l.jsonl")
    done = call(files, "report", "l.jsonl", "--rows", "1")
    assert done.returncode == 0
    page = Page((files / "l.html").read_text())
    assert page.facts["rows"] == 3
    assert len(page.rollouts) == 1


def test_a_report_of_a_folder_of_ledgers_shows_them_as_runs(files: Path) -> None:
    for name in "ab":
        (files / "runs" / name).mkdir(parents=True)
        write(files / "runs" / name / "l.jsonl", some(8))
    done = call(files, "report", "runs", "--json")
    assert json.loads(done.stdout) == {"report": "runs.html", "ledgers": ["runs/a", "runs/b"]}
    assert '<script type="application/octet-stream" id="runs">' in (files / "runs.html").read_text()
    refused(call(files, "report", "runs"), "runs.html", files)
    done = call(files, "report", "runs", "--force")
    assert "runs.html  (2 runs; open it in a browser)" in done.stdout + done.stderr


def test_limits_of_signals_come_from_a_file(files: Path) -> None:
    call(files, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl", "--ledger", "l.jsonl")
    (files / "limits.yaml").write_text("missing: 0.5\n")
    done = call(files, "report", "l.jsonl", "--json", "--limits", "limits.yaml")
    assert [s["limit"] for s in json.loads(done.stdout)["signals"]] == [0.5] * len(("correct", "brief"))


def test_compare_says_what_changed(files: Path) -> None:
    call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "a.jsonl")
    (files / "other.yaml").write_text(CONFIG.replace("correct: 0.9, brief: 0.1", "correct: 0.5, brief: 0.5"))
    call(files, "grade", "other.yaml", "rollouts.jsonl", "--ledger", "b.jsonl")
    done = call(files, "compare", "a.jsonl", "b.jsonl", "--out", "c.html")
    assert done.returncode == 0, done.stderr
    assert "3 rollouts are in both; 0 rewards changed" in done.stdout
    told = json.loads(call(files, "compare", "a.jsonl", "b.jsonl", "--json").stdout)
    assert (told["pairs"], told["graders"]["brief"]["scores_moved"]) == (3, 0)
    assert Page((files / "c.html").read_text()).data["comparison"] == told


def test_view_serves_until_it_is_ended(files: Path) -> None:
    call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl")
    process = subprocess.Popen(
        [sys.executable, "-m", "judgekit", "view", "l.jsonl", "--no-browser"],
        cwd=files,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[1]
        with urllib.request.urlopen(url.partition("#")[0]) as page:
            assert b"judgekit" in page.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    finally:
        process.kill()
        process.communicate()


def test_the_browser_s_arguments_hold_no_secret(files: Path) -> None:
    call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl")
    browser = files / "browser"
    browser.write_text('#!/bin/sh\necho "$1" > opened; cat "${1#file://}" >> opened\n')
    browser.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "judgekit", "view", "l.jsonl"],
        cwd=files, stdout=subprocess.PIPE, text=True, env={**os.environ, "BROWSER": str(browser)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[1]
        opened = files / "opened"
        deadline = time.monotonic() + 20
        while not (opened.exists() and url in opened.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        argument, page = opened.read_text().split("\n", 1)
        assert argument.startswith("file://")
        assert url in page
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert not Path(argument.removeprefix("file://")).exists()


def test_replay_with_other_weights(files: Path) -> None:
    call(files, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl", "--ledger", "l.jsonl")
    (files / "other.yaml").write_text(CONFIG.replace("correct: 0.9, brief: 0.1", "correct: 0.5, brief: 0.5"))
    done = call(files, "replay", "l.jsonl", "--reward", "other.yaml", "--out", "new.jsonl")
    assert done.returncode == 0
    assert "3 rewards recomputed, 0 changed" in done.stdout
    rows = [json.loads(line) for line in (files / "new.jsonl").read_text().splitlines()]
    rows.sort(key=lambda row: row["index"])
    assert [row["reward"] for row in rows] == [1.0, 0.0, None]
    assert rows[0]["contributions"] == {"correct": 0.5, "brief": 0.5, "residual": 0.0}
    assert [row["was"] for row in rows] == [1.0, 0.0, None]


@pytest.mark.parametrize("way", ["replay", "compare"])
def test_a_grader_with_other_settings_than_the_grades_that_are_paid_is_said(files: Path, way: str) -> None:
    call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl")
    for changed in (False, True):
        text = CONFIG.replace("hard_max: 20", "hard_max: 30") if changed else CONFIG
        (files / "other.yaml").write_text(text.replace("correct: 0.9", "correct: 0.8"))
        done = call(files, way, "l.jsonl", "--reward", "other.yaml", "--json")
        said = "other.yaml has other settings of brief than the ledger's grades are of"
        assert (said in done.stderr) is changed, done


def test_a_report_tells_costs_where_a_price_is_known(files: Path) -> None:
    write(files / "l.jsonl", some(4))
    told = json.loads(call(files, "report", "l.jsonl", "--json").stdout)["costs"]
    assert (told["prompt_tokens"], told["usd"]) == (6000, None)
    options = ("--price-in", "1", "--price-out", "100", "--price-cached", "0.5", "--json", "--force")
    told = json.loads(call(files, "report", "l.jsonl", *options).stdout)["costs"]
    assert told["graders"]["judge"]["usd"] == told["usd"] == pytest.approx(0.003 + 0.0015 + 0.004)
    refused(
        call(files, "report", "l.jsonl", "--price-in", "1", "--force"),
        "give --price-in and --price-out",
        files,
    )


def test_compare_shows_what_other_weights_change(files: Path) -> None:
    """README: `replay` with other weights, then `compare`."""
    call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "a.jsonl")
    (files / "other.yaml").write_text(CONFIG.replace("correct: 0.9, brief: 0.1", "correct: 0.1, brief: 0.1"))
    done = call(files, "replay", "a.jsonl", "--reward", "other.yaml", "--ledger", "b.jsonl")
    assert done.returncode == 0, done.stderr
    told = json.loads(call(files, "compare", "a.jsonl", "b.jsonl", "--json").stdout)
    assert told["pairs"] == 3
    assert told["rewards_changed"] >= 1
    assert {g["scores_moved"] for g in told["graders"].values()} == {0}
    assert call(files, "report", "b.jsonl").returncode == 0


def test_compare_with_other_rewards_needs_no_second_ledger(files: Path) -> None:
    call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "a.jsonl")
    other = CONFIG.replace("correct: 0.9, brief: 0.1", "correct: 0.1, brief: 0.1")
    (files / "other.yaml").write_text(other)
    call(files, "replay", "a.jsonl", "--reward", "other.yaml", "--ledger", "b.jsonl")
    two = json.loads(call(files, "compare", "a.jsonl", "b.jsonl", "--json").stdout)
    one = json.loads(call(files, "compare", "a.jsonl", "--reward", "other.yaml", "--json").stdout)
    assert (one.pop("reward"), one["after"].pop("ledger")) == ("other.yaml", "other.jsonl")
    del two["after"]["ledger"]
    assert one == two
    done = call(files, "compare", "a.jsonl", "--reward", "other.yaml", "--out", "c.html")
    assert "cosine of GRPO's advantages" in done.stdout
    assert done.returncode == 0, done.stderr
    done = call(files, "compare", "a.jsonl", "--reward", "other.yaml", "--reward", "reward.yaml")
    assert "other.yaml" in done.stdout
    assert re.search(r"reward\.yaml +[\d.]+ +0 +1\.000", done.stdout)


def test_compare_does_not_guess_grades_that_were_not_asked(files: Path) -> None:
    gated = (
        CONFIG[: CONFIG.index("reward:")] + "reward: {gate: {if: correct >= 1, then: brief, otherwise: 0}}\n"
    )
    (files / "gated.yaml").write_text(gated)
    call(files, "grade", "gated.yaml", "rollouts.jsonl", "--ledger", "a.jsonl")
    done = call(files, "compare", "a.jsonl", "--reward", "reward.yaml")
    assert done.returncode == 2
    assert re.search(
        r"reward\.yaml: the ledger holds no grade of 'brief' for 2 of 3 rollouts, whose gate there \(correct >= 1\) was not "
        r"passed, and this reward needs it: judgekit compare --grade asks for it",
        done.stderr,
    )
    call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "b.jsonl")
    asked = json.loads(
        call(files, "compare", "a.jsonl", "--reward", "reward.yaml", "--grade", "--json").stdout
    )
    both = json.loads(call(files, "compare", "a.jsonl", "b.jsonl", "--json").stdout)
    assert asked["gradient"]["cosine"] == both["gradient"]["cosine"]
    assert asked["after"]["reward_mean"] == both["after"]["reward_mean"]


def test_compare_tells_of_damaged_lines(files: Path) -> None:
    call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "a.jsonl")
    (files / "b.jsonl").write_bytes((files / "a.jsonl").read_bytes()[:-20])
    assert "warning: b.jsonl: skipped 1 line(s)" in call(files, "compare", "a.jsonl", "b.jsonl").stdout


def exported(folder: Path, name: str) -> list[dict[str, Any]]:
    """Export the folder's ledger to a file, and read that as a data set is read."""
    done = call(folder, "export", "l.jsonl", name)
    assert (done.returncode, done.stderr) == (0, "")
    assert "16 rollouts" in done.stdout
    if name.endswith("parquet"):
        rows: list[dict[str, Any]] = (
            pytest.importorskip("pyarrow.parquet").read_table(folder / name).to_pylist()
        )
        return rows
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


@pytest.mark.parametrize("name", ["o.parquet", "o.jsonl"])
def test_a_ledger_becomes_a_flat_table(tmp_path: Path, name: str) -> None:
    for step, tags in ((1, {"step": 1, "policy": "a"}), (2, {"step": 2, "more": [1], "seed": 2**64})):
        write(tmp_path / "l.jsonl", some(8, step=step), **tags)
    rows = exported(tmp_path, name)
    assert list(rows[0]) == [
        "run", "tag.step", "tag.policy", "tag.more", "tag.seed", "index", "id", "group", "data_source", "prompt", "response",
        "ground_truth", "reward", "status", "raw_reward", "grade.length", "grade.length.is", "grade.length.why",
        "grade.judge", "grade.judge.is", "grade.judge.why",
    ]  # fmt: skip
    assert all(list(row) == list(rows[0]) for row in rows)
    assert [row["tag.step"] for row in rows] == [1] * 8 + [2] * 8
    assert rows[8]["tag.seed"] == str(2**64)
    assert [(row["tag.policy"], row["tag.more"]) for row in rows[7:9]] == [("a", None), (None, "[1]")]
    reading = read_ledger(tmp_path / "l.jsonl")
    entries = [reading.entries[i] for run in reading.runs() for i in run]
    assert [row["index"] for row in rows] == [*range(8), *range(8)]
    assert [row["reward"] for row in rows] == [entry.reward for entry in entries]
    assert [row["response"] for row in rows] == [entry.response for entry in entries]
    assert [row["status"] for row in rows[:3]] == ["scored", "masked", "masked"]
    assert rows[1]["grade.judge"] is None
    assert "the server is down" in rows[1]["grade.judge.why"]


def test_a_ledgers_parquet_has_types_also_where_a_column_is_empty(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write(tmp_path / "l.jsonl", some(8)[1:2], texts=False, step=1.5)
    done = call(tmp_path, "export", "l.jsonl", "o.parquet")
    assert "warning: the ledger holds no texts of 1 rollout" in done.stdout
    types = {field.name: str(field.type) for field in parquet.read_schema(tmp_path / "o.parquet")}
    assert (types["reward"], types["grade.judge"], types["response"]) == ("double", "double", "string")
    assert (types["index"], types["tag.step"]) == ("int64", "double")
    (row,) = parquet.read_table(tmp_path / "o.parquet").to_pylist()
    assert (row["prompt"], row["response"], row["ground_truth"], row["reward"]) == (None,) * 4


def test_a_ledger_goes_to_standard_output(tmp_path: Path) -> None:
    write(tmp_path / "l.jsonl", some(4))
    done = call(tmp_path, "export", "l.jsonl", "-")
    assert [json.loads(line)["index"] for line in done.stdout.splitlines()] == [0, 1, 2, 3]
