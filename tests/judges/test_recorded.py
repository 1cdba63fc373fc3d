"""Recorded traffic of real servers and routers (`tools/record_servers.py`) is read as it was when it was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aiohttp import web

from tests.judges.conversation import conversation, digest
from tests.judges.servers import serving

RECORDS = sorted((Path(__file__).parent / "recorded").glob("*.jsonl"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
async def test_what_a_real_server_sent_is_read_as_it_was(path: Path) -> None:
    record, *exchanges = map(json.loads, path.read_text().splitlines())
    known = {(e["method"], e["path"], e["body"]): e for e in exchanges}
    asked = set()

    async def answer(request: web.Request) -> web.StreamResponse:
        key = (request.method, request.path, digest(await request.read()))
        asked.add(key)
        if key not in known:
            return web.Response(status=404, text="this was not asked when it was recorded: record it again")
        said, status = known[key]["answer"], known[key]["status"]
        return (
            web.Response(text=said, status=status)
            if isinstance(said, str)
            else web.json_response(said, status=status)
        )

    async with serving(answer) as url:
        found = await conversation(f"{url}/v1", record["model"], **record["options"])
    assert found == record["outcomes"]
    assert asked == set(known), (
        "it was asked other things than when it was recorded: run tools/record_servers.py"
    )


def test_there_are_records() -> None:
    assert {path.stem for path in RECORDS} >= {"vllm", "vllm-router", "litellm"}
