"""slime's form over HTTP, as its client sends it (remote_rm)."""

import asyncio
import sys

import aiohttp
from samples import Sample, each, write
from tests.service.test_forms import slime

URL = sys.argv[1]


async def main() -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64)) as session:

        async def ask(one: Sample) -> tuple[Sample, float | None, str]:
            async with session.post(
                URL, json=slime(one.text, prompt=one.prompt, label=one.truth)
            ) as response:
                if response.status != 200:
                    return one, None, f"HTTP {response.status}"
                answer = await response.json()
            status = answer["status"]
            return (
                one,
                answer["reward"],
                "" if status == "scored" else f"status: {status}, which slime does not read",
            )

        found = await each(ask, groups=True)
    write("slime, remote_rm", found)


asyncio.run(main())
