"""What plain scalars of a configuration file mean, and the whole sentences about files that cannot be read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from judgekit import ConfigError
from judgekit.strict_yaml import parse_yaml, read_yaml


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("~ null Null NULL", None),
        ("true True TRUE", True),
        ("false False FALSE", False),
        ("7 +7 07", 7),
        ("-7 -07", -7),
        ("1.5 +1.5 15e-1 1.5E0 .15e1 1.5e+0", 1.5),
        ("2. 2.0 2e0", 2.0),
        (".inf .Inf .INF +.inf", math.inf),
        ("-.inf -.INF", -math.inf),
    ],
)
def test_every_spelling_of_a_value(words: str, value: Any) -> None:
    for word in words.split():
        found = parse_yaml(f"a: {word}", "a.yaml")["a"]
        assert (found, type(found)) == (value, type(value))
    for word in (".nan", ".NaN", ".NAN"):
        assert math.isnan(parse_yaml(word, "a.yaml"))


@pytest.mark.parametrize(
    "word",
    ["nULL", "tRUE", "yes", "Off", "y", "1_000", "0o17", "1e", "e5", ".", "+", "1.2.3", "inf", "nan", "1:30"],
)
def test_everything_else_is_text(word: str) -> None:
    assert parse_yaml(f"[{word}]", "a.yaml") == [word]


def test_a_value_left_out_is_none() -> None:
    assert parse_yaml("a:\nb: ''", "a.yaml") == {"a": None, "b": ""}
    assert parse_yaml("", "a.yaml") is None


def test_values_are_data_of_their_own() -> None:
    found = parse_yaml("x: &x [1, {a: 2}]\ny: *x", "a.yaml")
    assert found == {"x": [1, {"a": 2}], "y": [1, {"a": 2}]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\n---\nb: 2", "f.yaml, line 2: not YAML (a second document begins; one file holds one)"),
        ("a:\n  b: !tag x", "f.yaml, line 2: not YAML (the tag !tag is not known; write plain values)"),
        ("a: &x [*x]", "f.yaml, line 1: an alias stands within what it names"),
        ("a: {[1]: 2}", "f.yaml, line 1: a key is a name"),
        ("a: 1\nb: 2\na: 3", "f.yaml, line 3: the key 'a' stands twice, first in line 1"),
        (
            "a: ${JK_NONE}",
            "f.yaml, line 1: the environment variable JK_NONE is not set; set it, or write ${JK_NONE:-default}",
        ),
        ("[" * 1000, "f.yaml: nested too deeply"),
        ("a: !!timestamp x", "f.yaml: cannot be read ('NoneType' object has no attribute 'groupdict')"),
        ("a: !!int x", "f.yaml: cannot be read (invalid literal for int() with base 10: 'x')"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(monkeypatch: pytest.MonkeyPatch, text: str, says: str) -> None:
    monkeypatch.delenv("JK_NONE", raising=False)
    with pytest.raises(ConfigError) as raised:
        parse_yaml(text, "f.yaml")
    assert str(raised.value) == says


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^cannot read .*none\.yaml: No such file or directory$"):
        read_yaml(tmp_path / "none.yaml")
    (tmp_path / "a.yaml").write_bytes(b"a: b\xff")
    with pytest.raises(ConfigError, match=r"a\.yaml: not UTF-8 text \(byte 4\); save it as UTF-8$"):
        read_yaml(tmp_path / "a.yaml")


def test_several_variables_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JK_A", "1")
    monkeypatch.setenv("JK_B", "two")
    assert parse_yaml("[${JK_A}, ${JK_B}, '${JK_B}${JK_A}', '$${JK_A}']", "f.yaml") == [
        1,
        "two",
        "two1",
        "${JK_A}",
    ]
