"""`judgekit grade`: a file of rollouts through a reward.yaml."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import anyio
import typer

from judgekit.cli.console import fail, not_kept, out, prints_aside, run, say
from judgekit.errors import ConfigError
from judgekit.execution.heap import freeze_heap

if TYPE_CHECKING:
    from judgekit.cli.load import LoadWatch
    from judgekit.errors import FailureRateError
    from judgekit.judges.layers.recording import Recording
    from judgekit.ledger.writer import Ledger
    from judgekit.replay import Known
    from judgekit.run.runner import GradingRunner
    from judgekit.types import Abstained, RewardResult, Rollout


def grade(
    config: Annotated[Path, typer.Argument(help="The reward.yaml.")],
    rollouts: Annotated[
        str,
        typer.Argument(
            help="The rollouts: a file (.jsonl, .json, .csv, .parquet; .gz or .zst behind it), a folder, hf:NAME:SPLIT, "
            "or - for JSON lines from standard input."
        ),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The file for the graded rollouts, in the format of its name; - for standard output.",
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Keep every grade in this file, with texts, for reports and replay; in a folder, if it ends with /.",
        ),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here (needs a ledger).")] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            help="Keep the judges' replies in this file, for tests of the reward (docs/testing.md)."
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--map", help="Which column is which field: response=completion,ground_truth=meta.answer."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Grade only the first N rollouts.", min=1)] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave out rows that cannot be read, and say which.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Take the grades that the ledger holds; ask for the others and failed ones."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    json_summary: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON, and all else to stderr.")
    ] = False,
    ray: Annotated[
        bool,
        typer.Option(
            "--ray",
            help="Grade Parquet files (paths, globs, s3://…) on a Ray cluster, into Parquet files in the folder --out.",
        ),
    ] = False,
    address: Annotated[
        str | None, typer.Option(help="With --ray: the cluster's address; local starts one. [default: auto]")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(help="With --ray: actors that grade. [default: one for each free CPU]", min=1),
    ] = None,
) -> None:
    """Grade rollouts and print a summary."""
    if ray:
        from judgekit.cli.grade_ray import grade_on_ray

        _check_for_ray(skip_bad_rows=skip_bad_rows, report=report, record=record)
        grade_on_ray(
            config,
            rollouts,
            to,
            address=address or "auto",
            concurrency=concurrency,
            columns=columns_of(columns),
            limit=limit,
            ledger=None if ledger is None else Path(ledger),
            resume=resume,
            force=force,
            json_summary=json_summary,
        )
        return
    if resume and record is not None:
        raise ConfigError(
            "--resume asks judges only for what the ledger lacks: --record needs a run of its own"
        )
    for option, value in (("--address", address), ("--concurrency", concurrency)):
        if value is not None:
            raise ConfigError(f"{option} is for --ray")
    from judgekit.data import read_rollouts

    targets = {"--out": to, "--report": report, "--record": record}
    runner, recording = _runner(
        config, Path(rollouts), targets, ledger, force=force, json_summary=json_summary
    )
    for option, given in (("--report", report is not None), ("--resume", resume)):
        if given and runner.ledger is None:
            raise ConfigError(f"{option} reads the ledger: give --ledger, too")
    batch = read_rollouts(rollouts, columns=columns_of(columns), limit=limit, skip_bad_rows=skip_bad_rows)
    tags: dict[str, Any] = {}
    known = _known(runner, batch, tags) if resume else None
    appends = known is None and runner.ledger is not None and _holds_something(runner.ledger.path)
    with recorded(recording):
        graded = _grade(runner, batch, to, known, tags)
    _tell(runner, graded, known, as_json=json_summary)
    _tell_files(runner.ledger, targets, appended=appends)
    if lost := not_kept(runner.ledger, _RESUME):
        fail(lost, code=1)
    if graded.excess is not None:
        fail(graded.excess, code=1)
    if not any(result.status == "scored" for result in graded.results):
        fail("no rollout could be scored", code=1)


def _check_for_ray(*, skip_bad_rows: bool, report: Path | None, record: Path | None) -> None:
    if skip_bad_rows:
        raise ConfigError(
            "--skip-bad-rows is not for --ray: a cluster refuses a block with a row that it cannot read"
        )
    if report is not None:
        raise ConfigError("--report reads one ledger: with --ray, give --ledger, and then judgekit report")
    if record is not None:
        raise ConfigError("--record hears the judges of this process: it is not for --ray")


def _runner(
    config: Path,
    source: Path,
    targets: Mapping[str, Path | None],
    ledger: str | None,
    *,
    force: bool,
    json_summary: bool,
) -> tuple[GradingRunner, Recording | None]:
    """Build the runner, and what records its judges, once it is clear that all *targets* can be written."""
    from judgekit.config import load_runner
    from judgekit.ledger.output_files import STDOUT, check_ledger, check_targets
    from judgekit.ledger.writer import Ledger

    for option, target in targets.items():
        if option == "--record" and target == STDOUT:
            raise ConfigError("--record writes a file that tests read: give it a name")
        if json_summary and target == STDOUT:
            raise ConfigError(f"--json and {option} - both write to standard output: give {option} a file")
    if ledger is not None:
        check_ledger(Path(ledger), inputs=[config, source])  # before anything is imported or built
    overrides: dict[str, Any] = {} if ledger is None else {"ledger": Ledger(ledger, texts=True)}
    alone = json_summary or STDOUT in targets.values()
    recording = None
    if targets["--record"] is not None:
        recording, overrides["recordings"] = recording_of(config, targets["--record"])
    with prints_aside(alone):
        runner = load_runner(config, progress=True, **overrides)
    kept = None if runner.ledger is None else runner.ledger.path
    if kept is not None:
        check_ledger(kept, inputs=[config, source])
    check_targets(list(targets.values()), inputs=[config, source, kept], force=force)
    if alone:
        out.file = sys.stderr  # the summary must not stand among the rows
    return runner, recording


def recording_of(config: Path, record: Path) -> tuple[Recording, dict[str, Recording]]:
    """Return a new recording in the file *record*, and that for each judge of the reward.yaml."""
    from judgekit.config import load_config
    from judgekit.judges.layers.recording import Recording

    loaded = load_config(config)
    if not loaded.judges:
        raise ConfigError(f"{config}: there are no judges whose replies --record could keep")
    recording = Recording(record, loaded.fingerprints(), new=True)
    return recording, dict.fromkeys(loaded.judges, recording)


@contextlib.contextmanager
def recorded(recording: Recording | None) -> Iterator[None]:
    """Write what the judges replied, also if the run ends early: they were paid for it."""
    from judgekit.ledger.output_files import whole_file

    early = True
    try:
        yield
        early = False
    finally:
        if recording is not None and (recording.judges() or not early):
            with whole_file(recording.path) as file:
                file.writelines(recording.lines())
            if early:
                typer.echo(f"what the judges replied until then is in {recording.path}", err=True)


class _Graded(NamedTuple):
    results: Sequence[RewardResult]
    seconds: float
    loads: list[LoadWatch]
    warnings: list[str]
    excess: FailureRateError | None
    """Raised after all was graded, if too many grades failed."""


def _grade(
    runner: GradingRunner,
    batch: Sequence[Rollout],
    to: Path | None,
    known: Known | None,
    tags: dict[str, Any],
) -> _Graded:
    """Grade the rollouts, and write them to *to*."""
    from judgekit.cli.load import watched
    from judgekit.cli.logs import diverted
    from judgekit.data.result_files import results_file
    from judgekit.errors import FailureRateError

    async def work() -> tuple[Sequence[RewardResult], float, list[LoadWatch], FailureRateError | None]:
        excess: FailureRateError | None = None
        try:
            await runner.start()
            freeze_heap()
            start = time.perf_counter()
            async with watched(runner.resources, every_s=1.0) as loads:
                try:
                    results: Sequence[RewardResult] = await runner.run(
                        batch, tags=tags, known=known.grades if known is not None else ()
                    )
                except FailureRateError as error:  # the alarm costs the exit code, not the results
                    excess, results = error, error.results
                seconds = time.perf_counter() - start
            return results, seconds, loads, excess
        finally:
            with anyio.CancelScope(shield=True):  # SIGTERM still ends the judges and flushes the ledger
                await runner.close()

    with results_file(to) as write:  # opened before the first judge is asked
        if runner.resources:
            say("starting the judges (a local engine takes about half a minute) …")
        _tell_data(runner, batch)
        say(f"grading {len(batch)} rollouts with {', '.join(runner.graders)} …")
        # the summary shows the warnings, below its table
        with diverted("metrics") as warnings, prints_aside(out.file is sys.stderr):
            # Ctrl-C is left to asyncio, whose second one also stops a rule that blocks the loop
            results, seconds, loads, excess = run(work, signal.SIGTERM, ended=lambda: _saved(runner.ledger))
        write(batch, results)
    return _Graded(results, seconds, loads, warnings, excess)


_ROWS = 100
"""How many rows are looked at for one that has cases."""


def _tell_data(runner: GradingRunner, batch: Sequence[Rollout]) -> None:
    """Say what each grader that reads cases takes those of the first row for."""
    for name, grader in runner.graders.items():
        about: Callable[[Rollout], str | Abstained] | None = getattr(grader, "about_data", None)
        if about is None or not batch:
            continue
        why = ""
        for number, rollout in enumerate(batch[:_ROWS], 1):
            found = about(rollout)
            if isinstance(found, str):
                where = "the first row" if number == 1 else f"row {number}, the first with cases"
                say(f"{name}: in {where}, {found}")
                break
            why = why or found.reason
        else:
            rows = "no row" if len(batch) <= _ROWS else f"none of the first {_ROWS} rows"
            say(f"{name}: {rows} has cases that run; the first one: {why}")


def _tell(runner: GradingRunner, graded: _Graded, known: Known | None, *, as_json: bool) -> None:
    from judgekit.cli import summary
    from judgekit.ledger.jsonl import json_line

    told = (runner.metrics, graded.results, graded.warnings, graded.seconds, graded.loads)
    if as_json:
        figures = summary.as_json(*told)
        figures["known_rollouts"] = known.rollouts if known is not None else 0
        sys.stdout.write(json_line(figures))
    else:
        summary.print_summary(*told)
    say()


def _tell_files(ledger: Ledger | None, targets: Mapping[str, Path | None], *, appended: bool) -> None:
    """Say which files were written, and write the report."""
    from judgekit.ledger.output_files import STDOUT

    to, report = targets["--out"], targets["--report"]
    if to not in (None, STDOUT):
        say(f"graded rollouts  {to}")
    if ledger is not None:
        say(
            f"ledger           {ledger.path}{' (appended: reports count each of its runs)' if appended else ''}"
        )
    if report is not None and ledger is not None:
        from judgekit.report.page import write_report

        write_report(ledger.path, report)
        if report != STDOUT:
            say(f"report           {report}  (open it in a browser)")


def columns_of(given: str | None) -> dict[str, str]:
    """The columns of "field=column,field=column"."""
    found: dict[str, str] = {}
    for pair in given.split(",") if given else ():
        field, equals, column = (part.strip() for part in pair.partition("="))
        if not (field and equals and column):
            raise ConfigError(f"--map: {pair!r} is not field=column, such as response=completion")
        if field in found:
            raise ConfigError(f"--map: {field!r} has two columns, {found[field]} and {column}")
        found[field] = column
    return found


def _known(runner: GradingRunner, batch: Sequence[Rollout], tags: dict[str, Any]) -> Known | None:
    """What the ledger holds of the rollouts; None if there is no ledger yet."""
    from judgekit.ledger.reader import read_ledger
    from judgekit.ledger.schema import RESUMES
    from judgekit.replay import known_grades

    assert runner.ledger is not None
    path = runner.ledger.path
    if not _holds_something(path):
        say(f"there is no ledger at {path} yet: nothing to resume")
        return None
    known = known_grades(read_ledger(path, replaced=True), runner, batch)
    say(f"{path} holds grades of {known.rollouts} of the {len(batch)} rollouts")
    if known.changed:
        say(f"{', '.join(known.changed)}: other settings than in the ledger, and so graded again")
    if known.runs:
        tags[RESUMES] = known.runs
    return known


def _holds_something(path: Path) -> bool:
    return any(path.glob("*.jsonl")) if path.is_dir() else path.is_file() and path.stat().st_size > 0


_RESUME = "make room, and --resume asks only for what is missing (with --force, if --out exists)"


def _saved(ledger: Ledger | None) -> str:
    if ledger is None:
        return "stopped: nothing was written (with --ledger, grades are kept, and --resume goes on)"
    if lost := not_kept(ledger, _RESUME):
        return f"stopped: {lost}"
    return f"stopped: what was graded is in {ledger.path}; --resume goes on from there (with --force, if --out exists)"
