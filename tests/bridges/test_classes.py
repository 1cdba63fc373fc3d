"""Classes that NeMo-RL and rLLM make, and the lines of the documentation.

Where a package is not installed, stand-ins have its signatures, from its documentation.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from judgekit import ConfigError, DataError, MissingRewardError
from judgekit.bridges import bridge

from .conftest import missing

Stand = Callable[..., None]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Stand:
    """Put a module in the place of one that is not installed."""

    def put(name: str, **contents: Any) -> None:
        try:
            importlib.import_module(name)
        except ImportError:
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                inner = ".".join(parts[:end])
                if inner not in sys.modules:
                    module = ModuleType(inner)
                    module.__path__ = []
                    monkeypatch.setitem(sys.modules, inner, module)
            vars(sys.modules[name]).update(contents)

    return put


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nemo_rl", "rllm", "tinker", "openreward"):
        monkeypatch.delitem(sys.modules, f"judgekit.bridges.{name}", raising=False)


class _Tensor(list):  # type: ignore[type-arg]
    def tolist(self) -> list[float]:
        return list(self)


def put_nemo_rl(stand_in: Stand) -> None:
    stand_in("ray", remote=lambda **_: lambda cls: cls)
    stand_in(
        "torch",
        tensor=lambda values, dtype=None: _Tensor(values),
        ones=lambda n: _Tensor([1.0] * n),
        float32=None,
    )
    stand_in(
        "nemo_rl.environments.interfaces", EnvironmentInterface=object, EnvironmentReturn=SimpleNamespace
    )


def log(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": text}]


def test_nemo_rl(reward: Path, stand_in: Stand) -> None:
    put_nemo_rl(stand_in)
    from judgekit.bridges.nemo_rl import JudgeKitEnvironment

    env = JudgeKitEnvironment({"reward": str(reward)})
    # the groups come mixed
    said = [("#### 4", 0), ("#### 5", 1), ("broken", 0), ("#### 5", 0), ("broken", 1)]
    rows = [{"ground_truth": "4", "group": group} for _, group in said]
    answer = env.step([log(text) for text, _ in said], rows)
    assert answer.rewards.tolist() == [1.0, 0.25, 0.625, 0.25, 0.25]
    assert answer.terminateds.tolist() == [1.0] * 5
    assert env.global_post_process_and_metrics({}) == ({}, {})


def test_nemo_rl_s_history_is_the_prompt_s(stand_in: Stand) -> None:
    put_nemo_rl(stand_in)
    from judgekit.bridges.nemo_rl import _rollout

    asked = [*log("#### 4"), {"role": "user", "content": "6*7?"}]
    rollout = _rollout([*asked, {"role": "assistant", "content": "#### 42"}], {"ground_truth": "42"})
    assert (list(rollout.prompt), rollout.response) == (asked, "#### 42")


def test_nemo_rl_s_asynchronous_rollouts_come_one_by_one(reward: Path, stand_in: Stand) -> None:
    """A sample of a group that comes alone has no group: what needs one says so at once, before a reward is missing."""
    put_nemo_rl(stand_in)
    from judgekit.bridges.nemo_rl import JudgeKitEnvironment

    row = {"ground_truth": "4", "group": 0}
    with pytest.raises(ConfigError, match="missing_reward: exclude needs the rollout's group"):
        JudgeKitEnvironment({}).step([log("#### 4")], [row])
    reward.write_text("graders: {common: {use: majority}}\nrunner: {missing_reward: 0.0}\n")
    bridge._bridges.clear()
    with pytest.raises(ConfigError, match="'common' grades the rollouts of a prompt together"):
        JudgeKitEnvironment({}).step([log("#### 4")], [row])


def test_nemo_rl_gets_terms_for_its_gdpo(
    reward: Path, stand_in: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    """Which add up to the reward; a missing one is its siblings' mean, for NeMo-RL takes numbers only."""
    put_nemo_rl(stand_in)
    from judgekit.bridges.nemo_rl import JudgeKitEnvironment

    with caplog.at_level("INFO", "judgekit"):
        env = JudgeKitEnvironment({"reward": str(reward), "terms": True})
    assert "grpo.adv_estimator.reward_weights: [0.75, 0.25], for correct, flaky" in caplog.text
    said = [("#### 4", 0), ("#### 5", 1), ("broken", 0), ("#### 5", 0), ("broken", 1)]
    rows = [{"ground_truth": "4", "group": group} for _, group in said]
    found = env.step([log(text) for text, _ in said], rows).rewards
    assert {name: values.tolist() for name, values in found.items()} == {
        "correct": [0.75, 0.0, 0.375, 0.0, 0.0],
        "flaky": [0.25] * 5,
    }
    with pytest.raises(ConfigError, match="needs the rollout's group"):  # alone, with nobody's mean
        env.step([log("broken")], [{"ground_truth": "4", "group": 7}])
    missing(reward, "0.5")
    bridge._bridges.clear()
    with pytest.raises(ConfigError, match="missing_reward: 0.5 says nothing of terms"):
        JudgeKitEnvironment({"reward": str(reward), "terms": True})


