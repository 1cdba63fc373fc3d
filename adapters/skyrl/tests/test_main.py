"""The entrypoint's configuration, and that every launch script in examples/ is understood by SkyRL."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from judgekit import ConfigError
from judgekit.config import load_runner
from judgekit_skyrl.env import section_of
from judgekit_skyrl.generator import JudgeKitGeneratorMixin
from judgekit_skyrl.main import JudgeKitExp, parse
from judgekit_skyrl.trainer import JudgeKitTrainerMixin
from under_test import VERSION

EXAMPLES = Path(__file__).parents[3] / "examples" / "skyrl"


def arguments_of(script: Path, folder: Path) -> list[str]:
    """What the script hands to `python -m judgekit_skyrl.main`."""
    for name in ("python", "ray"):
        fake = folder / name
        fake.write_text('#!/bin/sh\n[ "$1" = -m ] && { shift 2; printf "%s\\n" "$@"; } || true\n')
        fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "LLM_JUDGE_SERVER_API_KEY": "k"}
    done = subprocess.run(["bash", str(script)], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(VERSION < "0.3", reason="its configuration has fewer keys")
@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("run_*.sh")), ids=lambda path: path.stem)
def test_launch_scripts(script: Path, tmp_path: Path) -> None:
    cfg = parse(arguments_of(script, tmp_path))
    assert cfg.environment.env_class == "judgekit"
    assert cfg.generator.batched is False
    assert cfg.environment.skyrl_gym.max_env_workers == 256
    section = cfg.environment.skyrl_gym.judgekit
    load_runner(section.config)
    assert cfg.trainer.fully_async.enabled == ("async" in script.stem)
    assert (section.serve is not None) == ("llm_judge_local" in script.stem)
    per_step = cfg.trainer.train_batch_size * cfg.generator.n_samples_per_prompt
    assert per_step == (40 if "api" in script.stem else 64)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "one of environment.skyrl_gym.judgekit.config"),
        (["environment.skyrl_gym.judgekit.config=a", "environment.skyrl_gym.judgekit.runner=b"], "one of"),
        (["environment.skyrl_gym.judgekit.config=a", "generator.batched=true"], "generator.batched=false"),
    ],
)
def test_faults_are_said(arguments: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(arguments)


def test_an_unknown_key_is_skyrls_error() -> None:
    with pytest.raises(ValueError, match="judgkit"):
        parse(["environment.skyrl_gym.judgkit.config=a"])


def test_the_override_argument_is_our_own() -> None:
    cfg = parse(
        ["trainer.override_entrypoint=judgekit_skyrl.main", "environment.skyrl_gym.judgekit.config=a.yaml"]
    )
    assert cfg.environment.skyrl_gym.judgekit.config == "a.yaml"


def test_wrapping_is_configured_by_arguments() -> None:
    key = "environment.skyrl_gym.judgekit."
    cfg = parse([f"{key}config=a.yaml", f"{key}wraps=search", f"{key}wraps_kwargs.turns=3"])
    section = cfg.environment.skyrl_gym.judgekit
    assert section.wraps_kwargs == {"turns": 3}
    assert section_of(section.wraps) == section_of("skyrl_gym.envs.search.env:SearchEnv") == "search"
    assert section_of("a.b:C") is None
    assert section_of(None) is None


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_the_experiment_has_the_generator_and_the_trainer_that_are_asked_for(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, ahead: bool, grouped: bool
) -> None:
    from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer
    from skyrl.train.trainer import RayPPOTrainer

    key = "environment.skyrl_gym.judgekit."
    given = [f"{key}config=a.yaml", f"{key}grouped={str(grouped).lower()}", "trainer.policy.model.path=tiny"]
    cfg = parse([*given, f"{key}fully_async={str(ahead).lower()}"])
    experiment = JudgeKitExp.__new__(JudgeKitExp)
    experiment.cfg = cfg
    generator = experiment.get_generator(cfg, tokenizer, None)
    assert isinstance(generator, JudgeKitGeneratorMixin) == grouped
    for kind in (RayPPOTrainer, FullyAsyncRayPPOTrainer):
        monkeypatch.setattr(kind, "__init__", lambda self, **_: None)
    names = "cfg tracker tokenizer train_dataset eval_dataset inference_engine_client generator colocate_pg"
    trainer = experiment.get_trainer(**dict.fromkeys(names.split()))
    assert isinstance(trainer, JudgeKitTrainerMixin)
    assert isinstance(trainer, FullyAsyncRayPPOTrainer if ahead else RayPPOTrainer)
    assert isinstance(trainer, FullyAsyncRayPPOTrainer) == ahead
