"""The reward service, with its client beside it on this machine: what does it cost, and what does a killed one lose?

    make bench-service

* `overhead_us`: CPU time a rollout, of service and client together, beyond grading it in this process; two light rules,
  texts of 2.4 kB, batches of 256; the median of rounds in turn. `overhead_alone_us`: the same in requests of one, as slime's
  client sends them, 64 at once. `overhead_alone`: this over what a bare aiohttp handler costs with its client, in the same rounds, that
  reads and writes the same JSON.
* `rss_growth`: the service's peak of memory after 100,000 rollouts over that after 10,000.
* `lost`, `twice`: the service is killed with SIGKILL and restarted ten times while clients grade. `lost`: rollouts without
  their right result. `twice`: calls of a grader for a rollout whose grade stood in the ledger already. `in_flight`: calls
  for rollouts that were being graded when it was killed, whose grades no ledger had yet. `lines_lost`: rollouts that were
  answered in the milliseconds before a kill, whose lines the ledger had not written.
* `stalled_bodies`: honest requests that were not answered with 200 while 200 others, whose bodies never arrive, are open at a service that
  takes 64. `rebinding`, `cross_site`: answers with 200 to a POST under another host's name, and to those that a page in a browser can send.
  `stop_s`: from SIGTERM to the end of a service with `--stop-timeout 3`, while 200 bodies do not arrive, and a grader hangs in a thread.
* `refused_cleanly`: of the requests past the limit, those that were answered 503, with Retry-After and an error that is no score.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
from common import FIGURES, WORDS, finish, machine, reported

from judgekit import Rollout
from judgekit.config import load_runner
from judgekit.ledger.reader import read_ledger
from judgekit.service import RewardClient

BATCH = 256
LIGHT = """
graders:
  contains: {use: text_match, how: contains, part: whole}
  brief:    {use: length, soft_max: 1200, hard_max: 4800}
reward: {weighted: {contains: 0.9, brief: 0.1}}
runner: {missing_reward: 0.0}
"""
COUNTED = """
graders: {counted: {use: "service_grader:counted"}}
runner: {missing_reward: 0.0, max_concurrency: 64}
"""
GRADER = '''
import asyncio, os, time, zlib
from judgekit import Graded

class Counted:
    """Writes down every call before it answers."""
    name, version, score_range, inputs = "counted", "1", (0.0, 1.0), ("response",)

    def __init__(self):
        self.file = os.open("calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def grade(self, rollout):
        os.write(self.file, f"{time.time()!r} {rollout.response}\\n".encode())
        await asyncio.sleep(0.02)
        return Graded(zlib.crc32(rollout.response.encode()) % 1000 / 1000)

counted = Counted()
'''
HANGING = """
import threading
from judgekit import grader

@grader(where="thread")
def counted(rollout):
    threading.Event().wait()
"""
BARE = """
import asyncio, json, sys
from aiohttp import web

async def handle(request):
    row = json.loads(await request.read())
    assert row["response"]
    return web.Response(body=json.dumps(json.loads(sys.argv[1])).encode(), content_type="application/json")

async def main():
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/slime", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"serving rewards at http://127.0.0.1:{runner.addresses[0][1]}; verifiers", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
STALLED = 200
GOALS: dict[str, tuple[str, float]] = {
    "overhead_us": ("<=", 30),
    "overhead_alone": ("<=", 1.5),
    "rss_growth": ("<=", 1.1),
    "lost": ("==", 0),
    "twice": ("==", 0),
    "refused_cleanly": ("==", 1.0),
    "stalled_bodies": ("==", 0),
    "rebinding": ("==", 0),
    "cross_site": ("==", 0),
    "stop_s": ("<=", 10),
}


