"""How lines reach the file: buffered, forced, by several processes, and in a form that reads back."""

from __future__ import annotations

import json
import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest

from judgekit import Graded, GradingRunner, Ledger, Rollout, grader, read_ledger
from judgekit.ledger.schema import Entry


@grader
def half(response: str) -> float:
    return 0.5


def entry(ledger: Ledger, text: str = "x", **fields: Any) -> Entry:
    rollout = Rollout(response=text, **fields)
    (result,) = GradingRunner([half]).run_sync([rollout])
    return ledger.entry(result, rollout, spec="s", run="r", tags={"step": 1})


def lines(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def test_a_ledger_is_sent_to_other_processes_as_its_settings(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l", texts=True, fsync="batch")
    ledger.write([entry(ledger)])
    again = pickle.loads(pickle.dumps(ledger))
    assert (again.path, again.texts, again.fsync) == (tmp_path / "l", True, "batch")
    again.write([entry(again)])
    again.close()
    ledger.close()
    assert lines(tmp_path / "l") == 2


def test_lines_wait_for_a_batch_a_second_or_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    path = tmp_path / "l"
    ledger = Ledger(path, fsync="never")
    one = entry(ledger)
    ledger.write([one])  # the first of all does not wait: the last was long ago
    assert lines(path) == 1
    ledger.write([one])
    now += 0.5
    ledger.write([one])
    assert lines(path) == 1
    now += 0.5
    ledger.write([one])
    assert lines(path) == 4
    ledger.write([one])
    ledger.flush()
    assert lines(path) == 5
    ledger.write([one] * 2000)  # more bytes than are kept
    assert lines(path) == 2005
    ledger.close()


@pytest.mark.parametrize(("fsync", "forced"), [("never", 0), ("run", 2), ("batch", 3)])
def test_what_is_forced_to_the_disk_is_what_fsync_says(
    fsync: Any, forced: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    ledger = Ledger(tmp_path / "l", fsync=fsync)
    one = entry(ledger)
    for _ in range(3):
        ledger.write([one])
    ledger.flush()
    ledger.flush()
    assert len(calls) == forced
    ledger.close()


def test_closing_gives_the_file_back_and_writing_opens_it_again(tmp_path: Path) -> None:
    path = tmp_path / "l"
    ledger = Ledger(path)
    one = entry(ledger)
    before = len(os.listdir("/proc/self/fd"))
    for n in (1, 2, 3):
        ledger.write([one])
        ledger.flush()
        assert len(os.listdir("/proc/self/fd")) == before + 1
        ledger.close()
        ledger.close()
        assert len(os.listdir("/proc/self/fd")) == before
        assert lines(path) == n


def test_an_entry_says_all_that_is_known_of_its_rollout(tmp_path: Path) -> None:
    path = tmp_path / "very" / "deep" / "l"
    ledger = Ledger(path, texts=True)
    made = entry(
        ledger,
        "four",
        id="7",
        group=3,
        prompt="p",
        ground_truth={"a": [1]},
        data_source="math",
        finish_reason="stop",
        response_tokens=2,
        extra={"k": "v"},
    )
    began = time.time()
    ledger.write([made])
    ledger.close()
    (read,) = read_ledger(path).entries
    assert read == made
    assert (read.spec, read.run, read.index, read.group, read.id, read.tags) == (
        "s",
        "r",
        0,
        3,
        "7",
        {"step": 1},
    )
    assert (read.reward, read.status, read.raw_reward) == (0.5, "scored", 0.5)
    assert read.contributions == {"half": 0.5, "residual": 0.0}
    assert read.grades == {"half": Graded(0.5)}
    assert (read.data_source, read.finish_reason, read.response_tokens, read.response_chars) == (
        "math",
        "stop",
        2,
        4,
    )
    assert (read.prompt, read.response, read.ground_truth, read.extra) == (
        "p",
        "four",
        {"a": [1]},
        {"k": "v"},
    )
    assert abs(read.time - began) < 60
    bare = entry(Ledger(path), "four", prompt="p", extra={"k": "v"})
    assert (bare.prompt, bare.response, bare.ground_truth, bare.extra) == (None, None, None, {})
    assert bare.response_digest == read.response_digest != entry(ledger, "five").response_digest


class Array:
    """Like a numpy array."""

    def tolist(self) -> list[int]:
        return [1, 2]


def test_what_json_does_not_know_is_written_as_what_it_is_most_like(tmp_path: Path) -> None:
    path = tmp_path / "l"
    ledger = Ledger(path, texts=True)
    truth = {"set": {3, 1, 2}, "array": Array(), "path": Path("x"), "mapping": os.environ.__class__}
    ledger.write([entry(ledger, "a\ud800b", ground_truth=truth, extra={"k\ud800": ("v\udfff", 1)})])
    ledger.write([entry(ledger, "plain", ground_truth=truth)])
    ledger.close()
    strange, plain = read_ledger(path).entries
    assert strange.response == "a\\ud800b"
    assert strange.extra == {"k\\ud800": ["v\\udfff", 1]}
    for read in (strange, plain):
        assert read.ground_truth["set"] == [1, 2, 3]
        assert read.ground_truth["array"] == [1, 2]
        assert "Path" in read.ground_truth["path"] or read.ground_truth["path"] == "x"


def test_a_whole_last_line_gets_no_empty_one_after_it(tmp_path: Path) -> None:
    path = tmp_path / "l"
    for whole in (True, False):
        ledger = Ledger(path)
        ledger.write([entry(ledger)])
        ledger.close()
        text = path.read_text()
        assert "\n\n" not in text
        assert text.endswith("\n")
        if whole:
            path.write_text(text[:-1])  # a process that was killed before the line's end
    assert len(read_ledger(path).entries) == 2


def test_a_forked_child_says_how_it_grades_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "l"
    ledger = Ledger(path)
    runner = GradingRunner([half], ledger=ledger)
    runner.run_sync([Rollout(response="")])
    pid = os.fork()
    if pid == 0:
        try:
            ledger.begin(runner.spec)
            ledger.begin(runner.spec)
            ledger.flush()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    kinds = [json.loads(line)["type"] for line in path.read_text().splitlines()]
    assert kinds == ["spec", "rollout", "spec"]
