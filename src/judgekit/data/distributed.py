"""Grades data sets of any size on a Ray cluster.

`plan_job` and `grade_job` take Parquet files to a folder of Parquet files, a block of whole groups at a time. A block is
read, graded and written by one actor, and its file appears whole, under a name that the input determines: a block that
is graded again, because its actor or node died, changes nothing. `grade_dataset` is a stage of your own Ray Data pipeline.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import pickle
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from judgekit.config import RewardConfig, load_config
from judgekit.data import blocks
from judgekit.data.actors import JobActors
from judgekit.data.blocks import BLOCK_ROWS, KEY, Block, BlockReader, Scan
from judgekit.data.files import need_pyarrow
from judgekit.data.job import Job, Outcome, Settings, check_same, files_of, prepare
from judgekit.data.result_files import results_frame
from judgekit.data.rollout_files import hint_at_columns, rollouts_from
from judgekit.errors import ConfigError, DataError

logger = logging.getLogger("judgekit")

Groups = Literal["auto", "shuffle", "blocks", "rows"]

ACTOR_CPUS = 0.5
"""CPUs that an actor asks of Ray: half of what it uses, so that the other nodes have room for it when its node dies."""
SCANNED_HERE = 64 << 20
"""Bytes of files that the planning process scans by itself."""


def plan_job(
    config: RewardConfig | str | os.PathLike[str],
    paths: str | Sequence[str],
    out: str | os.PathLike[str],
    *,
    columns: Mapping[str, str] | None = None,
    block_rows: int = BLOCK_ROWS,
    limit: int | None = None,
    ledger: str | os.PathLike[str] | None = None,
    resume: bool = False,
    force: bool = False,
) -> Job:
    """Plan the grading of Parquet files: which rows make a block.

    *paths*: files, globs, folders, URIs (s3://…). *out*: a folder that all nodes see, for the results. *columns*: as in
    `read_rollouts`. *block_rows*: rows of a block, at least. *limit*: grade only the blocks of the first rows.
    *ledger*: a folder for a ledger of each block, with texts. Where a grade or reward depends on the group, and rows of
    a group do not stand together, the files are sorted by group first, into a copy beside the results.

    The process must be connected to a Ray cluster. Raises ConfigError and DataError.
    """
    ray = _ray()
    loaded = config if isinstance(config, RewardConfig) else load_config(config)
    runner = loaded.build(ledger=None)
    if loaded.ledger is not None:
        logger.warning(
            "the section 'ledger' of the configuration is for one process: give a folder for ledgers"
        )
    settings = Settings(
        grading=runner.spec.digest,
        columns=dict(columns or {}),
        block_rows=block_rows,
        limit=limit,
    )
    files = blocks.parquet_files(paths)
    folder = Path(os.path.abspath(out))
    if inside := [path for path in files if Path(path).is_relative_to(folder)]:
        raise ConfigError(f"{inside[0]} is read and lies in {out}: choose another folder for the results")
    manifest = prepare(os.fspath(out), resume=resume, force=force)
    group_matters = runner.needs_group
    scans = _scanned(ray, files, columns, by_prompt=group_matters)
    if manifest is not None:
        check_same(manifest, settings, scans, str(folder))
    job = Job(
        config=loaded,
        settings=settings,
        out=str(folder),
        ledger=None if ledger is None else os.path.abspath(ledger),
    )
    described = files_of(scans)
    if manifest is not None and manifest.finished:
        return job
    if group_matters and not blocks.stand_together(scans):
        scans = _sorted_copy(ray, scans, job.work / "sorted", columns)
    planned = blocks.plan(scans, rows=block_rows, limit=limit, salt=settings.grading)
    if not planned:
        raise DataError(f"{paths} holds no rollouts")
    _look_at(planned[0], columns)
    job = Job(
        config=loaded,
        settings=settings,
        out=job.out,
        ledger=job.ledger,
        files=described,
        blocks=planned,
        fingerprints=loaded.fingerprints(),
    )
    job.work.mkdir(exist_ok=True)
    job.describe()
    return job


def grade_job(
    job: Job, *, concurrency: int | None = None, actor_cpus: float = ACTOR_CPUS
) -> Iterator[Outcome]:
    """Grade the blocks of *job* that are not finished, and yield what became of each, in any order.

    *concurrency*: actors, each with a runner of its own; by default one for each CPU of the cluster that is free now. *actor_cpus*: what
    each asks of Ray. Raises what ends the grading: ConfigError, DataError, MissingRewardError, and JudgekitError if a
    block has no results at the end.
    """
    ray = _ray()
    todo = job.unfinished()
    if todo:
        actors = max(1, min(concurrency or _free_cpus(ray), len(todo)))
        for outcome in JobActors(ray, job, todo, actors=actors, cpus=actor_cpus).outcomes():
            if outcome.error is not None:
                raise outcome.error
            yield outcome
    job.end()


def grade_dataset(
    dataset: Any,
    config: RewardConfig | str | os.PathLike[str],
    *,
    columns: Mapping[str, str] | None = None,
    groups: Groups = "auto",
    concurrency: int | None = None,
    block_rows: int = BLOCK_ROWS,
    actor_cpus: float = ACTOR_CPUS,
) -> Any:
    """Grade the rows of a Ray Dataset, one rollout each; returns a Dataset, as lazy as its other stages.

        graded = grade_dataset(ray.data.read_parquet("s3://rollouts/"), "reward.yaml")
        graded.filter(lambda row: row["reward"] is not None).write_parquet("graded/")

    Rows keep their columns and get `reward` (null where there is none), `status`, `raw_reward`, and for each grade
    `grade.NAME`, `grade.NAME.is` and `grade.NAME.why`. *columns*: as in `read_rollouts`. *groups*: "shuffle" brings the
    rows of each group together, which takes a pass of all rows through the object store and a count before it; "blocks"
    takes the data set's own blocks, of which you know that they hold whole groups; "rows" ignores groups; "auto" is
    "shuffle" if a grade or reward depends on the group, else "rows". *concurrency*: actors, by default one for each
    CPU that is free now. *block_rows*: about as many are graded together.

    Raises ConfigError; grading raises what a runner raises. Retries and failed grades: as in the runner's settings.
    """
    _ray()
    import ray.data

    loaded = config if isinstance(config, RewardConfig) else load_config(config)
    runner = loaded.build(ledger=None)
    if groups not in ("auto", "shuffle", "blocks", "rows"):
        raise ConfigError(f"groups is 'auto', 'shuffle', 'blocks' or 'rows', not {groups!r}")
    if groups == "auto":
        groups = "shuffle" if runner.needs_group else "rows"
    actors = concurrency or max(1, _free_cpus(ray))
    how: dict[str, Any] = {
        "fn_constructor_args": (pickle.dumps((loaded, dict(columns or {}))),),
        "batch_format": "pyarrow",
        "compute": ray.data.ActorPoolStrategy(min_size=1, max_size=actors),
        "num_cpus": actor_cpus,
    }
    if groups != "shuffle":
        return dataset.map_batches(_DatasetActor, batch_size=block_rows if groups == "rows" else None, **how)
    count = max(1, math.ceil(dataset.count() / block_rows))
    keyed = dataset.map_batches(
        _with_bucket, fn_args=(count, columns), batch_format="pyarrow", batch_size=None
    )
    # a bucket of several groups, and not a group, is graded at once: judges are asked about many at a time
    return keyed.groupby(KEY, num_partitions=min(count, 4 * actors)).map_groups(_DatasetActor, **how)


class _DatasetActor:
    """One actor of `grade_dataset`."""

    def __init__(self, options: bytes) -> None:
        config, self._columns = pickle.loads(options)
        self._runner = config.build()

    def __call__(self, table: Any) -> Any:
        if KEY in table.column_names:
            table = table.drop_columns([KEY])
        rollouts = rollouts_from(table, columns=self._columns)
        if len(rollouts) != table.num_rows:
            raise DataError("a row is one rollout here: make rows of `responses` first (Dataset.flat_map)")
        made = results_frame(
            rollouts, self._runner.run_sync(rollouts), "arrow", grades=tuple(self._runner.spec.graders)
        )
        for name in made.column_names:
            if name in ("reward", "status", "raw_reward") or name.startswith("grade."):
                if name in table.column_names:
                    table = table.drop_columns([name])
                table = table.append_column(name, made.column(name))
        return table


def _with_bucket(table: Any, count: int, columns: Mapping[str, str] | None) -> Any:
    """Give each row the number of its group's bucket."""
    import pyarrow as pa

    rollouts = rollouts_from(table, columns=columns)
    return table.append_column(KEY, pa.array([blocks.group_digest(r) % count for r in rollouts], pa.int64()))


def _sorted_copy(
    ray: Any, scans: Sequence[Scan], folder: Path, columns: Mapping[str, str] | None
) -> list[Scan]:
    """Sort files by group, into *folder*; what a killed run has copied in part is made again."""
    done = folder / "done"
    if not done.exists():
        from ray import data

        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        logger.info("the rows of a group do not stand together: sorting %d files into %s", len(scans), folder)
        starts = [sum(one.rows for one in scans[:i]) for i in range(len(scans))]
        items = [{"path": one.path, "start": start} for one, start in zip(scans, starts, strict=True)]
        with _quiet(ray):
            rows = data.from_items(items, override_num_blocks=len(items)).map_batches(
                _keyed_rows, fn_args=(columns,), batch_size=1, batch_format="pyarrow"
            )
            rows.sort(KEY).write_parquet(str(folder))
        done.touch()
    made = _scanned(ray, blocks.parquet_files(str(folder)))
    made.sort(key=lambda one: one.keys[0] if one.keys else -1)
    if sum(one.rows for one in made) != sum(one.rows for one in scans) or not blocks.stand_together(made):
        raise DataError(f"{folder} is no sorted copy of the input: delete it, and --resume")
    return made


def _keyed_rows(batch: Any, columns: Mapping[str, str] | None) -> Iterator[Any]:
    for path, start in zip(batch.column("path").to_pylist(), batch.column("start").to_pylist(), strict=True):
        yield from blocks.keyed_tables(path, start, columns)


def _look_at(block: Block, columns: Mapping[str, str] | None) -> None:
    """Read one block here, so that a wrong column is found before an actor is started."""
    reader = BlockReader()
    rollouts, _ = blocks.rows_and_places(reader.read(block), columns)
    reader.close()
    hint_at_columns(rollouts, block.pieces[0].path)


def _scanned(
    ray: Any, files: Sequence[str], columns: Mapping[str, str] | None = None, *, by_prompt: bool = True
) -> list[Scan]:
    """Scan files: here if they are small, for a worker of Ray takes seconds to start, else in the cluster."""
    if all(map(os.path.isfile, files)) and sum(map(os.path.getsize, files)) <= SCANNED_HERE:
        return [blocks.scan(path, columns, by_prompt=by_prompt) for path in files]
    remote = ray.remote(blocks.scan)
    try:
        return list(ray.get([remote.remote(path, columns, by_prompt=by_prompt) for path in files]))
    except ray.exceptions.RayTaskError as error:  # an error of ours without Ray's words around it
        if isinstance(error.cause, ConfigError | DataError):
            raise error.cause from None
        raise


def _ray() -> Any:
    need_pyarrow("grading with Ray Data")
    try:
        import ray
    except ImportError:
        raise ConfigError("ray is not here: install judgekit-rl[ray,data]") from None
    if not ray.is_initialized():
        raise ConfigError("this process is not connected to a Ray cluster: call ray.init() first")
    return ray


def _free_cpus(ray: Any) -> int:
    """CPUs of the cluster that nobody holds: a judge's actors have theirs."""
    return int(ray.available_resources().get("CPU", 0))


@contextlib.contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Leave progress to us: no bars, and no lines about what Ray Data executes."""
    context, log = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
    before, level = context.enable_progress_bars, log.level
    context.enable_progress_bars = False
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        context.enable_progress_bars = before
        log.setLevel(level)
