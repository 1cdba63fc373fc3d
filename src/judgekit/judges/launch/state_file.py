"""The state file of a supervisor: what `judgekit serve --status` and `--stop` know of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from judgekit.errors import ConfigError, JudgeUnavailable
from judgekit.execution.state_folder import state_folder
from judgekit.execution.watchdog import start_time


def write_state(name: str, *, model: str, urls: Sequence[str], logs: Sequence[str]) -> Path:
    """Record this process as the supervisor of *name*; returns the file, to be deleted when it ends."""
    path = _state_file(name)
    facts = {
        "pid": os.getpid(),
        "started": start_time(os.getpid()),
        "model": model,
        "urls": list(urls),
        "logs": list(logs),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(facts))
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}; choose another folder with JUDGEKIT_STATE"
        ) from None
    return path


def read_state(name: str) -> dict[str, Any] | None:
    """What `write_state` recorded, if that very process still runs."""
    path = _state_file(name)
    try:
        facts: dict[str, Any] = json.loads(path.read_text())
        # a process id alone proves nothing: once its process is gone, it is given to others
        alive = facts["started"] is not None and start_time(facts["pid"]) == facts["started"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return facts if alive else None


def stop_supervisor(name: str, *, timeout_s: float = 30.0) -> bool:
    """End the process that serves *name*, and with it its servers; False where there is none."""
    facts = read_state(name)
    if facts is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(facts["pid"], signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while read_state(name) is not None:
        if time.monotonic() > deadline:
            raise JudgeUnavailable(
                f"serve: process {facts['pid']} has not ended {timeout_s:g} s after SIGTERM"
            )
        time.sleep(0.1)
    return True


def _state_file(name: str) -> Path:
    if not re.fullmatch(r"[\w.-]+", name):
        raise ConfigError(f"serve: --name is letters, digits, '.', '_' and '-', not {name!r}")
    return state_folder() / f"{name}.json"
