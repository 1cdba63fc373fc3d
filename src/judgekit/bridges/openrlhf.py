"""OpenRLHF: a reward function in a file of your own.

    # reward.py, given as --reward.remote_url reward.py, with JUDGEKIT_REWARD=reward.yaml
    from judgekit.bridges.openrlhf import reward_func

OpenRLHF hands over one sample at a time, as text with its prompt, and cannot be told that a reward is missing: write
`missing_reward: <number>` or `missing_reward: raise`, which ends the run.

Source: OpenRLHF 0.11.2, openrlhf/utils/agent.py (`SingleTurnAgentExecutor`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from judgekit.bridges.bridge import bridge, reward_file, value
from judgekit.errors import DataError
from judgekit.types import Rollout

_ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "</s>", "<eos>", "<end_of_turn>")
"""How replies of the usual models end: OpenRLHF keeps special tokens in its text."""


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> dict[str, Any]:
    """Grade one sample, from a thread. *queries*: prompt and response in one text. Raises MissingRewardError, DataError."""
    if len(queries) != 1:
        raise DataError(f"OpenRLHF hands over one sample a call, not {len(queries)}")
    ((query, prompt, label),) = zip(queries, prompts, labels, strict=True)
    response = response_of(query, prompt)
    # functions written for OpenRLHF get the whole text, with its special tokens
    rollout = Rollout(prompt=prompt, response=response, ground_truth=label, extra={"query": query})
    (result,) = bridge(reward_file(), grouped=False).grade_sync([rollout])
    paid = value(result)
    # numbers only, and the same keys for every sample: a score that is missing has no place here
    logs = {f"judgekit_{name}_missing": float(name in result.missing) for name in result.grades}
    return {
        "rewards": paid,
        "scores": paid,
        "extra_logs": {**logs, "judgekit_missing": float(result.status != "scored")},
    }


def response_of(query: str, prompt: str) -> str:
    """Return what follows the prompt, without the token that ends a reply.

    Raises DataError if the prompt was cut (`--max_len`): then nobody knows where the response begins.
    """
    if not query.startswith(prompt):
        raise DataError(
            "the text does not begin with its prompt, which was cut to fit --max_len: raise it, or drop long prompts"
        )
    text = query[len(prompt) :].rstrip()
    for end in _ENDS:
        text = text.removesuffix(end)
    return text
