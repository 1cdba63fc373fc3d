"""A real GRPO run of verl's own trainer on CPU, with rewards by judgekit.

    python train_on_cpu.py --steps 20 --seeds 0 1 2 [--judge http://127.0.0.1:8000/v1]

The policy is a random two-layer model over bytes, and it is to learn to write the letters a to m. Prints the
mean score of each step and whether the last five are above the first five.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

HERE = Path(__file__).parent


def train(
    folder: Path,
    reward: Path,
    *,
    steps: int,
    seed: int,
    prompts: int = 4,
    group: int = 8,
    overrides: tuple[str, ...] = (),
    on_line: Callable[[str], None] = lambda line: None,
) -> tuple[int, list[float], str]:
    """Train in *folder*; the exit status, the mean score of each step, and what the trainer printed."""
    from tiny_policy import make_policy

    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "train.parquet"
    write_prompts(data)
    settings = {
        **on_cpu(make_policy(folder / "policy", weights=True), prompts=prompts, group=group, steps=steps),
        "data.train_files": data,
        "data.val_files": data,
        "data.seed": seed,
        "data.max_prompt_length": 64,
        "algorithm.adv_estimator": "grpo",
        "+actor_rollout_ref.rollout.agent.agent_loop_manager_class": "judgekit_verl.JudgeKitAgentLoopManager",
        "trainer.v1.sampler.custom_sampler.path": "pkg://judgekit_verl",
        "trainer.v1.sampler.custom_sampler.name": "JudgeKitReplayBuffer",
        "reward.reward_manager.name": "judgekit",
        "+reward.reward_kwargs.judgekit_config": reward,
        "trainer.logger": "[console]",
        "trainer.save_freq": -1,
        "trainer.resume_mode": "disable",
        "trainer.rollout_data_dir": folder / "dump",
    }
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *(f"{k}={v}" for k, v in settings.items())]
    status, text = run([*command, *overrides], folder, on_line)
    return (
        status,
        [float(x) for x in re.findall(r"critic/score/mean:(?:np\.float64\()?([-\d.e]+)", text)],
        text,
    )


def on_cpu(policy: Path, *, prompts: int, group: int, steps: int) -> dict[str, object]:
    """The settings that let verl train this policy on two cores without a GPU, and its sizes."""
    return {
        "data.train_batch_size": prompts,
        "data.max_response_length": 16,
        "data.dataloader_num_workers": 0,
        "actor_rollout_ref.model.path": policy,
        "actor_rollout_ref.model.use_remove_padding": False,
        "actor_rollout_ref.model.enable_gradient_checkpointing": False,
        "+actor_rollout_ref.model.override_config.attn_implementation": "eager",
        "actor_rollout_ref.actor.strategy": "fsdp2",
        "actor_rollout_ref.actor.optim.lr": 3e-3,
        "actor_rollout_ref.actor.ppo_mini_batch_size": prompts,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": prompts * group,
        "actor_rollout_ref.actor.fsdp_config.model_dtype": "fp32",
        "actor_rollout_ref.actor.fsdp_config.use_torch_compile": False,
        "actor_rollout_ref.actor.use_torch_compile": False,
        "actor_rollout_ref.rollout.name": "hfcpu",
        "actor_rollout_ref.rollout.n": group,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": prompts * group,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.rollout.agent.num_workers": 1,
        "reward.num_workers": 1,
        "trainer.n_gpus_per_node": 1,
        "trainer.nnodes": 1,
        "trainer.device": "cpu",
        "trainer.total_training_steps": steps,
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "+ray_kwargs.ray_init.address": "local",  # also beside another cluster
        "+ray_kwargs.ray_init.num_gpus": 1,
        "ray_kwargs.ray_init.num_cpus": 16,
    }


def run(
    command: list[str],
    folder: Path,
    on_line: Callable[[str], None] = lambda line: None,
    **variables: str,
) -> tuple[int, str]:
    """Run a command that trains on the CPU; its exit status and what it printed."""
    weights = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        "VERL_USE_EXTERNAL_MODULES": "cpu_plugin",
        "VERL_PLATFORM": "cpu",
        "HFCPU_WEIGHTS": str(weights),
        "HYDRA_FULL_ERROR": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    lines: list[str] = []
    try:
        with subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                on_line(line)
            status = process.wait()
    finally:
        shutil.rmtree(weights, ignore_errors=True)
    return status, "".join(lines)


def write_prompts(path: Path) -> None:
    import pandas as pd

    rows = [
        {
            "data_source": "letters",
            "prompt": [{"role": "user", "content": f"write {i}"}],
            "ability": "letters",
            "reward_model": {"style": "rule", "ground_truth": str(i)},
            "extra_info": {"index": i, "split": "train"},
        }
        for i in range(64)
    ]
    pd.DataFrame(rows).to_parquet(path)


def reward_file(folder: Path, judge: str | None) -> Path:
    """A reward.yaml: the share of the letters a to m, and with *judge* its opinion, too."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "reward.yaml"
    graders = "graders:\n  letters: {use: 'graders_for_tests:letters'}\n"
    if judge:
        # nobody restarts this judge: what is asked after it has gone must not wait for it for ten minutes
        local = f"{{engine: openai, url: '{judge}', layers: {{restart_wait_s: 1}}}}"
        graders += f"  judge: {{use: judge, judge: local}}\njudges:\n  local: {local}\n"
    weights = "{letters: 0.9, judge: 0.1}" if judge else "{letters: 1}"
    ledger = f"ledger: {{path: {folder / 'ledger.jsonl'}, texts: true}}\n"
    file.write_text(f"{graders}reward: {{weighted: {weights}}}\nrunner: {{timeout_s: 20}}\n{ledger}")
    return file


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--judge", help="base URL of a judge's server")
    given = parser.parse_args()
    rises = {}
    with tempfile.TemporaryDirectory() as name:
        for seed in given.seeds:
            folder = Path(name) / str(seed)
            status, scores, text = train(
                folder, reward_file(folder, given.judge), steps=given.steps, seed=seed
            )
            if status or len(scores) < 10:
                sys.exit(f"the training ended with {status} after {len(scores)} steps:\n{text[-4000:]}")
            first, last = fmean(scores[:5]), fmean(scores[-5:])
            rises[seed] = last - first
            print(
                f"seed {seed}: first five {first:.3f}, last five {last:.3f}; every step {scores}", flush=True
            )
    print(json.dumps({"rises": rises, "all_rise": all(rise > 0 for rise in rises.values())}))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
