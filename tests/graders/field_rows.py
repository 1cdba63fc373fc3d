"""Rows of our own for the kinds in which rules pay wrongly: what is answered, what is right, what must be paid.

Each kind has siblings that the rules were not written for, and controls. `paid`: 1.0, 0.0, or None where the rule must
abstain; a tuple lists what is fine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One response to one question, for one rule."""

    kind: str
    rule: str
    response: str
    truth: Any
    paid: Any
    extra: dict[str, Any] = {}  # noqa: RUF012 - never changed


def lines(text: str) -> list[str]:
    """The lines of a table; `¶` stands for a line's end."""
    return [line.strip().replace("¶", "\n") for line in text.strip().splitlines()]


# ---- answers that are numbers: each line is a response in which {a} is the right number and {w} another one

NUMBERS = [("42", "41"), ("7.5", "8"), ("120", "12")]

NEVER: dict[str, str] = {
    "denied": r"""
        The answer is not {a}.
        The answer is definitely not {a}.
        The answer isn't {a}.
        The answer is clearly not {a}, as we have seen.
        The answer cannot be {a}.
        The answer can't be {a}.
        I do not think that the answer is {a}.
        I don't believe the answer is {a}.
        It is not true that the answer is {a}.
        It would be wrong to say that the answer is {a}.
        The answer is anything but {a}.
        The answer is never {a}.
        The final answer is NOT {a}!
        Answer: not {a}
        It is not {a}.
        The answer is not \boxed{{{a}}}.
        答案不是{a}。
        The answer is other than {a}.
        The answer is by no means {a}.
        By no means is the answer {a}.
        In no way is the answer {a}.
        The answer is hardly {a}.
        It would be a mistake to answer {a}.""",
    "only possible": r"""
        The answer might be {a}.
        The answer could be {a}.
        The answer may be {a}, who knows?
        The answer is perhaps {a}.
        The answer is possibly {a}
        Maybe {a}.
        Perhaps {a}?
        It could be {a}.
        Is the answer {a}?
        Answer: {a}?
        The answer is maybe {a}, maybe not.
        If the answer is {a}, then x is 3.
        Suppose the answer is {a}.
        The answer would be {a} if x were 3, but it is not.
        The answer would be {a} if we knew more.
        We ask whether the answer is {a}.
        Possibly the answer is {a}
        The answer is somewhere between {w} and {a}.""",
    "listed": r"""
        The answer is {a} or {w}.
        The answer is {w} or {a}.
        The answer is either {a} or {w}.
        Answer: {a}, {w}
        Answer: {a} / {w}
        Answer: {a}; {w}
        Answer: {a} {w}
        The answer is {w}, {a}, or 99.
        The answer is one of {w}, {a}.
        \boxed{{{a} \text{{ or }} {w}}}
        \boxed{{{w}, {a}}}
        #### {a} or {w}
        <answer>{a} or {w}</answer>
        <answer>{w}, {a}</answer>
        {w} or {a}
        The answer is {a} and {w}.
        The answer is between {a} and {w}.""",
    "scattered boxes": r"""
        \boxed{{{w}}} \boxed{{{a}}} \boxed{{99}}
        \boxed{{99}} \boxed{{{w}}} \boxed{{{a}}}
        \boxed{{{a}}} \boxed{{{w}}}
        \boxed{{{w}}}, \boxed{{{a}}}
        \boxed{{{w}}} or \boxed{{{a}}}
        \boxed{{{w}}}¶\boxed{{{a}}}
        $\boxed{{{w}}}$ $\boxed{{{a}}}$
        \boxed{{{w}}}; \boxed{{{a}}};
        \boxed{{{w}}} and \boxed{{{a}}} and \boxed{{99}}
        \boxed{{{w}}} / \boxed{{{a}}}
        Option 1: \boxed{{{w}}}¶Option 2: \boxed{{{a}}}
        1. \boxed{{{w}}}¶2. \boxed{{{a}}}
        \fbox{{{w}}} \fbox{{{a}}}
        \boxed{{{w}}}, or else \boxed{{{a}}}
        \boxed{{{w}}}\quad\boxed{{{a}}}""",
    "scattered sentences": r"""
        The answer is {w}. The answer is {a}.
        Answer: {w}¶Answer: {a}
        Answer: {w}¶Answer: 99¶Answer: {a}
        #### {w}¶#### {a}
        <answer>{w}</answer><answer>{a}</answer>
        <answer>{w}</answer> <answer>{a}</answer>
        The answer is {w}. Or the answer is {a}.
        The answer is {w}; the answer is {a}.
        The answer is {w}.¶¶The answer is {a}.
        Final answer: {w}¶Final answer: {a}
        Answer 1: x¶Answer: {w}¶Answer: {a}
        <answer>{w}</answer>¶or¶<answer>{a}</answer>
        The answer is {w}. Another possible answer is {a}.
        **Answer:** {w}¶**Answer:** {a}
        A: {w}¶A: {a}""",
    "taken back": r"""
        The answer is {a}. No, that is wrong.
        The answer is {a}. Wait, that's not right.
        The answer is {a}, which is wrong.
        The answer is {a}. Actually, this is incorrect.
        The answer is {a}? No.
        The answer is {a}. Scratch that.
        The answer is {a}. I take that back.
        The answer is {a}. Just kidding!
        The answer is {a}. I was wrong.
        \boxed{{{a}}} is wrong.
        \boxed{{{a}}}. Hmm, that can't be.
        \boxed{{{a}}} is incorrect.
        #### {a}¶That is wrong.
        <answer>{a}</answer>¶Sorry, that was a mistake.
        The answer is {a}. But I'm not sure.
        The answer is {a}. Ignore that.
        The answer is {a}. {a} is wrong.
        The answer is {a}. Wait, {a} is not right.
        The answer is {a}, but {a} is wrong.
        #### {a}¶{a} is incorrect.
        \boxed{{{a}}}. But {a} cannot be right.""",
    "not asserted": r"""
        The wrong answer is {a}.
        The incorrect answer: {a}
        A student says the answer is {a}.
        Some say the answer is {a}.
        You might think the answer is {a}.
        Many would say the answer is {a}.
        I doubt that the answer is {a}
        One could claim that the answer is {a}.
        Nobody can say that the answer is {a}; I deny that the answer is {a}.
        The previous answer was {a}.
        It is false that the answer is {a}.
        It is unlikely that the answer is {a}.
        Assume that the answer is {a}.
        They think the answer is {a}.
        The student's answer is {a}.""",
    "an unfinished box": r"""
        First \boxed{{{a}}}. But no, it is \boxed{{4
        \boxed{{{a}}} \boxed{{
        \boxed{{{a}
        So \boxed{{{a}}}, or rather \boxed{{
        $\boxed{{{a}}}$. Then $\boxed{{\frac{{1}}{{
        The answer is \boxed{{{a}
        \fbox{{{a}}} and \fbox{{
        \boxed{{{a}}}¶¶\boxed{{{w}
        \boxed{{\text{{{a}}}
        We get \boxed{{{a}}}. Check: \boxed{{{{
        \boxed{{{w}}}. Wait. \boxed{{{a}
        \boxed{{{a}}} then \boxed{{x =
        #### {w}¶\boxed{{{a}
        \boxed{{{a}}}... \boxed{{\frac{{
        x \boxed{{{a}}} y \boxed{{z""",
    "only thought": r"""
        <think>The answer is {a}.</think>
        <think>\boxed{{{a}}}</think>
        <think>The answer is {a}.
        <think>\boxed{{{a}}}
        <think>#### {a}</think>¶I am not sure.
        <think>The answer is {a}.</think>¶I cannot say.
        <thinking>The answer is {a}.</thinking>
        <thought>The answer is {a}.</thought>
        <reasoning>The answer is {a}.</reasoning>¶Done.
        [THINK]The answer is {a}.[/THINK]
        ◁think▷The answer is {a}.◁/think▷
        <|begin_of_thought|>The answer is {a}.<|end_of_thought|>
        The answer is {a}.</think>
        <think><answer>{a}</answer></think>
        <think>{w}</think>Hm.<think>The answer is {a}.</think>
        <THINK>The answer is {a}.</THINK>""",
    "a part of it": r"""
        \boxed{{{a}\sqrt{{3}}}}
        \boxed{{{a}\pi}}
        \boxed{{{a}x}}
        \boxed{{{a}x+1}}
        \boxed{{x^{{{a}}}}}
        \boxed{{\frac{{\pi}}{{{a}}}}}
        \boxed{{\log_2 {a}}}
        \boxed{{{a} + y}}
        The answer is {a}x + 1.
        The answer is {a}:45
        The answer is ({a}, {w})
        The answer is [{a}, {w}].
        \boxed{{\pm {a}}}
        The answer is {a}√2
        \boxed{{{a} \times z}}
        The answer is x > {a}
        The answer is log {a}
        The answer is sqrt {a}.
        The answer is sin {a}
        The answer is {a}i""",
}
"""Kinds in which {a} is never what the response commits to."""

