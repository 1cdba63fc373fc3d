"""Fixtures for all tests of the core."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from slow_tests import mark_slow

settings.register_profile("no deadline", deadline=None)  # a busy machine is slow, not wrong
settings.load_profile("no deadline")
os.environ |= {"RAY_worker_niceness": "0"}  # else whatever else the machine does starves Ray's workers
collect_ignore = [] if importlib.util.find_spec("vllm") else ["vllm"]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Warnings about small artificial batches are not news."""
    caplog.set_level(logging.WARNING, logger="judgekit")


@functools.cache
def isolates() -> bool:
    """Whether this system lets anybody start a program with a file system of its own."""
    for command in (["unshare", "-rm", "true"], ["bwrap", "--ro-bind", "/", "/", "true"]):
        with contextlib.suppress(OSError):
            if subprocess.run(command, capture_output=True).returncode == 0:
                return True
    return False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Skip what needs an isolated program, where the system allows none: many containers do not."""
    report: Any = yield
    if (
        report.failed
        and call.excinfo is not None
        and "lets no program be isolated" in str(call.excinfo.value)
    ) and not isolates():
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, "Skipped: this system lets no program be isolated")
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes long, for `make unit` to leave out."""
    mark_slow(items)


def pytest_configure() -> None:
    """Programs that tests start take Ctrl-C, also where the tests run in a shell's background, which ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
