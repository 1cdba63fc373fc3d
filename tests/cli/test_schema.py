"""The JSON Schema of reward.yaml is current, takes every file here, and refuses typical mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from judgekit.cli.json_schema import reward_schema
from judgekit.graders.registry import GRADERS
from judgekit.strict_yaml import read_yaml

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "docs" / "reward.schema.json"


@pytest.fixture(scope="module")
def check() -> jsonschema.Draft202012Validator:
    made = json.loads(PUBLISHED.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def test_the_published_schema_is_current() -> None:
    """Else: judgekit schema > docs/reward.schema.json"""
    assert json.loads(PUBLISHED.read_text("utf-8")) == reward_schema()


def files() -> dict[str, str]:
    """Every reward.yaml of the repository, and every block of one in its documentation."""
    found = {
        str(p.relative_to(ROOT)): p.read_text("utf-8")
        for p in ROOT.rglob("reward*.yaml")
        if not {".venv", ".git", "demo-out"} & set(p.parts)
    }
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "adapters").glob("*/README.md")):
        for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)):
            if re.match(r"(graders|judges|reward|runner|ledger):", block):
                found[f"{page.relative_to(ROOT)} {number}"] = block
    return found


FILES = files()


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_file_here_is_valid(
    name: str, check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in re.findall(r"\$\{(\w+)\}", FILES[name]):
        monkeypatch.setenv(variable, "a-value")
    path = tmp_path / "reward.yaml"
    path.write_text(FILES[name], "utf-8")
    check.validate({"graders": {"a": "final_answer"}, **read_yaml(path)})


def test_there_are_files_to_check() -> None:
    assert len(FILES) >= 10


GOOD = [
    "graders: {a: {use: 'mine:grader', anything: 1}}",
    "graders: {a: {use: final_answer, tolerance: 0.1, fields: {ground_truth: extra.answer}}}",
    "graders: {a: {use: judge, judge: {by: data_source, routes: {'math*': j}, default: k}, verdict: line}}",
    "graders: {a: {use: judge, judge: j, verdict: {format: line, to: [0, 1]}, sampling: {temperature: 1}}}",
    "graders: {a: {use: panel, judges: [j, k]}}",
    "graders: {a: {use: cosine_length, correct: {use: final_answer}, max_length: 10}}",
    "runner: {max_concurrency: 8, missing_reward: 0.5, retry: {attempts: 2}}",
    "runner: {max_concurrency: '${N:-8}', missing_reward: raise}",
    "reward: {switch: {by: extra.kind, cases: {'math*': a, code: {weighted: {a: 1}}}, otherwise: 0}}",
    "reward: {gate: {if: {and: ['a >= 1', {of: {min: [a, b]}, op: '>', than: 0}]}, then: a, otherwise: 0}}",
    "reward: {weighted: {a: 1, b: {weight: 0.5, of: {score: b, if_missing: renormalise}}}, normalize: true}",
    "judges: {j: {engine: openai, url: '${URL}', layers: {cache: {path: x}, retry: null}}}",
    "judges: {j: {engine: 'mine:judge', x: 1, layers: {max_concurrency: 2}}}",
    "ledger: {path: l.jsonl, texts: true, fsync: never}",
]
BAD = [
    "grader: {a: final_answer}",
    "graders: {}",
    "graders: {a: final_answr}",
    "graders: {a: {tolerance: 1}}",
    "graders: {a: {use: final_answr}}",
    "graders: {a: {use: final_answer, tolerence: 1}}",
    "graders: {a: {use: final_answer, tolerance: big}}",
    "graders: {a: {use: regex}}",
    "graders: {a: {use: judge, judge: j, verdict: lines}}",
    "graders: {a: {use: judge, judge: j, sampling: {temp: 1}}}",
    "runner: {missing_reward: no}",
    "runner: {missing_reward: ignore}",
    "runner: {timeout_s: yes}",
    "runner: {max_concurrency: '8'}",
    "runner: {max_concurency: 8}",
    "runner: {retry: {attempt: 3}}",
    "runner: {graders: {}}",
    "reward: {wieghted: {a: 1}}",
    "reward: {weighted: {a: much}}",
    "reward: {weighted: {a: 1}, normalise: true}",
    "reward: {gate: {if: 'a >= 1', then: 1}}",
    "reward: {switch: {cases: {a: 1}, default: 0}}",
    "reward: {fallback: [a]}",
    "judges: {j: {engine: vlm}}",
    "judges: {j: {model: x}}",
    "judges: {j: {engine: openai, layers: {max_concurency: 2}}}",
    "judges: {j: {engine: openai, layers: {cache: {file: x}}}}",
    "ledger: {texts: true}",
    "ledger: {path: l.jsonl, fsync: always}",
]


@pytest.mark.parametrize(("text", "good"), [*((t, True) for t in GOOD), *((t, False) for t in BAD)])
def test_what_is_taken_and_what_is_refused(
    text: str, good: bool, check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(text.replace("${", "$${"), "utf-8")
    data = read_yaml(path)
    if not text.startswith("grader"):
        data = {"graders": {"a": "final_answer"}, **data}
    assert check.is_valid(data) is good, [error.message for error in check.iter_errors(data)]


def test_every_shipped_grader_is_in_it(check: Any) -> None:
    for name in GRADERS:
        assert not check.is_valid({"graders": {"a": {"use": name, "no_such_parameter": 1}}}), name