ALWAYS: dict[str, str] = {
    "committed": r"""
        The answer is {a}.
        The answer is {a}
        So the answer is: {a}.
        **Answer:** {a}
        Answer: {a}
        Final Answer: {a}.
        #### {a}
        \boxed{{{a}}}
        $\boxed{{{a}}}$.
        We get $$\boxed{{{a}}}$$
        <answer>{a}</answer>
        <think>It is {w}.</think> The answer is {a}.
        <think>hm</think>¶<answer>{a}</answer>
        I think the answer is {a}.
        The answer is probably {a}.
        The answer must be {a}.
        The answer should be {a}.
        The answer is ${a}$.
        The answer is **{a}**.
        **The answer is {a}.**
        答案是{a}。
        La respuesta es {a}.
        Die Antwort ist {a}.
        The answer is {a}!
        the answer is \({a}\).
        The answer is \boxed{{{a}}}.
        {a}
        x = {a}
        ANSWER: {a}
        <answer>\boxed{{{a}}}</answer>
        The answer is {a} apples.
        **{a}**
        **{a}.**
        The answer would be {a}.
        It is {a}.
        **Final Answer**¶¶\boxed{{{a}}}""",
    "another is denied": r"""
        The answer is {a}, not {w}.
        The answer is not {w} but {a}.
        The answer is not {w}, it is {a}.
        The answer isn't {w}; it's {a}.
        Not {w}. The answer is {a}.
        \boxed{{{a}}}, not {w}.
        The answer is {a} because {w} is wrong.
        The answer is {a}. {w} is wrong.
        #### {a}¶{w} is incorrect.
        \boxed{{{a}}}. And {w} is not right.
        {w} is wrong. The answer is {a}.
        If it were {w}, we would stop. The answer is {a}.
        The answer is {a} since it cannot be {w}.
        Answer: {w}¶No, wait.¶Answer: {a}
        \boxed{{{w}}}. Wait, that is wrong. \boxed{{{a}}}
        #### {w}¶Wait.¶#### {a}
        Some say {w}. The answer is {a}.
        I first thought {w}, but the answer is {a}.
        The answer is {w}. No, wait: the answer is {a}.""",
}
"""Kinds in which {a} is what the response commits to, and {w} is not."""


def of_numbers() -> Iterator[Row]:
    for kind, table in NEVER.items():
        for line in lines(table):
            for a, w in NUMBERS:
                for rule in ("final_answer", "math"):
                    yield Row(kind, rule, line.format(a=a, w=w), a, 0.0)
    for kind, table in ALWAYS.items():
        for line in lines(table):
            for a, w in NUMBERS[:2]:
                for rule in ("final_answer", "math"):
                    yield Row(kind, rule, line.format(a=a, w=w), a, 1.0)
                    yield Row(kind, rule, line.format(a=a, w=w), w, 0.0)


