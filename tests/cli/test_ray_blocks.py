"""`judgekit grade --ray` without a cluster: what it refuses, asks for, prints, and how it ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from judgekit import GradingRunner, JudgeUnavailable, Rollout, grader
from judgekit.cli import grade_ray
from judgekit.data.job import Outcome
from judgekit.metrics import Counts

from .in_process import call, refused

RAY = "grade reward.yaml rows.parquet --ray"


@grader
def one(response: str) -> float:
    if response == "down":
        raise JudgeUnavailable("the judge is down")
    return float(len(response) % 2)


def counts(*responses: str) -> Counts:
    """Counts of one block."""
    rollouts = [Rollout(response=response, group="g") for response in responses]
    made = Counts()
    results = GradingRunner({"one": one}).run_sync(rollouts)
    for result, rollout in zip(results, rollouts, strict=True):
        made.add(result, rollout)
    made.add_group(results, rollouts)
    return made


class Cluster:
    """In place of a Ray cluster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: list[str] = []
        self.planned: list[Any] = []
        self.concurrency: list[int | None] = []
        self.blocks = [SimpleNamespace(rows=rows) for rows in (2, 3)]
        self.outcomes: list[Any] = []
        monkeypatch.setitem(
            sys.modules,
            "judgekit.data.distributed",
            SimpleNamespace(plan_job=self.plan, grade_job=self.grade),
        )
        monkeypatch.setattr("judgekit.judges.engines.ray.judge.connect", self.addresses.append)

    def plan(self, *args: Any, **options: Any) -> Any:
        self.planned.append((args, options))
        return SimpleNamespace(blocks=self.blocks, unfinished=lambda: self.blocks[1:])

    def grade(self, job: Any, *, concurrency: int | None) -> Iterator[Outcome]:
        self.concurrency.append(concurrency)
        for outcome in self.outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (f"{RAY} --out o --skip-bad-rows", "--skip-bad-rows is not for --ray"),
        (f"{RAY} --out o --report r.html", "--report reads one ledger: with --ray, give --ledger"),
        (f"{RAY} --out o --record r.jsonl", "--record hears the judges of this process: it is not for --ray"),
        (RAY, "--ray writes Parquet files into a folder: give one with --out"),
        (f"{RAY} --out -", "--ray writes Parquet files into a folder: give one with --out"),
        ("grade reward.yaml - --ray --out o", "--ray reads Parquet files, not -: give their path"),
        ("grade reward.yaml hf:a/b --ray --out o", "--ray reads Parquet files, not hf:a/b: give their path"),
        (f"{RAY} --out o --concurrency 0", "Invalid value for '--concurrency'"),
        ("grade reward.yaml r.jsonl --address a", "--address is for --ray"),
        ("grade reward.yaml r.jsonl --concurrency 2", "--concurrency is for --ray"),
    ],
)
def test_wrong_calls(tmp_path: Path, cluster: Cluster, args: str, says: str) -> None:
    refused(tmp_path, args, says)
    assert not cluster.planned


