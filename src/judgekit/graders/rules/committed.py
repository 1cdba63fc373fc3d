"""Finds what a response commits to: its marked answer, and whether it stands by it.

Every rule that looks for an answer asks here. A marker is a box, `####`, `<answer>`, "the answer is", "Answer:", or the
same in other languages. The last one decides. What it marks is no answer if

- the box or the tag does not end;
- it is denied ("is not 42", "isn't", "I do not think that the answer is 42") and nothing is put in its place ("not 5
  but 6" is 6);
- it is only possible ("might be 42", "perhaps 42", "if the answer is 42"); "I think", "probably" and "about" commit;
- it is taken back right after it ("The answer is 42. No, that is wrong."), unless another is put in its place ("No, wait, it's 43");
- another answer of its kind stands beside it, without a word that says which holds (three boxes in a row).

What is only thought is no answer either: text up to the end of the thinking, and thinking that never ends.
"""

from __future__ import annotations

import functools
import re
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

Kind = Literal["boxed", "hash", "tag", "words"]
T = TypeVar("T")
Value = TypeVar("Value")

_THINK = r"think|thinking|thought|thoughts|reasoning"
_THOUGHT_ENDS = re.compile(
    rf"</(?:{_THINK})>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|<\|channel\|>final<\|message\|>",
    re.IGNORECASE,
)
_THOUGHT_OPENS = re.compile(rf"<(?:{_THINK})>|\[THINK\]|◁think▷|<\|begin_of_thought\|>", re.IGNORECASE)
_AGENT = re.compile(
    rf"(?P<call><tool_call>)|(?P<opens>{_THOUGHT_OPENS.pattern})|(?:{_THOUGHT_ENDS.pattern})", re.IGNORECASE
)
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
_SENTENCE_END = re.compile(
    r"(?:(?<!\.)(?<!\b[MD]r)(?<!\bMs)(?<!\bSt)(?<!\bMrs)(?<!\bapprox)(?<!\b[A-Z]\.\s[A-Z])[.!?](?=\s|$)(?!\s[A-Z]\.\s)(?!\s*\d)|[。！？])"
)

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
      | not\ (?:really|at\ all|the\ (?:right\ |correct\ )?answer)\b | no\s*(?:[.!]|$) | not!\s*$ | wrong\s*[.!] | (?:nope|false|incorrect)\b(?!\s+(?!because\b|since\b|as\b|so\b)[a-z])
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
_ASIDE = re.compile(
    r"""[\s\W\d]*(?:(?:and|or|the|final|my|possible|also|maybe|perhaps|another|answers?|alternatively|option|candidate|choice|guess|case|
        solution|result|second|third|first|fourth|other|a|an|is|are|it|could|might|be|even|else|otherwise|possibly|text|quad|qquad|или|或|oder)[\s\W\d]*)*""",
    re.VERBOSE | re.IGNORECASE,
)
_NAME_ENDS = re.compile(r"[,;.!?](?=\s|$)|\n")
_OR_AFTER = re.compile(
    r"[.!?。\s]*(?i:or|and/or)\b[^.!?\n]{0,30}?(?:\d|\b[B-H]\b)|[.!?。\s]*(?i:or|and/or)\s+[A-Z]\w+[.!]?\s*(?:\n|\Z)"
)
"""A sentence that lists another answer: "Or 61."."""
_BLOCK = re.compile(
    r"(?P<opens>\$\$|\\\[|```)\w*[ \t]*\n\s*(?P<inside>[^\n]{1,500}?)\s*\n\s*(?:(?<=\n)[ \t]*)?(?:(?P=opens)|\\\])"
)
"""A line in display mode or in a fence: what is below "The answer is:"."""
_ONLY_ITEM = re.compile(r"[-•][ \t]+(?=[^\n]*+(?!\n\s*+[-•*]))")
"""The dash of a list of one: "The answer is:", and below it "- 42"."""
_AROUND_A_NAME = " \t.,;:!?$*_`\"'()[]{}\\"
_AROUND = 200
"""Characters before and after an answer that can take it back."""
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


_MOST_REMEMBERED = 100_000
"""Characters of the longest text of which something is remembered."""


def _remembered(function: Callable[..., T]) -> Callable[..., T]:
    """Remember the answers for the last few texts: a reward's rules ask the same of a rollout, one after the other."""
    kept = functools.lru_cache(maxsize=4)(function)

    @functools.wraps(function)
    def ask(text: str, *more: Any) -> T:
        return kept(text, *more) if len(text) <= _MOST_REMEMBERED else function(text, *more)

    return ask


@_remembered
def after_think(text: str) -> str | None:
    """Return the text after the thinking, or all of it; None if there is only thinking. Tokens that end a turn are left out."""
    ended = None
    for ended in _THOUGHT_ENDS.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    rest = _without_end(text[ended.end() :] if ended else text)
    if (opening := _THOUGHT_OPENS.search(rest)) is not None:
        before = rest[: opening.start()]
        return before if before.strip() else None
    return rest


_END_TOKENS = re.compile(
    r"(?:(?:<\|[A-Za-z_]{2,30}\|>|<｜[^｜\n]{2,30}｜>|</s>|<eos>|<end_of_turn>)\s*+)++\Z", re.IGNORECASE
)
_END_CHARS = 2_000
"""Characters at the end that are searched for them."""


def _without_end(text: str) -> str:
    """Remove the control tokens with which a model ends its turn, where a trainer keeps them."""
    if not text.rstrip().endswith(">"):
        return text
    end = _END_TOKENS.search(text, max(0, len(text) - _END_CHARS))
    return text if end is None else text[: end.start()]


@_remembered
def without_thinking(text: str) -> str:
    """Remove each thought, and keep what stands between them, as agents write it."""
    if "<" not in text and "[" not in text and "◁" not in text:
        return text
    kept: list[str] = []
    at = start = 0
    thinking = False
    first = True
    calls_close = True
    while True:
        found = (_THOUGHT_ENDS if thinking else _AGENT).search(text, at)
        if found is None:
            break
        at = found.end()
        if not thinking and found["call"]:
            # a call's text may speak of thoughts
            end = text.find("</tool_call>", at) if calls_close else -1
            calls_close = end >= 0
            at = end if end >= 0 else at
        elif thinking:
            thinking, start = False, at
        elif found["opens"]:
            kept.append(text[start : found.start()])
            thinking, first = True, False
        elif first:  # the prompt opened it
            kept, start, first = [], at, False
    if not thinking:
        kept.append(text[start:])
    return "".join(kept)


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
    while (
        len(found) > 1
        and found[-1].kind == "words"
        and found[-2].kind != "words"
        and _says_nothing(found[-1])
    ):
        found.pop()
    return found


@_remembered
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
    settled = settle(between)
    if settled.text is None:
        return "is not" if settled.why == "the answer is denied" else "might be"
    return "" if settled.text != between else sentence_.verb


def _says_nothing(claim: Claim) -> bool:
    """Whether a sentence after a box only mentions the answer: "the answer is as above"."""
    if re.search(r"\d|[$\\=√π]|[\"'(]?\b[A-Z]\b", claim.text):
        return False
    return settle(claim.text, claim.verb).text is not None and not re.search(
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
    settled = settle(claim.text, claim.verb)
    if settled.text is None:
        return Commitment(None, settled.why, claim)
    if (why := _under(text[max(0, claim.start - _AROUND) : claim.start])) and claim.kind == "words":
        return Commitment(None, why, claim)
    after = text[claim.end : claim.end + _AROUND]
    if (at := _corrected(after)) is not None:
        start = claim.end + at
        claim = Claim("words", text[start:].partition("\n")[0], start, start)
        claim = claim._replace(end=start + len(claim.text))
        return settle(claim.text)._replace(claim=claim)
    if _takes_back(after, settled.text):
        return Commitment(None, "the answer is taken back", claim)
    if joined and claim.kind == "boxed":
        return Commitment(settled.text, "", claim)
    value = read(settled.text)
    for at in range(len(found) - 2, -1, -1):
        before = found[at]
        if before.kind != claim.kind or not aside(text, before, found[at + 1]):
            break
        if settle(before.text, before.verb).text is None:
            continue
        other = read(before.text)
        same = (
            other == value
            if value is not None and other is not None
            else before.text.strip() == claim.text.strip()
        )
        if not same:
            return Commitment(None, "several different answers stand side by side", claim)
    return Commitment(settled.text, "", claim)


def aside(text: str, before: Claim, after: Claim) -> bool:
    """Return whether two answers stand side by side, without a word that says which holds."""
    between = text[before.end : after.start]
    return len(between) <= _ASIDE_CHARS and _ASIDE.fullmatch(between) is not None


def settle(text: str, verb: str = "", *, corrections: int = 0) -> Commitment:
    """Return what a sentence's end asserts: itself, what it puts in the place of a denied answer, or nothing."""
    denied = _DENIED.match(text)
    if denied or (verb and _NOT_VERB.search(verb)):
        rest = text[denied.end() :] if denied else text
        if (instead := _INSTEAD.search(rest)) is not None and corrections < _CORRECTIONS:
            return settle(rest[instead.end() :], corrections=corrections + 1)
        return Commitment(None, "the answer is denied")
    if (
        _HEDGED.match(text)
        or (verb and _MAY.search(verb))
        or _ASKED.match(text)
        or _SUPPOSED.search(f"{verb} {sentence(text[:_AROUND])}")
    ):
        return Commitment(None, "the answer is only possible")
    if _OR_AFTER.match(text[len(sentence(text)) :][:_AROUND]):
        return Commitment(None, "several answers are given")
    for back in _BREAK.finditer(text[:400]):
        if (at := _corrected(text[back.end() :][:_AROUND])) is not None:
            if corrections == _CORRECTIONS:
                return Commitment(None, "the answer is taken back")
            return settle(text[back.end() + at :], corrections=corrections + 1)
        if _takes_back(text[back.end() :], text):
            return Commitment(None, "the answer is taken back")
    return Commitment(text)


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


def unsettled(text: str, start: int, end: int) -> str | None:
    """Return why what stands at *start* to *end* of a text without markers is no answer; None if it is one."""
    before = text[max(0, start - _AROUND) : start]
    clause = re.split(r"(?:[.!?](?=\s)|[\n。！？;])", before)[-1]
    clause = _NAMED.sub("", clause)
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
    after = text[end : end + _AROUND]
    if re.match(r"[^.!?\n]{0,40}\?", after):
        return "the answer is only possible"
    return "the answer is taken back" if _takes_back(after, text[start:end]) else None


def _corrected(text: str) -> int | None:
    """Return where a text that takes an answer back begins to give another; None if it gives none."""
    found = _CORRECTION.match(text)
    if found is None and (back := _TAKEN_BACK.match(text)) is not None:
        found = _REPLACED.match(text, back.end())
    return None if found is None else found.end()


def _takes_back(text: str, said: str) -> bool:
    """Whether a text begins by taking back what was *said*: by a pronoun, or by its name ("17 is wrong")."""
    text, said = text[:_AROUND], said[:_AROUND]
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
    """Return a line up to the end of its first sentence."""
    end = _SENTENCE_END.search(line)
    return line[: end.start()] if end else line


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


def _under(before: str) -> str | None:
    clause = re.split(r"(?:[.!?](?=\s)|[\n。！？;])", before)[-1]
    if _NOT_THE.search(clause):
        return "another's or a wrong answer is named"
    if _UNDER.search(clause):
        return "the answer is not asserted"
    return None
