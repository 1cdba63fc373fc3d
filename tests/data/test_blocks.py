"""Blocks hold whole groups, and a job's results are the same however often and by whomever its blocks are graded."""

from __future__ import annotations

import errno
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgekit import ConfigError, DataError
from judgekit.config import load_config
from judgekit.data.blocks import (
    Block,
    BlockReader,
    keyed_tables,
    parquet_files,
    plan,
    rows_and_places,
    scan,
    stand_together,
)
from judgekit.data.job import BlockGrader, Job, Settings, check_same, files_of, prepare

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

REWARD = """
graders:
  correct: {use: final_answer}
  flaky: {use: "tests.data.flaky_grader:flaky"}
reward: {weighted: {correct: 1.0, flaky: 1.0}}
runner: {transform: center}
"""


def rows(count: int, size: int = 4) -> list[dict[str, Any]]:
    return [
        {
            "id": f"r{i}",
            "group": f"g{i // size}",
            "prompt": f"{i // size}?",
            "ground_truth": str(i // size % 5),
            "response": f"\\boxed{{{i % 5}}}",
        }
        for i in range(count)
    ]


def write(folder: Path, data: list[dict[str, Any]], *, files: int = 3, row_group: int = 7) -> list[str]:
    folder.mkdir(exist_ok=True)
    per = -(-len(data) // files)
    for number in range(files):
        part = data[number * per : (number + 1) * per]
        pq.write_table(pa.Table.from_pylist(part), folder / f"{number}.parquet", row_group_size=row_group)
    return parquet_files(str(folder))


def read(blocks: list[Block]) -> list[list[str]]:
    reader = BlockReader()
    return [[r.id for r in rows_and_places(reader.read(block), {})[0]] for block in blocks]


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=20),
    files=st.integers(1, 4),
    row_group=st.integers(1, 11),
    block=st.integers(1, 17),
    taken=st.integers(0, 10_000),
)
def test_blocks_are_a_partition_into_whole_groups(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    files: int,
    row_group: int,
    block: int,
    taken: int,
) -> None:
    data = [
        {"id": f"{g}-{i}", "group": g, "response": "x"} for g, size in enumerate(sizes) for i in range(size)
    ]
    paths = write(tmp_path_factory.mktemp("in"), data, files=min(files, len(data)), row_group=row_group)
    scans = [scan(path) for path in paths]
    assert stand_together(scans)
    planned = plan(scans, rows=block)
    found = read(planned)
    assert [id_ for ids in found for id_ in ids] == [row["id"] for row in data]
    groups = [{id_.partition("-")[0] for id_ in ids} for ids in found]
    assert sum(map(len, groups)) == len(set().union(*groups))
    assert all(len(ids) >= block for ids in found[:-1])
    assert len({b.name for b in planned}) == len(planned)
    # any subset of the blocks, as a resumed job reads them
    some = [b for i, b in enumerate(planned) if taken >> i & 1]
    assert read(some) == [ids for i, ids in enumerate(found) if taken >> i & 1]


def test_a_group_that_comes_back_is_noticed_and_a_copy_by_group_mends_it(tmp_path: Path) -> None:
    data = rows(40)
    random.Random(1).shuffle(data)
    scans = [scan(path) for path in write(tmp_path / "in", data)]
    assert not stand_together(scans)
    start, tables = 0, []
    for one in scans:
        tables += keyed_tables(one.path, start)
        start += one.rows
    copy = pa.concat_tables(tables).sort_by("judgekit.group")
    (tmp_path / "copy").mkdir()
    pq.write_table(copy, tmp_path / "copy" / "0.parquet")
    made = [scan(str(tmp_path / "copy" / "0.parquet"))]
    assert stand_together(made)
    reader = BlockReader()
    for block in plan(made, rows=8):
        rollouts, places = rows_and_places(reader.read(block), {})
        assert [data[place]["id"] for place in places] == [r.id for r in rollouts]
        assert all(not r.extra for r in rollouts)


