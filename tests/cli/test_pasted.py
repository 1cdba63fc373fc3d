"""The commands that README and docs show run as they stand, in a folder with the files that they name."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ..evidence.audited_runs import REWARD, folder_of, write_run
from ..evidence.test_certify import labelled
from ..report.ledgers import some, write
from .command import CONFIG

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"serve", "check", "serve-rewards"}
"""Commands with servers; tests/cli/test_serve.py, test_serve_rewards.py and tests/vllm run them."""


def shown() -> list[tuple[str, str]]:
    """Every line of ours in the documentation's shell blocks."""
    found = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL):
            found += [(page.name, line) for line in block.splitlines() if line.startswith("judgekit ")]
    return [(page, line) for page, line in found if line.split()[1] not in ELSEWHERE and "--ray" not in line]


def test_they_are_found() -> None:
    commands = {line.split()[1] for _, line in shown()}
    others = {"init", "lint", "attack", "grade", "report", "view", "replay", "export"}
    assert commands == {"audit", "compare", "certify", *others}


@pytest.mark.parametrize(("page", "line"), shown())
def test_it_runs(tmp_path: Path, page: str, line: str) -> None:
    (tmp_path / "reward.yaml").write_text(CONFIG)
    (tmp_path / "rollouts.jsonl").write_text('{"response": "#### 4", "ground_truth": "4"}\n')
    judgekit = [sys.executable, "-m", "judgekit"]
    words = shlex.split(line, comments=True)[1:]
    if words[0] == "compare" and "--reward" in words:
        for name in ("new", "a", "b"):
            (tmp_path / f"{name}.yaml").write_text(CONFIG)
        grade = [*judgekit, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "ledger.jsonl"]
        subprocess.run(grade, cwd=tmp_path, check=True, capture_output=True)
    elif words[0] in ("report", "view", "compare", "export"):
        for name in ("ledger", "before", "after", "new"):
            write(tmp_path / f"{name}.jsonl", some(4))
        for name in ("a", "b"):
            (tmp_path / "runs" / name).mkdir(parents=True)
            write(tmp_path / "runs" / name / "ledger.jsonl", some(4))
    elif words[0] == "replay":
        (tmp_path / "texts.yaml").write_text(f"{CONFIG}ledger: {{path: ledger.jsonl, texts: true}}\n")
        grade = [*judgekit, "grade", "texts.yaml", "rollouts.jsonl"]
        subprocess.run(grade, cwd=tmp_path, check=True, capture_output=True)
    elif words[0] == "certify":
        labelled(tmp_path, 20)
    elif words[0] == "audit":  # of a hacked run; with `stop`, --follow ends at the alarm
        folder_of(tmp_path, REWARD.replace("share: 0.5", "share: 0.5, on_alarm: stop"))
        write_run(tmp_path / "ledger.jsonl", 6, hacked_from=0)
    elif words[0] == "attack":
        (tmp_path / "my_rewards.py").write_text(
            "def score(response, ground_truth):\n    return float(ground_truth in response)\n"
        )
    elif words[0] == "init":
        (tmp_path / "reward.yaml").unlink()
    if words[0] == "view":
        process = subprocess.Popen(
            [*judgekit, *words, "--no-browser"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert "http://127.0.0.1:" in process.stdout.readline()
        process.kill()
        process.communicate()
        return
    done = subprocess.run(
        [*judgekit, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    # an attack finds that this reward pays brevity without an answer, and the audited run alarms
    assert done.returncode == (1 if words[0] in ("attack", "audit") else 0), done.stderr