MEETING = """
import asyncio
from judgekit import grader

waiting, met = 0, asyncio.Event()

@grader
async def judge(rollout):
    global waiting
    waiting += 1
    if waiting == 6:
        met.set()
    await asyncio.wait_for(met.wait(), 20)
    return 1.0
"""


@pytest.mark.parametrize("grouped", [True, False])
def test_nemo_rl_s_whole_batch_is_graded_at_once(
    grouped: bool, reward: Path, stand_in: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge answers nobody before all rollouts are with it."""
    (reward.parent / f"meeting_{grouped}.py").write_text(MEETING)
    monkeypatch.syspath_prepend(str(reward.parent))
    text = f'graders: {{judge: {{use: "meeting_{grouped}:judge"}}}}\nrunner: {{missing_reward: 0.0}}\n'
    reward.write_text(text)
    put_nemo_rl(stand_in)
    from judgekit.bridges.nemo_rl import JudgeKitEnvironment

    rows = [{"group": i // 2} if grouped else {} for i in range(6)]
    assert JudgeKitEnvironment({}).step([log("a")] * 6, rows).rewards.tolist() == [1.0] * 6


def test_nemo_rl_a_row_alone_in_its_group_has_no_number_to_stand_in(reward: Path, stand_in: Stand) -> None:
    put_nemo_rl(stand_in)
    from judgekit.bridges.nemo_rl import JudgeKitEnvironment

    rows = [{"ground_truth": "4", "group": group} for group in (0, 1)]
    with pytest.raises(MissingRewardError, match="flaky"):
        JudgeKitEnvironment({}).step([log("#### 4"), log("broken")], rows)
    missing(reward, "0.5")
    bridge._bridges.clear()
    assert JudgeKitEnvironment({}).step([log("#### 4"), log("broken")], rows).rewards.tolist() == [1.0, 0.5]


ROW = {
    "data_source": "math",
    "reward_model": {"ground_truth": "4", "style": "rule"},
    "answer": "2 + 2 makes 4.",
    "extra_info": {"level": 5},
}
BY_SOURCE = """
graders:
  correct: {use: final_answer}
reward: {switch: {by: data_source, cases: {math: correct}, otherwise: 0.5}}
runner: {missing_reward: 0.25}
"""


@pytest.mark.parametrize("trainer", ["slime", "nemo_rl", "rllm"])
async def test_a_row_means_the_same_in_every_trainer(trainer: str, reward: Path, stand_in: Stand) -> None:
    """As in verl: its data source chooses the reward, and its reward_model has the reference."""
    reward.write_text(BY_SOURCE)
    put_nemo_rl(stand_in)
    stand_in("rllm.eval.types", EvalOutput=_Output, Signal=lambda name, value: (name, value))
    said = "#### 4"

    async def paid(row: dict[str, Any]) -> float:
        module = importlib.import_module(f"judgekit.bridges.{trainer}")
        if trainer == "slime":
            sample = SimpleNamespace(
                prompt="2+2?", response=said, label=None, metadata=row, group_index=0, index=0
            )
            return float(await module.reward(SimpleNamespace(), sample))
        if trainer == "nemo_rl":
            return float(module.JudgeKitEnvironment({}).step([log(said)], [row]).rewards[0])
        episode = an_episode(steps=[a_step(output=said)])
        task = SimpleNamespace(id="1", instruction="2+2?", metadata=row)
        return float(module.JudgeKitEvaluator().evaluate(task, episode).reward)

    assert await paid(ROW) == 1.0
    assert await paid({**ROW, "reward_model": {"ground_truth": "5"}}) == 0.0
    assert await paid({**ROW, "data_source": "other"}) == 0.5


@dataclass
class _Output:
    reward: float
    is_correct: bool
    signals: list[Any] = field(default_factory=list)


def a_step(**given: Any) -> Any:
    return SimpleNamespace(**{"output": None, "chat_completions": [], "model_response": "", **given})


def an_episode(artifacts: Any = None, **given: Any) -> Any:
    """An episode of two agents, of whom the second is the last."""
    first = SimpleNamespace(name="first", steps=[a_step(output="#### 7")], output=None, reward=None)
    last = SimpleNamespace(**{"name": "last", "steps": [], "output": None, "reward": None, **given})
    return SimpleNamespace(artifacts=artifacts or {}, trajectories=[first, last])


def test_rllm_s_own_order_finds_the_answer(reward: Path, stand_in: Stand) -> None:
    """As its extract_answer_text does: right answers were paid 0."""
    stand_in("rllm.eval.types", EvalOutput=_Output, Signal=lambda name, value: (name, value))
    from judgekit.bridges.rllm import JudgeKitEvaluator, answer_of

    tool_call = a_step(output="", model_response="")
    assert answer_of(an_episode({"answer": "4"}, output="5", steps=[a_step(output="6")])) == "4"
    assert answer_of(an_episode(output="4", steps=[a_step(output="5")])) == "4"
    assert answer_of(an_episode(steps=[a_step(output="5"), a_step(output="4", model_response="6")])) == "4"
    assert (
        answer_of(an_episode(steps=[a_step(model_response="5"), a_step(model_response="4"), tool_call]))
        == "4"
    )
    assert answer_of(an_episode()) == ""
    assert answer_of(SimpleNamespace(artifacts={}, trajectories=[])) == ""
    task = SimpleNamespace(id="1", instruction="2+2?", metadata={"ground_truth": "4"})
    with pytest.raises(DataError, match="the flow sets the reward of its trajectory 'last' itself"):
        JudgeKitEvaluator(str(reward)).evaluate(task, an_episode(output="4", reward=1.0))


def test_rllm(reward: Path, stand_in: Stand) -> None:
    stand_in("rllm.eval.types", EvalOutput=_Output, Signal=lambda name, value: (name, value))
    from judgekit.bridges.rllm import JudgeKitEvaluator

    def episode(text: str) -> Any:
        return an_episode(steps=[a_step(output=text)])

    task = SimpleNamespace(id="1", instruction="2+2?", metadata={"ground_truth": "4"})
    evaluator = JudgeKitEvaluator(str(reward))
    found = evaluator.evaluate(task, episode("#### 4"))
    assert (found.reward, found.is_correct) == (1.0, True)
    assert ("correct", 1.0) in found.signals
    assert not evaluator.evaluate(task, episode("#### 5")).is_correct
    with pytest.raises(MissingRewardError, match="flaky"):
        evaluator.evaluate(task, episode("broken"))


def test_the_lines_of_the_documentation_run(
    reward: Path, stand_in: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[2] / "docs" / "trainers.md"
    stand_in("torch", tensor=_Tensor, ones=_Tensor, float32=None)
    stand_in(
        "nemo_rl.environments.interfaces", EnvironmentInterface=object, EnvironmentReturn=SimpleNamespace
    )
    registry: dict[str, str] = {}
    stand_in("nemo_rl.distributed.ray_actor_environment_registry", ACTOR_ENVIRONMENT_REGISTRY=registry)
    stand_in("nemo_rl.distributed.virtual_cluster", PY_EXECUTABLES=SimpleNamespace(SYSTEM="python"))
    stand_in("nemo_rl.environments.utils", register_env=registry.__setitem__)
    stand_in("rllm.eval.types", EvalOutput=_Output, Signal=tuple)
    stand_in(
        "roll.distributed.scheduler.decorator",
        Dispatch=SimpleNamespace(DP_MP_COMPUTE=1),
        register=lambda **_: lambda method: method,
    )
    stand_in("roll.pipeline.rlvr.rewards.remote_reward_system_worker", RemoteRewardSystemWorker=object)
    stand_in("openrlhf.utils.agent", AgentInstanceBase=object, MultiTurnAgentExecutor=object)
    stand_in("tinker_cookbook.rl.types", EnvGroupBuilder=object)
    names = ("Environment", "GroupScore", "TextBlock", "ToolOutput")
    stand_in("openreward.environments", **{name: type(name, (), {}) for name in names})
    monkeypatch.chdir(reward.parent)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) >= 6
    for block in blocks:
        if "bridges.areal" in block:  # test_areal.py runs it
            continue
        exec(block, {"my_builder": None, "__name__": "pasted"})
    assert registry["judgekit"] == "judgekit.bridges.nemo_rl.JudgeKitActor"
    for function in re.findall(
        r'(?:fn = "|--custom-rm-path |--custom-reward-post-process-path )(judgekit[\w.:]+)', page.read_text()
    ):
        path, _, name = function.replace(":", ".").rpartition(".")
        source = Path(str(importlib.util.find_spec(path).origin)).read_text()  # type: ignore[union-attr]
        assert f"def {name}(" in source
