"""The older SkyRLs that the adapter is for: the tests of its environment, generator and entrypoint, with theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_older_skyrl(version: str) -> None:
    old = Path(sys.prefix) / "old" / version
    program = f"import skyrl, sys, pytest; assert {version!r} in skyrl.__file__; sys.exit(pytest.main(sys.argv[1:]))"
    tests = [HERE / "test_env.py", HERE / "test_groups.py", HERE / "test_main.py"]
    done = subprocess.run(
        [sys.executable, "-c", program, "-q", "-p", "no:cacheprovider", *map(str, tests)],
        env={**os.environ, "PYTHONPATH": str(old)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
