"""Judge engines and verdict formats, by their names in reward.yaml."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from judgekit.errors import ConfigError, did_you_mean
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


def verdict_format(given: VerdictFormat | str | None, who: str) -> VerdictFormat | None:
    """Return a verdict format that is given itself or by its name. Raises ConfigError."""
    if not isinstance(given, str):
        return given
    if given not in VERDICTS:
        raise ConfigError(f"{who}: no verdict format is called {given!r}{did_you_mean(given, VERDICTS)}")
    return VERDICTS[given]()
