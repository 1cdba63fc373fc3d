"""A ledger as columns: what `read_ledger` reads, row by row, also while a run still writes to it."""

from __future__ import annotations

import codecs
import itertools
import math
import os
import random
import threading
from array import array
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from judgekit import DataError, Failed, Graded, Ledger, Rollout, Usage, read_ledger
from judgekit.ledger.jsonl import encoded
from judgekit.ledger.schema import RESUMES, Entry
from judgekit.report import table as module
from judgekit.report.search import Texts, Wanted
from judgekit.report.table import STATES, LedgerChanged, Table

from .ledgers import some, write


def entry(index: int, **changed: Any) -> Entry:
    given: dict[str, Any] = {
        "spec": "s", "time": 1.0, "run": "r", "index": index, "group": index // 2, "id": str(index), "reward": 0.5,
        "status": "scored", "raw_reward": 0.5, "contributions": {}, "grades": {"a": Graded(0.5)},
    }  # fmt: skip
    return Entry(**{**given, **changed})


def append(path: Path, *entries: Entry) -> None:
    with open(path, "ab") as file:
        for one in entries:
            file.write(encoded(one))


def assert_is(table: Table, path: Path) -> None:
    """The table shows what `read_ledger` gives, in its order."""
    entries = read_ledger(path).entries
    rows = list(table.shown())
    assert len(rows) == len(entries)
    for row, expected in zip(rows, entries, strict=True):
        assert table.texts["id"][row] == expected.id
        for key, value in (
            ("reward", expected.reward),
            ("raw", expected.raw_reward),
            ("index", expected.index),
        ):
            assert table.numbers[key][row] == (
                pytest.approx(value) if value is not None else pytest.approx(math.nan, nan_ok=True)
            )
        assert table.names["status"].values[table.codes["status"][row]] == expected.status
        assert table.names["run"].values[table.codes["run"][row]] == expected.run
        for name, column in table.graders.items():
            grade = expected.grades.get(name)
            state = STATES[column.state[row]]
            assert state == (type(grade).__name__.lower() if grade is not None else "absent")
            if isinstance(grade, Graded):
                assert column.score[row] == pytest.approx(grade.score)
            if isinstance(grade, Failed):
                assert table.names["error"].values[column.error[row]] == (grade.error, grade.cause)
        assert table.rollout(row) == msgspec.json.decode(encoded(expected))


