"""What people read on stderr: every record once, beside whatever logging a program has set up itself."""

from __future__ import annotations

import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from judgekit.cli import logs

START = "import logging, warnings, sys; from judgekit.cli.logs import set_up; log = logging.getLogger('judgekit')\n"
TIME = r"\d\d:\d\d:\d\d "


def stderr_of(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", START + program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("set_up(); log.warning('a %s <red>{x}</red>', 1)", ["WARNING a 1 <red>{x}</red>"]),
        ("set_up(); set_up(); log.info('once')", ["INFO    once"]),
        ("set_up(); log.getChild('x').error('below')", ["ERROR   below"]),
        ("set_up(); log.debug('no')", []),
        ("set_up('DEBUG'); log.debug('yes')", ["DEBUG   yes"]),
        ("set_up('DEBUG'); set_up('ERROR'); log.warning('no')", []),
        ("log.setLevel('ERROR'); set_up(); log.warning('no, says the program')", []),
        ("set_up(); logging.getLogger('other').info('not ours')", []),
        (
            "set_up(); warnings.warn('old', DeprecationWarning)",
            ["WARNING <string>:2: DeprecationWarning: old"],
        ),
        ("set_up(); log.log(25, 'between')", ["Level 25 between"]),
    ],
)
def test_records_are_lines_with_time_and_level(program: str, shown: list[str]) -> None:
    lines = stderr_of(program).splitlines()
    assert len(lines) == len(shown)
    for line, text in zip(lines, shown, strict=True):
        assert re.fullmatch(TIME + re.escape(text), line)


def test_an_exception_shows_its_traceback_and_no_values() -> None:
    said = stderr_of(
        "set_up()\ndef call(key):\n    raise ValueError('no')\ntry:\n    call('secret-value')\n"
        "except ValueError:\n    log.exception('call failed')\n"
    )
    assert re.match(TIME + "ERROR   call failed\n", said)
    assert said.endswith("ValueError: no\n")
    assert said.count("Traceback") == 1
    assert "secret-value" not in said.replace("call('secret-value')", "")


@pytest.mark.parametrize("first", ["{own}; set_up()", "set_up(); {own}"])
def test_a_programs_own_configuration_is_kept_and_nothing_stands_twice(first: str) -> None:
    own = "logging.basicConfig(format='mine: %(message)s')"
    assert stderr_of(f"{first.format(own=own)}; log.warning('x')") == "mine: x\n"
    own = "from loguru import logger; logger.remove(); logger.add(sys.stderr, format='mine: {message}')"
    assert stderr_of(f"{own.strip()}; set_up(); log.warning('x')") == "mine: x\n"


def test_a_programs_log_file_gets_the_records_too(tmp_path: Path) -> None:
    file = tmp_path / "all.log"
    said = stderr_of(
        f"logging.basicConfig(filename={str(file)!r}, format='%(message)s'); set_up(); log.warning('x')"
    )
    assert (said[9:], file.read_text()) == ("WARNING x\n", "x\n")


def test_pytests_caplog_sees_the_records(caplog: pytest.LogCaptureFixture) -> None:
    before = logging.getLogger("judgekit").level
    logs.set_up()
    try:
        logging.getLogger("judgekit").warning("seen")
        assert caplog.messages == ["seen"]
    finally:
        for name in ("judgekit", "py.warnings"):
            library = logging.getLogger(name)
            library.handlers = [h for h in library.handlers if not isinstance(h, logs.InterceptHandler)]
        logging.getLogger("judgekit").setLevel(before)
        logging.captureWarnings(False)


def test_colour_is_for_terminals() -> None:
    ours, theirs = pty.openpty()
    subprocess.run(
        [sys.executable, "-c", START + "set_up(); log.warning('x')"],
        stderr=theirs,
        timeout=60,
        check=True,
        env={key: value for key, value in os.environ.items() if key != "NO_COLOR"},
    )
    os.close(theirs)
    assert b"\x1b[" in os.read(ours, 1000)
    os.close(ours)


def test_a_closed_stderr_is_no_error() -> None:
    program = START + "set_up(); log.warning('x')"
    done = subprocess.run(["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, program], timeout=60)
    assert done.returncode == 0


def test_a_servers_log_is_bounded_and_loses_no_new_line(tmp_path: Path) -> None:
    program = f"""
set_up()
from pathlib import Path
write = __import__("judgekit.cli.logs").cli.logs.rotating_file(Path({str(tmp_path)!r}) / "judge-0.log", limit="2 KB")
for i in range(1000):
    write(f"line {{i}} {{{{not a field}}}} <red>")
"""
    assert stderr_of(program) == ""
    files = sorted(tmp_path.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    assert len(files) == 4
    assert sum(file.stat().st_size for file in files) <= 4 * 2048
    assert (tmp_path / "judge-0.log").read_text().endswith("line 999 {not a field} <red>\n")


def test_a_folder_that_cannot_be_written_is_a_config_error(tmp_path: Path) -> None:
    from judgekit import ConfigError

    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write .*choose another folder with JUDGEKIT_STATE"):
        logs.rotating_file(tmp_path / "file" / "x.log")
