"""The ledger: whole lines, torn lines, kill -9, several processes."""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from judgekit import (
    ConfigError,
    DataError,
    Failed,
    Graded,
    GradingRunner,
    Ledger,
    Rollout,
    Skipped,
    grader,
    read_ledger,
)
from judgekit.graders import JudgeGrader
from judgekit.ledger.schema import Entry
from judgekit.report.table import Table
from judgekit.testing import ScriptedJudge


@grader
def first(rollout: Rollout) -> Any:
    return rollout.extra.get("score", 0.5)


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "ledger.jsonl"
    runner = GradingRunner({"first": first}, ledger=Ledger(path, texts=True))
    rollouts = [
        Rollout(response="a\ud800b\u2028", group=("x", 1), extra={"score": math.nan}),
        Rollout(response="c", prompt=[{"role": "user", "content": "q"}], ground_truth=object(), id="7"),
    ]
    results = runner.run_sync(rollouts, tags={"step": 3})
    reading = read_ledger(path)
    assert [e.grades for e in reading.entries] == [r.grades for r in results]
    assert [e.reward for e in reading.entries] == [None, 0.5]
    assert reading.entries[0].response == "a\\ud800b\u2028"
    assert reading.entries[0].group == ["x", 1]
    assert reading.entries[1].tags == {"step": 3}
    (spec,) = reading.specs.values()
    assert spec.reward == {"weighted": {"first": 1.0}, "normalize": True}
    assert spec.graders["first"].bounds() == (0.0, 1.0)
    assert reading.entries[0].spec == spec.digest


def test_texts_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    GradingRunner({"first": first}, ledger=Ledger(tmp_path / "l")).run_sync([Rollout(response="secret text")])
    assert "secret text" not in (tmp_path / "l").read_text()
    (entry,) = read_ledger(tmp_path / "l").entries
    assert entry.response_chars == 11
    assert entry.rollout_digest


def test_spec_is_written_once_per_process(tmp_path: Path) -> None:
    runner = GradingRunner({"first": first}, ledger=Ledger(tmp_path / "l"))
    for _ in range(3):
        runner.run_sync([Rollout(response="")])
    kinds = [json.loads(line)["type"] for line in (tmp_path / "l").read_text().splitlines()]
    assert kinds == ["spec", "rollout", "rollout", "rollout"]


def test_a_torn_last_line_is_skipped_and_reported_and_the_next_run_begins_a_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "l"
    runner = GradingRunner({"first": first}, ledger=Ledger(path))
    runner.run_sync([Rollout(response="")] * 2)
    path.write_bytes(path.read_bytes()[:-20])
    assert (len(read_ledger(path).entries), read_ledger(path).torn) == (1, [3])
    GradingRunner({"first": first}, ledger=Ledger(path)).run_sync([Rollout(response="")])
    reading = read_ledger(path)
    assert len(reading.entries) == 2
    assert reading.torn == [3]
    assert "skipped 1 line(s), the first is line 3" in caplog.text


def test_bad_paths_and_files_are_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read .*No such file"):
        read_ledger(tmp_path / "none")
    (tmp_path / "other.jsonl").write_text('{"type": "rollout", "spec": 3}\n')
    with pytest.raises(DataError, match="line 1: not a line of a judgekit ledger"):
        read_ledger(tmp_path / "other.jsonl")
    with pytest.raises(ConfigError, match="cannot write the ledger"):
        GradingRunner({"first": first}, ledger=Ledger(tmp_path / "other.jsonl" / "l")).run_sync(
            [Rollout(response="")]
        )
    with pytest.raises(ConfigError, match="'never' or 'batch'"):
        Ledger(tmp_path / "l", fsync="always")  # type: ignore[arg-type]


WRITER = """
    import sys
    from judgekit import GradingRunner, Ledger, Rollout, grader
    one = grader(lambda response: 1.0)
    runner = GradingRunner({"one": one}, ledger=Ledger(sys.argv[1], texts=True, fsync="batch"))
    print("ready", flush=True)
    while True:
        runner.run_sync([Rollout(response="x" * 5000, group=i // 4) for i in range(200)])
"""


def test_kill_9_loses_no_line_that_was_written_and_tears_at_most_the_last(tmp_path: Path) -> None:
    """Two processes share the ledger; both are killed in the middle of writing."""
    path = tmp_path / "l"
    writers = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(WRITER), str(path)], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    while not path.exists() or path.stat().st_size < 3_000_000:
        pass
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        assert writer.stdout is not None
        writer.stdout.close()
    reading = read_ledger(path)
    assert len(reading.entries) > 400
    assert len(reading.torn) <= 2
    assert all(entry.grades["one"] == Graded(1.0) for entry in reading.entries)


SHARING = """
    import sys
    from judgekit import Graded, GradingRunner, Ledger, Rollout, grader
    path, me, count = sys.argv[1], sys.argv[2], int(sys.argv[3])

    @grader
    async def judge(rollout):
        return Graded(int(rollout.id) / 1000, reason=me * 300)

    @grader
    async def other(rollout):
        return Graded(0.5, reason=me * 300)

    ledger = Ledger(path, texts=True, fsync="never")
    runner = GradingRunner([judge, other], transform="center", ledger=ledger)
    for step in range(count):
        rollouts = [Rollout(response=me * (i * 37 % 5000), id=str(i), group=i // 4) for i in range(100)]
        runner.run_sync(rollouts, tags={"by": me, "step": step})
        print(step, flush=True)
    ledger.close()
    print("end", ledger.lost, flush=True)
"""


