"""What `judgekit serve` and `judgekit check` refuse, ask of the engines, and print."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from judgekit import ConfigError, JudgeUnavailable
from judgekit.cli import checkup, load
from judgekit.cli.checkup import CheckUp, check_up
from judgekit.judges.engines.engine_load import EngineLoad
from judgekit.judges.engines.openai import judge as openai_judge
from judgekit.judges.engines.ray import judge as ray_judge
from judgekit.judges.launch import supervise
from judgekit.judges.launch.state_file import read_state
from judgekit.testing import ScriptedJudge, prompt_text
from tests.judges.servers import free_port

from .in_process import call, refused

# fmt: off
REFUSED = [
    ("serve --engine grpc", "serve: --engine is ray or http, not 'grpc'"),
    ("serve --status --stop", "serve: give --status or --stop, not both"),
    ("serve --model ", "serve: --model is a folder, a Hugging Face name, or 'embedded', not ''"),
    ("serve --gpus 0.5", "serve: --gpus is a number above 0, for --engine ray"),
    ("serve --engine ray --gpus 0", "serve: --gpus is a number above 0, for --engine ray"),
    ("serve --engine-arg nonsense", "serve: --engine-arg is key=value, not 'nonsense'"),
    ("serve --engine-arg =1", "serve: --engine-arg is key=value, not '=1'"),
    ("serve --engine-arg a={b", "serve: --engine-arg a: '{b' is neither YAML nor JSON"),
    ("serve --model /no/such/model", "no model at /no/such/model"),
    ("serve --name ../x", "serve: --name is letters, digits"),
    ("serve --host 0.0.0.0", "serve: on --host 0.0.0.0 other machines can use the judge: set LLM_JUDGE_SERVER_API_KEY"),
    ("serve --replicas 0", "serve: --replicas and --tensor-parallel-size must be at least 1"),
    ("serve --port 0", "Invalid value for '--port'"),
    ("serve --port 65536", "Invalid value for '--port'"),
    ("serve --hang-timeout 0.5", "Invalid value for '--hang-timeout'"),
    ("check ", "check: give a Ray judge's name, or a server's URL"),
    ("check http://127.0.0.1:1 --burst 0", "Invalid value for '--burst'"),
]
# fmt: on


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_STATE", str(tmp_path / "state"))
    for name in ("LLM_JUDGE_SERVER_API_KEY", "VLLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("args", "says"), REFUSED)
def test_wrong_calls(tmp_path: Path, args: str, says: str) -> None:
    refused(tmp_path, args, says)


@pytest.mark.parametrize("flag", ["--status", "--stop"])
def test_nobody_is_shown_and_stopped(tmp_path: Path, flag: str) -> None:
    done = call(tmp_path, "serve", "--name", "nobody", flag)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "no judge named nobody is served from here\n"


# ---- http

Started = list[tuple[Sequence[supervise.Replica], float]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """What is given to the supervisor, which gets SIGTERM as soon as its servers run."""
    seen: Started = []

    @contextlib.asynccontextmanager
    async def supervised(
        servers: Sequence[supervise.Replica], *, hang_timeout_s: float
    ) -> AsyncIterator[None]:
        seen.append((servers, hang_timeout_s))
        assert read_state("judge") is not None  # so that --stop finds it
        os.kill(os.getpid(), signal.SIGTERM)
        yield

    monkeypatch.setattr(supervise, "_has_vllm", lambda: True)
    monkeypatch.setattr(supervise, "_gpus", list)
    monkeypatch.setattr(supervise, "supervise", supervised)
    return seen


def _spec(shown: str) -> dict[str, Any]:
    """The judge in the lines for reward.yaml."""
    found: dict[str, Any] = yaml.safe_load(shown.partition("reward.yaml\n")[2].partition("\nverl")[0])
    assert found["graders"]["judge"] == {"use": "judge", "judge": "judge"}
    judge: dict[str, Any] = found["judges"]["judge"]
    return judge


@pytest.mark.parametrize("replicas", [1, 2])
def test_servers_are_started_and_the_lines_that_use_them_are_shown(
    tmp_path: Path, started: Started, replicas: int
) -> None:
    port = free_port()
    done = call(
        tmp_path, "serve", "--port", str(port), "--replicas", str(replicas), "--hang-timeout", "7",
        "--api-key", "secret", "--engine-arg", "max-num-seqs=5", "--engine-arg", "seed=3",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (143, "")
    ((servers, hang_timeout_s),) = started
    urls = [f"http://127.0.0.1:{port + i}/v1" for i in range(replicas)]
    assert [server.url for server in servers] == urls
    assert hang_timeout_s == 7.0
    for server in servers:
        command = " ".join(server.command)
        assert "--max-num-seqs 5 --seed 3" in command
        assert "secret" not in command
        assert server.env["VLLM_API_KEY"] == "secret"
    lines = done.stdout.splitlines()
    assert lines[0].startswith(
        f"starting {replicas} server(s) for embedded (logs: {tmp_path / 'state'}/judge-0.log"
    )
    assert lines[-2:] == ["serving; stop with Ctrl-C", "stopped"]
    spec = _spec(done.stdout)
    assert spec["url"] == (urls[0] if replicas == 1 else urls)
    assert (spec["engine"], spec["model"]) == ("openai", "judge")
    assert Path(spec["tokenizer"], "tokenizer.json").is_file()  # prompts go as token ids
    assert f"export LLM_JUDGE_SERVER_URL={','.join(urls)}\n" in done.stdout
    assert f"    judgekit check {urls[0]}\n" in done.stdout
    assert read_state("judge") is None


def test_a_judge_is_served_once_by_its_name(
    tmp_path: Path, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    from judgekit.judges.launch import state_file

    written = state_file.write_state("judge", model="m", urls=["http://a/v1", "http://b/v1"], logs=[])
    done = call(tmp_path, "serve", "--port", str(free_port()))
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        "a judge named judge is already served; stop it with --stop, or choose another --name" in done.stderr
    )
    assert not started
    shown = call(tmp_path, "serve", "--status")
    assert shown.stdout == "judge: m at http://a/v1, http://b/v1\n"
    signals: list[tuple[int, int]] = []

    def end(pid: int, number: int) -> None:
        signals.append((pid, number))
        written.unlink()

    monkeypatch.setattr(state_file.os, "kill", end)
    assert call(tmp_path, "serve", "--stop").stdout == "judge is stopped\n"
    assert signals == [(os.getpid(), signal.SIGTERM)]


@pytest.mark.parametrize("args", [("--no-auth",), ("--api-key", "k")])
def test_other_machines_may_use_it_where_that_is_said(
    tmp_path: Path, started: Started, args: tuple[str, ...]
) -> None:
    done = call(tmp_path, "serve", "--host", "0.0.0.0", "--port", str(free_port()), *args)
    assert (done.returncode, done.stderr) == (143, "")
    assert len(started) == 1


# ---- ray


class FakeRay:
    """In place of a Ray cluster: what is asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: list[str] = []
        self.names: list[str] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.rows: list[dict[str, Any]] = []
        self.starts = 0
        monkeypatch.setattr(ray_judge, "connect", self.addresses.append)
        monkeypatch.setattr(ray_judge, "RayJudge", self.judge)
        monkeypatch.setattr(ray_judge, "start_ray_judge", self.start_judge)

    def judge(self, name: str) -> FakeRay:
        self.names.append(name)
        return self

    def start_judge(self, model: str, **given: Any) -> FakeRay:
        self.calls.append((model, given))
        return self

    async def start(self) -> None:
        self.starts += 1

    async def status(self) -> list[dict[str, Any]]:
        return self.rows

    async def stop(self) -> int:
        return 2


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    return FakeRay(monkeypatch)


