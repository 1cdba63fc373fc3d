"""`judgekit audit`: a second grader looks at a few rollouts of each step, and tells whether the first is being gamed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from judgekit.cli.console import many, one_line, out, prints_aside, run, say

if TYPE_CHECKING:
    from judgekit.evidence.audit_curve import CurvePoint
    from judgekit.evidence.audit_file import AuditFile
    from judgekit.evidence.audit_settings import AuditSettings
    from judgekit.evidence.auditor import Auditor, Steps
    from judgekit.ledger.schema import Spec
    from judgekit.run.runner import GradingRunner

_POLL_S = 0.5
"""How often a growing ledger is looked at."""
_MOST_ROWS = 30
"""Steps that the table shows."""


def audit(
    ledger: Annotated[
        Path, typer.Argument(help="A ledger written by judgekit, with texts: a file or a folder.")
    ],
    config: Annotated[
        Path, typer.Option("--reward", help="The reward.yaml, with the audit grader and its judges.")
    ],
    grader: Annotated[
        str | None, typer.Option(help="The grader that is believed. [default: the file's audit.grader]")
    ] = None,
    watch: Annotated[
        str | None,
        typer.Option(help="The grader that a policy may learn to please. [default: the file's audit.watch]"),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            help="Share of a step's rollouts to audit, half at random, half the best paid. [default: 0.04]"
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Keep reading beside a training, and audit each step once the next one has begun, until Ctrl-C or SIGTERM.",
        ),
    ] = False,
    to: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write the curve to this file: Markdown if it ends with .md, else JSON; - for standard output.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, and all else to stderr.")
    ] = False,
) -> None:
    """Audit the steps of a run with another grader: what was paid though it is wrong, and whether that is an alarm."""
    from judgekit.config import load_config
    from judgekit.errors import ConfigError
    from judgekit.evidence.audit_file import audits_path
    from judgekit.ledger.output_files import STDOUT, check_targets
    from judgekit.ledger.reader import beside

    if as_json and to == STDOUT:
        raise ConfigError("--json and --out - both write to standard output: give --out a file")
    check_targets([to], inputs=[ledger, config, audits_path(ledger), beside(ledger, "curve")], force=force)
    if as_json or to == STDOUT:
        out.file = sys.stderr
    given = {"grader": grader, "watch": watch, "share": share}
    loaded = load_config(config)
    with prints_aside(out.file is sys.stderr):
        try:
            settings = loaded.audit_settings(**{key: one for key, one in given.items() if one is not None})
            if settings is None:
                raise ConfigError(
                    "there is no section audit, such as audit: {grader: careful, watch: judge}: give one, or --grader and --watch"
                )
            runner = loaded.audit_runner(settings.grader)
        except ConfigError as error:
            raise ConfigError(f"{config}: {error}") from None
        work = _Work(ledger, settings, to, as_json=as_json)
        if follow:
            work.follow(runner)
        else:
            work.once(runner)
    work.tell()


class _Work:
    """Audits a ledger and tells what was found."""

    def __init__(self, ledger: Path, settings: AuditSettings, to: Path | None, *, as_json: bool) -> None:
        from judgekit.evidence.auditor import Steps

        self.ledger = ledger
        self.settings = settings
        self.to = to
        self.as_json = as_json
        self.steps: Steps = Steps()
        self.auditor: Auditor | None = None

    def once(self, runner: GradingRunner) -> None:
        from judgekit.errors import DataError
        from judgekit.evidence.audit_file import AuditFile
        from judgekit.ledger.reader import read_ledger

        reading = read_ledger(self.ledger)
        if not reading.entries:
            raise DataError(f"the ledger {self.ledger} holds no rollouts yet")
        self._check_watched(reading.specs)
        self.steps.add(reading.entries)

        async def main() -> None:
            auditor = self._begin(runner, kept)
            for step, entries in self.steps.complete(ended=True):
                await auditor.step(step, entries, reading.specs)

        with AuditFile(self.ledger) as kept:
            self._run(main, runner)

    def follow(self, runner: GradingRunner) -> None:
        from judgekit.evidence.audit_file import AuditFile
        from judgekit.ledger.tail import Tail

        tail = Tail(self.ledger)

        async def main() -> None:
            auditor = self._begin(runner, kept)
            say(f"following {self.ledger}: each step is audited once the next one has begun")
            while True:
                self.steps.add(tail.read())
                for step, entries in self.steps.complete(ended=False):
                    self._check_watched(tail.specs)
                    await auditor.step(step, entries, tail.specs)
                    self._tell_step()
                    if auditor.alarm.raised and self.settings.on_alarm == "stop":
                        return
                await anyio.sleep(_POLL_S)

        with AuditFile(self.ledger) as kept:
            self._run(main, runner)

    def _check_watched(self, specs: Mapping[str, Spec]) -> None:
        from judgekit.errors import DataError

        names = {name for spec in specs.values() for name in spec.graders}
        if self.settings.watch not in names:
            raise DataError(
                f"the ledger has no grades of {self.settings.watch!r}: it has {', '.join(sorted(names)) or 'none'}"
            )

    def _begin(self, runner: GradingRunner, kept: AuditFile) -> Auditor:
        from judgekit.evidence.auditor import Auditor

        self.auditor = Auditor(self.settings, runner, kept)
        return self.auditor

    def _run(self, main: Any, runner: GradingRunner) -> None:
        async def closed() -> None:
            try:
                await main()
            finally:
                with anyio.CancelScope(shield=True):  # a signal still ends the judges
                    await runner.close()

        def ended() -> str:
            done = self.auditor
            if done is None or not done.steps:
                return "stopped: no step was audited to its end; what was asked is kept"
            from judgekit.evidence.audit_curve import alarm_in_words

            self._write()
            self._to_stdout()
            return f"stopped after {many(len(done.steps), 'step')}, {many(done.asked, 'audit')} asked: {alarm_in_words(done)}"

        run(closed, signal.SIGTERM, ended=ended)

    def _tell_step(self) -> None:
        """Say what the last step showed, and keep the curve's file current."""
        from judgekit.evidence.audit_curve import alarm_in_words, point_of

        assert self.auditor is not None
        point = point_of(self.auditor, len(self.auditor.steps) - 1)
        say("  ".join(_told(point)))
        if point.alarm:
            say(alarm_in_words(self.auditor))
        self._write()

    def _write(self) -> None:
        """Write the curve: beside the ledger, where trainers and the report find it, and where it was asked for."""
        from judgekit.evidence.audit_curve import as_json, page
        from judgekit.ledger.jsonl import json_line
        from judgekit.ledger.output_files import STDOUT, whole_file
        from judgekit.ledger.reader import beside

        if self.auditor is None:
            return
        told = json_line(as_json(self.auditor, self.steps.late))
        with whole_file(beside(self.ledger, "curve")) as file:
            file.write(told)
        if self.to not in (None, STDOUT):
            with whole_file(self.to) as file:
                file.write(page(self.auditor) if self.to.suffix == ".md" else told)

    def _to_stdout(self) -> None:
        from judgekit.evidence.audit_curve import as_json
        from judgekit.ledger.jsonl import json_line
        from judgekit.ledger.output_files import STDOUT

        if self.auditor is not None and (self.as_json or self.to == STDOUT):
            sys.stdout.write(json_line(as_json(self.auditor, self.steps.late)))
            sys.stdout.flush()

    def tell(self) -> None:
        """Print the curve, the alarm and the examples; write the files; exit with 1 on an alarm, and 2 if nothing can be said."""
        from judgekit.errors import DataError
        from judgekit.evidence import audit_curve
        from judgekit.ledger.output_files import STDOUT

        audited = self.auditor
        assert audited is not None
        self._write()
        self._to_stdout()
        points = audit_curve.curve(audited)
        if not any(point.audits for point in points):
            why = (
                f", the last one: {one_line(audited.why)}"
                if audited.why
                else f" ({one_line(points[-1].reason)})"
                if points
                else ""
            )
            raise DataError(
                f"none of {many(audited.asked + audited.reused, 'audit')} gave a verdict{why}: nothing can be said of {self.settings.watch}"
            )
        self._print(points)
        if self.to not in (None, STDOUT):
            say(f"curve  {self.to}")
        if audited.alarm.raised:
            raise typer.Exit(1)

    def _print(self, points: Sequence[CurvePoint]) -> None:
        from judgekit.evidence.audit_curve import alarm_in_words, examples
        from judgekit.types import shown_grade

        audited = self.auditor
        assert audited is not None
        say(
            f"{self.settings.watch}, audited by {self.settings.grader}: {many(len(points), 'step')}, "
            f"{many(audited.asked, 'audit')} asked, {audited.reused} known, {audited.failed} failed, {audited.abstained} abstained"
        )
        if audited.failed:
            say(f"  the last failure: {one_line(audited.why)[:300]}")
        if self.steps.late:
            say(
                f"  {many(self.steps.late, 'rollout')} came after the next step had begun, and are in no draw"
            )
        _print_table(points)
        say(alarm_in_words(audited))
        found = examples(audited.steps)
        if found:
            say("best paid, though the audit says wrong:")
        for step, one in found:
            say(
                f"  step {step}, {one.entry.id or f'{one.entry.run} {one.entry.index}'}: {self.settings.watch} {one.score:.4g}, "
                f"{self.settings.grader} {shown_grade(one.grade)}: {one_line(one.entry.response or '')[:100]}"
            )


def _told(point: CurvePoint) -> list[str]:
    from judgekit.evidence.audit_curve import cells

    return [f"{name} {cell}" for name, cell in zip(_COLUMNS, cells(point), strict=True)]


def _print_table(points: Sequence[CurvePoint]) -> None:
    """Print the curve; of a long run, evenly chosen steps, the last one and that of the alarm among them."""
    from rich.table import Table

    from judgekit.evidence.audit_curve import cells

    apart = -(-len(points) // _MOST_ROWS)
    shown = [
        point
        for at, point in enumerate(points)
        if point.alarm or at == len(points) - 1 or at % apart == apart - 1
    ]
    table = Table(box=None, pad_edge=False, header_style="" if os.environ.get("NO_COLOR") else "bold")
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for point in shown:
        table.add_row(*cells(point))
    out.print(table)


_COLUMNS = ("step", "audits", "wrong", "paid, though wrong", "recent", "interval", "line", "log e")
