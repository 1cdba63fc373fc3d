"""What a killed engine costs a run: which verdicts are wrong or missing, and when the judge is back.

    make bench-crash

Real servers, engines and actors, with the embedded judge. 500 rollouts are graded through a reward.yaml with the
default settings, at 64 and at 512 evaluations in flight; once a third of them is graded, an EngineCore is killed with
SIGKILL, and in another run (`hang`, 64 in flight) stopped with SIGSTOP, so that it answers nothing and does not end. In a last one
(`busy`) nothing is killed, and four programs for each core take the engine's time from it, at its niceness: `restarts` counts engines that were taken
for dead all the same. Expected are the scores of an undisturbed run of the same judge. `recovery_s`: seconds from the kill until the
killed engine answers again. At last the keeper of each judge is killed with SIGKILL, too: `judgekit serve`, the
process that has the engine, a Ray actor. `orphans` and `shm_left` count the processes and the segments of /dev/shm of
these judges that are left after all of it. `rejected_…`: a provider refuses every request for some seconds once a sixth of
the rollouts is graded; `posts`: requests that it got meanwhile. `filed_wrong`: a server is killed while requests are in flight, and
comes back under the same name and address with other weights; of the verdicts that a cache then gives for either weights, from memory
and from its file, so many are the other's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import math
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from common import FIGURES, finish, machine, reported

from judgekit import Failed, Graded, GradingRunner, Rollout
from judgekit.config import load_runner
from judgekit.execution.watchdog import descendants, start_time
from judgekit.judges.launch.supervise import http_replicas

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

ROLLOUTS, PER_GROUP = 500, 8
RUNS = {"64": (64, signal.SIGKILL), "512": (512, signal.SIGKILL), "hang": (64, signal.SIGSTOP)}
"""Evaluations in flight, and what the EngineCore gets."""
REJECTED = [(status, seconds, in_flight, header) for status in (429, 503) for seconds in (2, 20) for in_flight in (64, 512) for header in (True, False)]  # fmt: skip
"""HTTP status, for how long, evaluations in flight, and whether the server says when to come again."""
HANG_S = 60.0
"""A hang is to be found, and the engine back, within so many seconds."""
WAYS = ("http_1", "http_2", "inprocess", "ray_2")
OTHERS = ("rejected", "weights")
TOLERANCE = 1e-3
"""Between batches of other sizes the embedded judge's scores move by less; see tests/vllm/test_determinism.py."""
EMBEDDED = str(resources.files("judgekit.judges") / "embedded")
UP_S = 600.0


def rollouts() -> list[Rollout]:
    from embedded_judge.generator import Recipe, sample

    rng = random.Random(5)
    cases = [sample(rng, Recipe()).case for _ in range(ROLLOUTS)]
    return [
        Rollout(prompt=c.prompt, ground_truth=c.ground_truth, response=c.response, group=i // PER_GROUP)
        for i, c in enumerate(cases)
    ]


class Traces:
    """The processes of judges, and the shared memory that they map; looked at again and again by a thread."""

    def __init__(self) -> None:
        self.roots: set[int] = set()
        """The keepers; what descends from them is a judge's."""
        self.processes: dict[int, int] = {}
        self.segments: set[str] = set()
        self._own = shared_memory(os.getpid())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.2):
            for root in list(self.roots):
                for pid in descendants(root) | ({root} - {os.getpid()}):
                    if is_own_tracker(pid):
                        continue
                    if (started := start_time(pid)) is not None:
                        self.processes[pid] = started
                        self.segments |= shared_memory(pid) - self._own

    def left(self, timeout_s: float = 30.0) -> tuple[list[int], list[str]]:
        """What is still there after some time to end."""
        deadline = time.monotonic() + timeout_s
        while True:
            here = [pid for pid, started in self.processes.items() if start_time(pid) == started]
            # asked again: between its fork and its exec, a helper does not look like one yet
            pids = [pid for pid in here if not is_own_tracker(pid)]
            files = [path for path in self.segments if Path(path).exists()]
            if not (pids or files) or time.monotonic() > deadline:
                return pids, files
            time.sleep(0.2)

    def forget(self) -> None:
        self.roots.clear()
        self.processes.clear()
        self.segments.clear()

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def is_own_tracker(pid: int) -> bool:
    """Whether a process is multiprocessing's helper of this one, which lives as long as this one."""
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return parent == os.getpid() and b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def shared_memory(pid: int) -> set[str]:
    """Files of /dev/shm that a process maps."""
    found = set()
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            path = line.partition("/dev/shm/")[2]
            if path and not path.endswith("(deleted)"):
                found.add(f"/dev/shm/{path}")
    return found


