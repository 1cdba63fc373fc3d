"""Jobs, shelves and a ledger's entries, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from judgekit.errors import ServiceUnavailable
from judgekit.service import once
from judgekit.service.once import Answers, Job, Recall, _Shelf, digest


def test_a_digest_tells_parts_apart_that_join_to_one_text() -> None:
    found = {
        digest(*parts)
        for parts in ((b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"", b"abc"), (b"abc", b""), ())
    }
    assert len(found) == 6
    assert {len(one) for one in found} == {24}
    assert digest(b"ab", b"c") == digest(b"ab", b"c")


class Clock:
    def __init__(self) -> None:
        self.now, self.date = 1000.0, 5000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.date


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(once, "time", made)
    return made


# ---- what a ledger holds


def line(response: str, *, run: str = "r", tag: Any = "", at: float = 5000.0, order: int = 0) -> str:
    entry = {
        "type": "rollout",
        "spec": "s",
        "time": at,
        "run": run,
        "order": order,
        "index": 0,
        "group": None,
        "rollout_digest": response,
        "reward": 1.0,
        "raw_reward": 1.0,
        "status": "scored",
        "contributions": {},
        "grades": {},
        "tags": {} if tag is None else {"request": tag},
    }
    return json.dumps(entry) + "\n"


@pytest.fixture
def recall() -> Recall:
    return Recall(b"salt")


def digests(entries: Any) -> list[str]:
    return [entry.rollout_digest for entry in entries]


def test_a_request_s_tag_depends_on_its_key_and_on_the_settings(recall: Recall) -> None:
    assert recall.tag("k") == digest(b"salt", b"k") != Recall(b"other").tag("k")
    assert recall.tag("\ud800") != recall.tag("k")


def test_entries_of_a_request_are_taken_out_whole_or_by_run(
    recall: Recall, tmp_path: Path, clock: Clock
) -> None:
    file = tmp_path / "ledger.jsonl"
    tags = recall.tag("k"), recall.tag("text")
    file.write_text(
        "".join(
            (
                line("a", run="1", tag=tags[0]),
                line("b", run="2", tag=tags[0]),
                line("c", run="3", tag=tags[1]),
                line("d", run="4", tag=tags[1]),
                line("e", run="5", tag=None),
                line("old", run="6", tag=tags[0], at=5000.0 - 900.5),
                line("just", run="7", tag=tags[0], at=5000.0 - 900.0),
            )
        )
    )
    os.utime(file, (5000, 5000))
    assert recall.read(file) == 5
    assert digests(recall.take("k", unique=True)) == ["a", "b", "just"]
    assert recall.take("k", unique=True) == []
    assert [digests(recall.take("text", unique=False)) for _ in range(3)] == [["c"], ["d"], []]
    assert recall._entries == {}


def test_what_was_read_is_forgotten_after_a_while(recall: Recall, tmp_path: Path, clock: Clock) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text(line("a", tag=recall.tag("k")) + line("b", tag=recall.tag("l")))
    os.utime(file, (5000, 5000))
    recall.read(file)
    clock.now += 900.0
    assert digests(recall.take("k", unique=True)) == ["a"]
    clock.now += 0.1
    assert recall.take("l", unique=True) == []
    assert recall._entries == {}


def test_files_that_nobody_wrote_to_lately_are_not_read(recall: Recall, tmp_path: Path, clock: Clock) -> None:
    for name, written in (("a.jsonl", 4100), ("b.jsonl", 4099), ("c.txt", 5000)):
        (tmp_path / name).write_text(line(name, run=name, tag=recall.tag("k")))
        os.utime(tmp_path / name, (written, written))
    assert recall.read(tmp_path) == 1
    assert digests(recall.take("k", unique=True)) == ["a.jsonl"]
    assert recall.read(tmp_path / "none.jsonl") == 0
    assert recall.take("k", unique=False) == []


def test_only_the_end_of_a_file_is_read(
    recall: Recall, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ledger.jsonl"
    lines = [line(name, run=name, tag=recall.tag("k")) for name in "abc"]
    file.write_text("".join(lines))
    os.utime(file, (5000, 5000))
    size = len(lines[0])
    for most, found in ((3 * size, 3), (3 * size - 1, 2), (2 * size, 2), (size, 1), (size - 1, 0)):
        monkeypatch.setattr(once, "RECALL_BYTES", most)
        assert Recall(b"salt").read(file) == found


def test_lines_that_are_torn_or_no_text_are_passed_over(recall: Recall, tmp_path: Path, clock: Clock) -> None:
    file = tmp_path / "ledger.jsonl"
    good = [line(name, run=name, tag=recall.tag("k")).encode() for name in "ab"]
    wrong = [
        b'{"type": "rollout", "spec": "\xff"}\n',
        good[0][:40] + b"\n",
        b"[" * 100_000 + b"\n",
        b"\n",
        b"7\n",
    ]
    file.write_bytes(good[0] + b"".join(wrong) + good[1])
    os.utime(file, (5000, 5000))
    assert recall.read(file) == 2
    assert digests(recall.take("k", unique=True)) == ["a", "b"]


# ---- jobs


@contextlib.asynccontextmanager
async def begun(found: Answers, key: str, body: str = "", *, unique: bool = True) -> Any:
    gate = asyncio.Event()

    async def work(job: Job) -> None:
        await gate.wait()

    with found.job(key, body, work, unique=unique) as job:
        yield job, gate


async def test_parts_are_whole_in_their_places() -> None:
    async def work(job: Job) -> None:
        for place, part in ((2, b"cc"), (0, b"a"), (1, b"b")):
            job.add(place, part)

    with Answers().job("k", "", work, unique=True) as job:
        assert await job.whole() == [b"a", b"b", b"cc"]
        assert [part async for part in job.follow()] == [b"cc", b"a", b"b"]
        assert (job.size, job.key, job.body, job.waiting, job.at) == (4, "k", "", 1, 0.0)


async def test_a_job_that_the_service_stopped_is_an_error_and_a_waiter_that_was_cancelled_is_cancelled() -> (
    None
):
    found = Answers()
    async with begun(found, "k") as (job, _):
        waiter, other = (asyncio.create_task(job.whole()) for _ in range(2))
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.wait([waiter])
        assert waiter.cancelled()
        assert not job.task.done()
        await found.finish(0)
        with pytest.raises(ServiceUnavailable, match="^the service stopped before this was graded$"):
            await other
    assert (found.running, found.abandoned, found.named("k")) == (0, 0, None)


async def test_a_job_is_abandoned_while_it_runs_and_nobody_waits() -> None:
    found = Answers()
    async with begun(found, "k") as (job, gate):
        assert (found.running, found.abandoned, job.waiting) == (1, 0, 1)
    assert (found.running, found.abandoned, job.waiting) == (1, 1, 0)
    async with begun(found, "k") as (again, _):
        assert again is job
        assert (found.running, found.abandoned) == (1, 0)
    gate.set()
    await found.finish(20)
    assert (found.running, found.abandoned) == (0, 0)
    assert found.named("k") is job
    assert list(found._waiting._jobs) == [job]


@pytest.mark.parametrize("unique", [True, False])
async def test_a_delivered_answer_is_kept_where_its_key_is_the_client_s(unique: bool) -> None:
    found = Answers()
    async with begun(found, "k", unique=unique) as (job, gate):
        gate.set()
        await job.whole()
        job.delivered = True
    assert (found.named("k") is job) is unique
    assert list(found._delivered._jobs) == [job] * unique
    assert list(found._waiting._jobs) == []


async def test_a_text_is_another_request_s_while_somebody_waits_for_it() -> None:
    found = Answers()
    async with begun(found, "t", unique=False) as (first, _), begun(found, "t", unique=False) as (second, _):
        assert first is not second
    async with begun(found, "t", unique=False) as (third, _):
        assert third is first
        with pytest.raises(KeyError, match="'t'"), found.job("t", "other", None, unique=True):  # type: ignore[arg-type]
            pass
    await found.finish(0)
    assert found._jobs == {}


async def test_an_error_is_forgotten_at_once() -> None:
    async def work(job: Job) -> None:
        raise ValueError("no")

    found = Answers()
    with found.job("k", "", work, unique=True) as job, pytest.raises(ValueError, match="no"):
        await job.whole()
    assert found._jobs == {}
    await found.finish(0)


# ---- shelves


def test_a_shelf_drops_the_oldest_past_its_size_and_its_time(clock: Clock) -> None:
    dropped: list[str] = []
    shelf = _Shelf(10, lambda job: dropped.append(job.key))
    jobs = {key: Job(key, "") for key in "abcde"}
    for key, size in (("a", 4), ("b", 6), ("c", 1), ("d", 3)):
        jobs[key].add(0, b"x" * size)
        shelf.put(jobs[key])
        clock.now += 300.0
    assert (dropped, shelf._bytes) == (["a"], 10)
    shelf.put(jobs["b"])  # it is the newest now
    assert (dropped, [job.key for job in shelf._jobs], shelf._bytes) == (["a"], ["c", "d", "b"], 10)
    assert jobs["b"].at == clock.now
    clock.now = 2500.0  # 900 s after the third
    shelf.put(jobs["e"])
    assert dropped == ["a"]
    clock.now += 0.5
    shelf.put(jobs["e"])
    assert (dropped, shelf._bytes) == (["a", "c"], 9)
    shelf.take(jobs["a"])
    shelf.take(jobs["b"])
    assert ([job.key for job in shelf._jobs], shelf._bytes) == (["d", "e"], 3)


def test_one_job_that_is_larger_than_its_shelf_is_not_kept() -> None:
    dropped: list[Job] = []
    shelf, job = _Shelf(10, dropped.append), Job("k", "")
    job.add(0, b"x" * 11)
    shelf.put(job)
    assert (dropped, len(shelf._jobs), shelf._bytes) == ([job], 0, 0)
