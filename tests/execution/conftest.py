"""Pools of worker processes, closed after each test."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from judgekit.execution.pool import ProcessPool


def _pool(workers: int) -> Iterator[ProcessPool]:
    pool = ProcessPool(workers, memory_mb=1024)
    yield pool
    pool.close()
    gc.collect()


@pytest.fixture
def pool() -> Iterator[ProcessPool]:
    """Of one worker."""
    yield from _pool(1)


@pytest.fixture
def two() -> Iterator[ProcessPool]:
    """Of two workers."""
    yield from _pool(2)
