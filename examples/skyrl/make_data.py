"""Writes GSM8K as parquet for SkyRL.

    python make_data.py --out data [--for judge|rules]                 # from the hub, with `pip install datasets`
    python make_data.py --out data --train train.jsonl --validation test.jsonl

A local file has one JSON object per line, with `question` and `answer`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ASK = {
    "rules": 'Think step by step, then give the final answer after "####".',
    "judge": "Think step by step and give the final answer at the end.",
}


def row(split: str, index: int, given: dict[str, Any], ask: str) -> dict[str, Any]:
    return {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": f"{given['question']}\n\n{ask}"}],
        "env_class": "judgekit",
        "reward_spec": {"method": "judgekit", "ground_truth": given["answer"]},
        "extra_info": {"split": split, "index": index},
    }


def read(path: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            rows.append({"question": given["question"], "answer": given["answer"]})
        except (json.JSONDecodeError, KeyError) as error:
            sys.exit(f"{path}, line {number}: {type(error).__name__}: {error}")
    return rows


def from_hub(split: str) -> list[dict[str, Any]]:
    try:
        from datasets import load_dataset
    except ImportError:
        sys.exit("give --train and --validation, or `pip install datasets` to download them from the hub")
    return [dict(r) for r in load_dataset("openai/gsm8k", "main", split=split)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--for", dest="kind", choices=ASK, default="rules")
    parser.add_argument("--train", type=Path)
    parser.add_argument("--validation", type=Path)
    given = parser.parse_args()
    import pandas as pd

    given.out.mkdir(parents=True, exist_ok=True)
    for split, hub, file in (("train", "train", given.train), ("validation", "test", given.validation)):
        if file is None and (given.train or given.validation):
            continue
        rows = read(file) if file is not None else from_hub(hub)
        made = [row(split, i, r, ASK[given.kind]) for i, r in enumerate(rows)]
        pd.DataFrame(made).to_parquet(given.out / f"{split}.parquet")
        print(f"{len(made)} rows in {given.out / f'{split}.parquet'}")


if __name__ == "__main__":
    main()
