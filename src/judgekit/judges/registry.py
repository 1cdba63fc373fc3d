"""Judge engines and verdict formats, by their names in reward.yaml."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from judgekit.errors import ConfigError, did_you_mean
from judgekit.judges.verdicts.formats import ChoiceVerdict, JsonVerdict, LineVerdict, VerdictFormat

ENGINES: Mapping[str, str] = {
    "openai": "judgekit.judges.engines.openai.servers:openai_judge",
    "ray": "judgekit.judges.engines.ray.judge:RayJudge",
    "reward_model": "judgekit.judges.engines.vllm.judge:VLLMRewardModel",
    "reward_model_http": "judgekit.judges.engines.openai.http_reward_model:HTTPRewardModel",
    "vllm": "judgekit.judges.engines.vllm.judge:VLLMJudge",
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
