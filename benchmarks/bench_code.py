"""Is only the right program paid, does the sandbox hold what the docs say, and what does a bad rollout cost at most?

    make bench-code
    python benchmarks/bench_code.py patches  # only those

`wrong_paid`, `right_refused`, `nothing_ran_paid`: programs of `code_rows`, in the forms of public data sets.
`differs`: ways out of the sandbox of which a level of isolation holds more or less than docs/security.md says.
`worst_over_budget`: the longest time of a rollout that sleeps, forks or fills memory, over its budget.
"""

from __future__ import annotations

import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from code_compiled_rows import ROWS
from code_compiled_rows import programs as compiled_programs
from code_escapes import KINDS, LEVELS, attempts, holds, scene, ways
from code_rows import FORMS, HONEST, NOTHING, TRICKS, Form, programs
from common import finish, machine, reported
from patch_rows import BROKEN, CHEATS, DRESSES, RIGHT, fenced
from patch_rows import COSTLY as COSTLY_PATCHES
from patch_rows import KINDS as OTHER_PATCHES
from patch_rows import row as patch_row

from judgekit import Abstained, Graded, Rollout
from judgekit.graders import Code, Patch

SECURITY = Path(__file__).parents[1] / "docs" / "security.md"
BUDGET_S = 6.0
COSTLY = {
    "sleeps": "import time\ntime.sleep(1000)\n",
    "forks": "import os, time\nfor _ in range(500):\n    try:\n        if os.fork() == 0: time.sleep(1000)\n    except OSError: pass\ntime.sleep(1000)\n",
    "fills memory": "import os, time\nfor _ in range(20):\n    if os.fork() == 0:\n        b = bytearray(100 << 20); b[::4096] = b'x' * len(b[::4096]); time.sleep(1000)\ntime.sleep(1000)\n",
}


def graded(code: Code, form: Form, program: str) -> Any:
    return code.grade(Rollout(response=f"```python\n{program}```", ground_truth=form.truth, extra=form.extra))


def documented() -> dict[str, list[bool]]:
    """Read the table of docs/security.md: for each kind, what each level holds."""
    rows = [
        line.strip("| \n").split("|")
        for line in SECURITY.read_text("utf-8").splitlines()
        if line.startswith("| ")
    ]
    return {cells[0].strip(): [cell.strip() == "held" for cell in cells[1:]] for cells in rows if cells[0].strip() in KINDS}  # fmt: skip


def forms() -> dict[str, Any]:
    code, short = Code(time_s=10.0, wall_s=60.0), Code(time_s=1.0, wall_s=4.0, budget_s=6.0)
    jobs = [(name, "right", form.right, code) for name, form in FORMS.items()]
    for name, form in FORMS.items():
        jobs += [
            (name, kind, text, short if kind == "sleeping" else code) for kind, text in programs(form).items()
        ]
        jobs += [(name, trick, text, code) for trick, (_, text) in TRICKS.items()]
    with ThreadPoolExecutor(2) as threads:
        honest = [
            (what, threads.submit(graded, code, Form("", truth), text))
            for what, (truth, text) in HONEST.items()
        ]
        grades = list(threads.map(lambda job: graded(job[3], FORMS[job[0]], job[2]), jobs))
        nothing = [
            (what, threads.submit(graded, code, Form("", truth), program))
            for what, truth in NOTHING.items()
            for program in (FORMS["HumanEval"].right, "x = 1\n")
        ]
        ran = [(what, job.result()) for what, job in nothing]
    refused = [j[:2] for j, g in zip(jobs, grades, strict=True) if j[1] == "right" and not (isinstance(g, Graded) and g.score == 1.0)]  # fmt: skip
    paid = [j[:2] for j, g in zip(jobs, grades, strict=True) if j[1] != "right" and not (isinstance(g, Graded) and g.score == 0.0)]  # fmt: skip
    refused += [("right", what) for what, job in honest if getattr(job.result(), "score", None) != 1.0]
    unpaid = [what for what, grade in ran if not isinstance(grade, Abstained)]
    for name, problems in (("refused", refused), ("paid", paid), ("paid though nothing ran", unpaid)):
        for problem in problems:
            print(f"{name}: {problem}")
    return {
        "forms": len(FORMS),
        "kinds_of_programs": 6,
        "programs": len(jobs) + len(honest),
        "wrong_paid": len(paid),
        "right_refused": len(refused),
        "nothing_ran_paid": len(unpaid),
    }


def compiled() -> dict[str, Any]:
    """Return what rows of C++ and Java come to, where their compilers are installed."""
    rows = {
        name: row for name, row in ROWS.items() if shutil.which({"cpp": "g++", "java": "javac"}[row.language])
    }
    tried, refused, paid = 0, 0, 0
    for name, row in rows.items():
        for kind, program in {"right": row.right, **compiled_programs(row)}.items():
            code = Code(language=row.language, time_s=2.0, wall_s=3.0 if kind == "sleeping" else 60.0)
            response = f"```{row.language}\n{program}\n```"
            grade = code.grade(Rollout(response=response, ground_truth=row.truth))
            tried += 1
            score = grade.score if isinstance(grade, Graded) else None
            if score != (1.0 if kind == "right" else 0.0):
                refused, paid = refused + (kind == "right"), paid + (kind != "right")
                print(f"{name}: {kind}: {grade}")
    return {
        "compiled_forms": len(rows),
        "compiled_programs": tried,
        "compiled_wrong_paid": paid,
        "compiled_right_refused": refused,
    }


