"""Real SkyRL training runs on CPU: its trainers, its generator, its GRPO; a tiny policy over bytes.

The policy is to learn to write digits. `train` runs one of the trainers with a reward.yaml or a runner.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from judgekit_skyrl import make_generator, make_trainer, register
from stand_ins import Rows, TinyPolicy, in_process, make_tokenizer, tiny_model
from under_test import MODEL, TRAIN, configuration, part, ppo_utils

if TRAIN:
    from stand_ins_train import in_process

OF_SKYRL_TRAIN = {
    "trainer.epochs": 1,
    "trainer.algorithm.policy_loss_type": "regular",
    "trainer.hf_save_interval": -1,
    "trainer.max_prompt_length": 128,
    "trainer.micro_train_batch_size_per_gpu": 8,
    "trainer.micro_forward_batch_size_per_gpu": 8,
    **{f"trainer.placement.{of}_num_gpus_per_node": 1 for of in ("policy", "ref", "critic")},
    "generator.inference_engine_tensor_parallel_size": 1,
    "generator.enable_http_endpoint": "true",  # else its dataloader takes eight processes
    "generator.sampling_params.logprobs": 0,
}


def train(
    folder: Path,
    *,
    steps: int,
    seed: int,
    fully_async: bool,
    prompts: int = 8,
    per_prompt: int = 4,
    truth: Callable[[int], str] = str,
    on_step: Callable[[int], None] = lambda step: None,
    evaluate_every: int = -1,
    estimator: str = "grpo",
    turns: int = 1,
    tokens: int = 8,
    lr: float = 3e-3,
    **reward: Any,
) -> Rows:
    """Train and return what the trainer logged. *turns*: of a conversation at most, each of up to *tokens*. *reward*: `config` or `runner`, as `register` takes them."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "train.jsonl"
    with data.open("w") as file:
        for i in range(prompts * steps if TRAIN else 64):  # skyrl_train counts no steps
            row = {
                "data_source": "toy",
                "prompt": [{"role": "user", "content": f"q{i}"}],
                "env_class": "judgekit",
                "reward_spec": {"method": "judgekit", "ground_truth": truth(i)},
                "extra_info": {"index": i},
            }
            file.write(json.dumps(row) + "\n")
    settings = {
        "data.train_data": f"['{data}']",
        "data.dataloader.num_workers": 0,
        "trainer.policy.model.path": "tiny",
        "trainer.seed": seed,
        "trainer.train_batch_size": prompts,
        "trainer.policy_mini_batch_size": prompts,
        "trainer.epochs": 1000,
        "trainer.max_training_steps": steps,
        "trainer.eval_interval": evaluate_every,
        "trainer.eval_before_train": "false",
        "trainer.eval_batch_size": 16,
        "trainer.ckpt_interval": -1,
        "trainer.resume_mode": "none",
        "trainer.logger": "console",
        "trainer.algorithm.advantage_estimator": estimator,
        "trainer.algorithm.use_kl_loss": "false",
        "trainer.placement.colocate_all": "false",
        "trainer.enable_ray_gpu_monitor": "false",
        "trainer.export_path": folder,
        "trainer.ckpt_path": folder,
        "trainer.print_example_interval": 0,
        "generator.n_samples_per_prompt": per_prompt,
        "generator.max_turns": turns,
        "generator.batched": "false",
        "generator.inference_engine.enable_ray_prometheus_stats": "false",
        "generator.sampling_params.max_generate_length": tokens,
        "environment.env_class": "judgekit",
        "environment.skyrl_gym.max_env_workers": 8,
    }
    if fully_async:
        settings |= {
            "trainer.fully_async.enabled": "true",
            "trainer.fully_async.max_staleness_steps": 1,
            "trainer.fully_async.num_parallel_generation_workers": 2 * prompts,
            "trainer.algorithm.policy_loss_type": "rollout_is",
        }
    if TRAIN:
        settings |= OF_SKYRL_TRAIN
    cfg = configuration(**settings)
    base = (
        part("fully_async_trainer").FullyAsyncRayPPOTrainer if fully_async else part("trainer").RayPPOTrainer
    )
    trainer = make_trainer(base)
    ppo_utils().repopulate_all_registries()
    if TRAIN:
        part("utils").validate_cfg(cfg)
    register(**reward)
    tokenizer = make_tokenizer(folder / "tokenizer")
    lock = threading.Lock()
    model = tiny_model(tokenizer, seed)
    engine = TinyPolicy(model, tokenizer, lock, new_tokens=tokens)
    rows = Rows()
    log = rows.log

    def logged(data: dict[str, Any], step: int, commit: bool = False) -> None:
        log(data, step, commit)
        on_step(step)

    rows.log = logged  # type: ignore[method-assign]
    dataset = part("dataset").PromptDataset(cfg.data.train_data, tokenizer, 128, num_workers=1)
    made = in_process(trainer, cfg, model, engine, lock, lr)(
        cfg=cfg,
        tracker=rows,
        tokenizer=tokenizer,
        train_dataset=dataset,
        eval_dataset=None if fully_async else dataset,
        inference_engine_client=engine,
        generator=make_generator()(cfg.generator, cfg.environment.skyrl_gym, engine, tokenizer, *MODEL),
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        done = made.train()
        if not TRAIN or fully_async:
            asyncio.run(done)
    finally:
        torch.set_num_threads(threads)
    return rows
