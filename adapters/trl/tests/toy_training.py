"""A training that fits into a test: repeat the letter of the prompt, with a policy of 0.1 million parameters."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

LETTERS = "abcdefgh"
ROLES = ["<user>", "<bot>"]
TEMPLATE = """
{%- for message in messages -%}
{{ '<user>' if message.role == 'user' else '<bot>' }}{{ message.content }}
{%- if message.role != 'user' -%}<eos>{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<bot>{%- endif -%}"""
GROUP = 8


def tokenizer() -> Any:
    """One token a character."""
    special = ["<pad>", "<eos>", *ROLES]
    words = models.WordLevel(
        {token: i for i, token in enumerate([*special, *"0123456789?", *LETTERS])}, unk_token="<pad>"
    )
    made = Tokenizer(words)
    made.pre_tokenizer = pre_tokenizers.Split(Regex("|".join([*special, "."])), "isolated")
    made.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<eos>", pad_token="<pad>", padding_side="left"
    )
    fast.add_special_tokens({"additional_special_tokens": ROLES})
    fast.chat_template = TEMPLATE
    return fast


def policy(words: Any, seed: int) -> Any:
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(words),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=64,
            tie_word_embeddings=True,
            pad_token_id=words.pad_token_id,
            eos_token_id=words.eos_token_id,
            bos_token_id=None,
        )
    )


def rows(count: int = 64, *, messages: bool = True, **columns: Any) -> Dataset:
    """Prompts such as "3?c" with the solution "c"."""
    texts = [(f"{i // 8 % 10}?{LETTERS[i % 8]}", LETTERS[i % 8]) for i in range(count)]
    return Dataset.from_list(
        [
            {"prompt": [{"role": "user", "content": text}] if messages else text, "solution": letter}
            | columns
            for text, letter in texts
        ]
    )


def trainer(
    folder: Path,
    reward: Any,
    *,
    steps: int = 1,
    seed: int = 0,
    rloo: bool = False,
    data: Dataset | None = None,
    validation: Dataset | None = None,
    callbacks: list[TrainerCallback] | None = None,
    **settings: Any,
) -> Any:
    """Make a trainer; *settings* replace those of its configuration."""
    words = tokenizer()
    given = {
        "output_dir": str(folder),
        "seed": seed,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "per_device_train_batch_size": 64,
        "per_device_eval_batch_size": 64,
        "num_generations": GROUP,
        "max_completion_length": 4,
        "learning_rate": 3e-3,
        "lr_scheduler_type": "constant",
        "max_steps": steps,
        "logging_steps": 1,
        "beta": 0.0,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
    }
    if rloo:
        config, kind = RLOOConfig(**given | settings), RLOOTrainer
    else:
        config, kind = GRPOConfig(**given | {"loss_type": "dr_grpo"} | settings), GRPOTrainer
    return kind(
        model=policy(words, seed),
        processing_class=words,
        args=config,
        train_dataset=data or rows(),
        eval_dataset=validation,
        reward_funcs=reward,
        callbacks=callbacks,
    )


def series(trained: Any, name: str) -> list[float]:
    """The values of *name* at every training step."""
    return [row[name] for row in trained.state.log_history if name in row]


class Steps(TrainerCallback):
    """Calls *begin* before each step, and keeps each step's completions, rewards and advantages."""

    def __init__(self, begin: Any = lambda step: None) -> None:
        self.begin = begin
        self.kept: list[dict[str, Any]] = []
        self.trainer: Any = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.begin(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        logs = self.trainer._logs
        self.kept.append(
            {
                "prompts": list(logs["prompt"]),
                "completions": [
                    one if isinstance(one, str) else one[-1]["content"] for one in logs["completion"]
                ],
                "rewards": list(logs["rewards"]["judgekit"]),
                "advantages": list(logs["advantages"]),
                "extra": {name: list(values) for name, values in logs["extra"].items()},
            }
        )


def check_advantages(rewards: list[float], advantages: list[float], *, rloo: bool = False) -> None:
    """Compare a group's with those of its valid members alone; TRL computes them in single precision."""
    valid = [reward for reward in rewards if not math.isnan(reward)]
    k = len(valid)
    mean = fmean(valid) if valid else 0.0
    std = math.sqrt(sum((r - mean) ** 2 for r in valid) / (k - 1)) if k > 1 else 0.0
    for reward, advantage in zip(rewards, advantages, strict=True):
        scale = (k / (k - 1) if k > 1 else 0.0) if rloo else 1 / (std + 1e-4)
        wanted = 0.0 if math.isnan(reward) else (reward - mean) * scale
        assert advantage == pytest.approx(wanted, abs=1e-3), (rewards, advantages)
