"""What all commands share: sentences on stderr, counts, signals, and what graders print; and the files of servers' logs."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
import typer
from loguru import logger as loguru

from judgekit.cli import console, logs, report
from judgekit.cli.console import fail, many, not_kept, one_line, prints_aside, run
from judgekit.cli.graders import cells
from judgekit.cli.logs import diverted, rotating_file

from .in_process import call, refused


def test_counts_and_lines() -> None:
    assert [many(n, "row") for n in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]
    assert one_line(" a\n\tb\x1b[31m c\u200b ") == "a b [31m c"


def test_an_end_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fail(ValueError("a\nb [bold]"), code=3)
    assert ended.value.code == 3
    assert capsys.readouterr() == ("", "judgekit: a b [bold]\n")


def test_names_between_colons_are_no_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    console.say("rewards:boom: 1:100:2 [bold]")
    with pytest.raises(SystemExit):
        fail("rewards:boom: none", code=1)
    assert capsys.readouterr() == ("rewards:boom: 1:100:2 [bold]\n", "judgekit: rewards:boom: none\n")


def test_lines_that_are_not_in_a_ledger() -> None:
    kept: Any = SimpleNamespace(lost=2, path="l.jsonl")
    assert not_kept(kept, "make room") == (
        "2 lines are not in the ledger l.jsonl, whose disk took no more: make room"
    )
    kept.lost = 0
    assert not_kept(kept, "x") == not_kept(None, "x") == ""


def test_what_graders_print_goes_aside(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with prints_aside(True):
        sys.stdout.write("aside\n")
    with prints_aside(False):
        sys.stdout.write("here\n")
    assert capfd.readouterr() == ("here\n", "aside\n")
    before = os.fstat(1)
    with open(1, "w", closefd=False) as real:
        monkeypatch.setattr(sys, "stdout", real)
        with prints_aside(True):
            os.write(1, b"of a worker\n")  # by its number, as other processes have it
        os.write(1, b"rows\n")
    assert capfd.readouterr() == ("rows\n", "of a worker\n")
    assert os.fstat(1).st_ino == before.st_ino
    monkeypatch.setattr(sys, "stdout", None)
    with prints_aside(True):
        pass


def test_a_signal_ends_a_command_with_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    cleaned = []

    async def work() -> str:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await anyio.sleep_forever()
        finally:
            cleaned.append(True)
        return "never"

    with pytest.raises(typer.Exit) as ended:
        run(work, signal.SIGTERM, ended=lambda: "stopped: it is kept")
    assert ended.value.exit_code == 143
    assert cleaned == [True]
    assert capsys.readouterr().err == "judgekit: stopped: it is kept\n"


def test_a_command_that_ends_by_itself() -> None:
    async def work() -> str:
        return "done"

    async def broken() -> str:
        raise KeyError("x")

    async def interrupted() -> str:
        raise KeyboardInterrupt

    assert run(work, signal.SIGTERM) == "done"
    with pytest.raises(KeyError):
        run(broken, signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        run(interrupted, signal.SIGTERM)


def test_how_wide_the_output_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(closed=False, isatty=lambda: False))
    assert console._width() == 140
    monkeypatch.setenv("COLUMNS", "80")
    assert console._width() is None
    monkeypatch.setenv("COLUMNS", "wide")
    assert console._width() == 140
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(closed=False, isatty=lambda: True))
    assert console._width() is None
    monkeypatch.setattr(sys, "stdout", None)
    assert console._width() == 140


# ---- logs


@pytest.fixture
def sinks() -> Iterator[None]:
    """Remove the sinks that a test adds."""
    core: Any = loguru
    before = set(core._core.handlers)
    yield
    for number in set(core._core.handlers) - before:
        loguru.remove(number)


@pytest.mark.usefixtures("sinks")
def test_lines_of_a_server_go_to_its_file_alone(tmp_path: Path) -> None:
    first, second = rotating_file(tmp_path / "a.log"), rotating_file(tmp_path / "b.log")
    first("one {x} <red>")
    second("two")
    first("three")
    loguru.info("a record of the program")
    assert (tmp_path / "a.log").read_text() == "one {x} <red>\nthree\n"
    assert (tmp_path / "b.log").read_text() == "two\n"


def test_warnings_are_collected_instead_of_logged(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("judgekit")
    with diverted() as found:
        log.warning("w %s", 1)
        log.info("i")
    with diverted("elsewhere") as others:
        log.warning("mine")
    log.warning("after")
    assert (found, others) == (["w 1"], [])
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        "mine",
        "after",
    ]


def test_files_of_logs_are_not_for_people() -> None:
    assert logs._for_people({"extra": {}})  # type: ignore[typeddict-item]
    assert not logs._for_people({"extra": {"file": "x"}})  # type: ignore[typeddict-item]


# ---- the options of a price and of limits


def test_a_price_has_two_parts(files: Path) -> None:
    assert report._price(None, None, None) is None
    made = report._price(1.0, 2.0, 0.5)
    assert (made.input, made.output, made.cached_input) == (1.0, 2.0, 0.5)
    call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl")
    for args in ("--price-in 1", "--price-out 1", "--price-cached 1", "--price-in 1 --price-cached 1"):
        refused(files, f"report l.jsonl {args}", "a price has two parts: give --price-in and --price-out")


def test_limits_of_signals(tmp_path: Path) -> None:
    assert report.read_limits(None) is None
    path = tmp_path / "limits.yaml"
    path.write_text("length: 0.25")
    found = report.read_limits(path)
    assert found is not None
    assert (found.length, found.repetition) == (0.25, 0.4)
    path.write_text("graders: {a: final_answer}\nrunner: {signals: {length: 0.125}}")
    found = report.read_limits(path)
    assert found is not None
    assert found.length == 0.125
    path.write_text("graders: {a: final_answer}")
    assert report.read_limits(path) is None


def test_parameters_of_graders_in_a_table() -> None:
    row: Any = SimpleNamespace(name="a", kind="text", default="'x'")
    assert cells(row) == ("a", "text", "default 'x'")
    row.default = ""
    assert cells(row) == ("a", "text", "required")


def test_a_ledger_is_shown_in_the_browser(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import webbrowser

    call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl")
    opened: list[str] = []

    def opens(address: str) -> None:
        opened.append(Path(address.removeprefix("file://")).read_text())

    async def ends() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(webbrowser, "open", opens)
    monkeypatch.setattr(report.anyio, "sleep_forever", ends)
    done = call(files, "view", "l.jsonl")
    assert done.returncode == 130
    url = done.stdout.split()[1]
    assert done.stdout == f"l.jsonl: {url}   (Ctrl-C ends)\n"
    assert opened == [f'<meta http-equiv="refresh" content="0;url={url}">']
    assert "Ctrl-C ends" in call(files, "view", "l.jsonl", "--no-browser").stdout
    assert len(opened) == 1
    refused(files, "view none.jsonl", "cannot read none.jsonl: there is no such file")