# ---- numbers in many habits: what is written, what it is; in both rules unless one is named

HABITS: dict[str, list[tuple[str, str]]] = {
    "signs": [
        ("-5", "-5"), ("- 5", "-5"), ("−5", "-5"), ("–5", "-5"), ("(-5)", "-5"), ("+5", "5"), ("-0.5", "-1/2"), ("-$5", "-5"),
        ("$-5$", "-5"), ("-1,234", "-1234"), ("-\\frac{1}{2}", "-0.5"), ("\\frac{-1}{2}", "-0.5"), ("-½", "-0.5"), ("minus 5", "-5"),
        ("negative 5", "-5"), ("-5%", "-5"),
    ],
    "mixed numbers and fractions": [
        ("3 1/2", "3.5"), ("3\\frac{1}{2}", "3.5"), ("3\\frac12", "3.5"), ("3½", "3.5"), ("3 ½", "3.5"), ("\\frac34", "0.75"),
        ("\\dfrac12", "0.5"), ("\\tfrac{3}{4}", "0.75"), ("5/7", "5/7"), ("11 5/6", "71/6"), ("\\frac{7}{4}", "1 3/4"), ("¾", "3/4"),
        ("2\\dfrac{3}{4}", "2.75"), ("-1 1/2", "-1.5"), ("10/4", "2.5"), ("\\frac{1}{2}", ".5"),
    ],
    "thousands": [
        ("1,234,567", "1234567"), ("1 234 567", "1234567"), ("1'234'567", "1234567"), ("1_234_567", "1234567"), ("12,34,567", "1234567"),
        ("1.234.567", "1234567"), ("1{,}234{,}567", "1234567"), ("1\\,234\\,567", "1234567"), ("1\u202f234\u202f567", "1234567"),
        ("1\u00a0234\u00a0567", "1234567"), ("1,234.50", "1234.5"), ("１，２３４", "1234"), ("$1,200", "1200"), ("\\$1,200", "1200"), ("10,080", "10080"),
        ("12,345,678.9", "12345678.9"),
    ],
    "ends of sentences": [
        ("70.", "70"), ("5/7.", "5/7"), ("3.5.", "3.5"), ("42!", "42"), ("100/3.", "100/3"), ("42;", "42"), ("42,", "42"), ("42 .", "42"), ("0.5.", "1/2"),
        ("$42$.", "42"), ("-3.", "-3"), ("1 1/2.", "1.5"), ("**42**.", "42"), ("1,000.", "1000"), ("42.\n\nI hope this helps.", "42"), ("½.", "0.5"),
    ],
    "Unicode": [
        ("√16", "4"), ("½", "1/2"), ("１２", "12"), ("10²", "100"), ("10⁻²", "0.01"), ("45°", "45"), ("−7", "-7"), ("3½", "7/2"), ("2¹⁰", "1024"), ("⅓", "1/3"),
        ("٤٢", "42"), ("5×10³", "5000"), ("¼", "0.25"), ("−½", "-1/2"), ("９９", "99"), ("⅔", "2/3"),
    ],
    "units": [
        ("5 meters", "5 m"), ("5 m", "5 meters"), ("500 cm", "5 m"), ("5", "5 meters"), ("5 kg", "5000 g"), ("2 hours", "120 minutes"), ("$5", "5 dollars"),
        ("5 dollars", "$5"), ("5 km", "5"), ("90 minutes", "1.5 hours"), ("3 feet", "1 yard"), ("12 inches", "1 foot"), ("5 apples", "5"), ("20 miles", "20"),
        ("250 ml", "0.25 liters"), ("5 units", "5"),
    ],
    "magnitudes and powers": [
        ("3 million", "3000000"), ("2.5 billion", "2500000000"), ("5 thousand", "5000"), ("10^3", "1000"), ("10^{-3}", "0.001"), ("2^{10}", "1024"),
        ("6 \\times 10^{3}", "6000"), ("6 × 10^3", "6000"), ("2e3", "2000"), ("1e-3", "0.001"), ("3 hundred", "300"), ("1.5 million", "1500000"), ("10^2", "100"),
        ("5 x 10^3", "5000"), ("5 * 10^3", "5000"), ("1E3", "1000"),
    ],
    "numbers in words": [
        ("seven", "7"), ("forty-two", "42"), ("forty two", "42"), ("twelve", "12"), ("one hundred", "100"), ("one hundred and five", "105"), ("zero", "0"),
        ("twenty-one", "21"), ("two thousand", "2000"), ("ninety nine", "99"), ("Seven", "7"), ("thirteen", "13"), ("eighty", "80"), ("one thousand two hundred", "1200"),
        ("minus three", "-3"), ("five hundred", "500"),
    ],
}  # fmt: skip
WRONG_UNITS = [
    ("5 feet", "5 meters"), ("5 km", "5 m"), ("5 kg", "5 g"), ("5 hours", "5 minutes"), ("5 euros", "5 dollars"), ("5 pounds-sterling", "6 dollars"),
    ("5 inches", "5 cm"), ("5 miles", "5 km"), ("5 cents", "5 dollars"), ("5 ounces", "5 grams"), ("5 liters", "5 gallons"), ("5 days", "5 weeks"),
    ("5 seconds", "5 minutes"), ("5 mm", "5 cm"), ("5 years", "5 months"), ("5 yards", "5 feet"), ("5 meters", "5 seconds"),
]  # fmt: skip
FRAMES = ("The answer is {}", "\\boxed{{{}}}", "#### {}", "<answer>{}</answer>")
SENTENCES = ("The answer is {}", "Answer: {}", "So, the answer is {}")


