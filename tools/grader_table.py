"""Writes docs/graders.md, all graders and their parameters; `--check` fails if it is out of date.

Names come from judgekit.graders.registry.GRADERS, ranges from the graders themselves; inputs, abstentions and sources
from their classes; costs from the last `benchmarks/bench_graders.py --save`.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from rule_graders import GROUP_RULES, RULES  # noqa: E402

from judgekit.cli.graders import EXAMPLES, parameters  # noqa: E402
from judgekit.graders import (  # noqa: E402
    JudgeGrader,
    JudgeTurns,
    Listwise,
    Pairwise,
    Panel,
    RewardModelGrader,
    RubricGrader,
)
from judgekit.graders.judged.rubric import shipped_rubrics  # noqa: E402
from judgekit.graders.registry import GRADERS  # noqa: E402
from judgekit.service.grader import ServiceGrader, ServiceGroupGrader  # noqa: E402
from judgekit.testing import ScriptedJudge  # noqa: E402

PAGE = ROOT / "docs" / "graders.md"
COSTS = ROOT / "docs" / "grader_costs.json"
SIZES = ("100", "1000", "10000")


class _Model:
    """A reward model that is never called."""

    async def rewards(self, *args: Any, **kwargs: Any) -> Any: ...

    reward = score = rewards


JUDGED: dict[str, Any] = {
    "judge": lambda: JudgeGrader(ScriptedJudge("")),
    "judge_turns": lambda: JudgeTurns(ScriptedJudge("")),
    "listwise": lambda: Listwise(ScriptedJudge("")),
    "pairwise": lambda: Pairwise(ScriptedJudge("")),
    "panel": lambda: Panel({"a": ScriptedJudge(""), "b": ScriptedJudge("")}),
    "reward_model": lambda: RewardModelGrader(_Model()),  # type: ignore[arg-type]
    "rubric": lambda: RubricGrader(ScriptedJudge(""), min(shipped_rubrics())),
    "service": lambda: ServiceGrader("http://127.0.0.1:8080"),
    "service_group": lambda: ServiceGroupGrader("http://127.0.0.1:8080"),
}

HEAD = """# Graders

*Name* goes after `use:` in reward.yaml. A grader abstains where something that it reads is missing, and fails where it errors on a
rollout. Neither is a score. What counts as a response's answer, and where a verdict departs from a library's: [Answers](answers.md).
Rewards for whole tasks: [Recipes](recipes.md).

## By task

| for | take |
|---|---|
"""
TASKS: dict[str, str] = {
    "maths": "math final_answer boxed",
    "short answers": "text_match multiple_choice token_f1 edit_similarity",
    "translation, summaries, with a reference": "chrf bleu gleu meteor rouge overlap",
    "programs, patches and queries": "code patch code_block sql",
    "JSON": "json json_match",
    "instructions that can be checked": "instructions regex tags script",
    "tools: what was called": "tool_calls tool_format step_sequence",
    "tools: how well the work went": "tool_efficiency step_efficiency action_loop information_gain",
    "length": "length soft_overlong cosine_length shortest_correct",
    "repetition and variety": "repetition compression diversity",
    "no reference, a vote of the group": "majority",
    "which turn of an agent earned it": "judge_turns",
    "open-ended answers": "judge rubric reward_model panel",
    "open-ended answers, against each other": "pairwise listwise",
    "graders on another machine": "service service_group",
}
"""What graders are for; each is in one line."""


def number(value: float) -> str:
    return {float("inf"): "∞", float("-inf"): "-∞"}.get(value, f"{value:g}")


def source(cls: type) -> str:
    """Returns the origin of a grader's definition, from `source` or its docstring."""
    if hasattr(cls, "source"):
        return str(cls.source)
    found = re.search(
        r"^Source(?: of the task)?: (.*?)(?:\n\n|\Z)", inspect.getdoc(cls) or "", re.DOTALL | re.MULTILINE
    )
    if found is None and (cited := re.search(r"\(([^()]*arXiv:[\d.]+[^()]*)\)", inspect.getdoc(cls) or "")):
        return " ".join(cited[1].split())
    return " ".join(found[1].split()).rstrip(".") if found else "judgekit's own"