def engine_cores(root: int, *, none: bool = False) -> list[int]:
    """The EngineCores below a process. Ends the benchmark where there is none, unless *none* may be."""
    commands = {}
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            commands[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().strip(b"\0")
    found = [pid for pid, command in commands.items() if b"EngineCore" in command]
    if not found and not none:  # else nothing is killed, and all is well
        raise SystemExit(f"no EngineCore is seen below process {root}, only {[*commands.values()]}")
    return found


def free_ports(count: int) -> int:
    """The first of *count* free ports in a row."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first = int(probe.getsockname()[1])
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, OverflowError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class Way:
    """A judge that runs: the section of reward.yaml, whose engine is killed, and how to see that it is back."""

    def __init__(self, judge: dict[str, Any]) -> None:
        self.judge = judge
        self.roots: list[int] = []
        """Processes whose EngineCores may be killed; the first one's is."""
        self.keeper = 0
        self.back: Callable[[], Awaitable[bool]]


@contextlib.asynccontextmanager
async def http(replicas: int, folder: Path, traces: Traces) -> AsyncIterator[Way]:
    port = free_ports(replicas)
    state = folder / f"state-{port}"
    command = [sys.executable, "-m", "judgekit", "serve", "--port", str(port), "--replicas", str(replicas)]
    log = folder / f"serve-{port}.txt"
    with log.open("w") as output:
        keeper = subprocess.Popen(
            command, env={**os.environ, "JUDGEKIT_STATE": str(state)}, stdout=output, stderr=output
        )
    traces.roots.add(keeper.pid)
    try:
        deadline = time.monotonic() + UP_S
        ports = range(port, port + replicas)
        while not all([await asyncio.to_thread(healthy, p) for p in ports]):
            if keeper.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the servers did not start: {log.read_text()[-2000:]}")
            await asyncio.sleep(0.5)
        urls = [f"http://127.0.0.1:{p}/v1" for p in ports]
        way = Way({"engine": "openai", "url": urls, "model": "judge", "tokenizer": EMBEDDED})
        way.keeper = keeper.pid

        async def back() -> bool:
            return all([await asyncio.to_thread(healthy, p) for p in ports])

        way.roots, way.back = [keeper.pid], back
        yield way
    finally:
        keeper.terminate()
        await asyncio.to_thread(keeper.wait)


@contextlib.asynccontextmanager
async def in_process(traces: Traces) -> AsyncIterator[Way]:
    way = Way({"engine": "vllm", "model": "embedded"})
    way.roots = [os.getpid()]
    traces.roots.add(os.getpid())
    yield way


@contextlib.asynccontextmanager
async def actors(replicas: int, traces: Traces) -> AsyncIterator[Way]:
    import ray

    from judgekit.judges import start_ray_judge

    ray.init("local", num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        judge = start_ray_judge("embedded", name="crash", replicas=replicas)
        await judge.start()
        pids = [row["pid"] for row in await judge.status()]
        traces.roots |= set(pids)
        way = Way({"engine": "ray", "name": "crash"})
        way.roots, way.keeper = pids, pids[0]

        async def back() -> bool:
            rows = await asyncio.gather(*(r.judge.ready() for r in judge._router().replicas))
            return all(rows)

        way.back = back
        yield way
        await judge.stop()
    finally:
        ray.shutdown()


async def graded(
    runner: GradingRunner, batch: list[Rollout], at: int, kill: Callable[[], Awaitable[None]]
) -> list[float | Failed | None]:
    """Each rollout's score, or why it has none; *kill* is called once, when *at* of them are graded."""
    grades: list[Any] = [None] * len(batch)
    done, task = 0, None
    async for result in runner.stream(batch):
        grades[result.index] = result.grades["judge"]
        done += 1
        if done == at:
            task = asyncio.create_task(kill())
    if task is not None:
        await task
    return [getattr(grade, "score", grade) for grade in grades]


async def measure(name: str, way: Way, folder: Path, kills: int) -> dict[str, float]:
    """Figures of one way: every number of evaluations in flight, after a run without a fault."""
    batch = rollouts()
    figures: dict[str, float] = {}

    def make(in_flight: int | None) -> GradingRunner:
        path = folder / "reward.yaml"
        content: dict[str, Any] = {
            "judges": {"judge": way.judge},
            "graders": {"judge": {"use": "judge", "judge": "judge"}},
        }
        if in_flight is not None:
            content["judges"]["judge"] = {**way.judge, "layers": {"max_concurrency": in_flight}}
        path.write_text(yaml.safe_dump(content))
        return load_runner(path)

    async def nothing() -> None:
        pass

    def another(cores: list[int]) -> bool:
        now = engine_cores(way.roots[0], none=True)
        return cores[0] not in now and len(now) >= len(cores)

    runner = make(None)
    async with runner:
        expected = await graded(runner, batch, -1, nothing)
    if any(not isinstance(score, float) for score in expected):
        raise SystemExit(f"{name}: without a fault there are verdicts missing: {Counter(map(str, expected))}")
    for run, (in_flight, signum) in RUNS.items():
        runner = make(in_flight)
        recovery_s = ended_s = 0.0

        async def kill(runner: GradingRunner = runner, signum: signal.Signals = signum) -> None:
            nonlocal recovery_s
            start = time.monotonic()
            # the runner's own engine is the one that lives in this process
            back = runner._resources[0].engine.ready if name == "inprocess" else way.back
            for number in range(kills):
                if number:
                    await asyncio.sleep(10 * number)
                cores = engine_cores(way.roots[0])
                os.kill(cores[0], signum)
                # until its keeper has seen that it is gone, all seems well; asking is what may have it started again
                async with asyncio.timeout(UP_S):
                    while not await back() or not another(cores):
                        await asyncio.sleep(0.25)
            recovery_s = time.monotonic() - start

        async with runner:
            start = time.monotonic()
            found = await graded(runner, batch, ROLLOUTS // 3, kill)
            ended_s = time.monotonic() - start
        wrong = sum(
            isinstance(a, float) and abs(a - float(b)) > TOLERANCE  # type: ignore[arg-type]
            for a, b in zip(found, expected, strict=True)
        )
        missing = [grade for grade in found if not isinstance(grade, float)]
        prefix = f"{name}_{run}"
        figures |= {
            f"{prefix}_wrong": wrong,
            f"{prefix}_missing": len(missing),
            f"{prefix}_recovery_s": round(recovery_s, 1),
        }
        print(
            f"  {name:10} {in_flight:4} in flight, {signum.name}: {wrong} wrong, {len(missing)} missing of {ROLLOUTS}, back after "
            f"{recovery_s:.1f} s, the run took {ended_s:.1f} s",
            flush=True,
        )
        for text, count in Counter(
            f"{g.error}: {g.detail}"[:200] if isinstance(g, Failed) else repr(g) for g in missing
        ).most_common(5):
            print(f"             {count} × {text}", flush=True)
    runner = make(None)
    async with runner:
        before = {pid: start_time(pid) for pid in engine_cores(way.roots[0])}
        with starved(min(os.getpriority(os.PRIO_PROCESS, pid) for pid in before)):
            found = await graded(runner, batch, -1, nothing)
        gone = sum(start_time(pid) != started for pid, started in before.items())
    figures |= {
        f"{name}_busy_restarts": gone,
        f"{name}_busy_missing": sum(not isinstance(score, float) for score in found),
    }
    print(
        f"  {name:10} on busy cores: {gone} engines restarted, {figures[f'{name}_busy_missing']} missing",
        flush=True,
    )
    return figures


@contextlib.contextmanager
def starved(nice: int) -> Iterator[None]:
    """Let programs that only compute take most of the time of all cores, at the engines' own niceness: Ray's actors have 15."""
    command = ["nice", "-n", str(nice), sys.executable, "-S", "-c", "while True: pass"]
    programs = [subprocess.Popen(command) for _ in range(4 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


OWNER = """
import asyncio
from judgekit.judges import VLLMJudge

async def main():
    judge = VLLMJudge()
    await judge.start()
    print("UP", flush=True)
    await asyncio.sleep(3600)

if __name__ == "__main__":
    asyncio.run(main())
"""


async def kill_owner(folder: Path, traces: Traces) -> None:
    """SIGKILL for a process that has an engine."""
    script = folder / "owner.py"
    script.write_text(OWNER)
    owner = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    traces.roots.add(owner.pid)
    assert owner.stdout is not None
    await asyncio.to_thread(owner.stdout.readline)
    await asyncio.sleep(1)
    owner.kill()
    owner.wait()


def look(what: str, traces: Traces, figures: dict[str, Any]) -> None:
    pids, files = traces.left()
    figures["orphans"] += len(pids)
    figures["shm_left"] += len(files)
    print(
        f"  {what}: {len(pids)} processes and {len(files)} segments are left {pids or ''} {files or ''}",
        flush=True,
    )
    for path in files:  # they are ours, and nobody's now
        with contextlib.suppress(OSError):
            os.unlink(path)
    traces.forget()


class Rejecting:
    """A provider that answers each rollout with the probability in its text, and refuses everything for a while."""

    def __init__(self, status: int, seconds: float, header: bool) -> None:
        self.status = status
        self.seconds = seconds
        self.headers = {"Retry-After": str(int(seconds))} if header else {}
        self.answered = self.refused = 0
        self.until: float | None = None

    async def answer(self, request: web.Request) -> web.Response:
        text = json.dumps(await request.json())
        found = re.search(r"candidate (\d+)", text)
        now = time.monotonic()
        if found and self.answered > ROLLOUTS // 6 and self.until is None:
            self.until = now + self.seconds
        if self.until is not None and now < self.until:
            self.refused += 1
            body = {"error": {"message": "slow down"}}
            return web.json_response(body, status=self.status, headers=self.headers)
        self.answered += found is not None
        await asyncio.sleep(0.02)
        share = expected_of(int(found[1]) if found else 0)
        top = [{"token": label, "logprob": math.log(p)} for label, p in (("1", share), ("0", 1 - share))]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "1"},
            "finish_reason": "length",
            "logprobs": {"content": [{**top[0], "top_logprobs": top}]},
        }
        usage = {"prompt_tokens": 10, "completion_tokens": 1}
        return web.json_response({"choices": [choice], "usage": usage})

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "judge"}]})


