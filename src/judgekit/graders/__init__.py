"""The graders that ship with judgekit. Each is imported on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from judgekit.graders.judged.listwise import Listwise
    from judgekit.graders.judged.pairwise import Pairwise
    from judgekit.graders.judged.panel import Panel
    from judgekit.graders.judged.pointwise import JudgeGrader
    from judgekit.graders.judged.reward_model import RewardModelGrader
    from judgekit.graders.judged.rubric import Criterion, Rubric, RubricGrader
    from judgekit.graders.rules.answers import FinalAnswer
    from judgekit.graders.rules.choices import MultipleChoice
    from judgekit.graders.rules.code import Code
    from judgekit.graders.rules.format import RegexFormat, TagFormat
    from judgekit.graders.rules.group_rules import Diversity, MajorityAgreement, ShortestCorrect
    from judgekit.graders.rules.instructions import Instructions
    from judgekit.graders.rules.json_format import JsonFormat, JsonMatch
    from judgekit.graders.rules.length import CosineLength, Length, SoftOverlong
    from judgekit.graders.rules.loops import ActionLoop
    from judgekit.graders.rules.markup import Boxed, CodeBlock, Script, ToolCallFormat
    from judgekit.graders.rules.matching import Bleu, ChrF, EditSimilarity, Rouge, TextMatch, TokenF1
    from judgekit.graders.rules.maths import MathEquivalence
    from judgekit.graders.rules.observations import InformationGain, StepEfficiency, ToolEfficiency
    from judgekit.graders.rules.overlap import Gleu, Meteor, Overlap
    from judgekit.graders.rules.patch import Patch
    from judgekit.graders.rules.repetition import Compression, Repetition
    from judgekit.graders.rules.sql import Sql
    from judgekit.graders.rules.tools import StepSequence, ToolCallMatch

_MODULES = {
    "ActionLoop": "rules.loops",
    "Bleu": "rules.matching",
    "Boxed": "rules.markup",
    "ChrF": "rules.matching",
    "Code": "rules.code",
    "CodeBlock": "rules.markup",
    "Compression": "rules.repetition",
    "CosineLength": "rules.length",
    "Criterion": "judged.rubric",
    "Diversity": "rules.group_rules",
    "EditSimilarity": "rules.matching",
    "FinalAnswer": "rules.answers",
    "Gleu": "rules.overlap",
    "InformationGain": "rules.observations",
    "Instructions": "rules.instructions",
    "JsonFormat": "rules.json_format",
    "JsonMatch": "rules.json_format",
    "JudgeGrader": "judged.pointwise",
    "Length": "rules.length",
    "Listwise": "judged.listwise",
    "MajorityAgreement": "rules.group_rules",
    "MathEquivalence": "rules.maths",
    "Meteor": "rules.overlap",
    "MultipleChoice": "rules.choices",
    "Overlap": "rules.overlap",
    "Pairwise": "judged.pairwise",
    "Panel": "judged.panel",
    "Patch": "rules.patch",
    "RegexFormat": "rules.format",
    "Repetition": "rules.repetition",
    "RewardModelGrader": "judged.reward_model",
    "Rouge": "rules.matching",
    "Rubric": "judged.rubric",
    "RubricGrader": "judged.rubric",
    "Script": "rules.markup",
    "ShortestCorrect": "rules.group_rules",
    "SoftOverlong": "rules.length",
    "Sql": "rules.sql",
    "StepEfficiency": "rules.observations",
    "StepSequence": "rules.tools",
    "TagFormat": "rules.format",
    "TextMatch": "rules.matching",
    "TokenF1": "rules.matching",
    "ToolCallFormat": "rules.markup",
    "ToolCallMatch": "rules.tools",
    "ToolEfficiency": "rules.observations",
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
    "Gleu",
    "InformationGain",
    "Instructions",
    "JsonFormat",
    "JsonMatch",
    "JudgeGrader",
    "Length",
    "Listwise",
    "MajorityAgreement",
    "MathEquivalence",
    "Meteor",
    "MultipleChoice",
    "Overlap",
    "Pairwise",
    "Panel",
    "Patch",
    "RegexFormat",
    "Repetition",
    "RewardModelGrader",
    "Rouge",
    "Rubric",
    "RubricGrader",
    "Script",
    "ShortestCorrect",
    "SoftOverlong",
    "Sql",
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
