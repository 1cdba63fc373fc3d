"""Records what real servers answer a judge, so that tests everywhere read what they really send.

    .venv/vllm/bin/python tools/record_servers.py             # vllm serve, and vllm-router before it
    .venv/vllm/bin/python tools/record_servers.py --beside ENV/bin      # smg, sglang-router and LiteLLM's proxy, too

Writes tests/judges/recorded/NAME.jsonl: each exchange of `tests/judges/conversation.py`, and what came of it. The model is the
embedded judge; run it again when a server's new release is to be read.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.judges.conversation import conversation, digest  # noqa: E402

from judgekit.judges.engines.vllm.judge import EMBEDDED, model_path  # noqa: E402

HERE, PORT, ROUTER = 18_460, 18_461, 18_462
NAME = "judge"
ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}


class Recorder:
    """Passes everything on to a server, and writes it down."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.exchanges: list[dict[str, Any]] = []

    async def pass_on(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "content-length")}
        url = f"http://127.0.0.1:{self.port}{request.rel_url}"
        async with (
            aiohttp.ClientSession() as client,
            client.request(request.method, url, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            raw = await answer.read()
        sent = request.headers.get("X-Request-Id", "\0")
        text = raw.decode().replace(sent, "recorded").replace(str(self.port), "PORT")
        with contextlib.suppress(ValueError):
            text = json.loads(text)
        self.exchanges.append(
            {
                "method": request.method,
                "path": request.path,
                "body": digest(body),
                "status": answer.status,
                "answer": text,
            }
        )
        return web.Response(body=raw, status=answer.status, content_type=answer.content_type)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{tail:.*}", self.pass_on)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", HERE).start()
        try:
            yield f"http://127.0.0.1:{HERE}/v1"
        finally:
            await runner.cleanup()


@contextlib.contextmanager
def process(folder: Path, name: str, command: Sequence[str], port: int) -> Iterator[None]:
    """A server's process, until it lists its models."""
    log = folder / f"{name}.txt"
    with log.open("wb") as output:
        started = subprocess.Popen(
            command,
            env={**os.environ, **ENV},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 400
        while not answers(f"http://127.0.0.1:{port}/v1/models"):
            if started.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{name} did not start:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(1)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGTERM)
        started.wait(60)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as page:
            return bool(page.status == 200)
    except OSError:
        return False


async def record(name: str, port: int, says: str, **options: Any) -> None:
    recorder = Recorder(port)
    async with recorder.running() as url:
        found = await conversation(url, NAME, **options)
    target = ROOT / "tests" / "judges" / "recorded" / f"{name}.jsonl"
    known = {json.dumps(e, ensure_ascii=False): None for e in recorder.exchanges}
    head = json.dumps(
        {"server": says, "model": NAME, "options": options, "outcomes": found}, ensure_ascii=False
    )
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join([head, *known]) + "\n")
    print(f"{name} ({says}): {len(recorder.exchanges)} exchanges")
    for each in found:
        print("  ", each)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--beside", type=Path, help="the folder with the commands litellm, smg and sglang-router"
    )
    given = parser.parse_args()
    vllm = f"vLLM {version('vllm-cpu') if _cpu() else version('vllm')}"
    worker = f"http://127.0.0.1:{PORT}"
    listen = ["--host", "127.0.0.1", "--port", str(ROUTER)]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        serve = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--port", str(PORT)]
        serve += ["--model", str(model_path(EMBEDDED)), "--served-model-name", NAME]
        with process(
            folder,
            "vllm",
            [*serve, "--max-model-len", "2048", "--max-num-seqs", "8", "--enforce-eager"],
            PORT,
        ):
            asyncio.run(record("vllm", PORT, vllm))
            router = Path(sys.executable).with_name("vllm-router")
            if router.exists():
                route = [str(router), *listen, "--policy", "consistent_hash", "--worker-urls", worker]
                with process(folder, "vllm-router", route, ROUTER):
                    says = f"vllm-router {version('vllm-router')} before {vllm}"
                    asyncio.run(record("vllm-router", ROUTER, says, router="vllm-router"))
            if given.beside is None:
                return
            for name in ("smg", "sglang-router"):
                route = [str(given.beside / name), "launch", *listen, "--worker-urls", worker]
                with process(folder, name, route, ROUTER):
                    asyncio.run(
                        record(
                            name, ROUTER, f"{name} {number(given.beside, name)} before {vllm}", router=name
                        )
                    )
            config = folder / "litellm.yaml"
            params = {"model": f"hosted_vllm/{NAME}", "api_base": f"{worker}/v1", "api_key": "none"}
            config.write_text(json.dumps({"model_list": [{"model_name": NAME, "litellm_params": params}]}))
            with process(
                folder, "litellm", [str(given.beside / "litellm"), "--config", str(config), *listen], ROUTER
            ):
                says = f"LiteLLM's proxy {number(given.beside, 'litellm')} before {vllm}"
                asyncio.run(record("litellm", ROUTER, says, router="litellm"))


def number(beside: Path, package: str) -> str:
    asks = f"import importlib.metadata as m; print(m.version({package!r}))"
    found = subprocess.run([str(beside / "python"), "-c", asks], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def _cpu() -> bool:
    try:
        version("vllm-cpu")
    except Exception:
        return False
    return True


if __name__ == "__main__":
    main()
