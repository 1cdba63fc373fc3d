"""A judge behind OpenAI's API, as a process of its own: `python judge_server.py PORT`.

Its verdict is 10 where the reference stands in the candidate, else 2. `GET /die?after=N`: it kills itself N verdicts
later, with requests in its hands.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys

from aiohttp import web

left = float("inf")
"""Verdicts until it kills itself."""


def quoted(heading: str, text: str) -> str:
    found = re.search(heading + r":\n(`+)\n(.*?)\n\1", text, re.S)
    assert found, text
    return found[2]


async def models(_: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "judge"}]})


async def die(request: web.Request) -> web.Response:
    global left
    left = int(request.query["after"])
    return web.Response()


async def chat(request: web.Request) -> web.Response:
    global left
    body = await request.json()
    text = "\n".join(message["content"] for message in body["messages"])
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.001)
    right = quoted("REFERENCE SOLUTION", text) in quoted("CANDIDATE SOLUTION", text)
    line = re.findall(r"### Final Score \[\w+\]", text)[-1]
    message = {"role": "assistant", "content": f"{line}: {10 if right else 2}"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return web.json_response({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})


app = web.Application()
app.router.add_get("/die", die)
app.router.add_get("/v1/models", models)
app.router.add_post("/v1/chat/completions", chat)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
