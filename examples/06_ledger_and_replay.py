"""Records every grade, then recomputes rewards with another reward tree, without asking the judge."""

import tempfile
from pathlib import Path

from judgekit import Gate, GradingRunner, Ledger, Rollout, Score, read_ledger
from judgekit.graders import FinalAnswer, JudgeGrader
from judgekit.replay import replay
from judgekit.testing import ScriptedJudge

path = Path(tempfile.mkdtemp()) / "ledger.jsonl"
judge = ScriptedJudge({"because": {"0": 0.1, "1": 0.9}}, default={"0": 0.6, "1": 0.4})
runner = GradingRunner(
    {"correct": FinalAnswer(), "judge": JudgeGrader(judge)},
    {"correct": 0.5, "judge": 0.5},
    ledger=Ledger(path),
)
rollouts = [
    Rollout(prompt="What is 6 * 7?", ground_truth="#### 42", response=text, group="q1", id=str(i))
    for i, text in enumerate(("It is 42 because 6 * 7 = 42.", "It is 42.", "It is 41 because I guess."))
]
runner.run_sync(rollouts, tags={"step": 7})

for entry in read_ledger(path).entries:
    print(entry.tags, entry.id, entry.reward, {name: grade.score for name, grade in entry.grades.items()})

again = replay(path, Gate(if_=Score("correct") >= 1, then="judge", otherwise=0.0), transform="rank")
print(
    "gated and ranked:",
    [(entry.id, result.reward) for entry, result in zip(again.entries, again.results, strict=True)],
)
print(f"the judge was asked {len(judge.requests)} times in total")