def test_processes_that_share_a_file_and_are_killed_cost_nobody_else_a_line(tmp_path: Path) -> None:
    """Six processes append to one file; half of them are killed at random. Long lines, so that some are torn."""
    path, rng = tmp_path / "l", random.Random(4)

    def started(name: str, count: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", textwrap.dedent(SHARING), str(path), name, str(count)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    survivors = {name: started(name, 6) for name in "ABC"}
    killed: dict[str, int] = {}
    for name in "abcdefgh":  # one after the other, beside those that survive
        process = started(name, 10**6)
        assert process.stdout is not None
        said = process.stdout.readline()
        time.sleep(rng.random() / 20)
        process.kill()
        said = "".join([said, *process.stdout]).split()
        process.wait()
        process.stdout.close()
        killed[name] = len(said)  # steps that it had ended
    for process in survivors.values():
        out, _ = process.communicate(timeout=120)
        assert out.split()[-2:] == ["end", "0"]
    reading = read_ledger(path)
    found: Counter[tuple[str, int]] = Counter()
    for entry in reading.entries:
        name = entry.tags["by"]
        assert set(entry.response or name) <= {name}
        assert entry.response is None or len(entry.response) == int(entry.id) * 37 % 5000
        for key, score in (("judge", int(entry.id) / 1000), ("other", 0.5)):
            assert entry.grades.get(key, Graded(score, name * 300)) == Graded(score, name * 300)
        if entry.status != "unfinished":
            assert entry.grades.keys() == {"judge", "other"}
            found[name, entry.tags["step"]] += 1
    assert {key: found[key] for key in found if key[0] in survivors} == {
        (name, step): 100 for name in survivors for step in range(6)
    }
    for name, steps in killed.items():
        assert all(found[name, step] == 100 for step in range(steps))  # a run ends with its lines in the file
    assert len(reading.torn) <= len(killed)


def test_a_forked_child_does_not_write_its_parents_lines_again(tmp_path: Path) -> None:
    path = tmp_path / "l"
    ledger = Ledger(path)
    runner = GradingRunner({"first": first}, ledger=ledger)
    runner.run_sync([Rollout(response="")])
    result = runner.run_sync([Rollout(response="")])[0]
    ledger.write(Entry.of(result, Rollout(response="b"), spec="s", run="r"))
    pid = os.fork()
    if pid == 0:
        ledger.write(Entry.of(result, Rollout(response="child"), spec="s", run="r"))
        ledger.flush()
        os._exit(0)
    os.waitpid(pid, 0)
    ledger.flush()
    chars = [e.response_chars for e in read_ledger(path).entries]
    assert sorted(chars) == [0, 0, 1, 5]


def test_every_kind_of_grade_survives_the_way_through_json(tmp_path: Path) -> None:
    from judgekit import Gate, Score

    judge = grader(lambda response: Failed("VerdictError", "no line", metadata={"raw": "maybe"}))  # type: ignore[misc]
    reward = Gate(if_=Score("first") >= 1, then=Score("judge", if_missing=0.25), otherwise=0)
    runner = GradingRunner({"first": first, "judge": judge}, reward, ledger=Ledger(tmp_path / "l"))
    results = runner.run_sync([Rollout(response="", extra={"score": s}) for s in (0, 1, None)])
    entries = read_ledger(tmp_path / "l").entries
    assert [e.grades for e in entries] == [r.grades for r in results]
    assert entries[0].grades["judge"] == Skipped("first >= 1")
    assert entries[1].grades["judge"].metadata == {"raw": "maybe"}  # type: ignore[union-attr]
    assert entries[1].policies == ["judge: missing, counts as 0.25"]


async def test_what_the_judge_was_asked_is_kept_with_the_texts(tmp_path: Path) -> None:
    for texts in (True, False):
        path = tmp_path / f"{texts}.jsonl"
        judge = JudgeGrader(ScriptedJudge("1"))
        runner = GradingRunner({"judge": judge}, ledger=Ledger(path, texts=texts))
        await runner.run([Rollout(prompt="2+2?", ground_truth="4", response="it is 4")])
        (entry,) = read_ledger(path).entries
        grade = entry.grades["judge"]
        assert isinstance(grade, Graded)
        assert grade.metadata is not None
        asked = grade.metadata.get("prompt", [])
        assert [turn["role"] for turn in asked] == (["system", "user"] if texts else [])
        assert ("it is 4" in str(asked)) is texts


def test_compressed_files_are_not_passed_over_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for name in ("1.jsonl", "2.jsonl"):
        GradingRunner([first], ledger=Ledger(folder / name)).run_sync([Rollout(response="x", id=name)])
    read_ledger(folder)
    assert not caplog.text
    packed = folder / "1.jsonl.gz"
    packed.write_bytes(gzip.compress((folder / "1.jsonl").read_bytes()))
    (folder / "1.jsonl").unlink()
    for read in (read_ledger, lambda path: Table(path).read(end=True)):
        caplog.clear()
        read(folder)
        assert "1 compressed file(s) are left out, the first is 1.jsonl.gz: unpack them first" in caplog.text
        with pytest.raises(DataError, match=r"1.jsonl.gz is compressed: unpack it first"):
            read(packed)
    shutil.copy(folder / "2.jsonl", tmp_path / "plain.jsonl.gz")
    assert len(read_ledger(tmp_path / "plain.jsonl.gz").entries) == 1


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    runner = GradingRunner({"one": grader(name="one")(lambda response: 1.0)}, ledger=Ledger(path))
    runner.run_sync([Rollout(response="x")])
    text = path.read_text()
    path.write_text(text.replace('"format":1', '"format":99', 1))
    with pytest.raises(
        DataError, match="line 1: the ledger has format 99, of judgekit .*: this version reads up to 1"
    ):
        read_ledger(path)
