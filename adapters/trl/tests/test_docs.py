"""The README's blocks, with a model that is made here; and the example."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from judgekit import Rollout, Skipped, read_ledger
from judgekit.config import load_runner
from toy_training import policy, tokenizer

ROOT = Path(__file__).parents[3]
README = (ROOT / "adapters" / "trl" / "README.md").read_text()
ON_CPU = {"use_cpu": True, "bf16": False, "max_steps": 1, "report_to": "none", "max_completion_length": 4}


def block(language: str, place: int = 0) -> str:
    return str(re.findall(rf"```{language}\n(.*?)```", README, re.S)[place])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    words = tokenizer()
    words.save_pretrained(folder)
    policy(words, 0).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("algorithm", ["GRPO", "RLOO"])
def test_the_readme(algorithm: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reward.yaml").write_text(block("yaml"))
    Path("train.jsonl").write_text(block("json") * 8)
    changed = ", ".join(f"{name}={value!r}" for name, value in ON_CPU.items())
    program = block("python").replace("GRPO", algorithm)
    program = program.replace("Qwen/Qwen2.5-0.5B-Instruct", str(model)).replace(
        "Config(", f"Config({changed}, "
    )
    found: dict[str, Any] = {}
    exec(compile(program, "README", "exec"), found)
    (row,) = [row for row in found["trainer"].state.log_history if "judgekit/rollouts" in row]
    assert row["judgekit/scored_rate"] == 1.0
    assert "judgekit/correct/mean" in row
    entries = read_ledger("ledger.jsonl").entries
    assert {(entry.tags["phase"], entry.tags["global_step"]) for entry in entries} == {("train", 0)}


def test_the_terms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = block("yaml")
    Path("reward.yaml").write_text(
        text.replace('gate: {if: "correct >= 1", then: ', "").replace(", otherwise: 0}", "")
    )
    found: dict[str, Any] = {}
    exec(
        compile(block("python", 1).replace("Config(", "Config(use_cpu=True, bf16=False, "), "README", "exec"),
        found,
    )
    assert [term.__name__ for term in found["terms"]] == ["correct", "brief"]
    assert found["config"].reward_weights == [0.9, 0.1]


def test_the_named_column() -> None:
    """That it is what the README says is tested in test_reward.py."""
    assert 'judgekit_reward("reward.yaml", ground_truth="label")' in README


class _API(BaseHTTPRequestHandler):
    """A server with OpenAI's API whose model gives 5 of 10."""

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["content-length"])).decode()
        line = re.findall(r"### Final Score \[\w+\]", text)[-1]
        message = {"role": "assistant", "content": f"{line}: 5"}
        self._send({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {}})

    def do_GET(self) -> None:
        self._send({"data": [{"id": "judge"}]})

    def _send(self, answer: Any) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def api() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _API)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def test_the_judge_of_the_example(tmp_path: Path, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked about right solutions only."""
    monkeypatch.setenv("LLM_JUDGE_SERVER_URL", api)
    for name in ("reward_judge.yaml", "clear.txt"):  # the ledger lies beside them
        (tmp_path / name).write_bytes((ROOT / "examples" / "trl" / name).read_bytes())
    runner = load_runner(tmp_path / "reward_judge.yaml")
    rollouts = [Rollout(prompt="6*7?", response=f"#### {n}", ground_truth="#### 42") for n in (42, 41)]
    right, wrong = runner.run_sync(rollouts)
    assert (right.reward, wrong.reward) == (pytest.approx(0.85), 0.0)
    assert isinstance(wrong.grades["clear"], Skipped)


@pytest.mark.parametrize("reward", ["reward_rules.yaml", "reward_judge.yaml"])
def test_the_example(reward: str, model: Path, tmp_path: Path, api: str) -> None:
    for file in (ROOT / "examples" / "trl").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    rows = [{"question": f"{i}?", "answer": f"#### {i}"} for i in range(8)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = {
        "model": model,
        "reward": reward,
        "train": "rows.jsonl",
        "validation": "rows.jsonl",
        "output_dir": "out",
    }
    options |= ON_CPU | {"logging_steps": 1, "num_generations": 8, "eval_strategy": "steps", "eval_steps": 1}
    done = subprocess.run(
        [
            sys.executable,
            "grpo.py",
            *(text for key, value in options.items() for text in (f"--{key}", str(value))),
        ],
        cwd=tmp_path,
        env={**os.environ, "LLM_JUDGE_SERVER_URL": api, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "'judgekit/correct/mean'" in done.stdout
    assert "'eval_judgekit/scored_rate': '1'" in done.stdout
    assert {entry.status for entry in read_ledger(tmp_path / "ledger.jsonl").entries} == {"scored"}
