"""A judge behind OpenAI's API whose opinion is a hash of what it reads: `python judge_server.py [WEATHER]`; it prints its port.

In its weather `slow` it takes 0.2 s; `dead`, it drops all connections for 2 s after each 300 answers; `refusing`, it answers
HTTP 503 to one request in eight.

Of a text with the word `unreadable` it says nothing that can be read, and of one with `unavailable` HTTP 500: where it is
asked for a score, not where it ranks.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
import zlib
from collections.abc import Sequence

from aiohttp import web
from samples import REFUSED, UNREADABLE

_RESPONSE = re.compile(r"RESPONSE (M\d+):\n(`+)\n(.*?)\n\2", re.S)


def quoted(heading: str, text: str) -> str:
    found = re.search(heading + r":\n(`+)\n(.*?)\n\1", text, re.S)
    assert found, text
    return found[2]


def opinion(*texts: str) -> int:
    return zlib.crc32("\n".join(texts).encode())


def ranking(text: str) -> str:
    shown = {name: response for name, _, response in _RESPONSE.findall(text)}
    names = sorted(shown, key=lambda name: opinion(shown[name]))
    (code,) = re.findall(r'\{"code": "(?!CODE)([^"]+)"', text)
    return json.dumps({"code": code, "reason": "", "ranking": names})


def score(text: str) -> str | None:
    parts = [quoted(heading, text) for heading in ("PROBLEM", "REFERENCE SOLUTION", "CANDIDATE SOLUTION")]
    if REFUSED in parts[-1]:
        return None
    if UNREADABLE in parts[-1]:
        return "I had rather not say."
    line: str = re.findall(r"### Final Score \[(?!CODE)\w+\]", text)[-1]
    return f"{line}: {opinion(*parts) % 1001}"


WEATHER = sys.argv[1] if len(sys.argv) > 1 else ""
DEAD_S = 2.0
asked = 0
alive = 0
back = 0.0


async def chat(request: web.Request) -> web.Response:
    global asked, alive, back
    body = await request.json()
    asked += 1
    if WEATHER == "slow":
        await asyncio.sleep(0.2)
    if WEATHER == "refusing" and asked % 8 == 0:
        return web.json_response(
            {"error": {"message": "come again"}}, status=503, headers={"Retry-After": "0"}
        )
    if WEATHER == "dead":
        if back and time.monotonic() >= back:
            alive, back = asked, 0.0
        if not back and asked - alive > 300:
            back = time.monotonic() + DEAD_S
        if back and request.transport is not None:
            request.transport.abort()
    text = "\n".join(message["content"] for message in body["messages"])
    if (
        "PROBLEM:" not in text and "RESPONSE M1:" not in text
    ):  # what a judge asks a server that it does not know
        return web.json_response({"error": {"message": "not a rollout"}}, status=500)
    said = ranking(text) if "RESPONSE M1:" in text else score(text)
    if said is None:
        return web.json_response({"error": {"message": "planted"}}, status=500)
    choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
    return web.json_response({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})


async def models(_: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "judge"}]})


async def serve() -> None:
    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    addresses: Sequence[tuple[str, int]] = runner.addresses
    print(addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
