"""Measures a judge through judgekit, as users run it: `python -m embedded_judge.evaluate`.

Every case goes through `VLLMJudge`, `JudgeGrader` and `GradingRunner`; a failed grade counts as wrong.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from judgekit import Graded, GradingRunner
from judgekit.execution.background import run_blocking
from judgekit.graders import JudgeGrader
from judgekit.judges import VLLMJudge
from judgekit.judges.engines.vllm.judge import EMBEDDED

from .dodges import dodge_sets
from .garbage import garbage_sets
from .generator import Case
from .hard import SIZE, hard_sets
from .lessons import VERDICTS


def real_cases(path: Path, limit: int | None = None) -> list[Case]:
    """Labelled solutions from a file of rows with question, ground_truth and solutions with is_correct."""
    cases = []
    for line in path.read_text("utf-8").strip().split("\n"):
        row = json.loads(line)
        cases += [
            Case("real", row["question"], row["ground_truth"], value["solution"], int(value["is_correct"]))
            for value in row.values()
            if isinstance(value, dict)
        ]
    return cases[:limit]


def measure(runner: GradingRunner, cases: list[Case]) -> dict[str, Any]:
    """Accuracy on *cases*, by label too, the shares without a verdict, and the speed."""
    start = time.perf_counter()
    grades = [result.grades["judge"] for result in runner.run_sync([case.rollout() for case in cases])]
    seconds = time.perf_counter() - start
    said = [int(g.score >= 0.5) if isinstance(g, Graded) else None for g in grades]
    masses = [
        g.metadata["label_mass"]
        for g in grades
        if isinstance(g, Graded) and g.metadata and "label_mass" in g.metadata
    ]
    tokens = [g.usage.prompt_tokens for g in grades if isinstance(g, Graded) and g.usage]
    out: dict[str, Any] = {
        "n": len(cases),
        "accuracy": _share([s == c.label for s, c in zip(said, cases, strict=True)]),
        "on_right": _share([s == 1 for s, c in zip(said, cases, strict=True) if c.label == 1]),
        "on_wrong": _share([s == 0 for s, c in zip(said, cases, strict=True) if c.label == 0]),
        "no_verdict": _share([s is None for s in said]),
        "lowest_mass": round(min(masses), 4) if masses else None,
        "prompt_tokens": round(sum(tokens) / len(tokens)) if tokens else None,
        "per_second": round(len(cases) / seconds, 1),
    }
    out["highest"] = round(max((g.score for g in grades if isinstance(g, Graded)), default=0.0), 4)
    out["wrong_at"] = [i for i, (s, c) in enumerate(zip(said, cases, strict=True)) if s != c.label]
    return out


def _share(found: list[bool]) -> float | None:
    return round(sum(found) / len(found), 4) if found else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=EMBEDDED)
    parser.add_argument("--seed", type=int, default=0, help="of the hard sets")
    parser.add_argument("--size", type=int, default=SIZE, help="of each hard set")
    parser.add_argument("--real", type=Path, help="JSONL of labelled real solutions, for checking only")
    parser.add_argument("--limit", type=int, help="of the real solutions")
    parser.add_argument("--verdict", choices=VERDICTS, default="direct")
    parser.add_argument("--show", type=int, default=0, help="print so many errors of each set")
    args = parser.parse_args()
    judge = VLLMJudge(args.model, max_model_len=4096)
    grader = JudgeGrader(judge, verdict=VERDICTS[args.verdict]())
    runner = GradingRunner({"judge": grader}, max_concurrency=64, timeout_s=600)
    run_blocking(judge.start())
    sets = {
        **hard_sets(args.seed, args.size),
        **garbage_sets(args.seed, args.size // 4),
        **dodge_sets(args.seed, args.size // 2),
    }
    if args.real:
        sets["real"] = real_cases(args.real, args.limit)
    report = {}
    for kind, cases in sets.items():
        found = measure(runner, cases)
        for i in found.pop("wrong_at")[: args.show]:
            print(f"--- {kind} {i}, label {cases[i].label}\n{cases[i].ground_truth}\n>>> {cases[i].response}")
        report[kind] = found
        print(f"{kind:24}" + "  ".join(f"{k} {v}" for k, v in found.items()), flush=True)
    run_blocking(judge.close())
    print(json.dumps({"model": args.model, "verdict": args.verdict, "seed": args.seed, "sets": report}))


if __name__ == "__main__":
    main()
