"""reward.yaml: what it builds, and that every fault is named with its place."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from judgekit import ConfigError, Rollout, grader
from judgekit.config import load_config, load_runner
from judgekit.graders import FinalAnswer, JudgeGrader
from judgekit.judges import ChoiceVerdict
from judgekit.testing import ScriptedJudge


@grader
def politeness(response: str) -> float:
    return float("please" in response)


def make_length(limit: int, *, weight: float = 1.0) -> object:
    return grader(lambda response: min(1.0, len(response) / limit * weight))  # type: ignore[misc]


def scripted(answer: str = "1") -> ScriptedJudge:
    return ScriptedJudge(answer)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "reward.yaml"
    path.write_text(textwrap.dedent(text))
    return path


FULL = """
    graders:
      correct: {use: final_answer, tolerance: 0.01, fields: {ground_truth: extra.answer}}
      polite: tests.test_config:politeness
      long: {use: "tests.test_config:make_length", limit: 10}
      judge:
        use: judge
        judge: local
        verdict: {format: choice, labels: {A: 0, B: 1}, min_mass: 0.2}
        sampling: {thinking: true}
    judges:
      local: {engine: "tests.test_config:scripted", answer: B, layers: {max_concurrency: 2, cache: {entries: 10}}}
    reward:
      gate: {if: "correct >= 1", then: {weighted: {judge: 0.5, polite: 0.25, long: 0.25}}, otherwise: 0}
    runner: {max_concurrency: 3, timeout_s: 5, missing_reward: neutral, transform: none, retry: {attempts: 2}}
    ledger: {path: LEDGER, texts: true}
