"""Every launch script of examples/skyrl, started with bash, up to steps of SkyRL's own trainers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from judgekit import Rollout
from judgekit.config import load_runner
from stand_ins import make_tokenizer
from under_test import VERSION

pytestmark = pytest.mark.skipif(VERSION < "0.3", reason="its configuration has fewer keys")
HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples" / "skyrl"
SCRIPTS = sorted(EXAMPLES.glob("run_*.sh"))
STEPS = 2
SIZES = [f"trainer.max_training_steps={STEPS}", "generator.sampling_params.max_generate_length=8"]


class _API(BaseHTTPRequestHandler):
    """A server with OpenAI's API whose model gives 5 of 10."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = json.dumps(body["messages"])
        self.asked.append(text)
        line = re.findall(r"### Final Score \[\w+\]", text)[-1]
        message = {"role": "assistant", "content": f"Right, but muddled.\n{line}: 5"}
        self._send({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {}})

    def do_GET(self) -> None:
        self._send({"data": [{"id": "gpt-4o-mini"}]})

    def _send(self, answer: Any) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def api() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _API)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer, and data from examples/skyrl/make_data.py."""
    folder = tmp_path_factory.mktemp("prepared")
    make_tokenizer(folder / "model")
    for name, count in (("train", 48), ("validation", 4)):
        rows = [{"question": f"How many is {i}?", "answer": f"It is {i}.\n#### {i}"} for i in range(count)]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = ["--train", folder / "train.jsonl", "--validation", folder / "validation.jsonl"]
    subprocess.run([sys.executable, EXAMPLES / "make_data.py", "--out", folder / "data", *given], check=True)
    return folder


def launch(script: Path, folder: Path, prepared: Path, arguments: list[str], **more: str) -> str:
    """Run the script, with `python` leading to on_cpu.py; returns what it printed."""
    copy = shutil.copytree(EXAMPLES, folder / "examples")  # ledgers lie beside reward.yaml
    bin = folder / "bin"
    bin.mkdir()
    real = f'exec {sys.executable} {HERE / "on_cpu.py"} "$@"'
    fakes = {"python": f'[ "$1 $2" = "-m judgekit_skyrl.main" ] || exit 9\nshift 2\n{real}', "ray": "true"}
    for name, does in fakes.items():
        (bin / name).write_text(f"#!/bin/sh\n{does}\n")
        (bin / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{bin}:{os.environ['PATH']}",
        "MODEL": str(prepared / "model"),
        "DATA": str(prepared / "data"),
        "ROWS": str(folder / "rows.json"),
        **more,
    }
    done = subprocess.run(
        ["bash", str(copy / script.name), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_trains(script: Path, tmp_path: Path, prepared: Path, api: str) -> None:
    """bash, SkyRL's validation, the data, the reward, the trainer: with nothing changed but sizes."""
    paths = [f"trainer.{key}={tmp_path}" for key in ("export_path", "ckpt_path", "log_path")]
    more = {"LLM_JUDGE_SERVER_URL": api, "LLM_JUDGE_SERVER_API_KEY": "k"}
    launch(script, tmp_path, prepared, [*SIZES, *paths], **more)
    rows = json.loads((tmp_path / "rows.json").read_text())
    trained = [row for row in rows if "judgekit/rollouts" in row]
    assert len(trained) == STEPS
    counts = [row["judgekit/rollouts"] for row in trained]
    if (
        "async" in script.stem
    ):  # generation runs ahead: a step's figures are of what was graded since the last one
        assert sum(counts) >= 64 * STEPS
    else:
        assert set(counts) == {40 if "api" in script.stem else 64}
    assert {row["judgekit/scored_rate"] for row in trained} == {1.0}
    name, mean = (
        ("correct", 0.0) if "rule" in script.stem else ("judge", 0.5 if "api" in script.stem else 1.0)
    )
    assert [row[f"judgekit/{name}/mean"] for row in trained] == [mean] * STEPS
    assert [row[f"environment/judgekit/{name}_mean"] for row in trained] == [mean] * STEPS
    if "judge_local" in script.stem:
        served = json.loads((tmp_path / "rows.json.judge").read_text())
        assert served["model"] == "Qwen/Qwen2.5-1.5B-Instruct"
        assert (served["replicas"], served["tensor_parallel_size"], served["gpus"]) == (1, 1, None)
        assert served["options"] == {"max_model_len": 8192}


def test_the_api_script_asks_for_its_key(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LLM_JUDGE")}
    done = subprocess.run(
        ["bash", EXAMPLES / "run_api_judge.sh"], env=environment, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "put the key into judge.env" in done.stderr


def test_rules_demand_the_format() -> None:
    """As the reference's do: that is why the curve of rules starts near 0."""
    runner = load_runner(EXAMPLES / "reward_rules.yaml")
    responses = ["72 clips altogether.", "#### 72", "The answer is 72. #### 71"]
    rollouts = [Rollout(prompt="?", response=r, ground_truth="40+32 = 72\n#### 72") for r in responses]
    assert [result.reward for result in runner.run_sync(rollouts)] == [0.0, 1.0, 0.0]


def test_the_api_judge_is_asked_for_grades_in_between(
    monkeypatch: pytest.MonkeyPatch, api: str, tmp_path: Path
) -> None:
    """What is written down: that a model follows it is not tested here."""
    monkeypatch.setenv("LLM_JUDGE_SERVER_URL", api)
    monkeypatch.setenv("LLM_JUDGE_SERVER_API_KEY", "k")
    for name in ("reward_api_judge.yaml", "graded.txt"):  # the ledger lies beside them
        (tmp_path / name).write_text((EXAMPLES / name).read_text())
    runner = load_runner(tmp_path / "reward_api_judge.yaml")
    (result,) = runner.run_sync([Rollout(prompt="2+2?", response="4, muddled", ground_truth="#### 4")])
    assert result.reward == 0.5
    asked = _API.asked[-1]
    assert "the answer is right, but steps are missing" in asked
    assert "do not matter" not in asked
