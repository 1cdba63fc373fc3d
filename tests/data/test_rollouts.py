"""Rows become rollouts: every format, every field, what is wrong with a row, and which column is which field."""

from __future__ import annotations

import csv
import gzip
import json
import logging
from datetime import date
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from judgekit import Abstained, ConfigError, DataError, Failed, Graded, RewardResult, Rollout, Skipped
from judgekit.data import read_rollouts, results_frame, rollout_from, rollouts_from, write_results
from judgekit.data.result_files import result_row
from judgekit.graders.rules.agents.trajectory import read_trajectory
from judgekit.rollouts.rows import as_messages
from judgekit.run.grouping import group_by_prompt
from judgekit.trainers.rollouts import rollout_of
from judgekit.types import prompt_end


def test_every_field_is_read_and_the_rest_is_extra(tmp_path: Path) -> None:
    row = {
        "id": 7,
        "group": ["a", 1],
        "data_source": "math",
        "prompt": [{"role": "user", "content": "2+2?"}],
        "response": "4",
        "ground_truth": {"answer": 4},
        "messages": [{"role": "assistant", "content": "4"}],
        "finish_reason": "stop",
        "response_tokens": 3,
        "level": "easy",
        "kind": "column",
        "extra": {"kind": "extra"},
    }
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(row) + "\n")
    (rollout,) = read_rollouts(path)
    assert rollout == Rollout(
        id="7",
        group=("a", 1),
        data_source="math",
        prompt=[{"role": "user", "content": "2+2?"}],
        response="4",
        ground_truth={"answer": 4},
        messages=[{"role": "assistant", "content": "4"}],
        finish_reason="stop",
        response_tokens=3,
        extra={"level": "easy", "kind": "extra"},
    )


