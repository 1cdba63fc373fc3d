"""`judgekit serve` and `check` in this process: what they start, say and stop, with stand-ins for servers and for a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from judgekit import JudgeUnavailable
from judgekit.cli import checkup, serve
from judgekit.cli.checkup import CheckUp, check_up
from judgekit.errors import ConfigError
from judgekit.judges.engines.openai import judge as openai_judge
from judgekit.judges.engines.ray import judge as ray_judge
from judgekit.judges.engines.vllm import judge as vllm_judge
from judgekit.judges.launch import state_file, supervise
from judgekit.testing import ScriptedJudge

from .in_process import call, refused


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_STATE", str(tmp_path / "state"))
    for name in ("LLM_JUDGE_SERVER_API_KEY", "VLLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Stands in for vLLM's servers; holds what they were asked for, and what was seen while they ran."""
    seen: dict[str, Any] = {}

    def replicas(model: str, **options: Any) -> list[Any]:
        seen.update(model=model, **options)
        return [
            SimpleNamespace(url=f"http://127.0.0.1:{options['port'] + i}", log=tmp_path / f"{i}.log")
            for i in range(options["replicas"])
        ]

    @asynccontextmanager
    async def supervised(servers: Sequence[Any], *, hang_timeout_s: float) -> AsyncIterator[None]:
        seen.update(servers=len(servers), hang_timeout_s=hang_timeout_s)
        seen["facts"] = state_file.read_state(seen["name"])
        seen["told"] = call(tmp_path, "serve", "--name", seen["name"], "--status").stdout
        seen["twice"] = call(tmp_path, "serve", "--name", seen["name"])
        yield

    async def ends() -> None:
        raise JudgeUnavailable("the servers are gone")

    monkeypatch.setattr(supervise, "http_replicas", replicas)
    monkeypatch.setattr(supervise, "supervise", supervised)
    monkeypatch.setattr(vllm_judge, "model_path", lambda model: f"/models/{model}")
    monkeypatch.setattr(serve.anyio, "sleep_forever", ends)
    return seen


def pasted(text: str) -> Any:
    """The judge in the lines for reward.yaml."""
    lines = text.partition("reward.yaml\n")[2].partition("verl (")[0]
    return yaml.safe_load("\n".join(line[4:] for line in lines.splitlines()))


def test_servers_are_started_told_of_and_forgotten(served: dict[str, Any], tmp_path: Path) -> None:
    done = call(
        tmp_path, "serve", "--model", "qwen", "--name", "mine", "--replicas", "2", "--tensor-parallel-size", "4",
        "--port", "9000", "--api-key", "k", "--host", "0.0.0.0", "--hang-timeout", "7",
        "--engine-arg", "max_model_len=100", "--engine-arg", "a=[1, x]", "--engine-arg", "b=",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "judgekit: the servers are gone\n")
    assert served["model"] == "qwen"
    asked = {
        key: served[key] for key in ("name", "replicas", "tensor_parallel_size", "host", "port", "api_key")
    }
    assert asked == {
        "name": "mine", "replicas": 2, "tensor_parallel_size": 4, "host": "0.0.0.0", "port": 9000, "api_key": "k",
    }  # fmt: skip
    assert served["engine_args"] == {"max_model_len": 100, "a": [1, "x"], "b": None}
    assert (served["servers"], served["hang_timeout_s"]) == (2, 7.0)
    urls = ["http://127.0.0.1:9000", "http://127.0.0.1:9001"]
    assert (served["facts"]["model"], served["facts"]["urls"]) == ("qwen", urls)
    assert served["facts"]["logs"] == [str(tmp_path / "0.log"), str(tmp_path / "1.log")]
    assert served["told"] == f"mine: qwen at {urls[0]}, {urls[1]}\n"
    assert served["twice"].returncode == 2
    assert "a judge named mine is already served; stop it with --stop" in served["twice"].stderr
    assert f"starting 2 server(s) for qwen (logs: {tmp_path}/0.log, {tmp_path}/1.log) …" in done.stdout
    assert pasted(done.stdout) == {
        "judges": {"mine": {"engine": "openai", "url": urls, "model": "mine", "tokenizer": "/models/qwen"}},
        "graders": {"judge": {"use": "judge", "judge": "mine"}},
    }
    assert f"export LLM_JUDGE_SERVER_URL={','.join(urls)}\n" in done.stdout
    assert done.stdout.endswith(f"judgekit check {urls[0]}\nserving; stop with Ctrl-C\nstopped\n")
    assert state_file.read_state("mine") is None
    assert (
        "no judge named mine is served from here"
        in call(tmp_path, "serve", "--name", "mine", "--status").stdout
    )
    assert (
        "no judge named mine is served from here"
        in call(tmp_path, "serve", "--name", "mine", "--stop").stdout
    )


