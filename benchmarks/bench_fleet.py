"""Judges behind a real router: does a group stay on one replica, and is nothing lost when a replica is?

    make bench-fleet

Two replicas of the embedded judge (`judgekit serve --replicas 2`) behind vllm-router (`--policy consistent_hash`), asked
through a reward.yaml with `routing_header: X-Session-ID`. A proxy before the router looks at what is sent.
`prefix_hits`: the share of prompt tokens that the replicas' prefix caches had, over that of one replica asked directly, in groups of 8;
`mixed_posts`: POSTs with prompts of several groups; `replicas_used`; `running_after_cancel`: requests that the engines still have a
second after a run of long replies was cancelled; `lost`: rollouts without a grade when a replica is killed in the middle, and
`wrong`: grades that are others then.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from common import FIGURES, WORDS, finish, machine, reported

from judgekit import Graded, Rollout
from judgekit.config import load_runner
from judgekit.execution.watchdog import descendants
from judgekit.judges.engines.vllm.judge import EMBEDDED, model_path

PORT, ROUTER, PROXY = 18_360, 18_370, 18_371
GROUPS, PER_GROUP = 48, 8
GOALS = {
    "prefix_hits": (">=", 0.95),
    "mixed_posts": ("==", 0.0),
    "replicas_used": ("==", 2.0),
    "running_before_cancel": (">=", 1.0),
    "running_after_cancel": ("==", 0.0),
    "lost": ("==", 0.0),
    "wrong": ("==", 0.0),
}


def rollouts(name: str, groups: int = GROUPS) -> list[Rollout]:
    """Groups that share a long problem; no other name has the same."""
    made = []
    for group in range(groups):
        mark = f"case {name}{group}x"
        filler = " ".join(WORDS[(group * 7 + i * i) % len(WORDS)] for i in range(150))
        for member in range(PER_GROUP):
            right = (group + member) % 3 == 0
            made.append(
                Rollout(
                    prompt=f"{mark}. {filler}. How many apples are 3 and {group}?",
                    ground_truth=f"#### {group + 3}",
                    response=f"There are {group + 3 if right else group + 5} apples. #### {group + 3 if right else group + 5}",
                    group=group,
                    id=f"{name}{group}-{member}",
                )
            )
    return made


class Proxy:
    """Passes everything on to the router, and looks at it."""

    def __init__(self) -> None:
        from transformers import AutoTokenizer

        self.mixed = self.posts = 0
        self._tokenizer = AutoTokenizer.from_pretrained(model_path(EMBEDDED))

    def look(self, body: bytes) -> None:
        prompts = json.loads(body).get("prompt")
        if isinstance(prompts, list) and prompts and isinstance(prompts[0], list):
            self.posts += 1
            texts = [self._tokenizer.decode(ids) for ids in prompts]
            self.mixed += len({match[0] for t in texts if (match := re.search(r"case \w+x", t))}) > 1

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.path == "/v1/completions":
            self.look(body)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "content-length")}
        url = f"http://127.0.0.1:{ROUTER}{request.rel_url}"
        try:
            async with (
                aiohttp.ClientSession() as client,
                client.request(request.method, url, data=body, headers=headers) as answer,
            ):
                return web.Response(
                    body=await answer.read(), status=answer.status, content_type=answer.content_type
                )
        except aiohttp.ClientError as error:
            return web.Response(text=str(error), status=502)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{tail:.*}", self.pass_on)
        # a client that leaves is passed on as well
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", PROXY).start()
        try:
            yield
        finally:
            await runner.cleanup()


@contextlib.contextmanager
def process(folder: Path, name: str, command: Sequence[str], ports: Sequence[int]) -> Iterator[int]:
    """A server's process, until it is healthy on all *ports*; yields its id."""
    log = folder / f"{name}.txt"
    with log.open("wb") as output:
        keeper = subprocess.Popen(
            command, env={**os.environ, "JUDGEKIT_STATE": str(folder / "state")}, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + 300
        while not all(answer(port, "/health") is not None for port in ports):
            if keeper.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{name} did not start: {log.read_text()[-2000:]}")
            time.sleep(0.5)
        yield keeper.pid
    finally:
        keeper.terminate()
        keeper.wait()


def answer(port: int, path: str) -> str | None:
    """What a server answers; None where it does not."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as found:
            return str(found.read().decode())
    except OSError:
        return None


def gauge(port: int, name: str) -> float:
    text = answer(port, "/metrics") or ""
    return sum(float(v) for v in re.findall(rf"^vllm:{name}{{[^}}]*}} ([0-9.e+]+)$", text, re.MULTILINE))


def server_of(keeper: int, port: int) -> int:
    """The process that listens on *port*."""
    return next(
        pid
        for pid in descendants(keeper)
        if str(port) in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    )


def config(folder: Path, url: str, **judge: Any) -> Path:
    path = folder / "reward.yaml"
    grader = {"use": "judge", "judge": "fleet", **judge.pop("grader", {})}
    settings = {
        "graders": {"right": grader},
        "judges": {
            "fleet": {
                "engine": "openai",
                "url": url,
                "tokenizer": model_path(EMBEDDED),
                "timeout_s": 120,
                **judge,
            }
        },
        "runner": {"max_concurrency": 256, "timeout_s": 600},
    }
    path.write_text(json.dumps(settings))
    return path


class Caches:
    """What the replicas' prefix caches were asked for, and had, since this was made; in tokens."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._before = self._now()

    def _now(self) -> list[tuple[float, float]]:
        names = ("prefix_cache_hits_total", "prefix_cache_queries_total")
        return [(gauge(port, names[0]), gauge(port, names[1])) for port in self._ports]

    def share(self) -> tuple[float, list[float]]:
        """The share of tokens that they had, over all, and the tokens that each replica was asked for."""
        more = [(h - h0, q - q0) for (h, q), (h0, q0) in zip(self._now(), self._before, strict=True)]
        return sum(h for h, _ in more) / max(1.0, sum(q for _, q in more)), [q for _, q in more]


async def main_(folder: Path) -> dict[str, Any]:
    figures = FIGURES
    ports = (PORT, PORT + 1)
    serve = [sys.executable, "-m", "judgekit", "serve", "--port", str(PORT), "--replicas", "2"]
    workers = [f"http://127.0.0.1:{port}" for port in ports]
    script = str(Path(sys.executable).with_name("vllm-router"))
    route = [script, "--host", "127.0.0.1", "--port", str(ROUTER), "--policy", "consistent_hash"]
    proxy = Proxy()
    with (
        process(folder, "serve", serve, ports) as keeper,
        process(folder, "router", [*route, "--worker-urls", *workers], [ROUTER]),
    ):
        async with proxy.running():
            behind = {"routing_header": "X-Session-ID"}
            through = f"http://127.0.0.1:{PROXY}/v1"
            caches = Caches(ports)
            async with load_runner(config(folder, f"{workers[0]}/v1")) as runner:
                await runner.run(rollouts("alone"))
            alone, _ = caches.share()
            caches = Caches(ports)
            async with load_runner(config(folder, through, **behind)) as runner:
                await runner.run(rollouts("fleet"))
            fleet, asked = caches.share()
            print(
                f"one replica has {alone:.3f} of the tokens cached, the fleet {fleet:.3f}; asked for {asked}"
            )
            figures |= {
                "posts": proxy.posts,
                "mixed_posts": proxy.mixed,
                "prefix_hits": fleet / alone,
                "replicas_used": sum(tokens > 0 for tokens in asked),
            }

            # long replies, cancelled
            long = {
                "extra_body": {"ignore_eos": True, "min_tokens": 2000},
                "grader": {"verdict": {"format": "line", "max_tokens": 2000}},
            }
            async with load_runner(config(folder, through, **behind, **long)) as runner:
                run = asyncio.create_task(runner.run(rollouts("long", 16)))
                deadline = time.monotonic() + 60
                while not sum(gauge(port, "num_requests_running") for port in ports):
                    if run.done() or time.monotonic() > deadline:
                        sys.exit("nothing runs that could be cancelled")
                    await asyncio.sleep(0.1)
                await asyncio.sleep(0.5)
                figures["running_before_cancel"] = sum(
                    gauge(port, "num_requests_running") + gauge(port, "num_requests_waiting")
                    for port in ports
                )
                run.cancel()
                await asyncio.gather(run, return_exceptions=True)
                await asyncio.sleep(1.0)
                figures["running_after_cancel"] = sum(
                    gauge(port, "num_requests_running") + gauge(port, "num_requests_waiting")
                    for port in ports
                )

            # a replica dies
            async with load_runner(config(folder, through, **behind)) as runner:
                given = rollouts("dies", 3 * GROUPS)
                calm = await runner.run(given)
            async with load_runner(config(folder, through, **behind)) as runner:
                run = asyncio.create_task(runner.run(given))
                await asyncio.sleep(1.0)
                os.kill(server_of(keeper, PORT + 1), signal.SIGKILL)
                figures["done_when_killed"] = int(run.done())
                disturbed = await run
            figures["lost"] = sum(not isinstance(r.grades["right"], Graded) for r in disturbed)
            lost = [r.grades["right"] for r in disturbed if not isinstance(r.grades["right"], Graded)]
            if lost:
                print(f"lost: {lost[0]}")
            figures["wrong"] = sum(
                a is not None and b is not None and abs(a - b) > 0.01
                for a, b in zip(
                    (r.score("right") for r in calm), (r.score("right") for r in disturbed), strict=True
                )
            )
    return figures


def main() -> None:
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    if not Path(sys.executable).with_name("vllm-router").exists():
        sys.exit("vllm-router is not here: there was no wheel of it for this machine")
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        finish(asyncio.run(main_(Path(name))), GOALS)


if __name__ == "__main__":
    reported(main)
