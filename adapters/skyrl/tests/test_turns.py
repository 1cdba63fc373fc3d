"""Turns that are paid for themselves: where the rewards lie, what the trainer makes of them, and what is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from skyrl_gym.envs.base_text_env import BaseTextEnv

from advantages import errors, loss_weights, rows_of, settings
from judgekit import ConfigError, GradingRunner, Turns, Weighted, grader
from judgekit.reward.turns import turn_advantages
from judgekit_skyrl import make_generator, make_trainer, register
from stand_ins import ScriptedPolicy, generator, input_of
from toy_training import train


class Talk(BaseTextEnv):  # type: ignore[misc]
    """As many turns as the policy's first word says. Every second turn is paid 0.25 here; some talks end with an observation."""

    def __init__(self, env_config: Any = None, extras: Any = None) -> None:
        super().__init__()
        self.max_turns = 9
        self.left: int | None = None

    def step(self, action: str) -> dict[str, Any]:
        self.turns += 1
        if self.left is None:
            self.left = int(action.split()[0])
        self.left -= 1
        done = self.left <= 0
        said = [{"role": "user", "content": f"more {self.left}"}]
        quiet = done and not action.endswith("!")
        own = 0.25 if self.turns % 2 == 0 else 0.0
        return {"observations": [] if quiet else said, "reward": own, "done": done, "metadata": {}}


def worth(text: str) -> float:
    return (sum(map(ord, text)) % 21 - 10) / 16


@grader(per="turn", score_range=(-1.0, 1.0))
def process(turn: str) -> float | None:
    return None if sum(map(ord, turn)) % 5 == 0 else worth(turn)


@grader
def outcome(response: str) -> float:
    return float(len(response) % 3 == 0)


def said_by_turn(out: Any, rows: Any, tokenizer: Any) -> tuple[list[tuple[int, int]], list[str]]:
    """Where each turn's last token is, row and place, and each turn's text."""
    spots, texts = [], []
    for row in rows:
        for start, end in runs_of(out["loss_masks"][row]):
            said = out["response_ids"][row][start:end]
            texts.append(tokenizer.decode([t for t in said if t != tokenizer.eos_token_id]))
            spots.append((row, end - 1))
    return spots, texts


REWARD = Weighted({"process": (0.5, Turns("process")), "outcome": 1.0})


def talkative(seed: int = 0) -> Any:
    rng = random.Random(seed)

    def script(prompt: str, call: int) -> str:
        words = " ".join(rng.choice(["alpha", "beta", "é", "42", "ok"]) for _ in range(rng.randint(1, 5)))
        start = "" if "more" in prompt else f"{rng.randint(1, 6)} "
        return start + words + ("!" if rng.random() < 0.15 else "")

    return script


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one_message": {"use_conversation_multi_turn": False},
    "step_wise": {"step_wise_trajectories": True},
}


def trajectories(out: Any) -> list[list[int]]:
    """The rows of each rollout."""
    found: list[list[int]] = [[]]
    last = out.get("is_last_step") or [True] * len(out["rewards"])
    for row, ends in enumerate(last):
        found[-1].append(row)
        if ends:
            found.append([])
    return found[:-1]


def runs_of(mask: list[int]) -> list[tuple[int, int]]:
    edges = [i for i, (a, b) in enumerate(zip([0, *mask], [*mask, 0], strict=True)) if a != b]
    return list(zip(edges[::2], edges[1::2], strict=True))


@pytest.mark.parametrize("way", WAYS)
async def test_each_turns_part_lies_on_its_last_token(tokenizer: Any, way: str) -> None:
    """Beside what the environment pays; the outcome lies on the last token that the policy wrote."""
    register(runner=GradingRunner({"process": process, "outcome": outcome}, REWARD), wraps="test_turns:Talk")
    policy = ScriptedPolicy(tokenizer, talkative(), delay_s=lambda call: 0.0)
    made = generator(
        make_generator(), tokenizer, policy, workers=8, max_turns=9, max_input_length=4096, **WAYS[way]
    )
    out = await made.generate(input_of(20, 4), disable_tqdm=True)
    assert out["rollout_metrics"]["environment/judgekit/unplaced_mean"] == 0.0
    turns = ended_with_observation = 0
    for rows in trajectories(out):
        spots, texts = said_by_turn(out, rows, tokenizer)
        want = {row: [0.0] * len(out["rewards"][row]) for row in rows}
        for number, ((row, at), text) in enumerate(zip(spots, texts, strict=True)):
            want[row][at] += 0.5 * (process.function(text) or 0.0) + (0.25 if number % 2 else 0.0)
        want[spots[-1][0]][spots[-1][1]] += float(len(texts[-1]) % 3 == 0)
        for row in rows:
            assert out["rewards"][row] == pytest.approx(want[row], abs=1e-6)
        turns += len(spots)
        ended_with_observation += spots[-1][1] < len(out["rewards"][rows[-1]]) - 1
    assert turns > 200
    assert ended_with_observation > 0 or way != "step_wise"  # SkyRL cuts it off elsewhere