def test_it_shows_what_the_reader_reads(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    write(path, some(12, step=1), global_step=1)
    write(path, some(8, step=2), step=2, phase="eval")
    table = Table(path)
    assert table.read() == 20
    assert_is(table, path)
    assert list(table.numbers["step"]) == [1.0] * 12 + [2.0] * 8
    assert table.names["phase"].values == ["", "eval"]
    assert table.names["group"].values[0] == {"id": "group 1-0", "prompt": "Question 0"}
    assert table.facts()["judges"] == ["judge"]
    assert table.usage.calls == sum(e.usage.calls for e in read_ledger(path).entries)


def test_a_folder_is_one_ledger(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", some(4))
    write(tmp_path / "b.jsonl", some(4, step=9))
    table = Table(tmp_path)
    table.read()
    assert_is(table, tmp_path)
    with pytest.raises(DataError, match="holds no ledger"):
        Table(_made(tmp_path / "empty")).read()


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def test_it_reads_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    append(path, entry(0), entry(1))
    table = Table(path)
    assert table.read(1) == 1
    assert table.read() == 1
    assert table.read() == 0
    whole = encoded(entry(2))
    with open(path, "ab") as file:
        file.write(whole[:30])
    assert table.read() == 0  # half a line waits for its end
    with open(path, "ab") as file:
        file.write(whole[30:])
    append(path, entry(3, grades={"b": Graded(1.0)}))
    assert table.read() == 2
    assert_is(table, path)
    assert STATES[table.graders["a"].state[3]] == "absent"
    assert STATES[table.graders["b"].state[0]] == "absent"


def _replaced(path: Path) -> None:
    append(other := path.with_name("other"), *(entry(i, run="new") for i in range(9)))
    other.rename(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: os.truncate(path, 500),
        lambda path: os.truncate(path, 0),
        lambda path: path.write_bytes(encoded(entry(7, run="new"))),
        lambda path: path.write_bytes(b"".join(encoded(entry(i, run="new")) for i in range(9))),
        _replaced,
    ],
)
@pytest.mark.parametrize("in_folder", [False, True])
def test_a_ledger_that_is_not_what_was_read_is_noticed(
    tmp_path: Path, change: Callable[[Path], None], in_folder: bool
) -> None:
    folder = _made(tmp_path / "runs")
    path = folder / "l.jsonl"
    append(path, *(entry(i) for i in range(4)))
    table = Table(folder if in_folder else path)
    table.read()
    append(path, entry(4))
    os.utime(path, (1, 1))
    assert (table.read(), table.read()) == (1, 0)
    change(path)
    with pytest.raises(LedgerChanged):
        table.read()
    with pytest.raises(LedgerChanged):
        table.rollout(3)


def test_a_file_that_left_its_folder_is_noticed(tmp_path: Path) -> None:
    for name in "ab":
        append(tmp_path / f"{name}.jsonl", entry(0, run=name))
    table = Table(tmp_path)
    table.read()
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(LedgerChanged, match="a.jsonl is not there any more"):
        table.read()


def test_what_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    append(path, entry(0))
    table = Table(path)
    table.read()
    whole = path.read_bytes()
    with open(path, "ab") as file:
        file.write(b"[1]\n")
    for _ in range(2):
        with pytest.raises(DataError, match="line 2: not a line"):
            table.read()
    path.rename(tmp_path / "away")
    with pytest.raises(DataError, match="No such file"):
        table.read()
    (tmp_path / "away").rename(path)
    os.truncate(path, len(whole))
    append(path, entry(1))
    assert table.read() == 1
    assert_is(table, path)


def test_a_folder_of_many_files_is_read_and_searched_in_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few rows are read at once: each file is opened once, each row's place is looked at once."""
    for name in range(60):
        append(tmp_path / f"{name:02}.jsonl", *(entry(i, run=str(name), response="needle") for i in range(5)))
    opened: list[Path] = []
    looked: list[Any] = []

    def opens(path: Path, mode: str, *how: int) -> Any:
        opened.append(path)
        return path.open(mode)

    monkeypatch.setattr(module, "open", opens, raising=False)
    follow = Table._follow
    monkeypatch.setattr(
        Table, "_follow", lambda self, path, file: looked.append(path) or follow(self, path, file)
    )
    table = Table(tmp_path)
    while table.read(7):
        pass
    assert (len(opened), len(looked)) == (60, 120)
    assert_is(table, tmp_path)

    class Counted(array):  # type: ignore[type-arg]
        def __getitem__(self, at: Any) -> Any:
            places.append(at)
            return super().__getitem__(at)

    places: list[Any] = []
    table._places = (Counted("l", table._places[0]), *table._places[1:])
    with closing(Texts()) as texts:
        assert texts.rows(table, Wanted("needle")) == list(range(300))
        assert texts.rows(table, Wanted("needle"), 290) == list(range(290, 300))
    assert len(places) <= 300 + 10


def test_the_last_line_counts_without_its_end_where_nobody_writes(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    path.write_bytes(encoded(entry(0)) + encoded(entry(1)).rstrip())
    table = Table(path)
    assert table.read(end=True) == 2
    assert_is(table, path)
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(encoded(entry(0)) + b'{"type":"rollout","spec')
    table = Table(torn)
    assert (table.read(end=True), table.torn) == (1, [2])


def test_a_line_that_is_no_ledgers_is_an_error_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    append(path, entry(0))
    with open(path, "ab") as file:
        file.write(b"\nnot json\n[1]\n")
    with pytest.raises(DataError, match="line 4: not a line of a judgekit ledger"):
        Table(path).read()
    with pytest.raises(DataError, match="No such file"):
        Table(tmp_path / "none").read()


def test_rows_that_were_replaced_are_hidden(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    append(
        path,
        entry(0, status="unfinished", reward=None, raw_reward=None),
        entry(1, rollout_digest="d1"),
        entry(0),
        entry(1, run="later", tags={RESUMES: ["r"]}, rollout_digest="d1", reward=0.9, raw_reward=0.9),
        entry(2, run="later", rollout_digest="other"),
    )
    table = Table(path)
    table.read()
    assert table.hidden == {0, 1}
    assert_is(table, path)
    append(path, entry(7, run="r"), entry(7, run="third", tags={RESUMES: ["r", "later"]}))
    table.read()
    assert_is(table, path)


def test_a_run_that_resumes_another_may_come_first_in_a_folder(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", entry(0, run="new", tags={RESUMES: ["old"]}), entry(1, run="new"))
    append(tmp_path / "b.jsonl", entry(0, run="old"), entry(1, run="old"))
    (tmp_path / "b.marks.jsonl").write_text('{"run": "old", "index": 0, "mark": "good"}\n')
    (tmp_path / ".marks.jsonl").write_text('{"run": "old", "index": 0, "mark": "good"}\n')
    table = Table(tmp_path)
    table.read()
    assert table.hidden == {2}
    assert_is(table, tmp_path)


def unfinished(index: int, **changed: Any) -> Entry:
    return entry(index, status="unfinished", reward=None, raw_reward=None, **changed)


@pytest.mark.parametrize(
    ("lines", "counts"),
    [
        ([entry(0, reward=0.1), entry(0, reward=0.2)], [0.2]),
        ([entry(0, reward=0.2, time=2.0), entry(0, reward=0.1)], [0.2]),
        ([entry(0, reward=0.1), unfinished(0)], [0.1]),
        ([unfinished(0, time=9.0), entry(0, reward=0.1), entry(1, reward=0.3), entry(1, reward=0.4)], [0.1, 0.4]),
        ([entry(0, reward=0.1), unfinished(0, run="new", tags={RESUMES: ["r"]})], [0.1]),
        ([unfinished(0, run="new", tags={RESUMES: ["r"]}), unfinished(0), entry(0, reward=0.1)], [0.1]),
        ([unfinished(0, run="new", tags={RESUMES: ["r"]}), unfinished(0)], [None]),
        ([entry(0, reward=0.1, tags={RESUMES: "r"}), entry(1, reward=0.2, tags={RESUMES: ["r"]})], [0.1, 0.2]),
        ([entry(i % 3, run=f"r{i % 2}", reward=i / 10) for i in range(9)], [0.3, 0.4, 0.5, 0.6, 0.7, 0.8]),
        # the clock was set back while the run went on
        ([unfinished(0, order=1, time=9.0), entry(0, order=3, time=2.0, reward=0.1), unfinished(0, order=2, time=8.0)], [0.1]),
        ([entry(0, order=2, time=9.0, reward=0.1), entry(0, order=7, time=2.0, reward=0.2)], [0.2]),
    ],
)  # fmt: skip
def test_the_later_finished_line_of_a_rollout_counts_for_both_readers(
    tmp_path: Path, lines: list[Entry], counts: list[float | None]
) -> None:
    path = tmp_path / "l.jsonl"
    append(path, *lines)
    assert [e.reward for e in read_ledger(path).entries] == counts
    table = Table(path)
    table.read()
    assert_is(table, path)


def test_of_unfinished_lines_the_last_of_their_run_counts_whatever_the_clock_said(tmp_path: Path) -> None:
    grades = {"a": Graded(0.1), "b": Graded(0.2), "c": Graded(0.3)}
    lines = [
        unfinished(0, order=at, time=9.0 - at, grades=dict(list(grades.items())[:at])) for at in (1, 2, 3)
    ]
    for at, order in enumerate(itertools.permutations(lines)):
        folder = _made(tmp_path / str(at))
        for name, line in enumerate(order):
            append(folder / f"{name}.jsonl", line)
            append(folder / f"copy-{name}.jsonl", line)
        assert [entry.grades for entry in read_ledger(folder).entries] == [grades]
        table = Table(folder)
        table.read()
        assert_is(table, folder)


def test_the_files_of_a_folder_in_another_order_tell_the_same(tmp_path: Path) -> None:
    rng = random.Random(5)
    for case in range(40):
        lines = [
            (unfinished if rng.random() < 0.4 else entry)(
                rng.randrange(3), run=run, time=float(at), rollout_digest="d",
                tags={RESUMES: ["a"]} if run == "b" else {RESUMES: ["a", "b"]} if run == "c" else {},
            )
            for at, run in enumerate(rng.choices("abc", k=8))
        ]  # fmt: skip
        told = []
        for order in (lines, lines[::-1], rng.sample(lines, len(lines))):
            folder = _made(tmp_path / f"{case}-{len(told)}")
            for name, line in enumerate(order):
                append(folder / f"{name}.jsonl", line)
            table = Table(folder)
            table.read()
            assert_is(table, folder)
            told.append(sorted(e.time for e in read_ledger(folder).entries))
        assert told[0] == told[1] == told[2]


def test_a_copy_of_a_line_used_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    one = entry(0, usage=Usage(4, 120, 60, 4))
    append(path, one, one, unfinished(0, usage=Usage(1, 9, 0, 1)))
    table = Table(path)
    table.read()
    assert table.usage == Usage(4, 120, 60, 4)


def test_what_an_unfinished_line_used_is_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    append(path, entry(0, status="unfinished", reward=None, raw_reward=None, usage=Usage(3, 100, 50, 3)))
    append(path, entry(0, usage=Usage(4, 120, 60, 4)))
    table = Table(path)
    table.read()
    assert table.usage == Usage(4, 120, 60, 4)


def test_odd_lines_are_torn_or_said(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    append(path, entry(0, tags={RESUMES: 5, "step": 10**30}))
    deep = encoded(entry(1, extra={"x": 0})).replace(b'"x":0', b'"x":' + b"[" * 5000 + b"]" * 5000)
    with open(path, "ab") as file:
        file.write(deep)
    append(path, entry(2))
    table = Table(path)
    assert table.read() >= 2
    assert table.texts["id"][-1] == "2"
    with open(path, "ab") as file:
        file.write(encoded(entry(3)).replace(b'"graded"', b'"guessed"'))
    with pytest.raises(DataError, match="line 4: not a line"):
        table.read()


def test_blocks_put_together_are_the_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 3)
    path = tmp_path / "l.jsonl"
    append(
        path, *(entry(i, grades={f"g{i // 4}": Graded(i / 10)}, data_source=str(i // 2)) for i in range(8))
    )
    table = Table(path)
    table.read()
    assert table.blocks == 3
    blocks = [table.block(i) for i in range(3)]
    assert [b["rows"] for b in blocks] == [3, 3, 2]
    assert [x for b in blocks for x in b["names"]["source"]] == ["0", "1", "2", "3"]
    assert blocks[1]["known"]["source"] == 2
    assert [x for b in blocks for x in b["new_graders"]] == ["g0", "g1"]
    assert [x for b in blocks for x in b["numbers"]["index"]] == list(range(8))
    assert blocks[0]["graders"]["g0"][0] == [0, 0.1, 0.2]
    assert blocks[0]["graders"]["g1"][0] == [None] * 3
    append(path, entry(8, data_source="new"))
    table.read()
    assert (table.blocks, table.block(2)["rows"], table.block(2)["names"]["source"]) == (3, 3, ["3", "new"])


@pytest.mark.parametrize(
    "odd",
    [
        {"group": {"b": [1, None]}}, {"group": True}, {"group": "\ud800 lone"}, {"tags": {"step": "seven"}},
        {"reward": math.inf, "raw_reward": math.inf}, {"reward": None, "raw_reward": None, "status": "masked"},
        {"grades": {}}, {"prompt": 7}, {"prompt": [7, {"content": [{"type": "image_url"}]}]}, {"response": "x" * 10**6},
        {"response_tokens": 10**12},
    ],
)  # fmt: skip
def test_odd_values_make_no_ledger_unreadable(tmp_path: Path, odd: dict[str, Any]) -> None:
    path = tmp_path / "l.jsonl"
    append(path, entry(0), entry(1, **odd), entry(2))
    table = Table(path)
    assert table.read() == 3
    encoded(table.block(0))
    assert table.rollout(1)["id"] == "1"


def test_a_ledger_that_is_still_open_is_flushed_first(tmp_path: Path) -> None:
    from judgekit import GradingRunner, grader

    path = tmp_path / "l.jsonl"
    runner = GradingRunner({"a": grader(lambda response: 1.0)}, ledger=Ledger(path))
    runner.run_sync([Rollout(response="x")])
    table = Table(path)
    assert table.read() == 1
    assert table.facts()["specs"] == [
        {
            "reward": {"weighted": {"a": 1.0}, "normalize": True},
            "transform": "none",
            "missing_reward": "exclude",
            "graders": {"a": {"version": "1", "range": (0.0, 1.0)}},
        }
    ]


def test_a_line_that_is_still_being_written_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, drain = threading.Event(), Ledger._drain
    monkeypatch.setattr(Ledger, "_drain", lambda ledger: goes_on.wait(20) and drain(ledger))
    ledger = Ledger(tmp_path / "l.jsonl")
    ledger.write(entry(0))
    threading.Timer(0.2, goes_on.set).start()
    assert Table(tmp_path / "l.jsonl").read() == 1
    ledger.close()


def test_an_editor_s_byte_order_mark_costs_no_row(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    append(path, entry(0), entry(1))
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    table = Table(path)
    assert (table.read(), table.torn) == (2, [])
    assert [table.rollout(row)["index"] for row in range(2)] == [0, 1]
