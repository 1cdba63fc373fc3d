"""skyrl_train's entrypoint with judgekit's section: its command line, by Hydra, up to steps of its own trainers."""

from __future__ import annotations

import dataclasses
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from judgekit import ConfigError
from judgekit_skyrl.entrypoints import JudgeKitSection
from judgekit_skyrl.generator import JudgeKitGeneratorMixin
from judgekit_skyrl.trainer import JudgeKitTrainerMixin
from stand_ins import Rows, TinyPolicy, make_tokenizer, tiny_model
from toy_training import prepared
from under_test import TRAIN, part

if not TRAIN:
    pytest.skip("this is for skyrl_train", allow_module_level=True)

from judgekit_skyrl import main_train
from stand_ins_train import in_process

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
        self.monkeypatch.setattr(sys, "argv", ["main_train", *given, *arguments])
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


@pytest.mark.parametrize("fully_async", [False, True], ids=["sync", "fully_async"])
def test_it_trains(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fully_async: bool
) -> None:
    rows = Rows()

    class OnCPU(main_train.JudgeKitExp):  # type: ignore[misc]
        def get_train_dataset(self) -> Any:
            return part("dataset").PromptDataset(
                list(self.cfg.data.train_data), self.tokenizer, 128, num_workers=1
            )

        def _setup_trainer(self) -> Any:
            lock, model = threading.Lock(), tiny_model(self.tokenizer, 0)
            engine = TinyPolicy(model, self.tokenizer, lock)
            made = main_train.make_trainer
            monkeypatch.setattr(
                main_train, "make_trainer", lambda base: in_process(made(base), self.cfg, model, engine, lock)
            )
            trainer = self.get_trainer(
                cfg=self.cfg,
                tracker=rows,
                tokenizer=self.tokenizer,
                train_dataset=self.train_dataset,
                eval_dataset=None,
                inference_engine_client=engine,
                generator=self.get_generator(self.cfg, self.tokenizer, engine),
                colocate_pg=self.colocate_pg,
            )
            assert isinstance(trainer, JudgeKitTrainerMixin)
            return trainer

    make_tokenizer(tmp_path / "tokenizer")
    settings = prepared(tmp_path, steps=3, fully_async=fully_async)
    (tmp_path / "reward.yaml").write_text('graders: {digits: {use: "envs_for_tests:digits"}}')
    section = {f"{KEY}.config": tmp_path / "reward.yaml", f"{KEY}.fully_async": fully_async}
    cfg = started.by(**{f"++{key}": value for key, value in settings.items()}, **section)
    main_train.run(cfg, OnCPU)
    assert len(rows.series("policy/raw_grad_norm")) == 3
    assert rows.series("judgekit/rollouts")[0] >= 32