def test_blocks_are_graded_and_told_as_one(tmp_path: Path, cluster: Cluster) -> None:
    cluster.outcomes = [
        Outcome("a", 2, counts("a", "bb"), known=1),
        Outcome("b", 3, counts("c", "d", "down"), failed=True),
    ]
    done = call(
        tmp_path, *RAY.split(), "--out", "o", "--ledger", "l", "--address", "head:1", "--concurrency", "3",
        "--map", "response=answer", "--limit", "5", "--resume", "--force",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert cluster.addresses == ["head:1"]
    assert cluster.concurrency == [3]
    assert cluster.planned == [
        (
            (Path("reward.yaml"), "rows.parquet", Path("o")),
            {
                "columns": {"response": "answer"},
                "limit": 5,
                "ledger": Path("l"),
                "resume": True,
                "force": True,
            },
        )
    ]
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[:5] == [
        "grading 3 of 5 rows in 2 blocks …",
        "",
        "grader graded mean std abstained skipped failed",
        "one 4 0.750 0.433 0 0 1",
        "",
    ]
    assert lines[5].startswith("5 rollouts in 2 groups, ")
    assert lines[5].endswith(" s: 4 scored, 1 excluded")
    assert lines[6:] == [
        "warning: grader 'one' failed on 1 of 5 rollouts (JudgeUnavailable × 1)",
        "warning: 1 of 5 rewards are missing (1 excluded)",
        "grades failed in 1 blocks: --resume asks for these grades again",
        "graded rollouts o",
        "ledgers l",
    ]


def test_the_summary_is_alone_on_standard_output(tmp_path: Path, cluster: Cluster) -> None:
    cluster.outcomes = [Outcome("a", 2, counts("a", "c"), known=1), Outcome("b", 1)]
    done = call(tmp_path, *RAY.split(), "--out", "o", "--json")
    assert done.returncode == 0
    told = json.loads(done.stdout)
    assert told.pop("seconds") >= 0
    assert told == {
        "rollouts": 2,
        "groups": 1,
        "blocks": 2,
        "failing_blocks": 0,
        "known_rollouts": 1,
        "statuses": {"scored": 2},
        "zero_variance_groups": 1,
        "graders": {"one": {"graded": 2, "mean": 1.0, "std": 0.0, "abstained": 0, "skipped": 0, "failed": 0}},
        "usage": {"calls": 0, "prompt_tokens": 0, "cached_tokens": 0, "completion_tokens": 0},
        "warnings": [],
    }
    assert done.stderr == "grading 3 of 5 rows in 2 blocks …\ngraded rollouts  o\n"
    assert cluster.addresses == ["auto"]
    assert cluster.concurrency == [None]


def test_a_grader_that_gave_no_score_has_no_mean(tmp_path: Path, cluster: Cluster) -> None:
    cluster.outcomes = [Outcome("a", 1, counts("down"))]
    done = call(tmp_path, *RAY.split(), "--out", "o")
    assert done.returncode == 1
    assert done.stderr == "judgekit: no rollout could be scored\n"
    assert "one 0 – – 0 0 1" in [" ".join(line.split()) for line in done.stdout.splitlines()]
    told = json.loads(call(tmp_path, *RAY.split(), "--out", "o", "--json").stdout)
    assert (told["graders"]["one"]["mean"], told["graders"]["one"]["std"]) == (None, None)


def test_what_is_finished_is_not_graded_again(tmp_path: Path, cluster: Cluster) -> None:
    cluster.blocks = []
    done = call(tmp_path, *RAY.split(), "--out", "o")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "o is finished: nothing is left to grade\ngraded rollouts  o\n"


def test_too_many_failures_exit_with_1_and_keep_the_results(tmp_path: Path, cluster: Cluster) -> None:
    cluster.outcomes = [Outcome("a", 1, counts("a"), excess="too many"), Outcome("b", 1, excess="again")]
    done = call(tmp_path, *RAY.split(), "--out", "o")
    assert (done.returncode, done.stderr) == (1, "judgekit: too many (and so in 2 blocks)\n")
    assert "graded rollouts  o\n" in done.stdout


def test_ctrl_c_says_where_the_finished_blocks_are(tmp_path: Path, cluster: Cluster) -> None:
    cluster.outcomes = [Outcome("a", 2, counts("a", "c")), KeyboardInterrupt()]
    done = call(tmp_path, *RAY.split(), "--out", "o")
    assert done.returncode == 130
    assert done.stdout.endswith("stopped: finished blocks are in o; --resume goes on from there\n")


def test_without_a_terminal_progress_is_a_line_now_and_then(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grade_ray, "TELL_S", 0.0)
    cluster.outcomes = [Outcome("a", 2, counts("a", "c")), Outcome("b", 1, counts("e"))]
    lines = call(tmp_path, *RAY.split(), "--out", "o").stdout.splitlines()
    assert lines[1].startswith("graded 2 of 3 (67%), ")
    assert lines[2].startswith("graded 3 of 3 (100%), ")
    assert lines[2].endswith(" per second")
