"""IFBench's constraints on the form of a text: marks, lines, lists, cases."""

from __future__ import annotations

import re
from itertools import pairwise

from judgekit.graders.rules.english import (
    MINOR_WORDS,
    PUNCTUATION,
    end_of,
    ends_with_emoji,
    sentence_spans,
    sentences,
    starts_with_emoji,
    stripped,
)
from judgekit.graders.rules.instructions.constraints import constraint

_CLOSES = {")": "(", "]": "[", "}": "{"}
_STRAIGHT = str.maketrans("“”„‘’", '"""\'\'')
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")


@constraint("format:parentheses")
def parentheses(text: str) -> bool:
    """Brackets of any kind, five deep, of which the innermost is closed; a wrong closing one starts again."""
    open_: list[str] = []
    for char in re.findall(r"[()\[\]{}]", text):
        if char not in _CLOSES:
            open_.append(char)
        elif open_ and open_[-1] == _CLOSES[char]:
            if len(open_) >= 5:
                return True
            open_.pop()
        else:
            open_ = []
    return False


@constraint("format:quotes")
def quotes(text: str) -> bool:
    """Double and single quotes in each other by turns, at least three deep, all three closed."""
    text = _APOSTROPHE.sub("", text.translate(_STRAIGHT))
    open_: list[str] = []
    deepest = 0
    for char in re.findall(r"[\"']", text):
        if open_ and open_[-1] == char:
            open_.pop()
            if deepest - len(open_) >= 3:
                return True
        else:
            open_.append(char)
            deepest = max(deepest, len(open_))
    return False


@constraint("format:options", options="text")
def options(text: str, options: str) -> bool:
    """The text is one of the options: as written if these are letters, else whatever its case and punctuation."""
    given = options.split("/") if "/" in options else re.split(r",|\bor\b", options)
    given = [option.strip() for option in given if option.strip()]
    if re.match(r"\W*a\W*b\W*c\b", options, re.IGNORECASE):
        return text.strip() in given
    return _plain(text) in map(_plain, given)


@constraint("format:newline")
def newline(text: str) -> bool:
    """Each line has one word."""
    counts = [sum(bool(stripped(part)) for part in line.split()) for line in text.split("\n")]
    return any(counts) and max(counts) == 1


@constraint("format:emoji")
def emoji(text: str) -> bool:
    """An emoji stands at the end of each sentence, before or after its mark."""
    spans = list(sentence_spans(text))
    return bool(spans) and all(
        ends_with_emoji(text[start:end]) or starts_with_emoji(text[end : end + 8]) for start, end in spans
    )


@constraint("format:line_indent")
def line_indent(text: str) -> bool:
    """Each line is indented more than the line before it; blank lines do not count."""
    indents = [len(line) - len(line.lstrip(" ")) for line in text.split("\n") if line.strip()]
    return len(indents) > 1 and all(before < after for before, after in pairwise(indents))


@constraint("format:quote_unquote")
def quote_unquote(text: str) -> bool:
    """Something unquoted follows each quotation: no two stand side by side, and none at the end."""
    text = "".join(text.translate(_STRAIGHT).replace("'\"'", "").split())
    rest = text.rstrip(PUNCTUATION.replace('"', "") + "0123456789")
    return '""' not in text and not rest.endswith('"')


@constraint("format:list", sep="text")
def list_(text: str, sep: str) -> bool:
    """At least two items have the mark."""
    return text.count(sep) >= 2


@constraint("format:thesis")
def thesis(text: str) -> bool:
    """Something in italics, as HTML has it, and text after it."""
    opening = re.search(r"<(i|em)>", text)
    if opening is None:
        return False
    inside, closed, after = text[opening.end() :].partition(f"</{opening[1]}>")
    return bool(inside.strip() and closed and after.strip())


@constraint("format:sub-bullets")
def sub_bullets(text: str) -> bool:
    """There are bullets (*), and each of them is followed by a sub-bullet (-)."""
    found = re.findall(r"^[ \t]*+([*-])(?!\*)", text, re.MULTILINE)
    marks = "".join(found).lstrip("-")
    return bool(marks) and "**" not in marks and marks.endswith("-")


@constraint("format:no_bullets_bullets")
def no_bullets_bullets(text: str) -> bool:
    """At least two sentences with a full stop, then at least two bullets (*) and nothing else."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    first = next((i for i, line in enumerate(lines) if line.startswith("*")), len(lines))
    before, after = lines[:first], lines[first:]
    stated = sum(end_of(sentence) == "." for line in before for sentence in sentences(line))
    return stated >= 2 and len(after) >= 2 and all(line.startswith("*") for line in after)


@constraint("format:title_case")
def title_case(text: str) -> bool:
    """Each word starts with a capital, but for minor words that do not come first."""
    found = [word for word in re.findall(r"[^\W_]+(?:['’][^\W_]+)*", text) if word[0].isalpha()]
    return bool(found) and all(
        not word[0].islower() or (i > 0 and word in MINOR_WORDS) for i, word in enumerate(found)
    )


@constraint("format:output_template")
def output_template(text: str) -> bool:
    """The three labels, in this order."""
    at = 0
    for label in ("My Answer:", "My Conclusion:", "Future Outlook:"):
        at = text.find(label, at)
        if at < 0:
            return False
    return True


@constraint("format:no_whitespace")
def no_whitespace(text: str) -> bool:
    return len(text.split(None, 1)) == 1 and text == text.strip()


def _plain(text: str) -> str:
    return " ".join(text.lower().split()).strip(PUNCTUATION + " ")
