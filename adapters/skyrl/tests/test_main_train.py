"""skyrl_train's entrypoint with judgekit's section: its command line, by Hydra, up to steps of its own trainers."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from judgekit import ConfigError
from judgekit.config import load_runner
from judgekit_skyrl.entrypoints import JudgeKitSection
from judgekit_skyrl.generator import JudgeKitGeneratorMixin
from judgekit_skyrl.trainer import JudgeKitTrainerMixin
from stand_ins import Rows, TinyPolicy, make_tokenizer, tiny_model, trainer_of
from under_test import TRAIN, part

if not TRAIN:
    pytest.skip("this is for skyrl_train", allow_module_level=True)

from judgekit_skyrl import main_train
from stand_ins_train import in_process

EXAMPLES = Path(__file__).parents[3] / "examples" / "skyrl"
KEY = "environment.skyrl_gym.judgekit"
ESTIMATOR = "trainer.algorithm.advantage_estimator=judgekit_turn_grpo"


class Started:
    """What the command line hands to Ray's entrypoint task."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.cfgs: list[Any] = []
        self.monkeypatch = monkeypatch
        monkeypatch.chdir(folder)  # Hydra writes outputs/ here
        monkeypatch.setattr(main_train, "initialize_ray", lambda cfg: None)
        monkeypatch.setattr(main_train, "ray", SimpleNamespace(get=lambda done: done))
        monkeypatch.setattr(main_train, "_entrypoint", SimpleNamespace(remote=self.cfgs.append))
        self.small = {
            f"trainer.placement.{of}_num_gpus_per_node": 1 for of in ("policy", "ref", "critic")
        } | {
            "generator.inference_engine_tensor_parallel_size": 1,
            "generator.num_inference_engines": 1,
            "trainer.logger": "console",
        }

    def by(self, *arguments: str, **settings: Any) -> Any:
        given = [f"{key}={value}" for key, value in (self.small | settings).items()]
        self.monkeypatch.setattr(sys, "argv", ["main_train", *arguments, *given])
        main_train.main()
        return self.cfgs.pop()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Started:
    return Started(monkeypatch, tmp_path)


def test_its_command_line(started: Started) -> None:
    """The section with and without a plus; what is said nowhere is as in the other entrypoint."""
    for plus in ("", "+"):
        cfg = started.by(f"{plus}{KEY}.config=a.yaml", "trainer.epochs=3", ESTIMATOR)
        assert cfg.environment.env_class == "judgekit"
        assert cfg.environment.skyrl_gym.max_env_workers == 256
        assert cfg.trainer.epochs == 3
        assert dict(cfg.environment.skyrl_gym.judgekit) == dataclasses.asdict(
            JudgeKitSection(config="a.yaml")
        )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "judgekit_skyrl: say how to grade with one of environment.skyrl_gym.judgekit.config"),
        ([f"{KEY}.config=a", f"{KEY}.runner=b"], "say how to grade with one of"),
        ([f"{KEY}.config=a", "generator.batched=true"], "set generator.batched=false"),
        (
            [f"{KEY}.config=a", f"{KEY}.fully_async=true", "generator.step_wise_trajectories=true"],
            "generator.step_wise_trajectories=true fails in skyrl-train's own fully asynchronous trainer",
        ),
    ],
)
def test_faults_are_said(started: Started, arguments: list[str], says: str) -> None:
    with pytest.raises(SystemExit) as told:
        started.by(*arguments)
    assert says in str(told.value)
    assert started.cfgs == []


@pytest.mark.parametrize(
    ("argument", "says"), [("confg=a", "'confg' not in 'JudgeKitSection'"), ("grouped=maybe", "grouped")]
)
def test_hydra_s_own_faults(started: Started, capfd: Any, argument: str, says: str) -> None:
    with pytest.raises(SystemExit):
        started.by(f"{KEY}.{argument}")
    assert says in capfd.readouterr().err


def test_a_version_that_breaks_by_itself(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_train, "version", lambda name: "0.3.0")
    with pytest.raises(SystemExit, match=r"skyrl-train 0.3.0 is here, .* skyrl-train==0.3.1"):
        started.by(f"{KEY}.config=a")


def test_the_other_entrypoint_names_this_one() -> None:
    with pytest.raises(ConfigError, match="skyrl is not installed here: .*main_train for skyrl-train"):
        import judgekit_skyrl.main  # noqa: F401


