"""A cache file that is damaged, killed, full, read-only or locked: no other number, no verdict lost."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from judgekit import ConfigError
from judgekit.judges import JudgeReply, JudgeRequest, Piece, Turn
from judgekit.judges.layers import cache
from judgekit.judges.layers.cache import Cached, DiskCache


def ask(text: str) -> JudgeRequest:
    turns = (Turn("user", (Piece("C: "), Piece(text, trusted=False))),)
    return JudgeRequest(turns=turns, choices=("0", "1"), accept=lambda reply: None)


def right(text: str) -> float:
    return random.Random(text).random()


class Engine:
    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        self.calls += 1
        score = right(request.turns[0].pieces[1].text)
        return JudgeReply("1", choice_probs={"0": 1 - score, "1": score}, label_mass=1.0, thinking="so é")

    async def identity(self) -> str:
        return "weights"


async def score(judge: Cached, text: str) -> float:
    reply = await judge.complete(ask(text))
    assert reply.choice_probs is not None
    return float(reply.choice_probs["1"])


async def fill(path: Path, texts: list[str]) -> None:
    judge = Cached(Engine(), disk=DiskCache(path))
    for text in texts:
        await score(judge, text)
    judge.disk.close()


async def test_a_flipped_bit_in_a_row_is_a_miss_and_never_another_number(tmp_path: Path) -> None:
    """10,000 bits, in keys and in contents."""
    path = tmp_path / "cache.sqlite"
    texts = [str(i) for i in range(199)]
    await fill(path, texts)
    rng = random.Random(7)
    flips = misses = wrong = raised = 0
    with closing(sqlite3.connect(path)) as connection:
        stored = connection.execute("SELECT key, reply FROM replies").fetchall()
    while flips < 10_000:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM replies")
            for row in stored:
                damaged = [bytearray(part) for part in row]
                part = damaged[rng.random() < 0.8]
                part[rng.randrange(len(part))] ^= 1 << rng.randrange(8)
                flips += 1
                connection.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", damaged)
        engine = Engine()
        judge = Cached(engine, entries=0, disk=DiskCache(path))
        for text in texts:
            try:
                wrong += await score(judge, text) != right(text)
            except Exception:
                raised += 1
        misses += engine.calls
        judge.disk.close()
    assert (wrong, raised) == (0, 0)
    assert misses == 50 * 199  # all of them; one row of each round is the engine's identity


async def test_a_damaged_row_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    disk = DiskCache(path)
    for key in (b"damaged", b"another type", b"fine"):
        disk.put(key, b"reply")
    disk.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE replies SET reply = 'text' WHERE key = ?", (b"another type",))
        connection.execute("UPDATE replies SET reply = ? WHERE key = ?", (b"short", b"damaged"))
    assert [disk.get(key) for key in (b"damaged", b"another type", b"fine")] == [None, None, b"reply"]
    disk.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT key FROM replies").fetchall() == [(b"fine",)]


async def test_flipped_bits_anywhere_in_the_file_cost_no_verdict(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    texts = [str(i) for i in range(5)]
    await fill(path, texts)
    whole = path.read_bytes()
    rng = random.Random(8)
    wrong, raised = 0, []
    for number in range(200):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 20))):
            data[rng.randrange(100, len(data))] ^= 1 << rng.randrange(8)
        broken = tmp_path / f"{number}.sqlite"
        broken.write_bytes(data)
        judge = Cached(Engine(), disk=DiskCache(broken))
        for text in texts:
            try:
                wrong += await score(judge, text) != right(text)
            except Exception as error:
                raised.append(repr(error))
        judge.disk.close()
    assert (wrong, raised) == (0, [])


WORK = """
import asyncio, sys
from judgekit.judges.layers.cache import Cached, DiskCache
from tests.judges.test_cache_file import Engine, right, score

async def main():
    judge = Cached(Engine(), entries=0, disk=DiskCache(sys.argv[1]))
    print("ready", flush=True)
    number = 0
    while True:
        text = str(number % 300)
        if await score(judge, text) != right(text):
            print("WRONG", text, flush=True)
        number += 1
        if number % 10 == 0:
            await asyncio.sleep(0)

