"""`judgekit graders`: the list, the parameters, and examples that work when pasted."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Literal

import jsonschema
import pytest
import yaml

from judgekit.cli.graders import EXAMPLES, Parameter, kind_of, parameters, shown, summaries
from judgekit.cli.json_schema import reward_schema
from judgekit.config import load_runner
from judgekit.graders.registry import GRADERS

from .in_process import call

JUDGES = {
    "local": {"engine": "openai", "url": "http://127.0.0.1:1", "model": "m"},
    "other": {"engine": "openai", "url": "http://127.0.0.1:1", "model": "n"},
}
SCHEMA = jsonschema.Draft202012Validator(reward_schema())
RULES = sorted(name for name, target in GRADERS.items() if ".rules." in target)


def test_the_list_has_every_grader(files: Path) -> None:
    done = call(files, "graders")
    assert done.returncode == 0
    named = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert [name for name in named if name in GRADERS] == sorted(GRADERS)
    assert all(len(about) > 20 and "\n" not in about for about in summaries().values())


@pytest.mark.parametrize("name", ["math", "tool_calls", "judge", "soft_overlong"])
def test_parameters_are_shown_with_an_example(files: Path, name: str) -> None:
    done = call(files, "graders", name)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split()[0] for line in done.stdout.split("\n\n")[0].splitlines()]
    assert rows == list(inspect.signature(resolve_name(GRADERS[name])).parameters)
    assert f"my_grader: {EXAMPLES[name]}" in done.stdout
    assert summaries()[name] in done.stdout


def test_graders_of_one_s_own_and_wrong_names(files: Path) -> None:
    (files / "own.py").write_text(
        "class Own:\n    '''Scores it.'''\n    def __init__(self, a: int, b: str = 'x') -> None: ...\n"
    )
    done = call(files, "graders", "judgekit.graders.rules.answers.maths:MathEquivalence")
    assert "set_relations" in done.stdout
    for wrong, says in (("mth", "did you mean 'math'"), ("no.such:Thing", "cannot import the grader")):
        done = call(files, "graders", wrong)
        assert (done.returncode, done.stdout) == (2, "")
        assert says in done.stderr


def test_no_default_is_a_path_of_this_machine() -> None:
    assert shown(sys.executable) == "this Python"
    for name, target in GRADERS.items():
        for parameter in parameters(resolve_name(target)):
            assert "/" not in parameter.default, (name, parameter)


def test_every_grader_has_an_example() -> None:
    assert set(EXAMPLES) == set(GRADERS)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_fit_the_schema(name: str) -> None:
    config = {"graders": {"my_grader": yaml.safe_load(EXAMPLES[name])}, "judges": JUDGES}
    assert config["graders"]["my_grader"]["use"] == name
    SCHEMA.validate(config)


@pytest.mark.parametrize("name", RULES)
def test_examples_of_rules_work_when_pasted(tmp_path: Path, name: str) -> None:
    path = tmp_path / "reward.yaml"
    (tmp_path / "repositories").mkdir()  # beside the file, wherever it is read from
    path.write_text(f"graders:\n  my_grader: {EXAMPLES[name]}\nrunner: {{missing_reward: mask}}\n")
    assert list(load_runner(path).graders) == ["my_grader"]


@pytest.mark.parametrize(
    ("hint", "kind"),
    [
        (int, "whole number"),
        (float | None, "number or null"),
        (Literal["a", "b"], '"a", "b"'),
        (Sequence[str], "list of texts"),
        (Sequence[Mapping[str, Any]] | str, "list of mapping of any values or text"),
        (Mapping[str, float], "mapping of numbers"),
        (Annotated[bool, "x"], "true or false"),
        (tuple[float, float], "list of numbers"),
    ],
)
def test_types_in_words(hint: Any, kind: str) -> None:
    assert kind_of(hint) == kind


def test_parameters() -> None:
    def make(a: int, *, b: Sequence[str] = ("x",), c: float | None = None) -> None: ...

    assert parameters(make) == [
        Parameter("a", "whole number", ""),
        Parameter("b", "list of texts", '["x"]'),
        Parameter("c", "number or null", "null"),
    ]
