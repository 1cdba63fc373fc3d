"""Whether processes stand still or work."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from judgekit.execution.watchdog import Pulse

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc")

SPINS, WAITS = "while True: pass", "import time; time.sleep(600)"
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', {SPINS!r}]).wait()"


@contextlib.contextmanager
def running(program: str) -> Iterator[int]:
    """A process of a session of its own, once it does what it is for."""
    process = subprocess.Popen([sys.executable, "-S", "-c", program], start_new_session=True)
    try:
        time.sleep(1)
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def stood_still(*pids: int) -> bool:
    pulse = Pulse(pids)
    time.sleep(1)
    return pulse.stood_still()


@pytest.mark.parametrize(("program", "still"), [(WAITS, True), (SPINS, False), (PARENT, False)])
def test_who_works_takes_time_and_who_waits_does_not(program: str, still: bool) -> None:
    with running(program) as pid:
        assert stood_still(pid) is still


def test_who_is_stopped_stands_still() -> None:
    with running(SPINS) as pid:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.5)
        assert stood_still(pid)


def test_one_that_works_is_enough() -> None:
    with running(SPINS) as one, running(WAITS) as other:
        assert not stood_still(one, other)


def test_who_has_just_come_or_gone_does_not_stand_still() -> None:
    assert not stood_still()
    with running(WAITS) as pid:
        pulse = Pulse([pid])
    assert not pulse.stood_still()
