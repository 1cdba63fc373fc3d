"""The frame around every command: its version, its streams, what becomes of an error, and what is set up first."""

from __future__ import annotations

import errno
import importlib.metadata
import io
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from rich.color import ColorSystem

from judgekit import cli
from judgekit.cli import console, logs
from judgekit.cli.console import fail, prints_aside, run, say
from judgekit.errors import ConfigError, DataError, JudgekitError
from judgekit.version import __version__

from .in_process import call

# ---- calls and errors


def test_the_version_is_all_that_is_said(tmp_path: Path) -> None:
    done = call(tmp_path, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"judgekit {__version__}\n", "")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("nope",), "No such command 'nope' (judgekit -h shows what it takes)"),
        (("grade",), "Missing argument 'config' (judgekit grade -h shows what it takes)"),
        (("report",), "Missing argument 'ledger' (judgekit report -h shows what it takes)"),
        (("export", "l.jsonl"), "Missing argument 'to' (judgekit export -h shows what it takes)"),
        (("--nope",), "No such option: --nope (judgekit -h shows what it takes)"),
    ],
)
def test_a_wrong_call_says_which_command_explains_itself(
    tmp_path: Path, args: tuple[str, ...], says: str
) -> None:
    done = call(tmp_path, *args)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"judgekit: {says}\n")


class Usage(Exception):
    """An error of the command line's own, without a command."""

    def format_message(self) -> str:
        return "too many things."


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def app(**options: Any) -> None:
        assert options == {"prog_name": "judgekit", "standalone_mode": False}
        raise error

    monkeypatch.setattr(cli, "app", app)


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (ConfigError("a"), 2, "a"),
        (DataError("b"), 2, "b"),
        (JudgekitError("c"), 1, "c"),
        (Usage(), 2, "too many things (judgekit -h shows what it takes)"),
    ],
)
def test_an_error_is_one_sentence_with_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, says: str
) -> None:
    raising(monkeypatch, error)
    done = call(tmp_path, "grade")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"judgekit: {says}\n")


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("a fault of ours"),
        OSError(errno.ENOENT, "no such file"),
        OSError(errno.ENOSPC, "no space", "a-file-of-its-own"),
    ],
)
def test_other_errors_are_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    raising(monkeypatch, error)
    with pytest.raises(type(error)) as raised:
        call(tmp_path, "grade")
    assert raised.value is error


def test_a_crash_is_shown_as_python_shows_it() -> None:
    assert cli.app.pretty_exceptions_enable is False


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_standard_output_that_takes_nothing_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    raising(monkeypatch, OSError(number, "it is full"))
    replaced = []

    def dup2(fd: int, other: int) -> None:
        replaced.append(other)
        assert os.readlink(f"/proc/self/fd/{fd}") == "/dev/null"
        os.write(fd, b"writable")
        os.close(fd)

    monkeypatch.setattr(
        cli, "os", SimpleNamespace(dup2=dup2, open=os.open, devnull=os.devnull, O_WRONLY=os.O_WRONLY)
    )
    done = call(tmp_path, "grade")
    assert (done.returncode, done.stderr) == (
        1,
        "judgekit: cannot write to standard output: it is full\n",
    )
    assert replaced == [1]


def ends(monkeypatch: pytest.MonkeyPatch, stdout: Any, code: int | None = None) -> int:
    """End a command that has only printed "…"; return its exit code."""

    def app(**options: Any) -> int | None:
        if sys.stdout is not None:
            sys.stdout.write("…")
        return code

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_stream_of_few_characters_is_enough_and_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    stdout = io.TextIOWrapper(raw, encoding="ascii")
    assert ends(monkeypatch, stdout) == 0
    assert raw.getvalue() == b"?"
    assert ends(monkeypatch, io.StringIO(), 3) == 3
    assert ends(monkeypatch, None) == 0


# ---- what is set up first


def test_logs_are_set_up_and_another_project_of_our_name_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    set_up: list[bool] = []
    monkeypatch.setattr(logs, "set_up", lambda: set_up.append(True))
    call(tmp_path, "graders", "length")
    assert set_up == [True]
    assert caplog.messages == []
    monkeypatch.setattr(cli, "_unrelated", lambda: "9.9")
    call(tmp_path, "graders", "length")
    assert caplog.messages == [
        "the distribution judgekit 9.9 is installed, another project: the two overwrite each other's files. "
        "Remove it (pip uninstall judgekit) and install judgekit-rl again"
    ]


def test_the_other_project_is_known_by_its_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli._unrelated() is None
    monkeypatch.setattr(importlib.metadata, "version", {"judgekit": "9.9"}.__getitem__)
    assert cli._unrelated() == "9.9"


