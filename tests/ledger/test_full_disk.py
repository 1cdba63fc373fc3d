"""A disk that is really full: a small file system, and two processes that append to one ledger."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ..conftest import isolates

SCRIPT = """
import os, subprocess, sys, time
from pathlib import Path
from judgekit import read_ledger

folder, number = Path(sys.argv[1]), sys.argv[2]
if number == "0":
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], check=True)
    filler = folder / "filler"
    filler.write_bytes(b"x" * 1_600_000)
    writers = [subprocess.Popen([sys.executable, __file__, folder, n]) for n in ("1", "2")]
    while len(list(folder.glob("waits-*"))) < 2 or os.statvfs(folder).f_bavail > 0:
        assert all(w.poll() is None for w in writers)
        time.sleep(0.02)
    filler.unlink()
    assert [w.wait(60) for w in writers] == [0, 0]
    reading = read_ledger(folder / "l")
    print(sorted(entry.tags["which"] for entry in reading.entries) == sorted(
        f"{w} {i}" for w in "12" for i in range(400)), len(reading.entries))
else:
    from judgekit import GradingRunner, Ledger, Rollout, grader
    from judgekit.ledger import writer

    @grader
    def half(response: str) -> float:
        return 0.5

    writer._RETRY_S = 0.02
    ledger = Ledger(folder / "l", texts=True)
    runner = GradingRunner([half], ledger=ledger)
    (folder / f"waits-{number}").touch()
    for i in range(400):
        (result,) = runner.run_sync([Rollout(response=number * 700)], tags={"which": f"{number} {i}"})
        assert result.reward == 0.5
    while not ledger.flush(1):
        pass
    assert ledger.dropped == 0
"""


@pytest.mark.skipif(not isolates(), reason="needs a file system of its own (unshare)")
def test_two_processes_lose_no_line_to_a_disk_that_is_full_for_a_while(tmp_path: Path) -> None:
    script, disk = tmp_path / "script.py", tmp_path / "disk"
    script.write_text(textwrap.dedent(SCRIPT))
    disk.mkdir()
    command = ["unshare", "-rm", sys.executable, script, disk, "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.stdout == "True 800\n", done.stdout + done.stderr