def test_groups_are_told_by_prompt_and_truth_without_a_column_and_by_a_path_into_one(tmp_path: Path) -> None:
    data = [{"response": "x", "prompt": "p", "ground_truth": str(i // 3)} for i in range(9)]
    (path,) = write(tmp_path / "a", data, files=1)
    assert list(scan(path).lengths or ()) == [3, 3, 3]
    assert scan(path, by_prompt=False).lengths is None
    assert [b.rows for b in plan([scan(path, by_prompt=False)], rows=4)] == [4, 4, 1]
    nested = [{"response": "x", "extra_info": {"index": i // 2}} for i in range(6)]
    (path,) = write(tmp_path / "b", nested, files=1)
    assert list(scan(path, {"group": "extra_info.index"}).lengths or ()) == [2, 2, 2]


@pytest.mark.parametrize("row", [{"responses": ["a", "b"]}, {"chosen": "a", "rejected": "b"}])
def test_a_row_of_several_responses_is_a_group_with_a_number_of_its_own(
    row: dict[str, Any], tmp_path: Path
) -> None:
    paths = write(tmp_path / "in", [{"prompt": "p", **row}] * 5, files=2)
    found = [rows_and_places(BlockReader().read(b), {}) for b in plan([scan(p) for p in paths], rows=2)]
    assert [r.group for rollouts, _ in found for r in rollouts] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [place for _, places in found for place in places] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_a_limit_takes_whole_groups(tmp_path: Path) -> None:
    scans = [scan(path) for path in write(tmp_path / "in", rows(40))]
    assert sum(b.rows for b in plan(scans, rows=8, limit=10)) == 12


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"response": "a", "group": 1}, {"response": "b", "group": None}], "some rows have no 'group'"),
        (
            [{"response": "a", "prompt": "p"}, {"response": None, "prompt": "p"}],
            "0.parquet, row 2: 'response' is null",
        ),
    ],
)
def test_wrong_rows_are_named(tmp_path: Path, data: list[dict[str, Any]], message: str) -> None:
    (path,) = write(tmp_path / "in", data, files=1)
    with pytest.raises(DataError, match=message):
        scan(path)


def test_what_is_no_parquet_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no Parquet file"):
        parquet_files(str(tmp_path / "*.parquet"))
    (tmp_path / "x.parquet").write_text("{}")
    with pytest.raises(DataError, match=r"x\.parquet: not a Parquet file"):
        scan(str(tmp_path / "x.parquet"))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    (tmp_path / "reward.yaml").write_text(REWARD)
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    scans = [scan(path) for path in write(tmp_path / "in", rows(40))]
    out = str(tmp_path / "out")
    assert prepare(out, resume=False, force=False) is None
    made = Job(
        config=load_config(tmp_path / "reward.yaml"),
        settings=Settings(grading="digest", block_rows=8),
        out=out,
        files=files_of(scans),
        blocks=plan(scans, rows=8),
    )
    made.work.mkdir()
    made.describe()
    return made


def asked(tmp_path: Path) -> list[str]:
    return (tmp_path / "asked").read_text().split()


def results(job: Job) -> list[dict[str, Any]]:
    return [row for path in sorted(job.folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


async def test_every_row_has_one_result_and_nothing_else_is_left(job: Job, tmp_path: Path) -> None:
    grader = BlockGrader(job)
    outcomes = await grader.grade(job.blocks)
    job.end()
    assert sum(one.rollouts for one in outcomes) == 40
    found = results(job)
    assert [row["index"] for row in found] == list(range(40))
    assert [row["id"] for row in found] == [f"r{i}" for i in range(40)]
    right = [float(i % 5 == i // 4 % 5) for i in range(40)]
    means = [sum(right[i // 4 * 4 :][:4]) / 4 for i in range(40)]
    assert [row["reward"] for row in found] == pytest.approx(
        [r - m for r, m in zip(right, means, strict=True)]
    )
    assert not job.work.exists()
    assert json.loads((job.folder / "judgekit.json").read_text())["finished"] is True
    # a call that Ray makes again changes nothing
    before = {path: path.stat().st_mtime_ns for path in job.folder.iterdir()}
    (job.work / "journal").mkdir(parents=True)
    assert [one.counts for one in await grader.grade(job.blocks)] == [None] * len(job.blocks)
    assert {path: path.stat().st_mtime_ns for path in job.folder.iterdir() if path != job.work} == before
    assert len(asked(tmp_path)) == 40


async def test_a_failure_is_no_reward_and_is_asked_again_by_resuming(job: Job, tmp_path: Path) -> None:
    down = tmp_path / "asked.down"
    down.touch()
    first, *others = job.blocks
    (failed,) = await BlockGrader(job).grade([first])
    assert failed.failed
    assert {row["reward"] for row in results(job)} == {None}
    assert {row["status"] for row in results(job)} == {"excluded"}
    assert {row["grade.flaky"] for row in results(job)} == {None}
    down.unlink()
    await BlockGrader(job).grade(others)
    job.end()  # it holds all rows, and is not finished
    assert job.unfinished() == [first]
    (again,) = await BlockGrader(job).grade(job.unfinished())
    assert (again.failed, again.known) == (False, 8)  # `correct` was known
    job.end()
    assert None not in {row["reward"] for row in results(job)}
    assert sorted(asked(tmp_path)) == sorted(
        [f"r{i}" for i in range(8)] * 2 + [f"r{i}" for i in range(8, 40)]
    )


async def test_a_full_disk_costs_no_grade(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a kill, the grades are in the block's journal."""
    block = job.blocks[0]

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pyarrow.parquet.write_table", full)
        (outcome,) = await BlockGrader(job).grade([block])
    assert "No space left on device): make room, and --resume" in str(outcome.error)
    assert job.unfinished() == list(job.blocks)
    (outcome,) = await BlockGrader(job).grade([block])
    assert (outcome.known, outcome.error) == (8, None)
    assert sorted(asked(tmp_path)) == [f"r{i}" for i in range(8)]
    assert len(results(job)) == 8
    assert job.unfinished() == list(job.blocks[1:])


async def test_ledgers_of_finished_blocks_are_kept_on_request(job: Job, tmp_path: Path) -> None:
    import msgspec

    from judgekit.ledger.reader import read_ledger

    kept = msgspec.structs.replace(job, ledger=str(tmp_path / "ledgers"))
    await BlockGrader(kept).grade(kept.blocks)
    kept.end()
    entries = read_ledger(tmp_path / "ledgers").entries
    assert {entry.id for entry in entries} == {f"r{i}" for i in range(40)}
    assert all(entry.response for entry in entries)


def test_a_job_without_all_results_is_no_success(job: Job) -> None:
    from judgekit import JudgekitError

    with pytest.raises(JudgekitError, match="5 of 5 blocks have no results: --resume"):
        job.end()


def test_a_folder_that_another_node_does_not_see_is_an_error(job: Job) -> None:
    (job.folder / "judgekit.json").unlink()
    with pytest.raises(ConfigError, match="all nodes of the cluster share"):
        BlockGrader(job)


def test_a_folder_is_never_overwritten_or_mixed(job: Job, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--resume goes on with them, --force deletes them"):
        prepare(job.out, resume=False, force=False)
    manifest = prepare(job.out, resume=True, force=False)
    assert manifest is not None
    scans = [scan(path) for path in parquet_files(str(tmp_path / "in"))]
    check_same(manifest, job.settings, scans, job.out)
    with pytest.raises(ConfigError, match="graders, judges or reward changed"):
        check_same(manifest, Settings(grading="other", block_rows=8), scans, job.out)
    with pytest.raises(ConfigError, match="other files"):
        check_same(manifest, job.settings, scans[:1], job.out)
    assert prepare(job.out, resume=False, force=True) is None
    assert list(job.folder.iterdir()) == []
    (job.folder / "notes.txt").touch()
    with pytest.raises(ConfigError, match=r"holds other files \(notes\.txt\)"):
        prepare(job.out, resume=False, force=True)
    with pytest.raises(ConfigError, match="is a file"):
        prepare(str(tmp_path / "reward.yaml"), resume=False, force=False)
    with pytest.raises(ConfigError, match="all nodes of the cluster share"):
        prepare("s3://bucket/out", resume=False, force=False)
