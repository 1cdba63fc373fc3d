"""Asks a judge only about rollouts that pass a cheap rule. ScriptedJudge stands in for a real one:

judge = VLLMJudge("Qwen/Qwen2.5-1.5B-Instruct")            # a frozen engine in this process
judge = RayJudge("maths")                                   # named actors, `judgekit serve --engine ray`
judge = OpenAIJudge("http://127.0.0.1:8000/v1")             # any OpenAI-compatible server
"""

import asyncio

from judgekit import Gate, GradingRunner, Rollout, Score, Weighted
from judgekit.graders import FinalAnswer, JudgeGrader
from judgekit.testing import ScriptedJudge

# the score is P(1): one token that the judge writes, so a rollout cannot fake it
judge = ScriptedJudge({"because": {"0": 0.1, "1": 0.9}}, default={"0": 0.7, "1": 0.3})

runner = GradingRunner(
    {"correct": FinalAnswer(), "judge": JudgeGrader(judge, template="detailed")},
    Gate(if_=Score("correct") >= 1, then=Weighted({"correct": 0.5, "judge": 0.5}), otherwise=0.0),
)

rollouts = [
    Rollout(prompt="What is 6 * 7?", ground_truth="#### 42", response="It is 42 because 6 * 7 = 42."),
    Rollout(prompt="What is 6 * 7?", ground_truth="#### 42", response="Just 42."),
    Rollout(prompt="What is 6 * 7?", ground_truth="#### 42", response="It is 48 because 6 * 8 = 48."),
]


async def main() -> None:
    async for result in runner.stream(rollouts):
        print(f"{result.reward:.2f}  {rollouts[result.index].response}  ({result.grades['judge']})")
    print(f"the judge was asked {len(judge.requests)} times for {len(rollouts)} rollouts")


asyncio.run(main())