def of_habits() -> Iterator[Row]:
    for kind, pairs in HABITS.items():
        for i, (written, truth) in enumerate(pairs):
            frames = SENTENCES if kind == "ends of sentences" else FRAMES
            for frame in (frames[i % len(frames)], frames[(i + 1) % len(frames)]):
                for rule in ("final_answer", "math"):
                    if rule == "math" and "%" in written:
                        continue  # to math, 5 % are 0.05
                    text = frame.format(written)
                    yield Row(kind, rule, text, truth, 1.0)
                    yield Row(kind, rule, text, "77", 0.0)
    for written, truth in WRONG_UNITS:
        for rule in ("final_answer", "math"):
            for frame in FRAMES[:2]:
                yield Row("other units", rule, frame.format(written), truth, 0.0)


# ---- mathematics: reference, right answers, wrong answers

MATHS: dict[str, list[tuple[str, list[str], list[str]]]] = {
    "plain text": [
        ("pi/4", ["\\frac{\\pi}{4}", "pi/4", "\\pi/4"], ["ip/4", "\\frac{4}{\\pi}", "4"]), ("ln(2)", ["\\ln 2", "ln(2)"], ["2", "\\ln 3"]),
        ("2*pi", ["2\\pi", "2pi"], ["2", "2ip"]), ("exp(-x)", ["e^{-x}"], ["e^{x}", "x"]), ("sqrt(x**2 + 1)", ["\\sqrt{x^2+1}"], ["\\sqrt{x^2-1}", "x+1"]),
        ("sin(x)", ["\\sin x", "\\sin(x)"], ["\\cos x", "x"]), ("arctan(2)", ["\\arctan 2"], ["2"]), ("log(x)/x", ["\\frac{\\ln x}{x}"], ["\\frac{x}{\\ln x}"]),
        ("3*sqrt(5)", ["3\\sqrt{5}"], ["3", "5\\sqrt{3}"]), ("(x+1)/y", ["\\frac{x+1}{y}"], ["x+\\frac{1}{y}"]), ("abs(x)", ["|x|"], ["x"]), ("x*y", ["xy"], ["x"]),
        ("x^10", ["x^{10}"], ["x", "10x"]), ("cos(pi*x)", ["\\cos(\\pi x)"], ["\\cos(x)"]), ("e**(2*x)", ["e^{2x}"], ["e^{x}"]),
    ],
    "polynomials": [
        ("2*x**3 + 5", ["2x^3+5", "5+2x^3"], ["9*x**5 + 5", "5", "2x^3"]), ("x**2 + 1", ["x^2+1"], ["1", "x^2-1", "x^3+1"]), ("3*t**2 - 4*t + 1", ["3t^2-4t+1"], ["1", "7t^9+1"]),
        ("x**2/2 + C", ["\\frac{x^2}{2}+C"], ["x**3/3 + C", "C"]), ("(x+1)**2", ["x^2+2x+1"], ["x^2+1"]), ("x**2 - y**2", ["(x-y)(x+y)"], ["x^2+y^2"]), ("2x+1", ["2x+1", "1+2x"], ["2", "1", "x"]),
        ("5*y - 2", ["5y-2"], ["-2", "5y+2"]), ("2**10", ["1024", "2^{10}"], ["210", "20"]),
    ],
    "digits count": [
        ("1.6\\times10^{-19}", ["1.60\\times 10^{-19}", "1.6e-19"], ["1.38\\times10^{-23}", "1.6\\times10^{-18}", "0"]), ("0.00000034", ["3.4e-7"], ["0.00000012", "0"]),
        ("\\frac{1}{2^{99}}", ["2^{-99}"], ["\\frac{1}{2^{98}}", "0"]), ("6.626\\times 10^{-34}", ["6.626e-34"], ["9.11\\times 10^{-31}"]), ("1e-9", ["10^{-9}", "0.000000001"], ["2e-9", "0", "1e-8"]),
        ("\\frac13", ["0.333333", "1/3"], ["0.33", "0.3"]), ("6.02e23", ["6.02\\times 10^{23}"], ["6.03e23", "6.02e22"]), ("0.05", ["5\\times 10^{-2}", "\\frac{1}{20}"], ["0.5", "0.005"]),
        ("\\frac{1}{2004!}", ["\\frac{1}{2004!}"], ["\\frac{1}{2006!}"]), ("(1e-9, 2)", ["(1e-9, 2)"], ["(2e-9, 2)"]), ("0", ["0", "0.0"], ["1e-9", "0.00000001"]),
    ],
    "Unicode mathematics": [
        ("10 - 2\\sqrt{5}", ["10 - 2√5"], ["10 - 2", "10"]), ("\\sqrt{2}", ["√2", "√(2)"], ["2"]), ("x^2+1", ["x²+1"], ["x+1", "x2+1"]), ("(-\\infty, 3]", ["(−∞, 3]"], ["(−∞, 3)"]),
        ("2\\cdot 3^5", ["2·3^5", "2·3⁵"], ["2·35"]), ("10^{-3}", ["10⁻³"], ["10³", "103"]), ("x \\le 3", ["x ≤ 3"], ["x ≥ 3"]), ("2\\pi", ["2π"], ["2"]), ("√2", ["\\sqrt{2}"], ["2"]),
        ("\\frac{\\sqrt{3}}{2}", ["√3/2"], ["3/2"]), ("x_1", ["x₁"], ["x₂"]), ("\\sqrt[3]{5}", ["∛5"], ["√5"]), ("\\pm 3", ["±3"], ["3"]), ("\\frac12", ["½"], ["2"]),
    ],
    "tokens": [
        ("2024-03-01", ["2024-03-01"], ["2024-02-02", "2020"]), ("3 1 2", ["3 1 2"], ["1 2 3", "6"]), ("0x1F", ["0x1F"], ["0x2A", "0"]), ("10:45", ["10:45"], ["2:9", "45:10"]), ("C8", ["C8"], ["8C", "E8"]),
        ("H2O", ["H2O"], ["OH2"]), ("192.168.1.10", ["192.168.1.10"], ["192.168.10.1"]), ("3-1", ["3-1"], ["4-2"]), ("555-0199", ["555-0199"], ["554-0198"]), ("1, 2, \\ldots, n", ["1, 2, \\ldots, n"], ["1, 3, 5, \\ldots, 2n-1"]),
        ("0b1010", ["0b1010"], ["0b1111"]), ("2:3", ["2:3"], ["3:2"]), ("ABC", ["ABC"], ["CAB"]), ("0 1 1 0", ["0 1 1 0"], ["1 0 0 0"]),
    ],
    "marked, not boxed": [
        ("(3, 4)", ["(3, 4)"], ["(4, 3)", "4", "3"]), ("[1, 5)", ["[1, 5)"], ["[1, 5]", "5"]), ("x+1", ["x+1", "1+x"], ["1", "x", "x-1"]), ("3, 4", ["3, 4", "4, 3"], ["3", "4"]), ("2x - 7", ["2x - 7"], ["2", "7"]),
        ("3 \\times 37", ["111", "3 \\times 37"], ["3", "37"]), ("\\frac{x}{2}", ["\\frac{x}{2}", "x/2"], ["2"]), ("\\sqrt{3}", ["\\sqrt{3}"], ["3"]), ("\\{1, 2\\}", ["\\{1, 2\\}", "\\{2, 1\\}"], ["1", "\\{1, 3\\}"]),
    ],
    "references in words": [
        ("forty two", ["42", "forty two", "forty-two"], ["41", "2"]), ("seven", ["7", "seven"], ["8", "eight"]), ("Paris", ["Paris", "\\text{Paris}"], ["London", "\\text{not Paris}"]), ("June 20", ["June 20", "20 June"], ["June 21", "20"]),
        ("Yes", ["yes"], ["no"]), ("one hundred", ["100"], ["1", "10"]), ("even", ["even"], ["odd"]), ("2:15 p.m.", ["2:15 pm"], ["2:15 am"]), ("Alice and Bob", ["Bob, Alice"], ["Alice"]),
    ],
}  # fmt: skip


