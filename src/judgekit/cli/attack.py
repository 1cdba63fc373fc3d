"""`judgekit attack`: what does a reward pay although it should not?"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit.cli.console import fail, not_kept, prints_aside, run, say, visible
from judgekit.errors import ConfigError

if TYPE_CHECKING:
    from judgekit.attack import Hole, Report
    from judgekit.judges.layers.recording import Recording
    from judgekit.ledger.writer import Ledger
    from judgekit.run.runner import GradingRunner

_SHOWN = 3
"""Completions shown of a family."""


def attack(
    reward: Annotated[
        str, typer.Argument(help="A reward.yaml, or a reward function of any trainer: module:function.")
    ],
    rollouts: Annotated[
        str | None,
        typer.Argument(
            help="Your own prompts and references, in a file that `judgekit grade` reads; their responses do not matter. "
            "Without it, judgekit's own rows."
        ),
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--map", help="Which column is which field: ground_truth=meta.answer.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Attack at most this many prompts.", min=1)] = 20,
    judges: Annotated[
        bool,
        typer.Option(
            "--judges", help="Ask the judges, too. Without it, each counts as both ends of its range."
        ),
    ] = False,
    calls: Annotated[
        int, typer.Option(help="With --judges: use at most about so many of their replies.", min=1)
    ] = 5000,
    record: Annotated[
        Path | None,
        typer.Option(help="With --judges: keep what they reply in this file (JSON lines), for tests."),
    ] = None,
    at_most: Annotated[int, typer.Option(help="End with 1 if more certain holes are found.", min=0)] = 0,
    show: Annotated[
        str | None, typer.Option(help="Show one completion with its reward tree, such as hedged/5.")
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="Keep what was graded in this ledger, each completion under its id, for judgekit view."
        ),
    ] = None,
    json_summary: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, and all else to stderr.")
    ] = False,
) -> None:
    """Attack a reward with completions as policies learn to write them, and report what earns although it should not."""
    from judgekit.attack import SHIPPED, find_holes, rows_of
    from judgekit.attack.holes import as_json
    from judgekit.cli.grade import columns_of, recorded
    from judgekit.cli.logs import diverted
    from judgekit.data import read_rollouts
    from judgekit.ledger.jsonl import json_line
    from judgekit.ledger.output_files import check_targets

    if record is not None:
        if not judges:
            raise ConfigError("--record keeps what judges reply: give --judges, too")
        if record.exists():
            raise ConfigError(f"--record: {record} is there already: give another name")
        check_targets([record], inputs=[Path(reward), *map(Path, [rollouts] if rollouts else [])])
    with prints_aside(json_summary):
        with diverted() as warnings:
            runner, recording = _runner(reward, record)
        with diverted():  # what is said of the corpus is no news
            rows, without = list(SHIPPED), 0
            if rollouts is not None:
                found = read_rollouts(rollouts, columns=columns_of(columns))
                rows, without = rows_of(found, most=limit)
                if not rows:
                    raise ConfigError(
                        f"{rollouts}: no prompt has a reference that an attack could be made from: a number, an option's letter, "
                        "LaTeX, a short text, calls, or a program in extra.solution with its entry_point"
                    )
            kept = _new_ledger(ledger, [Path(reward), *map(Path, [rollouts] if rollouts else [])])
            skipped = {"no reference that an attack can be made from": without} if without else {}
            with recorded(recording), contextlib.closing(kept) if kept else contextlib.nullcontext():
                report = run(
                    lambda: find_holes(runner, rows, judges=judges, calls=calls, skipped=skipped, ledger=kept)
                )
    certain = [hole for hole in report.worst() if hole.certain]
    if json_summary:
        sys.stdout.write(json_line(as_json(report)))
    else:
        for text in warnings:
            say(f"warning: {text}")
        _print(reward, report, show)
    if not report.rows:
        fail(
            "no row could be used: give rows of your own data, judgekit attack REWARD rollouts.jsonl"
            if rollouts is None
            else "no row could be used",
            code=2,
        )
    if lost := not_kept(kept, "make room, and attack it again with another --ledger"):
        fail(lost, code=1)
    if len(certain) > at_most:
        raise typer.Exit(1)


def _new_ledger(path: Path | None, inputs: Sequence[Path]) -> Ledger | None:
    """Make the ledger of `--ledger`; None without. Raises ConfigError if it is there already, or is read."""
    from judgekit.ledger.output_files import check_ledger
    from judgekit.ledger.writer import Ledger

    if path is None:
        return None
    check_ledger(path, inputs=inputs)
    if path.exists():
        raise ConfigError(f"--ledger: {path} is there already: give another name")
    return Ledger(path, texts=True)


def _runner(reward: str, record: Path | None) -> tuple[GradingRunner, Recording | None]:
    """Make the reward's runner, and what records its judges."""
    from judgekit.cli.grade import recording_of
    from judgekit.config import load_runner
    from judgekit.graders.reward_functions import from_function
    from judgekit.run.runner import GradingRunner

    if Path(reward).suffix in (".yaml", ".yml", ".json") or Path(reward).exists():
        if record is None:
            return load_runner(reward), None
        recording, recordings = recording_of(Path(reward), record)
        return load_runner(reward, recordings=recordings), recording
    if record is not None:
        raise ConfigError(f"{reward}: a function has no judges whose replies --record could keep")
    module, _, name = reward.partition(":")
    if not name:
        raise ConfigError(f"{reward}: no such file; a function is written module:function")
    sys.path.insert(0, "")  # as `python -m` has it
    import importlib

    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{reward}: {error}") from None
    return GradingRunner({"reward": from_function(function)}), None


