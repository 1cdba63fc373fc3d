"""Judges: requests and replies, prompts, verdict formats, engines and layers."""

from typing import TYPE_CHECKING, Any

from judgekit.judges.base import Judge, JudgeReply, JudgeRequest, Piece, RewardModel, Sampling, Turn
from judgekit.judges.engines.replicas import Routed
from judgekit.judges.layers.routes import JudgeRoutes
from judgekit.judges.prompts.template import Template
from judgekit.judges.sleeping import awake
from judgekit.judges.verdicts.formats import ChoiceVerdict, JsonVerdict, LineVerdict, Verdict, VerdictFormat

if TYPE_CHECKING:
    from judgekit.judges.engines.openai.http_reward_model import HTTPRewardModel
    from judgekit.judges.engines.openai.judge import OpenAIJudge
    from judgekit.judges.engines.openai.servers import openai_judge
    from judgekit.judges.engines.ray.judge import RayJudge, start_ray_judge
    from judgekit.judges.engines.vllm.judge import VLLMJudge, VLLMRewardModel
    from judgekit.judges.layers.stack import (
        BreakerOptions,
        CacheOptions,
        LayerOptions,
        stacked,
        stacked_reward_model,
    )

__all__ = [
    "BreakerOptions",
    "CacheOptions",
    "ChoiceVerdict",
    "HTTPRewardModel",
    "JsonVerdict",
    "Judge",
    "JudgeReply",
    "JudgeRequest",
    "JudgeRoutes",
    "LayerOptions",
    "LineVerdict",
    "OpenAIJudge",
    "Piece",
    "RayJudge",
    "RewardModel",
    "Routed",
    "Sampling",
    "Template",
    "Turn",
    "VLLMJudge",
    "VLLMRewardModel",
    "Verdict",
    "VerdictFormat",
    "awake",
    "openai_judge",
    "stacked",
    "stacked_reward_model",
    "start_ray_judge",
]

_LATER = {
    "BreakerOptions": "layers.stack",
    "CacheOptions": "layers.stack",
    "HTTPRewardModel": "engines.openai.http_reward_model",
    "LayerOptions": "layers.stack",
    "OpenAIJudge": "engines.openai.judge",
    "RayJudge": "engines.ray.judge",
    "VLLMJudge": "engines.vllm.judge",
    "VLLMRewardModel": "engines.vllm.judge",
    "openai_judge": "engines.openai.servers",
    "stacked": "layers.stack",
    "stacked_reward_model": "layers.stack",
    "start_ray_judge": "engines.ray.judge",
}
"""Names whose modules import heavy packages, and are loaded on first use."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(f"judgekit.judges.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