"""


def test_everything_in_one_file(tmp_path: Path) -> None:
    runner = load_runner(write(tmp_path, FULL.replace("LEDGER", str(tmp_path / "ledger.jsonl"))))
    rollouts = [
        Rollout(prompt="p", response="please 4", ground_truth="x", extra={"answer": 4}),
        Rollout(prompt="p", response="5", ground_truth="x", extra={"answer": 4}),
    ]
    results = runner.run_sync(rollouts)
    assert [r.reward for r in results] == [pytest.approx(0.5 + 0.25 + 0.25 * 0.8), 0.0]
    assert (runner.settings.max_concurrency, runner.settings.timeout_s, runner.settings.missing_reward) == (
        3,
        5.0,
        "neutral",
    )
    assert runner.settings.retry.attempts == 2
    judge = runner.graders["judge"]
    assert isinstance(judge, JudgeGrader)
    assert isinstance(judge.verdict, ChoiceVerdict)
    assert judge.verdict.choices == ("A", "B")
    assert judge.asking.sampling.thinking
    assert (tmp_path / "ledger.jsonl").exists()


def test_without_a_reward_the_graders_count_alike(tmp_path: Path) -> None:
    runner = load_runner(write(tmp_path, "graders: {a: final_answer, b: tests.test_config:politeness}"))
    assert runner.reward.root.spec() == {"weighted": {"a": 1.0, "b": 1.0}, "normalize": True}
    assert isinstance(runner.graders["a"], FinalAnswer)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("graders: [", "line 1: not YAML"),
        ("- a", "expected the sections"),
        ("", "expected the sections"),
        ("graders: {}", "graders: Dictionary should have at least 1 item"),
        ("grader: {a: final_answer}", "graders: Field required"),
        ("graders: {a: final_answer}\nrewards: 1", "rewards: there is no such key; did you mean 'reward'"),
        (
            "graders: {a: final_answer}\nrunner: {timeout: 3}",
            "runner.timeout: there is no such key; did you mean 'timeout_s'",
        ),
        (
            "graders: {a: final_answer}\nrunner: {timeout_s: soon}",
            r"runner.timeout_s: .*valid number.*got 'soon'",
        ),
        ("graders: {a: final_answer}\nrunner: {transform: z}", "runner.transform"),
        ("graders: {a: final_answr}", "graders.a: there is no 'final_answr'; did you mean 'final_answer'"),
        ("graders: {a: {tolerance: 1}}", "graders.a: say which grader it is with 'use'"),
        (
            "graders: {a: {use: final_answer, tolerence: 1}}",
            "graders.a: there is no parameter 'tolerence'; did you mean 'tolerance'",
        ),
        (
            "graders: {a: {use: final_answer, tolerance: big}}",
            r"graders.a.tolerance: .*valid number.*got 'big'",
        ),
        (
            "graders: {a: {use: final_answer, tolerance: 3}}",
            "graders.a: final_answer: tolerance is a relative",
        ),
        ("graders: {a: {use: regex}}", "graders.a: the parameter 'pattern' is missing"),
        (
            "graders: {a: {use: judge, judge: local}}",
            "graders.a.judge: there is no judge 'local'; there is none",
        ),
        ("graders: {a: {use: 'nowhere.at:all'}}", "graders.a: cannot import nowhere.at"),
        ("graders: {a: {use: 'tests.test_config:politness'}}", "did you mean 'politeness'"),
        (
            "graders: {a: {use: 'tests.test_config:politeness', x: 1}}",
            "is a finished grader and takes no parameters",
        ),
        ("graders: {a: {use: 'math:pi'}}", "has neither grade"),
        ("graders: {a: {use: final_answer, fields: {grund_truth: x}}}", "did you mean 'ground_truth'"),
        (
            "graders: {a: final_answer}\nreward: {weighted: {b: 1}}",
            "the reward names 'b', which no grader gives; there is 'a'",
        ),
        ("graders: {a: final_answer}\nreward: {wieghted: {a: 1}}", "did you mean 'weighted'"),
        ("graders: {a: final_answer}\njudges: {j: {model: x}}", "judges.j: say which engine it is"),
        (
            "graders: {a: final_answer}\njudges: {j: {engine: vlm}}",
            "judges.j: there is no 'vlm'; did you mean 'vllm'",
        ),
        (
            "graders: {a: final_answer}\njudges: {j: {engine: vllm, model: /no/such}}",
            "judges.j: there is no model at /no/such",
        ),
        (
            "graders: {a: final_answer}\njudges: {j: {engine: vllm, max_model_len: 3}}",
            "judges.j: vllm: max_model_len",
        ),
        ("graders: {a: final_answer}\nrunner: {retry: {attempt: 3}}", "runner.retry: .*attempt"),
        (
            "graders: {a: {use: judge, judge: j, verdict: lines}}\njudges: {j: {engine: 'tests.test_config:scripted'}}",
            "graders.a.verdict: no verdict format is called 'lines'; did you mean 'line'",
        ),
        (
            "graders: {a: final_answer}\njudges: {j: {engine: 'tests.test_config:scripted', layers: {retries: 3}}}",
            "judges.j.layers: .*retries",
        ),
        (
            "graders: {a: final_answer}\njudges: {j: {engine: openai}}",
            "judges.j: give the server's url=, or set LLM_JUDGE_SERVER_URL",
        ),
        (
            "graders: {a: {use: judge, judge: {routes: {m: x}}}}\njudges: {j: {engine: 'tests.test_config:scripted'}}",
            "graders.a.judge: there is no judge 'x'",
        ),
        (
            "graders: {a: {use: panel, judges: [j, x]}}\njudges: {j: {engine: 'tests.test_config:scripted'}}",
            "graders.a.judges: there is no judge 'x'",
        ),
        (
            "graders: {a: {use: rubric, judge: j, rubric: x.toml}}\njudges: {j: {engine: 'tests.test_config:scripted'}}",
            "no rubric file at x.toml",
        ),
        (
            "graders: {a: {use: judge, judge: j, sampling: {temp: 1}}}\njudges: {j: {engine: 'tests.test_config:scripted'}}",
            "graders.a.sampling: .*temp",
        ),
    ],
)
def test_faults_are_named_with_their_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as info:
        load_runner(write(tmp_path, text))
    assert "reward.yaml" in str(info.value)
    assert "\n" not in str(info.value)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none.yaml: No such file"):
        load_config(tmp_path / "none.yaml")


def test_routes_and_panels_in_yaml(tmp_path: Path) -> None:
    text = """
        graders:
          routed: {use: judge, judge: {by: extra.kind, routes: {"math*": yes}, default: no}}
          panel: {use: panel, judges: [yes, no], combine: mean}
        judges:
          "yes": {engine: "tests.test_config:scripted"}
          "no": {engine: "tests.test_config:scripted", answer: "0"}
        reward: {weighted: {routed: 1, panel: 0}}
    """
    runner = load_runner(
        write(
            tmp_path,
            text.replace(" yes", ' "yes"').replace(": no", ': "no"').replace("[yes, no]", '["yes", "no"]'),
        )
    )
    rollouts = [
        Rollout(prompt="p", ground_truth="1", response="1", extra={"kind": k}) for k in ("maths", "prose")
    ]
    results = runner.run_sync(rollouts)
    assert [r.reward for r in results] == [1.0, 0.0]
    assert [r.score("panel") for r in results] == [0.5, 0.5]