# ---- the console


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A narrow terminal with colours, in which the console prints."""
    made = io.StringIO()
    for name, value in (
        ("_file", made),
        ("_width", 20),
        ("_force_terminal", True),
        ("_color_system", ColorSystem.STANDARD),
    ):
        monkeypatch.setattr(console.out, name, value)
    return made


def test_what_is_said_is_literal_and_not_wrapped(terminal: io.StringIO) -> None:
    text = "3 [bold]rows of 'x'[/bold] are at /a/path that is longer than the terminal is wide"
    say(text)
    say()
    assert terminal.getvalue() == f"{text}\n\n"


def test_what_is_printed_is_literal_too(terminal: io.StringIO) -> None:
    console.out.print("3 [bold]x[/bold]")
    assert terminal.getvalue() == "3 [bold]x[/bold]\n"


def test_a_long_end_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fail("word " * 100, code=1)
    assert capsys.readouterr().err == f"judgekit: {('word ' * 100).strip()}\n"


def test_without_a_stderr_nothing_goes_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    here = io.StringIO()
    monkeypatch.setattr(sys, "stdout", here)
    monkeypatch.setattr(sys, "stderr", None)
    with prints_aside(True):
        sys.stdout.write("here")
    assert here.getvalue() == "here"


@pytest.mark.parametrize("error", [OSError("none"), ValueError("closed")])
def test_a_stdout_without_a_number_is_put_aside_in_python_alone(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fileno() -> int:
        raise error

    here, aside = io.StringIO(), io.StringIO()
    monkeypatch.setattr(here, "fileno", fileno)
    monkeypatch.setattr(sys, "stdout", here)
    monkeypatch.setattr(sys, "stderr", aside)
    with prints_aside(True):
        sys.stdout.write("aside")
    assert (here.getvalue(), aside.getvalue(), sys.stdout) == ("", "aside", here)


def test_another_stdout_than_the_process_s_leaves_its_number_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed: list[Any] = []
    monkeypatch.setattr(
        console, "os", SimpleNamespace(dup=os.dup, dup2=lambda *numbers: changed.append(numbers))
    )
    with (tmp_path / "other").open("w") as other:
        monkeypatch.setattr(sys, "stdout", other)
        with prints_aside(True):
            pass
    assert changed == []


def test_what_was_printed_before_comes_first_and_nothing_stays_open(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    real = os.dup

    def dup(fd: int) -> int:
        kept.append(real(fd))
        return kept[-1]

    monkeypatch.setattr(os, "dup", dup)
    with open(1, "w", closefd=False) as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        stdout.write("before\n")
        with prints_aside(True):
            os.write(1, b"aside\n")
        os.write(1, b"after\n")
    assert capfd.readouterr() == ("before\nafter\n", "aside\n")
    (number,) = kept
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_ctrl_c_says_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    async def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(interrupted, signal.SIGTERM, ended=lambda: "stopped: it is kept")
    assert capsys.readouterr().err == "judgekit: stopped: it is kept\n"


def test_a_command_that_ends_well_says_nothing_of_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> int:
        await anyio.lowlevel.checkpoint()
        return 3

    assert run(work, signal.SIGTERM, ended=lambda: "stopped") == 3
    assert capsys.readouterr() == ("", "")


# ---- logs


class FakeLoguru:
    """In place of loguru's logger: what is asked of it."""

    def __init__(self, *, gone: bool = False) -> None:
        self.gone = gone
        self.removed: list[int] = []
        self.added: list[tuple[Any, dict[str, Any]]] = []
        self.said: list[tuple[Any, ...]] = []

    def remove(self, number: int) -> None:
        self.removed.append(number)
        if self.gone:
            raise ValueError("there is no such sink")

    def add(self, sink: Any, **options: Any) -> None:
        self.added.append((sink, options))

    def opt(self, **options: Any) -> FakeLoguru:
        self.said.append(tuple(options.items()))
        return self

    bind = opt

    def log(self, *said: Any) -> None:
        self.said.append(said)

    def info(self, *said: Any) -> None:
        self.said.append(said)


