"""Supervision of servers, with a stand-in for vLLM's: restarts, errors, cancellation, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from judgekit import ConfigError, JudgeUnavailable
from judgekit.execution.watchdog import descendants
from judgekit.judges.launch import supervise as serving
from judgekit.judges.launch.state_file import read_state, stop_supervisor, write_state
from judgekit.judges.launch.supervise import Replica, http_replicas, is_loopback, supervise

from .servers import STAND_IN, alive, eventually, facts, free_port

SERVER = STAND_IN / "vllm/entrypoints/openai/api_server.py"


def stand_in(mode: str = "", lines: list[str] | None = None) -> Replica:
    port = free_port()
    command = [sys.executable, "-S", str(SERVER), "--host", "127.0.0.1", "--port", str(port)]
    return Replica(command, port, env={"STAND_IN": mode}, write=None if lines is None else lines.append)


def pids_of(lines: list[str]) -> list[int]:
    """Ids of the servers and their children, from the first line that each server writes."""
    return [int(word) for line in lines if line.startswith("pids") for word in line.split()[1:]]


async def answers(port: int) -> list[int]:
    return await anyio.to_thread.run_sync(lambda: eventually(lambda: facts(port))["pids"])  # type: ignore[no-any-return]


async def test_servers_start_together_and_leave_no_process() -> None:
    made = [stand_in(), stand_in()]
    async with supervise(made, start_timeout_s=30):
        pids = [pid for replica in made for pid in facts(replica.port)["pids"]]
        assert alive(pids) == pids
        assert [replica.pid for replica in made] == pids[::2]
    assert alive(pids) == []
    assert not any(replica.running for replica in made)


async def test_a_server_that_exits_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    """Also where a child of it lives on and holds its output open, as an engine may."""
    lines: list[str] = []
    made = stand_in(lines=lines)
    async with supervise([made], start_timeout_s=30):
        first = facts(made.port)["pids"]
        os.kill(first[0], signal.SIGKILL)
        with anyio.fail_after(20):
            while made.starts < 2:
                await anyio.sleep(0.05)
        second = await answers(made.port)
        assert second[0] != first[0]
        assert alive(first) == []
    assert alive(pids_of(lines)) == []
    assert f"the server on port {made.port} has exited" in caplog.text
    assert "starting it again in 1 s" in caplog.text


async def test_a_server_that_does_not_start_is_an_error_with_its_last_error_lines() -> None:
    lines: list[str] = []
    good, bad = stand_in(lines=lines), stand_in("broken", lines)
    with pytest.raises(JudgeUnavailable, match=f"{bad.port} did not start: ValueError: no such weights"):
        async with supervise([good, bad], start_timeout_s=30):
            pytest.fail("one server is not there")
    assert bad.starts == 1
    assert alive(pids_of(lines)) == []


async def test_a_server_that_is_not_healthy_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_TERM_S", 0.2)
    lines: list[str] = []
    with pytest.raises(JudgeUnavailable, match="not healthy after 1 s"):
        async with supervise([stand_in("never", lines)], start_timeout_s=1):
            pytest.fail("no server is there")
    assert len(pids_of(lines)) == 2
    assert alive(pids_of(lines)) == []


async def test_cancelling_during_start_up_ends_the_servers_at_once() -> None:
    lines: list[str] = []
    start = time.monotonic()
    with anyio.move_on_after(60) as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_once, lines, tasks.cancel_scope)
            async with supervise([stand_in("slow", lines)], start_timeout_s=900):
                await anyio.sleep_forever()
    assert not scope.cancelled_caught
    assert time.monotonic() - start < 8
    assert alive(pids_of(lines)) == []


async def _cancel_once(lines: list[str], scope: anyio.CancelScope) -> None:
    while not pids_of(lines):
        await anyio.sleep(0.01)
    scope.cancel()


async def test_an_error_of_a_watcher_ends_everything_with_that_error() -> None:
    """A14: no server is left unwatched."""
    other, made = stand_in(), stand_in()
    pids: list[int] = []

    async def serve() -> None:
        async with supervise([other, made], start_timeout_s=30):
            pids.extend(facts(other.port)["pids"] + facts(made.port)["pids"])
            made.command = ["/no/such/program"]
            os.kill(pids[2], signal.SIGKILL)
            await anyio.sleep(60)

    start = time.monotonic()
    with pytest.raises(FileNotFoundError):
        await serve()
    assert time.monotonic() - start < 30
    assert alive(pids) == []


async def test_a_server_that_hangs_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    """B5: it runs, and answers no health check for longer than it may."""
    made = stand_in()
    async with supervise([made], start_timeout_s=30, hang_timeout_s=1):
        first = facts(made.port)["pids"]
        await anyio.sleep(2)
        assert made.starts == 1  # an idle server does not hang
        os.kill(first[0], signal.SIGSTOP)
        with anyio.fail_after(40):
            while made.starts < 2:
                await anyio.sleep(0.05)
        second = await answers(made.port)
        assert second[0] != first[0]
        assert alive(first) == []
    assert "hangs: no health check was answered for 1 s" in caplog.text


async def test_a_server_whose_engine_is_stuck_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    """It is healthy, and has a request; but one whose engine works on others' is only busy."""
    stuck, busy, well = stand_in("stuck"), stand_in("busy"), stand_in()
    async with supervise([stuck, busy, well], start_timeout_s=30, hang_timeout_s=1):
        with anyio.fail_after(40):
            while stuck.starts < 2:
                await anyio.sleep(0.05)
        await anyio.sleep(2)
        assert (busy.starts, well.starts) == (1, 1)
    assert f"the server on port {stuck.port} hangs: its engine has done no work for 1 s" in caplog.text


