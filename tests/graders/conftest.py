"""Fixtures for the tests of graders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from judgekit.execution.pool import default_pool


@pytest.fixture(autouse=True, scope="module")
def _no_workers_left() -> Iterator[None]:
    """Tests elsewhere look at this process's children."""
    yield
    default_pool().close()
