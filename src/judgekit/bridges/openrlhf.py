"""OpenRLHF: a reward function in a file of your own.

    # reward.py, given as --reward.remote_url reward.py, with JUDGEKIT_REWARD=reward.yaml
    from judgekit.bridges.openrlhf import reward_func

    # agent.py, given as --train.agent_func_path agent.py, with an AgentInstance of yours for several turns
    from judgekit.bridges.openrlhf import judged
    AgentExecutor = judged(AgentInstance)

OpenRLHF hands over one sample at a time, as text with its prompt, and cannot be told that a reward is missing: write
`missing_reward: <number>` or `missing_reward: raise`, which ends the run.

Source: OpenRLHF 0.11.2, openrlhf/utils/agent.py (`SingleTurnAgentExecutor`, `MultiTurnAgentExecutor`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from judgekit.bridges.bridge import bridge, reward_file, value
from judgekit.errors import DataError
from judgekit.trainers import rollout_of, turns_of_tokens
from judgekit.types import QUERY, RewardResult, Rollout

_ENDS = (
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "</s>", "<eos>", "<end_of_turn>", "<turn|>",
    "<|end|>", "<|return|>", "<|call|>", "<｜end▁of▁sentence｜>", "<|END_OF_TURN_TOKEN|>", "<|user|>", "<|observation|>", "[EOS]",
    "<|endofturn|>", "<|role_end|>",
)  # fmt: skip
"""How replies of the usual models end: OpenRLHF keeps special tokens in its text."""


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> dict[str, Any]:
    """Grade one sample, from a thread. *queries*: prompt and response in one text. Raises MissingRewardError, DataError."""
    if len(queries) != 1:
        raise DataError(f"OpenRLHF hands over one sample a call, not {len(queries)}")
    ((query, prompt, label),) = zip(queries, prompts, labels, strict=True)
    response = response_of(query, prompt)
    # functions written for OpenRLHF get the whole text, with its special tokens
    rollout = Rollout(prompt=prompt, response=response, ground_truth=label, extra={QUERY: query})
    (result,) = bridge(reward_file(), grouped=False).grade_sync([rollout])
    paid = value(result)
    return {"rewards": paid, "scores": paid, "extra_logs": _logs(result)}


def _logs(result: RewardResult) -> dict[str, float]:
    """Return numbers only, and the same keys for every sample: a score that is missing has no place here."""
    logs = {f"judgekit_{name}_missing": float(name in result.missing) for name in result.grades}
    return {**logs, "judgekit_missing": float(result.status != "scored")}


def judged(agent: type) -> type:
    """Return the AgentExecutor of an AgentInstance (a class of yours), which grades each finished conversation.

    The reward is added to what the agent's steps paid. Executing raises MissingRewardError, which ends the run.
    """
    from openrlhf.utils.agent import MultiTurnAgentExecutor

    class AgentExecutor(MultiTurnAgentExecutor):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(agent)

        async def execute(
            self,
            prompt: str,
            label: Any,
            sampling_params: Any,
            max_length: int,
            hf_tokenizer: Any,
            *rest: Any,
            **more: Any,
        ) -> Any:
            told = await super().execute(
                prompt, label, sampling_params, max_length, hf_tokenizer, *rest, **more
            )
            rollout = _conversation(told, prompt, label, hf_tokenizer)
            (result,) = await bridge(reward_file(), grouped=False).grade([rollout])
            paid = told["reward"] + value(result)
            return {
                **told,
                "reward": paid,
                "scores": paid,
                "extra_logs": {**told["extra_logs"], **_logs(result)},
            }

    return AgentExecutor


def _conversation(told: Mapping[str, Any], prompt: str, label: Any, tokenizer: Any) -> Rollout:
    """Make a rollout of a finished conversation; the ranges of its actions tell the policy's tokens from the agent's."""
    tokens, ranges = told["observation_tokens"], told["action_ranges"]
    start = ranges[0][0] if ranges else len(tokens)
    mask = [0] * (len(tokens) - start)
    for first, end in ranges:
        mask[first - start : end - start] = [1] * (end - first)
    while mask and not mask[-1]:  # what the agent says after the last turn
        mask.pop()
    turns = turns_of_tokens(
        tokens[start : start + len(mask)], mask, lambda ids: tokenizer.decode(ids, skip_special_tokens=True)
    )
    return rollout_of({"ground_truth": label}, prompt=prompt, turns=turns, response_tokens=sum(mask) or None)


def response_of(query: str, prompt: str) -> str:
    """Return what follows the prompt, without the tokens that end a reply.

    Raises DataError if the prompt was cut (`--data.max_len`): then nobody knows where the response begins.
    """
    if not query.startswith(prompt):
        raise DataError(
            "the text does not begin with its prompt, which was cut to fit --data.max_len: raise it, or drop long prompts"
        )
    text = query[len(prompt) :].rstrip()
    while end := next((one for one in _ENDS if text.endswith(one)), ""):  # an end, and then padding
        text = text.removesuffix(end).rstrip()
    return text
