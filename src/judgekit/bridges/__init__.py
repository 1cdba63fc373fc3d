"""judgekit inside trainers that call a function or a class for a reward: a module each, imported only where it is used.

| trainer | hook | what a missing reward becomes |
|---|---|---|
| verifiers (0.4 and later), prime-rl through it | `judgekit.bridges.verifiers:reward` | an error of the trace: no reward |
| OpenRLHF | `reward_func`, or `judged` for agents, of `judgekit.bridges.openrlhf` | a written number, or the run's end |
| slime | `reward` and `normalise` of `judgekit.bridges.slime` | excluded: no part in the loss and in its group's numbers |
| AReaL | `judgekit.bridges.areal.JudgedRLVRWorkflow` | the group's mean, out of the loss |
| NeMo-RL | `judgekit.bridges.nemo_rl.JudgeKitActor` | the group's mean |
| rLLM | `judgekit.bridges.rllm.JudgeKitEvaluator` | an error of the rollout |
| Tinker cookbook | `judgekit.bridges.tinker.Judged` | the group's mean |
| OpenReward | `judgekit.bridges.openreward.JudgeKitRewards` | null; in `score_group` the group's mean |

Which reward.yaml is graded with stands in each hook's own settings, or in the environment variable JUDGEKIT_REWARD.
Trainers that send HTTP requests instead are served by `judgekit serve-rewards`.
"""
