"""verifiers' own Task.score, with the reward plugged in by settings."""

import asyncio
import os
import sys

from samples import Sample, each, write
from tests.bridges.test_verifiers import QA, Data, plugged, trace_of

from judgekit import MissingRewardError


async def score(one: Sample) -> tuple[Sample, float | None, str]:
    data = Data(idx=one.group, prompt=one.prompt, answer=one.truth)
    trace = trace_of(data, one.text)
    try:
        await QA(data, plugged()).score(trace)
    except Exception as caught:
        error: BaseException | None = caught
        while error is not None and not isinstance(error, MissingRewardError):
            error = error.__cause__ or error.__context__
        if error is None:
            raise
        return one, trace.rewards.get("judgekit"), "an error of the trace"
    return one, trace.reward, ""


async def main() -> None:
    write("verifiers", await each(score), package="verifiers")


os.environ["JUDGEKIT_REWARD"] = sys.argv[1]
asyncio.run(main())
