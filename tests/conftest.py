"""Fixtures for all tests of the core."""

from __future__ import annotations

import importlib.util
import logging
import signal

import pytest

collect_ignore = [] if importlib.util.find_spec("vllm") else ["vllm"]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Warnings about small artificial batches are not news."""
    caplog.set_level(logging.WARNING, logger="judgekit")


def pytest_configure() -> None:
    """Programs that tests start take Ctrl-C, also where the tests run in a shell's background, which ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