def test_wrapping_is_configured_by_arguments(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = started.by(f"{KEY}.config=a", f"{KEY}.wraps=search", f"{KEY}.wraps_kwargs.turns={{n: 3}}")
    asked: list[Any] = []
    monkeypatch.setattr("judgekit_skyrl.entrypoints.register", lambda *_, **given: asked.append(given))
    main_train.run(cfg, lambda cfg: SimpleNamespace(run=lambda: None))  # type: ignore[arg-type]
    assert asked[0]["wraps_kwargs"] == {"turns": {"n": 3}}
    assert type(asked[0]["wraps_kwargs"]["turns"]) is dict
    assert asked[0]["wraps_config"] == cfg.environment.skyrl_gym.search


def test_one_by_one_with_its_own_generator(started: Started, tokenizer: Any) -> None:
    experiment = main_train.JudgeKitExp.__new__(main_train.JudgeKitExp)
    for grouped in (False, True):
        cfg = started.by(f"{KEY}.config=a", f"{KEY}.grouped={grouped}")
        found = experiment.get_generator(cfg, tokenizer, None)
        assert isinstance(found, JudgeKitGeneratorMixin) == grouped


def on_cpu(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> type:
    """The experiment without workers and vLLM: a tiny model in this process."""

    class OnCPU(main_train.JudgeKitExp):  # type: ignore[misc]
        def get_colocate_pg(self) -> None: ...
        def get_train_dataset(self) -> Any:
            return self._dataset(self.cfg.data.train_data)

        def get_eval_dataset(self) -> Any:
            return self._dataset(self.cfg.data.val_data)

        def _dataset(self, files: Any) -> Any:
            return part("dataset").PromptDataset(list(files), self.tokenizer, 512, num_workers=1)

        def _setup_trainer(self) -> Any:
            lock, model = threading.Lock(), tiny_model(self.tokenizer, 0)
            engine = TinyPolicy(model, self.tokenizer, lock)
            made = main_train.make_trainer
            monkeypatch.setattr(
                main_train, "make_trainer", lambda base: in_process(made(base), self.cfg, model, engine, lock)
            )
            trainer = trainer_of(self, rows, engine)
            assert isinstance(trainer, JudgeKitTrainerMixin)
            return trainer

    return OnCPU


@pytest.mark.parametrize("kind", ["rules", "rules-async"])
def test_the_launch_script_trains(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """bash, the data, the reward, the trainer: with nothing changed but sizes and GPUs."""
    prompts = [{"question": f"How many is {i}?", "answer": f"It is {i}.\n#### {i}"} for i in range(32)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    files = ["--train", tmp_path / "rows.jsonl", "--validation", tmp_path / "rows.jsonl"]
    subprocess.run(
        [sys.executable, EXAMPLES / "make_data.py", "--out", tmp_path / "data", *files], check=True
    )
    make_tokenizer(tmp_path / "model")
    paths = {f"trainer.{key}": tmp_path for key in ("export_path", "ckpt_path")}
    small = {"trainer.placement.colocate_all": False, "generator.enable_http_endpoint": True}
    monkeypatch.setattr(started, "small", paths | small)
    monkeypatch.setenv("MODEL", str(tmp_path / "model"))
    monkeypatch.setenv("DATA", str(tmp_path / "data"))
    cfg = started.by(*arguments_of(kind, tmp_path))
    rows = Rows()
    main_train.run(cfg, on_cpu(rows, monkeypatch))
    assert len(rows.series("policy/raw_grad_norm")) == 2
    assert set(rows.series("judgekit/correct/mean")) == {0.0}  # no policy of bytes writes a right answer


def arguments_of(kind: str, folder: Path) -> list[str]:
    """What the script hands to `python -m judgekit_skyrl.main_train`, with its reward.yaml in a folder of ours."""
    examples = shutil.copytree(EXAMPLES, folder / "examples")  # ledgers lie beside reward.yaml
    fake = folder / "python"
    fake.write_text(
        '#!/bin/sh\n[ "$1 $2" = "-m judgekit_skyrl.main_train" ] || exit 9\nshift 2\nprintf "%s\\n" "$@"\n'
    )
    fake.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "JUDGE_PYTHON": "/judge/bin/python",
    }
    script = ["bash", str(examples / "skyrl_train.sh"), kind]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", ["judge", "judge-async"])
def test_the_launch_script_serves_a_judge(started: Started, tmp_path: Path, kind: str) -> None:
    cfg = started.by(*arguments_of(kind, tmp_path))
    section = cfg.environment.skyrl_gym.judgekit
    load_runner(section.config)
    assert section.fully_async == ("async" in kind)
    assert (section.serve, section.serve_python) == ("Qwen/Qwen2.5-1.5B-Instruct", "/judge/bin/python")
