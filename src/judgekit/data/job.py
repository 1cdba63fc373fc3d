"""A job: files of rollouts to a folder of results, a block of whole groups at a time.

    DIR/judgekit.json                 what is graded, and how
    DIR/block-0000012-ab12….parquet   the results of a block, written whole; its name is given by its rows and the settings
    DIR/.judgekit/journal/…           grades of blocks in the making, and of those in which something failed

A block is finished when its file is there and its journal is not. Nothing here knows how blocks are spread over
processes; see `judgekit.data.distributed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
from msgspec import Struct

from judgekit.config import RewardConfig
from judgekit.data.blocks import Block, BlockReader, Scan, rows_and_places
from judgekit.data.files import need_pyarrow
from judgekit.data.result_files import results_frame
from judgekit.errors import ConfigError, DataError, FailureRateError, JudgekitError
from judgekit.ledger.jsonl import json_line
from judgekit.ledger.output_files import whole_file
from judgekit.ledger.reader import read_ledger
from judgekit.ledger.writer import Ledger
from judgekit.metrics import Counts
from judgekit.replay import known_grades
from judgekit.types import Failed, RewardResult, Rollout

MANIFEST = "judgekit.json"
WORK = ".judgekit"
_AT_ONCE = 2
"""Blocks that a process has in hand: one is read, or ends, while another is graded."""


class Settings(Struct, frozen=True, kw_only=True):
    """What the results of a job depend on, besides its files."""

    grading: str
    """Digest of graders, judges and reward."""
    columns: Mapping[str, str] = {}
    block_rows: int
    limit: int | None = None


class Manifest(Struct, frozen=True, kw_only=True):
    """What stands in a job's folder about it."""

    settings: Settings
    files: list[tuple[str, int, int]]
    """Path, rows and uncompressed bytes of each input."""
    blocks: int = 0
    rows: int = 0
    finished: bool = False


class Job(Struct, frozen=True, kw_only=True):
    """Blocks, and how and where to grade them. Can be pickled."""

    config: RewardConfig
    settings: Settings
    out: str
    ledger: str | None = None
    """A folder for the ledgers of finished blocks, with texts."""
    files: Sequence[tuple[str, int, int]] = ()
    blocks: Sequence[Block] = ()
    """Empty if the job is finished."""
    fingerprints: Mapping[str, str] = {}
    """Of the graders' settings where the job was planned: the files that they name may have other times on other nodes."""

    @property
    def folder(self) -> Path:
        return Path(self.out)

    @property
    def work(self) -> Path:
        return self.folder / WORK

    def target(self, block: Block) -> Path:
        return self.folder / f"{block.name}.parquet"

    def journal(self, block: Block) -> Path:
        return self.work / "journal" / f"{block.name}.jsonl"

    def unfinished(self) -> list[Block]:
        """Blocks without results, and those in which a grade failed for no fault of the rollout."""
        there = set(os.listdir(self.folder))
        journals = self.work / "journal"
        begun = set(os.listdir(journals)) if journals.is_dir() else set()
        return [
            block
            for block in self.blocks
            if f"{block.name}.parquet" not in there or f"{block.name}.jsonl" in begun
        ]

    def without_blocks(self) -> Job:
        return msgspec.structs.replace(self, blocks=(), files=())

    def describe(self, *, finished: bool = False) -> None:
        """Write the manifest."""
        made = Manifest(
            settings=self.settings,
            files=list(self.files),
            blocks=len(self.blocks),
            rows=sum(block.rows for block in self.blocks),
            finished=finished,
        )
        with whole_file(self.folder / MANIFEST) as file:
            file.write(json_line(made))

    def end(self) -> None:
        """Check that every block has its results, and take the working files away if nothing is left to do."""
        there = set(os.listdir(self.folder))
        missing = [block.name for block in self.blocks if f"{block.name}.parquet" not in there]
        if missing:
            raise JudgekitError(
                f"{self.out}: {len(missing)} of {len(self.blocks)} blocks have no results: --resume grades them"
            )
        if self.blocks and not self.unfinished():
            shutil.rmtree(self.work, ignore_errors=True)
            self.describe(finished=True)


