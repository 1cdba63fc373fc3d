"""The other SkyRLs that the adapter is for: its tests with theirs, of trainers too where a release has what ours needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
GRADING = ("test_env.py", "test_groups.py", "test_main.py")
TRAINING = (
    "test_trainer.py",
    "test_turns.py",
    "test_training.py::test_it_learns",
    "test_training.py::test_it_outlives_its_judge",
)
SKYRL_TRAIN = (
    "test_env.py",
    "test_groups.py",
    "test_main_train.py",
    "test_trainer.py",
    "test_turns.py",
    "test_training.py::test_it_learns",
    "test_training.py::test_too_many_failures_end_it",
)


@pytest.mark.parametrize(
    ("version", "tests"), [("0.1.0", GRADING), ("0.2.0", GRADING), ("0.4.0", GRADING + TRAINING)]
)
def test_another_skyrl(version: str, tests: tuple[str, ...]) -> None:
    with_it(version, f"import skyrl; assert {version!r} in skyrl.__file__", tests)


def test_the_package_skyrl_train() -> None:
    """Where skyrl cannot be imported."""
    without = "sys.modules['skyrl'] = None; import skyrl_train; assert 'train-0.3.1' in skyrl_train.__file__"
    with_it("train-0.3.1", without, SKYRL_TRAIN)


def with_it(version: str, start: str, tests: tuple[str, ...]) -> None:
    other = Path(sys.prefix) / "beside" / version
    path = os.pathsep.join(filter(None, [str(other), os.environ.get("PYTHONPATH")]))
    program = f"import sys, pytest; {start}; sys.exit(pytest.main(sys.argv[1:]))"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            program,
            "-q",
            "-p",
            "no:cacheprovider",
            *(str(HERE / test) for test in tests),
        ],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
