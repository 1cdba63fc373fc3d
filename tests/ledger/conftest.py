"""A disk that takes its time."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Nothing is written until it is set."""
    found, real = threading.Event(), os.write

    def write(fd: int, data: Any) -> int:
        found.wait()
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    return found