def test_ray_actors_are_started_and_outlive_the_command(tmp_path: Path, ray: FakeRay) -> None:
    done = call(
        tmp_path, "serve", "--engine", "ray", "--model", "org/m", "--name", "judge", "--replicas", "3",
        "--tensor-parallel-size", "2", "--gpus", "0.5", "--address", "head:1", "--python", "/p", "--engine-arg", "a=[1]",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert (ray.addresses, ray.names, ray.starts) == (["head:1"], ["judge"], 1)
    assert ray.calls == [
        (
            "org/m",
            {
                "name": "judge",
                "replicas": 3,
                "tensor_parallel_size": 2,
                "gpus": 0.5,
                "lifetime": "detached",
                "options": {"engine_args": {"a": [1]}},
                "python": "/p",
            },
        )
    ]
    assert done.stdout.startswith("starting 3 replica(s) of org/m …\n")
    assert _spec(done.stdout) == {"engine": "ray", "name": "judge"}
    assert "LLM_JUDGE_SERVER_URL" not in done.stdout
    assert done.stdout.endswith("    judgekit check judge\n")


def test_without_options_the_ray_judge_is_the_embedded_one(tmp_path: Path, ray: FakeRay) -> None:
    assert call(tmp_path, "serve", "--engine", "ray").returncode == 0
    ((model, given),) = ray.calls
    assert (model, given["replicas"], given["gpus"], given["options"]) == ("embedded", 1, None, {})
    assert ray.addresses == ["auto"]


def test_the_actors_of_a_name_are_shown_and_stopped(tmp_path: Path, ray: FakeRay) -> None:
    args = ("serve", "--engine", "ray", "--name", "j")
    assert call(tmp_path, *args, "--status").stdout == "no judge named j runs in this cluster\n"
    ray.rows = [
        {"actor": "j:0", "config": {"options": {"model": "m"}}, "in_flight": 1, "served": 9, "pid": 77},
        {"actor": "j:1", "error": "ActorDiedError: gone"},
    ]
    assert call(tmp_path, *args, "--status").stdout == (
        "j:0: m, 1 in flight, 9 served, pid 77\nj:1: ActorDiedError: gone\n"
    )
    assert call(tmp_path, *args, "--stop").stdout == "2 replica(s) of j stopped\n"
    assert (set(ray.names), ray.calls, ray.starts) == ({"j"}, [], 0)


# ---- check


class Checked:
    """In place of a running judge."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.events: list[str] = []

    def of(self, target: str, **options: Any) -> Checked:
        self.made.append((target, options))
        return self

    async def start(self) -> None:
        self.events.append("start")

    async def close(self) -> None:
        self.events.append("close")


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Checked:
    made = Checked()
    monkeypatch.setattr(openai_judge, "OpenAIJudge", made.of)
    monkeypatch.setattr(ray_judge, "RayJudge", made.of)
    monkeypatch.setattr(ray_judge, "connect", lambda address: made.events.append(f"connect {address}"))
    return made


FOUND = CheckUp("m", "right answer 0.900, wrong answer 0.100", 12.34, 0.25, [])


@pytest.mark.parametrize(
    ("target", "args", "events", "made"),
    [
        ("http://h:1/v1", ("--model", "x"), [], ("http://h:1/v1", {"model": "x"})),
        ("h:1", (), [], ("h:1", {"model": None})),
        ("h/v1", (), [], ("h/v1", {"model": None})),
        ("judge", ("--address", "head:1"), ["connect head:1"], ("judge", {})),
        ("judge", (), ["connect auto"], ("judge", {})),
    ],
)
def test_a_target_is_a_server_or_actors(
    tmp_path: Path, checked: Checked, monkeypatch: pytest.MonkeyPatch,
    target: str, args: tuple[str, ...], events: list[str], made: Any,
) -> None:  # fmt: skip
    bursts: list[int] = []

    async def check(judge: Any, *, burst: int) -> CheckUp:
        assert judge is checked
        bursts.append(burst)
        return FOUND

    monkeypatch.setattr(checkup, "check_up", check)
    done = call(tmp_path, "check", target, *args)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "model       m\n"
        "verdicts    right answer 0.900, wrong answer 0.100\n"
        "throughput  12.3 verdicts/s in a burst of 64\n"
        "prefix      25 % of the prompt tokens came from the cache\n"
        "prompts     rollouts' texts reach the model as they were sent\n"
    )
    assert checked.made == [made]
    assert checked.events == [*events, "start", "close"]
    assert bursts == [64]


def test_what_is_wrong_with_a_judge_is_said_and_exits_with_1(
    tmp_path: Path, checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(judge: Any, *, burst: int) -> CheckUp:
        return CheckUp("m", "…", 1.0, 0.0, ["a", "b", "c", "d"], "no template", "at most 3 requests")

    monkeypatch.setattr(checkup, "check_up", check)
    done = call(tmp_path, "check", "http://h:1", "--burst", "3")
    assert done.returncode == 1
    assert done.stderr == "judgekit: some verdicts failed: a; b; c\n"
    assert "in a burst of 3\n" in done.stdout
    assert "prompts     unverified: no template\nengine      at most 3 requests\n" in done.stdout
    assert "reach the model as they were sent" not in done.stdout


def test_a_judge_is_closed_where_checking_it_fails(
    tmp_path: Path, checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(judge: Any, *, burst: int) -> CheckUp:
        raise ConfigError("no such model")

    monkeypatch.setattr(checkup, "check_up", check)
    done = call(tmp_path, "check", "http://h:1")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "judgekit: no such model\n")
    assert checked.events == ["start", "close"]


async def test_a_judge_is_asked_about_both_answers_and_then_a_burst() -> None:
    judge = ScriptedJudge(lambda request: "0" if "3 and 8 are 11" in prompt_text(request) else "1")
    found = await check_up(judge, burst=5)
    assert found.verdict == "right answer 1.000, wrong answer 0.000"
    assert len(judge.requests) == 2 + 5
    assert found.failures == []
    assert found.per_second > 0
    assert (found.cached, found.unverified, found.engine) == (0.0, "", "")


async def test_a_failure_is_told_once_and_is_no_verdict() -> None:
    def refuse(request: Any) -> str:
        raise ValueError("no")

    found = await check_up(ScriptedJudge(refuse), burst=4)
    assert found.verdict == "right answer no verdict, wrong answer no verdict"
    assert len(found.failures) == 1
    assert found.failures[0].endswith("no")
    assert found.per_second == 0


# ---- the engine's load


class Engine:
    """An engine whose server tells its load: each of *loads* once, and the last one from then on."""

    def __init__(self, *loads: EngineLoad | None) -> None:
        self.loads = list(loads)
        self.looked = 0

    async def load(self) -> EngineLoad | None:
        self.looked += 1
        return self.loads.pop(0) if len(self.loads) > 1 else self.loads[0]

    def __str__(self) -> str:
        return "engine e"


async def test_the_most_of_each_figure_is_told_and_the_cache_s_hits_in_between() -> None:
    engine = Engine(EngineLoad(1, 9, 100, 50), EngineLoad(3, 0, 300, 200))
    async with load.watched([engine], every_s=60) as (seen,):
        assert engine.looked == 1
    assert seen.as_json() == {
        "engine": "engine e",
        "running_peak": 3,
        "waiting_peak": 9,
        "prefix_hit_rate": 0.75,
    }
    assert str(seen) == "at most 3 requests running and 9 waiting; prefix cache hits in it: 75 %"


async def test_it_is_looked_at_again_and_again_until_the_end() -> None:
    engine = Engine(EngineLoad(0, 0), EngineLoad(5, 0), EngineLoad(0, 0))
    looked = engine.looked
    async with load.watched([engine], every_s=0) as (seen,):
        while engine.looked < 5:
            await asyncio.sleep(0)
    looked = engine.looked
    for _ in range(5):
        await asyncio.sleep(0)
    assert engine.looked == looked
    assert seen.as_json() == {
        "engine": "engine e",
        "running_peak": 5,
        "waiting_peak": 0,
        "prefix_hit_rate": None,
    }
    assert str(seen) == "at most 5 requests running and 0 waiting"


@pytest.mark.parametrize("judge", [Engine(None), object()])
async def test_an_engine_that_tells_nothing_is_asked_once(judge: Any) -> None:
    async with load.watched([judge], every_s=0) as (seen,):
        for _ in range(5):
            await asyncio.sleep(0)
    assert (seen.as_json(), str(seen)) == (None, "")
    assert getattr(judge, "looked", 1) == 1


async def test_a_server_that_is_away_for_a_while_is_asked_again() -> None:
    class Away(Engine):
        async def load(self) -> EngineLoad | None:
            found = await super().load()
            if self.looked == 2:
                raise JudgeUnavailable("away")
            return found

    engine = Away(EngineLoad(1, 0), EngineLoad(1, 0), EngineLoad(4, 0))
    async with load.watched([engine], every_s=0) as (seen,):
        while engine.looked < 3:
            await asyncio.sleep(0)
    assert seen.as_json() is not None
    assert "at most 4 requests running" in str(seen)


async def test_of_an_engine_s_layers_the_engine_is_watched() -> None:
    class Layered:
        engine = Engine(EngineLoad(2, 1, 10, 5))

    async with load.watched([Layered()], every_s=60) as (seen,):
        pass
    assert seen.name == "engine e"
    assert str(seen) == "at most 2 requests running and 1 waiting; prefix cache hits since its start: 50 %"