def of_mathematics() -> Iterator[Row]:
    for kind, table in MATHS.items():
        for truth, right, wrong in table:
            frames = (
                ("The answer is {}.", "Steps.\n#### {}", "Answer: {}")
                if kind == "marked, not boxed"
                else ("\\boxed{{{}}}",)
            )
            for frame in frames:
                yield from (Row(kind, "math", frame.format(answer), truth, 1.0) for answer in right)
                yield from (Row(kind, "math", frame.format(answer), truth, 0.0) for answer in wrong)
    for truth, _, _ in (
        MATHS["plain text"] + MATHS["polynomials"]
    ):  # a rule never gives 0 to its own reference
        yield Row("its own reference", "math", f"<answer>{truth}</answer>", truth, 1.0)
        yield Row("its own reference", "math", f"The answer is {truth}.", truth, 1.0)
    for truth in (
        "2:3",
        "(4, 7)",
        "[2, 3]",
        "2024-03-01",
        "x = 3 or x = 5",
        "01:45:29",
        "4 - 7i",
        "3 5 8",
        "C8",
        "1a1",
        "0xe956",
        "Q3-B7",
        "2\\sqrt{3}",
        "x+1",
        "5 or 6",
    ):
        for response in (f"The answer is {truth}.", "\\boxed{3}", "#### 8"):
            yield Row("a reference of several numbers", "final_answer", response, truth, None)
    for truth in (
        "He has 4*3=12 apples.\n#### 12",
        "12 (apples)",
        "It costs 12 dollars",
        "x = 12",
        "\\boxed{12}",
        "The answer is 12.",
        "12",
        "12.0",
        "$12",
        "so 3*4 = 12",
        "Answer: 12",
    ):
        yield Row("a reference of several numbers", "final_answer", "#### 12", truth, 1.0)
        yield Row("a reference of several numbers", "final_answer", "#### 3", truth, 0.0)


# ---- choices

