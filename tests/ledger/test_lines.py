"""Lines of a ledger, value by value: what JSON cannot hold, specs that agree, rollouts and steps that are told apart."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from judgekit import Graded, RewardResult, Rollout
from judgekit.errors import DataError
from judgekit.ledger.jsonl import encoded, ends_torn, json_line, numbered_lines, stable
from judgekit.ledger.reader import Reading, beside, ledger_files
from judgekit.ledger.schema import STEP_TAGS, Entry, GraderSpec, rollout_digest, tagged_step
from judgekit.ledger.standing import Standing, group_key, latest
from judgekit.types import Price


class Text(str):
    pass


class Number(int):
    pass


class Real(float):
    pass


class Odd:
    def __repr__(self) -> str:
        return "<odd>"


class Raising:
    def __repr__(self) -> str:
        raise ZeroDivisionError


class Mapped(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        return {"a": 1}[key]

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


class Tagged(msgspec.Struct, tag="t", tag_field="kind"):
    text: str


ITSELF: list[Any] = [1]
ITSELF.append(ITSELF)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("é", '"é"'),
        ("a\ud800", '"a\\\\ud800"'),
        (["a\ud800", True, None, 0.5, 7], '["a\\\\ud800",true,null,0.5,7]'),
        ({1: "a", (2, 3): "b", "c": "d\ud800"}, '{"1":"a","(2, 3)":"b","c":"d\\\\ud800"}'),
        ({"a\ud800": 1}, '{"a\\\\ud800":1}'),
        (Text("x"), '"x"'),
        (Number(5), "5"),
        (Real(0.5), "0.5"),
        (np.float32(0.5), "0.5"),
        (np.array([1, 2]), "[1,2]"),
        ({3}, "[3]"),
        (frozenset("a"), '["a"]'),
        (Mapped(), '{"a":1}'),
        (Odd(), '"<odd>"'),
        ([Raising()], '["(Raising: ZeroDivisionError)"]'),
        (ITSELF, '[1,"(list, nested too deeply)"]'),
        (Tagged("a\ud800"), '{"kind":"t","text":"a\\\\ud800"}'),
        ([Price(1.0, 2.0), "\ud800"], None),
        ((math.inf,), "[null]"),
    ],
)  # fmt: skip
def test_what_json_cannot_hold_becomes_text(value: Any, line: str | None) -> None:
    found = json_line(value)
    assert found.endswith("\n")
    assert found.count("\n") == 1
    if line is not None:
        assert found == f"{line}\n"
    else:
        assert json.loads(found) == [{**msgspec.to_builtins(value[0])}, "\\ud800"]
    assert encoded(value).decode() == found


def test_large_integers_become_numbers_that_json_has() -> None:
    large = [(1 << 64) - 1, -(1 << 63), 1 << 64, -(1 << 63) - 1, (1 << 1000) - 1, 1 << 1000, 1 - (1 << 1000)]
    found = json.loads(json_line([*large, "\ud800"]))
    assert found == [*large[:2], *map(float, large[2:5]), "<class 'int'>", float(large[6]), "\\ud800"]
    assert [type(number) for number in found[:5]] == [int, int, float, float, float]


def test_lines_that_are_nested_too_deeply_are_cut() -> None:
    value: Any = "x\ud800"
    for _ in range(150):
        value = [value]
    found = json_line(value)
    assert found.count("[") == 101
    assert '"(list, nested too deeply)"' in found


def test_stable_lines_are_sorted() -> None:
    assert stable({"b": 1, "a": {"d": 1, "c": 2}}) == b'{"a":{"c":2,"d":1},"b":1}\n'
    assert stable({"b": frozenset("cab"), "a": {3, 1, 2}}) == b'{"a":[1,2,3],"b":["a","b","c"]}\n'
    assert stable({"b": "\ud800", "a": 1}) == b'{"a":1,"b":"\\\\ud800"}\n'
    assert encoded({"b": 1, "a": 2}) == b'{"b":1,"a":2}\n'


def test_lines_have_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\xef\xbb\xbfa\n\n \n\xef\xbb\xbfb\nc")
    assert list(numbered_lines(path)) == [(1, b"a\n"), (4, b"\xef\xbb\xbfb\n"), (5, b"c")]
    with pytest.raises(DataError, match="cannot read .*none: No such file or directory"):
        list(numbered_lines(tmp_path / "none"))
    with path.open("rb") as file:
        assert [ends_torn(file.fileno(), n) for n in (None, 0, 4, 5, 6)] == [True, False, True, False, False]
    os.truncate(path, 0)
    with path.open("rb") as file:
        assert ends_torn(file.fileno()) is False


def entry(run: str = "r", index: int = 0, **fields: Any) -> Entry:
    given = {
        "spec": "s", "time": 0.0, "run": run, "index": index, "group": 0, "reward": 1.0, "status": "scored", "raw_reward": 1.0,
        "contributions": {}, "grades": {}, **fields,
    }  # fmt: skip
    return Entry(**given)


def test_entries_are_told_by_run_in_their_order() -> None:
    entries = [entry("b", 1), entry("a", 1), entry("a", 0), entry("b", 0)]
    assert Reading({}, entries, []).runs() == [[2, 1], [3, 0]]
    assert Reading({}, [], []).runs() == []


@pytest.mark.parametrize(
    ("lines", "repeated", "replaced"),
    [
        ([entry(), entry(index=1)], set(), set()),
        ([entry(), entry()], {0}, set()),
        ([entry(order=1), entry(order=0)], {1}, set()),
        ([entry(time=1.0), entry(time=0.0)], {1}, set()),
        ([entry(order=1, time=0.0), entry(order=2, time=-1.0)], {0}, set()),
        ([entry(), entry(status="unfinished", order=5)], {1}, set()),
        ([entry(status="unfinished", order=5), entry()], {0}, set()),
        ([entry(), entry(id="x")], set(), set()),
        ([entry(), entry(group=1)], set(), set()),
        ([entry(), entry(rollout_digest="d")], set(), set()),
        ([entry("a"), entry("b", tags={"resumes": ["a"]})], set(), {0}),
        ([entry("b", tags={"resumes": ["a"]}), entry("a")], set(), {1}),
        ([entry("a"), entry("b", status="unfinished", tags={"resumes": ["a"]})], set(), {1}),
        (
            [entry("a", status="unfinished"), entry("b", status="unfinished", tags={"resumes": ["a"]})],
            set(),
            {0},
        ),
        ([entry("a"), entry("b", tags={"resumes": ["b"]})], set(), set()),
        ([entry("a"), entry("b", tags={"resumes": "a"})], set(), set()),
        ([entry("a"), entry("b", tags={"resumes": ["a"]}, id="x")], set(), set()),
        ([entry("a"), entry("c"), entry("b", index=9, tags={"resumes": ["a", "c"]})], set(), {0, 1}),
    ],
)
def test_the_latest_finished_line_counts(lines: list[Entry], repeated: set[int], replaced: set[int]) -> None:
    standing = Standing.of(lines)
    assert (standing.repeated, standing.replaced) == (repeated, replaced)
    assert latest(lines) == [line for at, line in enumerate(lines) if at not in repeated]
    assert len(standing.rollouts) == len(lines)


def test_a_line_names_the_one_that_counted_before_it() -> None:
    standing = Standing()
    said = [
        standing.add(line)
        for line in (entry(), entry(index=1), entry(order=-1), entry(order=3), entry(order=4))
    ]
    assert said == [None, None, 0, 0, 3]


def test_group_names_are_told_apart() -> None:
    names = [1, True, "1", 1.0, None, "None", [1], ["1"], {"a": 1}]
    assert len({group_key(name) for name in names}) == len(names)
    assert group_key("1") == "1"


def test_a_spec_of_a_grader_writes_infinities_as_text() -> None:
    made = GraderSpec.of("1", (-math.inf, 1.0), Price(1.0, 2.0), "f", (0.25, 0.75))
    assert made == GraderSpec("1", ("-inf", 1.0), Price(1.0, 2.0), "f", (0.25, 0.75))
    assert made.bounds() == (-math.inf, 1.0)
    assert GraderSpec.of("1", (0, math.inf)) == GraderSpec("1", (0, "inf"))
    for other, same, settings in (
        (GraderSpec.of("1", (-math.inf, 1.0), None, "f", (0.25, 0.75)), True, True),
        (GraderSpec.of("1", (-math.inf, 1.0), None, "g", (0.25, 0.75)), True, False),
        (GraderSpec.of("1", (-math.inf, 1.0), None, "f"), True, False),
        (GraderSpec.of("2", (-math.inf, 1.0), None, "f", (0.25, 0.75)), False, False),
        (GraderSpec.of("1", (-math.inf, 2.0), None, "f", (0.25, 0.75)), False, False),
    ):
        assert (made.same_as(other), made.same_settings(other)) == (same, settings)


def test_an_entry_is_made_of_a_result_and_gives_its_rollout_back() -> None:
    rollout = Rollout(
        response="said", prompt="q", group=("a", 1), id="i", ground_truth="t", messages=[{"role": "user", "content": "q"}],
        data_source="d", finish_reason="stop", response_tokens=7, extra={"x": 1},
    )  # fmt: skip
    result = RewardResult(
        index=3, group=("a", 1), reward=0.5, status="scored", raw_reward=0.25, contributions={"g": 0.5}, turns=(0.5,),
        grades={"g": Graded(0.5)}, missing=("m",), policies=("p",), wall_s=1.5,
    )  # fmt: skip
    bare = Entry.of(result, rollout, spec="s", run="r")
    assert (bare.index, bare.group, bare.id, bare.reward, bare.raw_reward) == (3, ("a", 1), "i", 0.5, 0.25)
    assert (bare.turns, bare.missing, bare.policies, bare.wall_s) == ((0.5,), ("m",), ("p",), 1.5)
    assert (bare.data_source, bare.finish_reason, bare.response_tokens, bare.response_chars) == (
        "d",
        "stop",
        7,
        4,
    )
    assert (bare.rollout_digest, bare.response, bare.prompt) == (rollout_digest(rollout), None, None)
    assert bare.to_rollout() == Rollout(
        response="", group=("a", 1), id="i", data_source="d", finish_reason="stop", response_tokens=7
    )
    kept = Entry.of(result, rollout, spec="s", run="r", texts=True, digest="mine")
    assert kept.rollout_digest == "mine"
    assert kept.to_rollout() == msgspec.structs.replace(rollout, messages=tuple(rollout.messages))
    assert kept.rollout == ("i", b'["a",1]\n', "mine")
    read = msgspec.json.decode(encoded(kept), type=Entry)
    assert read.to_rollout().group == ("a", 1)
    assert msgspec.structs.replace(read, group={"a": [1]}).to_rollout().group == "{'a': [1]}"
    assert msgspec.structs.replace(read, group=[["a"], 1]).to_rollout().group == (("a",), 1)


def test_a_digest_is_of_all_that_graders_read_and_of_nothing_else() -> None:
    one = Rollout(response="a", prompt="q", id="1", group=1)
    same = Rollout(response="a", prompt="q", id="2", group=2)
    assert rollout_digest(one) == rollout_digest(same)
    assert len(rollout_digest(one)) == 16
    others = [
        Rollout(response="b", prompt="q"), Rollout(response="a", prompt="p"), Rollout(response="a", prompt="q", ground_truth=1), Rollout(response="a", prompt="q", extra={"x": 1}),
        Rollout(response="a", prompt="q", data_source="d"), Rollout(response="a", prompt="q", finish_reason="stop"), Rollout(response="a", prompt="q", response_tokens=1),
    ]  # fmt: skip
    assert len({rollout_digest(rollout) for rollout in [one, *others]}) == 8
    assert rollout_digest(Rollout(response="a", extra={"x": 1, "y": 2})) == rollout_digest(
        Rollout(response="a", extra={"y": 2, "x": 1})
    )


def test_a_step_is_found_under_any_of_its_tags() -> None:
    assert [tagged_step({tag: 5}) for tag in STEP_TAGS] == [5] * len(STEP_TAGS)
    assert tagged_step({tag: at for at, tag in enumerate(STEP_TAGS)}) == 0
    assert (tagged_step({}), tagged_step({"other": 1}, "x")) == (None, "x")


def test_what_stands_beside_a_ledger_is_no_part_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    assert beside(tmp_path / "l.jsonl", "marks") == tmp_path / "l.marks.jsonl"
    assert beside(tmp_path / "l.jsonl", "curve") == tmp_path / "l.curve.json"
    assert beside(folder, "audits") == tmp_path / "runs.audits.jsonl"
    with pytest.raises(DataError, match="runs holds no ledger: there is no file \\*.jsonl in it"):
        ledger_files(folder)
    for name in ("b.jsonl", "a.jsonl", ".c.jsonl", "a.marks.jsonl", "a.audits.jsonl", "x.txt"):
        (folder / name).write_text("")
    assert ledger_files(folder) == [folder / "a.jsonl", folder / "b.jsonl"]
    assert ledger_files(tmp_path / "any") == [tmp_path / "any"]
    (tmp_path / "r.yaml").write_text("graders: {}")
    with pytest.raises(
        DataError, match="r.yaml is not a ledger: give the file that --ledger or the section ledger names"
    ):
        ledger_files(tmp_path / "r.yaml")
    (tmp_path / "s.yaml").write_text("{}")
    assert ledger_files(tmp_path / "s.yaml") == [tmp_path / "s.yaml"]
    (tmp_path / "l.jsonl.gz").write_bytes(b"\x1f\x8b rest")
    with pytest.raises(DataError, match="l.jsonl.gz is compressed: unpack it first"):
        ledger_files(tmp_path / "l.jsonl.gz")
    (tmp_path / "m.jsonl.gz").write_bytes(b"{}")
    assert ledger_files(tmp_path / "m.jsonl.gz") == [tmp_path / "m.jsonl.gz"]
