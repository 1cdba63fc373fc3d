"""The command as a whole: help, version, streams."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .in_process import call


def test_version() -> None:
    assert call(Path.cwd(), "--version").stdout.startswith("judgekit ")


@pytest.mark.parametrize(
    "command", [(), ("grade",), ("report",), ("replay",), ("lint",), ("serve",), ("check",)]
)
def test_help(command: tuple[str, ...]) -> None:
    short, long = call(Path.cwd(), *command, "-h"), call(Path.cwd(), *command, "--help")
    assert (short.returncode, short.stdout) == (0, long.stdout)
    assert "Usage:" in short.stdout


def test_a_wrong_call_exits_with_2() -> None:
    for args in ((), ("no-such-command",), ("grade",), ("grade", "--no-such-option")):
        assert call(Path.cwd(), *args).returncode == 2


def test_an_ascii_terminal_is_enough(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = call(files, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_is_light_until_it_does_something() -> None:
    heavy = ("pydantic", "yaml", "aiohttp", "loguru", "judgekit.judges.launch.supervise", "judgekit.config")
    program = f"import sys, judgekit.cli; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
