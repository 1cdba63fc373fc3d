"""Fixtures for all tests of the core."""

from __future__ import annotations

import importlib.util
import logging

import pytest

collect_ignore = [] if importlib.util.find_spec("vllm") else ["vllm"]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Warnings about small artificial batches are not news."""
    caplog.set_level(logging.WARNING, logger="judgekit")
