"""Grades whole groups: a listwise judge, a group rule, and a group transform."""

import json
from collections.abc import Sequence

from judgekit import GradingRunner, Rollout, group_grader
from judgekit.graders import Listwise
from judgekit.judges import JudgeRequest
from judgekit.testing import ScriptedJudge


def longest_first(request: JudgeRequest) -> str:
    """Answers as a listwise judge does: this prompt's code, the reason, and all names, best first."""
    texts = [p.text for turn in request.turns for p in turn.pieces if not p.trusted][1:]
    names = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    return json.dumps(
        {"code": request.nonce, "reason": "more detail", "ranking": [f"M{i + 1}" for i in names]}
    )


@group_grader
def novelty(rollouts: Sequence[Rollout]) -> list[float]:
    """The share of a rollout's words that no other member of its group uses."""
    words = [set(r.response.split()) for r in rollouts]
    others = [set().union(*(w for j, w in enumerate(words) if j != i)) for i in range(len(words))]
    return [len(w - o) / max(1, len(w)) for w, o in zip(words, others, strict=True)]


runner = GradingRunner(
    {"rank": Listwise(ScriptedJudge(longest_first)), "novelty": novelty},
    {"rank": 0.8, "novelty": 0.2},
    transform="zscore",  # use "none" where the trainer normalises rewards itself, as GRPO does
)
groups = [
    [Rollout(prompt="Name a tree.", response=r) for r in ("An oak.", "An oak, which bears acorns.", "Oak")],
    [Rollout(prompt="Name a fish.", response=r) for r in ("A pike.", "A pike.", "A pike.")],
]
results = runner.run_sync([rollout for group in groups for rollout in group])
for result in results:
    print(result.group, f"{result.reward:+.3f}", dict(result.contributions))
print(
    f"{runner.metrics.counts.flat_groups} of {runner.metrics.counts.groups} groups have zero variance, so nothing to learn from"
)
