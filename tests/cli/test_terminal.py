"""Streams, terminals and exit codes, of the real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .in_process import call

G = ("grade", "reward.yaml", "rollouts.jsonl")
COMMAND = (sys.executable, "-m", "judgekit")


def shell(folder: Path, line: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell, in which $J is the command."""
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env={**os.environ, "J": " ".join(COMMAND), **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("$J grade reward.yaml rollouts.jsonl", 0),
        ("$J lint reward.yaml", 0),
        ("$J grade fails.yaml rollouts.jsonl", 1),
        ("$J grade reward.yaml rollouts.jsonl --out /dev/full", 1),
        ("$J check http://127.0.0.1:1", 1),
        ("$J grade none.yaml rollouts.jsonl", 2),
        ("$J grade reward.yaml", 2),
        ("$J", 2),
        ("$J grade reward.yaml rollouts.jsonl >&-", 0),
        ("$J grade none.yaml rollouts.jsonl 2>&-", 2),
        ("$J grade reward.yaml - <&-", 2),
        ("$J grade reward.yaml - </dev/null", 2),
        ("$J lint reward.yaml >/dev/full", 1),
    ],
)
def test_exit_codes(files: Path, line: str, code: int) -> None:
    """130 and 143 are in test_grade.py, which sends the signals."""
    (files / "mine.py").write_text(
        "def bad(response):\n    raise OSError('no')\nfrom judgekit import grader\nbad = grader(bad)\n"
    )
    (files / "fails.yaml").write_text("graders: {a: 'mine:bad'}\n")
    done = shell(files, line)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code and line != "$J" and "2>&-" not in line:
        assert done.stderr.startswith("judgekit: ")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("columns", [140, 80, 60, 40])
def test_a_narrow_terminal_drops_columns_and_cuts_no_number(files: Path, columns: int) -> None:
    done = shell(files, "$J grade reward.yaml rollouts.jsonl", COLUMNS=str(columns))
    lines = done.stdout.splitlines()
    (head,) = [i for i, line in enumerate(lines) if line.startswith("grader ")]
    names = lines[head].split()
    assert {"grader", "graded", "mean", "failed"} <= set(names)
    assert ("p95" in names) == (columns >= 80)
    cells = [line.split() for line in lines[head + 1 : head + 3]]
    assert [row[0] for row in cells] == ["correct", "brief"]
    assert [dict(zip(names, row, strict=False))["mean"] for row in cells] == ["0.500", "0.667"]
    assert max(map(len, lines[head : head + 3])) <= columns
    assert max(len(line) for line in lines if "█" in line) <= columns


def test_no_color_leaves_no_escape(files: Path) -> None:
    """In a terminal, which `script` makes."""
    line = "script -qec '{} grade reward.yaml rollouts.jsonl' /dev/null".format(" ".join(COMMAND))
    if shell(files, "command -v script").returncode:
        pytest.skip("there is no `script`")
    done = shell(files, line, NO_COLOR="1", TERM="xterm", COLUMNS="100")
    assert "grader" in done.stdout
    assert "\x1b[1m" not in done.stdout
    assert "\x1b[3" not in done.stdout


def test_without_arguments_there_is_help(files: Path) -> None:
    called = call(files)
    assert called.returncode == 2
    assert "Usage: judgekit" in called.stderr
    assert "Exit codes:" in called.stderr
    called = call(files, "-h")
    assert (called.returncode, called.stderr) == (0, "")


def test_the_shell_can_complete_commands(files: Path) -> None:
    assert "--install-completion" in call(files, "-h").stdout
    done = shell(files, "$J", _JUDGEKIT_COMPLETE="complete_bash", COMP_WORDS="judgekit re", COMP_CWORD="1")
    assert done.stdout.split() == ["report", "replay"]


def test_json_is_alone_on_standard_output(files: Path) -> None:
    for args in (
        (*G, "--json", "--ledger", "l.jsonl"),
        ("replay", "l.jsonl", "--json"),
        ("report", "l.jsonl", "--json"),
    ):
        called = call(files, *args)
        assert called.returncode == 0, called.stderr
        assert json.loads(called.stdout)["rollouts"] == 3
        assert called.stdout.count("\n") == 1
