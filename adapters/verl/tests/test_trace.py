"""The ledger beside verl's dumps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from judgekit import DataError, GradingRunner, Ledger, Rollout, grader
from judgekit_verl import join_dump


@grader
def length(response: str) -> float:
    return len(response) / 10


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def test_rows_and_entries(tmp_path: Path) -> None:
    """By the trajectory's name as V1 writes it, and by uid and score as others do; any text in a row."""
    texts = ["a\u2028b", "c\x85\x1cd!"]
    runner = GradingRunner([length], ledger=Ledger(tmp_path / "ledger.jsonl"))
    runner.run_sync([Rollout(response=t, group="u", id=f"u_{i}") for i, t in enumerate(texts)])
    dump = tmp_path / "dump"
    dump.mkdir()
    rows = [{"uid": f"u_{i}_0", "output": t, "score": len(t) / 10} for i, t in enumerate(texts)]
    write(dump / "1.jsonl", rows)
    write(dump / "2.jsonl", [{"uid": "u", "score": 0.5}, {"uid": "v", "score": 0.5}])
    found = list(join_dump(tmp_path / "ledger.jsonl", dump))
    assert [entry.id if entry else None for _, entry in found] == ["u_0", "u_1", "u_1", None]
    assert [row.get("output") for row, _ in found[:2]] == texts


def test_faults_are_said(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no .jsonl file"):
        list(join_dump(tmp_path / "ledger.jsonl", tmp_path / "empty"))
    (tmp_path / "bad.jsonl").write_text('{"uid": 1}\n{"uid"')
    with pytest.raises(DataError, match="bad.jsonl, line 2: not JSON"):
        list(join_dump(tmp_path / "ledger.jsonl", tmp_path / "bad.jsonl"))