def _print(reward: str, report: Report, show: str | None) -> None:
    holes = report.worst()
    if show is not None:
        shown = [hole for hole in holes if hole.id == show]
        for hole in shown:
            _print_one(hole)
        if not shown:
            say(f"{show} is no hole of this reward")
        return
    _print_figures(reward, report)
    if not report.rows:
        return
    _print_kinds(holes)
    if not holes:
        say("  no hole found")
    elif any(hole.certain for hole in holes):
        say()
        _print_cures(holes)


def _print_figures(reward: str, report: Report) -> None:
    """Print what was graded, what it earns, and what was left out."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in report.kinds.items())
    say(f"{reward}: {report.completions} completions on {report.rows} rows ({kinds}), {report.seconds:.1f} s")
    for reason, count in report.skipped.items():
        say(f"  {count} rows not used: {reason}")
    if not report.rows:
        return
    say(
        f"  a right answer earns {report.right:.3g}, an honest wrong one {report.wrong:.3g}, "
        f"no answer at all {'nothing' if report.nothing is None else f'{report.nothing:.3g}'}; "
        f"a wrong one reaches {report.reach or 0.0:.0%} of the range"
    )
    if report.unasked:
        say(
            f"  not asked: {', '.join(report.unasked)} (--judges asks); what depends on them is only possible"
        )
    if report.left_out:
        say(
            f"  {report.left_out} completions have no reward: whether a policy may choose that is the reward's to say"
        )


def _print_kinds(holes: Sequence[Hole]) -> None:
    """Print the holes of each kind: those that are certain one by one, the others counted."""
    from judgekit.attack.holes import WHAT

    for what, meaning in WHAT.items():
        for certain in (True, False):
            found = [hole for hole in holes if hole.what == what and hole.certain == certain]
            if not found:
                continue
            say()
            if certain:
                say(f"{meaning}: {len(found)}")
                _print_families(found)
            else:
                families = Counter(hole.family for hole in found).most_common()
                say(f"{meaning}, if a judge is pleased: {len(found)}")
                say(f"  {', '.join(f'{family} {count}' for family, count in families)}")


def _print_families(holes: Sequence[Hole]) -> None:
    families = Counter(hole.family for hole in holes)
    for family, count in families.items():
        of_it = [hole for hole in holes if hole.family == family]
        for hole in of_it[:_SHOWN]:
            reason = f" ({hole.reason})" if hole.reason else ""
            say(
                f"  {hole.id:18} {hole.paid:7.3g} of {hole.right:.3g}  {hole.term}{reason[:60]}: {_short(hole.response)}"
            )
        if count > _SHOWN:
            say(f"  {family}/…: {count - _SHOWN} more; {of_it[0].why}")


def _print_cures(holes: Sequence[Hole]) -> None:
    certain = [hole for hole in holes if hole.certain]
    empty = sorted(
        {(hole.term, hole.decides) for hole in certain if hole.what in ("nothing paid", "above wrong")}
    )
    for term, decides in empty:
        cure = (
            "it also decides what is right: make it stricter, or pay less for what does not reach it"
            if decides in ("", term)
            else f"let it count only behind the grader that decides what is right, gate: {{if: {decides} > 0, then: …, otherwise: 0}}"
        )
        say(f"{term!r} pays responses that are wrong or empty: {cure}")
    read = sorted({hole.term for hole in certain if hole.what == "as right"})
    for term in read:
        say(
            f"{term!r} takes wrong responses for right ones: judgekit attack … --show ID shows the tree of one; a stricter rule, "
            "`part: answer`, or a format behind a gate closes many"
        )


def _print_one(hole: Hole) -> None:
    from judgekit.attack.holes import WHAT

    say(f"{hole.id}: {WHAT[hole.what]} ({hole.why})")
    for text in (f"prompt: {hole.prompt}", f"response: {hole.response}", hole.explained):
        say(visible(text))


def _short(text: str) -> str:
    shown = visible(json.dumps(text, ensure_ascii=False))
    return shown if len(shown) <= 60 else f"{shown[:40]} … {shown[-16:]}"