NOT_CHOSEN: dict[str, str] = {
    "a denied choice": """
        The answer is not B.
        The answer isn't B.
        It is not B.
        (B) is wrong.
        I would not choose B.
        I don't think it's B.
        Option B is incorrect.
        B is wrong.
        答案不是B
        It can't be B.
        The answer cannot be B.
        The wrong answer is B.
        Incorrect answer: B
        It is A rather than B.
        A student picked B.
        Most people choose (B).
        Some chose B.
        By no means is it B.
        I choose A over (B).
        The answer is A, not B.""",
    "a hedged choice": """
        The answer might be B.
        The answer could be B.
        Perhaps B
        Maybe (B)
        Is the answer B?
        Possibly B.
        If the answer is B, then A is wrong.
        The answer is B. Wait, that's wrong.
        The answer is B? No.
        B?
        It could be (B).
        The answer is perhaps B.
        <think>The answer is B</think>
        <think>The answer is B</think> I am not sure.
        <thinking>Answer: B</thinking>
        \\boxed{B""",
    "several choices": """
        Answer: A or B
        Answer: A/B
        Answer: A, B, C
        A B C D
        A, B, C, D
        (A) (B) (C) (D)
        Both A and B
        Answer: B and C
        B or C
        Neither A nor B
        \\boxed{A} \\boxed{B} \\boxed{C}
        \\boxed{C}, \\boxed{B}
        Answer: A¶Answer: C¶Answer: B
        <answer>A</answer><answer>B</answer>
        <answer>A or B</answer>
        A is correct. B is correct.
        A. one¶B. two¶C. three¶D. four
        The answer is A. The answer is B.""",
}
CHOSEN: dict[str, str] = {
    "chosen first, then explained": """
        (B) silver.¶¶(A) is too low, (C) is too high.
        B. silver¶¶(C) is too high.
        **B**¶¶(A) is too low. (C) is too high.
        B¶¶Explanation: A is wrong since it is cold. C is wrong, too.
        (B)¶¶(A) is wrong because it is cold.
        Answer: (B)¶¶Explanation: (C) is wrong.
        **Answer: B**¶¶since \\boxed{\\langle H\\rangle \\ll \\Delta E}
        The answer must be B because option C ignores friction.
        B, because A is too low.
        B: silver. A and C are not metals.
        The answer is B, since A is wrong
        The answer is (B) and not (C).
        Option B is correct. Option A is too cold.
        B. It is silver, not gold (C).
        B) silver, as (A) has no shine
        The answer is B. C would be too much.""",
    "said to be chosen": """
        I choose B over (C).
        Between (B) and (C), I pick B.
        The answer is not A, it is B.
        I would choose option b.
        I would go with B.
        I'd say B.
        So it must be (B).
        It can't be A or C, and D is too high, so it must be B.
        Option A is wrong. Option B is right.
        Ruling out (A), (C) and (D), we are left with (B).
        I choose A. No wait, I choose B.
        Therefore, (B).
        Choose B
        Select (B).
        The correct option is B
        The best choice is (B)
        My choice: B
        Thus the answer: B""",
    "decorated": """
        ANSWER: $\\text{B}$
        ANSWER: \\(B\\)
        Final answer: $\\mathbf{B}$
        ANSWER: <B>
        答案是B
        答案选B
        故选B。
        答案：（Ｂ）
        正解はBです
        정답: B
        {"answer": "B"}
        ```json¶{"answer": "B", "confidence": 0.9}¶```
        ***ANSWER***: ***B***
        \\boxed{\\text{B}}
        \\boxed{\\mathrm{(B)}}
        **B.**
        answer: b)
        <answer>(B)</answer>
        #### (B)
        Answer:¶B""",
}


def of_choices() -> Iterator[Row]:
    for kind, table in NOT_CHOSEN.items():
        for line in lines(table):
            yield Row(kind, "multiple_choice", line, "B", 0.0)
            yield Row(kind, "multiple_choice", line, "b", 0.0)
    for kind, table in CHOSEN.items():
        for line in lines(table):
            yield Row(kind, "multiple_choice", line, "B", 1.0)
            yield Row(kind, "multiple_choice", line, "C", 0.0)
            yield Row(kind, "multiple_choice", line, "A", 0.0)
    arc = {"text": ["wax", "ice", "tin", "zinc"], "label": ["1", "2", "3", "4"]}
    for response in (
        "Answer: 2",
        "2",
        "(2)",
        "Answer: B",
        "The answer is ice.",
        "\\boxed{2}",
        "2. ice",
        "Option 2 is right",
        "The answer is (2).",
        "#### 2",
        "<answer>2</answer>",
    ):
        yield Row("labels of the data", "multiple_choice", response, "2", 1.0, {"options": arc})
        yield Row("labels of the data", "multiple_choice", response, "3", 0.0, {"options": arc})
    for name, labels in {
        "Cyrillic": "АБВГ", "Arabic": "أبجد", "Katakana": "アイウエ", "stems": "甲乙丙丁", "circled": "①②③④", "Hangul": "가나다라", "Greek": "ΑΒΓΔ", "Hebrew": "אבגד",
    }.items():  # fmt: skip
        data = {
            "text": [f"{name} one", f"{name} two", f"{name} three", f"{name} four"],
            "label": list(labels),
        }
        for options in ({"options": data}, {}):
            yield Row("letters of other scripts", "multiple_choice", labels[1], labels[1], 1.0, options)
            yield Row(
                "letters of other scripts", "multiple_choice", f"Answer: {labels[1]}", labels[1], 1.0, options
            )
            yield Row(
                "letters of other scripts", "multiple_choice", f"Answer: {labels[2]}", labels[1], 0.0, options
            )
    for options, key, response, paid in (
        (["-5", "10", "15", "20"], "A", "Answer: 5", 0), (["5.0", "6.0", "7.0", "8.0"], "A", "Answer: 50", 0), (["1/2", "1/3", "1/4", "1/5"], "A", "Answer: 12", 0),
        (["10^-3", "10^-4", "10^-5", "10^-6"], "A", "Answer: 10^3", 0), (["x < 3", "x = 4", "x = 5", "x = 6"], "A", "Answer: x > 3", 0), (["5", "-5", "10", "-10"], "B", "Answer: -5", 1),
        (["H+", "H-", "H2", "OH"], "A", "Answer: H+", 1), (["H+", "H-", "H2", "OH"], "B", "Answer: H+", 0), (["a+b", "a-b", "ab", "a/b"], "B", "Answer: a-b", 1), (["Python", "C++", "C", "Java"], "C", "The answer is C++.", 0),
        (["Python", "C++", "C", "Java"], "B", "The answer is C++.", 1), (["0 degrees", "32 degrees", "100 degrees", "212 degrees"], "B", "The final answer is: $\\boxed{32}$", 1), (["0.5", "5", "50", "500"], "A", "Answer: 0.5", 1),
        (["0.5", "5", "50", "500"], "A", "Answer: 5", 0), (["1,000", "100", "10", "1"], "A", "1000", 1), (["x^2", "x^3", "2x", "x"], "A", "Answer: x^2", 1), (["x^2", "x^3", "2x", "x"], "C", "Answer: x^2", 0),
        (["5 m", "5 cm", "5 km", "5 mm"], "B", "Answer: 5 cm", 1), (["5 m", "5 cm", "5 km", "5 mm"], "A", "Answer: 5 cm", 0), (["\\frac{1}{2}", "\\frac{1}{3}", "2", "3"], "A", "The answer is 1/2", 1),
        (["$5$", "$-5$", "$10$", "$0$"], "A", "Answer: $-5$", 0), (["Na+", "Na-", "Cl", "K"], "A", "Na-", 0), (["3", "4", "5", "6"], "A", "3 + 4 = 7", 0), (["5%", "50%", "0.5%", "500%"], "C", "0.5%", 1),
    ):  # fmt: skip
        yield Row(
            "options that are values", "multiple_choice", response, key, float(paid), {"options": options}
        )
    cities = ["Paris", "London", "New York", "York"]
    for response, key, paid in (
        ("The answer is not London.", "B", 0), ("London", "B", 1), ("It's London.", "B", 1), ("It is London, not Paris", "B", 1), ("It is London, not Paris", "A", 0), ("London or Paris", "B", 0), ("Paris, London, New York, York", "A", 0),
        ("The answer is New York", "D", 0), ("The answer is York", "D", 1), ("Not Paris.", "A", 0), ("Maybe London", "B", 0), ("London is wrong. Paris is right.", "B", 0), ("\\boxed{\\text{London}}", "B", 1), ("I choose London.", "B", 1),
        ("The answer is neither Paris nor London", "B", 0), ("london", "B", 1),
    ):  # fmt: skip
        yield Row("options by their text", "multiple_choice", response, key, float(paid), {"options": cities})
    for options, key, response, paid in (
        ({"A": "None", "B": "Two", "C": None, "D": None}, "A", "The answer is None.", 1), ({"A": "x", "B": "y", "C": None}, "C", "None", None), ({"A": "wax", "B": "ice", "C": None}, "B", "B", 1), ({"A": "wax", "B": "ice", "C": None}, "B", "Answer: C", 0),
        (["wax", "ice", None, None], "B", "B", 1), (["wax", "ice", None, None], "D", "D", None), (["Not enough information", "Yes", "No", "Both"], "A", "The answer is not enough information.", 1), (["None of the above", "x1", "y1", "z1"], "A", "None of the above", 1),
        (["True", "False"], "B", "The answer is False.", 1), (["True", "False"], "B", "The answer is not False.", 0), (["True", "False"], "A", "True", 1), (["Yes", "No"], "B", "No.", 1), (["Yes", "No"], "B", "Yes", 0), ('["wax", "ice"]', "B", "ice", 1), ("['wax', 'ice']", "A", "ice", 0),
        (["A)21", "B)21.5", "C)22"], "C", "The answer is 22.", 1), (["A)21", "B)21.5", "C)22"], "C", "The answer is 21.5.", 0), (["A.cat", "B.dog", "C.cow"], "B", "The answer is dog.", 1), (["A、猫", "B、狗", "C、牛"], "C", "The answer is 牛.", 1), (["robots", "A.I.", "cars"], "B", "The answer is A.I.", 1),
    ):  # fmt: skip
        yield Row(
            "odd options",
            "multiple_choice",
            response,
            key,
            None if paid is None else float(paid),
            {"options": options},
        )