class Silent(Talk):
    """Says nothing between the policy's turns: judgekit reads one turn, where SkyRL's tokens have several."""

    def step(self, action: str) -> dict[str, Any]:
        return {**super().step(action), "observations": []}


def test_a_trainer_that_is_blind_for_turns_is_told_of_once(caplog: Any) -> None:
    made = object.__new__(make_generator())
    for steps, told in ((1, 0), (3, 1), (2, 1)):
        made._tell_blind_trainer(steps)
        assert caplog.text.count("own reads the last step's rewards only") == told


async def test_turns_that_cannot_be_found_are_counted(tokenizer: Any) -> None:
    """Nothing is guessed: the whole reward lies on the last token."""
    register(
        runner=GradingRunner({"process": process, "outcome": outcome}, REWARD), wraps="test_turns:Silent"
    )
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: "2 yes", delay_s=lambda call: 0.0)
    made = generator(make_generator(), tokenizer, policy, max_turns=9, max_input_length=4096)
    out = await made.generate(input_of(1, 2), disable_tqdm=True)
    assert out["rollout_metrics"]["environment/judgekit/unplaced_mean"] == 1.0
    for rewards, mask in zip(out["rewards"], out["loss_masks"], strict=True):
        assert len(runs_of(mask)) == 2
        paid = 0.5 * (process.function("2 yes\n2 yes") or 0.0) + 0.25
        assert rewards == pytest.approx([*[0.0] * (len(rewards) - 1), paid])


@pytest.mark.parametrize("step_wise", [False, True], ids=["whole", "step_wise"])
def test_turns_get_the_advantages_of_turns(step_wise: bool) -> None:
    """Through the trainer's own tensors; what lies behind a turn, up to the next, is its own."""
    rng = random.Random(0)
    rows = rows_of([0, 0], 3, step_wise=step_wise)
    for row in rows:
        row["rewards"] = [rng.uniform(-1, 1) if row["mask"][at] else 0.0 for at in range(len(row["mask"]))]
    cfg = settings(2, "judgekit_turn_grpo", step_wise, **{"trainer.algorithm.gamma": 0.9})
    found = loss_weights(make_trainer(), rows, cfg, fully_async=False)
    spots: dict[Any, list[tuple[int, int, int, float]]] = {}
    for number, row in enumerate(rows):
        runs = runs_of(row["mask"])
        for start, end in runs:
            earned = sum(row["rewards"][start:end])
            spots.setdefault(row["key"][:2], []).append((number, start, end, earned))
    want = turn_advantages([[s[3] for s in one] for one in spots.values()], [key[0] for key in spots], 0.9)
    raw = raw_advantages(rows, cfg)
    for one, values in zip(spots.values(), want, strict=True):
        for (number, start, end, _), value in zip(one, values, strict=True):
            assert raw[number][start:end].tolist() == pytest.approx([value] * (end - start), abs=1e-5)
    for weights, row in zip(found, rows, strict=True):
        assert not weights[torch.tensor(row["mask"]) == 0].any()


def raw_advantages(rows: list[Any], cfg: Any) -> list[Any]:
    """Before the loss's own normalisation."""

    class Raw(make_trainer()):  # type: ignore[misc]
        def _normalize_advantages(self, data: Any, *_: Any) -> Any:
            return data

    return loss_weights(Raw, rows, cfg, fully_async=False)


@pytest.mark.parametrize("step_wise", [False, True], ids=["whole", "step_wise"])
def test_missing_members_change_nothing_for_their_siblings(step_wise: bool) -> None:
    for missing in ([0, 1, 4, 7], [8, 2, 6], [7, 8]):
        error, nonzero = errors("judgekit_turn_grpo", missing, 0, step_wise=step_wise)
        assert (error <= 1e-6, nonzero) == (True, 0)


def test_an_estimator_that_cannot_see_turns_is_refused(tmp_path: Any) -> None:
    runner = GradingRunner({"process": process}, Turns("process"))
    with pytest.raises(ConfigError) as told:
        train(tmp_path, steps=1, seed=0, fully_async=False, runner=runner)
    assert str(told.value) == (
        "trainer.algorithm.advantage_estimator=grpo adds up a trajectory's rewards and cannot see which turn earned what: write "
        "trainer.algorithm.advantage_estimator=judgekit_turn_grpo"
    )
    with pytest.raises(ConfigError, match="transform: zscore changes the rewards of whole trajectories"):
        register(runner=GradingRunner({"process": process}, Turns("process"), transform="zscore"))


def test_training_with_the_estimator_of_turns(tmp_path: Any) -> None:
    runner = GradingRunner({"process": process}, Turns("process"))
    rows = train(tmp_path, steps=2, seed=0, fully_async=False, runner=runner, estimator="judgekit_turn_grpo")
    assert len(rows.series("loss/avg_raw_advantages_abs")) == 2
    assert rows.series("environment/judgekit/unplaced_mean") == [0.0, 0.0]
