"""Whether a sentence asserts what it says: it may deny it, leave it open, tell what others think, or take it back.

Which of a response's sentences mark its answer is told in `committed`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from judgekit.graders.rules.english import abbreviated

_SENTENCE_END = re.compile(r"(?<!\.)[.!?](?=\s|$)(?!\s*\d)|[。！？]")

_ADVERBS = (
    r"(?:(?:definitely|certainly|clearly|obviously|absolutely|surely|really|actually|simply|just|therefore|thus|hence|"
    r"most|very|in\s+fact|of\s+course|at\s+all)\W+){0,3}"
)
_DENIED = re.compile(
    rf"^\W*{_ADVERBS}(?:not\b(?!\s+only\b)|n['’]t\b|never\b|neither\b|no\s+longer\b|nowhere\s+near\b|anything\s+but\b|"
    r"(?:by|in)\s+no\s+(?:means|way|case|sense)\b|under\s+no\s+circumstances\b|hardly\b|scarcely\b|"
    r"other\s+than\b|(?:different|far)\s+from\b|anything\s+except\b|everything\s+except\b|unlikely\b|(?:thought|believed|supposed|said|claimed|assumed|expected|rumou?red)\s+to\b|"
    r"不是|並非|并非|无法|kein\b|nicht\b|no\s+es\b|ne\s|pas\b|не\b)",
    re.IGNORECASE,
)
_INSTEAD = re.compile(
    r"(?:\bbut(?:\s+(?:rather|instead|in\s+fact|actually|is|it\s+is))?\s*:?|\brather\b(?!\s+than)|\binstead\b(?!\s+of)\s*:?"
    r"|[,;.—–-]\s*(?:it|that)(?:['’]s|\s+is|\s+must\s+be|\s+should\s+be)(?!\s*(?:not|never)\b|n['’]t)|而是|sondern\b|sino\b|mais\b)"
    r"\s*(?:(?:it(?:['’]s|\s+is)?|that\s+is)\s+)?",
    re.IGNORECASE,
)
_HEDGED = re.compile(
    r"^\W*(?:perhaps|maybe|possibly|conceivably|either|not\s+only|one\s+of|any\s+of|some(?:thing|where)\s+(?:between|like|around|from)|"
    r"between|anywhere\s+from|anything\s+from|可能|也许|或许|quizás?|peut-être|vielleicht|возможно|\?)",
    re.IGNORECASE,
)
_ASKED = re.compile(r"(?:[^.!?\n]|\.(?=\d)){1,80}\?(?!\?*\s*(?:yes\b|indeed\b))", re.IGNORECASE)
_SUPPOSED = re.compile(r"\bwould\b.*\bif\b", re.IGNORECASE | re.DOTALL)
_MAY = re.compile(r"\b(?:could|might|may|possibly|perhaps|maybe)\b", re.IGNORECASE)
_NOT_VERB = re.compile(r"n['’]?t\b|\bnot\b|\bcannot\b", re.IGNORECASE)
_UNDER = re.compile(
    r"""(?:
      (?:\b(?:not|never|hardly|cannot|nor)|n['’]t)\s+
        (?:(?:at\ all|really|quite|necessarily|actually)\s+)?
        (?:think|believe|say(?:ing)?|claim(?:ing)?|sure|certain|convinced|agree|accept|conclude|know|mean|true|correct|right|clear|proven|
           the\ case|possible|suggest(?:ing)?|see\ (?:how|why))
        (?:\s+(?:that|if|whether|why|to\ say(?:\ that)?|with\ the\ claim\ that))?
    | \b(?:(?:by|in|at)\s+no\s+(?:means|way|case|sense|point|time)|under\s+no\s+circumstances|never|nowhere|hardly)\s+(?:is|was|are|can|could|would|will)
    | \b(?:wrong|incorrect|mistake|error|false|absurd|foolish|misleading)\s+to(?:\s+(?:answer|say|give|choose|pick|write|conclude|take|call|name|report))?(?:\s+with)?
    | (?<!\bno\ )(?<!\bnot\ )(?<!\bwithout\ )(?<!\bwithout\ a\ )\b(?:doubt|deny|denies|disagree|reject|refuse)\b[^.,;:]{0,30}
    | \b(?:false|untrue|wrong|incorrect|mistaken?|unlikely|impossible|error)\s+(?:to\s+(?:say|think|claim|believe|conclude|assume)\s+)?(?:that|is)
    | \b(?:whether|unless|suppose|supposing|assum(?:e|ing)|pretend)(?:\s+that)?
    | (?:^|[,;:]\s*|\b(?:even|only|as|and|but)\s+)if
    | (?<!\bi\s)(?<!\bwe\s)\b(?:might|may|could|would|will)\s+(?:\w+\s+)?(?:think|say|believe|claim|guess|expect|answer)(?:\s+that)?
    | \b(?:some(?:one|body)?|others?|people|many|one|students?|he|she|they)(?:\s+\w+)?\s+(?:might\s+)?(?:think|say|claim|believe|guess|argue|suggest)s?(?:\s+that)?
    | \b(?:maybe|perhaps|possibly)
    | \b(?:question|ask(?:ed|ing)?)\s+(?:is\s+)?(?:whether|if)
    )\s*(?:the|my|your|our|this|his|her|their|its|an?)?\s*(?:(?:final|correct|right|true|real|only|best)\s+)?$""",
    re.VERBOSE | re.IGNORECASE,
)
_NOT_THE = re.compile(
    r"\b(?:incorrect|wrong|false|previous|old|student['’]?s|other)\s+$",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"""^[\s.,;:!?…$*)}\]\\_"'—–-]*+(?:\(\s*+)?(?:
      (?:(?:oh|hmm++|wait|no|actually|sorry|but|ah|oops|hold\ on|or|well|and|then|hang\ on)\b[\s,.!…—–-]*+){0,5}
      (?:
        (?:that|this|it|which)(?:\s+(?:answer|result|value|number|one|option|choice))?(?:['’]s|\s+(?:is|was|seems|looks|must\ be|can(?:not|['’]t)\ be))\s*
          (?:(?:clearly|obviously|definitely|certainly|also|probably|just|simply|completely|totally)\s+)?
          (?:wrong|false|incorrect|a\ mistake|mistaken|an\ error|not\ (?:right|correct|true|it|the\ (?:right\ |correct\ |final\ )?answer|possible)|impossible|invalid|too\ (?:low|high|small|large|big))
      | isn['’]t\ (?:right|correct|it|the\ answer) | (?:that|this|it|which)\ (?:isn['’]t|wasn['’]t|can['’]t\ be|cannot\ be|(?:doesn['’]t|does\ not)\ (?:work|fit|hold|make\ sense|solve|satisfy))
      | (?:doesn['’]t|does\ not)\ (?:work|fit|hold|make\ sense|solve|satisfy)\b
      | (?:that\ )?no\ longer\ (?:is|does|holds|true|right|correct|so)\b | (?:that\ )?is\ no\ longer\b
      | (?:is|was|are|would\ be)\s+(?:clearly\s+|obviously\s+|definitely\s+|certainly\s+)?(?:wrong|false|incorrect|a\ (?:mistake|distractor|trap|common\ (?:error|mistake))|not\ (?:right|correct|true|the\ (?:right\ |correct\ |final\ )?answer|my\ (?:final\ )?answer)|impossible)\b
      | i\ (?:was|am|made)\s+(?:wrong|mistaken|a\ mistake|an\ error|not\ sure|unsure|just\ (?:kidding|guessing)|lying) | (?:just\ )?kidding | just\ a\ guess
      | scratch\ that | (?:i\ )?(?:take|took)\ (?:that|it)\ back | (?:ignore|forget|disregard|discard)\ (?:that|this|it|the\ above|what\ i)
      | i\ (?:do\ not|don['’]t|cannot|can['’]t)\s+(?:really\ |actually\ )?(?:know|think\ so|believe\ (?:that|it|so)|be\ sure|say|stand\ by)
      | i['’]m\ (?:not\ (?:sure|certain)|unsure|wrong|(?:just\ )?(?:guessing|kidding))
      | not\ (?:really|at\ all|the\ (?:right\ |correct\ )?answer)\b | no\s*(?:[.!]|$) | not!\s*$ | wrong\s*[.!] | (?:nope|false|incorrect)\b(?!\W{0,3}:)(?!\s+(?!because\b|since\b|as\b|so\b)[a-z])
      | 不对|错了|不是 | ist\ falsch | es\ incorrect | est\ faux
      )
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_STANDS_FOR_IT = r"""
    (?:it|that|this)(?:['’]s|\ (?:is|was|should\ be|must\ be|has\ to\ be|would\ be))\s+(?:(?:actually|really|just|rather|in\ fact)\s+)?
    (?=[-−–+$€£(*"'`]*(?:\d|\\|(?-i:[A-Z])))
    """
_CORRECTION = re.compile(
    rf"""[\s.,;:!?…$*)}}\]\\_"'—–-]*+(?:\(\s*+)?
      (?:(?:oh|hmm++|ah|but|or|and|well)\b[\s,.!…—–-]*+){{0,3}}
      (?:(?:wait|no|actually|sorry|oops|correction|scratch\ that|hold\ on|rather|i\ mean|hmm++)\b[\s,.:!…—–-]*+){{1,4}}
      (?:(?:on\ reflection|up?on\ reflection|on\ second\ thoughts?)\b[\s,]*+)?
      (?: {_STANDS_FOR_IT} | (?:make\ (?:it|that)|i\ meant?)\s+
        | (?=[-−–$*("]*(?:\d[\d.,/]*+|(?-i:[A-Z]))[)"*]*\s+(?:is|must\ be)\s+(?:the\s+)?(?:correct|right|answer|better|best)\b)
        | (?=[-−–$*(]*(?:\d[\d.,/]*+|(?-i:[^\W\d_a-z]))[%).!*]*\s*(?:\n|\Z)))
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What puts another answer in an answer's place: "Wait, no, it's 43"."""
_REPLACED = re.compile(
    rf"[^.!?\n]{{0,80}}?[.!?,;—–-]*+\s++(?:(?:so|and|instead|i\ think|rather)\b,?\s+)?{_STANDS_FOR_IT}",
    re.VERBOSE | re.IGNORECASE,
)
"""The same, after a word that takes it back: "That is wrong. It should be 43"."""
_BREAK = re.compile(r"[,;(.!?—–…-]++(?=\s)|^\W{0,9}[^\s,;:\"]{1,30}(?=\s{1,9}(?:is|was)\b)")
"""Where a sentence may begin to take back what it has said."""
_NAME_ENDS = re.compile(r"[,;.!?](?=\s|$)|\n")
_OR_AFTER = re.compile(
    r"[.!?。\s]*(?i:or|and/or)\b[^.!?\n]{0,30}?(?:\d|\b[B-H]\b)|[.!?。\s]*(?i:or|and/or)\s+[A-Z]\w+[.!]?\s*(?:\n|\Z)"
)
"""A sentence that lists another answer: "Or 61."."""
_AROUND_A_NAME = " \t.,;:!?$*_`\"'()[]{}\\"
AROUND = 200
"""Characters before and after an answer that can take it back."""


class Asserted(NamedTuple):
    """What a sentence asserts: its text, or why there is none."""

    text: str | None
    why: str = ""


def asserted(text: str, verb: str = "", *, corrections: int = 0) -> Asserted:
    """Return what a sentence's end asserts: itself, what it puts in the place of a denied answer, or nothing."""
    denied = _DENIED.match(text)
    if denied or (verb and _NOT_VERB.search(verb)):
        rest = text[denied.end() :] if denied else text
        if (instead := _INSTEAD.search(rest)) is not None and corrections < _CORRECTIONS:
            return asserted(rest[instead.end() :], corrections=corrections + 1)
        return Asserted(None, "the answer is denied")
    if (
        _HEDGED.match(text)
        or (verb and _MAY.search(verb))
        or _ASKED.match(text)
        or _SUPPOSED.search(f"{verb} {sentence(text[:AROUND])}")
    ):
        return Asserted(None, "the answer is only possible")
    if _OR_AFTER.match(text[len(sentence(text)) :][:AROUND]):
        return Asserted(None, "several answers are given")
    for back in _BREAK.finditer(text[:400]):
        if (at := corrected(text[back.end() :][:AROUND])) is not None:
            if corrections == _CORRECTIONS:
                return Asserted(None, "the answer is taken back")
            return asserted(text[back.end() + at :], corrections=corrections + 1)
        if takes_back(text[back.end() :], text):
            return Asserted(None, "the answer is taken back")
    return Asserted(text)


_CORRECTIONS = 3
"""An answer that is put in another's place more often is none, and takes no longer to read."""
_UNSURE = re.compile(
    r"\b(?:maybe|perhaps|possibly|might|(?-i:may)(?!\s\d)|could|if|whether|either|suppose|guessing)\b[^,]{0,40}$",
    re.IGNORECASE,
)
_COULD = re.compile(
    r"\bcould\s+(?!(?:be|have|equal|say|think|choose|pick|go|select|guess|answer|argue|claim|come|mean|turn|well|also|even|still|just"
    r"|only|potentially|conceivably)\b)(?:(?!\b(?:maybe|perhaps|possibly|might|may|if|whether|either)\b)[^,]){0,40}$",
    re.IGNORECASE,
)
"""What somebody was able to do: "she could read 72 pages"."""
_NAMED = re.compile(r"(?<![\w\\])[A-Za-z]\w{0,9}\s*=\s*\$?$")
"""The name that an equation gives to a value: "x =" in "not x = 5"."""


def doubt(text: str, start: int, end: int) -> str | None:
    """Return why what stands at *start* to *end* of a text without markers is no answer; None if it is one."""
    clause = _NAMED.sub("", _clause(text[max(0, start - AROUND) : start]))
    if re.search(
        r"(?:\b(?:not|never|neither|nor|cannot|without|except|unlike|no\s+longer|rather\s+than|instead\s+of|anything\s+but|other\s+than|different\s+from|far\s+from|than"
        r"|nowhere\s+near|(?:by|in)\s+no\s+(?:means|way|case|sense)|rul(?:e|es|ed|ing)\s+out|(?:nobody|no\s+one)\s+\w+)\b|n['’]t\b|不是|并非)"
        r"(?:\s+(?:equal(?:\s+to)?|be|have|exactly|simply|just|really|actually|even|quite|at\s+all|nearly|close\s+to|a|an|the|to))*[\s$*(:\\]*$",
        clause,
        re.IGNORECASE,
    ):
        return "the answer is denied"
    named = (
        r"\b(?:(?:it|this|that|there)\s+(?:is|are|was|were)|answer|result|value|solution|option|choice)\s*$"
    )
    if _UNDER.search(re.sub(named, "", clause)):
        return "the answer is not asserted"
    if _UNSURE.search(clause) and not _COULD.search(clause):
        return "the answer is only possible"
    after = text[end : end + AROUND]
    if re.match(r"[^.!?\n]{0,40}\?", after):
        return "the answer is only possible"
    return "the answer is taken back" if takes_back(after, text[start:end]) else None


def corrected(text: str) -> int | None:
    """Return where a text that takes an answer back begins to give another; None if it gives none."""
    found = _CORRECTION.match(text)
    if found is None and (back := _TAKEN_BACK.match(text)) is not None:
        found = _REPLACED.match(text, back.end())
    return None if found is None else found.end()


def takes_back(text: str, said: str) -> bool:
    """Whether a text begins by taking back what was *said*: by a pronoun, or by its name ("17 is wrong")."""
    text, said = text[:AROUND], said[:AROUND]
    if _TAKEN_BACK.match(text):
        return True
    first = "".join(said.split(None, 1)[:1]).strip(_AROUND_A_NAME)  # "(B) Paris"
    names = {_NAME_ENDS.split(said, 1)[0].strip(_AROUND_A_NAME)}
    if any(map(str.isdigit, first)) or (len(first) == 1 and first.isupper()):
        names.add(first)
    return any(
        _TAKEN_BACK.match(re.sub(rf"(?<![\w.-]){re.escape(name)}(?!\w|[.,]\d)", "that", text))
        for name in names
        if name and name in text
    )


def sentence(line: str) -> str:
    """Return a line up to the end of its first sentence; abbreviations and the initials of names do not end one."""
    for end in _SENTENCE_END.finditer(line):
        if end[0] != "." or not abbreviated(line, end.start()):
            return line[: end.start()]
    return line


def under(before: str) -> str | None:
    """Return why a sentence that begins like *before* asserts nothing; None if it does."""
    clause = _clause(before)
    if _NOT_THE.search(clause):
        return "another's or a wrong answer is named"
    if _UNDER.search(clause):
        return "the answer is not asserted"
    return None


_ANOTHER = re.compile(
    r"\b(?:incorrect|wrong|false|mistaken|student['’]?s)\s+$|\bno\s+other\s+$", re.IGNORECASE
)
_OTHERS = re.compile(r"\bother\s+$", re.IGNORECASE)
_REJECTED = re.compile(
    r"\W*(?:(?:clearly|all|also|both|simply|each|therefore|thus)\s+)*(?:wrong|incorrect|false|not\b|eliminated|ruled|too\b|irrelevant|invalid|impossible)",
    re.IGNORECASE,
)
_REMARK = re.compile(
    r"\W*(?:(?:now|also|indeed|thus|therefore|clearly|quite|very|both)\s+)*(?:clear|helpful|useful|unclear|satisfactory|satisfying|correct|right|consistent|reasonable"
    r"|sensible|based|derived|obtained|found|supported|verified|confirmed|complete|valid|sound|plausible|justified|understandable|easy)"
    r"(?=\W*(?:$|[.,;:!?)]|(?:and|or|but|because|since|as|for|to|in|on|with|by|from|that|given|enough)\b))",
    re.IGNORECASE,
)
_VALUE = re.compile(r"[\d\\$√π=]|(?<=\s)[(\"']?[A-Z]\b")


def remarks(before: str, verb: str, text: str) -> bool:
    """Whether a sentence on an answer gives none: it speaks of another one ("The other answers are wrong"), or says how it is
    ("I hope this answer is clear").

    *before*: what stands before its noun; *text*: what stands behind its verb.
    """
    clause = _clause(before)
    if _ANOTHER.search(clause):
        return True
    if _OTHERS.search(clause):
        return _REJECTED.match(text) is not None or _NOT_VERB.search(verb) is not None
    return _REMARK.match(text) is not None and not _VALUE.search(sentence(text))


def _clause(before: str) -> str:
    """Return what has been said of a sentence that goes on behind *before*."""
    return re.split(r"(?:[.!?](?=\s)|[\n。！？;])", before)[-1]