def patches() -> dict[str, Any]:
    """Return what patches of a repository come to: right ones in all dresses, others, and those of broken rows."""
    grader, short = Patch(budget_s=60.0), Patch(budget_s=BUDGET_S, memory_mb=512)
    short.warm_up()
    right = [(name, grader, patch_row(text)) for name, text in DRESSES.items()]
    wrong = [
        (name, short if name == "sleeping" else grader, patch_row(text))
        for name, text in OTHER_PATCHES.items()
    ]
    wrong += [(name, grader, patch_row(fenced(text))) for name, text in CHEATS.items()]
    nothing = [
        (name, grader, patch_row(fenced(RIGHT), **{"patch": None, **changes}))
        for name, (changes, _) in BROKEN.items()
    ]
    paid = refused = unpaid = 0
    with ThreadPoolExecutor(2) as threads:
        grades = list(threads.map(lambda job: job[1].grade(job[2]), (*right, *wrong, *nothing)))
    for (name, _, _), grade in zip((*right, *wrong, *nothing), grades, strict=True):
        if (name in DRESSES and grade.score != 1.0) if isinstance(grade, Graded) else name in DRESSES:
            refused += 1
            print(f"a right patch is refused: {name}: {grade}")
        elif name in BROKEN and isinstance(grade, Graded) and grade.score:
            unpaid += name != "its own patch does not pass"  # it is believed where it passes
        elif (
            name not in DRESSES
            and name not in BROKEN
            and not (isinstance(grade, Graded) and grade.score == 0.0)
        ):
            paid += 1
            print(f"a wrong patch is paid: {name}: {grade}")
    worst = 0.0
    for name, text in COSTLY_PATCHES.items():
        start = time.monotonic()
        rollout = patch_row(fenced(text), patch=None)
        grade = short.grade(rollout)
        share = (time.monotonic() - start) / BUDGET_S
        worst = max(worst, share)
        paid += not isinstance(grade, Graded) or grade.score != 0.0
        print(f"a patch that {name}: {share * BUDGET_S:.1f} s of {BUDGET_S:g}, {grade.reason}")
    return {
        "patches": len(right) + len(wrong) + len(COSTLY_PATCHES),
        "patches_wrong_paid": paid,
        "patches_right_refused": refused,
        "patches_of_broken_rows_paid": unpaid,
        "patches_worst_over_budget": worst,
    }


PATCHES: dict[str, tuple[str, float]] = {
    "patches_wrong_paid": ("==", 0),
    "patches_right_refused": ("==", 0),
    "patches_of_broken_rows_paid": ("==", 0),
    "patches_worst_over_budget": ("<=", 1.2),
}


def escapes() -> dict[str, Any]:
    told = documented()
    tried = differs = 0
    found = ways()
    with scene() as at:
        every = attempts(at)
        for level, way in found.items():
            for name, (kind, code) in every.items():
                tried += 1
                held = holds(way, kind, code, at)
                # where nothing is held for sure, an attempt may fail for reasons of its own
                expected = told[kind][LEVELS.index(level)] if kind in told else None
                if expected is None or (expected and not held):
                    differs += 1
                    print(f"{level}: {name}: {'held' if held else 'not held'}, the docs say otherwise")
            for kind in KINDS:
                if not told.get(kind, [True] * 4)[LEVELS.index(level)]:
                    mine = [code for k, code in every.values() if k == kind]
                    if all(holds(way, kind, code, at) for code in mine):
                        differs += 1
                        print(f"{level}: {kind}: held, the docs say that it is not")
    return {"escapes": len(every), "levels": list(found), "tried": tried, "differs": differs}


def costs() -> float:
    """Return the longest time of a bad rollout over its budget."""
    code = Code(time_s=3.0, wall_s=5.0, memory_mb=256, budget_s=BUDGET_S)
    code.warm_up()
    worst = 0.0
    for name, program in COSTLY.items():
        start = time.monotonic()
        form = Form("", {"inputs": ["1"] * 20, "outputs": ["1"] * 20})
        grade = graded(code, form, program)
        share = (time.monotonic() - start) / BUDGET_S
        worst = max(worst, share)
        print(f"a rollout that {name}: {share * BUDGET_S:.1f} s of {BUDGET_S:g}, {grade.reason}")
    return worst


def main() -> None:
    print(machine())
    print(Code().isolation())
    if sys.argv[1:] == ["patches"]:
        finish(patches(), PATCHES)
    figures: dict[str, Any] = {
        **forms(),
        **compiled(),
        **patches(),
        **escapes(),
        "worst_over_budget": costs(),
    }
    figures["isolation"] = Code().isolation()
    finish(
        figures,
        {
            "forms": (">=", 18),
            "wrong_paid": ("==", 0),
            "right_refused": ("==", 0),
            "nothing_ran_paid": ("==", 0),
            "compiled_wrong_paid": ("==", 0),
            "compiled_right_refused": ("==", 0),
            "escapes": (">=", 60),
            "differs": ("==", 0),
            "worst_over_budget": ("<=", 1.2),
            **PATCHES,
        },
    )


if __name__ == "__main__":
    reported(main)
