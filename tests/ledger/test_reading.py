"""Reading a ledger: a file, a folder, one that grows, one of an older version, and what is none."""

from __future__ import annotations

import codecs
import gzip
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from judgekit import DataError, Graded, GradingRunner, Ledger, Rollout, grader, read_ledger
from judgekit.ledger.reader import Reading, beside, ledger_files
from judgekit.ledger.schema import Entry, GraderSpec, Spec, rollout_digest, tagged_step
from judgekit.ledger.tail import Tail
from judgekit.types import Price

SPEC: dict[str, Any] = {
    "type": "spec",
    "digest": "s",
    "graders": {"half": {"version": "1", "score_range": [0, "inf"]}},
    "reward": {"score": "half"},
    "transform": "none",
    "missing_reward": "exclude",
    "judgekit": "0.1",
}
ENTRY: dict[str, Any] = {
    "type": "rollout",
    "spec": "s",
    "time": 1.0,
    "run": "a",
    "index": 0,
    "group": None,
    "reward": 0.5,
    "status": "scored",
    "raw_reward": 0.5,
    "contributions": {},
    "grades": {"half": {"kind": "graded", "score": 0.5}},
}


def write(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows]
    path.write_bytes(b"".join(lines))
    return path


def entry(**fields: Any) -> dict[str, Any]:
    return ENTRY | fields


def follow(path: Path) -> list[Entry]:
    return Tail(path).read()


READERS: list[Callable[[Path], list[Entry]]] = [lambda path: read_ledger(path).entries, follow]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("first", [[], [SPEC]])
def test_an_editor_s_byte_order_mark_costs_no_line(
    tmp_path: Path, read: Callable[[Path], list[Entry]], first: list[Any]
) -> None:
    path = write(tmp_path / "l", *first, entry(index=1), entry(index=2))
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert [one.index for one in read(path)] == [1, 2]


def test_a_line_without_what_may_be_left_out_reads_as_what_it_meant(tmp_path: Path) -> None:
    """Lines leave out what is as usual: another meaning of a missing field changes every ledger that there is."""
    reading = read_ledger(write(tmp_path / "l", SPEC, entry()))
    (read,) = reading.entries
    assert msgspec.structs.asdict(read) == {
        "spec": "s", "time": 1.0, "run": "a", "order": 0, "index": 0, "group": None, "group_first": 0, "id": "",
        "tags": {}, "reward": 0.5, "status": "scored", "raw_reward": 0.5, "contributions": {}, "turns": (),
        "grades": {"half": Graded(0.5)}, "compared": {}, "group_numbers": {}, "missing": (), "policies": (),
        "usage": read.usage, "wall_s": 0.0, "data_source": "", "finish_reason": None, "response_tokens": None,
        "response_chars": 0, "rollout_digest": "", "prompt": None, "messages": (), "response": None,
        "ground_truth": None, "extra": {},
    }  # fmt: skip
    assert not any(msgspec.structs.asdict(read.usage).values())
    (spec,) = reading.specs.values()
    assert (spec.drop_if, spec.format) == (None, 1)
    half = spec.graders["half"]
    assert (half.price, half.fingerprint, half.trust, half.bounds()) == (None, "", None, (0.0, float("inf")))
    assert (reading.torn, reading.replaced) == ([], 0)
    assert Reading({}, [], []).replaced == 0
    assert read.to_rollout() == Rollout(response="", id="")


