"""TRL's own GDPO over the terms of a reward."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import TrainerCallback

from judgekit import ConfigError, Fallback, GradingRunner, JudgeUnavailable, Rollout, Score, Weighted, grader
from judgekit_trl import judgekit_terms
from test_reward import EXCLUDES
from toy_training import GROUP, trainer

pytestmark = pytest.mark.skipif(not EXCLUDES, reason="this TRL adds up what is missing as 0")
calls = [0]


@grader
async def brief(rollout: Rollout) -> float:
    """A judge that is down for what has an a in it."""
    calls[0] += 1
    if "a" in rollout.response:
        raise JudgeUnavailable("down")
    return len(set(rollout.response)) / 8


@grader
def letters(rollout: Rollout) -> float | None:
    """No opinion on what has a b in it."""
    return None if "b" in rollout.response else sum(map(ord, rollout.response)) % 11 / 10


def runner(**settings: Any) -> GradingRunner:
    terms = {"brief": 0.7, "letters": (-0.3, Score("letters", if_missing="renormalise"))}
    return GradingRunner({"brief": brief, "letters": letters}, Weighted(terms), **settings)


class Kept(TrainerCallback):
    def __init__(self) -> None:
        self.steps: list[tuple[dict[str, Any], Any]] = []
        self.trainer: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        logs = self.trainer._logs
        rewards = {name: np.array(list(values), float) for name, values in logs["rewards"].items()}
        self.steps.append((rewards, np.array(list(logs["advantages"]))))


def gdpo(terms: dict[str, Any], weights: dict[str, float]) -> Any:
    """TRL's GDPO over what is known, in double precision."""
    total = np.zeros(len(terms["brief"]))
    for name, values in terms.items():
        for start in range(0, len(values), GROUP):
            group = values[start : start + GROUP]
            known = group[~np.isnan(group)]
            std = known.std(ddof=1) if len(known) > 1 else 0.0
            scaled = (group - known.mean()) / (std + 1e-4) if len(known) else group
            total[start : start + GROUP] += np.nan_to_num(weights[name] * scaled)
    known = ~np.all([np.isnan(values) for values in terms.values()], axis=0)
    valid = total[known]
    return np.where(known, (total - valid.mean()) / (valid.std(ddof=1) + 1e-4), 0.0)


def test_trl_normalises_each_term_and_leaves_out_what_is_missing(tmp_path: Path) -> None:
    terms = judgekit_terms(runner())
    weights = {term.__name__: term.weight for term in terms}  # type: ignore[attr-defined]
    assert weights == {"brief": 0.7, "letters": -0.3}
    kept = Kept()
    made = trainer(
        tmp_path,
        terms,
        steps=2,
        callbacks=[kept],
        multi_objective_aggregation="normalize_then_sum",
        reward_weights=list(weights.values()),
    )
    kept.trainer = made
    calls[0] = 0
    made.train()
    assert calls[0] == 2 * 64  # graded once
    missing = partly = 0
    for rewards, advantages in kept.steps:
        rewards, advantages = {name: values[-64:] for name, values in rewards.items()}, advantages[-64:]
        gone = np.isnan(rewards["brief"])
        assert np.isnan(rewards["letters"][gone]).all()  # a completion without a reward has no term
        missing, partly = missing + gone.sum(), partly + (np.isnan(rewards["letters"]) & ~gone).sum()
        assert np.abs(advantages - gdpo(rewards, weights)).max() <= 5e-6
        assert not advantages[gone].any()
    assert missing
    assert partly
    history = made.state.log_history[0]
    assert history["rewards/brief/mean"] == pytest.approx(
        np.nanmean(kept.steps[0][0]["brief"][:64]), abs=1e-6
    )
    assert 0 < history["judgekit/excluded_rate"] < 1


@pytest.mark.parametrize(
    ("settings", "functions", "says"),
    [
        ({"reward_weights": [0.7, -0.3]}, judgekit_terms, "multi_objective_aggregation='normalize_then_sum'"),
        (
            {"multi_objective_aggregation": "normalize_then_sum"},
            judgekit_terms,
            r"by \[1.0, 1.0\], reward.yaml by \[0.7, -0.3\]: write reward_weights=\[0.7, -0.3\]",
        ),
        (
            {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [0.7, -0.3, 1.0]},
            lambda made: [*judgekit_terms(made), lambda prompts, **_: [1.0] * len(prompts)],
            "are all reward functions that there are",
        ),
    ],
)
def test_what_trl_would_make_something_else_of(
    tmp_path: Path, settings: dict[str, Any], functions: Callable[[Any], Any], says: str
) -> None:
    made = trainer(tmp_path, functions(runner()), **settings)
    with pytest.raises(ConfigError, match=says):
        made.train()


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: runner(transform="zscore"), "write transform: none"),
        (lambda: runner(missing_reward=0.0), "write exclude or raise"),
        (
            lambda: GradingRunner({"brief": brief, "letters": letters}, Fallback("brief", "letters")),
            "the top of the reward is a weighted",
        ),
        (
            lambda: GradingRunner(
                {"brief": brief, "letters": letters},
                Weighted({"brief": [[0, 1.0], [9, 0.5]], "letters": 1.0}),
            ),
            "move with the step",
        ),
    ],
)
def test_what_terms_cannot_say(made: Callable[[], GradingRunner], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        judgekit_terms(made())
