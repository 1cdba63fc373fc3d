"""Every launch script in examples/ is understood by verl, and its reward.yaml by judgekit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from judgekit_verl.manager import has_hook
from judgekit_verl.settings import settings

EXAMPLES = Path(__file__).parents[3] / "examples" / "verl"


def arguments_of(script: Path, folder: Path) -> list[str]:
    """What the script hands to `python3 -m verl.trainer.main_ppo`."""
    fakes = {
        "python3": '[ "$1" = -m ] && { shift 2; printf "%s\\n" "$@"; } || true',
        "ray": 'while [ "$1" ] && [ "$1" != -- ]; do shift; done; [ "$1" ] && { shift; "$@"; } || true',
        "judgekit": "true",
        "curl": "true",
    }
    for name, does in fakes.items():
        fake = folder / name
        fake.write_text(f"#!/bin/sh\n{does}\n")
        fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "RAY_ADDRESS": "http://head:8265"}
    done = subprocess.run(["bash", str(script)], env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr  # `kill %1` finds the fake server gone
    return done.stdout.splitlines()


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("run_*.sh")), ids=lambda path: path.stem)
def test_launch_scripts(script: Path, tmp_path: Path, trainer_config: Callable[..., Any]) -> None:
    given = arguments_of(script, tmp_path)
    assert given
    config = trainer_config(*given)
    assert config.reward.reward_manager.name == "judgekit"
    assert has_hook(config)
    settings(dict(config.reward.reward_kwargs), hook=True, workers=config.reward.num_workers)


@pytest.mark.parametrize(
    ("task", "rows", "truth"),
    [
        ("gsm8k", {"question": "6 * 7?", "answer": "6 * 7 = 42\n#### 1,042"}, "1042"),
        ("math", {"problem": "?", "solution": r"So \boxed{\frac{1}{2}}."}, r"\frac{1}{2}"),
    ],
)
def test_data_scripts(task: str, rows: dict[str, str], truth: str, tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text(json.dumps(rows) + "\n")
    command = [sys.executable, str(EXAMPLES / "make_data.py"), task, "--train", str(file)]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = pd.read_parquet(tmp_path / "train.parquet")
    assert made.iloc[0]["reward_model"]["ground_truth"] == truth
    assert made.iloc[0]["prompt"][0]["content"].startswith(next(iter(rows.values())))
    file.write_text("{")
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode
    assert "line 1" in done.stderr