def test_a_folder_is_all_its_ledgers_and_nothing_that_stands_beside_them(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    for at, name in enumerate(("b.jsonl", "a.jsonl")):
        write(folder / name, SPEC, entry(id=name, run=str(at)))
    for other in (".a.jsonl", "a.marks.jsonl", "a.audits.jsonl", "notes.txt", "curve.json"):
        write(folder / other, {"id": "none"})
    assert [path.name for path in ledger_files(folder)] == ["a.jsonl", "b.jsonl"]
    for read in READERS:
        assert [one.id for one in read(folder)] == ["a.jsonl", "b.jsonl"]
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty" / "x.marks.jsonl", {"id": "none"})
    with pytest.raises(DataError, match=r"empty holds no ledger: there is no file \*.jsonl in it"):
        ledger_files(tmp_path / "empty")


def test_marks_audits_and_curves_stand_beside_their_ledger(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    names = [beside(tmp_path / "l.jsonl", kind).name for kind in ("marks", "audits", "curve")]  # type: ignore[arg-type]
    assert names == ["l.marks.jsonl", "l.audits.jsonl", "l.curve.json"]
    assert beside(tmp_path / "runs", "marks") == tmp_path / "runs.marks.jsonl"
    (tmp_path / "v1.2").mkdir()
    assert beside(tmp_path / "v1.2", "curve") == tmp_path / "v1.2.curve.json"
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    assert beside(tmp_path / "link", "marks") == tmp_path / "runs.marks.jsonl"


@pytest.mark.parametrize(
    ("end", "start"),
    [("gz", gzip.compress(b"x", mtime=0)), ("zst", b"\x28\xb5\x2f\xfd..")],
    ids=["gz", "zst"],
)
def test_a_compressed_ledger_is_said_to_be_one(
    end: str, start: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    packed = write(tmp_path / f"1.jsonl.{end}", start)
    write(tmp_path / f".hidden.jsonl.{end}", start)
    write(tmp_path / "2.jsonl", SPEC, entry())
    with pytest.raises(
        DataError, match=rf"1.jsonl.{end} is compressed: unpack it first \(gunzip or unzstd\)"
    ):
        read_ledger(packed)
    assert len(read_ledger(tmp_path).entries) == 1
    assert f"1 compressed file(s) are left out, the first is 1.jsonl.{end}" in caplog.text
    plain = write(tmp_path / f"plain.{end}", SPEC, entry())
    assert len(read_ledger(plain).entries) == 1
    with pytest.raises(DataError, match=f"cannot read .*none.{end}: No such file"):
        read_ledger(tmp_path / f"none.{end}")


@pytest.mark.parametrize("end", ["yaml", "yml"])
def test_a_reward_file_is_said_to_be_no_ledger(end: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"reward.{end} is not a ledger: give the file that --ledger"):
        read_ledger(write(tmp_path / f"reward.{end}", b"reward: {score: half}\n"))
    assert len(read_ledger(write(tmp_path / f"ledger.{end}", SPEC, entry())).entries) == 1
    with pytest.raises(DataError, match="cannot read"):
        read_ledger(tmp_path / f"none.{end}")
    (tmp_path / f"folder.{end}").mkdir()
    write(tmp_path / f"folder.{end}" / "l.jsonl", SPEC, entry())
    assert len(read_ledger(tmp_path / f"folder.{end}").entries) == 1


def test_lines_that_cannot_be_read_are_skipped_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = [
        b"\xef\xbb\xbf" + json.dumps(SPEC).encode() + b"\n",
        b"\n",
        b'{"type":"ro\n',
        b'{"type":"rollout","spec":"\xff"}\n',
        b"  \n",
    ]
    path = write(tmp_path / "l", *odd, entry(), b'{"type":"rollout","id":"\xff"}\n', b'{"type":"roll')
    reading = read_ledger(path)
    assert (len(reading.specs), len(reading.entries), reading.torn) == (1, 1, [3, 4, 7, 8])
    assert "l: skipped 4 line(s), the first is line 3" in caplog.text
    tail = Tail(path)
    path.write_bytes(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    assert (len(tail.read()), tail.torn, list(tail.specs)) == (1, 3, ["s"])  # the last one may still come
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        read_ledger(write(tmp_path / "whole", SPEC, entry()))
    assert not caplog.text


def test_the_newest_format_is_read_and_a_newer_one_refused(tmp_path: Path) -> None:
    for read in READERS:
        assert len(read(write(tmp_path / "l", SPEC | {"format": 1}, entry()))) == 1
        path = write(tmp_path / "new", entry(), SPEC | {"format": 2})
        with pytest.raises(
            DataError,
            match="line 2: the ledger has format 2, of judgekit 0.1: this version reads up to 1",
        ):
            read(path)


def test_what_writes_says_the_format(tmp_path: Path) -> None:
    one = grader(name="one")(lambda response: 1.0)
    GradingRunner({"one": one}, ledger=Ledger(tmp_path / "l")).run_sync([Rollout(response="x")])
    spec = json.loads(read_lines(tmp_path / "l")[0])
    assert (spec["type"], spec["format"]) == ("spec", 1)


def read_lines(path: Path) -> list[str]:
    read_ledger(path)  # waits for them
    return path.read_text().splitlines()


@pytest.mark.parametrize("read", READERS)
def test_another_file_of_json_is_no_ledger(read: Callable[[Path], list[Entry]], tmp_path: Path) -> None:
    for row in ({"prompt": "p", "response": "r"}, {"type": "other"}, [1], entry(reward="high")):
        with pytest.raises(
            DataError, match=r"line 2: not a line of a judgekit ledger .*give the file of --ledger"
        ):
            read(write(tmp_path / "l", SPEC, row))


def test_lines_of_other_tools_are_skipped_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "l", SPEC, {"type": "other"}, entry(id="7"), {"no": 1})
    reading = read_ledger(path, strict=False)
    assert (reading.torn, [one.id for one in reading.entries], list(reading.specs)) == ([2, 4], ["7"], ["s"])
    first = read_ledger(write(tmp_path / "m", {"type": "other"}, SPEC), strict=False)
    assert (first.torn, first.entries) == ([1], [])


def test_entries_that_another_run_replaced_are_left_out_and_counted(tmp_path: Path) -> None:
    path = write(
        tmp_path / "l",
        SPEC,
        entry(id="7", status="unfinished", reward=None),
        entry(id="7", order=1),
        entry(id="8", index=1),
        entry(id="9", index=2),
        entry(id="7", run="b", tags={"resumes": ["a"]}),
        entry(id="8", run="b", index=1, tags={"resumes": ["a"]}),
    )
    reading = read_ledger(path)
    assert [(one.run, one.id) for one in reading.entries] == [("a", "9"), ("b", "7"), ("b", "8")]
    assert reading.replaced == 2
    every = read_ledger(path, replaced=True)
    assert [(one.run, one.id) for one in every.entries] == [
        ("a", "7"), ("a", "8"), ("a", "9"), ("b", "7"), ("b", "8"),
    ]  # fmt: skip
    assert (every.entries[0].status, every.replaced) == ("scored", 0)


def test_runs_are_told_apart_and_each_is_in_input_order(tmp_path: Path) -> None:
    rows = [
        entry(run=run, index=index, id=f"{run}{index}")
        for run, index in (("b", 2), ("a", 1), ("b", 0), ("a", 3))
    ]
    reading = read_ledger(write(tmp_path / "l", SPEC, *rows))
    assert [[reading.entries[i].id for i in run] for run in reading.runs()] == [["b0", "b2"], ["a1", "a3"]]
    assert Reading({}, [], []).runs() == []


# ---- a ledger that grows


def test_a_tail_gives_each_line_once_it_is_whole(tmp_path: Path) -> None:
    path, whole = tmp_path / "l", json.dumps(entry(id="2")).encode()
    tail = Tail(path)
    assert tail.read() == []
    write(path, SPEC, entry(id="1"), whole[:50])
    assert [one.id for one in tail.read()] == ["1"]
    assert tail.read() == []
    with path.open("ab") as file:
        file.write(whole[50:] + b"\n\n" + json.dumps(entry(id="3")).encode() + b"\n")
    assert [one.id for one in tail.read()] == ["2", "3"]
    assert (tail.torn, list(tail.specs)) == (0, ["s"])
    with path.open("ab") as file:
        file.write(b'{"type": "other"}\n')
    with pytest.raises(DataError, match="line 6: not a line"):
        tail.read()


def test_a_tail_takes_files_that_come_later(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    tail = Tail(folder)
    assert tail.read() == []
    write(folder / ".half.jsonl", SPEC)
    assert tail.read() == []
    write(folder / "b.jsonl", SPEC, entry(id="1"))
    assert [one.id for one in tail.read()] == ["1"]
    write(folder / "a.jsonl", entry(id="2"))
    assert [one.id for one in tail.read()] == ["2"]


@pytest.mark.parametrize("how", ["replaced", "emptied"])
def test_a_tail_says_that_its_file_is_another_one(how: str, tmp_path: Path) -> None:
    path = write(tmp_path / "l", SPEC, entry(id="1"))
    tail = Tail(path)
    assert len(tail.read()) == 1
    if how == "replaced":
        write(tmp_path / "new", SPEC, entry(id="1"), entry(id="2", index=1)).replace(path)
    else:
        path.write_bytes(b"{")
    with pytest.raises(DataError, match="l was replaced or emptied while it was read: audit the new file"):
        tail.read()


def test_a_tail_says_what_it_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "l", SPEC)

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match="cannot read .*l: Permission denied"):
        Tail(path).read()


# ---- what lines say


def test_a_digest_of_how_rollouts_are_graded_covers_each_part() -> None:
    given: dict[str, Any] = {
        "graders": {"half": GraderSpec.of("1", (0, 1))}, "reward": {"score": "half"}, "transform": "none", "missing_reward": 0,
    }  # fmt: skip
    changes: list[dict[str, Any]] = [
        {}, {"graders": {"half": GraderSpec.of("2", (0, 1))}}, {"reward": {"score": "other"}}, {"transform": "center"},
        {"missing_reward": 1}, {"drop_if": "spread < 0.1"}, {"drop_if": "spread < 0.2"},
        {"graders": {"half": GraderSpec.of("1", (0, 1), Price(1.0, 2.0))}},
    ]  # fmt: skip
    specs = [Spec.of(**(given | change)) for change in changes]
    assert len({spec.digest for spec in specs}) == len(specs)
    assert Spec.of(**given).digest == specs[0].digest
    assert [spec.drop_if for spec in specs[4:7]] == [None, "spread < 0.1", "spread < 0.2"]
    assert (specs[3].transform, specs[2].reward, specs[4].missing_reward) == ("center", {"score": "other"}, 1)
    assert len(specs[0].digest) == 12


def test_graders_are_comparable_if_version_and_range_are_the_same() -> None:
    one = GraderSpec.of("1", (0, float("inf")), fingerprint="f", trust=(0.2, 0.8))
    assert (one.score_range, one.bounds()) == ((0, "inf"), (0.0, float("inf")))
    assert GraderSpec.of("1", (float("-inf"), 1)).bounds() == (float("-inf"), 1.0)
    other = {
        "version": msgspec.structs.replace(one, version="2"),
        "range": msgspec.structs.replace(one, score_range=(0, 1)),
        "fingerprint": msgspec.structs.replace(one, fingerprint="g"),
        "trust": msgspec.structs.replace(one, trust=None),
        "price": msgspec.structs.replace(one, price=Price(1.0, 2.0)),
    }
    assert [name for name, spec in other.items() if one.same_as(spec)] == ["fingerprint", "trust", "price"]
    assert [name for name, spec in other.items() if one.same_settings(spec)] == ["price"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("g", "g"), (3, 3), (None, None), (["x", 1], ("x", 1)), (["x", ["y", [2]]], ("x", ("y", (2,)))),
        ({"a": [1]}, "{'a': [1]}"), ([{"a": 1}, "b"], ("{'a': 1}", "b")),
    ],
)  # fmt: skip
def test_a_group_that_was_written_is_one_again(written: Any, read: Any, tmp_path: Path) -> None:
    (made,) = read_ledger(write(tmp_path / "l", SPEC, entry(group=written))).entries
    assert made.to_rollout().group == read
    assert len({made.to_rollout().group}) == 1


def test_a_rollout_that_was_written_with_its_texts_is_the_same_again(tmp_path: Path) -> None:
    rollout = Rollout(
        response="r", prompt="p", group="g", ground_truth=[1], messages=({"role": "user", "content": "p"},),
        data_source="math", finish_reason="stop", response_tokens=3, extra={"k": 1}, id="7",
    )  # fmt: skip
    one = grader(name="one")(lambda response: 1.0)
    GradingRunner({"one": one}, ledger=Ledger(tmp_path / "l", texts=True)).run_sync([rollout])
    (made,) = read_ledger(tmp_path / "l").entries
    assert made.to_rollout() == rollout
    assert made.rollout_digest == rollout_digest(rollout) == rollout_digest(made.to_rollout())
    assert made.rollout == ("7", b'"g"\n', made.rollout_digest)


def test_a_digest_is_of_what_a_grader_can_read() -> None:
    one = Rollout(response="r", prompt="p")
    for same in ({"id": "7"}, {"group": 3}):
        assert rollout_digest(msgspec.structs.replace(one, **same)) == rollout_digest(one)
    changes: list[dict[str, Any]] = [
        {"response": "s"}, {"prompt": "q"}, {"ground_truth": 1}, {"messages": ({"role": "user", "content": "x"},)},
        {"data_source": "d"}, {"finish_reason": "stop"}, {"response_tokens": 3}, {"extra": {"k": 1}},
    ]  # fmt: skip
    digests = {rollout_digest(msgspec.structs.replace(one, **change)) for change in changes}
    assert len(digests | {rollout_digest(one)}) == len(changes) + 1


@pytest.mark.parametrize(
    ("tags", "step"),
    [
        ({"step": 1, "global_step": 2, "global_steps": 3}, 1), ({"global_step": 2, "global_steps": 3}, 2),
        ({"global_steps": 3}, 3), ({"step": 0}, 0), ({"step": None}, None), ({"epoch": 1}, "none"), ({}, "none"),
    ],
)  # fmt: skip
def test_a_run_s_step_is_the_first_tag_that_names_one(tags: dict[str, Any], step: Any) -> None:
    assert tagged_step(tags, "none") == step
    assert tagged_step({}) is None
