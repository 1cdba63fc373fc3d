"""Graders, by the name after `use:` in reward.yaml."""

from __future__ import annotations

from collections.abc import Mapping

GRADERS: Mapping[str, str] = {
    "action_loop": "judgekit.graders.rules.loops:ActionLoop",
    "bleu": "judgekit.graders.rules.matching:Bleu",
    "boxed": "judgekit.graders.rules.markup:Boxed",
    "chrf": "judgekit.graders.rules.matching:ChrF",
    "code": "judgekit.graders.rules.code:Code",
    "code_block": "judgekit.graders.rules.markup:CodeBlock",
    "compression": "judgekit.graders.rules.repetition:Compression",
    "cosine_length": "judgekit.graders.rules.length:CosineLength",
    "diversity": "judgekit.graders.rules.groups:Diversity",
    "edit_similarity": "judgekit.graders.rules.matching:EditSimilarity",
    "final_answer": "judgekit.graders.rules.answers:FinalAnswer",
    "information_gain": "judgekit.graders.rules.observations:InformationGain",
    "instructions": "judgekit.graders.rules.instructions:Instructions",
    "json": "judgekit.graders.rules.json_format:JsonFormat",
    "json_match": "judgekit.graders.rules.json_format:JsonMatch",
    "judge": "judgekit.graders.judged.pointwise:JudgeGrader",
    "length": "judgekit.graders.rules.length:Length",
    "listwise": "judgekit.graders.judged.listwise:Listwise",
    "majority": "judgekit.graders.rules.groups:MajorityAgreement",
    "math": "judgekit.graders.rules.maths:MathEquivalence",
    "multiple_choice": "judgekit.graders.rules.choices:MultipleChoice",
    "pairwise": "judgekit.graders.judged.pairwise:Pairwise",
    "panel": "judgekit.graders.judged.panel:Panel",
    "regex": "judgekit.graders.rules.format:RegexFormat",
    "repetition": "judgekit.graders.rules.repetition:Repetition",
    "reward_model": "judgekit.graders.judged.reward_model:RewardModelGrader",
    "rouge": "judgekit.graders.rules.matching:Rouge",
    "rubric": "judgekit.graders.judged.rubric:RubricGrader",
    "script": "judgekit.graders.rules.markup:Script",
    "shortest_correct": "judgekit.graders.rules.groups:ShortestCorrect",
    "soft_overlong": "judgekit.graders.rules.length:SoftOverlong",
    "step_efficiency": "judgekit.graders.rules.observations:StepEfficiency",
    "step_sequence": "judgekit.graders.rules.tools:StepSequence",
    "tags": "judgekit.graders.rules.format:TagFormat",
    "text_match": "judgekit.graders.rules.matching:TextMatch",
    "token_f1": "judgekit.graders.rules.matching:TokenF1",
    "tool_calls": "judgekit.graders.rules.tools:ToolCallMatch",
    "tool_efficiency": "judgekit.graders.rules.observations:ToolEfficiency",
    "tool_format": "judgekit.graders.rules.markup:ToolCallFormat",
}
"""Graders by the name that `use` gives them."""
