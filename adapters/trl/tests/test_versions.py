"""Older TRLs: 1.5, where None was added up as 0, and 1.6, the first that leaves it out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("version", ["1.5.1", "1.6.0"])
def test_older_trl(version: str) -> None:
    old = Path(sys.prefix) / "beside" / version
    program = (
        f"import trl, sys, pytest; assert {version!r} in trl.__file__; sys.exit(pytest.main(sys.argv[1:]))"
    )
    path = os.pathsep.join(filter(None, [str(old), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            program,
            "-q",
            "-p",
            "no:cacheprovider",
            Path(__file__).with_name("test_reward.py"),
        ],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
