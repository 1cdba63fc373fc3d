"""A ledger, exported, is a data set for the library that TRL trains from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from datasets import load_dataset

from judgekit import GradingRunner, Ledger, Rollout
from judgekit.graders import FinalAnswer


def test_an_export_loads_as_a_data_set(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.jsonl", texts=True)
    rollouts = [
        Rollout(prompt="2+2?", response=text, ground_truth=truth) for text, truth in (("4", "4"), ("5", None))
    ]
    GradingRunner({"correct": FinalAnswer()}, ledger=ledger).run_sync(rollouts, tags={"step": 3})
    ledger.close()
    export = [sys.executable, "-m", "judgekit", "export", "l.jsonl", "l.parquet"]
    subprocess.run(export, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    rows = load_dataset(
        "parquet", data_files=str(tmp_path / "l.parquet"), cache_dir=str(tmp_path / "cache"), split="train"
    )
    types = {name: feature.dtype for name, feature in rows.features.items()}
    assert (types["tag.step"], types["reward"], types["grade.correct"], types["response"]) == (
        "int64", "float64", "float64", "string",
    )  # fmt: skip
    assert [(row["response"], row["reward"], row["status"]) for row in rows] == [
        ("4", 1.0, "scored"),
        ("5", None, "excluded"),
    ]
