"""Damaged files of rollouts, in every format: one sentence with the place, before anything is graded or written."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path

import pytest

from .in_process import call, contents, refused

# fmt: off
LINES = [
    (b"", "r.jsonl holds no rollouts"),
    (b"\n \n", "r.jsonl holds no rollouts"),
    (b"{", "r.jsonl, line 1: not JSON (Input data was truncated)"),
    (b'{"response": "x"}\n{"respo', "r.jsonl, line 2: not JSON"),
    (b"null", "line 1: a rollout is an object with at least a 'response', not NoneType"),
    (b"3", "line 1: a rollout is an object"),
    (b'[{"response": "x"}]', "line 1: a list, where each line is one object; a file with a list of rollouts ends with .json"),
    (b"{}", "line 1: the row is empty"),
    (b'{"response": null}', "line 1: 'response' is null; a rollout without text has the response \"\""),
    (b'{"response": 3}', "line 1: 'response' is text, not int"),
    (b'{"response": ["a"]}', "line 1: 'response' is text, not list"),
    (b'{"responses": "x"}', "line 1: the rollout has no 'response'; if 'responses' is it: --map response=responses"),
    (b'{"responses": [3]}', "line 1: 'response' is text, not int"),
    (b'{"responses": []}', "r.jsonl, line 1: 'responses' is an empty list"),
    (b'{"completion": "x"}', "if 'completion' is it: --map response=completion"),
    (b'{"Response": "x"}', "if 'Response' is it: --map response=Response"),
    (b'{"response": "x", "prompt": 3}', "'prompt' is text or a list of messages, not int"),
    (b'{"response": "x", "prompt": ["hi"]}', "'prompt' is a list of messages, each an object with 'role' and 'content'"),
    (b'{"response": "x", "messages": [3]}', "'messages' is a list of messages, each an object"),
    (b'{"response": "x", "messages": {"a": 1}}', "'messages' is a list of messages, not dict"),
    (b'{"response": "x", "group": {"a": 1}}', "'group' is text, a number or a list of them, not an object"),
    (b'{"response": "x", "group": [[{"a": 1}]]}', "'group' is text, a number or a list of them, not an object"),
    (b'{"response": "x", "id": [1]}', "'id' is text, not list"),
    (b'{"response": "x", "id": true}', "'id' is text, not bool"),
    (b'{"response": "x", "extra": 3}', "'extra' is an object"),
    (b'{"response": "x", "data_source": 3}', "'data_source' is text, not int"),
    (b'{"response": "x", "finish_reason": 3}', "'finish_reason' is text, not int"),
    (b'{"response": "x", "response_tokens": "many"}', "'response_tokens' is a whole number, not str"),
    (b'{"response": "x", "response_tokens": 1.5}', "'response_tokens' is a whole number, not float"),
    (b'{"response": "x", "response_tokens": -1}', "'response_tokens' is a whole number from 0, not -1"),
    (b'{"response": "\xff"}', "line 1: not JSON ('utf-8' codec can't decode byte 0xff"),
    (b'{"response": "x"} {"response": "y"}', "line 1: not JSON (JSON is malformed: trailing characters"),
    (b'{"response": NaN}', "line 1: 'response' is text, not float"),
    (b"{'response': 'x'}", "line 1: not JSON (JSON is malformed: object keys must be strings"),
    (b"[" * 100_000, "line 1: nested too deeply"),
    (b"\xff\xfe{\0", "r.jsonl is UTF-16 text: give JSON lines, JSON, CSV or Parquet, plain, .gz or .zst"),
    (b"\x1f\x8bgarbage", "r.jsonl: the compressed file is damaged"),
]
OTHERS = [
    ("r.json", b"", "r.json: not JSON"),
    ("r.json", b"[", "r.json: not JSON"),
    ("r.json", b"[]", "r.json holds no rollouts"),
    ("r.json", b"3", "r.json: expected a list of objects, not int"),
    ("r.json", b"[3]", "r.json, row 1: a rollout is an object"),
    ("r.json", b'{"response": "x"}\n{"respons": "x"}', "r.json, line 2: the rollout has no 'response'; if 'respons' is it: --map response=respons"),
    ("r.json", b'{"rollouts": [{"response": "x"}]}', "row 1: the rollout has no 'response'; there is 'rollouts'"),
    ("r.json", b"[" * 100_000, "r.json: nested too deeply"),
    ("r.csv", b"", "r.csv holds no rollouts"),
    ("r.csv", b"response\n", "r.csv holds no rollouts"),
    ("r.csv", b"a,b\n1,2\n", "r.csv, line 2: the rollout has no 'response'; there is 'a', 'b'"),
    ("r.csv", b"response,ground_truth\nx\n", "r.csv, line 2: the row has more or fewer cells than the header"),
    ("r.csv", b"response\nx,y\n", "r.csv, line 2: the row has more or fewer cells"),
    ("r.csv", b'response\n"x\n', "r.csv: not CSV in UTF-8 (unexpected end of data)"),
    ("r.csv", b"response\n\xff\n", "r.csv: not CSV in UTF-8"),
    ("r.csv", b"response,response\nx,y\n", "r.csv: the header has the column 'response' twice"),
    ("r.tsv", b"response,gt\nx,y\n", "r.tsv, line 2: the rollout has no 'response'"),
    ("r.jsonl.gz", b"nonsense", "r.jsonl.gz: the compressed file is damaged (Not a gzipped file"),
    ("r.jsonl.gz", gzip.compress(b"{"), "r.jsonl.gz, line 1: not JSON"),
    ("r.jsonl.gz", gzip.compress(b'{"response": "x"}')[:-9], "r.jsonl.gz: the compressed file is damaged"),
    ("r.txt", b"hello", "r.txt, line 1: not JSON"),
    ("r.xlsx", b"PK\x03\x04\x14", "r.xlsx is a ZIP archive or an Excel file"),
    ("r.bz2", b"BZh91AY", "r.bz2 is compressed with bzip2"),
    ("r.xz", b"\xfd7zXZ\0", "r.xz is compressed with xz"),
    ("r.arrow", b"ARROW1\0\0", "r.arrow is an Arrow file"),
    ("r", b"nonsense", "r, line 1: not JSON"),
]
ARROW = [
    ("r.parquet", b"", "r.parquet: not a Parquet file that can be read"),
    ("r.parquet", b"nonsense", "r.parquet: not a Parquet file that can be read"),
    ("r.parquet", b"PAR1" + b"\0" * 100 + b"PAR1", "cannot read r.parquet: Couldn't deserialize thrift"),
    ("r.jsonl", b"PAR1garbage", "r.jsonl: not a Parquet file that can be read"),
    ("r.jsonl.zst", b"nonsense", "cannot read r.jsonl.zst: ZSTD decompress failed"),
    ("r.jsonl.zst", b"\x28\xb5\x2f\xfd\x04", "cannot read r.jsonl.zst: Truncated compressed stream"),
]
# fmt: on
ARROW_THERE = importlib.util.find_spec("pyarrow") is not None


@pytest.mark.parametrize(("data", "says"), LINES, ids=range(len(LINES)))
def test_damaged_lines(files: Path, data: bytes, says: str) -> None:
    (files / "r.jsonl").write_bytes(data)
    refused(files, "grade reward.yaml r.jsonl --out g.jsonl --ledger l.jsonl --report r.html", says)


@pytest.mark.parametrize(("name", "data", "says"), OTHERS, ids=range(len(OTHERS)))
def test_damaged_files_of_other_formats(files: Path, name: str, data: bytes, says: str) -> None:
    (files / name).write_bytes(data)
    refused(files, f"grade reward.yaml {name} --out g.jsonl --ledger l.jsonl", says)


@pytest.mark.skipif(not ARROW_THERE, reason="pyarrow is not installed")
@pytest.mark.parametrize(("name", "data", "says"), ARROW, ids=range(len(ARROW)))
def test_damaged_parquet_and_zstandard(files: Path, name: str, data: bytes, says: str) -> None:
    (files / name).write_bytes(data)
    refused(files, f"grade reward.yaml {name} --out g.jsonl --ledger l.jsonl", says)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "standard input holds no rollouts"),
        (b"{", "standard input, line 1: not JSON"),
        (b"\xff", "standard input, line 1: not JSON"),
    ],
)
def test_damaged_standard_input(files: Path, data: bytes, says: str) -> None:
    refused(files, "grade reward.yaml - --out g.jsonl", says, stdin=data)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("none.jsonl", "cannot read none.jsonl: No such file or directory"),
        ("none.csv", "cannot read none.csv: No such file or directory"),
        pytest.param(
            "none.parquet",
            "cannot read none.parquet: No such file or directory",
        ),
        ("rollouts.jsonl/x", "cannot read rollouts.jsonl/x: Not a directory"),
        ("empty", "empty holds no data set and no file such as *.jsonl or *.parquet"),
        ("broken", "broken/x.jsonl, line 1: not JSON"),
        ("loop", "cannot read loop: Too many levels of symbolic links"),
        ("", "the name of the rollouts' file is empty"),
        ("n" * 300, "File name too long"),
        ("s3://bucket/x.parquet", "s3://bucket/x.parquet is an address: give a file, a folder, or hf:NAME"),
        ("http://host/x.jsonl", "is an address"),
        ("*.jsonl", "cannot read *.jsonl: No such file or directory"),
        ("/dev/null", "/dev/null holds no rollouts"),
    ],
)
def test_names_of_no_file(files: Path, name: str, says: str) -> None:
    (files / "empty").mkdir()
    (files / "empty/notes.txt").write_text("x")
    (files / "broken").mkdir()
    (files / "broken/x.jsonl").write_text("x")
    (files / "loop").symlink_to("loop")
    refused(files, f"grade reward.yaml {name} --out g.txt", says)


def test_a_damaged_row_at_the_end_leaves_nothing_behind(files: Path) -> None:
    """Also no ledger: what is read is read before anything is asked."""
    with (files / "rollouts.jsonl").open("a") as file:
        file.write('{"response": "x"')
    before = contents(files)
    called = call(
        files,
        *[
            "grade",
            "reward.yaml",
            "rollouts.jsonl",
            "--out",
            "o/g.jsonl",
            "--ledger",
            "o/l.jsonl",
            "--report",
            "o/r.html",
        ],
    )
    assert (called.returncode, called.stdout) == (2, "")
    left = contents(files)
    assert {name for name in left if name not in before} <= {"o"}


def test_bad_rows_are_left_out_only_on_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each is named, the first few of them, and counted; the others are graded."""
    rows = [b'{"response": "#### 4", "ground_truth": "4"}'] * 3
    bad = [b'{"response": null}', b"{", b'{"response": "x", "id": [1]}', b"3", b"{}", b'{"response": ["a"]}']
    (tmp_path / "r.jsonl").write_bytes(b"\n".join([rows[0], *bad, *rows[1:]]))
    (tmp_path / "reward.yaml").write_text("graders: {right: {use: final_answer}}\n")
    refused(tmp_path, "grade reward.yaml r.jsonl --out o.jsonl", "r.jsonl, line 2: 'response' is null")
    args = ["grade", "reward.yaml", "r.jsonl", "--out", "o.jsonl", "--skip-bad-rows"]
    called = call(tmp_path, *args)
    assert called.returncode == 0, called.stderr
    said = caplog.text
    assert "r.jsonl: left out 6 rows that cannot be read: line 2: 'response' is null" in said
    for place in ("line 3: not JSON", "line 4: 'id' is text", "line 5: ", "line 6: the row is empty"):
        assert place in said
    assert "line 7" not in said
    assert said.count("(and 1 more)") == 1
    results = (tmp_path / "o.jsonl").read_text().splitlines()
    assert [json.loads(line)["reward"] for line in results] == [1.0] * 3
    (tmp_path / "r.jsonl").write_bytes(b"\n".join(bad))
    refused(tmp_path, "grade reward.yaml r.jsonl --out p.jsonl --skip-bad-rows", "r.jsonl holds no rollouts")
