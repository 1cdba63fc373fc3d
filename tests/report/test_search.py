"""Search: in texts and not in the format, in one kind of text, by expression; with an index or without."""

from __future__ import annotations

import re
import threading
from contextlib import closing
from pathlib import Path

import pytest

from judgekit import DataError, Graded
from judgekit.report import search as module
from judgekit.report.search import Texts, Wanted, literal_of
from judgekit.report.table import Table

from .finding import found, matching_rows
from .test_table import append, entry


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("needle", [1]), ("NEEDLE", [1]), ("a \"quoted\"", [2]), ("line\nbreak", [3]), ("Größe", [4]), ("back\\slash", [5]),
        ("reward", [6]), ("graded", []), ("scored", []), ("", list(range(8))), ("in the prompt", [7]), ("response", []),
        ("GRÖSSE", []), ("größe", [4]), ("DIE GRÖß", [4]), ("1.0", []), ("0.5", []), ("q42", []), ("5", [5]),
    ],
)  # fmt: skip
def test_search_finds_texts_and_not_the_format(tmp_path: Path, text: str, rows: list[int]) -> None:
    path = tmp_path / "l.jsonl"
    texts = [
        "plain",
        "a Needle here",
        'a "quoted" word',
        "line\nbreak",
        "die Größe",
        "back\\slash",
        "my reward!",
        "x",
    ]
    made = [entry(i, response=t, prompt="in the prompt" if i == 7 else None) for i, t in enumerate(texts)]
    append(path, *made[:4])
    with open(path, "ab") as file:
        file.write(b'{"torn needle\n')
    append(path, *made[4:])
    table = Table(path)
    table.read()
    assert matching_rows(table, text) == rows


@pytest.fixture
def table(tmp_path: Path) -> Table:
    path = tmp_path / "l.jsonl"
    append(
        path,
        entry(0, prompt="apple", response="pear 12", grades={"a": Graded(0.5, reason="Plum")}),
        entry(1, prompt="pear", response="apple 345", messages=[{"role": "assistant", "content": "fig"}]),
        entry(2, prompt="plum", response="PEAR\nline", grades={"a": Graded(0.5, reason="apple")}),
    )
    table = Table(path)
    table.read()
    return table


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (Wanted("apple"), [0, 1, 2]), (Wanted("apple", "prompt"), [0]), (Wanted("apple", "response"), [1]),
        (Wanted("apple", "reason"), [2]), (Wanted("fig", "response"), [1]), (Wanted("role", "response"), []),
        (Wanted("[0-9]{3}", "response", True), [1]), (Wanted("pear", "response", True), [0]),
        (Wanted("(?i)pear", "response", True), [0, 2]), (Wanted("^line$", "text", True), []),
        (Wanted("(?m)^line$", "text", True), [2]), (Wanted("apple|fig", "response", True), [1]),
        (Wanted("pe?ar(?= 1)", "text", True), [0]), (Wanted("unfinished|scored", "text", True), []),
        (Wanted("PEAR\nl", "text", True), [2]), (Wanted("", "text", True), [0, 1, 2]),
    ],
)  # fmt: skip
def test_one_kind_of_text_is_searched_by_words_or_an_expression(
    table: Table, wanted: Wanted, rows: list[int]
) -> None:
    assert found(table, wanted) == rows
    assert found(table, wanted, 1) == [row for row in rows if row]


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (Wanted("42"), [0, 2, 3]), (Wanted("42", "response"), [0]), (Wanted("42", "reason"), [2]), (Wanted("42", "prompt"), []),
        (Wanted("content"), [4]), (Wanted("content", "prompt"), []), (Wanted("user", "prompt"), [1]), (Wanted("a.5"), []),
    ],
)  # fmt: skip
def test_numbers_and_words_of_the_format_are_told_from_texts_without_reading_lines_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Wanted, rows: list[int]
) -> None:
    path = tmp_path / "l.jsonl"
    append(
        path,
        entry(0, response="it is 42", time=42.0),
        entry(42, prompt=[{"role": "user", "content": "x"}], grades={"a": Graded(0.42)}, id="i"),
        entry(2, grades={"a": Graded(0.5, reason='42 "is" it', metadata={"42": 1})}),
        entry(3, extra={"B": "a 42", "b": "x", "status": "c 42"}),
        entry(4, extra={"status": "a.5", "of": ["the content"]}),
    )
    table = Table(path)
    table.read()
    monkeypatch.delattr(Table, "rollout")
    assert found(table, wanted) == rows


@pytest.mark.parametrize(
    ("expression", "literal"),
    [("abc", "abc"), ("ab*c", "a"), ("a|bc", ""), ("(ab)?cd", "cd"), ("x[0-9]+long tail", "long tail"), ("\\d+", ""), ("größer als", "er als")],
)  # fmt: skip
def test_the_plain_piece_of_an_expression_stands_in_whatever_it_matches(
    expression: str, literal: str
) -> None:
    assert literal_of(expression) == literal


def test_what_cannot_be_searched_for_is_said() -> None:
    with pytest.raises(DataError, match=re.escape("/(/ is no regular expression: missing )")):
        Wanted("(", regex=True).check()
    with pytest.raises(DataError, match="no text called 'thought'; there are text, prompt"):
        Wanted("x", "thought").check()


def test_an_index_that_lags_or_has_no_room_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PIECE", 300)
    path = tmp_path / "l.jsonl"
    append(path, *(entry(i, response="Needle" if i % 3 else "x") for i in range(20)))
    table = Table(path)
    wanted = [i for i in range(50) if i % 3]
    with closing(Texts()) as texts:
        table.read(7)
        texts.follow(table)
        table.read()
        assert texts.rows(table, Wanted("needle")) == [row for row in wanted if row < 20]
        append(path, *(entry(i, response="Needle" if i % 3 else "x") for i in range(20, 30)))
        table.read()
        texts.follow(table)
        monkeypatch.setattr(
            module.shutil, "disk_usage", lambda folder: module.shutil._ntuple_diskusage(1, 1, 0)
        )
        append(path, *(entry(i, response="Needle" if i % 3 else "x") for i in range(30, 50)))
        table.read()
        texts.follow(table)
        assert texts.rows(table, Wanted("needle")) == wanted


def test_an_index_that_is_closed_while_a_thread_is_at_work_on_it_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that ends does not wait for its index, which is made in a thread."""
    folders = tmp_path / "folders"
    folders.mkdir()
    monkeypatch.setattr(module.tempfile, "tempdir", str(folders))
    path = tmp_path / "l.jsonl"
    append(path, *(entry(i, response="Needle") for i in range(3)))
    table = Table(path)
    table.read()
    begun, goes_on = threading.Event(), threading.Event()
    room = module.shutil.disk_usage
    monkeypatch.setattr(
        module.shutil, "disk_usage", lambda folder: begun.set() or (goes_on.wait(20) and room(folder))
    )
    texts = Texts()
    thread = threading.Thread(target=texts.follow, args=[table])
    thread.start()
    assert begun.wait(20)
    texts.close()
    goes_on.set()
    thread.join()
    assert texts.rows(table, Wanted("needle")) == [0, 1, 2]
    late = Texts()
    late.close()
    late.follow(table)
    assert late.rows(table, Wanted("needle")) == [0, 1, 2]
    assert not list(folders.iterdir())