# ---- tool calls

CALLS: list[dict[str, Any]] = [
    {"name": "look", "arguments": {"city": "Paris"}}, {"name": "add", "arguments": {"a": 1, "b": 2}}, {"name": "book", "arguments": {"trip": {"from": "Oslo"}}},
    {"name": "sort", "arguments": {"items": [3, 1]}}, {"name": "stop", "arguments": {}}, {"name": "rate", "arguments": {"stars": 4.5}}, {"name": "send", "arguments": {"to": "Eve", "urgent": True}},
]  # fmt: skip


def made(call: Any) -> str:
    return f"<tool_call>{json.dumps(call)}</tool_call>"


def of_calls() -> Iterator[Row]:
    for i, call in enumerate(CALLS):
        other = CALLS[(i + 1) % len(CALLS)]
        for rule in ("tool_calls", "tool_calls_exact", "tool_calls_subset", "step_sequence"):
            # the rows of one Parquet file: Arrow fills the arguments that a call lacks
            yield Row("null-filled calls", rule, made(call), [call], 1.0)
            yield Row("null-filled calls", rule, made(other), [call], 0.0)
        for rule in ("tool_calls_exact", "step_sequence"):
            yield Row(
                "drafted calls", rule, f"<think>maybe {made(other)} helps</think>\n{made(call)}", [call], 1.0
            )
            yield Row("drafted calls", rule, f"<think>I could {made(call)}</think>\nNo.", [call], 0.0)
            yield Row("drafted calls", rule, f"<think>I could {made(call)}", [call], 0.0)
            yield Row("drafted calls", rule, f"maybe {made(other)}</think>{made(call)}", [call], 1.0)
            yield Row(
                "drafted calls",
                rule,
                f"<think>a</think>{made(call)}<think>{made(other)}</think>",
                [call],
                1.0,
            )
        text = json.dumps([{"name": call["name"], "arguments": {**call["arguments"], "zip": None}}])
        yield Row("nulls of JSON text", "tool_calls_exact", made(call), text, 0.0)
        given = {"name": call["name"], "arguments": {**call["arguments"], "zip": None}}
        yield Row("nulls of JSON text", "tool_calls_exact", made(given), text, 1.0)
        yield Row(
            "nulls of JSON text", "json_match", json.dumps({"a": i}), json.dumps({"a": i, "b": None}), 0.0
        )
        yield Row(
            "nulls of JSON text",
            "json_match",
            json.dumps({"a": i, "b": None}),
            json.dumps({"a": i, "b": None}),
            1.0,
        )
    for i in range(8):
        key = f"k{i}"
        yield Row("null-filled objects", "json_match", json.dumps({key: i}), {key: i}, 1.0)
        yield Row("null-filled objects", "json_match", json.dumps({key: i + 1}), {key: i}, 0.0)
        yield Row(
            "null-filled objects",
            "json_match",
            f"<think>x</think><answer>{json.dumps({key: i})}</answer>",
            {key: i},
            1.0,
        )


# ---- texts


