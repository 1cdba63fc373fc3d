"""reward.yaml: what it builds, and that every fault is named with its place."""

from __future__ import annotations

import logging
import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from judgekit import ConfigError, GradingRunner, Rollout, grader
from judgekit.config import RewardConfig, load_config, load_runner
from judgekit.graders import FinalAnswer, JudgeGrader
from judgekit.graders.judged.rubric import shipped_rubrics
from judgekit.judges import ChoiceVerdict
from judgekit.metrics import SignalLimits
from judgekit.strict_yaml import read_yaml
from judgekit.testing import ScriptedJudge


@grader
def politeness(response: str) -> float:
    return float("please" in response)


@grader
def brevity(response: str, *, limit: int = 10, unit: Literal["characters", "words"] = "characters") -> float:
    """The settings come after the star."""
    return float((len(response) if unit == "characters" else len(response.split())) <= limit)


def make_length(limit: int, *, weight: float = 1.0) -> object:
    return grader(lambda response: min(1.0, len(response) / limit * weight))  # type: ignore[misc]


def scripted(answer: str = "1") -> ScriptedJudge:
    return ScriptedJudge(answer)


if TYPE_CHECKING:
    from collections.abc import Sized

    from judgekit.judges.base import Judge


class Own:
    """A grader whose annotations name what is imported for type checkers only."""

    version, score_range = "1", (0.0, 1.0)

    def __init__(
        self,
        judge: Judge,
        data: Sized,
        *,
        folder: os.PathLike[str] = ".",
        threshold: float = 0.5,
        name: str = "own",
    ) -> None:
        self.judge, self.data, self.folder, self.threshold, self.name = judge, data, folder, threshold, name

    def grade(self, rollout: Rollout) -> float:
        return 1.0


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
        sampling: {top_p: 0.9}
    judges:
      local: {engine: "tests.test_config:scripted", answer: B, layers: {max_concurrency: 2, cache: {entries: 10}}}
    reward:
      gate: {if: "correct >= 1", then: {weighted: {judge: 0.5, polite: 0.25, long: 0.25}}, otherwise: 0}
    runner: {max_concurrency: 3, timeout_s: 5, missing_reward: neutral, transform: none, retry: {attempts: 2}, signals: {length: 0.4}}
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
    assert runner.settings.signals == SignalLimits(length=0.4)
    judge = runner.graders["judge"]
    assert isinstance(judge, JudgeGrader)
    assert isinstance(judge.verdict, ChoiceVerdict)
    assert judge.verdict.choices == ("A", "B")
    assert judge.asking.sampling.top_p == 0.9
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
        ("graders: {}", "graders: give at least one grader"),
        ("grader: {a: final_answer}", "there is no section 'grader'; did you mean 'graders'?"),
        ("graders: {a: final_answer}\nrewards: 1", "there is no section 'rewards'; did you mean 'reward'"),
        (
            "graders: {a: final_answer}\nrunner: {timeout: 3}",
            "runner: there is no parameter 'timeout'; did you mean 'timeout_s'",
        ),
        (
            "graders: {a: final_answer}\nrunner: {timeout_s: soon}",
            r"runner.timeout_s: expected a number .got 'soon'",
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
            r"graders.a.tolerance: expected a number .got 'big'",
        ),
        (
            "graders: {a: {use: final_answer, tolerance: 3}}",
            "graders.a: final_answer: tolerance is a relative",
        ),
        ("graders: {a: {use: regex}}", "graders.a: the parameter 'pattern' is missing"),
        (
            "graders: {a: {use: judge, judge: local}}",
            "graders.a.judge: there is no judge 'local'; add the section judges: {local: {engine: …}}",
        ),
        ("graders: {a: {use: 'nowhere.at:all'}}", "graders.a: cannot import nowhere.at"),
        ("graders: {a: {use: 'tests.test_config:politness'}}", "did you mean 'politeness'"),
        (
            "graders: {a: {use: 'tests.test_config:politeness', x: 1}}",
            "has no settings .got 'x'.: its parameters after . are settings",
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
            "judges.j: no model at /no/such",
        ),
        (
            "graders: {a: final_answer}\njudges: {j: {engine: vllm, max_model_len: 3}}",
            "judges.j: vllm: max_model_len",
        ),
        (
            "graders: {a: final_answer}\nrunner: {retry: {attempt: 3}}",
            "runner.retry: there is no parameter 'attempt'; did you mean 'attempts'",
        ),
        (
            "graders: {a: {use: judge, judge: j, verdict: lines}}\njudges: {j: {engine: 'tests.test_config:scripted'}}",
            "graders.a.verdict: no verdict format is called 'lines'; did you mean 'line'",
        ),
        (
            "graders: {a: final_answer}\njudges: {j: {engine: 'tests.test_config:scripted', layers: {retries: 3}}}",
            "judges.j.layers: there is no parameter 'retries'; did you mean 'retry'",
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
            "no rubric file at /.*/x.toml",
        ),
        (
            "graders: {a: {use: judge, judge: j, sampling: {temp: 1}}}\njudges: {j: {engine: 'tests.test_config:scripted'}}",
            "graders.a.sampling: there is no parameter 'temp'; there is 'max_tokens'",
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
            text,
        )
    )
    rollouts = [
        Rollout(prompt="p", ground_truth="1", response="1", extra={"kind": k}) for k in ("maths", "prose")
    ]
    results = runner.run_sync(rollouts)
    assert [r.reward for r in results] == [1.0, 0.0]
    assert [r.score("panel") for r in results] == [0.5, 0.5]


