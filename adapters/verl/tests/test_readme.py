"""The README's lines for verl's versions: those for the installed one configure it, and each block is whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from other_verl import inside

README = Path(__file__).parents[1] / "README.md"


def launch_lines(section: str) -> list[str]:
    """The overrides of the first `text` block under a heading that begins with *section*."""
    found = re.search(rf"^## {section}.*?```text\n(.*?)```", README.read_text(), re.S | re.M)
    assert found, section
    return found[1].split()


def table_lines(version: str) -> list[str]:
    """The overrides that the table of versions has for *version*."""
    for line in README.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 4 and version in re.split(r"[ ,()]+", cells[1]):
            return " ".join(re.findall(r"`([^`]+)`", cells[2])).split()
    raise AssertionError(version)


@pytest.mark.parametrize("version", ["0.9.1", "0.8.0"])
async def test_the_table_configures_the_manager_and_the_hook(
    version: str, trainer_config: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    """The line for 0.8.0 is meant for 0.9.1 as well."""
    from verl.trainer.ppo.reward import load_reward_manager

    file = tmp_path / "reward.yaml"
    file.write_text("graders: {correct: {use: final_answer}}\nreward: correct\n")
    lines = [*table_lines(version), *launch_lines("Configuration by verl version")]
    lines = [line.replace("/abs/reward.yaml", str(file)) for line in lines]
    config = trainer_config(*lines)
    manager = load_reward_manager(config, tokenizer)
    assert type(manager).__name__ == "JudgeKitRewardManager"
    assert manager.hook


@pytest.mark.parametrize("version", ["0.7.1", "0.8.0"])
def test_the_table_s_line_inside_earlier_verl(version: str, policy: Path, tmp_path: Path) -> None:
    """Its own configuration, loader and reward loop's way of asking."""
    file = tmp_path / "reward.yaml"
    file.write_text(
        "graders: {correct: {use: final_answer}}\nreward: correct\nrunner: {missing_reward: 0.25}\n"
    )
    lines = [*table_lines("0.8.0"), *launch_lines("Configuration by verl version")]
    lines = [line.replace("/abs/reward.yaml", str(file)) for line in lines]
    found = inside(version, "earlier_verl.py", policy, *lines)
    assert found[0].startswith(version)
    assert found[1:] == ["JudgeKitRewardManager", [1, 0], "JudgeKitAgentLoopManager"]


async def test_the_projects_readme(
    trainer_config: Callable[..., Any], tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reward.yaml's place is the folder that the command is started in."""
    from verl.trainer.ppo.reward import load_reward_manager

    (tmp_path / "reward.yaml").write_text("graders: {correct: {use: final_answer}}\nreward: correct\n")
    text = (README.parents[2] / "README.md").read_text()
    (block,) = re.findall(r"python3 -m verl.trainer.main_ppo \\\n(.*?)\"\$@\"", text, re.S)
    lines = [line.replace("$PWD", str(tmp_path)).replace('"', "") for line in block.split() if line != "\\"]
    manager = load_reward_manager(trainer_config(*lines), tokenizer)
    assert type(manager).__name__ == "JudgeKitRewardManager"
    assert manager.hook


async def test_a_reward_function_object(trainer_config: Callable[..., Any], tokenizer: Any) -> None:
    from verl.trainer.ppo.reward import load_reward_manager

    ours = {"my_package.rewards": "graders_for_tests", "my_function": "ranks_by_length"}
    lines = launch_lines("Reward functions and managers")
    for theirs, mine in ours.items():
        lines = [line.replace(theirs, mine) for line in lines]
    manager = load_reward_manager(trainer_config(*lines), tokenizer)
    assert type(manager._given).__name__ == "RanksByLength"


async def test_a_runner_in_python(trainer_config: Callable[..., Any], tokenizer: Any) -> None:
    from verl.trainer.ppo.reward import load_reward_manager

    lines = [
        line.replace("my_package.rewards:runner", "graders_for_tests:pointwise")
        for line in launch_lines("A runner in Python")
    ]
    manager = load_reward_manager(trainer_config(*lines, "reward.reward_manager.name=judgekit"), tokenizer)
    assert list(manager.runner.graders) == ["correct", "letters"]


@pytest.mark.parametrize(
    ("enabled", "says"), [(False, ""), (True, "remove trainer.v1.sampler.custom_sampler")]
)
def test_the_lines_for_curves(enabled: bool, says: str, trainer_config: Callable[..., Any]) -> None:
    """Through verl's own way of making its sampler."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from judgekit import ConfigError

    lines = [
        line.strip()
        for line in README.read_text().splitlines()
        if line.strip().startswith("trainer.v1.sampler.custom_sampler.")
    ]
    assert len(lines) == 2

    class Trainer(PPOTrainer):  # type: ignore[misc]
        on_sample_end = on_step_end = lambda self: None

    trainer = object.__new__(Trainer)
    trainer.config = trainer_config(
        *lines, f"algorithm.filter_groups.enable={enabled}", "algorithm.filter_groups.metric=acc"
    )
    trainer.trainer_mode = "sync"
    if says:
        with pytest.raises(ConfigError, match=says):
            trainer._build_replay_buffer()
    else:
        assert type(trainer._build_replay_buffer()).__mro__[2].__name__ == "ReplayBuffer"
