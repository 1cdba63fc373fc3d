"""A failure is never a number: you decide what happens to a reward whose judge is down."""

import logging

from judgekit import Fallback, GradingRunner, JudgeUnavailable, Rollout, Score, Weighted
from judgekit.graders import FinalAnswer, JudgeGrader
from judgekit.testing import ScriptedJudge

logging.disable(logging.WARNING)  # the runner warns about failures; here they are on purpose

rollouts = [
    Rollout(prompt="What is 6 * 7?", ground_truth="#### 42", response=text, group="q1")
    for text in ("It is 42.", "It is 41.", "The judge crashes here: 42.", "It is 43.")
]
judge = JudgeGrader(ScriptedJudge({"crashes": JudgeUnavailable("engine died")}, default={"0": 0.2, "1": 0.8}))
graders = {"correct": FinalAnswer(), "judge": judge}
half = {"correct": 0.5, "judge": 0.5}

for name, reward, missing_reward in (
    ("mask: no reward; the trainer masks the loss", Weighted(half), "mask"),
    ("neutral: the mean of its group, so its advantage is zero", Weighted(half), "neutral"),
    ("a number: that constant", Weighted(half), -1.0),
    (
        "renormalise: the other graders take over its weight",
        Weighted({"correct": 0.5, "judge": (0.5, Score("judge", if_missing="renormalise"))}),
        "mask",
    ),
    ("fallback: another grade instead", Fallback(Weighted(half), "correct"), "mask"),
):
    runner = GradingRunner(graders, reward, missing_reward=missing_reward)
    results = runner.run_sync(rollouts)
    print(name)
    print(
        "   ",
        [r.reward if r.reward is None else round(r.reward, 3) for r in results],
        results[2].status,
        *results[2].policies,
    )