class Service:
    """`judgekit serve-rewards` in a folder, or another server that says where it is."""

    def __init__(self, folder: Path, *args: str, command: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            command or [sys.executable, "-m", "judgekit", "serve-rewards", "reward.yaml", *args],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"serving rewards at (\S+);", line):
                self.url = found[1]
            if "verifiers" in line:
                return
        raise RuntimeError("the service did not start")

    @property
    def port(self) -> str:
        return self.url.rpartition(":")[2]

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_bytes(self) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", text)
        assert found is not None
        return int(found[1]) * 1024

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
        return self.process.returncode


def texts(count: int, seed: int = 7) -> list[Rollout]:
    """Rollouts of about 2.4 kB, in groups of 8."""
    rng = random.Random(seed)
    return [
        Rollout(
            prompt=f"Question {i // 8}: " + " ".join(rng.choices(WORDS, k=60)),
            response=f"{i}: " + " ".join(rng.choices(WORDS, k=480)) + f"\n\\boxed{{{rng.randrange(7)}}}",
            ground_truth=str(i // 8 % 7),
            group=f"g{i // 8}",
            id=f"r{i}",
        )
        for i in range(count)
    ]


def first_answer(url: str, body: bytes) -> str:
    """What the service answers to a request of one rollout."""
    with urllib.request.urlopen(urllib.request.Request(f"{url}/slime", body)) as response:
        return str(response.read().decode())


async def overhead(folder: Path, rounds: int, repeats: int) -> dict[str, float]:
    (folder / "reward.yaml").write_text(LIGHT)
    runner = load_runner(folder / "reward.yaml")
    rollouts = texts(BATCH)
    bodies = [
        json.dumps({"prompt": r.prompt, "response": r.response, "label": r.ground_truth}).encode()
        for r in rollouts
    ]
    service = Service(folder, "--port", "0")
    example = first_answer(service.url, bodies[0])
    bare = Service(folder, command=[sys.executable, "-c", BARE, example])
    places = asyncio.Semaphore(64)
    names = ("batch", "alone", "bare", "server", "client", "own")
    found: dict[str, list[float]] = {name: [] for name in names}
    try:
        async with (
            RewardClient(service.url) as client,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64)) as session,
        ):

            async def slime(body: bytes, url: str) -> None:
                async with places, session.post(f"{url}/slime", data=body) as response:
                    assert response.status == 200, await response.text()
                    await response.read()

            async def in_process() -> None:
                for _ in range(repeats):
                    await runner.run(rollouts)

            async def served() -> None:
                for _ in range(repeats):
                    await client.run(rollouts)

            async def each_in_process() -> None:
                for rollout in rollouts:
                    await runner.run([rollout])

            async def each_served() -> None:
                for _ in range(repeats):
                    await asyncio.gather(*(slime(body, service.url) for body in bodies))

            async def each_by_bare() -> None:
                for _ in range(repeats):
                    await asyncio.gather(*(slime(body, bare.url) for body in bodies))

            async def cpu(work: Any, count: int, server: Service = service) -> tuple[float, float]:
                """Microseconds a rollout: of this process, of the server."""
                own, its = time.process_time(), server.cpu_s()
                await work()
                return (
                    (time.process_time() - own) / count * 1e6,
                    (server.cpu_s() - its) / count * 1e6,
                )

            for number in range(rounds + 1):
                own, _ = await cpu(in_process, repeats * BATCH)
                client_us, server_us = await cpu(served, repeats * BATCH)
                own_alone, _ = await cpu(each_in_process, BATCH)
                alone = await cpu(each_served, repeats * BATCH)
                by_bare = await cpu(each_by_bare, repeats * BATCH, bare)
                if number:  # the first one warms up
                    found["own"].append(own)
                    found["client"].append(client_us)
                    found["server"].append(server_us)
                    found["batch"].append(client_us + server_us - own)
                    found["alone"].append(sum(alone) - own_alone)
                    found["bare"].append(sum(by_bare))
    finally:
        service.end()
        bare.end()
    middle = {name: statistics.median(values) for name, values in found.items()}
    print(
        f"  batches of {BATCH}: in process {middle['own']:.1f} µs, service {middle['server']:.1f}, client {middle['client']:.1f}"
    )
    print(f"  alone: {middle['alone']:.1f} µs beyond grading; a bare handler {middle['bare']:.1f}")
    return {
        "overhead_us": middle["batch"],
        "overhead_alone_us": middle["alone"],
        "overhead_alone": statistics.median(
            one / other for one, other in zip(found["alone"], found["bare"], strict=True)
        ),
    }


