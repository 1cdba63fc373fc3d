"""Finds what a response commits to: its marked answer, and whether it stands by it.

Every rule that looks for an answer asks here. A marker is a box, `####`, `<answer>`, "the answer is", "Answer:", or the
same in other languages. The last one decides. What it marks is no answer if

- the box or the tag does not end;
- it is denied ("is not 42", "isn't", "I do not think that the answer is 42") and nothing is put in its place ("not 5
  but 6" is 6);
- it is only possible ("might be 42", "perhaps 42", "if the answer is 42"); "I think", "probably" and "about" commit;
- it is taken back right after it ("The answer is 42. No, that is wrong."), unless another is put in its place ("No, wait, it's 43");
- another answer of its kind stands beside it, without a word that says which holds (three boxes in a row).

What is only thought is no answer either: `thoughts` takes it away, before anything is looked for here. Denied, possible and
taken back: `asserted`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeVar

from judgekit.graders.rules.asserted import AROUND, asserted, corrected, remarks, sentence, takes_back, under
from judgekit.graders.rules.thoughts import remembered

Kind = Literal["boxed", "hash", "tag", "words"]
Value = TypeVar("Value")
_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,4}\{")
_BRACE = re.compile(r"\\[\\{}]|[{}]")

_BE = (
    r"(?:is|are|was|be|isn['’]?t|aren['’]?t|wasn['’]?t|equals|comes?\ (?:out\ )?to"
    r"|(?:would|should|must|could|might|may|can|will|cannot|won['’]?t|can['’]?t|couldn['’]?t|wouldn['’]?t|shouldn['’]?t)"
    r"(?:[ \t]+not)?(?:[ \t]+(?:well|also|still|only|then|possibly|actually))?[ \t]+be(?:en)?)"
)
_HEADING = r"""
    [ \t]*[*_]{0,3}
    (?: (?:steps?|part|case|final|answer|conclusion|solution|explanation|summary|results?|verif\w*|check\w*|calculat\w*|comput\w*|analy\w*
          |reasoning|understand\w*|problem|given)\b[^\n]{0,100}
      | \d+[.)][ \t]+(?-i:[A-Z])[^\n]{0,100} | [^\n]{0,100}:[*_ \t]{0,4})\n\s*+\S
    """
"""What follows a `####` that is Markdown's: the words of a heading, and a text under it."""
_MARKER = rf"""
    (?P<hash>(?<!\#)\#{{4}})(?!\#)(?!{_HEADING})
  | (?P<boxed>\\(?:boxed|fbox)\s{{0,4}}\{{)
  | (?P<tag><answer>)
  | (?<![a-z])(?:{{nouns}})(?:[ \t]+(?:choice|option|letter|here))?["']?[ \t]{{0,4}}(?:[*_]{{1,3}})?\s{{0,4}}
      (?P<verb>(?<=[A-Za-z*][ ])[-–—](?=[ \t]+(?:[$\\(\d]|(?-i:[A-Z])(?![A-Za-z])))|(?:(?:(?:most|very)[ \t]+)?(?:probably|likely|possibly|perhaps|maybe|certainly|definitely|clearly|therefore|thus|hence|then|also|indeed)[ \t]+)?{_BE}|=|:)
      (?![a-z])(?:[*_]{{1,3}})?[ \t]{{0,4}}:?
  | ^[ \t>*_]{{0,8}}a[ \t]{{0,4}}(?:\*\*)?:
  | (?:答案|答え|解答|正解|정답|답)(?:[ \t]*(?:是|为|為|選|选|应为|应该是|は|은|는))?[ \t]*(?:[*_]{{1,3}})?[ \t]*[:：]?
  | (?<![a-zà-ÿ])(?:respuesta|réponse|reponse|antwort|risposta|resposta|ответ)(?:[ \t]+(?:final|correcta|finale|correcte|richtig))?[ \t]*(?:[*_]{{1,3}})?[ \t]*
      (?:es|est|ist|è|é|[:：]|-|—)(?![a-zà-ÿ])(?:[*_]{{1,3}})?[ \t]{{0,4}}:?
    """
