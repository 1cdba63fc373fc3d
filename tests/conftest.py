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


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rollout is looked at for signals, however busy the machine."""
    from judgekit.metrics import counts, signals

    monkeypatch.setattr(counts, "ALLOWANCE", signals.Allowance(share=1e6, burst_s=1e6))


def pytest_configure() -> None:
    """Programs that tests start take Ctrl-C, also where the tests run in a shell's background, which ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
