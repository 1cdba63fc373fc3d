"""verl's policy losses with rows that are left out: what these do to the gradient of the others."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from verl.trainer.ppo import core_algos
from verl.workers.config import FSDPActorConfig
from verl.workers.config.actor import PolicyLossConfig

ROWS, TOKENS, GONE = 16, 12, (1, 5, 6, 11)
AGGREGATIONS = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
LOSSES = tuple(sorted(core_algos.POLICY_LOSS_REGISTRY))


class Rate(NamedTuple):
    rate: float
    """The gradient's length with the rows that are left out, as a share of that without them."""
    live: float
    """The share of rows that are trained on."""
    shape_error: float
    """Of the gradient without that factor, and of what should get none."""


def rate(mode: str, aggregation: str) -> Rate:
    """Compare the gradients of a loss with and without masked rows, as verl's workers call it."""
    gone = torch.zeros(ROWS, dtype=torch.bool)
    gone[list(GONE)] = True
    old, base, advantages, mask = _batch()
    mask, advantages = mask.masked_fill(gone[:, None], 0), advantages.masked_fill(gone[:, None], 0.0)
    gradients = []
    for rows in (torch.ones_like(gone), ~gone):
        new = base.clone().requires_grad_()
        config = _config(mode, aggregation, int(mask[rows].sum()), int(rows.sum()))
        torch.manual_seed(1)
        np.random.seed(1)
        loss, _ = core_algos.get_policy_loss_fn(mode)(
            old_log_prob=old[rows],
            log_prob=new[rows],
            advantages=advantages[rows],
            response_mask=mask[rows],
            loss_agg_mode=aggregation,
            config=config,
        )
        loss.backward()
        assert new.grad is not None
        gradients.append(new.grad.double())
    whole, alone = gradients
    factor = float((whole * alone).sum() / (alone * alone).sum())
    error = float((whole - factor * alone).abs().max() / alone.abs().max())
    return Rate(factor, float((~gone).float().mean()), error)


@lru_cache
def _batch() -> tuple[torch.Tensor, ...]:
    made = torch.Generator().manual_seed(0)
    old = -torch.rand(ROWS, TOKENS, generator=made)
    advantages = torch.randn(ROWS, 1, generator=made).expand(ROWS, TOKENS).clone()
    mask = (torch.arange(TOKENS)[None] < 6 + torch.arange(ROWS)[:, None] % 6).long()
    return old, old + 0.2 * torch.randn(ROWS, TOKENS, generator=made), advantages, mask


def _config(mode: str, aggregation: str, tokens: int, rows: int) -> Any:
    policy_loss = PolicyLossConfig(
        loss_mode=mode, clip_cov_ratio=0.02, kl_cov_ratio=0.02, ppo_kl_coef=0.1, dro_beta=0.1
    )
    config = FSDPActorConfig(
        strategy="fsdp",
        rollout_n=8,
        ppo_micro_batch_size_per_gpu=8,
        loss_agg_mode=aggregation,
        policy_loss=policy_loss,
    )
    config.global_batch_info.update(dp_size=1, batch_num_tokens=tokens, global_batch_size=rows)
    return config
