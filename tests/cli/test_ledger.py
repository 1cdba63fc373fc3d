"""`judgekit report` and `judgekit replay`."""

from __future__ import annotations

import json
from pathlib import Path

from .command import CONFIG, run


def test_report_alone(files: Path) -> None:
    run(files, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl", "--ledger", "l.jsonl")
    done = run(files, "report", "l.jsonl", "--rows", "1")
    assert done.returncode == 0
    assert "2 more are in the ledger" in (files / "l.html").read_text()


def test_replay_with_other_weights(files: Path) -> None:
    run(files, "grade", "reward.yaml", "rollouts.jsonl", "--out", "g.jsonl", "--ledger", "l.jsonl")
    (files / "other.yaml").write_text(CONFIG.replace("correct: 0.9, brief: 0.1", "correct: 0.5, brief: 0.5"))
    done = run(files, "replay", "l.jsonl", "--reward", "other.yaml", "--out", "new.jsonl")
    assert done.returncode == 0
    assert "3 rewards recomputed, 0 changed" in done.stdout
    rows = [json.loads(line) for line in (files / "new.jsonl").read_text().splitlines()]
    rows.sort(key=lambda row: row["index"])
    assert [row["reward"] for row in rows] == [1.0, 0.0, None]
    assert rows[0]["contributions"] == {"correct": 0.5, "brief": 0.5, "residual": 0.0}
    assert [row["was"] for row in rows] == [1.0, 0.0, None]
