"""Writes GSM8K, MATH or MATH-500 as parquet for verl.

    python make_data.py gsm8k --out data/gsm8k                          # from the hub, with `pip install datasets`
    python make_data.py gsm8k --train train.jsonl --test test.jsonl --out data/gsm8k
    python make_data.py math --out data/math
    python make_data.py math500 --out data/math500                      # test.parquet only: MATH-500 is for validation
    python make_data.py math500 --references both --out data/math500

A local file has one JSON object per line: `question` and `answer` (GSM8K), `problem` and `solution` (MATH and MATH-500).

--references says what a judge compares with: the final answer, the worked solution, or both, as a pair. Rows with a pair
name the one that counts in `extra_info.target_gt`; a judge template can be given the other by changing that column.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

TASKS = {
    "gsm8k": {
        "hub": ("openai/gsm8k", "main"),
        "fields": ("question", "answer"),
        "source": "openai/gsm8k",
        "ask": 'Think step by step, then give the final answer after "####".',
    },
    "math": {
        "hub": ("EleutherAI/hendrycks_math", "all"),
        "fields": ("problem", "solution"),
        "source": "llm_judge_remote_math",
        "ask": r"Think step by step, then give the final answer in \boxed{}.",
    },
    "math500": {
        "hub": ("HuggingFaceH4/MATH-500", "default"),
        "fields": ("problem", "solution"),
        "source": "llm_judge_remote_math",
        "ask": r"Think step by step, then give the final answer in \boxed{}.",
    },
}


def final_answer(task: str, worked: str) -> str:
    """The final answer of a worked solution."""
    if task == "gsm8k":
        return worked.rsplit("####", 1)[-1].strip().replace(",", "")
    start = worked.rfind(r"\boxed{")
    if start < 0:
        return worked
    depth, at = 0, start + len(r"\boxed")
    for end in range(at, len(worked)):
        depth += {"{": 1, "}": -1}.get(worked[end], 0)
        if depth == 0:
            return worked[at + 1 : end]
    return worked


def row(task: str, split: str, index: int, given: dict[str, Any], references: str) -> dict[str, Any]:
    ask, worked = (given[field] for field in TASKS[task]["fields"])
    final = final_answer(task, worked)
    truth: Any = {"answer": final, "solution": worked, "both": [final, worked]}[references]
    info = {"split": split, "index": index, "problem": ask, "solution": worked}
    if references == "both":
        info["target_gt"] = final
    return {
        "data_source": TASKS[task]["source"],
        "prompt": [{"role": "user", "content": f"{ask}\n\n{TASKS[task]['ask']}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": info,
    }


def read(path: Path, task: str) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            rows.append({field: given[field] for field in TASKS[task]["fields"]})
        except (json.JSONDecodeError, KeyError) as error:
            sys.exit(f"{path}, line {number}: {type(error).__name__}: {error}")
    return rows


def from_hub(task: str, split: str) -> list[dict[str, Any]]:
    try:
        from datasets import get_dataset_config_names, load_dataset
    except ImportError:
        sys.exit("give --train and --test, or `pip install datasets` to download them from the hub")
    name, config = TASKS[task]["hub"]
    configs = get_dataset_config_names(name) if config == "all" else [config]
    return [dict(r) for c in configs for r in load_dataset(name, c, split=split)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--references", choices=("answer", "solution", "both"), default="answer")
    parser.add_argument("--train", type=Path)
    parser.add_argument("--test", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    import pandas as pd

    given.out.mkdir(parents=True, exist_ok=True)
    for split, file in (("train", given.train), ("test", given.test)):
        if file is None and (given.train or given.test or (given.task, split) == ("math500", "train")):
            continue
        rows = read(file, given.task) if file is not None else from_hub(given.task, split)
        made = [row(given.task, split, i, r, given.references) for i, r in enumerate(rows)]
        pd.DataFrame(made).to_parquet(given.out / f"{split}.parquet")
        print(f"{len(made)} rows in {given.out / f'{split}.parquet'}")


if __name__ == "__main__":
    main()