SCRIPTED = "judges: {j: {engine: 'tests.test_config:scripted', layers: LAYERS}}"


@pytest.mark.parametrize(
    ("section", "says"),
    [
        (
            "runner: {missing_reward: no}",
            "runner.missing_reward: expected 'exclude', 'neutral'.* or a number .got 'no'",
        ),
        ("runner: {missing_reward: true}", "runner.missing_reward: expected .*got True"),
        ("runner: {missing_reward: '0.5'}", "runner.missing_reward: expected .*got '0.5'"),
        ("runner: {timeout_s: yes}", "runner.timeout_s: expected a number .got 'yes'"),
        ("runner: {timeout_s: true}", "runner.timeout_s: expected a number .got True"),
        (
            "runner: {max_concurrency: '8'}",
            "runner.max_concurrency: expected a whole number or 'auto' .got '8'",
        ),
        (
            "runner: {max_concurrency: 8.0}",
            "runner.max_concurrency: expected a whole number or 'auto' .got 8.0",
        ),
        ("runner: {max_concurrency: 1_000}", "runner.max_concurrency: expected a whole number"),
        ("runner: {retry: {attempts: '3'}}", "runner.retry.attempts: expected a whole number .got '3'"),
        (
            "runner: {retry: {attempts: true}}",
            "runner.retry.attempts: expected a whole number .got True",
        ),
        (
            "runner: {signals: {lenght: 0.4}}",
            "runner.signals: there is no parameter 'lenght'; did you mean 'length'",
        ),
        (
            "runner: {signals: {length: 40}}",
            "the limit of the signal 'length' is a number from -1 to 1, not 40",
        ),
        ("runner: {retry: 3}", "runner.retry: expected a mapping .got 3"),
        ("runner: {retry: {attempts: 0}}", "runner.retry: retry: attempts is a whole number from 1, not 0"),
        ("runner: {graders: {}}", "runner: there is no parameter 'graders'"),
        ("runner: {progress: true}", "runner: there is no parameter 'progress'"),
        ("runner:", "runner: give a mapping, such as runner: {timeout_s: 30}"),
        ("ledger: {path: 3}", "ledger.path: expected .*got 3"),
        ("ledger: {path: l.jsonl, texts: yes}", "ledger.texts: expected true or false .got 'yes'"),
        ("ledger: {path: l.jsonl, fsync: always}", "ledger.fsync: expected 'never'.*got 'always'"),
        ("ledger: {file: l.jsonl}", "ledger: there is no parameter 'file'"),
        ("ledger: {texts: true}", "ledger: the parameter 'path' is missing"),
        ("reward: {weighted: {a: yes}}", "finite number, not 'yes'"),
        ("reward: {weighted: {a: 1}, normalize: 1}", "normalize is true or false, not 1"),
        (SCRIPTED.replace("LAYERS", "{max_concurency: 3}"), "did you mean 'max_concurrency'"),
        (
            SCRIPTED.replace("LAYERS", "{max_concurrency: yes}"),
            "judges.j.layers.max_concurrency: expected a whole number",
        ),
        (SCRIPTED.replace("LAYERS", "{cache: {paht: x}}"), "judges.j.layers.cache: .* did you mean 'path'"),
        (
            SCRIPTED.replace("LAYERS", "{retry: {attempts: 2, waits: 1}}"),
            "judges.j.layers.retry: there is no parameter",
        ),
    ],
)
def test_nothing_is_converted(tmp_path: Path, section: str, says: str) -> None:
    """core.md A11, newcomer.md A4: `no` was paid as 0.0, `yes` as 1.0, '8' was 8."""
    with pytest.raises(ConfigError, match=says):
        load_runner(write(tmp_path, f"graders: {{a: final_answer}}\n{section}"))


