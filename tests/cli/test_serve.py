"""`judgekit serve` with a stand-in for vLLM, and `judgekit check`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from judgekit.execution.watchdog import start_time
from tests.judges.fake_server import FakeServer
from tests.judges.servers import STAND_IN, alive, eventually, facts, free_port

from .command import refused, run

Serve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts `judgekit serve`, with the stand-in in place of vLLM and a state folder of its own."""
    monkeypatch.setenv("JUDGEKIT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(STAND_IN), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    started = []

    def start(*args: str, **env: str) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            [sys.executable, "-m", "judgekit", "serve", *args],
            cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(made)
        return made

    yield start
    for made in started:
        if made.poll() is None:
            made.kill()
        made.communicate()


def logged_pids(folder: Path) -> list[int]:
    """Ids of the server and its child, from the server's log."""
    text = (folder / "state" / "judge-0.log").read_text()
    return [int(word) for line in text.splitlines() if line.startswith("pids") for word in line.split()[1:]]


@pytest.mark.parametrize(("sig", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_judge_and_its_servers(serve: Serve, tmp_path: Path, sig: int, code: int) -> None:
    port = free_port()
    supervisor = serve("--port", str(port), "--replicas", "1")
    pids = eventually(lambda: facts(port))["pids"]
    assert supervisor.stdout is not None
    shown = ""
    while "serving; stop with Ctrl-C" not in (line := supervisor.stdout.readline()):
        assert line
        shown += line
    spec = yaml.safe_load(shown.partition("reward.yaml\n")[2].partition("\nverl")[0])["judges"]["judge"]
    assert Path(spec["tokenizer"], "tokenizer.json").is_file()  # prompts go as token ids
    supervisor.send_signal(sig)
    said, wrong = supervisor.communicate(timeout=30)
    assert (supervisor.returncode, wrong) == (code, "")
    assert said == "stopped\n"
    assert alive(pids) == []
    assert not (tmp_path / "state" / "judge.json").exists()


@pytest.mark.parametrize(("sig", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_judge_that_is_starting(serve: Serve, tmp_path: Path, sig: int, code: int) -> None:
    """A14: at once, and not after the 900 s that a start may take."""
    supervisor = serve("--port", str(free_port()), STAND_IN="slow")
    pids = eventually(lambda: logged_pids(tmp_path))
    start = time.monotonic()
    supervisor.send_signal(sig)
    _, wrong = supervisor.communicate(timeout=30)
    assert (supervisor.returncode, wrong) == (code, "")
    assert time.monotonic() - start < 8
    assert alive(pids) == []


def test_kill_9_of_the_supervisor_ends_its_servers(serve: Serve, tmp_path: Path) -> None:
    port = free_port()
    supervisor = serve("--port", str(port))
    pids = eventually(lambda: facts(port))["pids"]
    assert supervisor.stdout is not None
    while "serving; stop with Ctrl-C" not in supervisor.stdout.readline():
        pass
    time.sleep(1)  # the child, too, is registered
    supervisor.kill()
    assert eventually(lambda: not alive(pids))
    done = run(tmp_path, "serve", "--status")
    assert "no judge named judge is served from here" in done.stdout


def test_status_and_stop(serve: Serve, tmp_path: Path) -> None:
    port = free_port()
    supervisor = serve("--port", str(port), "--api-key", "secret")
    found = eventually(lambda: facts(port))
    assert found["key"] == "secret"
    assert "secret" not in " ".join(found["argv"])
    assert f"judge: embedded at http://127.0.0.1:{port}/v1" in run(tmp_path, "serve", "--status").stdout
    refused(
        run(tmp_path, "serve", "--port", str(free_port())), "a judge named judge is already served", tmp_path
    )
    assert run(tmp_path, "serve", "--stop").stdout == "judge is stopped\n"
    assert supervisor.wait(10) == 143
    assert alive(found["pids"]) == []
    assert run(tmp_path, "serve", "--stop").stdout == "no judge named judge is served from here\n"


def test_stop_leaves_a_process_alone_that_has_got_the_id(serve: Serve, tmp_path: Path) -> None:
    """A14: the recorded process has ended, and its id was given to another."""
    state: dict[str, Any] = {"model": "m", "urls": [], "logs": []}
    innocent = subprocess.Popen(["sleep", "60"])
    try:
        started = start_time(innocent.pid)
        assert started is not None
        (tmp_path / "state").mkdir()
        (tmp_path / "state/judge.json").write_text(
            json.dumps(state | {"pid": innocent.pid, "started": started - 1})
        )
        assert "no judge named judge" in run(tmp_path, "serve", "--stop").stdout
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_a_server_that_does_not_start_is_one_sentence(serve: Serve, tmp_path: Path) -> None:
    supervisor = serve("--port", str(free_port()), STAND_IN="broken")
    _, wrong = supervisor.communicate(timeout=30)
    log = tmp_path / "state" / "judge-0.log"
    assert supervisor.returncode == 1
    assert wrong.endswith(f"did not start: ValueError: no such weights (full output: {log})\n")
    assert wrong.count("\n") == 1
    assert "ValueError: no such weights" in log.read_text()


def test_a_server_that_is_started_again_is_a_line_with_its_time(serve: Serve, tmp_path: Path) -> None:
    port = free_port()
    supervisor = serve("--port", str(port), "--host", "0.0.0.0", "--no-auth")
    pids = eventually(lambda: facts(port))["pids"]
    assert supervisor.stdout is not None
    while "serving; stop with Ctrl-C" not in supervisor.stdout.readline():
        pass
    os.kill(pids[0], signal.SIGKILL)
    assert supervisor.stderr is not None
    line = supervisor.stderr.readline()
    assert line[2] == ":"
    assert f"WARNING the server on port {port} has exited" in line
    assert eventually(lambda: facts(port)["pids"] != pids)


async def test_check_of_a_server_and_of_none(files: Path) -> None:
    async with FakeServer() as server:
        done = await asyncio.to_thread(run, files, "check", server.url, "--burst", "4")
        assert (done.returncode, done.stderr) == (0, "")
        assert "model       /models/judge at http://127.0.0.1:" in done.stdout
        assert "throughput" in done.stdout
        url = server.url
    done = await asyncio.to_thread(run, files, "check", url)
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr
