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
    from judgekit.graders.judged.turnwise import JudgeTurns
    from judgekit.graders.rules.agents.loops import ActionLoop
    from judgekit.graders.rules.agents.observations import InformationGain, StepEfficiency, ToolEfficiency
    from judgekit.graders.rules.agents.tools import StepSequence, ToolCallMatch
    from judgekit.graders.rules.answers.choices import MultipleChoice
    from judgekit.graders.rules.answers.final_answer import FinalAnswer
    from judgekit.graders.rules.answers.maths import MathEquivalence
    from judgekit.graders.rules.format.json_format import JsonFormat, JsonMatch
    from judgekit.graders.rules.format.markup import Boxed, CodeBlock, Script, ToolCallFormat
    from judgekit.graders.rules.format.patterns import RegexFormat, TagFormat
    from judgekit.graders.rules.group_rules import Diversity, MajorityAgreement, ShortestCorrect
    from judgekit.graders.rules.instructions.instructions import Instructions
    from judgekit.graders.rules.programs.code import Code
    from judgekit.graders.rules.programs.patch import Patch
    from judgekit.graders.rules.programs.sql import Sql
    from judgekit.graders.rules.text.length import CosineLength, Length, SoftOverlong
    from judgekit.graders.rules.text.matching import Bleu, ChrF, EditSimilarity, Rouge, TextMatch, TokenF1
    from judgekit.graders.rules.text.overlap import Gleu, Meteor, Overlap
    from judgekit.graders.rules.text.repetition import Compression, Repetition

_MODULES = {
    "ActionLoop": "rules.agents.loops",
    "Bleu": "rules.text.matching",
    "Boxed": "rules.format.markup",
    "ChrF": "rules.text.matching",
    "Code": "rules.programs.code",
    "CodeBlock": "rules.format.markup",
    "Compression": "rules.text.repetition",
    "CosineLength": "rules.text.length",
    "Criterion": "judged.rubric",
    "Diversity": "rules.group_rules",
    "EditSimilarity": "rules.text.matching",
    "FinalAnswer": "rules.answers.final_answer",
    "Gleu": "rules.text.overlap",
    "InformationGain": "rules.agents.observations",
    "Instructions": "rules.instructions.instructions",
    "JsonFormat": "rules.format.json_format",
    "JsonMatch": "rules.format.json_format",
    "JudgeGrader": "judged.pointwise",
    "JudgeTurns": "judged.turnwise",
    "Length": "rules.text.length",
    "Listwise": "judged.listwise",
    "MajorityAgreement": "rules.group_rules",
    "MathEquivalence": "rules.answers.maths",
    "Meteor": "rules.text.overlap",
    "MultipleChoice": "rules.answers.choices",
    "Overlap": "rules.text.overlap",
    "Pairwise": "judged.pairwise",
    "Panel": "judged.panel",
    "Patch": "rules.programs.patch",
    "RegexFormat": "rules.format.patterns",
    "Repetition": "rules.text.repetition",
    "RewardModelGrader": "judged.reward_model",
    "Rouge": "rules.text.matching",
    "Rubric": "judged.rubric",
    "RubricGrader": "judged.rubric",
    "Script": "rules.format.markup",
    "ShortestCorrect": "rules.group_rules",
    "SoftOverlong": "rules.text.length",
    "Sql": "rules.programs.sql",
    "StepEfficiency": "rules.agents.observations",
    "StepSequence": "rules.agents.tools",
    "TagFormat": "rules.format.patterns",
    "TextMatch": "rules.text.matching",
    "TokenF1": "rules.text.matching",
    "ToolCallFormat": "rules.format.markup",
    "ToolCallMatch": "rules.agents.tools",
    "ToolEfficiency": "rules.agents.observations",
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
    "JudgeTurns",
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
