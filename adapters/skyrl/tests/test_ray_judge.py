"""The judge as SkyRL's users have it: a named Ray actor that the entrypoint starts, finds and stops.

The embedded judge on the real vLLM, in the environment `vllm`, beside SkyRL's real trainer in this one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from judgekit import read_ledger
from judgekit.judges import RayJudge
from judgekit.trainers import run_blocking
from judgekit_skyrl import main
from toy_training import train

VLLM = Path(sys.prefix).parent / "vllm" / "bin" / "python"
REWARD = """graders: {{judge: {{use: judge, judge: local}}}}
judges: {{local: {{engine: ray, name: judge, layers: {{retry: {{attempts: 1}}}}}}}}
reward: judge
runner: {{missing_reward: neutral}}
ledger: {{path: {ledger}}}
"""
STEPS, KILLED, WAITED = 12, 4, 8


@pytest.fixture
def cluster() -> Iterator[None]:
    if not VLLM.exists():
        pytest.fail("the judge runs in the vllm environment: make env-vllm")
    ray.init("local", num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield
    ray.shutdown()


def test_it_trains_with_a_ray_judge_and_outlives_it(cluster: None, tmp_path: Path) -> None:
    """Killed after some steps, back after others: no reward is made up meanwhile, nor after."""
    ledger = tmp_path / "ledger.jsonl"
    (tmp_path / "reward.yaml").write_text(REWARD.format(ledger=ledger))
    found: dict[str, Any] = {}

    def on_step(step: int) -> None:
        (actor,) = run_blocking(RayJudge("judge").status())
        if step == KILLED:
            found["before"] = actor
            os.kill(actor["pid"], signal.SIGKILL)
        elif step == WAITED:
            deadline = time.monotonic() + 120
            while "error" in actor and time.monotonic() < deadline:
                (actor,) = run_blocking(RayJudge("judge").status())
            run_blocking(RayJudge("judge").start())
            found["after"] = actor

    class Experiment:
        def __init__(self, cfg: Any) -> None: ...

        def run(self) -> None:
            found["rows"] = train(
                tmp_path / "run",
                steps=STEPS,
                seed=0,
                fully_async=False,
                truth=lambda i: "#### 7",
                on_step=on_step,
                config=section.config,
            )

    section = main.JudgeKitConfig(
        config=str(tmp_path / "reward.yaml"), serve="embedded", serve_python=str(VLLM)
    )
    cfg = SimpleNamespace(environment=SimpleNamespace(skyrl_gym=SimpleNamespace(judgekit=section)))
    main.run(cfg, Experiment)

    assert "vllm" not in sys.modules
    assert found["before"]["pid"] != found["after"]["pid"]
    missing = found["rows"].series("environment/judgekit/missing_mean")
    assert missing[:KILLED] == [0.0] * KILLED
    assert max(missing) == 1.0
    assert missing[WAITED:] == [0.0] * (STEPS - WAITED)
    entries = read_ledger(ledger).entries
    assert len(entries) == STEPS * 32
    for entry in entries:
        grade = entry.grades["judge"]
        if entry.status == "scored":
            assert type(grade).__name__ == "Graded"
            assert entry.reward == pytest.approx(grade.score)
        else:
            assert (entry.status, type(grade).__name__) == ("neutral", "Failed")
    left = ray.util.list_named_actors(all_namespaces=True)
    assert not [actor for actor in left if actor["namespace"] == "judgekit"]
