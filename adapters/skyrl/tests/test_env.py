"""Grading in the environment's own step, one rollout at a time, in the real SkyRLGymGenerator."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import skyrl_gym

from envs_for_tests import flaky, longest, right
from judgekit import ConfigError, GradingRunner, MissingRewardError, grader
from judgekit.graders import FinalAnswer
from judgekit_skyrl import make_generator, register
from stand_ins import ScriptedPolicy, generator, input_of, totals
from under_test import VERSION, configuration, part

SkyRLGymGenerator = part("generators.skyrl_gym_generator").SkyRLGymGenerator
validate_generator_output = part("utils.trainer_utils").validate_generator_output


async def test_it_grades_in_step(tokenizer: Any) -> None:
    register(runner=right(), grouped=False)
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: "#### 1")
    given = input_of(4, 3)
    before = copy.deepcopy(given["env_extras"])
    out = await generator(SkyRLGymGenerator, tokenizer, policy).generate(given, disable_tqdm=True)
    validate_generator_output(12, out)
    assert totals(out) == [float(i // 3 == 1) for i in range(12)]
    for rewards in out["rewards"]:
        assert not any(rewards[:-1])
    assert out["rollout_metrics"]["environment/judgekit/correct_mean"] == pytest.approx(0.25)
    assert out["rollout_metrics"]["environment/judgekit/missing_mean"] == 0
    for extras, was in zip(given["env_extras"], before, strict=True):
        assert extras == {**was, "max_turns": 1}  # max_turns is SkyRL's
    json.dumps(given["env_extras"])  # SkyRL's evaluation writes them


async def test_a_missing_reward_is_the_number_that_was_written(tokenizer: Any) -> None:
    register(runner=GradingRunner({"flaky": flaky}, missing_reward=-0.5), grouped=False)
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: "down" if "q2" in prompt else "good")
    out = await generator(SkyRLGymGenerator, tokenizer, policy).generate(input_of(4, 1), disable_tqdm=True)
    assert totals(out) == [1, 1, -0.5, 1]
    assert out["rollout_metrics"]["environment/judgekit/missing_mean"] == 0.25
    assert out["rollout_metrics"]["environment/judgekit/flaky_mean"] == 1.0  # of those that have a score


async def test_raise_raises(tokenizer: Any) -> None:
    register(runner=GradingRunner({"flaky": flaky}, missing_reward="raise"), grouped=False)
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: "down")
    with pytest.raises(MissingRewardError):
        await generator(SkyRLGymGenerator, tokenizer, policy).generate(input_of(1, 1), disable_tqdm=True)


async def test_registering_again_replaces(tokenizer: Any) -> None:
    for number in (1.0, 2.0):
        register(runner=GradingRunner({"flaky": flaky}, missing_reward=number), grouped=False)
        policy = ScriptedPolicy(tokenizer, lambda prompt, call: "down")
        out = await generator(SkyRLGymGenerator, tokenizer, policy).generate(
            input_of(1, 1), disable_tqdm=True
        )
        assert totals(out) == [number]


@pytest.mark.parametrize("workers", [0, 4])
async def test_around_another_environment(tokenizer: Any, workers: int) -> None:
    """Per-turn rewards are kept, the grade of the whole comes on top, its metrics stay."""
    seen: list[Any] = []

    def judge(rollout: Any) -> float:
        seen.append(rollout)
        return 1.0

    register(
        runner=GradingRunner({"judge": grader(judge)}, missing_reward=0.0),
        grouped=False,
        wraps="envs_for_tests:Guessing",
        wraps_kwargs={"turns": 3},
    )
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: f"guess {prompt.count('not')}")
    made = generator(SkyRLGymGenerator, tokenizer, policy, workers=workers, max_turns=3)
    out = await made.generate(input_of(2, 2), disable_tqdm=True)
    assert totals(out) == pytest.approx([1.3] * 4)
    assert [sum(1 for x in r if x) for r in out["rewards"]] == [3] * 4
    assert out["rollout_metrics"]["environment/guesses_mean"] == 3
    assert [m["role"] for m in seen[0].messages] == ["user", "assistant"] * 3
    assert seen[0].response == "guess 2"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "one of a reward.yaml and a GradingRunner"),
        ({"config": "/none.yaml"}, "cannot read /none.yaml"),
        ({"runner": "envs_for_tests:nobody"}, "cannot import"),
        ({"runner": GradingRunner({"longest": longest}, missing_reward=0.0)}, "together.*make_generator"),
        ({"runner": GradingRunner({"flaky": flaky})}, "missing_reward: <number> or missing_reward: raise"),
        ({"runner": GradingRunner({"flaky": flaky}, missing_reward="neutral")}, "needs the rollout's group"),
        (
            {"runner": GradingRunner({"flaky": flaky}, missing_reward=0.0, max_failure_rate=0.1)},
            "max_failure_rate",
        ),
        ({"runner": right(), "wraps": "nowhere:Env"}, "cannot import 'nowhere:Env'"),
        ({"runner": right(), "wraps": "envs_for_tests:right"}, "not a BaseTextEnv"),
    ],
)
def test_faults_are_said_at_registration(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        register(grouped=False, **arguments)


def test_a_reward_file(tmp_path: Path) -> None:
    file = tmp_path / "reward.yaml"
    file.write_text("graders: {correct: final_answer}")
    register(config=file)
    with pytest.raises(ConfigError, match="missing_reward"):
        register(config=file, grouped=False)


def test_grouped_without_its_generator_is_an_error() -> None:
    register(runner=GradingRunner({"flaky": flaky}))
    with pytest.raises(ConfigError, match="make_generator"):
        skyrl_gym.make("judgekit", env_config={}, extras={})


async def test_a_conversation_that_is_cut_short(tokenizer: Any) -> None:
    """Too long for another turn: there is no last step in which it could be graded, or paid a written number."""
    arguments: dict[str, Any] = {"grouped": False, "wraps": "envs_for_tests:Guessing"}
    policy = ScriptedPolicy(tokenizer, lambda prompt, call: "#### 0" * 8)
    made = generator(SkyRLGymGenerator, tokenizer, policy, max_turns=3, max_input_length=48)
    register(runner=GradingRunner({"correct": FinalAnswer()}, missing_reward=0.0), **arguments)
    out = await made.generate(input_of(1, 2), disable_tqdm=True)
    assert out["rollout_metrics"]["environment/guesses_mean"] < 3
    assert out["rollout_metrics"]["environment/judgekit/missing_mean"] == 1.0
    assert totals(out) == pytest.approx([0.1, 0.1])  # the turn's own reward, and 0
    register(runner=GradingRunner({"correct": FinalAnswer()}, missing_reward="raise"), **arguments)
    with pytest.raises(MissingRewardError, match="cut a conversation short"):
        await made.generate(input_of(1, 2), disable_tqdm=True)
    with pytest.raises(ConfigError, match=r"missing_reward: -1.0 cannot be paid .*make_generator"):
        register(runner=right(), **arguments)


@pytest.mark.parametrize("grouped", [False, True])
async def test_around_skyrls_multi_turn_gsm8k(tokenizer: Any, grouped: bool) -> None:
    """By its id; it keeps its rewards and the way in which it aggregates its metrics."""
    register(
        runner=GradingRunner({"flaky": flaky}, missing_reward=0.0), grouped=grouped, wraps="gsm8k_multi_turn"
    )
    policy = ScriptedPolicy(
        tokenizer, lambda prompt, call: "good #### 0" if "tentative" in prompt else "good"
    )
    made = generator(make_generator() if grouped else SkyRLGymGenerator, tokenizer, policy, max_turns=4)
    out = await made.generate(input_of(1, 2), disable_tqdm=True)
    assert totals(out) == [2.0, 2.0]  # right in the second turn, and judged 1
    if VERSION >= "0.2":
        assert out["rollout_metrics"]["environment/avg_steps"] == 2
        assert out["rollout_metrics"]["environment/judgekit/flaky_mean"] == 1.0


async def test_around_skyrls_search(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own section of SkyRL's configuration; what it finds is a tool's text."""
    from skyrl_gym.tools import search

    asked: list[Any] = []

    def call(retrieval_service_url: str, query: str, **_: Any) -> Any:
        asked.append(retrieval_service_url)
        return {"result": [[{"document": {"contents": "tower\n7 floors"}}]]}, None

    monkeypatch.setattr(search, "call_search_api", call)
    section = configuration().environment.skyrl_gym.search
    section.search_url = "http://retriever:8000"
    seen: list[Any] = []

    @grader
    def keep(rollout: Any) -> float:
        seen.append(rollout)
        return 0.5

    register(runner=GradingRunner({"keep": keep}), wraps="search", wraps_config=section)
    script = ScriptedPolicy(
        tokenizer,
        lambda prompt, call: "<answer>1</answer>" if "information" in prompt else "<search>q</search>",
    )
    out = await generator(make_generator(), tokenizer, script, max_turns=3).generate(
        input_of(1, 2, truth=lambda i: {"target": ["1"]}), disable_tqdm=True
    )
    assert [m["role"] for m in seen[0].messages] == ["user", "assistant", "tool", "assistant"]
    assert "7 floors" in str(seen[0].messages[2])
    assert set(asked) == {"http://retriever:8000"}
    assert totals(out) == pytest.approx([1.5, 1.5])


async def test_around_skyrls_sql(tokenizer: Any, tmp_path: Path) -> None:
    import sqlite3

    folder = tmp_path / "spider" / "database" / "shop"
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "shop.sqlite") as base:
        base.execute("create table t (n integer)")
        base.execute("insert into t values (7)")
    section = configuration().environment.skyrl_gym.text2sql
    section.db_path = str(tmp_path)
    register(
        runner=GradingRunner({"flaky": flaky}, missing_reward="neutral"),
        wraps="skyrl_gym.envs.sql.env:SQLEnv",
        wraps_config=section,
    )
    script = ScriptedPolicy(tokenizer, lambda prompt, call: "good <solution>select n from t</solution>")
    out = await generator(make_generator(), tokenizer, script, max_turns=3).generate(
        input_of(1, 2, truth=lambda i: "select n from t", extras={"db_id": "shop", "data": "spider"}),
        disable_tqdm=True,
    )
    assert out["rollout_metrics"]["environment/judgekit/flaky_mean"] == 1.0
    assert all(total >= 0 for total in totals(out))