@pytest.mark.parametrize(
    ("grader_spec", "says"),
    [
        ("{use: final_answer, tolerance: '0.1'}", "graders.a.tolerance: expected a number .got '0.1'"),
        ("{use: length, soft_max: '10', hard_max: 20}", "graders.a.soft_max: expected a number"),
        ("{use: final_answer, fields: extra.x}", "graders.a.fields: expected a mapping"),
        ("{use: 3}", "graders.a: give a name or module:object as text, not 3"),
    ],
)
def test_parameters_of_graders_are_not_converted_either(tmp_path: Path, grader_spec: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_runner(write(tmp_path, f"graders: {{a: {grader_spec}}}"))


def test_what_the_file_does_not_say_has_the_runners_default(tmp_path: Path) -> None:
    made = load_runner(write(tmp_path, "graders: {a: final_answer}"))
    plain = GradingRunner({"a": FinalAnswer()})
    for name in (
        "max_concurrency",
        "timeout_s",
        "deadline_s",
        "transform",
        "missing_reward",
        "max_failure_rate",
        "retry",
    ):
        assert getattr(made.settings, name) == getattr(plain.settings, name)
    assert load_config(write(tmp_path, "graders: {a: final_answer}\nrunner: {timeout_s: 3}")).runner == {
        "timeout_s": 3
    }


# ---- the file's YAML


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a: yes", {"a": "yes"}),
        ("a: [true, null, ~, 010, 1e-3, -2, .5, .inf, 2024-01-01, 12:30, 0x1F, on]",
         {"a": [True, None, None, 10, 0.001, -2, 0.5, float("inf"), "2024-01-01", "12:30", "0x1F", "on"]}),
        ("{no: 1, 1: 2, true: 3, null: 4}", {"no": 1, "1": 2, "true": 3, "null": 4}),
        ("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}", {"x": {"a": 1, "b": 2}, "y": {"a": 1, "b": 3}}),
        ("a: ${JK_N}\nb: '${JK_N}'\nc: x${JK_N}y", {"a": 8, "b": "8", "c": "x8y"}),
        ("a: ${JK_NONE:-16}\nb: ${JK_EMPTY:-d}\nc: '${JK_NONE:-}'", {"a": 16, "b": "d", "c": ""}),
        ("a: ${JK_B}", {"a": True}),
        ("a: $${JK_N} costs $5, ${ and $JK_N", {"a": "${JK_N} costs $5, ${ and $JK_N"}),
        ("{a: ${JK_N}, b: [${JK_NONE:-1}, ${JK_NONE:-x, y: z}, x${JK_N}y, '${JK_N}'], ${JK_B}: 1}  # ${JK_NONE}",
         {"a": 8, "b": [1, "x, y: z", "x8y", "8"], "true": 1}),
        ("a: |\n  ${JK_N} {x}\nb: \ue0000\ue001 ${JK_N}", {"a": "8 {x}\n", "b": "\ue0000\ue001 8"}),
        ("\ufeffa: 1", {"a": 1}),
    ],
)  # fmt: skip
def test_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, data: Any) -> None:
    monkeypatch.setenv("JK_N", "8")
    monkeypatch.setenv("JK_B", "true")
    monkeypatch.setenv("JK_EMPTY", "")
    monkeypatch.delenv("JK_NONE", raising=False)
    (tmp_path / "a.yaml").write_text(text, "utf-8")
    assert read_yaml(tmp_path / "a.yaml") == data


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"graders:\n  s: a\n  s: b", "line 3: the key 's' stands twice, first in line 2"),
        (b"reward: {weighted: {s: 0.5, s: 0.7}}", "line 1: the key 's' stands twice"),
        (b"? [a]\n: 1", "line 1: a key is a name"),
        (b"a: [1,\n  ${JK_NONE}]", "line 2: the environment variable JK_NONE is not set"),
        (b"a:\n  b: ${JK_NONE}", "line 2: the environment variable JK_NONE is not set"),
        (b"a: \xff", "not UTF-8 text .byte 3"),
        (b"a: !!int x", "cannot be read"),
        (b"a: " + b"9" * 5000, "cannot be read"),
        (b"a: !!python/object:os.system x", "not YAML"),
        (b"a: 1\n---\nb: 2", "not YAML"),
    ],
)
def test_yaml_faults_name_file_and_line(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "a.yaml").write_bytes(data)
    with pytest.raises(ConfigError, match=f"a.yaml.*{says}") as info:
        read_yaml(tmp_path / "a.yaml")
    assert "\n" not in str(info.value)