@pytest.fixture
def loguru(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLoguru]:
    """A process whose logs nobody has set up."""
    made = FakeLoguru()
    monkeypatch.setattr(logs, "logger", made)
    monkeypatch.setattr(logs, "_our_level", logging.NOTSET)
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging, "captureWarnings", lambda on: made.said.append(("warnings", on)))
    libraries = [logging.getLogger(name) for name in ("judgekit", "py.warnings")]
    before = [(library.handlers, library.level) for library in libraries]
    for library in libraries:
        library.handlers = []
        library.setLevel(logging.NOTSET)
    yield made
    for library, (handlers, level) in zip(libraries, before, strict=True):
        library.handlers = handlers
        library.setLevel(level)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stderr", "no_color", "colour"),
    [(Terminal(), None, True), (Terminal(), "1", False), (io.StringIO(), None, False), (None, None, False)],
)
def test_our_sink_takes_the_place_of_loguru_s_own(
    loguru: FakeLoguru, monkeypatch: pytest.MonkeyPatch, stderr: Any, no_color: str | None, colour: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys, "stderr", stderr)
    logs.set_up()
    assert loguru.removed == [0]
    assert loguru.said == [("warnings", True)]
    ((sink, options),) = loguru.added
    assert sink is logs._write
    assert options == {
        "level": "DEBUG", "format": logs._FORMAT, "filter": logs._for_people, "colorize": colour, "backtrace": False,
        "diagnose": False,
    }  # fmt: skip


def test_where_its_own_sink_is_gone_none_is_added(loguru: FakeLoguru) -> None:
    loguru.gone = True
    logs.set_up()
    assert (loguru.removed, loguru.added) == ([0], [])


def test_the_level_is_ours_until_the_program_chooses_one(loguru: FakeLoguru) -> None:
    library = logging.getLogger("judgekit")
    levels = []
    for level in ("INFO", "DEBUG", "ERROR"):
        logs.set_up(level)
        levels.append(library.level)
    library.setLevel(logging.CRITICAL)
    logs.set_up("DEBUG")
    assert [*levels, library.level] == [logging.INFO, logging.DEBUG, logging.ERROR, logging.CRITICAL]
    for name in ("judgekit", "py.warnings"):
        (handler,) = logging.getLogger(name).handlers
        assert isinstance(handler, logs.InterceptHandler)


def test_without_a_level_it_is_info(loguru: FakeLoguru) -> None:
    logs.set_up()
    assert logging.getLogger("judgekit").level == logging.INFO


@pytest.mark.parametrize(
    ("handler", "level", "shown"),
    [
        (logging.StreamHandler(), logging.WARNING, True),
        (logging.StreamHandler(), logging.ERROR, False),
        (logging.StreamHandler(), logging.INFO, True),
        (logging.NullHandler(), logging.INFO, False),
        (logging.FileHandler("/dev/null"), logging.INFO, False),
    ],
)
def test_a_record_that_the_program_shows_is_not_repeated(
    loguru: FakeLoguru, monkeypatch: pytest.MonkeyPatch, handler: logging.Handler, level: int, shown: bool
) -> None:
    handler.setLevel(level)
    quiet = logging.StreamHandler()
    quiet.setLevel(logging.CRITICAL)
    monkeypatch.setattr(logging.root, "handlers", [quiet, handler])
    error = (ValueError, ValueError("x"), None)
    record = logging.LogRecord("judgekit", logging.WARNING, "p", 1, "a\nb", (), error)
    logs.InterceptHandler().emit(record)
    assert loguru.said == ([] if shown else [(("exception", error),), ("WARNING", "a\nb")])


def test_lines_for_people_go_above_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    written: list[Any] = []
    bar = SimpleNamespace(write=lambda text, **options: written.append((text, options)))
    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=bar))  # type: ignore[arg-type]
    logs._write("a\n")
    assert written == [("a\n", {"file": stderr, "end": ""})]
    monkeypatch.delitem(sys.modules, "tqdm")
    logs._write("b\n")
    assert stderr.getvalue() == "b\n"
    monkeypatch.setattr(sys, "stderr", None)
    logs._write("c\n")
    assert len(written) == 1


def test_a_server_s_file_rotates_and_keeps_three_older_ones(loguru: FakeLoguru, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    write = logs.rotating_file(path)
    ((given, options),) = loguru.added
    mine = options.pop("filter")
    assert [mine({"extra": extra}) for extra in ({"file": path}, {"file": tmp_path / "b.log"}, {})] == [
        True,
        False,
        False,
    ]
    assert given == path
    assert options == {
        "level": 0, "format": "{message}", "rotation": "50 MB", "retention": 3, "encoding": "utf-8", "errors": "replace",
        "backtrace": False, "diagnose": False,
    }  # fmt: skip
    write("one")
    assert loguru.said == [(("file", path),), (("raw", True),), ("one\n",)]


def test_only_warnings_of_the_module_are_diverted() -> None:
    library = logging.getLogger("judgekit")
    seen: list[str] = []

    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    handler = Seen()
    library.addHandler(handler)
    try:
        with logs.diverted("test_frame") as found:
            library.error("mine")
            library.info("no warning")
        with logs.diverted("elsewhere") as others:
            library.error("not mine")
        library.error("after")
    finally:
        library.removeHandler(handler)
    assert (found, others) == (["mine"], [])
    assert [text for text in seen if text != "no warning"] == ["not mine", "after"]
    assert library.filters == []
