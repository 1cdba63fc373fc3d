"""Grading on a Ray cluster: the command, the pipeline's stage, groups that are scattered, actors that die."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from judgekit import ConfigError, DataError, JudgekitError

from .test_blocks import rows, write

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")
import pyarrow.parquet as pq  # noqa: E402

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(300),
]  # Ray's own warnings, and its start
RULES = """
graders: {correct: final_answer, brief: {use: length, soft_max: 10, hard_max: 20}}
reward: {weighted: {correct: 0.9, brief: 0.1}}
runner: {transform: center}
"""
MORTAL = """
import os, signal
from judgekit import grader

@grader
def mortal(response: str, id: str) -> float:
    if id == "r200":
        try:
            os.close(os.open(os.environ.get("DEATH", "DEATH_FILE"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return 1.0
        os.kill(os.getpid(), signal.SIGKILL)
    return 1.0
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    context = ray.init(
        address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False
    )
    yield context.address_info["address"]
    ray.shutdown()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "reward.yaml").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def expected(data: list[dict[str, Any]]) -> dict[str, float]:
    raw = {row["id"]: 0.9 * (row["response"] == f"\\boxed{{{row['ground_truth']}}}") + 0.1 for row in data}
    members: dict[Any, list[str]] = {}
    for row in data:
        members.setdefault(row["group"], []).append(row["id"])
    return {i: raw[i] - sum(map(raw.__getitem__, ids)) / len(ids) for ids in members.values() for i in ids}


def rewards(folder: Path) -> dict[str, float]:
    found = [row for path in folder.glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    made = {row["id"]: row["reward"] for row in found}
    assert len(made) == len(found)
    return made


def judgekit(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "judgekit", *args], cwd=cwd, capture_output=True, text=True, timeout=110
    )


def test_the_command_grades_every_row_once_also_where_groups_are_scattered(cluster: str, here: Path) -> None:
    data = rows(4000)
    random.Random(3).shuffle(data)
    write(here / "rollouts", data, files=3, row_group=500)
    command = ("grade", "reward.yaml", "rollouts/*.parquet", "--out", "graded", "--ray", "--address", cluster)
    done = judgekit(*command, "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["rollouts"], told["groups"], told["statuses"]) == (4000, 1000, {"scored": 4000})
    assert rewards(here / "graded") == pytest.approx(expected(data))
    indices = {
        row["index"]: row["id"]
        for path in (here / "graded").glob("*.parquet")
        for row in pq.read_table(path, columns=["index", "id"]).to_pylist()
    }
    assert [indices[i] for i in range(4000)] == [row["id"] for row in data]
    assert not (here / "graded" / ".judgekit").exists()

    again = judgekit(*command, cwd=here)
    assert (again.returncode, "--resume goes on with them" in again.stderr) == (2, True)
    resumed = judgekit(*command, "--resume", cwd=here)
    assert resumed.returncode == 0
    assert "nothing is left to grade" in resumed.stdout


def test_an_actor_that_dies_costs_no_row(cluster: str, here: Path) -> None:
    from judgekit.data import grade_job, plan_job

    (here / "mortal_grader.py").write_text(MORTAL.replace("DEATH_FILE", str(here / "died")))
    config = RULES.replace("graders: {", 'graders: {mortal: "mortal_grader:mortal", ')
    (here / "reward.yaml").write_text(config.replace("weighted: {", "weighted: {mortal: 0, "))
    data = rows(800)
    write(here / "rollouts", data)
    job = plan_job("reward.yaml", "rollouts", "graded", block_rows=64)
    assert sum(one.rollouts for one in grade_job(job, concurrency=1)) == 800
    assert (here / "died").exists()
    assert rewards(here / "graded") == pytest.approx(expected(data))


def test_a_block_that_always_ends_its_actor_ends_the_job_and_nothing_else(cluster: str, here: Path) -> None:
    from judgekit.data import grade_job, plan_job

    (here / "doomed").touch()
    (here / "doomed_grader.py").write_text(
        "import os, signal\nfrom judgekit import grader\n\n@grader\ndef mortal(response: str, id: str) -> float:\n"
        f"    if id == 'r200' and os.path.exists({str(here / 'doomed')!r}):\n        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return 1.0\n"
    )
    config = RULES.replace("graders: {", 'graders: {mortal: "doomed_grader:mortal", ')
    (here / "reward.yaml").write_text(config.replace("weighted: {", "weighted: {mortal: 0, "))
    data = rows(800)
    write(here / "rollouts", data)
    job = plan_job("reward.yaml", "rollouts", "graded", block_rows=64)
    with pytest.raises(JudgekitError, match="has died 5 times .*--resume"):
        list(grade_job(job, concurrency=2))
    (here / "doomed").unlink()
    kept = {path.name: path.stat().st_mtime_ns for path in (here / "graded").glob("*.parquet")}
    assert kept
    job = plan_job("reward.yaml", "rollouts", "graded", block_rows=64, resume=True)
    list(grade_job(job, concurrency=2))
    assert rewards(here / "graded") == pytest.approx(expected(data))
    assert all((here / "graded" / name).stat().st_mtime_ns == when for name, when in kept.items())


@pytest.mark.parametrize("groups", ["auto", "blocks"])
def test_a_stage_of_a_pipeline_keeps_rows_and_groups_whole(cluster: str, here: Path, groups: Any) -> None:
    from judgekit.data import grade_dataset

    data = rows(400)
    if groups == "auto":
        random.Random(4).shuffle(data)
        dataset = ray.data.from_items(data, override_num_blocks=3)
    else:
        dataset = ray.data.from_items(data, override_num_blocks=4)
    graded = grade_dataset(dataset, "reward.yaml", groups=groups, block_rows=50, concurrency=1)
    found = graded.take_all()
    assert {row["id"]: row["reward"] for row in found} == pytest.approx(expected(data))
    assert len(found) == 400
    assert {row["prompt"] for row in found} == {row["prompt"] for row in data}
    assert set(found[0]) == {
        *data[0],
        *("reward", "status", "raw_reward"),
        *(f"grade.{name}{end}" for name in ("correct", "brief") for end in ("", ".is", ".why")),
    }


def test_large_files_are_scanned_in_the_cluster(
    cluster: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from judgekit.data import distributed, plan_job

    data = rows(400)
    write(here / "rollouts", data, files=3)
    blocks = plan_job("reward.yaml", "rollouts", "here", block_rows=64).blocks
    monkeypatch.setattr(distributed, "SCANNED_HERE", 0)
    assert plan_job("reward.yaml", "rollouts", "there", block_rows=64).blocks == blocks
    (here / "rollouts" / "9.parquet").write_text("no Parquet")
    with pytest.raises(DataError, match=r"9\.parquet: not a Parquet file"):
        plan_job("reward.yaml", "rollouts", "broken")


def test_wrong_calls_are_told_before_anything_is_graded(cluster: str, here: Path) -> None:
    from judgekit.data import grade_dataset, plan_job

    write(here / "rollouts", [{"completion": "x", "prompt": "p", "ground_truth": "1", "group": 1}] * 8)
    with pytest.raises(DataError, match=r"0\.parquet, row 1: .*--map response=completion"):
        plan_job("reward.yaml", "rollouts", "graded")
    with pytest.raises(ConfigError, match="choose another folder for the results"):
        plan_job("reward.yaml", "rollouts", "rollouts")
    with pytest.raises(ConfigError, match="'auto', 'shuffle', 'blocks' or 'rows'"):
        grade_dataset(ray.data.from_items([{"response": "x"}]), "reward.yaml", groups="none")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("rollouts",), "writes Parquet files into a folder: give one with --out"),
        (("-", "--out", "x"), "reads Parquet files, not -"),
        (("rollouts", "--out", "x", "--report", "r.html"), "--report reads one ledger"),
        (("nowhere/*.parquet", "--out", "x"), "there is no Parquet file"),
        (("rollouts", "--out", "s3://b/x"), "--out is a folder of a file system that all nodes"),
    ],
)
def test_wrong_commands_are_one_sentence(
    cluster: str, here: Path, args: tuple[str, ...], message: str
) -> None:
    write(here / "rollouts", rows(8))
    done = judgekit("grade", "reward.yaml", *args, "--ray", "--address", cluster, cwd=here)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_what_the_documentation_shows_runs(cluster: str, here: Path) -> None:
    page = (ROOT / "docs" / "data.md").read_text()
    write(here / "rollouts", rows(64))
    (command,) = re.findall(r"^judgekit (grade .*--ray)$", page, re.MULTILINE)
    args = [part.strip("'") for part in command.split()]
    done = judgekit(*args, "--address", cluster, cwd=here)
    assert done.returncode == 0, done.stderr
    blocks = re.findall(r"```python ray\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    # Ray's workers find relative paths where the cluster was started
    start = "import ray\nray.init('local', num_cpus=2, include_dashboard=False, logging_level='ERROR')\n"
    program = start + "\n".join(map(textwrap.dedent, blocks))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=here,
        capture_output=True,
        text=True,
        timeout=110,
        env={**os.environ},
    )
    assert done.returncode == 0, done.stderr
    assert "64 rollouts graded" in done.stdout
    assert list((here / "good").glob("*.parquet"))