# ---- the file's folder


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder = tmp_path / "conf"
    (folder / "sub").mkdir(parents=True)
    (folder / "r.toml").write_text('name = "r"\n[[criteria]]\nid = "a"\ntext = "It is right."\n')
    (folder / "sub" / "t.txt").write_text("{PROBLEM} {CANDIDATE_SOLUTION} {REMINDER}")
    (folder / "s.json").write_text('{"type": "object"}')
    config = write(
        folder,
        """
        graders:
          rubric: {use: rubric, judge: j, rubric: r.toml}
          templated: {use: judge, judge: j, template: sub/t.txt}
          shipped: {use: rubric, judge: j, rubric: SHIPPED}
          formed: {use: json, schema: s.json}
          dotted: {use: json, schema: extra.schema}
          own: {use: "tests.test_config:Own", judge: j, data: [1], folder: data}
        judges: {j: {engine: "tests.test_config:scripted", layers: {cache: {path: sub/c.sqlite}}}}
        ledger: {path: out/l.jsonl}
        """.replace("SHIPPED", sorted(shipped_rubrics())[0]),
    )
    monkeypatch.chdir(tmp_path / "elsewhere")
    runner = load_runner(os.path.relpath(config))
    assert runner.ledger is not None
    assert runner.ledger.path == folder / "out" / "l.jsonl"
    assert not (folder / "sub" / "c.sqlite").exists()  # made when a judge is started or asked
    (judge,) = runner._resources
    assert judge.outer.disk.path == str(folder / "sub" / "c.sqlite")
    assert str(runner.graders["own"].folder) == str(folder / "data")  # type: ignore[union-attr]
    assert not list(Path().iterdir())
    assert RewardConfig(
        graders={"a": "final_answer"}, ledger={"path": "l.jsonl"}
    ).build().ledger.path == Path("l.jsonl")  # type: ignore[union-attr]


def test_a_missing_file_is_named_where_it_was_looked_for(tmp_path: Path) -> None:
    text = "graders: {a: {use: judge, judge: j, template: t.txt}}\n" + SCRIPTED.replace("LAYERS", "{}")
    with pytest.raises(ConfigError, match=f"no template file at {tmp_path}/t.txt"):
        load_runner(write(tmp_path, text))


