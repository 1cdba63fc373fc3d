"""`judgekit check`: what is installed, and what to start where nothing listens; `replay` repeats no warning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from judgekit import GradingRunner, Ledger, Rollout, __version__
from judgekit.cli import installed
from judgekit.graders import FinalAnswer

from .in_process import call

ROOT = Path(__file__).parents[2]


def test_it_tells_what_is_installed(tmp_path: Path) -> None:
    done = call(tmp_path, "check")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"judgekit   {__version__}, Python 3.")
    for word in ("extras", "engines", "isolation", "trainer"):
        assert any(line.startswith(word) for line in lines)
    assert "tested with 0.9.1" in done.stdout


def test_what_is_not_here_has_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "installed", {"verl": "0.9.1", "pyarrow": "15"}.get)
    told = call(tmp_path, "check").stdout
    assert "extras     data\n" in told
    assert (
        "not here: math, text, json, lang, datasets, tokenizers: pip install 'judgekit-rl[math,text,json,"
        in told
    )
    assert "vllm is not here (pip install 'judgekit-rl[vllm]')" in told
    assert (
        "verl 0.9.1, tested with 0.9.1 (0.5.0 and 0.6.1 by its legacy manager, 0.7.1 and 0.8.0 by its reward manager), its adapter is not here: pip install ./adapters/verl"
        in told
    )
    assert "trl: not here, tested with 1.16.0" in told
    assert "openrlhf" not in told
    monkeypatch.setattr(installed, "installed", {"skyrl-train": "0.3.1"}.get)
    told = call(tmp_path, "check").stdout
    assert (
        "skyrl-train 0.3.1, tested with 0.3.1, its adapter is not here: pip install ./adapters/skyrl\n"
        in told
    )


def test_the_tested_versions_are_those_of_the_environments() -> None:
    """tools/envs.py builds the environments of the tests."""
    made = (ROOT / "tools" / "envs.py").read_text()
    for name, (tested, _, older) in installed.TESTED.items():
        assert f'"{name}=={tested}"' in made
        for version in re.findall(r"[0-9.]+[0-9]", older):
            assert f'"{version}"' in made


def test_a_server_that_is_down_says_what_to_start(tmp_path: Path) -> None:
    done = call(tmp_path, "check", "http://127.0.0.1:1/v1")
    assert done.returncode == 1
    assert done.stderr == (
        "judgekit: http://127.0.0.1:1/v1 cannot be reached: nothing listens there: start the server (judgekit serve, "
        "vllm serve, …), or correct the url\n"
    )


def test_replay_says_a_warning_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    runner = GradingRunner({"correct": FinalAnswer()}, ledger=Ledger(path))
    for step in range(3):
        rows = [
            Rollout(prompt=f"{step}?", response=str(i), ground_truth="1" if i > step else None)
            for i in range(600 + step)
        ]
        runner.run_sync(rows, tags={"step": step})
    done = call(tmp_path, "replay", "ledger.jsonl")
    warnings = [line for line in done.stdout.splitlines() if line.startswith("warning")]
    assert done.returncode == 0
    assert len(warnings) <= 2
    assert "(and in 2 other steps, with other figures)" in done.stdout
