"""slime's custom reward model with --group-rm, as slime calls it; slime itself does not install without a GPU."""

import asyncio
import sys
from types import SimpleNamespace

from samples import AT_ONCE, SIZE, Sample, by_prompt, write

from judgekit.bridges import slime


def sample_of(one: Sample) -> SimpleNamespace:
    theirs = SimpleNamespace(
        group_index=one.group,
        index=one.member,
        prompt=one.prompt,
        response=one.text,
        label=one.truth,
        metadata={},
        response_length=len(one.text),
        status=SimpleNamespace(value="completed"),
        remove_sample=False,
        rollout_id=None,
        reward=None,
        get_reward_value=lambda args: theirs.reward,
    )
    return theirs


ARGS = SimpleNamespace(
    judgekit_reward=sys.argv[1],
    group_rm=True,
    custom_reward_post_process_path="judgekit.bridges.slime.normalise",
    advantage_estimator="grpo",
    rewards_normalization=True,
    grpo_std_normalization=True,
)


async def main() -> None:
    places = asyncio.Semaphore(max(AT_ONCE // SIZE, 1))

    async def grade(group: list[Sample]) -> list[tuple[Sample, SimpleNamespace]]:
        theirs = [sample_of(one) for one in group]
        async with places:
            rewards = await slime.reward(ARGS, theirs)
        for sample, paid in zip(theirs, rewards, strict=True):
            sample.reward = paid
        return list(zip(group, theirs, strict=True))

    graded = await asyncio.gather(*(grade(group) for _, group in by_prompt()))
    pairs = [pair for group in graded for pair in group]
    _, normalised = slime.normalise(ARGS, [sample for _, sample in pairs])
    write(
        "slime, --group-rm",
        ((one, sample.reward, "remove_sample" if sample.remove_sample else "") for one, sample in pairs),
        advantages={one.id: advantage for (one, _), advantage in zip(pairs, normalised, strict=True)},
    )


asyncio.run(main())
