"""What the words of a reward.yaml become: plug-ins, functions, paths, routes, verdicts; and the check of every value's type."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Literal

import pytest

from judgekit import ConfigError, Rollout, grader
from judgekit.config import load_config, load_runner, parts
from judgekit.config.checks import checked, parameters_of, placed, struct_of
from judgekit.config.parts import Parts
from judgekit.errors import MissingExtra
from judgekit.metrics import SignalLimits
from judgekit.testing import ScriptedJudge


@grader
def finished(response: str) -> float:
    return 1.0


class Finished:
    name, version, score_range = "finished", "1", (0.0, 1.0)

    def grade(self, rollout: Rollout) -> float:
        return 0.25


FINISHED = Finished()
NUMBER = 3


def own(response: str, ground_truth: str, bonus: float = 0.0) -> float:
    return float(response == ground_truth) + bonus


def odd(first: str, second: str) -> float:
    return 0.0


def silent(engine: str = "x") -> ScriptedJudge:
    return ScriptedJudge("1")


class Model:
    async def reward(self, turns: Any) -> Any:
        return 1.0, None


def write(folder: Path, text: str) -> Path:
    path = folder / "reward.yaml"
    path.write_text(textwrap.dedent(text))
    return path


def fails(folder: Path, text: str) -> str:
    path = write(folder, text)
    with pytest.raises(ConfigError) as raised:
        load_runner(path)
    return str(raised.value).removeprefix(f"{path}: ")


HERE = "tests.test_config_parts"
JUDGES = f"judges: {{a: {{engine: '{HERE}:silent'}}, b: {{engine: '{HERE}:silent'}}, m: {{engine: '{HERE}:Model'}}}}"


# ---- graders


def test_plug_ins_are_found_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def entries(*, group: str) -> list[EntryPoint]:
        asked.append(group)
        return [
            EntryPoint("theirs", f"{HERE}:Finished", group),
            EntryPoint("judge2", f"{HERE}:silent", group),
        ]

    monkeypatch.setattr(parts, "entry_points", entries)
    text = "graders: {x: theirs, y: {use: judge, judge: j}}\njudges: {j: {engine: judge2}}"
    runner = load_runner(write(tmp_path, text))
    assert isinstance(runner.graders["x"], Finished)
    assert set(asked) == {"judgekit.graders", "judgekit.engines"}
    assert fails(tmp_path, "graders: {x: thiers}") == (
        "graders.x: there is no 'thiers'; did you mean 'theirs'? (yours is module:object)"
    )


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            f"{{use: '{HERE}:FINISHED', limit: 3}}",
            "is a finished grader and takes no parameters (got 'limit')",
        ),
        ("{use: ''}", "graders.x: give a name or module:object as text, not ''"),
        ("{use: 3}", "graders.x: give a name or module:object as text, not 3"),
        (
            "{use: 'my-module:thing'}",
            "graders.x: 'my-module:thing' is not module:object, such as my_rewards:politeness",
        ),
        (f"'{HERE}:NUMBER'", "has neither grade"),
        (f"'{HERE}:finishd'", f"graders.x: {HERE} has no 'finishd'; did you mean 'finished'?"),
        (f"'{HERE}:Finished.nothing'", f"graders.x: {HERE} has no 'Finished.nothing'"),
        (f"'{HERE}:odd'", "is a reward function of no known kind: name its parameters as a rollout's fields"),
        (f"{{use: '{HERE}:own', bonus: much}}", "graders.x.bonus: expected a number (got 'much')"),
        (f"{{use: '{HERE}:own', bonsu: 1}}", "graders.x: there is no parameter 'bonsu'"),
        (f"{{use: '{HERE}:own', signature: trll}}", "graders.x.signature: expected"),
        ("{use: final_answer, fields: 3}", "graders.x.fields: expected a mapping (got 3)"),
    ],
)
def test_what_is_no_grader_is_said_with_its_place(tmp_path: Path, spec: str, says: str) -> None:
    assert says in fails(tmp_path, f"graders: {{x: {spec}}}")


def test_functions_have_their_parameters_beside_ours(tmp_path: Path) -> None:
    text = f"""
        graders:
          plain: {{use: '{HERE}:own'}}
          more: {{use: '{HERE}:own', bonus: 0.5, score_range: [0, 2]}}
          mapped: {{use: '{HERE}:odd', fields: {{first: response, second: ground_truth}}}}
          finished: '{HERE}:FINISHED'
          renamed: {{use: '{HERE}:FINISHED', fields: {{response: extra.answer}}}}
        reward: {{weighted: {{plain: 1, more: 1, mapped: 0, finished: 0}}}}
    """
    text = text.replace(
        "          renamed: {use: '" + HERE + ":FINISHED', fields: {response: extra.answer}}\n", ""
    )
    runner = load_runner(write(tmp_path, text))
    (result,) = runner.run_sync([Rollout(response="4", ground_truth="4")])
    assert {name: result.score(name) for name in result.grades} == {
        "plain": 1.0, "more": 1.5, "mapped": 0.0, "finished": 0.25,
    }  # fmt: skip
    assert result.reward == 2.5


def test_modules_beside_the_file_are_imported_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("beside_it", "a_package"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "beside_it.py").write_text("def score(response: str) -> float:\n    return 0.5\n")
    (tmp_path / "a_package").mkdir()
    (tmp_path / "a_package" / "__init__.py").write_text(
        "class G:\n    @staticmethod\n    def s(response): return 0.25\n"
    )
    (tmp_path / "json.py").write_text("def dumps(response: str) -> float:\n    return 0.5\n")
    (tmp_path / "raises_it.py").write_text("raise SystemExit('no\\nway')\n")
    runner = load_runner(write(tmp_path, "graders: {a: 'beside_it:score', b: 'a_package:G.s'}"))
    (result,) = runner.run_sync([Rollout(response="x")])
    assert [result.score(name) for name in "ab"] == [0.5, 0.25]
    assert "json" in fails(tmp_path, "graders: {a: 'json:dumps'}")  # the file's own is hidden by Python's
    assert "graders.a: cannot import raises_it (SystemExit: no way)" in fails(
        tmp_path, "graders: {a: 'raises_it:x'}"
    )
    for name in ("beside_it", "a_package", "raises_it"):
        sys.modules.pop(name, None)


# ---- judges


def test_a_judge_is_asked_as_what_it_is(tmp_path: Path) -> None:
    assert fails(tmp_path, f"graders: {{x: {{use: judge, judge: m}}}}\n{JUDGES}") == (
        "graders.x.judge: m is a reward model: ask it with a grader such as use: reward_model"
    )
    assert fails(tmp_path, f"graders: {{x: {{use: reward_model, model: a}}}}\n{JUDGES}") == (
        "graders.x.model: a is a judge: ask it with a grader such as use: judge"
    )
    assert "there is no judge 'c'; there is 'a', 'b', 'm'" in fails(
        tmp_path, f"graders: {{x: {{use: judge, judge: c}}}}\n{JUDGES}"
    )
    assert "judges.a.layers" in fails(
        tmp_path,
        f"graders: {{x: final_answer}}\njudges: {{a: {{engine: '{HERE}:silent', layers: {{max_concurrency: 0}}}}}}",
    )


def test_routes_of_judges(tmp_path: Path) -> None:
    text = f"graders: {{x: {{use: judge, judge: ROUTES}}}}\n{JUDGES}"
    rollouts = [
        Rollout(response="x", prompt="p", ground_truth="4", data_source=source, extra={"kind": kind})
        for source, kind in (("maths", "code"), ("code", "mathematics"), ("code", "code"))
    ]
    for spec, scores in (
        ("{by: extra.kind, routes: {'math*': a}, default: b}", [0.25, 0.75, 0.25]),
        ("{routes: {'math*': a}, default: b}", [0.75, 0.25, 0.25]),
        ("{routes: {'math*': a}}", [0.75, None, None]),
    ):
        stand_in = {"a": ScriptedJudge({"0": 0.25, "1": 0.75}), "b": ScriptedJudge({"0": 0.75, "1": 0.25})}
        runner = load_runner(write(tmp_path, text.replace("ROUTES", spec)), judges=stand_in)
        assert [result.score("x") for result in runner.run_sync(rollouts)] == scores
    for wrong, says in (
        ("{routes: a}", "routes maps patterns to judges, such as {'math*': maths}"),
        ("{routs: {}}", "there is no parameter 'routs'; did you mean 'routes'?"),
        ("{routes: {x: c}}", "there is no judge 'c'"),
        ("{routes: {x: a}, default: c}", "there is no judge 'c'"),
        ("{routes: {x: a}, by: 3}", "judge.by: expected text (got 3)"),
    ):
        said = fails(tmp_path, text.replace("ROUTES", wrong))
        assert said.startswith("graders.x.judge")
        assert says in said
        assert said.count("graders.x.judge") == 1


def test_verdicts_are_named_or_spelled_out(tmp_path: Path) -> None:
    text = f"graders: {{x: {{use: judge, judge: a, verdict: VERDICT}}}}\n{JUDGES}"
    assert load_runner(write(tmp_path, text.replace("VERDICT", "line")))
    for wrong, says in (
        ("lin", "graders.x.verdict: no verdict format is called 'lin'; did you mean 'line'?"),
        ("{format: 3}", "graders.x.verdict: no verdict format is called 3"),
        ("{}", "graders.x.verdict: no verdict format is called None"),
        ("3", "graders.x.verdict: expected a mapping (got 3)"),
        (
            "{format: choice, labls: {}}",
            "graders.x.verdict: there is no parameter 'labls'; did you mean 'labels'?",
        ),
    ):
        assert says in fails(tmp_path, text.replace("VERDICT", wrong))


def test_a_judge_that_no_grader_asks_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load_runner(write(tmp_path, f"graders: {{x: {{use: judge, judge: a}}}}\n{JUDGES}"))
    assert [record.message.partition(":")[0] for record in caplog.records] == ["judges.b", "judges.m"]


def test_judges_that_stand_in_are_those_of_the_file(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, f"graders: {{x: {{use: judge, judge: a}}}}\n{JUDGES}"))
    with pytest.raises(ConfigError, match="judges: the file has no judge 'c'; there is 'a', 'b', 'm'"):
        config.build(judges={"c": ScriptedJudge("1")})
    with pytest.raises(ConfigError, match=r"judges: a: 3 is no judge: it has no complete\(\)"):
        config.build(judges={"a": 3})
    assert config.build(judges={"a": ScriptedJudge("0")}).resources


# ---- paths


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    made = Parts(tmp_path)
    (tmp_path / "models" / "mine").mkdir(parents=True)
    assert made.beside("a/b.txt") == str(tmp_path / "a" / "b.txt")
    assert made.beside("a/") == f"{tmp_path / 'a'}/"
    assert made.beside("/abs/x") == "/abs/x"
    assert made.beside("~/x") == os.path.expanduser("~/x")
    assert made.beside("") == ""
    assert Parts(None).beside("a") == "a"
    named: Mapping[str, str] = {
        "org/model": "org/model",
        "models/mine": str(tmp_path / "models" / "mine"),
        "./new": str(tmp_path / "new"),
        "../up": str(tmp_path / ".." / "up"),
        "rubric.txt": str(tmp_path / "rubric.txt"),
        "a.json": str(tmp_path / "a.json"),
        "a.toml": str(tmp_path / "a.toml"),
        "a.yaml": "a.yaml",
        "models": "models",
        "Text {of}\na/template.txt": "Text {of}\na/template.txt",
    }
    for name, meant in named.items():
        for parameter in ("lora", "model", "rubric", "schema", "template", "tokenizer"):
            assert made.argument(parameter, name, str, "w") == meant
        assert made.argument("other", name, str, "w") == name
    assert made.argument("other", "x", Path | None, "w") == tmp_path / "x"
    assert made.argument("other", "x", str | os.PathLike[str], "w") == str(tmp_path / "x")


# ---- types


@pytest.mark.parametrize(
    ("value", "hint", "says"),
    [
        ("x", float, "w: expected a number (got 'x')"),
        (float("nan"), float, "w: expected a number (got nan)"),
        (1.5, int, "w: expected a whole number (got 1.5)"),
        (1, str, "w: expected text (got 1)"),
        ("yes", bool, "w: expected true or false (got 'yes')"),
        (1, list[int], "w: expected a list (got 1)"),
        ([], dict[str, int], "w: expected a mapping (got [])"),
        ("x", int | None, "w: expected a whole number (got 'x')"),
        ("x", int | list[int], "w: expected a whole number or a list (got 'x')"),
        ("c", Literal["a", "b"], "w: expected 'a' or 'b' (got 'c')"),
        ("x", Parts, "w: expected something else (got 'x')"),
        ("x", Callable[..., Any] | None, "w: "),
    ],
)  # fmt: skip
def test_a_value_of_another_type(value: Any, hint: Any, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        checked(value, hint, "w")
    assert str(raised.value).startswith(says)


def test_nothing_is_converted_but_lists() -> None:
    assert checked([1, 2], tuple[int, ...], "w") == (1, 2)
    assert checked(1, float, "w") == 1.0
    assert checked({"a": [1]}, Mapping[str, Sequence[int]], "w") == {"a": [1]}
    made = Finished()
    assert checked(made, Finished, "w") is made  # in a file that Python has made
    assert struct_of(SignalLimits) is struct_of(SignalLimits | None) is SignalLimits
    assert struct_of(int) is struct_of(int | None) is struct_of(SignalLimits | int) is None


def test_errors_get_their_place_in_front() -> None:
    assert str(placed(ConfigError("b"), "a")) == "a: b"
    lacking = placed(MissingExtra("it needs x", "x"), "a")
    assert isinstance(lacking, MissingExtra)
    assert str(lacking) == "a: it needs x: pip install 'judgekit-rl[x]'"
    with pytest.raises(ConfigError, match="w: 3 is no class or function with parameters to set"):
        parameters_of(3, "w")


def test_settings_in_the_file_may_be_none(tmp_path: Path) -> None:
    assert Parts(tmp_path).argument("signals", None, SignalLimits | None, "w") is None
    made = Parts(tmp_path).argument("signals", {"length": 0.25}, SignalLimits | None, "w")
    assert made == SignalLimits(length=0.25)
    with pytest.raises(ConfigError, match="w: expected a mapping"):
        Parts(tmp_path).argument("signals", None, SignalLimits, "w")