asyncio.run(main())
"""


def worker(path: Path) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), str(Path(cache.__file__).parents[3])])
    return subprocess.Popen(
        [sys.executable, "-c", WORK, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


async def test_four_processes_that_are_killed_leave_no_wrong_row(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    rng = random.Random(9)
    wrong = kills = 0
    for _ in range(3):
        workers = [worker(path) for _ in range(4)]
        for each in workers:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        rng.shuffle(workers)
        for each in workers:
            await asyncio.sleep(rng.random() * 0.3)
            each.send_signal(signal.SIGKILL)
            told, _ = each.communicate()
            wrong += "WRONG" in told
            kills += each.returncode == -signal.SIGKILL
    engine = Engine()
    judge = Cached(engine, entries=0, disk=DiskCache(path))
    for number in range(300):
        wrong += await score(judge, str(number)) != right(str(number))
    judge.disk.close()
    assert (wrong, kills) == (0, 12)
    assert engine.calls < 300  # what they wrote is there
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    again = Cached(engine, entries=0, disk=DiskCache(path))
    before = engine.calls
    for number in range(300):
        await score(again, str(number))
    again.disk.close()
    assert engine.calls == before


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "cache:" in record.getMessage()]


async def lost(judge: Cached, count: int = 200) -> int:
    """How many verdicts are lost or wrong."""
    found = await asyncio.gather(*(score(judge, str(i)) for i in range(count)), return_exceptions=True)
    return sum(each != right(str(i)) for i, each in enumerate(found))


@pytest.mark.parametrize("locked_before", [True, False])
async def test_a_locked_file_costs_a_line_and_no_verdict(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, locked_before: bool
) -> None:
    monkeypatch.setattr(cache, "_WRITE_WAIT_S", 0.05)
    path = tmp_path / "cache.sqlite"
    await fill(path, ["0"])
    disk = DiskCache(path)
    judge = Cached(Engine(), disk=disk)
    if not locked_before:
        assert await lost(judge, 3) == 0
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        # once somebody has read it, it can still be read
        other.execute(f"PRAGMA locking_mode={'EXCLUSIVE' if locked_before else 'NORMAL'}")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("INSERT OR REPLACE INTO replies VALUES (x'00', x'00')")
        disk.open()
        assert await lost(judge) == 0
        await asyncio.to_thread(judge.disk.close)
        assert len(lines(caplog)) == 1
        assert "locked" in lines(caplog)[0]
        other.execute("COMMIT")
    monkeypatch.setattr(cache, "_REST_S", 0.0)
    disk._rests_until = 0.0
    again = Cached(Engine(), disk=disk)
    assert await lost(again) == 0
    await asyncio.to_thread(again.disk.close)
    engine = Engine()
    later = Cached(engine, disk=DiskCache(path))
    assert await lost(later) == 0
    later.disk.close()
    assert engine.calls == 0  # it is written to again


FULL = """
import asyncio, logging, resource, signal, sys
from judgekit.judges.layers.cache import Cached, DiskCache
from tests.judges.test_cache_file import Engine, lost
logging.basicConfig(format="LINE %(message)s", stream=sys.stdout)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))

async def main():
    disk = DiskCache(sys.argv[1])
    disk.open()
    judge = Cached(Engine(), disk=disk)
    sys.stdout.write(f"lost {await lost(judge)}\\n")  # at once: a thread may log a line meanwhile
    judge.disk.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("size", [0, 5_000, 40_000])
def test_a_full_disk_costs_a_line_and_no_verdict(tmp_path: Path, size: int) -> None:
    """A file that may not grow over *size* bytes, before it is made, while it is made, and later."""
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), str(Path(cache.__file__).parents[3])])
    told = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "cache.sqlite"), str(size)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
    ).stdout.splitlines()
    assert "lost 0" in told
    assert len([line for line in told if line.startswith("LINE cache:")]) == 1, told


MOUNTED = """
mount -t tmpfs -o size=256k none "$1"
"$2" -c "$3" "$1" fill
"$2" -c "$3" "$1" full
mount -o remount,ro "$1"
"$2" -c "$3" "$1" read
"$2" -c "$3" "$1/deep" new
"""
ON_DISK = """
import asyncio, logging, os, sys
from pathlib import Path
from judgekit.judges.layers.cache import Cached, DiskCache
from tests.judges.test_cache_file import Engine, fill, lost, score
logging.basicConfig(format="LINE %(message)s", stream=sys.stdout)
path, what = Path(sys.argv[1]) / "cache.sqlite", sys.argv[2]

async def main():
    if what == "fill":
        return await fill(path, ["0", "1", "2"])
    if what == "full":
        try:
            (path.parent / "rest").write_bytes(bytes(1 << 20))
        except OSError:
            pass
    disk, engine = DiskCache(path), Engine()
    disk.open()
    judge = Cached(engine, disk=disk)
    sys.stdout.write(f"{what} lost {await lost(judge)} asked {engine.calls}\\n")
    judge.disk.close()

asyncio.run(main())
"""


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0,
    reason="no file system can be mounted here",
)
def test_a_full_and_a_read_only_file_system_cost_a_line_each_and_are_read(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), str(Path(cache.__file__).parents[3])])
    told = subprocess.run(
        ["unshare", "-rm", "sh", "-ec", MOUNTED, "sh", str(tmp_path), sys.executable, ON_DISK],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert told.returncode == 0, told
    said = told.stdout.splitlines()
    # what is on it is found there
    assert [line for line in said if not line.startswith("LINE")] == [
        "full lost 0 asked 197",
        "read lost 0 asked 197",
        "new lost 0 asked 200",
    ]
    assert len([line for line in said if line.startswith("LINE cache:")]) == 3, said


async def test_memory_is_bounded_by_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MOST_BYTES", 10_000)

    class Long(Engine):
        async def complete(self, request: JudgeRequest, /) -> JudgeReply:
            self.calls += 1
            return JudgeReply("x" * len(request.turns[0].pieces[1].text), choice_probs={"0": 0.0, "1": 1.0})

    engine = Long()
    judge = Cached(engine)
    for text in ("a" * 4000, "b" * 4000, "c" * 4000, "d" * 20_000):
        await score(judge, text)
    assert judge._memory.bytes <= 10_000
    for text in ("b" * 4000, "c" * 4000):
        await score(judge, text)
    assert (engine.calls, judge.hits) == (4, 2)


def test_a_path_that_cannot_be_a_cache_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for path in (tmp_path, tmp_path / "file" / "cache.sqlite", tmp_path / "file"):
        with pytest.raises(ConfigError, match="cache: cannot use"):
            DiskCache(path).open()
