"""Replies as judges write them, in the forms that papers and tools publish: none is read wrong, and almost all are read."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from judgekit import VerdictError
from judgekit.judges import JsonVerdict, JudgeReply, LineVerdict, Template
from judgekit.judges.verdicts.formats import VerdictFormat

CODE = "k3v9"


def shipped(name: str) -> VerdictFormat:
    form = Template.load(name).verdict
    assert form is not None
    return form


FORMS: dict[str, tuple[VerdictFormat, str]] = {
    # a family's own form in its own template
    "Prometheus 2": (shipped("prometheus-2"), "[RESULT] {}"),
    "Prometheus 2, reference": (shipped("prometheus-2-reference"), "[RESULT] {}"),
    "Prometheus 2, pair": (shipped("prometheus-2-pair"), "[RESULT] {}"),
    "RM-R1": (shipped("rm-r1"), "<answer>[[{}]]</answer>"),
    "Skywork-Critic": (shipped("skywork-critic"), "[[{}]]"),
    "Selene": (shipped("selene"), "**Result:** {}"),
    "DeepSeek-GRM": (shipped("deepseek-grm"), "Scores: \\boxed{{{}}}"),
    "DeepSeek-GRM, pair": (shipped("deepseek-grm-pair"), "Scores: \\boxed{{{}}}"),
    "verl GenRM": (shipped("verl-genrm"), "\\boxed{{{}}}"),
    "General verifier": (shipped("general-verifier"), "Final Decision: {}"),
    # our own
    "line": (LineVerdict(low=0, high=10), f"### Final Score [{CODE}]: {{}}"),
    "line, 1 to 5": (LineVerdict(low=1, high=5), f"### Final Score [{CODE}]: {{}}"),
    "line, halves": (LineVerdict(low=0, high=10, integer=False), f"### Final Score [{CODE}]: {{}}"),
    "line, words": (
        LineVerdict(line="### Verdict: {score}", values={"CORRECT": 1, "INCORRECT": 0}),
        f"### Verdict [{CODE}]: {{}}",
    ),
    "json": (JsonVerdict(low=0, high=10), f'{{{{"code": "{CODE}", "reason": "It holds.", "score": {{}}}}}}'),
    "json, whole": (
        JsonVerdict(low=1, high=5, integer=True),
        f'{{{{"code": "{CODE}", "reason": "It holds.", "score": {{}}}}}}',
    ),
    # forms that others publish, written as a user of theirs would
    "MT-Bench": (
        LineVerdict(low=1, high=10, line="Rating: [[{score}]]", own_line=False, nonce=False),
        "Rating: [[{}]]",
    ),
    "Auto-J": (
        LineVerdict(low=1, high=10, line="Rating: [[{score}]]", own_line=False, nonce=False),
        "Rating: [[{}]]",
    ),
    "Arena-Hard": (
        LineVerdict(
            line="[[{score}]]",
            values={"A>>B": 1.0, "A>B": 0.75, "A=B": 0.5, "B>A": 0.25, "B>>A": 0.0},
            own_line=False,
            nonce=False,
        ),
        "My final verdict is: [[{}]]",
    ),
    "UltraFeedback": (
        LineVerdict(low=1, high=5, line="Rating: {score}", own_line=False, nonce=False),
        "Rating: {}",
    ),
    "G-Eval": (
        LineVerdict(low=1, high=5, line="- Consistency: {score}", own_line=False, nonce=False),
        "- Consistency: {}",
    ),
    "SimpleQA": (
        LineVerdict(
            line="GRADE: {score}",
            values={"CORRECT": 1, "INCORRECT": 0, "NOT_ATTEMPTED": 0.5},
            own_line=False,
            nonce=False,
        ),
        "GRADE: {}",
    ),
    "Inspect": (
        LineVerdict(line="GRADE: {score}", values={"C": 1, "I": 0, "P": 0.5}, own_line=False, nonce=False),
        "GRADE: {}",
    ),
    "JudgeLRM": (
        LineVerdict(line="<answer>{score}</answer>", low=1, high=10, own_line=False, nonce=False),
        "<answer>{}</answer>",
    ),
}

SCORES: dict[str, list[tuple[str, float]]] = {
    "Prometheus 2": [("1", 0), ("3", 0.5), ("4", 0.75)],
    "Prometheus 2, reference": [("2", 0.25), ("5", 1)],
    "Prometheus 2, pair": [("A", 1), ("B", 0)],
    "RM-R1": [("A", 1), ("B", 0)],
    "Skywork-Critic": [("A", 1), ("B", 0)],
    "Selene": [("1", 0), ("5", 1)],
    "DeepSeek-GRM": [("1", 0), ("10", 1)],
    "DeepSeek-GRM, pair": [("8, 5", 1), ("3,3", 0.5), ("2, 10", 0)],
    "verl GenRM": [("True", 1), ("False", 0), ("\\text{{True}}", 1)],
    "General verifier": [("Yes", 1), ("No", 0)],
    "line": [("0", 0), ("8", 8), ("10", 10)],
    "line, 1 to 5": [("1", 1), ("4", 4)],
    "line, halves": [("7.5", 7.5), ("0", 0), ("10.0", 10)],
    "line, words": [("CORRECT", 1), ("Incorrect", 0)],
    "json": [("7", 7), ("7.5", 7.5), ("0", 0), ("10", 10)],
    "json, whole": [("1", 1), ("5", 5)],
    "MT-Bench": [("1", 1), ("10", 10)],
    "Auto-J": [("6", 6)],
    "Arena-Hard": [("A>>B", 1), ("A=B", 0.5), ("B>A", 0.25)],
    "UltraFeedback": [("1", 1), ("4", 4)],
    "G-Eval": [("2", 2), ("5", 5)],
    "SimpleQA": [("CORRECT", 1), ("INCORRECT", 0), ("NOT_ATTEMPTED", 0.5)],
    "Inspect": [("C", 1), ("I", 0), ("P", 0.5)],
    "JudgeLRM": [("3", 3), ("9", 9)],
}
BEFORE = [
    "",
    "The response names both causes.\n\n",
    "**Reasoning:** it gives 3 of 4 steps, so 2/4 would be harsh and 9 too kind.\n\n",
    "<think>Perhaps a 2. No: the sum is right.</think>\n",
    "1. Accuracy: 4/5\n2. Style: 1/5\r\n\r\n",
    "It writes `x = 1`:\n```python\nx = 1\n```\n\n",
]
HIGH = {"Prometheus 2": 5, "Prometheus 2, reference": 5, "Selene": 5, "line": 10, "line, 1 to 5": 5}
HIGH |= {"line, halves": 10, "UltraFeedback": 5, "G-Eval": 5}


def decorated(name: str, line: str, said: str) -> Iterator[str]:
    """Yield *line*, which says *said*, as judges write it."""
    form = FORMS[name][0]
    yield line
    if isinstance(form, JsonVerdict):
        yield f"```json\n{line}\n```"
        yield f"```JSON\r\n{line}\r\n```"
        yield f"```\n{line}\n```"
        yield line.replace(", ", ",\n  ")
        yield line.replace("It holds.", r"\(x = 1\), costs \$5")
        yield line.replace("It holds.", "One.\nTwo.")
        yield f"Here is my verdict:\n```json\n{line}\n```"
        yield f"My verdict is below.\n\n{line}"
        return
    yield f"{line}."
    yield f"{line}\n"
    yield f"{line}  "
    if line.endswith(said):
        head = line.removesuffix(said)
        yield f"{head}**{said}**"
        yield f"{head}({said})"
        yield f"{head.rstrip()}{said}"
        yield f"{head.rstrip()}\n{said}" if not getattr(form, "own_line", True) else f"{head} {said}"
        if name in HIGH:
            yield f"{head}{said}/{HIGH[name]}"
            yield f"{head}{said} / {HIGH[name]}."
            yield f"{head}{said} out of {HIGH[name]}"
            yield f"{head}**{said}/{HIGH[name]}**"
            if "." not in said:
                yield f"{head}{said}.0"
    if "**" not in line and "\\" not in line:
        yield f"**{line}**"
        yield f"**{line}.**"
    if name == "Prometheus 2":
        yield from (line.replace("[RESULT]", "[Result]"), f"[RESULT] Score: {said}", f"[RESULT]: {said}")
    if "\\boxed" in line:
        yield line.replace("\\boxed", "$\\boxed") + "$"
        yield line.replace("\\boxed", "\\[\\boxed") + "\\]"
    if line.startswith("### "):
        bare = line.removeprefix("### ")
        yield from (
            bare,
            f"## {bare}",
            f"### **{bare}**",
            f"**### {bare}**",
            f"### {bare.upper().replace(CODE.upper(), CODE)}",
        )


def readable() -> list[tuple[str, str, float]]:
    found: dict[tuple[str, str], float] = {}
    for name, (_, line) in FORMS.items():
        for number, (said, score) in enumerate(SCORES[name]):
            said = said.replace("{{", "{").replace("}}", "}")
            shown = line.format(said)
            for i, text in enumerate(decorated(name, shown, said)):
                befores = BEFORE if i == 0 else [BEFORE[(i + number) % len(BEFORE)]]
                for before in befores:
                    if (
                        isinstance(FORMS[name][0], JsonVerdict)
                        and before not in ("", BEFORE[3])
                        and i in (0, 4, 5, 6)
                    ):
                        before += "" if before.endswith("\n") else "\n"
                    found[name, before + text] = score
    return [(name, text, score) for (name, text), score in found.items()]


UNREAD: dict[str, list[str]] = {
    "Prometheus 2": [
        "It deserves more than 3 points.",
        "Score: 2.5",
        "[RESULT] 4 or 5",
        "[RESULT] 4-5",
        "[RESULT] 6",
        "[RESULT] 2.5",
        "[RESULT] 4/10",
        "[RESULT] 4 out of 50",
        "[RESULT] four",
        "[RESULT] between 3 and 4",
        "[RESULT]",
        "[RESUL T] 5",
        "Result: 5",
    ],
    "Prometheus 2, pair": ["[RESULT] A and B", "[RESULT] C", "[RESULT] A, not B"],
    "RM-R1": ["<answer>A</answer>", "<answer>[[C]]</answer>", "[[A]]", "<answer>[[A]] [[B]]</answer>"],
    "DeepSeek-GRM": ["Scores: 8", "Scores: \\boxed{11}", "Scores: \\boxed{8} of \\boxed{}", "\\boxed{7.5}"],
    "DeepSeek-GRM, pair": ["\\boxed{8}", "\\boxed{8, 5, 3}", "\\boxed{8; 5}"],
    "verl GenRM": ["\\boxed{}", "\\boxed{42}", "\\boxed{True or False}", "It is True."],
    "General verifier": ["Final Decision: Not sure", "Final Decision: Yes and No", "Yes"],
    "line": [
        "### Final Score: 8",
        "### Final Score [aaaa]: 8",
        f"> ### Final Score [{CODE}]: 8",
        f"The code is {CODE}: 8",
        f"### Final Score [{CODE}]: 8/100",
        f"### Final Score [{CODE}]: 8/10.5",
        f"### Final Score [{CODE}]: 8 or 9",
        f"### Final Score [{CODE}]: 8-9",
        f"### Final Score [{CODE}]: 8 9",
        f"### Final Score [{CODE}]: 80%",
        f"### Final Score [{CODE}]: 11",
        f"### Final Score [{CODE}]: -1",
        f"### Final Score [{CODE}]: 7.5",
        f"### Final Score [{CODE}]: 8\n### Final Score [other]: 2",
        f"### Final Score [{CODE}]: eight",
        f"### Final Score [{CODE}]: <score>",
        f"### Final Score [{CODE}]: 7/5",
        f"```\n### Final Score [{CODE}]: 8",
    ],
    "json": ['{"code": "other", "reason": "", "score": 7}', '{"reason": "", "score": 7}', "7", "{}"],
    "MT-Bench": ["Rating: 5", "Rating: [[11]]", "Rating: [[5, 6]]", "[[5]]"],
    "Arena-Hard": ["My final verdict is: A>B", "[[A<B]]", "[[A>>>B]]"],
    "Inspect": ["GRADE: CI", "GRADE: Correct", "GRADE: C or I"],
}


def test_published_replies_are_read_right() -> None:
    """At least 400 replies in 20 forms: none is read wrong, and 98 of 100 are read."""
    replies = readable()
    assert len(replies) >= 400
    assert len({name for name, _, _ in replies}) >= 20
    wrong, lost = [], []
    for name, text, score in replies:
        try:
            got = FORMS[name][0].read(JudgeReply(text), CODE).score
        except VerdictError as error:
            lost.append((name, text, str(error)))
        else:
            if got != pytest.approx(score):
                wrong.append((name, text, score, got))
    sys.stdout.write(
        f"\n{len(replies)} replies, {len(FORMS)} forms: read wrong {len(wrong)}, not read {len(lost)}\n"
    )
    assert not wrong
    assert len(lost) <= 0.02 * len(replies), lost


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in UNREAD.items() for text in texts])
def test_what_was_not_offered_or_has_two_readings_is_no_verdict(name: str, text: str) -> None:
    for before in BEFORE:
        with pytest.raises(VerdictError):
            FORMS[name][0].read(JudgeReply(before + text), CODE)