_FLAGS = re.VERBOSE | re.IGNORECASE | re.MULTILINE
_ANSWER = re.compile(_MARKER.replace("{nouns}", "answers?"), _FLAGS)
_CHOICE = re.compile(
    _MARKER.replace("{nouns}", "answers?|choice|option|solution")
    + r"|(?:故|应该?|所以|因此|我)?选(?:择|项)?[ \t]*(?:是|为|[:：])?[ \t]*(?=[（(]?[A-Za-zＡ-Ｚ])",
    _FLAGS,
)
_ASIDE = re.compile(
    r"""[\s\W\d]*(?:(?:and|or|the|final|my|possible|also|maybe|perhaps|another|answers?|alternatively|option|candidate|choice|guess|case|
        solution|result|second|third|first|fourth|other|a|an|is|are|it|could|might|be|even|else|otherwise|possibly|text|quad|qquad|или|或|oder)[\s\W\d]*)*""",
    re.VERBOSE | re.IGNORECASE,
)
_BLOCK = re.compile(
    r"(?P<opens>\$\$|\\\[|```)\w*[ \t]*\n\s*(?P<inside>[^\n]{1,500}?)\s*\n\s*(?:(?<=\n)[ \t]*)?(?:(?P=opens)|\\\])"
)
"""A line in display mode or in a fence: what is below "The answer is:"."""
_ONLY_ITEM = re.compile(r"[-•][ \t]+(?=[^\n]*+(?!\n\s*+[-•*]))")
"""The dash of a list of one: "The answer is:", and below it "- 42"."""
_ASIDE_CHARS = 80
"""Characters between answers that stand side by side, at most."""
_MOST_MARKERS = 64
"""The last so many markers are compared."""


class Claim(NamedTuple):
    """What a response marks as its answer."""

    kind: Kind
    text: str
    """What is marked: the box's or the tag's content, or the rest of the line."""
    start: int
    end: int
    verb: str = ""
    """"is", "cannot be", ":", …; empty for a box, a tag or a hash."""
    complete: bool = True
    """Whether the box or the tag is closed."""


class Commitment(NamedTuple):
    """A response's answer: its text, or why there is none."""

    text: str | None
    why: str = ""
    claim: Claim | None = None


def last_box(text: str) -> tuple[int, int] | None:
    """Return where the last box's content is, half-open; None without a box, or if the last does not close."""
    opening = None
    for opening in _BOX.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    if opening is None:
        return None
    end = _brace(text, opening.end())
    return None if end is None else (opening.end(), end)


def last_boxed(text: str) -> str | None:
    """Return the content of the last `\\boxed{…}` or `\\fbox{…}`; None if it does not close."""
    span = last_box(text)
    return None if span is None else text[slice(*span)]


def claims(text: str, *, only: Kind | None = None, choice: bool = False) -> list[Claim]:
    """Return the marked answers of *text*, in order: the last few of them.

    *choice*: "option is" and "choice:" are markers, too.
    """
    found: list[Claim] = []
    for marker in _markers(text, only, choice):
        _add(found, _claim(text, marker))
    while len(found) > 1 and found[-1].kind == "words":
        last = found[-1]
        before = text[max(0, last.start - AROUND) : last.start]
        if not (remarks(before, last.verb, last.text) or (found[-2].kind != "words" and _says_nothing(last))):
            break
        found.pop()
    return found


@remembered
def _markers(text: str, only: Kind | None, choice: bool) -> tuple[re.Match[str], ...]:
    """Return the last markers of answers."""
    pattern = _CHOICE if choice else _ANSWER
    found = (found for found in pattern.finditer(text) if only is None or _kind(found) == only)
    return tuple(deque(found, _MOST_MARKERS))


def _add(found: list[Claim], claim: Claim) -> None:
    """Append a claim to those before it; one that stands inside the last changes that one."""
    before = found[-1] if found else None
    if before is None:
        found.append(claim)
    elif before.kind != "boxed" and claim.kind == "boxed" and claim.start <= before.end:
        # "the answer is \boxed{5}" is one answer: the box inside takes the sentence's place
        found[-1] = claim._replace(verb=_said_before(before, claim.start), start=before.start)
    elif before.kind == "tag" and claim.start < before.end:
        if claim.kind == "tag":  # the innermost counts
            found[-1] = claim
    else:
        if before.kind in ("words", "hash") and claim.start < before.end:
            # two on one line: the first one's text ends where the second begins
            cut = sentence(before.text[: claim.start - before.end])
            at = before.end - len(before.text)
            found[-1] = before._replace(text=cut, end=at + len(cut))
            if not cut.strip() or (_ASIDE.fullmatch(cut) and not re.search(r"\d|\b[A-Z]\b", cut)):
                found.pop()  # "Final answer: the answer is 5"
        found.append(claim)


