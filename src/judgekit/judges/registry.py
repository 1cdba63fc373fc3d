"""Judge engines and verdict formats, by their names in reward.yaml."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from judgekit.judges.asking.verdict import ChoiceVerdict, JsonVerdict, LineVerdict, VerdictFormat

ENGINES: Mapping[str, str] = {
    "openai": "judgekit.judges.engines.openai_servers:openai_judge",
    "ray": "judgekit.judges.engines.ray:RayJudge",
    "reward_model": "judgekit.judges.engines.vllm:VLLMRewardModel",
    "reward_model_http": "judgekit.judges.engines.reward_models:HTTPRewardModel",
    "vllm": "judgekit.judges.engines.vllm:VLLMJudge",
}
"""Judge engines, by the value of `engine`."""


VERDICTS: Mapping[str, Callable[..., VerdictFormat]] = {
    "choice": ChoiceVerdict,
    "json": JsonVerdict,
    "line": LineVerdict,
}
