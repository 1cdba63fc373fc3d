"""Judges: requests and replies, prompts, verdict formats, engines and layers."""

from typing import TYPE_CHECKING, Any

from judgekit.judges.asking.prompt import Template
from judgekit.judges.asking.verdict import ChoiceVerdict, JsonVerdict, LineVerdict, Verdict, VerdictFormat
from judgekit.judges.base import Judge, JudgeReply, JudgeRequest, Piece, Sampling, Turn
from judgekit.judges.layers.routed import Routed
from judgekit.judges.layers.routes import JudgeRoutes
from judgekit.judges.sleeping import awake

if TYPE_CHECKING:
    from judgekit.judges.engines.openai import OpenAIJudge
    from judgekit.judges.engines.openai_servers import openai_judge
    from judgekit.judges.engines.ray import RayJudge, start_ray_judge
    from judgekit.judges.engines.reward_models import HTTPRewardModel, RewardModel
    from judgekit.judges.engines.vllm import VLLMJudge, VLLMRewardModel
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
    "HTTPRewardModel": "engines.reward_models",
    "LayerOptions": "layers.stack",
    "OpenAIJudge": "engines.openai",
    "RayJudge": "engines.ray",
    "RewardModel": "engines.reward_models",
    "VLLMJudge": "engines.vllm",
    "VLLMRewardModel": "engines.vllm",
    "openai_judge": "engines.openai_servers",
    "stacked": "layers.stack",
    "stacked_reward_model": "layers.stack",
    "start_ray_judge": "engines.ray",
}
"""Names whose modules import heavy packages, and are loaded on first use."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(f"judgekit.judges.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