def _said_before(sentence_: Claim, box: int) -> str:
    """Return a sentence's verb, with what it says between the verb and a box."""
    between = sentence_.text[: max(0, box - (sentence_.end - len(sentence_.text)))]
    said = asserted(between)
    if said.text is None:
        return "is not" if said.why == "the answer is denied" else "might be"
    return "" if said.text != between else sentence_.verb


def _says_nothing(claim: Claim) -> bool:
    """Whether a sentence after a box only mentions the answer: "the answer is as above"."""
    if re.search(r"\d|[$\\=√π]|[\"'(]?\b[A-Z]\b", claim.text):
        return False
    return asserted(claim.text, claim.verb).text is not None and not re.search(
        r"\b(?:wrong|incorrect|false|mistaken?|none|not)\b", claim.text, re.IGNORECASE
    )


def commitment(
    text: str,
    read: Callable[[str], Value | None],
    *,
    only: Kind | None = None,
    found: list[Claim] | None = None,
    joined: bool = False,
) -> Commitment | None:
    """Return what *text* marks as its answer, or why that is none; None if it marks nothing.

    *read*: the value of a marked text, by which two of them are the same; None: it has none. *joined*: boxes side by
    side are one answer.
    """
    found = claims(text, only=only) if found is None else found
    if not found:
        return None
    claim = found[-1]
    if claim.kind == "boxed" and not claim.complete:
        return Commitment(None, "the last box does not end", claim)
    said = asserted(claim.text, claim.verb)
    if said.text is None:
        return Commitment(None, said.why, claim)
    if (why := under(text[max(0, claim.start - AROUND) : claim.start])) and claim.kind == "words":
        return Commitment(None, why, claim)
    after = text[claim.end : claim.end + AROUND]
    if (at := corrected(after)) is not None:
        start = claim.end + at
        claim = Claim("words", text[start:].partition("\n")[0], start, start)
        claim = claim._replace(end=start + len(claim.text))
        return Commitment(*asserted(claim.text), claim)
    if takes_back(after, said.text):
        return Commitment(None, "the answer is taken back", claim)
    if joined and claim.kind == "boxed":
        return Commitment(said.text, "", claim)
    value = read(said.text)
    for at in range(len(found) - 2, -1, -1):
        before = found[at]
        if before.kind != claim.kind or not aside(text, before, found[at + 1]):
            break
        if asserted(before.text, before.verb).text is None:
            continue
        other = read(before.text)
        same = (
            other == value
            if value is not None and other is not None
            else before.text.strip() == claim.text.strip()
        )
        if not same:
            return Commitment(None, "several different answers stand side by side", claim)
    return Commitment(said.text, "", claim)


def aside(text: str, before: Claim, after: Claim) -> bool:
    """Return whether two answers stand side by side, without a word that says which holds."""
    between = text[before.end : after.start]
    return len(between) <= _ASIDE_CHARS and _ASIDE.fullmatch(between) is not None


def _kind(marker: re.Match[str]) -> Kind:
    if marker["boxed"]:
        return "boxed"
    return "tag" if marker["tag"] else "hash" if marker["hash"] else "words"


def _claim(text: str, marker: re.Match[str]) -> Claim:
    kind, start, at = _kind(marker), marker.start(), marker.end()
    if kind == "boxed":
        end = _brace(text, at)
        if end is None:
            return Claim(kind, "", start, len(text), complete=False)
        return Claim(kind, text[at:end], start, end + 1)
    if kind == "tag":
        end = text.find("</answer>", at)
        if end < 0:
            return Claim(kind, text[at:].strip(), start, len(text), complete=False)
        return Claim(kind, text[at:end].strip(), start, end + len("</answer>"))
    while at < len(text) and text[at] in " \t*_:：":
        at += 1
    if kind == "words":
        while at < len(text) and text[at] in "\n \t*_":
            at += 1
        if (item := _ONLY_ITEM.match(text, at)) and text[marker.end() : at].endswith("\n"):
            at = item.end()
    if kind == "words" and (block := _BLOCK.match(text, at)):
        return Claim(kind, block["inside"], start, block.end(), verb=marker["verb"] or "")
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return Claim(kind, text[at:end], start, end, verb=marker["verb"] or "")


def _brace(text: str, at: int) -> int | None:
    depth = 1
    for brace in _BRACE.finditer(text, at):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return brace.start()
    return None