def expected_of(number: int) -> float:
    return (number % 9 + 1) / 10


async def rejected(folder: Path, figures: dict[str, Any]) -> None:
    """Grade through a reward.yaml with its defaults while the provider refuses."""
    for status, seconds, in_flight, header in REJECTED:
        provider = Rejecting(status, seconds, header)
        app = web.Application()
        app.router.add_post("/v1/chat/completions", provider.answer)
        app.router.add_get("/v1/models", provider.models)
        served = web.AppRunner(app, shutdown_timeout=1)
        await served.setup()
        port = free_ports(1)
        await web.TCPSite(served, "127.0.0.1", port).start()
        path = folder / "rejected.yaml"
        judge = {"engine": "openai", "url": f"http://127.0.0.1:{port}/v1", "model": "judge"}
        content = {
            "judges": {"judge": {**judge, "layers": {"max_concurrency": in_flight}}},
            "graders": {"judge": {"use": "judge", "judge": "judge"}},
        }
        path.write_text(yaml.safe_dump(content))
        batch = [
            Rollout(prompt="p", ground_truth="1", response=f"candidate {i}", group=i // PER_GROUP)
            for i in range(ROLLOUTS)
        ]
        start = time.monotonic()
        runner = load_runner(path)
        results = await runner.run(batch)
        await runner.close()
        await served.cleanup()
        grades = [result.grades["judge"] for result in results]
        wrong = sum(
            isinstance(grade, Graded) and abs(grade.score - expected_of(i)) > 1e-6
            for i, grade in enumerate(grades)
        )
        missing = [grade for grade in grades if not isinstance(grade, Graded)]
        name = f"rejected_{status}_{seconds}s_{in_flight}{'' if header else '_bare'}"
        figures[f"{name}_wrong"], figures[f"{name}_missing"] = wrong, len(missing)
        print(
            f"{name:28} {wrong} wrong, {len(missing)} missing, {provider.refused} posts refused, "
            f"{time.monotonic() - start:.1f} s {str(missing[0])[:120] if missing else ''}",
            flush=True,
        )


async def other_weights(folder: Path, traces: Traces, figures: dict[str, Any]) -> None:
    """Grade with a cache while the server's weights are exchanged, and see what the cache holds."""
    from tiny_models import make_model

    models = {name: make_model(folder / name, seed=seed) for seed, name in enumerate(("old", "new"), 1)}
    batch = [
        Rollout(prompt=f"p {i}", ground_truth="1", response=f"candidate {i}", group=i // PER_GROUP)
        for i in range(ROLLOUTS)
    ]
    port = free_ports(1)
    url = f"http://127.0.0.1:{port}/v1"
    running: subprocess.Popen[bytes] | None = None

    async def serve(name: str) -> None:
        nonlocal running
        if running is not None:
            await asyncio.to_thread(end_server, running)
        (made,) = http_replicas(str(models[name]), name="judge", port=port)
        running = subprocess.Popen(
            made.command,
            env={**os.environ, **made.env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        traces.roots.add(running.pid)
        while not await asyncio.to_thread(healthy, port):
            if running.poll() is not None:
                raise SystemExit(f"the server with the {name} weights did not start")
            await asyncio.sleep(0.25)

    def make(cache: Path | None) -> GradingRunner:
        layers = {} if cache is None else {"cache": {"path": str(cache)}}
        judge = {"engine": "openai", "url": url, "model": "judge", "layers": layers}
        verdict = {"format": "choice", "min_mass": 0}  # random weights give labels hardly any
        content = {
            "judges": {"judge": judge},
            "graders": {"judge": {"use": "judge", "judge": "judge", "verdict": verdict}},
        }
        path = folder / "weights.yaml"
        path.write_text(yaml.safe_dump(content))
        return load_runner(path)

    async def nothing() -> None:
        pass

    def differ(found: list[Any], expected: list[Any]) -> int:
        return sum(
            not isinstance(a, float) or abs(a - b) > TOLERANCE for a, b in zip(found, expected, strict=True)
        )

    file, expected = folder / "verdicts.sqlite", {}
    try:
        await serve("new")
        async with make(None) as runner:
            expected["new"] = await graded(runner, batch, -1, nothing)
        await serve("old")
        async with make(None) as runner:
            expected["old"] = await graded(runner, batch, -1, nothing)
        async with make(file) as runner:
            found = await graded(runner, batch, ROLLOUTS // 3, lambda: serve("new"))
            wrong = differ(await graded(runner, batch, -1, nothing), expected["new"])
            mixed = [differ(found, scores) for scores in expected.values()]
        for name in ("new", "old"):
            if name == "old":
                await serve("old")
            async with make(file) as runner:
                wrong += differ(await graded(runner, batch, -1, nothing), expected[name])
                hits = runner._resources[0]._layers.cached.hits
            print(f"  weights    {name}: {hits} of {ROLLOUTS} verdicts from the file", flush=True)
    finally:
        if running is not None:
            end_server(running)
    figures["filed_wrong"] = wrong
    figures["weights_missing"] = sum(not isinstance(score, float) for score in found)
    figures["weights_differ"] = differ(expected["old"], expected["new"])
    print(
        f"  weights    exchanged in flight: {wrong} filed wrong, {figures['weights_missing']} missing; of the run's own verdicts "
        f"{ROLLOUTS - mixed[1]} are the old weights', {ROLLOUTS - mixed[0]} the new ones'",
        flush=True,
    )


def end_server(server: subprocess.Popen[bytes]) -> None:
    """SIGKILL for a server and its engine; who removes their shared memory lives on until it has."""
    for pid in {server.pid} | descendants(server.pid):
        with contextlib.suppress(OSError):
            if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
    server.wait()


async def one(name: str, folder: Path, traces: Traces, figures: dict[str, Any], kills: int) -> None:
    if name.startswith("http"):
        async with http(int(name[-1]), folder, traces) as way:
            figures |= await measure(name, way, folder, kills)
            if name == "http_2":
                os.kill(way.keeper, signal.SIGKILL)
    elif name == "inprocess":
        async with in_process(traces) as way:
            figures |= await measure(name, way, folder, kills)
        look("inprocess, closed", traces, figures)
        await kill_owner(folder, traces)
    else:
        async with actors(int(name[-1]), traces) as way:
            figures |= await measure(name, way, folder, kills)
            os.kill(way.keeper, signal.SIGKILL)
            await asyncio.sleep(5)
    killed = "" if name == "http_1" else ", its keeper killed"
    look(f"{name}{killed}", traces, figures)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=(*WAYS, *OTHERS), action="append")
    parser.add_argument("--kills", type=int, default=1, help="kill so many times, with pauses of 10, 20, … s")
    parser.add_argument("--verbose", action="store_true")
    chosen = parser.parse_args()
    logging.disable(logging.NOTSET if chosen.verbose else logging.WARNING)
    if chosen.verbose:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    print(machine(), flush=True)
    figures = FIGURES
    figures |= {"orphans": 0, "shm_left": 0}
    traces = Traces()
    asked = chosen.only or (*WAYS, *OTHERS)
    ways = tuple(name for name in asked if name in WAYS)
    with tempfile.TemporaryDirectory() as folder:
        if "rejected" in asked:
            asyncio.run(rejected(Path(folder), figures))
        if "weights" in asked:
            asyncio.run(other_weights(Path(folder), traces, figures))
            look("weights", traces, figures)
        for name in ways:
            asyncio.run(one(name, Path(folder), traces, figures, chosen.kills))
    traces.close()
    goals = {"orphans": ("==", 0.0), "shm_left": ("==", 0.0)}
    if "rejected" in asked:
        for status, seconds, in_flight, header in REJECTED:
            for what in ("wrong", "missing"):
                cell = f"rejected_{status}_{seconds}s_{in_flight}{'' if header else '_bare'}_{what}"
                goals[cell] = ("==", 0.0)
    for name in ways:
        for run in RUNS:
            for what in ("wrong", "missing"):
                goals[f"{name}_{run}_{what}"] = ("==", 0.0)
            goals[f"{name}_{run}_recovery_s"] = ("<=", HANG_S if run == "hang" else UP_S)
        goals[f"{name}_busy_restarts"] = goals[f"{name}_busy_missing"] = ("==", 0.0)
    if "weights" in asked:
        goals |= {
            "filed_wrong": ("==", 0.0),
            "weights_missing": ("==", 0.0),
            "weights_differ": (">=", 0.9 * ROLLOUTS),
        }
    finish(figures, goals)


if __name__ == "__main__":
    reported(main)