async def test_a_server_that_does_nothing_is_started_again_soon(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose engine is at work is given its time, and so is one that sleeps."""
    monkeypatch.setattr(serving, "_LOOK_S", 0.2)
    monkeypatch.setattr(serving, "_PROBE_S", 0.1)
    monkeypatch.setattr(serving, "_CHECK_S", 0.1)
    stuck, stopped, busy, asleep, well = map(stand_in, ("stuck", "", "busy", "asleep", ""))
    async with supervise([stuck, stopped, busy, asleep, well], start_timeout_s=30, hang_timeout_s=600):
        first = facts(stopped.port)["pids"]
        os.kill(first[0], signal.SIGSTOP)
        with anyio.fail_after(60):
            while stuck.starts < 2 or stopped.starts < 2:
                await anyio.sleep(0.05)
        assert alive(first) == []
        await anyio.sleep(1)
        assert (busy.starts, asleep.starts, well.starts) == (1, 1, 1)
    assert f"port {stuck.port} hangs: its engine does nothing, with a request waiting" in caplog.text
    assert f"port {stopped.port} hangs: it does nothing, and answers no health check" in caplog.text


async def test_a_server_that_sleeps_does_not_hang() -> None:
    """It answers nothing while a trainer has its GPU, and must not be started again there."""
    asleep, stuck = stand_in("asleep"), stand_in("stuck")
    async with supervise([asleep, stuck], start_timeout_s=30, hang_timeout_s=1):
        with anyio.fail_after(40):
            while stuck.starts < 2:
                await anyio.sleep(0.05)
        await anyio.sleep(1)
        assert asleep.starts == 1


async def test_a_server_that_hangs_while_it_is_started_again_is_ended(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_TERM_S", 0.2)
    made = stand_in()
    async with supervise([made], start_timeout_s=2):
        first = facts(made.port)["pids"]
        made.env["STAND_IN"] = "never"
        os.kill(first[0], signal.SIGKILL)
        with anyio.fail_after(40):
            while made.starts < 3:
                await anyio.sleep(0.05)
        made.env["STAND_IN"] = ""
        assert await answers(made.port)
    assert "is not healthy after 2 s; starting it again" in caplog.text


async def test_what_follows_a_crashed_server_gets_time_to_clean_up(tmp_path: Path) -> None:
    """B6: vLLM's resource tracker removes shared memory after its server has died; it ignores SIGTERM."""
    tracker = f"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open({str(tmp_path / "up")!r}, "w").close()
while os.getppid() == {{server}}:
    time.sleep(0.05)
time.sleep(0.5)
open({str(tmp_path / "cleaned")!r}, "w").close()
"""
    program = f"""
import os, subprocess, sys, time
program = {tracker!r}.replace("{{server}}", str(os.getpid()))
subprocess.Popen([sys.executable, "-S", "-c", program])
time.sleep(60)
"""
    made = Replica([sys.executable, "-S", "-c", program], 1)
    async with made.process():
        while not (tmp_path / "up").exists():
            await anyio.sleep(0.02)
        assert made.pid is not None
        os.kill(made.pid, signal.SIGKILL)
        while made.running:
            await anyio.sleep(0.02)
    assert (tmp_path / "cleaned").exists()


SEGMENTS = """
import subprocess, sys, time
from multiprocessing import resource_tracker, shared_memory
from judgekit.execution.watchdog import Watchdog
made = shared_memory.SharedMemory(name="psm_judgekit_mine", create=True, size=64)
common = shared_memory.SharedMemory(name="psm_judgekit_ours", create=True, size=64)
for segment in (made, common):
    resource_tracker.unregister(segment._name, "shared_memory")  # nobody else removes them
print("up", flush=True)
time.sleep(600)
"""


def test_the_watchdog_removes_what_only_its_processes_had_mapped() -> None:
    """Also after SIGKILL of their owner; what another process has mapped stays."""
    from multiprocessing import resource_tracker, shared_memory

    owner = f"""
import subprocess, sys, time
from judgekit.execution.watchdog import Watchdog
engine = subprocess.Popen([sys.executable, "-c", {SEGMENTS!r}], stdout=subprocess.PIPE)
engine.stdout.readline()
watchdog = Watchdog()
watchdog.watch({{engine.pid}})
print(engine.pid, flush=True)
time.sleep(600)
"""
    mine, ours = Path("/dev/shm/psm_judgekit_mine"), Path("/dev/shm/psm_judgekit_ours")
    keeper = subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True)
    mapped = None
    try:
        assert keeper.stdout is not None
        pid = int(keeper.stdout.readline())
        assert mine.exists()
        mapped = shared_memory.SharedMemory(name=ours.name)
        resource_tracker.unregister(f"/{ours.name}", "shared_memory")
        keeper.kill()
        keeper.wait()
        keeper.stdout.close()
        assert eventually(lambda: not alive([pid]) and not mine.exists())
        assert ours.exists()
    finally:
        keeper.kill()
        keeper.wait()
        if mapped is not None:
            mapped.close()
        mine.unlink(missing_ok=True)
        ours.unlink(missing_ok=True)


async def test_an_error_of_the_block_is_raised_alone() -> None:
    made = stand_in()
    pids: list[int] = []

    async def serve() -> None:
        async with supervise([made], start_timeout_s=30):
            pids.extend(facts(made.port)["pids"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await serve()
    assert len(pids) == 2
    assert alive(pids) == []


async def test_output_that_nobody_ends_in_lines_is_read_all_the_same() -> None:
    """Progress bars write carriage returns; what is not UTF-8 is replaced."""
    lines: list[str] = []
    program = "import sys; sys.stdout.buffer.write(b'a\\rb\\xff\\nlast Error'); sys.stdout.flush()"
    made = Replica([sys.executable, "-S", "-c", program], 1, write=lines.append)
    async with made.process():
        while made.running:
            await anyio.sleep(0.02)
    assert lines == ["a", "b\ufffd", "last Error"]
    assert made.last_error_lines() == "last Error"


def test_kill_9_of_the_supervisor_ends_its_servers() -> None:
    port = free_port()
    program = f"""
import anyio, sys
from judgekit.judges.launch.supervise import Replica, supervise
async def main():
    made = Replica([sys.executable, "-S", {str(SERVER)!r}, "--host", "127.0.0.1", "--port", "{port}"], {port})
    async with supervise([made], start_timeout_s=30):
        await anyio.sleep_forever()
anyio.run(main)
"""
    keeper = subprocess.Popen([sys.executable, "-c", program])
    try:
        pids = eventually(lambda: facts(port))["pids"]
        time.sleep(2 * serving._POLL_S)  # the child, too, is registered with the watchdog
        assert alive(pids) == pids
    finally:
        keeper.kill()
        keeper.wait()
    assert eventually(lambda: not alive(pids))


def test_the_key_is_in_the_environment_and_not_among_the_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_has_vllm", lambda: True)
    monkeypatch.setattr(serving, "_gpus", lambda: ["3", "5"])
    made = http_replicas(replicas=2, port=free_port(), api_key="secret", engine_args={"max_num_seqs": 4})
    for replica, gpu in zip(made, "35", strict=True):
        assert "secret" not in " ".join(replica.command)
        assert replica.env["VLLM_API_KEY"] == "secret"
        assert replica.env["CUDA_VISIBLE_DEVICES"] == gpu
        assert replica.command[replica.command.index("--host") + 1] == "127.0.0.1"
        assert replica.command[replica.command.index("--max-num-seqs") + 1] == "4"
    with pytest.raises(ConfigError, match="3 × 1 GPUs are needed, and there are 2"):
        http_replicas(replicas=3, port=free_port())


def test_engine_arguments_are_written_as_vllm_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """B13: false is no absence, and a mapping no Python repr."""
    monkeypatch.setattr(serving, "_has_vllm", lambda: True)
    monkeypatch.setattr(serving, "_gpus", lambda: [])
    given = {
        "enable_prefix_caching": False,
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
        "lora_modules": [{"name": "a", "path": "/p"}, "b=/q"],
        "revision": None,
        "enforce_eager": True,
    }
    (made,) = http_replicas(port=free_port(), engine_args=given)
    text = " ".join(made.command)
    assert "--no-enable-prefix-caching" in made.command
    assert '--speculative-config {"method": "ngram", "num_speculative_tokens": 3}' in text
    assert '--lora-modules {"name": "a", "path": "/p"} b=/q' in text
    assert "--revision" not in made.command
    names = made.command[made.command.index("--served-model-name") + 1 :][:2]
    assert names[0] == "judge"
    assert names[1].startswith("judge@judgekit:embedded-")
    assert made.command.count("--enforce-eager") == 1


def test_a_taken_port_and_a_foreign_host_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr(serving, "_has_vllm", lambda: True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} is taken"):
            http_replicas(port=port)
    with pytest.raises(ConfigError, match="not an address of this machine"):
        http_replicas(host="192.0.2.1", port=free_port())


@pytest.mark.parametrize(
    ("host", "alone"),
    [("127.0.0.1", True), ("127.0.0.2", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("judge.internal", False)],
)  # fmt: skip
def test_what_only_this_machine_can_reach(host: str, alone: bool) -> None:
    assert is_loopback(host) is alone


def test_the_state_names_a_process_by_its_start_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A14: a process that has got the id of one that ended is not stopped in its place."""
    monkeypatch.setenv("JUDGEKIT_STATE", str(tmp_path))
    path = write_state("j", model="m", urls=["u"], logs=["l"])
    assert (read_state("j") or {})["pid"] == os.getpid()
    innocent = subprocess.Popen(["sleep", "60"])
    try:
        path.write_text(path.read_text().replace(str(os.getpid()), str(innocent.pid), 1))
        assert read_state("j") is None
        assert stop_supervisor("j") is False
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()
    for text in ("", "[]", "{}", '{"pid": 1}', '{"pid": "x", "started": 1}'):
        path.write_text(text)
        assert read_state("j") is None
    with pytest.raises(ConfigError, match="--name is letters"):
        read_state("../j")


def test_a_thread_that_ends_while_processes_are_listed_hides_none(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: ["4194305", *listed(path)])  # no thread has this id
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert child.pid in descendants(os.getpid())
        finally:
            child.kill()
