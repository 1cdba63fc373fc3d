"""Judges: what is asked, how it is said, how the verdict is read, and the engines that answer."""

from typing import TYPE_CHECKING, Any

from judgekit.judges.base import Judge, JudgeReply, JudgeRequest, Piece, Sampling, Turn
from judgekit.judges.prompt import Template
from judgekit.judges.routed import Routed
from judgekit.judges.routes import JudgeRoutes
from judgekit.judges.verdict import ChoiceVerdict, JsonVerdict, LineVerdict, Verdict, VerdictFormat

if TYPE_CHECKING:
    from judgekit.judges.layers import BreakerOptions, CacheOptions, LayerOptions, stacked
    from judgekit.judges.openai import OpenAIJudge, openai_judge
    from judgekit.judges.ray import RayJudge, start_ray_judge
    from judgekit.judges.reward_models import HTTPRewardModel, RewardModel
    from judgekit.judges.vllm import VLLMJudge, VLLMRewardModel

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
    "openai_judge",
    "stacked",
    "start_ray_judge",
]

_LATER = {
    "BreakerOptions": "layers",
    "CacheOptions": "layers",
    "HTTPRewardModel": "reward_models",
    "LayerOptions": "layers",
    "OpenAIJudge": "openai",
    "RayJudge": "ray",
    "RewardModel": "reward_models",
    "VLLMJudge": "vllm",
    "VLLMRewardModel": "vllm",
    "openai_judge": "openai",
    "stacked": "layers",
    "start_ray_judge": "ray",
}
"""Names whose modules bring heavier imports, and are loaded on first use."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(f"judgekit.judges.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
