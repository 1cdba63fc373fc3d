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
from judgekit.graders import JudgeGrader, Listwise, Pairwise, Panel, RewardModelGrader, RubricGrader  # noqa: E402
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
    "listwise": lambda: Listwise(ScriptedJudge("")),
    "pairwise": lambda: Pairwise(ScriptedJudge("")),
    "panel": lambda: Panel({"a": ScriptedJudge(""), "b": ScriptedJudge("")}),
    "reward_model": lambda: RewardModelGrader(_Model()),  # type: ignore[arg-type]
    "rubric": lambda: RubricGrader(ScriptedJudge(""), min(shipped_rubrics())),
    "service": lambda: ServiceGrader("http://127.0.0.1:8080"),
    "service_group": lambda: ServiceGroupGrader("http://127.0.0.1:8080"),
}

HEAD = """# Graders

Generated from the code by `tools/grader_table.py`; a test keeps it up to date. What counts as a response's answer, and where a
verdict departs from a library's: [Answers](answers.md).

*Name* goes after `use:` in reward.yaml, *class* is imported from `judgekit.graders`; its parameters are
below. A grader abstains when an input is missing (see the column); it fails when it errors on a rollout. An
abstention is no score, and neither is a failure. A *range* in brackets depends on the parameters; the table shows the default's.

Costs are the wall time of one call in µs, the best of many, for responses of about 100, 1,000 and 10,000 tokens (four
characters each), on {machine}; group rules are per member of a group of eight. Rules run on the event loop, except
those marked ᵖ, which run in a worker process (the round trip is included), and ᵗ, which run in a thread. *Loop up to* is
the number of characters up to which a rule runs on the loop; longer rollouts go to a worker process, so that none of
them blocks the loop. Measured by `make bench-graders`.
"""


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


def row(name: str, costs: dict[str, Any]) -> str:
    module, _, attribute = GRADERS[name].partition(":")
    cls = getattr(importlib.import_module(module), attribute)
    made = ({**RULES, **GROUP_RULES, **JUDGED})[name]()
    low, high = made.score_range
    bounds = f"{number(low)} … {number(high)}"
    if not hasattr(cls, "score_range"):
        bounds = f"[{bounds}]"
    measured = costs.get(name)
    mark = {"process": "ᵖ", "thread": "ᵗ"}.get(getattr(made, "where", "inline"), "")
    cost = (
        " / ".join(f"{measured[size]:,}" for size in SIZES) + mark
        if measured
        else "—"
        if name not in JUDGED
        else "a judge's call"
    )
    limit = getattr(made, "inline_limit", None)
    inline = f"{limit:,}" if limit and not mark else "—"
    for wanted in ("inputs", "abstains"):
        if not hasattr(cls, wanted):
            raise SystemExit(f"{attribute} has no attribute {wanted!r}: add it to the class")
    reads = ", ".join(cls.inputs)
    cells = [f"`{name}`", f"`{attribute}`", bounds, reads, cls.abstains, cost, inline, source(cls)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page() -> str:
    kept = json.loads(COSTS.read_text())
    parts = [HEAD.format(machine=kept["machine"])]
    for title, names in (
        ("Rules over one rollout", RULES),
        ("Rules over a group", GROUP_RULES),
        ("Judged", JUDGED),
    ):
        parts.append(
            f"\n## {title}\n\n| name | class | range | reads | abstains when | cost in µs | loop up to | source |\n"
            "|---|---|---|---|---|---|---|---|\n"
            + "\n".join(row(name, kept["us"]) for name in sorted(names))
            + "\n"
        )
    left_out = set(GRADERS) - {*RULES, *GROUP_RULES, *JUDGED}
    if left_out:
        raise SystemExit(
            f"no example of {', '.join(sorted(left_out))}: add one in benchmarks/rule_graders.py"
        )
    return "".join([*parts, PARAMETERS, *(section(name) for name in sorted(GRADERS))])


PARAMETERS = """
## Parameters

What each grader takes in reward.yaml, and an example; `judgekit graders NAME` prints the same, with what each parameter
means.
"""


def section(name: str) -> str:
    """The parameters of one grader, and an example."""
    module, _, attribute = GRADERS[name].partition(":")
    rows = [
        f"| `{p.name}` | {p.kind} | {f'`{p.default}`' if p.default else 'required'} |".replace("\\|", "|")
        for p in parameters(getattr(importlib.import_module(module), attribute))
    ]
    return (
        f"\n### {name}\n\n```yaml\ngraders:\n  my_grader: {EXAMPLES[name]}\n```\n\n"
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
