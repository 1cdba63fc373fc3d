"""AReaL's own workflow and groups, by the lines of the documentation; a stand-in generates."""

import asyncio
import logging

from samples import SIZE, by_prompt, each, write
from samples import Sample as One
from tests.bridges.areal_host import Engine, workflow

PROMPTS = {prompt: rows for prompt, rows in by_prompt()}


async def main() -> None:
    groups: dict[str, asyncio.Task[dict[str, list[float]] | None]] = {}

    async def generate(prompt: str, rows: list[One]) -> dict[str, list[float]] | None:
        row = {"messages": [{"role": "user", "content": prompt}], "answer": rows[0].truth}
        found = await workflow(SIZE, evaluation=False).arun_episode(Engine([one.text for one in rows]), row)
        if found is None:
            return None
        return {"rewards": found["rewards"].tolist(), "trained": found["loss_mask"].sum(1).tolist()}

    async def one(sample: One) -> tuple[One, float | None, str]:
        if sample.prompt not in groups:
            groups[sample.prompt] = asyncio.ensure_future(generate(sample.prompt, PROMPTS[sample.prompt]))
        found = await groups[sample.prompt]
        if found is None:
            return sample, None, "a rejected group"
        told = "" if found["trained"][sample.member] else "a loss mask of zeros"
        return sample, found["rewards"][sample.member], told

    write("AReaL 1.0.4, workflow", await each(one, groups=True))


logging.disable(logging.WARNING)
asyncio.run(main())