def test_what_is_served_where_nothing_is_said(served: dict[str, Any], tmp_path: Path) -> None:
    done = call(tmp_path, "serve")
    asked = {
        key: served[key]
        for key in ("model", "name", "replicas", "tensor_parallel_size", "host", "port", "api_key")
    }
    assert asked == {
        "model": "embedded", "name": "judge", "replicas": 1, "tensor_parallel_size": 1, "host": "127.0.0.1", "port": 8000,
        "api_key": None,
    }  # fmt: skip
    assert (served["engine_args"], served["hang_timeout_s"]) == ({}, 120.0)
    assert pasted(done.stdout)["judges"]["judge"]["url"] == "http://127.0.0.1:8000"


def test_a_judge_is_stopped_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "stop_supervisor", lambda name: name == "mine")
    assert call(tmp_path, "serve", "--name", "mine", "--stop").stdout == "mine is stopped\n"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--engine grpc", "serve: --engine is ray or http, not 'grpc'"),
        ("--status --stop", "serve: give --status or --stop, not both"),
        ("--model ", "serve: --model is a folder, a Hugging Face name, or 'embedded', not ''"),
        ("--gpus 1", "serve: --gpus is a number above 0, for --engine ray"),
        ("--engine ray --gpus 0", "serve: --gpus is a number above 0, for --engine ray"),
        ("--engine-arg nonsense", "serve: --engine-arg is key=value, not 'nonsense'"),
        ("--engine-arg =1", "serve: --engine-arg is key=value, not '=1'"),
        ("--engine-arg a={b", "serve: --engine-arg a: '{b' is neither YAML nor JSON"),
        ("--host 0.0.0.0", "serve: on --host 0.0.0.0 other machines can use the judge"),
    ],
)
def test_wrong_calls_of_serve(tmp_path: Path, args: str, says: str) -> None:
    refused(tmp_path, f"serve {args}", says)


def test_other_machines_are_served_without_a_key_on_request(served: dict[str, Any], tmp_path: Path) -> None:
    assert "serving" in call(tmp_path, "serve", "--host", "0.0.0.0", "--no-auth").stdout
    assert (served["host"], served["api_key"]) == ("0.0.0.0", None)


