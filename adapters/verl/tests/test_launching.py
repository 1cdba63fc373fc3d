"""Launch scripts, run as they stand: verl's trainer takes its first step on CPU, with a real judge's server where one is named.

Only sizes and what a machine without a GPU needs are overridden. The other scripts start their judge and their trainer as these
two do, or need verl and vLLM under one version of Ray, or a cluster: test_examples.py has verl check what they hand to it.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
from pathlib import Path

import pytest

from judgekit import Abstained, Failed, Graded, read_ledger
from tiny_policy import make_policy
from train_on_cpu import on_cpu, run

EXAMPLES = Path(__file__).parents[3] / "examples" / "verl"
VLLM = Path(sys.prefix).parent / "vllm" / "bin" / "python"
PROMPTS, GROUP = 2, 4

# a judge's server and a trainer start one after the other, also on busy cores
pytestmark = pytest.mark.timeout(1500)


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """The examples, with a free port in place of 8000."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    copy = tmp_path / "verl"
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("*.jsonl", "*.log", "__pycache__"))
    for file in copy.iterdir():
        if file.is_file():
            text = file.read_text().replace("127.0.0.1:8000", f"127.0.0.1:{port}")
            file.write_text(text.replace("--port 8000", f"--port {port}"))
    return copy


def launch(scripts: Path, name: str) -> str:
    """Run a script to the end of its first step; what it printed."""
    folder = scripts.parent
    bin_ = folder / "bin"
    bin_.mkdir()
    (bin_ / "judgekit").write_text(f'#!/bin/sh\nexec {VLLM} -m judgekit "$@"\n')
    (bin_ / "judgekit").chmod(0o755)
    rows = [{"question": f"What is {i} + {42 - i}?", "answer": "It is 42.\n#### 42"} for i in range(8)]
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = [sys.executable, str(scripts / "make_data.py"), "gsm8k", "--train", str(file), "--test", str(file)]
    assert run([*made, "--out", str(folder / "data")], folder)[0] == 0
    sizes = on_cpu(make_policy(folder / "policy", weights=True), prompts=PROMPTS, group=GROUP, steps=1)
    status, text = run(
        ["bash", str(scripts / f"{name}.sh"), *(f"{key}={value}" for key, value in sizes.items())],
        folder,
        PATH=f"{bin_}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        DATA=str(folder / "data"),
        JUDGE="embedded",
        JUDGEKIT_STATE=str(folder / "state"),
    )
    assert status == 0, text[-6000:]
    assert "step:1 " in text, text[-6000:]
    return text


def test_rules(scripts: Path) -> None:
    text = launch(scripts, "run_rules")
    assert "judgekit/correct/mean" in text


@pytest.mark.skipif(not VLLM.exists(), reason="the vllm environment is not made (make env-vllm)")
def test_with_a_judges_server(scripts: Path) -> None:
    launch(scripts, "run_listwise")
    entries = read_ledger(scripts / "ledger.jsonl").entries
    assert len(entries) == PROMPTS * GROUP
    for entry in entries:
        grade = entry.grades["ranked"]
        # a judge with random weights was asked; it may have no order to give, or a verdict on one response of four alone
        match grade:
            case Graded() | Failed(error="VerdictError"):
                pass
            case _:
                assert isinstance(grade, Abstained), grade
                assert grade.usage, grade
                assert grade.usage.calls, grade
