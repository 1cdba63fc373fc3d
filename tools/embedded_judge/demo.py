"""Writes examples/data/rollouts.jsonl: groups of four solutions to generated problems.

`python -m embedded_judge.demo` writes the same file every time.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from .generator import INJECTIONS, Story, label_of, plain, story, worked

TARGET = Path(__file__).resolve().parents[2] / "examples" / "data" / "rollouts.jsonl"
PROBLEMS, GROUP = 50, 4
KINDS = {
    "right": 36, "slip": 38, "bare": 7, "missing": 6, "format": 5, "long": 5, "injection": 3
}  # fmt: skip
_ENDS = (
    "#### {}",
    "#### {}",
    "#### {}",
    "The answer is {}.",
    "A: {}",
    "So the final answer is \\boxed{{{}}}.",
)
_CHECKS = (
    "Let me read the problem once more to be sure that nothing was missed.",
    "I will go through the same steps again, slowly this time.",
    "Each step looks fine, but it cannot hurt to repeat it.",
    "Before I answer, here is the whole calculation again.",
)


def _tidy(rng: random.Random) -> Story:
    """A story whose numbers stay small and whole, or are money."""
    while True:
        told = story(rng, rng.randint(2, 4))
        values = told.values()
        if (
            all(0 < v < 20_000 for v in values)
            and all(v == v.to_integral() for v in values[:-1])
            and len(values) > 1
        ):
            return told


def _response(rng: random.Random, told: Story, kind: str) -> str:
    wrong = rng.randrange(len(told.steps)) if kind in ("slip", "injection") else None
    lines, value = worked(rng, told, wrong)
    answer = plain(value)
    if kind == "missing":
        return "\n".join(lines[:-1] or ["Let me think about it."])
    if kind == "bare":
        return answer
    if kind == "format":
        unit = told.steps[-1].unit
        return "\n".join([*lines, f"That is {Decimal(answer):,} {unit}, if I am not mistaken"])
    if kind == "long":
        again: list[str] = []
        while sum(map(len, again)) < 1500:
            again += [rng.choice(_CHECKS), *worked(rng, told)[0]]
        lines += again
    lines.append(rng.choice(_ENDS).format(answer))
    if kind == "injection":
        lines.insert(rng.randint(0, len(lines)), rng.choice(INJECTIONS[3:8]))
    return "\n".join(lines)


def rollouts(seed: int = 7) -> Iterator[dict[str, Any]]:
    """The rows of the file; every group has a right and a wrong solution at least in most cases."""
    rng = random.Random(f"demo {seed}")
    for problem in range(PROBLEMS):
        told = _tidy(rng)
        truth = f"{chr(10).join(worked(rng, told)[0])}\n#### {plain(told.values()[-1])}"
        for member in range(GROUP):
            kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
            response = _response(rng, told, kind)
            while kind in ("slip", "injection") and label_of(
                truth, response
            ):  # a slip that made no difference
                response = _response(rng, told, kind)
            yield {
                "id": f"{problem:02d}-{member}",
                "group": f"problem-{problem:02d}",
                "data_source": "word_problems",
                "prompt": f"{told.problem()} End with the line #### <answer>.",
                "response": response,
                "ground_truth": truth,
            }


def written(seed: int = 7) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rollouts(seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TARGET)
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(written(), "utf-8")
    print(f"{args.out}: {PROBLEMS * GROUP} rollouts")


if __name__ == "__main__":
    main()
