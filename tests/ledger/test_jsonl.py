"""Lines of JSON, and files that are there whole or not at all."""

from __future__ import annotations

import json
import stat
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from judgekit import ConfigError, Graded
from judgekit.ledger.jsonl import encoded, json_line
from judgekit.ledger.output_files import whole_file


def test_a_line_of_json_takes_any_value() -> None:
    line = json_line({"a": 1, "b": {1, 2}.__class__, "c": Graded(0.5)})
    assert line.endswith("}\n")
    assert json.loads(line) == {"a": 1, "b": "<class 'set'>", "c": {"kind": "graded", "score": 0.5}}


def test_what_holds_itself_or_is_nested_too_deeply_is_cut() -> None:
    itself: dict[str, Any] = {"a": 1}
    itself["b"] = [itself, itself]
    deep: Any = "the bottom"
    for _ in range(5000):
        deep = [deep]
    line = json.loads(json_line({"itself": itself, "deep": deep, "grade": Graded(0.5, metadata=itself)}))
    assert line["itself"] == {"a": 1, "b": ["(dict, nested too deeply)"] * 2}
    assert line["grade"]["metadata"] == line["itself"]
    assert "nested too deeply" in json.dumps(line["deep"])


class Text(str):
    """As parsers of HTML and templates give it; its own words are another matter."""

    def __str__(self) -> str:
        return "<Text>"

    __repr__ = __str__


class Whole(int):
    __str__ = __repr__ = lambda self: "<Whole>"


class Real(float):
    __str__ = __repr__ = lambda self: "<Real>"


@pytest.mark.parametrize("odd", ["", "\ud800"])
def test_a_subclass_of_text_or_a_number_is_its_value(odd: str) -> None:
    values: list[Any] = [Text("42"), Whole(42), Real(0.5), OrderedDict(a=Text("b")), {Text("k"): Text("v")}]
    line = encoded([*values, odd])
    assert json.loads(line)[:-1] == ["42", 42, 0.5, {"a": "b"}, {"k": "v"}]


def test_a_file_appears_whole_and_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "very" / "deep" / "out.txt"
    with whole_file(path) as file:
        file.write("é\ud800")
        assert not path.exists()
    assert path.read_text() == "é\\ud800"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_fails_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")

    def fail() -> None:
        with whole_file(path) as file:
            file.write("new")
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ConfigError, match="cannot write .*out.txt/x: "), whole_file(path / "x"):
        pass


def test_numbers_at_the_edge_of_64_bits() -> None:
    for value in (2**64 - 1, -(2**63)):
        assert json.loads(encoded({"x": value, "odd": "\ud800"}))["x"] == value
    assert json.loads(encoded({"x": 2**64}))["x"] == float(2**64)
