"""Trains on GSM8K with TRL's GRPOTrainer, rewarded by a reward.yaml.

    python grpo.py --reward reward_rules.yaml --output_dir out                  # data from the hub
    python grpo.py --reward reward_judge.yaml --output_dir out --train train.jsonl --validation test.jsonl

A local file has one JSON object per line, with `question` and `answer`. All of GRPOConfig's options can be given.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset, load_dataset
from trl import GRPOConfig, GRPOTrainer, TrlParser

from judgekit_trl import judgekit_reward

ASK = 'Think step by step, then give the final answer after "####".'


@dataclass
class Options:
    reward: str = str(Path(__file__).with_name("reward_rules.yaml"))
    model: str = "Qwen/Qwen2.5-0.5B-Instruct"
    train: str | None = None
    validation: str | None = None


def rows(file: str | None, split: str) -> Dataset:
    if file is None:
        given = load_dataset("openai/gsm8k", "main", split=split)
    else:
        given = load_dataset("json", data_files=file, split="train")

    def row(one: dict[str, Any]) -> dict[str, Any]:
        return {
            "prompt": [{"role": "user", "content": f"{one['question']}\n\n{ASK}"}],
            "answer": one["answer"],
        }

    return given.map(row, remove_columns=["question"])


def main() -> None:
    options, config = TrlParser((Options, GRPOConfig)).parse_args_and_config()
    trainer = GRPOTrainer(
        model=options.model,
        args=config,
        train_dataset=rows(options.train, "train"),
        eval_dataset=rows(options.validation, "test"),
        reward_funcs=judgekit_reward(options.reward),
    )
    trainer.train()


if __name__ == "__main__":
    main()
