"""Runs the command as a user does, in a folder with a reward.yaml and rollouts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from .in_process import Called

CONFIG = "graders: {correct: final_answer, brief: {use: length, soft_max: 10, hard_max: 20}}\nreward: {weighted: {correct: 0.9, brief: 0.1}}\n"
ROWS: list[Any] = [
    {"prompt": "2+2?", "response": "#### 4", "ground_truth": "4", "group": ["a", 1], "level": "easy"},
    {
        "prompt": "2+2?",
        "response": "<script>alert('x')</script> five",
        "ground_truth": "4",
        "group": ["a", 1],
    },
    {"prompt": "3?", "response": "#### 3", "ground_truth": None, "id": 7},
]


def run(cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "judgekit", *args], cwd=cwd, capture_output=True, text=True, timeout=60
    )


def refused(done: subprocess.CompletedProcess[str] | Called, says: str, folder: Path) -> None:
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert not [
        f.name for f in folder.iterdir() if f.name in ("g.jsonl", "r.html", "o") or f.name.startswith(".g")
    ]
