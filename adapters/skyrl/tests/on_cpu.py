"""`python -m judgekit_skyrl.main` without GPUs: its arguments, checks, data, environment, judges, generator and
trainer are the real ones; a tiny model in this process stands in for SkyRL's workers and vLLM.

Called by the fake `python` of test_examples. Writes what the trainer logged to $ROWS.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import warnings
from typing import Any

import conftest  # noqa: F401 - the shim for Python 3.11, before skyrl

# isort: split
import torch
from skyrl.train.dataset import PromptDataset
from skyrl.train.entrypoints.main_base import validate_cfg

from judgekit.judges.engines.ray import judge as ray_judge
from judgekit_skyrl import main
from stand_ins import CPUDispatch, Rows, TinyPolicy, tiny_model, trainer_of


class OnCPU(main.JudgeKitExp):
    def __init__(self, cfg: Any) -> None:
        cfg.trainer.placement.colocate_all = False  # there is no GPU to take turns on
        cfg.trainer.enable_ray_gpu_monitor = False
        cfg.generator.inference_engine.enable_ray_prometheus_stats = False
        cfg.data.dataloader.num_workers = 0
        super().__init__(cfg)

    def get_train_dataset(self) -> Any:
        return self._dataset(self.cfg.data.train_data)

    def get_eval_dataset(self) -> Any:
        return self._dataset(self.cfg.data.val_data)

    def _dataset(self, files: Any) -> Any:
        """SkyRL's, which takes eight processes for it: each imports SkyRL again."""
        return PromptDataset(files, self.tokenizer, self.cfg.trainer.max_prompt_length, num_workers=1)

    def run(self) -> None:
        torch.set_num_threads(1)
        lock, rows = threading.Lock(), Rows()
        model = tiny_model(self.tokenizer, 0)
        engine = TinyPolicy(model, self.tokenizer, lock)
        trainer = trainer_of(self, rows, engine)

        def without_workers() -> None:
            trainer.dispatch = CPUDispatch(self.cfg, model, engine, lock)
            trainer.ref_model = model

        trainer.init_weight_sync_state = without_workers
        asyncio.run(trainer.train())
        with open(os.environ["ROWS"], "w") as file:
            json.dump([row for _, row in rows.rows], file, default=float)


if __name__ == "__main__":
    warnings.simplefilter("error", DeprecationWarning)
    cfg = main.parse(sys.argv[1:])
    validate_cfg(cfg)
    warnings.simplefilter("ignore")
    section = cfg.environment.skyrl_gym.judgekit
    if section.serve is not None:
        import ray

        ray.init("local", num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        start = ray_judge.start_ray_judge

        def scripted(model: str, **options: Any) -> Any:
            with open(os.environ["ROWS"] + ".judge", "w") as file:
                json.dump({"model": model, **options}, file)
            given = {**options, "tensor_parallel_size": 1, "options": {"script": "1"}}
            return start("scripted", factory="judgekit.testing:ScriptedJudge", **given)

        ray_judge.start_ray_judge = scripted
    main.run(cfg, OnCPU)