async def growth(folder: Path, count: int) -> float:
    (folder / "reward.yaml").write_text(LIGHT)
    service = Service(folder, "--port", "0", "--ledger", "growth.jsonl")
    first = 0
    try:
        async with RewardClient(service.url, max_connections=8) as client:
            batches = [texts(BATCH, seed) for seed in range(8)]
            for done in range(0, count, 8 * BATCH):
                await asyncio.gather(*(client.run(batch) for batch in batches))
                if not first and done >= count // 10:
                    first = service.peak_bytes()
            last = service.peak_bytes()
    finally:
        service.end()
    print(f"  memory: {first >> 20} MiB after a tenth, {last >> 20} MiB after {count} rollouts")
    return last / first


async def killed(folder: Path, kills: int, every_s: float) -> dict[str, int]:
    """Grade while the service is killed and restarted; count what was lost and asked for again."""
    import zlib

    (folder / "reward.yaml").write_text(COUNTED)
    (folder / "service_grader.py").write_text(GRADER)
    service = Service(folder, "--port", "0", "--ledger", "ledger.jsonl")
    port, url = service.port, service.url
    over = asyncio.Event()
    sent = right = 0

    async def load(name: int) -> None:
        nonlocal sent, right
        number = 0
        while not over.is_set():
            rollouts = [
                Rollout(response=f"{name}-{number}-{i}", id=f"{name}-{number}-{i}") for i in range(16)
            ]
            number += 1
            sent += len(rollouts)
            if name % 2:
                results = await client.run(rollouts)
            else:
                results = sorted(
                    [result async for result in client.stream(rollouts)], key=lambda result: result.index
                )
            expected = [zlib.crc32(r.response.encode()) % 1000 / 1000 for r in rollouts]
            right += sum(result.reward == value for result, value in zip(results, expected, strict=False))

    async with RewardClient(url, max_connections=64) as client, asyncio.TaskGroup() as tasks:
        for name in range(8):
            tasks.create_task(load(name))
        for _ in range(kills):
            await asyncio.sleep(every_s * random.uniform(0.5, 1.5))
            await asyncio.to_thread(service.end, signal.SIGKILL)
            service = await asyncio.to_thread(Service, folder, "--port", port, "--ledger", "ledger.jsonl")
        await asyncio.sleep(every_s)
        over.set()
    service.end()
    graded: dict[str, float] = {}
    for entry in read_ledger(folder / "ledger.jsonl", replaced=True).entries:
        graded[entry.id] = min(entry.time, graded.get(entry.id, entry.time))
    called: Counter[str] = Counter()
    twice = in_flight = 0
    for line in (folder / "calls").read_text().splitlines():
        at, _, id_ = line.partition(" ")
        if called[id_]:
            if id_ in graded and graded[id_] < float(at):
                twice += 1
            else:
                in_flight += 1
        called[id_] += 1
    print(f"  {kills} kills: {sent} rollouts sent, {len(called)} graded, {in_flight} were in flight")
    return {
        "lost": sent - right,
        "twice": twice,
        "in_flight": in_flight,
        "lines_lost": sent - len(graded),
        "kills": kills,
    }