def test_a_limit_stops_the_reading_and_blank_lines_count_as_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('\n{"response": "a"}\n  \n{"response": "b"}\n{"response": "c"}\nnot json\n')
    assert [r.response for r in read_rollouts(path, limit=1)] == ["a"]
    assert [r.response for r in read_rollouts(path, limit=3)] == ["a", "b", "c"]
    with pytest.raises(DataError, match=r"r\.jsonl, line 6: not JSON"):
        read_rollouts(path)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ([1], "a rollout is an object with at least a 'response', not list"),
        ({"prompt": "x"}, "has no 'response'"),
        ({"respons": "x"}, "if 'respons' is it: --map response=respons"),
        ({"response": 3}, "'response' is text, not int"),
        ({"response": "x", "prompt": 3}, "'prompt' is text or a list of messages, not int"),
        (
            {"response": [{"role": "assistant", "content": "x"}], "prompt": 3},
            "'prompt' is text or a list of messages, not int",
        ),
        ({"response": "x", "messages": "hi"}, "'messages' is a list of messages, not str"),
        ({"response": "x", "data_source": 1}, "'data_source' is text, not int"),
        ({"response": "x", "finish_reason": 1}, "'finish_reason' is text, not int"),
        ({"response": "x", "response_tokens": "nine"}, "'response_tokens' is a whole number, not str"),
        ({"response": "x", "id": 1.5}, "'id' is text, not float"),
        ({"response": "x", "extra": [1]}, "'extra' is an object"),
        (
            {"response": [{"role": "user", "content": "?"}, {"role": "Assistant", "content": "x"}]},
            "no message of the response is the policy's, whose role is 'assistant': there are 'Assistant', 'user'",
        ),
        (
            {"response": [{"role": "model", "parts": [{"text": "x"}]}]},
            "the response's last message has no 'content', but 'parts'",
        ),
    ],
)
def test_what_is_wrong_with_a_row_is_said(row: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        rollout_from(row)


def test_what_a_reference_s_column_says_beside_it_is_kept() -> None:
    plain = {"ground_truth": "g", "style": "rule"}
    more = {**plain, "rubrics": ["is polite"]}
    assert rollout_from({"response": "x", "reward_model": plain}).extra == {}
    found = rollout_from({"response": "x", "reward_model": more})
    assert (found.ground_truth, found.extra) == ("g", {"reward_model": more})
    trained = rollout_of({"reward_model": more}, prompt="p", turns=[{"role": "assistant", "content": "x"}])
    assert (trained.ground_truth, trained.extra) == ("g", {"reward_model": more})


def test_null_is_no_value() -> None:
    row = {"response": "x", "extra": None, "finish_reason": None, "response_tokens": None}
    assert rollout_from(row) == Rollout(response="x")


def test_a_file_without_rollouts_and_no_file_are_said(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(DataError, match="empty holds no rollouts"):
        read_rollouts(tmp_path / "empty")
    with pytest.raises(DataError, match="cannot read .*none: No such file"):
        read_rollouts(tmp_path / "none")


def result(**changes: Any) -> RewardResult:
    fields: dict[str, Any] = {
        "index": 0,
        "group": 3,
        "reward": None,
        "status": "masked",
        "raw_reward": None,
        "contributions": {},
        "grades": {"a": Graded(0.5), "b": Abstained("no")},
    }
    return RewardResult(**{**fields, **changes})


def test_a_results_row_has_what_the_rollout_has_and_what_it_was_paid() -> None:
    rollout = Rollout(response="", prompt="p", id="x", extra={"k": 1})
    row = result_row(rollout, result())
    assert list(row)[:4] == ["id", "prompt", "extra", "group"]
    assert row == {
        "id": "x",
        "prompt": "p",
        "extra": {"k": 1},
        "group": 3,
        "response": "",
        "reward": None,
        "status": "masked",
        "raw_reward": None,
        "contributions": {},
        "grades": {"a": Graded(0.5), "b": Abstained("no")},
    }
    told = result_row(rollout, result(missing=("b",), policies=("b: missing",)))
    assert (told["missing"], told["policies"]) == (("b",), ("b: missing",))


# ---- formats

ROWS: list[dict[str, Any]] = [
    {"id": "1", "group": "a", "prompt": "2+2?", "response": "4", "ground_truth": "4", "level": "easy"},
    {
        "id": "2",
        "group": "a",
        "prompt": "2+2?",
        "response": 'é, "5"\nor 6\u2028',
        "ground_truth": "4",
        "level": "easy",
    },
    {"id": "3", "group": "b", "prompt": "3+3?", "response": "", "ground_truth": "6", "level": "hard"},
]
EXPECTED = [
    Rollout(
        id=r["id"],
        group=r["group"],
        prompt=r["prompt"],
        response=r["response"],
        ground_truth=r["ground_truth"],
        extra={"level": r["level"]},
    )
    for r in ROWS
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def as_csv(delimiter: str = ",") -> bytes:
    import io

    text = io.StringIO()
    writer = csv.DictWriter(text, list(ROWS[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return text.getvalue().encode()


def as_parquet(path: Path) -> bytes:
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(arrow.Table.from_pylist(ROWS), path)
    return path.read_bytes()


def zstd(data: bytes) -> bytes:
    arrow = pytest.importorskip("pyarrow")
    return bytes(arrow.compress(data, codec="zstd", asbytes=True))


@pytest.mark.parametrize(
    "name",
    [
        "r.jsonl",
        "r.ndjson",
        "r",
        "bom.jsonl",
        "r.jsonl.gz",
        "packed-without-a-name",
        "r.json",
        "array-without-a-name",
        "lines.json",
        "r.json.gz",
        "r.csv",
        "bom.csv",
        "r.csv.gz",
        "r.tsv",
        "r.parquet",
        "parquet-without-a-name",
        "r.jsonl.zst",
        "zstd-without-a-name",
    ],
)
def test_every_format_gives_the_same_rollouts(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    match name:
        case "r.json" | "array-without-a-name":
            data = json.dumps(ROWS).encode()
        case "r.json.gz":
            data = gzip.compress(json.dumps(ROWS).encode())
        case "r.csv" | "bom.csv":
            data = as_csv()
        case "r.csv.gz":
            data = gzip.compress(as_csv())
        case "r.tsv":
            data = as_csv("\t")
        case "r.parquet" | "parquet-without-a-name":
            data = as_parquet(tmp_path / "made")
        case "r.jsonl.zst" | "zstd-without-a-name":
            data = zstd(LINES)
        case "r.jsonl.gz" | "packed-without-a-name":
            data = gzip.compress(LINES)
        case _:
            data = LINES
    path.write_bytes((b"\xef\xbb\xbf" if name.startswith("bom") else b"") + data)
    assert read_rollouts(path) == EXPECTED
    assert read_rollouts(path, limit=2) == EXPECTED[:2]


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    for number, row in enumerate(ROWS):
        (tmp_path / f"part-{number}.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "README.md").write_text("no rows")
    assert read_rollouts(tmp_path) == EXPECTED
    (tmp_path / "part-1.jsonl").write_text("{\n")
    with pytest.raises(DataError, match="part-1.jsonl, line 1: not JSON"):
        read_rollouts(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=r"holds no data set and no file such as \*.jsonl or \*.parquet"):
        read_rollouts(empty)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("r.jsonl.gz", gzip.compress(LINES)[:-9], "the compressed file is damaged"),
        ("r.jsonl.gz", b"no gzip", "the compressed file is damaged"),
        ("r.parquet", b"no parquet", "not a Parquet file that can be read"),
        ("r.csv", b"response,id\na,b,c\n", "line 2: the row has more or fewer cells than the header"),
        ("r.csv", b"response,id\na\n", "line 2: the row has more or fewer cells than the header"),
        ("r.csv", b"response\n\xff\xfe\n", "not CSV in UTF-8"),
        ("r.json", b'"text"', "expected a list of objects, not str"),
        ("r.json", b"[1, 2", "not JSON"),
        ("r.json", b"[1, 2]", "r.json, row 1: a rollout is an object"),
        ("r.jsonl", b"\x00\x01", "line 1: not JSON"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=says):
        read_rollouts(tmp_path / name)


def test_frames_and_tables_are_read_as_files_are() -> None:
    assert rollouts_from(ROWS) == EXPECTED
    arrow, polars, pandas = (pytest.importorskip(n) for n in ("pyarrow", "polars", "pandas"))
    assert rollouts_from(arrow.Table.from_pylist(ROWS)) == EXPECTED
    assert rollouts_from(polars.DataFrame(ROWS)) == EXPECTED
    assert rollouts_from(pandas.DataFrame(ROWS)) == EXPECTED
    nested = {
        "response": "r",
        "messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}, {"id": "2"}]}],
    }
    parquet = BytesIO(pandas.DataFrame([nested]).to_parquet())
    assert rollouts_from(pandas.read_parquet(parquet)) == rollouts_from([nested])
    with_nothing = [{**ROWS[0], "finish_reason": None, "response_tokens": 3}, ROWS[1]]
    found = rollouts_from(pandas.DataFrame(with_nothing).astype({"response_tokens": object}))
    assert [(r.finish_reason, r.response_tokens) for r in found] == [(None, 3), (None, None)]
    with pytest.raises(DataError, match="list, row 2: the rollout has no 'response'"):
        rollouts_from([ROWS[0], {"prompt": "?"}])


# ---- columns


def test_columns_are_mapped_by_name_and_by_path(tmp_path: Path) -> None:
    rows = [
        {"completion": "4", "meta": {"answer": "4", "uid": 7}, "question": "2+2?", "level": "easy"},
        {"completion": "5", "meta": {"answer": None}, "question": "2+2?", "level": "easy"},
    ]
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {
        "response": "completion",
        "ground_truth": "meta.answer",
        "prompt": "question",
        "group": "meta.uid",
    }
    found = read_rollouts(path, columns=columns)
    assert [(r.response, r.ground_truth, r.prompt, r.group) for r in found] == [
        ("4", "4", "2+2?", 7),
        ("5", None, "2+2?", None),
    ]
    assert found[0].extra == {"meta": {"answer": "4", "uid": 7}, "level": "easy"}
    with pytest.raises(DataError, match="row 1: there is no column 'completions'; did you mean 'completion'"):
        rollouts_from(rows, columns={"response": "completions"})
    with pytest.raises(ConfigError, match="a rollout has no field 'respons'; did you mean 'response'"):
        rollouts_from(rows, columns={"respons": "completion"})
    with pytest.raises(ConfigError, match="the column of 'response' is a name"):
        rollouts_from(rows, columns={"response": ""})


@pytest.mark.parametrize("holder", ["reward_model", "reward_spec"])
def test_two_references_that_differ_are_a_question(holder: str) -> None:
    row = {"response": "4", "ground_truth": "2 + 2 = 4", holder: {"style": "rule", "ground_truth": 4}}
    with pytest.raises(DataError, match=f"two references that differ, in 'ground_truth' and in '{holder}'"):
        rollouts_from([row])
    for column, truth in (("ground_truth", "2 + 2 = 4"), (f"{holder}.ground_truth", 4)):
        (found,) = rollouts_from([row], columns={"ground_truth": column})
        assert found.ground_truth == truth
        assert found.extra[holder] == {"style": "rule"}
    (found,) = rollouts_from([{**row, "ground_truth": "4"}])
    assert found.ground_truth == "4"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (42, 42.0), ("42", 42), ("42 ", "42"), (["a", 1], ("a", "1")), ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ("42", ""), ([], ["42"]), ({}, "42"),
    ],
)  # fmt: skip
def test_references_that_say_the_same_are_no_question(one: Any, other: Any) -> None:
    for first, second in ((one, other), (other, one)):
        row = {"response": "4", "ground_truth": first, "reward_model": {"ground_truth": second}}
        (found,) = rollouts_from([row])
        assert found.ground_truth == (first or second)


def test_a_column_of_responses_is_a_group() -> None:
    rows = [
        {"prompt": "2+2?", "responses": ["4", "5"], "reward_model": {"style": "rule", "ground_truth": "4"}},
        {"prompt": "3+3?", "responses": ["6"], "uid": "x", "extra_info": {"split": "test"}},
    ]
    found = rollouts_from(rows)
    assert [(r.response, r.group, r.ground_truth) for r in found] == [
        ("4", 0, "4"),
        ("5", 0, "4"),
        ("6", 1, None),
    ]
    assert found[2].extra == {"uid": "x", "split": "test"}


USER, WHY = {"role": "user", "content": "2+2?"}, {"role": "user", "content": "Why?"}
FOUR, FIVE = ({"role": "assistant", "content": text} for text in ("4", "5"))


@pytest.mark.parametrize(
    ("row", "prompt", "turns"),
    [
        ({"prompt": "2+2?", "chosen": "4", "rejected": "5"}, "2+2?", 0),
        ({"prompt": "2+2?", "chosen": [FOUR], "rejected": [FIVE]}, "2+2?", 2),
        ({"prompt": [USER], "chosen": [FOUR], "rejected": [FIVE]}, [USER], 2),
        # the conversations hold the prompt, as most data sets have it
        ({"chosen": [USER, FOUR], "rejected": [USER, FIVE]}, [USER], 2),
        ({"prompt": "2+2?", "messages": [USER, FOUR], "chosen": [USER, FOUR], "rejected": [USER, FIVE]}, "2+2?", 2),
        ({"prompt": "2+2?", "chosen": [USER, FIVE, WHY, FOUR], "rejected": [USER, FIVE, WHY, FIVE]}, [USER, FIVE, WHY], 4),
    ],
)  # fmt: skip
def test_a_preference_pair_is_a_group_of_two(row: dict[str, Any], prompt: Any, turns: int) -> None:
    better, worse = rollouts_from([{**row, "score": 3}])
    assert (better.prompt, worse.prompt) == (prompt, prompt)
    assert (better.response, worse.response) == ("4", "5")
    assert (better.group, worse.group) == (0, 0)
    assert (better.extra, worse.extra) == ({"score": 3, "preferred": True}, {"score": 3, "preferred": False})
    assert (len(better.messages), len(worse.messages)) == (turns, turns)
    assert not turns or (better.messages[-1], worse.messages[-1]) == (FOUR, FIVE)


def test_equal_answers_of_a_pair_stay_answers() -> None:
    found = rollouts_from([{"chosen": [USER, FOUR], "rejected": [USER, FOUR]}])
    assert [(r.prompt, r.response) for r in found] == [([USER], "4")] * 2


def test_half_a_pair_is_none() -> None:
    with pytest.raises(DataError, match="row 1: the rollout has no 'response'; there is 'chosen'"):
        rollouts_from([{"chosen": "4", "rejected": None}])
    (found,) = rollouts_from([{"response": "4", "chosen": "4", "rejected": "5"}])
    assert found.extra == {"chosen": "4", "rejected": "5"}


def test_dumps_of_trainers_are_recognised() -> None:
    verl = {"input": "user\n2+2?", "output": "4", "gts": "4", "score": 1.0, "step": 3, "uid": "u"}
    (found,) = rollouts_from([verl])
    assert (found.prompt, found.response, found.ground_truth) == ("user\n2+2?", "4", "4")
    assert (found.group, found.extra) == ("u", {"score": 1.0, "step": 3, "uid": "u"})
    del verl["uid"]
    steps = rollouts_from([{**verl, "step": step} for step in (1, 1, 2)])
    assert group_by_prompt(steps) == [[0, 1], [2]]
    alone = rollouts_from([{**verl, "input": "", "gts": None}] * 2)
    assert group_by_prompt(alone) == [[0], [1]]
    assert [r.group for r in rollouts_from([{**verl, "uid": ["a", 0]}, {**verl, "uid": 0}])] == [("a", 0), 0]
    skyrl = {
        "input_prompt": "2+2?",
        "output_response": "4",
        "score": [0.0, 1.0],
        "stop_reason": "stop",
        "env_class": "judgekit",
        "env_extras": {"reward_spec": {"ground_truth": "4"}},
        "data_source": "maths",
    }
    (found,) = rollouts_from([skyrl])
    assert (found.prompt, found.response, found.ground_truth) == ("2+2?", "4", "4")
    assert (found.finish_reason, found.data_source) == ("stop", "maths")
    totals = {"eval/all/avg_score": 0.5}  # which lies beside it, and comes first
    (found,) = rollouts_from([totals, skyrl], skip_bad_rows=True)
    assert found.response == "4"


def test_a_field_under_another_name_is_hinted_at_and_never_taken(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "judgekit"):
        found = rollouts_from([{"response": "4", "groundtruth": "4", "uid": 1, "question": "2+2?"}] * 2)
    assert {(r.ground_truth, r.group, r.prompt) for r in found} == {(None, None, "")}
    for hint in ("ground_truth=groundtruth", "group=uid", "prompt=question"):
        assert caplog.text.count(f"--map {hint}") == 1
    caplog.clear()
    rollouts_from([{"response": "4", "answer": "4", "ground_truth": "4", "prompt": "p", "group": 1}])
    assert caplog.text == ""
    with pytest.raises(
        DataError, match="has no 'response'; if 'completion' is it: --map response=completion"
    ):
        rollouts_from([{"completion": "4"}])


# ---- results

RESULTS = [
    RewardResult(
        index=i,
        group=r["group"],
        reward=reward,
        status="scored" if reward is not None else "masked",
        raw_reward=reward,
        contributions={},
        grades=grades,
    )
    for i, (r, reward, grades) in enumerate(
        [
            (ROWS[0], 1.0, {"a": Graded(1.0, "right"), "b": Skipped("a")}),
            (ROWS[1], 0.0, {"a": Graded(0.0), "b": Abstained("no")}),
            (ROWS[2], None, {"a": Failed("JudgeTimeout", "late", retryable=True)}),
        ]
    )
]


def test_a_table_of_results_has_a_row_for_each_and_no_number_for_a_failure() -> None:
    pytest.importorskip("pyarrow")
    table = results_frame(EXPECTED, RESULTS, "arrow")
    assert table.column("reward").to_pylist() == [1.0, 0.0, None]
    assert table.column("grade.a").to_pylist() == [1.0, 0.0, None]
    assert table.column("grade.a.is").to_pylist() == ["graded", "graded", "failed"]
    assert table.column("grade.a.why").to_pylist() == ["right", "", "JudgeTimeout: late (infrastructure)"]
    assert table.column("grade.b").to_pylist() == [None, None, None]
    assert table.column("grade.b.is").to_pylist() == ["skipped", "abstained", None]
    pytest.importorskip("polars")
    assert results_frame(EXPECTED, RESULTS, "polars")["reward"].null_count() == 1
    pytest.importorskip("pandas")
    assert list(results_frame(EXPECTED, RESULTS)["grade.a.is"]) == ["graded", "graded", "failed"]
    with pytest.raises(ConfigError, match="kind is pandas, polars or arrow, not 'excel'"):
        results_frame(EXPECTED, RESULTS, "excel")  # type: ignore[arg-type]
    assert results_frame([], [], "arrow").num_rows == 0


@pytest.mark.parametrize(
    "name",
    ["o.jsonl", "o.json", "o.csv", "o.tsv", "o.parquet", "o.jsonl.gz", "o.csv.gz", "o.jsonl.zst"],
)
def test_what_is_written_can_be_read_again(tmp_path: Path, name: str) -> None:
    if name.endswith(("parquet", "zst")):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    write_results(path, EXPECTED, RESULTS)
    again = read_rollouts(path)
    assert [(r.id, r.group, r.prompt, r.response, r.ground_truth) for r in again] == [
        (r.id, r.group, r.prompt, r.response, r.ground_truth) for r in EXPECTED
    ]
    rewards = [r.extra.get("reward") for r in again]
    if "sv" in name:
        rewards = [None if r is None else float(r) for r in rewards]
    assert rewards == [1.0, 0.0, None]
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_text_that_no_format_takes_is_written_all_the_same(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    odd = [Rollout(response="\ud800", prompt=[{"role": "user", "content": "?"}], ground_truth={"a": [1]})]
    for name in ("o.jsonl", "o.csv", "o.parquet", "o.json"):
        write_results(tmp_path / name, odd, [RESULTS[0]])
        assert "d800" in read_rollouts(tmp_path / name)[0].response or name.startswith("o.js")


@pytest.mark.parametrize("name", ["o.jsonl", "o.csv", "o.parquet"])
def test_no_text_of_a_rollout_or_a_grade_loses_the_results(tmp_path: Path, name: str) -> None:
    """A model's reason may end in half an emoji, and one such row cost all that had been graded."""
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    half = "half \ud83d"
    rollout = Rollout(response=half, prompt=half, id=half, group=half, data_source=half, ground_truth=half)
    grades = [Graded(1.0, half), Abstained(half), Failed("E", half), Skipped(half)]
    results = [msgspec.structs.replace(RESULTS[0], group=half, grades={"a": grade}) for grade in grades]
    write_results(tmp_path / name, [rollout] * 4, results)
    assert [r.id for r in read_rollouts(tmp_path / name)] == ["half \\ud83d"] * 4


class Array:
    """Like a numpy array: a comparison gives no answer."""

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")

    def tolist(self) -> list[int]:
        return [1, 2]


@pytest.mark.parametrize("name", ["o.jsonl", "o.json", "o.csv"])
def test_an_array_is_written_as_its_values(tmp_path: Path, name: str) -> None:
    write_results(tmp_path / name, [Rollout(response="x", ground_truth=Array())], [RESULTS[0]])
    assert "[1,2]" in (tmp_path / name).read_text().replace(" ", "").replace("\n", "")


@pytest.mark.parametrize(("truth", "text"), [(Decimal("4.00"), "4.00"), (date(2026, 5, 3), "2026-05-03")])
def test_a_decimal_or_a_date_is_a_text_without_quotes(tmp_path: Path, truth: Any, text: str) -> None:
    for name in ("o.csv", "o.jsonl"):
        write_results(tmp_path / name, [Rollout(response="x", ground_truth=truth)], [RESULTS[0]])
        assert read_rollouts(tmp_path / name)[0].ground_truth == text


def test_a_column_of_arrays_is_a_field() -> None:
    (made,) = rollouts_from([{"response": "x", "ground_truth": Array()}])
    assert made.ground_truth == [1, 2]


def test_an_empty_cell_is_no_value_and_an_empty_response_is_one(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("completion,answer,note\n42,42,\n,42,x\n41,,\n")
    columns = {"response": "completion", "ground_truth": "answer"}
    found = read_rollouts(path, columns=columns)
    assert [(r.response, r.ground_truth, r.extra) for r in found] == [
        ("42", "42", {}),
        ("", "42", {"note": "x"}),
        ("41", None, {}),
    ]


def test_one_bad_row_refuses_the_file_unless_the_user_says_otherwise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "r.jsonl"
    bad = ["not json", '{"prompt": "q"}', '{"response": 3}', "[" * 100_000, "{}"]
    path.write_text("\n".join(['{"response": "a"}', *bad, '{"response": "b"}', *bad[:2]]) + "\n")
    with pytest.raises(DataError, match=r"r\.jsonl, line 2: not JSON"):
        read_rollouts(path)
    assert [r.response for r in read_rollouts(path, skip_bad_rows=True)] == ["a", "b"]
    assert "left out 7 rows that cannot be read: line 2: not JSON" in caplog.text
    assert "(and 2 more)" in caplog.text
    rows = [{"response": "a"}, {"response": None}, 5, {"response": "b"}]
    with pytest.raises(DataError, match="row 2"):
        rollouts_from(rows)
    assert [r.response for r in rollouts_from(rows, skip_bad_rows=True)] == ["a", "b"]


@pytest.mark.parametrize("name", ["r.jsonl", "r.json"])
def test_json_as_python_writes_it_is_read(tmp_path: Path, name: str) -> None:
    row = {"response": "half \ud835", "old": float("nan"), "top": float("inf"), "ground_truth": float("nan")}
    (tmp_path / name).write_text(json.dumps(row if name.endswith("l") else [row]) + "\n")
    (made,) = read_rollouts(tmp_path / name)
    assert made.response == "half \ud835"
    assert made.extra["top"] == float("inf")
    assert made.ground_truth is None


def test_a_column_that_is_named_holds_the_responses_whatever_lies_beside_it() -> None:
    row = {"prompt": "6*7?", "response": "the gold one", "generations": ["42", "41"], "extra": {"level": 3}}
    found = rollouts_from([row], columns={"responses": "generations"})
    assert [one.response for one in found] == ["42", "41"]
    assert found[0].extra == {"response": "the gold one", "level": 3}
    both = {"responses": "generations", "ground_truth": "response"}
    assert [(r.response, r.ground_truth) for r in rollouts_from([row], columns=both)] == [
        ("42", "the gold one"),
        ("41", "the gold one"),
    ]


@pytest.mark.parametrize(
    ("holder", "name"), [("extra_info", "ground_truth"), ("extra_info", "answer"), ("extra", "answer")]
)
def test_a_hint_leads_to_an_entry_of_extra_info(
    holder: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    row = {"prompt": "q", "response": "it is 72", holder: {"index": 1, name: "72"}}
    rollouts_from([row])
    assert f"--map ground_truth={name}" in caplog.text
    (found,) = rollouts_from([row], columns={"ground_truth": name})
    assert found.ground_truth == "72"


def test_a_row_without_a_rollout_is_said(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"prompt": "a", "responses": ["x"]}, {"prompt": "b", "responses": []}]
    with pytest.raises(DataError, match="row 2: 'responses' is an empty list"):
        rollouts_from(rows)
    assert len(rollouts_from(rows, skip_bad_rows=True)) == 1
    assert "left out 1 rows" in caplog.text


@pytest.mark.parametrize("before", [[], [{"role": "system", "content": "Be brief."}]])
def test_a_prompt_is_found_in_its_conversation_as_hosts_and_arrow_write_it(before: list[Any]) -> None:
    """With nulls for keys that other messages have, and behind a system message."""
    said = [
        {"tool_calls": None, "name": None, **turn}
        for turn in (*before, USER, FOUR, {**USER, "content": "sure?"}, FIVE)
    ]
    (made,) = rollouts_from([{"messages": said, "prompt": [USER]}], columns={"response": "messages"})
    assert len(made.messages) == len(said)
    assert prompt_end(made) == len(before) + 1


@pytest.mark.parametrize("nothing", ["", None, [], float("nan")])
def test_rows_without_a_group_are_grouped_by_their_prompts(nothing: Any) -> None:
    rows = [{"prompt": prompt, "response": "4", "group": nothing} for prompt in "aabb"]
    assert [r.group for r in rollouts_from(rows)] == [None] * 4
    assert group_by_prompt(rollouts_from(rows)) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("prompt", [{}, {"prompt": "q"}, {"prompt": ""}, {"prompt": [USER]}])
def test_a_conversation_that_is_the_response_holds_its_prompt_once(prompt: dict[str, Any]) -> None:
    said = [USER, FOUR, {"role": "user", "content": "sure?"}, FIVE]
    asked = {"prompt": USER["content"]} if prompt.get("prompt") == "q" else prompt
    (made,) = rollouts_from([{"messages": said, **asked}], columns={"response": "messages"})
    assert (made.response, made.messages) == (FIVE["content"], said)
    assert made.prompt in ([USER], USER["content"])


def test_forms_of_responses() -> None:
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "5"}]
    (made,) = rollouts_from([{"completion": turns}], columns={"response": "completion"})
    assert (made.response, made.prompt, made.messages) == ("5", turns[:1], turns)
    made_two = rollouts_from([{"generations": ["a", "b"]}], columns={"responses": "generations"})
    assert [(r.response, r.group) for r in made_two] == [("a", 0), ("b", 0)]
    (made,) = rollouts_from([{"resps": [["x"]]}], columns={"response": "resps.0.0"})
    assert made.response == "x"
    with pytest.raises(DataError, match="no column"):
        rollouts_from([{"response": "a"}], columns={"ground_truth": "resps.0.0"})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"respnse": "x"}, "a rollout has no field 'respnse'; did you mean 'response'?"),
        ({"completion": "x"}, "no field 'completion'; did you mean 'response'?"),
        ({"response": "x", "groundtruth": "1"}, "no field 'groundtruth'; did you mean 'ground_truth'?"),
        ({"response": "x", "Promt": "1"}, "no field 'Promt'; did you mean 'prompt'?"),
        ({"response": "x", "answer": "1"}, "no field 'answer'; did you mean 'ground_truth'?"),
        # what is there already was not meant
        ({"response": "x", "ground_truth": "1", "answer": "1"}, "no field 'answer': give it as extra={'answer': …}"),
        ({"response": "x", "prompt_length": 3}, "no field 'prompt_length': give it as extra="),
        ({"response": "x", "level": 3}, "no field 'level': give it as extra={'level': …}"),
        ({"prompt": "x"}, "a rollout needs its response"),
    ],
)  # fmt: skip
def test_a_rollout_with_a_wrong_name_says_the_right_one(given: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError) as raised:
        Rollout(**given)
    assert says in str(raised.value)


def test_a_rollouts_fields_have_names() -> None:
    with pytest.raises(DataError, match="given by name"):
        Rollout("x")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("groundtruth", "ground_truth"), ("ground_thruth", "ground_truth"), ("Answer", "ground_truth"), ("promt", "prompt"),
        ("grup", "group"), ("mesages", "messages"), ("finishreason", "finish_reason"), ("datasource", "data_source"),
        ("stop_reason", ""), ("idx", ""), ("prompt_length", ""), ("group_size", ""), ("extras", ""), ("level", ""),
    ],
)  # fmt: skip
def test_a_column_with_nearly_a_fields_name_is_told(
    name: str, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    rollouts_from([{"response": "x", name: "y"}])
    assert caplog.messages == (
        [f"list: no rollout has a {field}; if {name!r} is it: --map {field}={name}"] if field else []
    )


@pytest.mark.parametrize("name", ["reponse", "responce", "Response"])
def test_a_misspelt_response_is_told(name: str) -> None:
    with pytest.raises(DataError, match=f"--map response={name}"):
        rollouts_from([{name: "x"}])


def test_sharegpt_s_turns_are_messages(tmp_path: Path) -> None:
    """As Hermes', ToolACE's and SWE-agents' trajectories are stored."""
    call = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    turns = [("system", "You call."), ("human", "Go."), ("gpt", call), ("tool", "12"), ("function_call", '{"name": "g", "arguments": {}}'),
             ("observation", "13"), ("gpt", "It is 13.")]  # fmt: skip
    row = {"conversations": [{"from": who, "value": said} for who, said in turns], "ground_truth": "13"}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    (rollout,) = read_rollouts(path, columns={"response": "conversations"})
    assert rollout.response == "It is 13."
    roles = ["system", "user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert [message["role"] for message in rollout.messages] == roles
    assert rollout.prompt == [{"role": "system", "content": "You call."}, {"role": "user", "content": "Go."}]
    found = read_trajectory(rollout)
    assert [(made.name, made.answer and made.answer.text) for made in found.calls] == [
        ("f", "12"),
        ("g", "13"),
    ]
    with pytest.raises(DataError, match="if 'conversations' is it: --map response=conversations"):
        list(read_rollouts(path))


@pytest.mark.parametrize(
    "odd",
    [
        [{"from": "a"}],
        [{"from": 1, "value": "x"}],
        [{"from": "a", "value": "x", "role": "user"}],
        [],
        "x",
        None,
    ],
)
def test_what_are_not_sharegpt_s_turns_stays(odd: Any) -> None:
    assert as_messages(odd) is odd