@pytest.mark.parametrize(
    ("name", "source", "says"),
    [
        ("jk_syntax", "def f(:\n", r"cannot import jk_syntax .SyntaxError: .*jk_syntax.py, line 1"),
        ("jk_raises", "raise RuntimeError('no\\nway')", "cannot import jk_raises .RuntimeError: no way"),
        ("jk_exits", "import sys; sys.exit(3)", "cannot import jk_exits .SystemExit: 3"),
        (
            "jk_needs",
            "import jk_no_such",
            "cannot import jk_needs .ModuleNotFoundError: No module named 'jk_no_such'",
        ),
        (
            "jk_plain",
            "def polite(text): return 1",
            r"graders.a: polite\(text\) is a reward function of no known kind: name its parameters",
        ),
    ],
)
def test_modules_beside_the_file_and_their_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str, says: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / f"{name}.py").write_text(source)
    with pytest.raises(ConfigError, match=says) as info:
        load_runner(write(tmp_path, f"graders: {{a: '{name}:polite'}}"))
    assert "\n" not in str(info.value)


def test_a_module_beside_the_file_is_found_and_never_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    source = "from judgekit import grader\n@grader\ndef polite(response): return {}\n"
    for folder, score in (("one", 0.25), ("two", 0.75)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "jk_mine.py").write_text(source.format(score))
        write(tmp_path / folder, "graders: {a: 'jk_mine:polite'}")
    (result,) = load_runner(tmp_path / "one" / "reward.yaml").run_sync([Rollout(response="")])
    assert result.reward == 0.25
    with pytest.raises(ConfigError, match="jk_mine is .*one/jk_mine.py here, not .*two/jk_mine.py"):
        load_runner(tmp_path / "two" / "reward.yaml")


def test_annotations_for_type_checkers_only_do_no_harm(tmp_path: Path) -> None:
    text = "graders: {a: {use: 'tests.test_config:Own', judge: j, data: x, threshold: THRESHOLD}}\n"
    text += SCRIPTED.replace("LAYERS", "{}")
    runner = load_runner(write(tmp_path, text.replace("THRESHOLD", "0.25")))
    own: Any = runner.graders["a"]
    assert (hasattr(own.judge, "complete"), own.data, own.threshold) == (True, "x", 0.25)
    with pytest.raises(ConfigError, match="graders.a.threshold: expected a number"):
        load_runner(write(tmp_path, text.replace("THRESHOLD", "much")))


def test_a_judge_that_nobody_asks_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "judgekit"):
        load_runner(write(tmp_path, "graders: {a: final_answer}\n" + SCRIPTED.replace("LAYERS", "{}")))
    assert caplog.messages == ["judges.j: no grader asks it, and it is started all the same; take it out"]


def test_a_switch_in_yaml(tmp_path: Path) -> None:
    text = """
        graders: {a: final_answer, b: tests.test_config:politeness}
        reward: {switch: {by: extra.kind, cases: {"math*": a, 3: {gate: {if: "0.5 <= b", then: 1, otherwise: -1}}}}}
    """
    runner = load_runner(write(tmp_path, text))
    rollouts = [
        Rollout(response="please 4", ground_truth="4", extra={"kind": k}) for k in ("maths", 3, "prose")
    ]
    results = runner.run_sync(rollouts)
    assert [r.raw_reward for r in results] == [1.0, 1.0, None]


def test_a_ledger_s_folder_is_beside_the_file_too(tmp_path: Path) -> None:
    (tmp_path / "reward.yaml").write_text(
        "graders: {a: {use: final_answer}}\nreward: a\nledger: {path: runs/}\n", encoding="utf-8"
    )
    runner = load_config(tmp_path / "reward.yaml").build()
    runner.run_sync([Rollout(response="1", ground_truth="1")])
    assert len(list((tmp_path / "runs").glob("*.jsonl"))) == 1


