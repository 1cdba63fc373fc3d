"""Lines of JSON, and files that are there whole or not at all."""

from __future__ import annotations

import json
import stat
from collections import OrderedDict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from judgekit import ConfigError, DataError, Graded
from judgekit.ledger.jsonl import encoded, ends_torn, json_line, numbered_lines, stable
from judgekit.ledger.output_files import whole_file
from judgekit.types import Grade, Usage


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
    for sign in (1, -1):
        line = json.loads(
            encoded([sign * 10**30, sign * 2**1000, sign * (2**1000 - 1), sign * 10**400, "\ud800"])
        )
        assert line[:-1] == [sign * 1e30, "<class 'int'>", sign * 2.0**1000, "<class 'int'>"]


class Broken:
    def __repr__(self) -> str:
        raise ValueError("no words")


class Like:
    """As an array or a tensor."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def tolist(self) -> Any:
        return self.values


@pytest.mark.parametrize("odd", ["plain", "\ud800"])
def test_what_json_cannot_hold_is_written_as_what_it_is_most_like(odd: str) -> None:
    """Alone, and beside a text that the encoder refuses."""
    values: list[Any] = [
        MappingProxyType({"a": 1}), {3, 1, 2}, frozenset("ba"), Like([1, Like(2)]), ("x", None, True, 0.5), b"ab", Path("x"),
    ]  # fmt: skip
    plain = [{"a": 1}, [1, 2, 3], ["a", "b"], [1, 2], ["x", None, True, 0.5]]
    assert json.loads(stable([*values, odd]))[:5] == plain
    as_written = json.loads(encoded([*values, odd]))[:5]
    assert [sorted(found) if at in (1, 2) else found for at, found in enumerate(as_written)] == plain
    assert json.loads(encoded([odd, {(1, "a"): {None: 2}, 3: 4, "k\ud800": "v"}]))[1] == {
        "(1, 'a')": {"None": 2},
        "3": 4,
        "k\\ud800": "v",
    }
    grade = Graded(0.5, "\ud800", usage=Usage(calls=2))
    told = json.loads(encoded({"grade": grade, "odd": "\ud800"}))["grade"]
    assert (told["kind"], msgspec.convert(told, Grade)) == (
        "graded",
        Graded(0.5, "\\ud800", usage=Usage(calls=2)),
    )
    assert "type" not in json.loads(encoded([Usage(calls=2), "\ud800"]))[0]
    assert json.loads(encoded({"broken": Broken(), "whole": 1})) == {
        "broken": "(Broken: ValueError)",
        "whole": 1,
    }


def test_the_same_value_is_the_same_line_in_whatever_order_it_was_made() -> None:
    for odd in ("", "\ud800"):
        one, other = {"b": {"x", "y", "z"}, "a": odd}, {"a": odd, "b": {"z", "y", "x"}}
        assert stable(one) == stable(other)
        assert stable(one).endswith(b"}\n")
        assert json.loads(stable(one)) == {"a": odd and "\\ud800", "b": ["x", "y", "z"]}


def test_a_value_that_stands_twice_holds_itself_nowhere() -> None:
    twice = ["\ud800"]
    assert json.loads(encoded([twice, {"k": twice}, twice])) == [["\\ud800"], {"k": ["\\ud800"]}, ["\\ud800"]]


def test_a_hundred_levels_are_kept() -> None:
    deep: Any = "\ud800"
    for _ in range(101):
        deep = [deep]
    assert "nested too deeply" not in encoded(deep).decode()
    assert "(list, nested too deeply)" in encoded([[deep]]).decode()


def test_lines_are_numbered_and_empty_ones_left_out(tmp_path: Path) -> None:
    path = tmp_path / "l"
    path.write_bytes(b"\xef\xbb\xbfa\n\n \t\n\xef\xbb\xbfb\nc")
    assert list(numbered_lines(path)) == [(1, b"a\n"), (4, b"\xef\xbb\xbfb\n"), (5, b"c")]
    with pytest.raises(DataError, match="cannot read .*none: No such file or directory"):
        list(numbered_lines(tmp_path / "none"))
    with pytest.raises(DataError, match="Is a directory"):
        list(numbered_lines(tmp_path))


@pytest.mark.parametrize(
    ("content", "before", "torn"),
    [
        (b"", None, False), (b"a", None, True), (b"a\n", None, False), (b"\n", None, False), (b"a\nb", None, True),
        (b"a\nb", 0, False), (b"a\nb", 1, True), (b"a\nb", 2, False), (b"a\nb", 3, True),
    ],
)  # fmt: skip
def test_a_file_is_torn_where_a_line_has_no_end(
    content: bytes, before: int | None, torn: bool, tmp_path: Path
) -> None:
    (tmp_path / "l").write_bytes(content)
    with (tmp_path / "l").open("rb") as file:
        assert ends_torn(file.fileno(), before) is torn
