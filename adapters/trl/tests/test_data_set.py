"""A ledger, exported, is a data set for the library that TRL trains from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from datasets import Dataset, DatasetDict, load_dataset
from PIL import Image

from judgekit import DataError, GradingRunner, Ledger, Rollout
from judgekit.data import read_rollouts
from judgekit.graders import FinalAnswer
from judgekit.ledger.schema import rollout_digest
from judgekit.run.grouping import group_by_prompt


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


def test_a_saved_data_set_is_read_as_its_parquet_file_is(tmp_path: Path) -> None:
    """Also its images: as they are stored, and not as objects that are others in each process."""
    images = [Image.new("RGB", (8, 8), colour) for colour in ("red", "green")]
    rows = [
        {"prompt": "<image>How many?", "response": text, "ground_truth": "2", "images": [image], "level": 3}
        for image in images
        for text in ("2", "3")
    ]
    made = Dataset.from_list(rows)
    made.save_to_disk(str(tmp_path / "saved"))
    made.to_parquet(str(tmp_path / "saved.parquet"))
    saved, parquet = read_rollouts(tmp_path / "saved"), read_rollouts(tmp_path / "saved.parquet")
    assert saved == parquet
    assert [rollout_digest(one) for one in saved] == [rollout_digest(one) for one in parquet]
    assert group_by_prompt(saved) == [[0, 1], [2, 3]]


def test_a_split_is_named_so_that_it_can_be_read(tmp_path: Path) -> None:
    part = Dataset.from_list([{"prompt": "p", "response": "2"}])
    DatasetDict({"train": part, "test": part}).save_to_disk(str(tmp_path / "both"))
    with pytest.raises(DataError, match="has the splits train, test: choose one, such as") as refused:
        read_rollouts(tmp_path / "both")
    (found,) = read_rollouts(str(refused.value).rpartition("such as ")[2])
    assert found.response == "2"