def prepare(out: str, *, resume: bool, force: bool) -> Manifest | None:
    """Make the folder for a job's results; return the manifest of the job that it holds, to be resumed.

    Raises ConfigError if it holds something else, or a job and neither *resume* nor *force* (which deletes it).
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", out):  # a Path of s3://… has one slash
        raise ConfigError(f"{out}: --out is a folder of a file system that all nodes of the cluster share")
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{out} is a file: results of blocks need a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}") from None
    manifest = folder / MANIFEST
    ours = {MANIFEST, WORK, *(p.name for p in folder.glob("block-*.parquet") if manifest.exists())}
    if foreign := sorted(p.name for p in folder.iterdir() if p.name not in ours):
        raise ConfigError(f"{out} holds other files ({foreign[0]}): choose a folder of its own")
    if not manifest.exists():
        return None
    if resume:
        try:
            return msgspec.json.decode(manifest.read_bytes(), type=Manifest)
        except msgspec.DecodeError as error:
            raise DataError(f"{manifest} cannot be read ({error})") from None
    if not force:
        raise ConfigError(f"{out} holds results: --resume goes on with them, --force deletes them")
    manifest.unlink()  # first, so that what is left of a deletion is no job
    for path in folder.glob("block-*.parquet"):
        path.unlink()
    shutil.rmtree(folder / WORK, ignore_errors=True)
    return None


def check_same(manifest: Manifest, settings: Settings, scans: Sequence[Scan], out: str) -> None:
    """Raise ConfigError if a job that is resumed is another one."""
    for name, what in (
        ("grading", "the graders, judges or reward"),
        ("columns", "--map"),
        ("limit", "--limit"),
        ("block_rows", "the size of blocks"),
    ):
        if getattr(manifest.settings, name) != getattr(settings, name):
            raise ConfigError(
                f"{out} cannot be resumed: {what} changed since it was begun; choose another folder"
            )
    if manifest.files != files_of(scans):
        raise ConfigError(f"{out} cannot be resumed: the rollouts are other files; choose another folder")


def files_of(scans: Sequence[Scan]) -> list[tuple[str, int, int]]:
    return [(one.path, one.rows, one.bytes) for one in scans]


class Outcome(Struct):
    """What became of a block."""

    block: str
    rollouts: int
    counts: Counts | None = None
    """None if the block was finished before."""
    known: int = 0
    """Rollouts with grades that the journal held."""
    failed: bool = False
    """Whether a grade failed for no fault of its rollout, so that resuming tries it again."""
    excess: str = ""
    """What `max_failure_rate` does not allow."""
    error: JudgekitError | None = None
    """What ended it."""


class BlockGrader:
    """Grades blocks of a job with one runner. Raises ConfigError if this machine does not see the job's folder."""

    def __init__(self, job: Job) -> None:
        need_pyarrow("grading Parquet files")
        if not (job.folder / MANIFEST).exists():
            raise ConfigError(
                f"{job.out} is not there on {os.uname().nodename}: --out is a folder of a file system that all nodes of "
                "the cluster share"
            )
        self.job = job
        self.runner = job.config.build(ledger=None, fingerprints=job.fingerprints)
        self._reader = BlockReader()
        (job.work / "journal").mkdir(parents=True, exist_ok=True)

    async def grade(self, blocks: Sequence[Block]) -> list[Outcome]:
        """Grade blocks, which best follow one another in their files, a few at once."""
        outcomes: list[Outcome] = []
        reading = asyncio.Lock()
        left: Iterator[Block] = iter(blocks)

        async def work() -> None:
            for block in left:
                try:
                    outcomes.append(await self._grade(block, reading))
                except JudgekitError as error:
                    outcomes.append(Outcome(block.name, 0, error=error))
                    return

        async with anyio.create_task_group() as tasks:
            for _ in range(min(_AT_ONCE, len(blocks))):
                tasks.start_soon(work)
        self._reader.close()
        return outcomes

    async def close(self) -> None:
        await self.runner.close()

    async def _grade(self, block: Block, reading: asyncio.Lock) -> Outcome:
        target, journal = self.job.target(block), self.job.journal(block)
        if target.exists() and not journal.exists():  # the call that graded it was lost, and is made again
            return Outcome(block.name, block.rows)
        async with reading:
            parts = await asyncio.to_thread(self._reader.read, block)
        rollouts, places = await asyncio.to_thread(rows_and_places, parts, self.job.settings.columns)
        del parts
        ledger = Ledger(journal, texts=self.job.ledger is not None)
        runner = self.runner.separate(ledger)
        tags = {"block": block.name}
        known: Sequence[Mapping[str, Any]] = ()
        count, excess = 0, ""
        if journal.exists():
            reading_ = await asyncio.to_thread(read_ledger, journal, strict=False)
            found = known_grades(reading_, runner, rollouts)
            known, count = found.grades, found.rollouts
        try:
            results: Sequence[RewardResult] = await runner.run(rollouts, tags=tags, known=known)
        except FailureRateError as error:  # the alarm costs the exit code, not the results
            results, excess = error.results, str(error)
        finally:
            await asyncio.to_thread(ledger.close)
        if self.job.ledger is not None and ledger.lost:
            raise JudgekitError(f"{ledger.lost} lines are not in {journal}: make room, and --resume")
        failed = any(
            isinstance(grade, Failed) and grade.cause == "infrastructure"
            for result in results
            for grade in result.grades.values()
        )
        await asyncio.to_thread(self._write, block, rollouts, results, places)
        if not failed:
            self._put_away(journal)
        counts = runner.metrics.counts
        return Outcome(block.name, len(rollouts), counts, count, failed, excess)

    def _write(
        self,
        block: Block,
        rollouts: Sequence[Rollout],
        results: Sequence[RewardResult],
        places: Sequence[int],
    ) -> None:
        from pyarrow.parquet import write_table

        placed = [
            msgspec.structs.replace(result, index=place)
            for result, place in zip(results, places, strict=True)
        ]
        table = results_frame(rollouts, placed, "arrow", grades=tuple(self.runner.spec.graders))
        part = self.job.work / f"{block.name}-{secrets.token_hex(4)}.part"
        try:
            write_table(table, part)
            os.replace(part, self.job.target(block))
        except OSError as error:
            part.unlink(missing_ok=True)
            raise JudgekitError(
                f"cannot write {self.job.target(block)} ({error.strerror or error}): make room, and --resume"
            ) from None

    def _put_away(self, journal: Path) -> None:
        if self.job.ledger is None:
            journal.unlink(missing_ok=True)
            return
        folder = Path(self.job.ledger)
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # a node that was thought dead was faster
            shutil.move(journal, folder / journal.name)
