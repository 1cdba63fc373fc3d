"""Runs a script of these tests inside another verl, which tools/envs.py has put beside this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def inside(version: str, script: str, *args: str | Path, **environment: str) -> Any:
    """Return what *script* prints last, as JSON. Skips the test where that verl is not there."""
    beside, here = Path(sys.prefix) / "beside" / version, Path(__file__).parent
    if not beside.is_dir():
        pytest.skip(f"verl {version} is not beside this environment")
    path = os.pathsep.join([str(beside), str(here), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, here / script, *args],
        env={**os.environ, **environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])