async def refused(folder: Path, limit: int, over: int) -> float:
    """The share of requests past the limit that were refused as they should be."""
    (folder / "reward.yaml").write_text(COUNTED)
    (folder / "service_grader.py").write_text(GRADER.replace("0.02", "2.0"))
    service = Service(folder, "--port", "0", "--max-requests", str(limit))
    clean = taken = 0

    async def ask(session: aiohttp.ClientSession, number: int) -> None:
        nonlocal clean, taken
        large = "x" * (100_000 if number % 2 else 10)  # refused before it is read
        body = json.dumps({"prompt": "", "response": f"{number} {large}", "label": None}).encode()
        async with session.post(f"{service.url}/slime", data=body) as response:
            told = await response.json()
            taken += response.status == 200
            clean += (
                response.status == 503
                and float(response.headers["Retry-After"]) > 0
                and list(told) == ["error"]
            )

    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            await asyncio.gather(*(ask(session, i) for i in range(limit + over)), return_exceptions=True)
    finally:
        service.end()
    print(f"  limit {limit}: {taken} taken, {clean} of {over} refused cleanly")
    return clean / (limit + over - taken)


def stalled(url: str) -> list[socket.socket]:
    """Open requests whose bodies never arrive."""
    address = urllib.parse.urlsplit(url)
    made = []
    for _ in range(STALLED):
        one = socket.create_connection((str(address.hostname), address.port))
        head = f"POST /slime HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: 100000\r\n\r\n"
        one.sendall(head.encode() + b'{"prompt": "')
        made.append(one)
    return made


async def answered(url: str, count: int, limit: int, **headers: str) -> int:
    """How many of *count* requests of one rollout are answered with 200, *limit* at once."""
    body = json.dumps({"prompt": "", "response": "a", "label": None}).encode()
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=limit)) as session:

        async def ask() -> bool:
            async with session.post(f"{url}/slime", data=body, headers=sent) as response:
                return response.status == 200

        return sum(await asyncio.gather(*(ask() for _ in range(count))))


async def edge(folder: Path) -> dict[str, float]:
    """What strangers at the service's edge can do to others and to its end."""
    (folder / "reward.yaml").write_text(COUNTED)
    (folder / "service_grader.py").write_text(GRADER)
    service = Service(folder, "--port", "0", "--max-requests", "64")
    pages = ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"})
    try:
        open_ = stalled(service.url)
        refused_honest = 512 - await answered(service.url, 512, 64)
        for one in open_:
            one.close()
        names = (
            "evil.example",
            f"evil.example:{service.port}",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
        )
        rebound = [await answered(service.url, 8, 8, Host=name) for name in names]
        crossed = [await answered(service.url, 8, 8, Content_Type="text/plain", **page) for page in pages]
    finally:
        service.end()
    (folder / "service_grader.py").write_text(HANGING)
    service = Service(folder, "--port", "0", "--stop-timeout", "3")
    hanging = asyncio.ensure_future(answered(service.url, 16, 16))
    open_ = await asyncio.to_thread(stalled, service.url)
    await asyncio.sleep(1)
    begun = time.monotonic()
    await asyncio.to_thread(service.end)
    took = time.monotonic() - begun
    for one in open_:
        one.close()
    await asyncio.gather(hanging, return_exceptions=True)
    print(
        f"  edge: {refused_honest} honest ones refused, {sum(rebound)} rebound, {sum(crossed)} crossed; stopped in {took:.1f} s"
    )
    return {
        "stalled_bodies": refused_honest,
        "rebinding": sum(rebound),
        "cross_site": sum(crossed),
        "stop_s": took,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=10)
    asked = parser.parse_args()
    print(machine())
    figures = FIGURES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures |= asyncio.run(overhead(folder, asked.rounds, asked.repeats))
        figures["rss_growth"] = asyncio.run(growth(folder, asked.rollouts))
        figures["refused_cleanly"] = asyncio.run(refused(folder, 32, 256))
        (folder / "calls").unlink()
        figures |= asyncio.run(edge(folder))
        (folder / "calls").unlink()
        figures |= asyncio.run(killed(folder, asked.kills, 1.5))
    finish(figures, GOALS)


if __name__ == "__main__":
    reported(main)
