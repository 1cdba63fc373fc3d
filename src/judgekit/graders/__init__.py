"""The graders that judgekit ships. Each is imported when it is first asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from judgekit.graders.answers import FinalAnswer
    from judgekit.graders.choices import MultipleChoice
    from judgekit.graders.code import Code
    from judgekit.graders.format import RegexFormat, TagFormat
    from judgekit.graders.groups import Diversity, MajorityAgreement, ShortestCorrect
    from judgekit.graders.instructions import Instructions
    from judgekit.graders.json_format import JsonFormat, JsonMatch
    from judgekit.graders.judged import JudgeGrader
    from judgekit.graders.length import CosineLength, Length, SoftOverlong
    from judgekit.graders.listwise import Listwise
    from judgekit.graders.loops import ActionLoop
    from judgekit.graders.markup import Boxed, CodeBlock, Script, ToolCallFormat
    from judgekit.graders.matching import Bleu, ChrF, EditSimilarity, Rouge, TextMatch, TokenF1
    from judgekit.graders.maths import MathEquivalence
    from judgekit.graders.observations import InformationGain, StepEfficiency, ToolEfficiency
    from judgekit.graders.pairwise import Pairwise
    from judgekit.graders.panel import Panel
    from judgekit.graders.repetition import Compression, Repetition
    from judgekit.graders.reward_model import RewardModelGrader
    from judgekit.graders.rubric import Criterion, Rubric, RubricGrader
    from judgekit.graders.tools import StepSequence, ToolCallMatch

_MODULES = {
    "ActionLoop": "loops",
    "Bleu": "matching",
    "Boxed": "markup",
    "ChrF": "matching",
    "Code": "code",
    "CodeBlock": "markup",
    "Compression": "repetition",
    "CosineLength": "length",
    "Criterion": "rubric",
    "Diversity": "groups",
    "EditSimilarity": "matching",
    "FinalAnswer": "answers",
    "InformationGain": "observations",
    "Instructions": "instructions",
    "JsonFormat": "json_format",
    "JsonMatch": "json_format",
    "JudgeGrader": "judged",
    "Length": "length",
    "Listwise": "listwise",
    "MajorityAgreement": "groups",
    "MathEquivalence": "maths",
    "MultipleChoice": "choices",
    "Pairwise": "pairwise",
    "Panel": "panel",
    "RegexFormat": "format",
    "Repetition": "repetition",
    "RewardModelGrader": "reward_model",
    "Rouge": "matching",
    "Rubric": "rubric",
    "RubricGrader": "rubric",
    "Script": "markup",
    "ShortestCorrect": "groups",
    "SoftOverlong": "length",
    "StepEfficiency": "observations",
    "StepSequence": "tools",
    "TagFormat": "format",
    "TextMatch": "matching",
    "TokenF1": "matching",
    "ToolCallFormat": "markup",
    "ToolCallMatch": "tools",
    "ToolEfficiency": "observations",
}

__all__ = [
    "ActionLoop",
    "Bleu",
    "Boxed",
    "ChrF",
    "Code",
    "CodeBlock",
    "Compression",
    "CosineLength",
    "Criterion",
    "Diversity",
    "EditSimilarity",
    "FinalAnswer",
    "InformationGain",
    "Instructions",
    "JsonFormat",
    "JsonMatch",
    "JudgeGrader",
    "Length",
    "Listwise",
    "MajorityAgreement",
    "MathEquivalence",
    "MultipleChoice",
    "Pairwise",
    "Panel",
    "RegexFormat",
    "Repetition",
    "RewardModelGrader",
    "Rouge",
    "Rubric",
    "RubricGrader",
    "Script",
    "ShortestCorrect",
    "SoftOverlong",
    "StepEfficiency",
    "StepSequence",
    "TagFormat",
    "TextMatch",
    "TokenF1",
    "ToolCallFormat",
    "ToolCallMatch",
    "ToolEfficiency",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
