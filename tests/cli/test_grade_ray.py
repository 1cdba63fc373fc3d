"""`judgekit grade --ray`: what it asks of the cluster and tells of the blocks, with a stand-in for the cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from judgekit import Failed, Graded, GradingRunner, JudgeUnavailable, Rollout, Usage, grader
from judgekit.cli import grade_ray
from judgekit.data.job import Outcome
from judgekit.judges.engines.ray import judge as ray_judge
from judgekit.metrics import Counts

from .in_process import call, refused


@grader
def half(response: str) -> Any:
    if response == "down":
        return Failed("JudgeUnavailable", "it is down")
    return Graded(len(response) / 4, usage=Usage(1, 20, 3, 4))


def outcome(name: str, *responses: str, **fields: Any) -> Outcome:
    """A block of one group, with what became of it."""
    runner = GradingRunner({"half": half}, missing_reward="mask")
    rollouts = [Rollout(prompt=name, response=response, group=name) for response in responses]
    results = runner.run_sync(rollouts)
    counts = Counts()
    counts.merge(runner.metrics.counts)
    assert len(results) == len(responses)
    return Outcome(name, len(responses), counts, **fields)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, files: Path) -> dict[str, Any]:
    """Stands in for Ray; holds what was asked of it, and the outcomes of blocks that it gives."""
    seen: dict[str, Any] = {"outcomes": [], "rows": [3, 2], "finished": 0}

    def plan(config: Path, rollouts: str, to: Path, **options: Any) -> Any:
        seen.update(config=config, rollouts=rollouts, to=to, **options)
        blocks = [SimpleNamespace(rows=rows) for rows in seen["rows"]]
        return SimpleNamespace(blocks=blocks, unfinished=lambda: blocks[seen["finished"] :])

    def grade(job: Any, *, concurrency: int | None) -> Iterator[Outcome]:
        seen["concurrency"] = concurrency
        for one in seen["outcomes"]:
            if isinstance(one, BaseException):
                raise one
            yield one

    module: Any = ModuleType("judgekit.data.distributed")
    module.plan_job, module.grade_job = plan, grade
    monkeypatch.setitem(sys.modules, "judgekit.data.distributed", module)
    monkeypatch.setattr(ray_judge, "connect", lambda address: seen.update(address=address))
    return seen


GRADE = ("grade", "reward.yaml", "rows.parquet", "--ray", "--out", "graded")


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.split("\n\n")[1].splitlines()]


def test_it_tells_what_became_of_all_blocks(cluster: dict[str, Any], files: Path) -> None:
    cluster["outcomes"] = [
        outcome("a", "x", "xx", "down", failed=True, known=1),
        Outcome("b", 4),  # finished before
        outcome("c", "xx", "xx"),
    ]
    done = call(files, *GRADE)
    assert (done.returncode, done.stderr) == (0, "")
    assert "grading 5 of 5 rows in 2 blocks …\n" in done.stdout
    assert table(done.stdout) == [
        ["grader", "graded", "mean", "std", "abstained", "skipped", "failed"],
        ["half", "4", "0.438", "0.108", "0", "0", "1"],
    ]
    assert "\n5 rollouts in 2 groups, " in done.stdout
    assert " s: 4 scored, 1 masked\n" in done.stdout
    assert "warning: grader 'half' failed on 1 of 5 rollouts (JudgeUnavailable × 1)\n" in done.stdout
    assert "grades failed in 1 blocks: --resume asks for these grades again\n" in done.stdout
    assert done.stdout.endswith("graded rollouts  graded\n")


def test_what_is_asked_of_the_cluster(cluster: dict[str, Any], files: Path) -> None:
    cluster["outcomes"], cluster["finished"] = [outcome("a", "x")], 1
    done = call(
        files, *GRADE, "--address", "ray://x", "--concurrency", "3", "--map", "response=text", "--limit", "9",
        "--ledger", "kept", "--resume", "--force",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "grading 2 of 5 rows in 2 blocks …\n" in done.stdout
    assert done.stdout.endswith("graded rollouts  graded\nledgers          kept\n")
    assert (cluster["address"], cluster["concurrency"]) == ("ray://x", 3)
    asked = ("config", "rollouts", "to", "columns", "limit", "ledger", "resume", "force")
    assert [cluster[name] for name in asked] == [
        Path("reward.yaml"), "rows.parquet", Path("graded"), {"response": "text"}, 9, Path("kept"), True, True,
    ]  # fmt: skip


def test_the_summary_as_json_is_alone_on_standard_output(cluster: dict[str, Any], files: Path) -> None:
    cluster["outcomes"] = [outcome("a", "x", "xx", "down", failed=True, known=2), outcome("c", "xx", "xx")]
    done = call(files, *GRADE, "--json")
    told = json.loads(done.stdout)
    assert told.pop("seconds") >= 0
    assert told == {
        "rollouts": 5, "groups": 2, "blocks": 2, "failing_blocks": 1, "known_rollouts": 2,
        "statuses": {"scored": 4, "masked": 1}, "zero_variance_groups": 1,
        "graders": {
            "half": {
                "graded": 4, "mean": pytest.approx(0.4375), "std": pytest.approx(0.10825, abs=1e-5), "abstained": 0, "skipped": 0, "failed": 1,
            }
        },
        "usage": {"calls": 4, "prompt_tokens": 80, "cached_tokens": 12, "completion_tokens": 16},
        "warnings": told["warnings"],
    }  # fmt: skip
    assert any("failed on 1 of 5" in text for text in told["warnings"])
    assert "grading 5 of 5 rows" in done.stderr
    cluster["outcomes"] = [outcome("a", "down")]
    told = json.loads(call(files, *GRADE, "--json").stdout)
    assert (told["graders"]["half"]["mean"], told["graders"]["half"]["std"]) == (None, None)


@pytest.mark.parametrize(
    ("outcomes", "says"),
    [
        ([outcome("a", "down")], "judgekit: no rollout could be scored\n"),
        (
            [outcome("a", "x", excess="half failed too often"), outcome("b", "x", excess="more")],
            "judgekit: half failed too often (and so in 2 blocks)\n",
        ),
        ([JudgeUnavailable("the cluster is gone")], "judgekit: the cluster is gone\n"),
    ],
)
def test_what_is_no_success(cluster: dict[str, Any], files: Path, outcomes: Sequence[Any], says: str) -> None:
    cluster["outcomes"] = outcomes
    done = call(files, *GRADE)
    assert (done.returncode, done.stderr) == (1, says)


def test_a_job_that_is_finished(cluster: dict[str, Any], files: Path) -> None:
    cluster["rows"] = []
    done = call(files, *GRADE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "graded is finished: nothing is left to grade\ngraded rollouts  graded\n"
    cluster["rows"], cluster["outcomes"] = [4], [Outcome("a", 4)]
    assert call(files, *GRADE).returncode == 0  # all blocks were finished by another call


def test_an_interrupted_job_says_how_to_go_on(cluster: dict[str, Any], files: Path) -> None:
    cluster["outcomes"] = [KeyboardInterrupt()]
    done = call(files, *GRADE)
    assert done.returncode == 130
    assert "stopped: finished blocks are in graded; --resume goes on from there\n" in done.stdout


def test_progress_is_told_where_there_is_no_terminal(
    cluster: dict[str, Any], files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster["outcomes"], cluster["rows"] = (
        [outcome("a", "x", "x"), outcome("b", "x"), outcome("c", "x")],
        [2, 1, 1],
    )
    times = iter((0.0, 29.0, 30.0, 59.0))
    monkeypatch.setattr(grade_ray.time, "monotonic", lambda: next(times))
    done = call(files, *GRADE)
    assert [line for line in done.stdout.splitlines() if line.startswith("graded ") and " of " in line] == [
        "graded 3 of 4 (75%), 0.1 per second"
    ]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("rows.parquet --ray", "--ray writes Parquet files into a folder: give one with --out"),
        ("rows.parquet --ray --out -", "--ray writes Parquet files into a folder: give one with --out"),
        ("- --ray --out o", "--ray reads Parquet files, not -: give their path, glob, folder or URI"),
        ("hf:org/data --ray --out o", "--ray reads Parquet files, not hf:org/data"),
        ("r.parquet --ray --out o --skip-bad-rows", "--skip-bad-rows is not for --ray"),
        ("r.parquet --ray --out o --report r.html", "--report reads one ledger: with --ray, give --ledger"),
        ("r.parquet --ray --out o --record r.jsonl", "--record hears the judges of this process"),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_wrong_calls_of_grade_on_ray(files: Path, args: str, says: str) -> None:
    refused(files, f"grade reward.yaml {args}", says)
