"""What the documentation shows runs: every example, and the README's Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from judgekit import JudgeUnavailable, Rollout
from judgekit.config import load_runner
from judgekit.data import read_rollouts
from judgekit.run.findings import findings
from judgekit.testing import ScriptedJudge

from .test_surface import public_names

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=[e.name for e in EXAMPLES])
def test_examples_run(example: Path) -> None:
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert len(example.read_text().splitlines()) <= 80


PAGES = ["README.md", *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").glob("*.md")))]
PAGES.remove("docs/trainers.md")  # needs the trainers: tests/bridges/test_classes.py


@pytest.mark.parametrize("page", PAGES)
def test_python_in_the_documentation_runs(page: str) -> None:
    text = (ROOT / page).read_text()
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL), 1):
        done = subprocess.run(
            [sys.executable, "-c", block], capture_output=True, text=True, timeout=60, cwd=ROOT
        )
        assert done.returncode == 0, f"{page}, block {number}: {done.stderr}"


def test_the_readmes_reward_passes_lint(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "reward.yaml").write_text(block)
    done = subprocess.run(
        [sys.executable, "-m", "judgekit", "lint", tmp_path / "reward.yaml"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def _functions_and_files() -> list[tuple[str, str]]:
    """The pairs of docs/migration.md: a user's functions, and the reward.yaml beside them."""
    text = (ROOT / "docs" / "migration.md").read_text()
    return re.findall(r"```python\n((?:(?!```).)*?)```(?:(?!```).)*?```yaml\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("number", range(5))
def test_functions_that_users_have_are_graders_as_the_page_says(number: int, tmp_path: Path) -> None:
    pairs = _functions_and_files()
    assert len(pairs) == 5
    functions, file = pairs[number]
    (tmp_path / "my_rewards.py").write_text(functions)
    (tmp_path / "reward.yaml").write_text(file)
    question = [{"role": "user", "content": "6*7?"}]
    rows = [
        {"prompt": question, "group": "a", "response": text, "ground_truth": "42", "extra": {"answer": "42"}}
        for text in ("It is 42", "It is 41 or 43")
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    grade = [sys.executable, "-m", "judgekit", "grade", "reward.yaml", "rows.jsonl", "--out", "out.jsonl"]
    done = subprocess.run(grade, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    right, wrong = (json.loads(line)["reward"] for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert right > wrong


RECIPES = re.findall(
    r"^## (.*?)$.*?```yaml\n(.*?)```.*?```json\n(.*?)```.*?```text\n(.*?)```",
    (ROOT / "docs" / "recipes.md").read_text(),
    re.DOTALL | re.MULTILINE,
)


def test_there_are_recipes() -> None:
    assert len(RECIPES) == 12


@pytest.mark.parametrize(("file", "rows", "printed"), [r[1:] for r in RECIPES], ids=[r[0] for r in RECIPES])
def test_recipes_pay_what_they_say(file: str, rows: str, printed: str, tmp_path: Path) -> None:
    (tmp_path / "reward.yaml").write_text(file)
    (tmp_path / "rows.jsonl").write_text(rows)
    said = {"Rain falls down.\n": JudgeUnavailable("down"), "whatever": {"0": 0.8, "1": 0.2}}
    judge = ScriptedJudge(said, default={"0": 0.1, "1": 0.9})
    runner = load_runner(tmp_path / "reward.yaml", judges={"main": judge} if "judges:" in file else {})
    rollouts = read_rollouts(tmp_path / "rows.jsonl")
    assert findings(runner, rollouts) == []
    paid = [
        f"{'missing' if result.reward is None else format(result.reward, '.3f'):<8}{' '.join(rollout.response.split())[:60]}".rstrip()
        for rollout, result in zip(rollouts, runner.run_sync(rollouts), strict=True)
    ]
    assert paid == printed.splitlines()


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_map_shows_the_house() -> None:
    """docs/architecture.md names every package, and no file that is not there."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    source = ROOT / "src" / "judgekit"
    packages = {p.parent.relative_to(source).parts[0] for p in source.glob("*/__init__.py")}
    assert [name for name in packages if not re.search(rf"(?<![\w/]){name}\b", text)] == []
    named = set(re.findall(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`", text))
    assert len(named) > 40
    places = (source, source / "judges" / "engines", source / "ledger", source / "replay", source / "run",
              source / "reward", source / "judges" / "layers", source / "graders" / "rules", ROOT)  # fmt: skip
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


def test_tests_that_judges_name_are_there() -> None:
    named = re.findall(r"`((?:judges/)?test_\w+\.py)(?:::(\w+))?`", (ROOT / "docs" / "judges.md").read_text())
    assert len(named) >= 8
    for file, test in named:
        path = ROOT / "tests" / file if file.startswith("judges/") else ROOT / "tests" / "vllm" / file
        assert f"def {test}" in path.read_text(), f"{file}::{test}"


def test_the_site_builds(tmp_path: Path) -> None:
    """Every link and cross-reference of the documentation site leads somewhere: mkdocs' strict mode."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT, capture_output=True, text=True, timeout=300, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    commands = (tmp_path / "reference" / "commands" / "index.html").read_text()
    assert "--max-failure-rate" in commands or "--resume" in commands
    pages = [page.read_text() for page in (tmp_path / "reference" / "api").rglob("index.html")]
    shown = {name for page in pages for name in re.findall(r'<h\d id="judgekit\.(?:\w+\.)*(\w+)"', page)}
    assert set(public_names()) - shown == {"__version__"}
    settings = (tmp_path / "reference" / "reward-yaml" / "index.html").read_text()
    assert "max_failure_rate" in settings


def _rewards_of_groups() -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "groups.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(4))
def test_the_rewards_of_the_page_on_groups_do_what_it_says(number: int, tmp_path: Path) -> None:
    """What is paid to a group in which one is right and one wrong, and to one in which both are right, of different lengths."""
    blocks = _rewards_of_groups()
    assert len(blocks) == 4
    (tmp_path / "reward.yaml").write_text(blocks[number])
    judge = ScriptedJudge({"A": 0.5, "C": 0.0, "B": 0.5})
    judges = {"local": judge} if "judges" in blocks[number] else {}
    runner = load_runner(tmp_path / "reward.yaml", judges=judges)
    right, wrong = "<answer> #### 4", "<answer> #### 5"
    texts = [(right, wrong), (right, f"so {right}"), (wrong, f"so {wrong}"), ("#### 4", "4")]
    rollouts = [
        Rollout(response=text, prompt="2+2?", ground_truth="4", group=number)
        for number, group in enumerate(texts)
        for text in group
    ]
    results = runner.run_sync(rollouts, step=100)
    paid = [(r.reward, r.status) for r in results]
    mixed, both_right, both_wrong, formless = (paid[i : i + 2] for i in (0, 2, 4, 6))
    scored = [(1.0, "scored"), (0.0, "scored")]
    if number == 0:  # the judge says that they are equal
        assert mixed == scored
        assert both_right == both_wrong == [(None, "dropped")] * 2
        assert len(judge.requests) == 6
    elif number == 1:
        assert [reward for reward, _ in mixed + formless] == [1.25, 0.25, 1.0, 1.0]
    elif number == 2:
        assert mixed == scored
        assert [reward for reward, _ in both_right] == [1.2, 1.2]
        assert both_wrong == [(None, "dropped")] * 2
    else:
        assert mixed == scored
        assert formless == [(0.0, "scored")] * 2