# ---- in a cluster


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stands in for a Ray cluster; holds what was asked of it."""
    seen: dict[str, Any] = {"rows": [], "calls": []}

    class Judge:
        def __init__(self, name: str) -> None:
            self.name = name

        async def status(self) -> list[dict[str, Any]]:
            seen["calls"].append(f"status {self.name}")
            return list(seen["rows"])

        async def stop(self) -> int:
            seen["calls"].append(f"stop {self.name}")
            return 3

        async def start(self) -> None:
            seen["calls"].append(f"start {self.name}")

        async def close(self) -> None:
            seen["calls"].append(f"close {self.name}")

    def start(model: str, **options: Any) -> Judge:
        seen.update(model=model, **options)
        return Judge(options["name"])

    monkeypatch.setattr(ray_judge, "connect", lambda address: seen["calls"].append(f"connect {address}"))
    monkeypatch.setattr(ray_judge, "RayJudge", Judge)
    monkeypatch.setattr(ray_judge, "start_ray_judge", start)
    return seen


def test_actors_are_started_in_a_cluster(cluster: dict[str, Any], tmp_path: Path) -> None:
    done = call(
        tmp_path, "serve", "--engine", "ray", "--model", "qwen", "--name", "mine", "--replicas", "2", "--gpus", "0.5",
        "--tensor-parallel-size", "4", "--address", "ray://x", "--python", "/p", "--engine-arg", "seed=1",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert cluster["calls"] == ["connect ray://x", "start mine"]
    del cluster["calls"], cluster["rows"]
    assert cluster == {
        "model": "qwen", "name": "mine", "replicas": 2, "tensor_parallel_size": 4, "gpus": 0.5, "lifetime": "detached",
        "options": {"engine_args": {"seed": 1}}, "python": "/p",
    }  # fmt: skip
    assert done.stdout.startswith("starting 2 replica(s) of qwen …\nreward.yaml\n")
    assert pasted(done.stdout)["judges"] == {"mine": {"engine": "ray", "name": "mine"}}
    assert done.stdout.endswith("check it with\n    judgekit check mine\n")
    assert "LLM_JUDGE_SERVER_URL" not in done.stdout


def test_actors_are_shown_and_stopped(cluster: dict[str, Any], tmp_path: Path) -> None:
    status = ("serve", "--engine", "ray", "--name", "mine", "--status")
    assert call(tmp_path, *status).stdout == "no judge named mine runs in this cluster\n"
    cluster["rows"] = [
        {"actor": "mine-0", "config": {"options": {"model": "qwen"}}, "in_flight": 2, "served": 7, "pid": 11},
        {"actor": "mine-1", "error": "it is dead"},
    ]
    assert call(tmp_path, *status).stdout == (
        "mine-0: qwen, 2 in flight, 7 served, pid 11\nmine-1: it is dead\n"
    )
    done = call(tmp_path, "serve", "--engine", "ray", "--name", "mine", "--stop")
    assert done.stdout == "3 replica(s) of mine stopped\n"
    assert cluster["calls"] == ["connect auto", "status mine"] * 2 + ["connect auto", "stop mine"]


# ---- check


def found(**changes: Any) -> CheckUp:
    given: dict[str, Any] = {
        "model": "qwen", "verdict": "right answer 1.000, wrong answer 0.000", "per_second": 12.34, "cached": 0.5, "failures": [],
    }  # fmt: skip
    return CheckUp(**(given | changes))


@pytest.mark.parametrize(
    ("changes", "lines", "failed"),
    [
        ({}, ["prompts     rollouts' texts reach the model as they were sent"], ""),
        ({"unverified": "no tokenizer"}, ["prompts     unverified: no tokenizer"], ""),
        (
            {"engine": "busy", "failures": ["a", "b", "c", "d"]},
            ["prompts     rollouts' texts reach the model as they were sent", "engine      busy"],
            "judgekit: some verdicts failed: a; b; c\n",
        ),
    ],
)
def test_what_a_check_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], lines: list[str], failed: str
) -> None:
    seen: list[Any] = []

    class Server:
        def __init__(self, url: str, *, model: str | None) -> None:
            seen.extend((url, model))

        async def start(self) -> None:
            seen.append("start")

        async def close(self) -> None:
            seen.append("close")

    async def checked(judge: Any, *, burst: int) -> CheckUp:
        seen.append(burst)
        return found(**changes)

    monkeypatch.setattr(openai_judge, "OpenAIJudge", Server)
    monkeypatch.setattr(checkup, "check_up", checked)
    done = call(tmp_path, "check", "http://x", "--burst", "4", "--model", "m")
    assert seen == ["http://x", "m", "start", 4, "close"]
    assert done.stdout.splitlines() == [
        "model       qwen", "verdicts    right answer 1.000, wrong answer 0.000",
        "throughput  12.3 verdicts/s in a burst of 4", "prefix      50 % of the prompt tokens came from the cache", *lines,
    ]  # fmt: skip
    assert (done.returncode, done.stderr) == (int(bool(failed)), failed)


def test_a_name_is_a_judge_of_the_cluster(
    cluster: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def checked(judge: Any, *, burst: int) -> CheckUp:
        cluster["calls"].append(f"check {judge.name} {burst}")
        raise ConfigError("no")

    monkeypatch.setattr(checkup, "check_up", checked)
    assert call(tmp_path, "check", "mine", "--address", "ray://x").returncode == 2
    assert cluster["calls"] == ["connect ray://x", "start mine", "check mine 64", "close mine"]
    refused(tmp_path, "check ", "check: give a Ray judge's name, or a server's URL")


async def test_a_check_asks_about_right_and_wrong_and_then_for_a_burst() -> None:
    judge = ScriptedJudge({"3 rows of 8 are 24": "1", "3 and 8 are 11": "0"}, default={"0": 0.25, "1": 0.75})
    made = await check_up(judge, burst=20, per_group=8)
    assert made.verdict == "right answer 1.000, wrong answer 0.000"
    assert len(judge.requests) == 22
    assert judge.peak_in_flight <= 20
    assert (made.failures, made.unverified, made.engine, made.cached) == ([], "", "", 0.0)
    problems = [text for one in judge.requests[2:] for text in ["".join(turn.text for turn in one.turns)]]
    assert {i: sum(f"Shelf {i}." in text for text in problems) for i in range(4)} == {0: 8, 1: 8, 2: 4, 3: 0}


async def test_a_check_of_a_judge_that_fails() -> None:
    made = await check_up(ScriptedJudge(JudgeUnavailable("down")), burst=3)
    assert made.verdict == "right answer no verdict, wrong answer no verdict"
    assert (made.failures, made.per_second) == (["JudgeUnavailable: down"], 0.0)