def test_a_graders_fingerprint_covers_its_settings_its_judges_and_their_files(tmp_path: Path) -> None:
    path = tmp_path / "reward.yaml"
    (tmp_path / "mine.py").write_text("from judgekit import grader\n")
    (tmp_path / "polite.toml").write_text("one")
    text = """
judges: {local: {engine: openai, url: "http://127.0.0.1:1", model: m}, other: {engine: openai, url: "http://127.0.0.1:3", model: o}}
graders:
  mine: {use: "mine:polite"}
  rubric: {use: rubric, judge: local, rubric: polite.toml}
  routed: {use: judge, judge: {routes: {"a*": other}, default: local}}
  brief: {use: length, soft_max: 10, hard_max: 20}
  package: {use: "ours:style"}
  inner: {use: "ours.deep.rules:style"}
"""
    (tmp_path / "ours" / "deep").mkdir(parents=True)
    for name in ("__init__", "words", "deep/__init__", "deep/rules"):
        (tmp_path / "ours" / f"{name}.py").write_text("")

    def changed() -> set[str]:
        nonlocal before
        now = load_config(path).fingerprints()
        names = {name for name in now if now[name] != before.get(name)}
        before = now
        return names

    before: dict[str, str] = {}
    path.write_text(text)
    assert changed() == {"mine", "rubric", "routed", "brief", "package", "inner"}
    path.write_text(text.replace("127.0.0.1:1", "127.0.0.1:2"))  # another address is no other judge
    assert changed() == set()
    (tmp_path / "polite.toml").write_text("two")
    assert changed() == {"rubric"}
    (tmp_path / "mine.py").write_text("from judgekit import Grader\n")
    assert changed() == {"mine"}
    for name in ("__init__", "words", "deep/rules"):  # a module reads others of its package
        (tmp_path / "ours" / f"{name}.py").write_text("pass")
        assert changed() == {"package", "inner"}
    path.write_text(text := text.replace("model: m", "model: n"))
    assert changed() == {"rubric", "routed"}
    path.write_text(text := text.replace("model: o", "model: p"))
    assert changed() == {"routed"}
    path.write_text(text.replace("soft_max: 10", "soft_max: 11"))
    assert changed() == {"brief"}
    path.write_text(text.replace("soft_max: 10", f'soft_max: 10, name: "{300 * "x"}:y"'))  # no path
    assert changed() == {"brief"}


def test_a_function_takes_its_settings_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(
        """
        graders:
          ten: {use: "tests.test_config:brevity"}
          three: {use: "tests.test_config:brevity", limit: 3}
          words: {use: "tests.test_config:brevity", limit: 2, unit: words}
        """
    )
    (result,) = load_runner(path).run_sync([Rollout(response="one two")])
    assert [result.score(name) for name in ("ten", "three", "words")] == [1.0, 0.0, 1.0]
    assert brevity.grade(Rollout(response="one two")) == 1.0  # the module's own is as it was


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("limits: 3", "graders.g: there is no parameter 'limits'; did you mean 'limit'?"),
        ("limit: x", "graders.g.limit: "),
        ("unit: lines", "graders.g.unit: "),
        ("response: x", "graders.g: "),
    ],
)
def test_a_wrong_setting_of_a_function_is_said(tmp_path: Path, options: str, says: str) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(f'graders: {{g: {{use: "tests.test_config:brevity", {options}}}}}')
    with pytest.raises(ConfigError) as raised:
        load_runner(path)
    assert says in str(raised.value)


def test_judges_of_a_test_stand_in_for_the_files(tmp_path: Path) -> None:
    (tmp_path / "reward.yaml").write_text(
        "graders: {correct: final_answer, judge: {use: judge, judge: local}}\n"
        "judges: {local: {engine: openai, url: 'http://127.0.0.1:1', model: m}}\n"
        "reward: {gate: {if: 'correct >= 1', then: {weighted: {correct: 0.5, judge: 0.5}}, otherwise: 0}}\n"
    )
    judge = ScriptedJudge({"0": 0.5, "1": 0.5})
    runner = load_runner(tmp_path / "reward.yaml", judges={"local": judge})
    (result,) = runner.run_sync([Rollout(prompt="6 * 7?", response="42", ground_truth="42")])
    assert (result.reward, len(judge.requests)) == (0.75, 1)
    with pytest.raises(ConfigError, match="judges: the file has no judge 'locl'; did you mean 'local'"):
        load_runner(tmp_path / "reward.yaml", judges={"locl": judge})
    with pytest.raises(ConfigError, match="is no judge: it has no complete"):
        load_runner(tmp_path / "reward.yaml", judges={"local": "1"})