def class_of(name: str) -> type:
    module, _, attribute = GRADERS[name].partition(":")
    cls: type = getattr(importlib.import_module(module), attribute)
    return cls


def by_task() -> str:
    """The table of tasks. Ends where a grader is in none of them, or in two."""
    named = [name for names in TASKS.values() for name in names.split()]
    if wrong := {*named} ^ {*GRADERS} or {name for name in named if named.count(name) > 1}:
        raise SystemExit(f"TASKS names each grader once, but for {', '.join(sorted(wrong))}")
    lines = (
        f"| {task} | {', '.join(f'[`{name}`](#{name})' for name in names.split())} |"
        for task, names in TASKS.items()
    )
    return "\n".join(lines) + "\n"


def row(name: str) -> str:
    cls = class_of(name)
    made = ({**RULES, **GROUP_RULES, **JUDGED})[name]()
    low, high = made.score_range
    bounds = f"{number(low)} … {number(high)}"
    if not hasattr(cls, "score_range"):
        bounds = f"[{bounds}]"
    for wanted in ("inputs", "abstains"):
        if not hasattr(cls, wanted):
            raise SystemExit(f"{cls.__name__} has no attribute {wanted!r}: add it to the class")
    reads = ", ".join(cls.inputs)  # type: ignore[attr-defined]
    cells = [f"[`{name}`](#{name})", bounds, reads, cls.abstains]  # type: ignore[attr-defined]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def about(name: str, costs: dict[str, Any]) -> str:
    """A grader's class, costs and source, in a line."""
    made = ({**RULES, **GROUP_RULES, **JUDGED})[name]()
    parts = [f"Class `{class_of(name).__name__}`."]
    where = getattr(made, "where", "inline")
    if measured := costs.get(name):
        place = {"process": ", in a worker process", "thread": ", in a thread"}.get(where, "")
        parts.append(f"{' / '.join(f'{measured[size]:,}' for size in SIZES)} µs{place}.")
    if (limit := getattr(made, "inline_limit", None)) and where == "inline":
        parts.append(f"On the loop up to {limit:,} characters.")
    return " ".join([*parts, f"Source: {source(class_of(name))}."])


def page() -> str:
    kept = json.loads(COSTS.read_text())
    parts = [HEAD, by_task()]
    for title, names in (
        ("Rules over one rollout", RULES),
        ("Rules over a group", GROUP_RULES),
        ("Judged", JUDGED),
    ):
        parts.append(
            f"\n## {title}\n\n| name | scores | reads | abstains when |\n|---|---|---|---|\n"
            + "\n".join(row(name) for name in sorted(names))
            + "\n"
        )
    left_out = set(GRADERS) - {*RULES, *GROUP_RULES, *JUDGED}
    if left_out:
        raise SystemExit(
            f"no example of {', '.join(sorted(left_out))}: add one in benchmarks/rule_graders.py"
        )
    each = (section(name, kept["us"]) for name in sorted(GRADERS))
    return "".join([*parts, PARAMETERS.format(machine=kept["machine"]), *each])


PARAMETERS = """
Scores in brackets depend on the parameters; the table shows the default's.

## Each of them

What it takes in reward.yaml, with an example; `judgekit graders NAME` prints the same, with what each parameter means. Classes are
imported from `judgekit.graders`.

Times are of one call, the best of many, for responses of about 100, 1,000 and 10,000 tokens (four characters each), on
{machine}; group rules are per member of a group of eight. Rules run on the event loop, but for longer rollouts than they say,
which go to a worker process, so that none of them blocks it. Measured by `make bench-graders`. This page is written by
`tools/grader_table.py`.
"""


def section(name: str, costs: dict[str, Any]) -> str:
    """What one grader is, an example, and its parameters."""
    rows = [
        f"| `{p.name}` | {p.kind} | {f'`{p.default}`' if p.default else 'required'} |".replace("\\|", "|")
        for p in parameters(class_of(name))
    ]
    return (
        f"\n### {name}\n\n{about(name, costs)}\n\n```yaml\ngraders:\n  my_grader: {EXAMPLES[name]}\n```\n\n"
        "| parameter | values | default |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def main() -> None:
    text = page()
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text("utf-8") != text:
            raise SystemExit("docs/graders.md is out of date: run python tools/grader_table.py")
        return
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