def of_texts() -> Iterator[Row]:
    for truth in ("A", "The", "an", "+", "a"):
        for rule in ("token_f1", "overlap", "edit_similarity", "text_match"):
            yield Row("the gold a", rule, "", truth, 0.0)
            yield Row("the gold a", rule, "...", truth, 0.0)
            yield Row("the gold a", rule, truth, truth, 1.0)
    for response, truth in (("5", "-5"), ("15", "1.5"), ("12", "1/2"), ("x > 3", "x < 3"), ("C", "C++"), ("C", "C#"), ("34", "3-4"), ("1030", "10:30"), ("5", "+-5"), ("-1.5", "1.5"), ("25", "2.5"), ("10", "1.0"), ("a-b", "a+b"), ("H+", "H-"), ("x = 2", "x > 2")):  # fmt: skip
        yield Row("texts that are values", "text_match", response, truth, 0.0)
        yield Row("texts that are values", "text_match", truth, truth, 1.0)
    for response, truth, paid in (
        ("yes", "yes", 1), ("Yes.", "yes", 1), ("no", "yes", 0), ("yes and no", "yes", 0), ("not yes", "yes", 0), ("no", "no one", 0), ("yes", "yes they did", 0), ("noanswer", "noanswer", 1), ("no answer at all", "no", 0), ("The answer is yes", "yes", 0),
        ("no", "no", 1), ("YES!", "yes", 1), ("yes", "no", 0), ("maybe yes", "yes", 0), ("no no", "no", 0), ("yes", "noanswer", 0),
    ):  # fmt: skip
        yield Row("yes and no", "token_f1", response, truth, float(paid))
    for response, truth, paid in (
        ("<answer>Paris</answer>", "Paris", 1), ("<think>x</think>Paris", "Paris", 1), ("<think>x</think><answer>Paris</answer>", "Paris", 1), ("<think>x</think><answer>Rome</answer> Paris", "Paris", 0), ("Paris", "Paris", 1), ("<think>Paris", "Paris", 0),
        ("<think>Paris</think>", "Paris", 0), ("<answer>Rome</answer><answer>Paris</answer>", "Paris", 0), ("<answer>Paris", "Paris", 0), ("<answer>Rome</answer> Wait, no. <answer>Paris</answer>", "Paris", 1), ("<answer></answer>", "Paris", 0),
        ("<think><answer>Paris</answer></think>Rome", "Paris", 0), ("<think><answer>Rome</answer></think>Paris", "Paris", 1), ("  Paris \n", "Paris", 1), ("<thinking>Rome</thinking>Paris", "Paris", 1),
    ):  # fmt: skip
        yield Row("answer or rest", "answer_or_rest", response, truth, float(paid))
    for response, paid in (
        ("It is Paris.", 1), ("It is not Paris.", 0), ("It isn't Paris", 0), ("Perhaps Paris", 0), ("Paris", 1), ("Is it Paris?", 0), ("Rome, not Paris", 0), ("not Rome but Paris", 1), ("It can be anything but Paris", 0), ("Never Paris", 0), ("It might be Paris", 0),
        ("I know it: Paris, of course", 1), ("It is not Rome. It is Paris.", 1), ("without Paris", 0), ("Rome rather than Paris", 0), ("<think>Paris</think>Rome", 0),
    ):  # fmt: skip
        yield Row("contained", "contains", response, "Paris", float(paid))
    for response, paid in (
        ("\\boxed{41} \\boxed{42} \\boxed{43}", 0), ("\\boxed{42}", 1), ("\\boxed{41}, \\boxed{42}", 0), ("\\boxed{42} is wrong", 0), ("\\boxed{42", 0), ("<think>\\boxed{42}</think>", 0), ("\\boxed{}", 0), ("\\boxed{41}. No, \\boxed{42}", 1), ("\\boxed{42} \\boxed{42}", 1),
        ("\\boxed{41} or \\boxed{42}", 0), ("\\boxed{1}\n\\boxed{2}", 0), ("$\\boxed{42}$.", 1), ("boxed 42", 0), ("\\fbox{42}", 1), ("\\boxed{41} then \\boxed{", 0),
    ):  # fmt: skip
        yield Row("a box", "boxed", response, "42", float(paid))
    code = "x = 1\nif x:\n    y = 2"
    for indent in ("", "  ", "   ", "    ", "\t"):
        for opening in ("```python", "```py", "```{.python}", "~~~python"):
            block = "\n".join(f"{indent}{line}" for line in (opening, *code.split("\n"), opening[:3]))
            yield Row("fences", "code_block", f"1. The code:\n{block}", "", 1.0)
    yield Row("fences", "code_block", "The code: ```python\nx = 1\n```", "", 1.0)
    yield Row("fences", "code_block", "- ```python\n  x = 1\n  ```", "", 1.0)
    yield Row("fences", "code_block", "<think>```python\nx = 1\n```</think>", "", 0.0)
    yield Row("fences", "code_block", "```python\nx = = 1\n```", "", 0.0)
    for response, paid in (
        ("<think>a</think>b", 1), ("<think>a</think>", 1), ("<think></think>b", 0), ("a<think>b</think>", 0), ("<think>a", 0), ("a</think>b", 0), ("<think>a</think><think>b</think>", 0), ("b", 0), ("", 0), (" <think>a</think> b", 1), ("<think>a</think>\n\nb", 1),
        ("</think>a<think>", 0), ("<think>a<think>b</think>", 0), ("<think> </think>b", 0), ("<think>a</think>b</think>", 0),
    ):  # fmt: skip
        yield Row("text after thinking", "tags_after", response, "", float(paid))


def rows() -> list[Row]:
    found = [*of_numbers(), *of_habits(), *of_mathematics(), *of_choices(), *of_calls(), *of_texts()]
    return list({(r.kind, r.rule, r.response, repr(r.truth), repr(r.extra)): r for r in found}.values())
