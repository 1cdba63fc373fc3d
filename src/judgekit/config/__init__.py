"""reward.yaml: graders, judges, reward and runner in one file.

    graders:
      correct: {use: final_answer}
      brief:   {use: length, soft_max: 600, hard_max: 1200}
      judge:   {use: judge, judge: local}
      mine:    {use: "my_rewards:politeness"}
    judges:
      local: {engine: openai, url: "${JUDGE_URL:-http://127.0.0.1:8000}", layers: {cache: {path: verdicts.sqlite}}}
    reward: {weighted: {correct: 0.6, judge: 0.3, brief: 0.1, mine: 0}}
    runner: {timeout_s: 30, missing_reward: neutral}

`use` names a grader of judgekit or of a plug-in (entry-point group `judgekit.graders`), or one of yours as
`module:object`; modules beside the file can be imported. Its other keys are the grader's parameters. A reward function
that was written for TRL, verl, verifiers or OpenRLHF is a grader as it stands: see `from_function`, whose options are its
keys, with the function's own parameters beside them. `fields`
renames rollout fields for graders that cannot do so themselves; `trust` lets any grader abstain where a certificate does
not trust it (see `judgekit.graders.trust`). The keys of `runner` and `ledger` are the
parameters of `GradingRunner` and `Ledger`, with the same defaults.

Nothing is converted or guessed: a number is not text, `yes` is not a boolean (YAML 1.2), keys are unique, and an
unknown name is an error that suggests the nearest known one. Paths are relative to the file. `${NAME}` and
`${NAME:-default}` are environment variables, `$${` is a literal `${`.
"""

from judgekit.config.reward_file import RewardConfig, load_config, load_runner

__all__ = ["RewardConfig", "load_config", "load_runner"]
