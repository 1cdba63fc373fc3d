"""verl's own batches, made by hand, and a policy engine that is not there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from verl import DataProto


def objects(values: Sequence[Any]) -> Any:
    array = np.empty(len(values), dtype=object)
    array[:] = list(values)
    return array


def batch(
    tokenizer: Any,
    responses: Sequence[str],
    *,
    uids: Sequence[Any] | None = None,
    truths: Sequence[Any] | None = None,
    prompts: Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    extra: Sequence[dict[str, Any]] | None = None,
    width: int = 48,
) -> DataProto:
    """A padded batch as verl lays it out: prompts padded on the left, responses on the right."""
    count = len(responses)
    prompts = prompts or [f"q{i}" for i in range(count)]
    prompt_ids = torch.full((count, 32), tokenizer.pad_token_id)
    response_ids = torch.full((count, width), tokenizer.pad_token_id)
    mask = torch.zeros((count, 32 + width), dtype=torch.long)
    for i, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        p = tokenizer.encode(prompt)
        r = [*tokenizer.encode(response), tokenizer.eos_token_id] if response else []
        prompt_ids[i, 32 - len(p) :] = torch.tensor(p)
        response_ids[i, : len(r)] = torch.tensor(r, dtype=torch.long)
        mask[i, 32 - len(p) : 32 + len(r)] = 1
    columns = {
        "data_source": objects(sources or ["openai/gsm8k"] * count),
        "reward_model": objects(
            [{"style": "rule", "ground_truth": t} for t in (truths or [str(i) for i in range(count)])]
        ),
        "extra_info": objects(extra or [{"index": i} for i in range(count)]),
        "raw_prompt": objects([[{"role": "user", "content": p}] for p in prompts]),
    }
    if uids is not None:
        columns["uid"] = objects(uids)
    tensors = TensorDict(
        {
            "prompts": prompt_ids,
            "responses": response_ids,
            "attention_mask": mask,
            "input_ids": torch.cat([prompt_ids, response_ids], 1),
            "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
        },
        batch_size=count,
    )
    return DataProto(batch=tensors, non_tensor_batch=columns)


class FakePolicy:
    """In the place of verl's LLMServerClient: answers with *script(prompt text)*, in random order of time."""

    def __init__(self, tokenizer: Any, script: Any, *, delay_s: float = 0.05) -> None:
        self.tokenizer = tokenizer
        self.script = script
        self.delay_s = delay_s
        self.calls = 0

    async def generate(
        self, request_id: Any, *, prompt_ids: Sequence[int], sampling_params: Any, **_: Any
    ) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        self.calls += 1
        text = self.script(self.tokenizer.decode(prompt_ids), self.calls)
        await asyncio.sleep(random.uniform(0, self.delay_s))
        if text is None:
            raise RuntimeError("the policy engine failed (on purpose)")
        ids = [*self.tokenizer.encode(text), self.tokenizer.eos_token_id]
        return TokenOutput(
            token_ids=ids,
            log_probs=[-1.0] * len(ids),
            stop_reason="completed",
            num_preempted=0,
            extra_fields={"global_steps": 1, "min_global_steps": 1, "max_global_steps": 1},
        )


class LocalWorker:
    """A reward worker in this process, for a manager's calls of it."""

    def __init__(self, manager: Any) -> None:
        manager._step_counts = lambda: Nowhere()
        self._manager = manager

    @property
    def compute_score(self) -> Any:
        return self

    def remote(self, data: Any) -> Any:
        return self._manager.run_single(data)


class Nowhere:
    """In the place of the cluster's actor."""

    @property
    def add(self) -> Any:
        return self

    async def remote(self, *_: Any) -> None: ...


def grade_groups(config: Any, tokenizer: Any, data: DataProto) -> DataProto:
    """Grade a batch by group as V0's hook does, and write the rewards and masks into it."""
    from verl.trainer.ppo.reward import load_reward_manager

    from judgekit_verl.group import _BatchManager

    manager = object.__new__(_BatchManager)
    manager.config = config
    manager.reward_loop_worker_handles = [LocalWorker(load_reward_manager(config, tokenizer))]
    width = data.batch["prompts"].shape[1]
    data.batch["response_mask"] = data.batch["attention_mask"][:, width:].clone()
    asyncio.run(manager._grade_groups(data, data))
    return data
