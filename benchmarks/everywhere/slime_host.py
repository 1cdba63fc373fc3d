"""slime's custom reward model with --group-rm, as slime calls it; slime itself does not install without a GPU."""

import asyncio
import sys
from types import SimpleNamespace

from samples import Sample, by_prompt, write

from judgekit.bridges import slime


def sample_of(one: Sample) -> SimpleNamespace:
    return SimpleNamespace(
        group_index=one.group,
        index=one.member,
        prompt=one.prompt,
        response=one.text,
        label=one.truth,
        metadata={},
        response_length=len(one.text),
        status=SimpleNamespace(value="completed"),
        remove_sample=False,
    )


async def grade(group: list[Sample]) -> list[tuple[Sample, float | None, str]]:
    theirs = [sample_of(one) for one in group]
    rewards = await slime.reward(SimpleNamespace(judgekit_reward=sys.argv[1]), theirs)
    told = ["remove_sample" if sample.remove_sample else "" for sample in theirs]
    return list(zip(group, rewards, told, strict=True))


async def main() -> None:
    found = await asyncio.gather(*(grade(group) for _, group in by_prompt()))
    write("slime, --group-rm", (row for group in found for row in group))


asyncio.run(main())
