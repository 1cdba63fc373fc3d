"""A rule for multiple choice."""

from __future__ import annotations

import ast
import json
import re
import string
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from judgekit.errors import ConfigError
from judgekit.graders.rules.asserted import asserted, doubt
from judgekit.graders.rules.committed import claims, commitment
from judgekit.graders.rules.rule import Rule, truths
from judgekit.graders.rules.stored import as_python
from judgekit.graders.rules.thoughts import last_turn
from judgekit.graders.rules.values import occurs, same_value, tokens, undecorated
from judgekit.types import Abstained, Grade, Graded, Rollout, look_up

TAIL_CHARS = 65_536
"""Characters at the end of a response that are searched."""
SERIES = (
    "АБВГДЕЖЗИК", "ΑΒΓΔΕΖΗΘ", "אבגדהוזחט", "أبجدهوزحط", "アイウエオカキク", "あいうえおかきく", "가나다라마바사아",
    "ㄱㄴㄷㄹㅁㅂㅅㅇ", "甲乙丙丁戊己庚辛", "①②③④⑤⑥⑦⑧", "कखगघङचछज", "কখগঘঙচছজ", "กขคงจฉชซ", "ႠႡႢႣႤႥႦႧ", "ԱԲԳԴԵԶԷԸ",
)  # fmt: skip
"""Letters by which other scripts name options, in their order."""


class MultipleChoice(Rule):
    """Scores 1 if the response chose the right option, else 0.

    The reference is the option's letter ("B", "(b)"), its label in the data, its text, or its number (0 is the first;
    `first=1` if the data counts from 1); a list accepts any of them. *options*: the options' texts, or their dotted path
    in the rollout: a list, a mapping of letters to texts, ARC's `{"text": […], "label": […]}`, or JSON of one; null is no
    option. Labels such as 1 to 4, or letters of other scripts, name the options, too. Without texts only letters are
    read, the first *letters* of the alphabet, or of the reference's.

    What counts as chosen, in this order: the last explicit marker (`Answer: B`, `the answer is (B)`,
    `\\boxed{B}`, `<answer>B</answer>`, `#### B`), unless it is denied, hedged or taken back; a response that is only a
    letter or an option's text, or begins with the option that it explains afterwards ("B. …", "(B) …"); what it says to
    choose ("I pick B", "it must be (B)", "B is correct"); the only letter in parentheses or brackets, or after "option"
    or "choice", of which it does not say that it is wrong; the only option whose text occurs (options contained in a
    longer one there do not count); a single isolated capital letter on the last line. A response that chooses nothing
    scores 0, as does one that names two options. Texts are compared as values: `-5` is not `5`, `x < 3` not `x > 3`.
    Abstains if the reference is not an option.

    Source: the `Answer: $LETTER` convention of simple-evals (`MULTICHOICE` pattern) and MMLU (arXiv:2009.03300);
    the fall-backs follow MMMU's `parse_multi_choice_response`, without its random guess.
    """

    score_range = (0.0, 1.0)
    version = "2"
    inputs = ("response", "ground_truth", "extra.options")
    abstains = "the reference is not an option"
    abstains_by_row = True
    inline_limit = 12_000
    timeout_s = 5.0

    def __init__(
        self,
        *,
        options: str | Sequence[str] = "extra.options",
        letters: int = 26,
        first: int = 0,
        name: str = "multiple_choice",
    ) -> None:
        if not isinstance(letters, int) or not 2 <= letters <= 26:
            raise ConfigError(f"{name}: letters is the largest number of options, 2 to 26, not {letters!r}")
        if first not in (0, 1):
            raise ConfigError(f"{name}: first is the number of the first option, 0 or 1, not {first!r}")
        if not isinstance(options, str) and not 2 <= len(options) <= 26:
            raise ConfigError(f"{name}: give 2 to 26 options, or their path in the rollout")
        self.name = name
        self.options = options if isinstance(options, str) else tuple(options)
        self.letters = letters
        self.first = first

    def grade(self, rollout: Rollout, /) -> Grade:
        accepted = truths(rollout)
        found = look_up(rollout, self.options, None) if isinstance(self.options, str) else list(self.options)
        options = read_options(as_python(found)) or _without_texts(accepted, self.letters)
        right = {letter for value in accepted if (letter := self._reference(value, options)) is not None}
        if not right:
            return Abstained(f"the reference is not an option: {rollout.ground_truth!r:.80}")
        chosen = choose(rollout.response, options)
        if chosen.letter is None:
            return Graded(0.0, chosen.why)
        said = f"{chosen.letter} ({chosen.why})" if chosen.why else chosen.letter
        if chosen.letter in right:
            return Graded(1.0, said)
        return Graded(0.0, f"{said} instead of {' or '.join(sorted(right))}")

    def _reference(self, value: Any, options: Options) -> str | None:
        if isinstance(value, bool):
            return options.with_text(str(value)) or options.with_text("Yes" if value else "No")
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int):
            if options.numbered:
                return options.names.get(str(value))
            place = value - self.first
            return options.letters[place] if 0 <= place < len(options.letters) else None
        if not isinstance(value, str) or not value.strip():
            return None
        if options.numbered and (named := options.names.get(value.strip().strip("()."))):
            return named
        for letter, text in options.texts.items():
            if text and text == value.strip():
                return letter
        if found := options.alone(value) or options.with_text(value):
            return found
        if re.fullmatch(r"\s*\d{1,2}\s*", value):
            return self._reference(int(value), options)
        return choose(value[-_REFERENCE_CHARS:], options).letter


_REFERENCE_CHARS = 4_096
"""Characters at the end of a reference that are searched for an option."""
_LONGER = 4
"""How much longer than its option a text may be that is nothing else."""


class Options(NamedTuple):
    """The options of a question, by letters from A."""

    letters: str
    """Of those that exist."""
    texts: Mapping[str, str]
    names: Mapping[str, str]
    """What names an option, in upper case: its letter and its label."""
    numbered: bool = False
    """Whether the data's labels are numbers."""

    def named(self, name: str) -> str | None:
        return self.names.get(name.upper())

    def alone(self, text: str) -> str | None:
        """Return the option whose letter or label is the whole text."""
        bare = _bare(text)
        if self.unclear(bare):
            return None
        return self.named(bare) if bare else None

    def unclear(self, bare: str) -> bool:
        """Whether a number is one option's label and another one's text."""
        if not self.numbered or not bare.isdecimal() or (label := self.named(bare)) is None:
            return False
        return any(letter != label and same_value(text, bare) for letter, text in self.texts.items())

    def with_text(self, text: str) -> str | None:
        """Return the only option with that text."""
        if len(text) > _LONGER * max(map(len, self.texts.values()), default=0) + 200 or self.unclear(
            _bare(text)
        ):
            return None
        same = [letter for letter, option in self.texts.items() if option and same_value(option, text)]
        if len(same) > 1:
            same = [letter for letter in same if tokens(self.texts[letter]) == tokens(text)]
        if len(same) > 1:
            same = [letter for letter in same if self.texts[letter].strip() == text.strip()]
        return same[0] if len(same) == 1 else None


def _bare(text: str) -> str:
    return undecorated(text[:1000]).strip().strip("()[]{}<>.:,*_$\"'`、。 ")


class Choice(NamedTuple):
    """The option that a response chose, and by what words; or why it chose none."""

    letter: str | None
    why: str = ""


NO_CHOICE = Choice(None, "no option is chosen")


def read_options(value: Any) -> Options | None:
    """Read the options of a question from its data; None if there are none."""
    found = _texts_and_labels(_parsed(value) if isinstance(value, str) else value)
    if found is None or not 2 <= len(found[0]) <= 26:
        return None
    texts = [None if text is None else str(text).strip() for text in found[0]]
    letters = string.ascii_uppercase[: len(texts)]
    names = {letter: letter for letter, text in zip(letters, texts, strict=True) if text is not None}
    numbered = False
    if isinstance(found[1], list | tuple) and len(found[1]) == len(texts):
        given = [str(label).strip().strip("().:").upper() for label in found[1]]
        if len(set(given)) < len(given) or "" in given:
            return None
        own = {label: letter for label, letter in zip(given, letters, strict=True) if letter in names}
        numbered = all(map(str.isdecimal, given))
        # letters name places only where the labels are numbers: another order or script has its own
        names = {**names, **own} if numbered else own
    shown = dict(zip(letters, _unlabelled(texts, letters), strict=True))
    return Options(
        "".join(letter for letter in letters if letter in set(names.values())),
        {letter: text for letter, text in shown.items() if text is not None},
        names,
        numbered,
    )


def _texts_and_labels(value: Any) -> tuple[Sequence[Any], Any] | None:
    """Return the options' texts, and what stands for their labels; None if *value* holds no options."""
    labels: Any = None
    if isinstance(value, Mapping):
        texts = value.get("text", value.get("texts", value.get("choices")))
        if isinstance(texts, list | tuple):
            labels, value = value.get("label", value.get("labels")), list(texts)
        elif all(len(str(label).strip().strip("().")) <= 2 for label in value):
            labels, value = list(value), list(value.values())
        else:
            return None
    if not isinstance(value, list | tuple):
        return None
    if all(isinstance(v, Mapping) for v in value):
        labels = [v.get("label", v.get("key", v.get("id"))) for v in value]
        value = [v.get("text", v.get("value", v.get("content"))) for v in value]
    return value, labels


def _without_texts(accepted: Sequence[Any], count: int) -> Options:
    """Return options that are known by their letters alone, of the reference's script."""
    for value in accepted:
        bare = value.strip().strip("()[].") if isinstance(value, str) else ""
        for series in SERIES if len(bare) == 1 and not bare.isascii() else ():
            if bare.upper() in series:
                letters = string.ascii_uppercase[: min(count, len(series))]
                return Options(letters, {}, dict(zip(series, letters, strict=False)))
    letters = string.ascii_uppercase[:count]
    return Options(letters, {}, {letter: letter for letter in letters})


def _parsed(text: str) -> Any:
    if len(text) > 100_000 or text.strip()[:1] not in ("[", "{"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


def _unlabelled(texts: Sequence[str | None], letters: str) -> list[str | None]:
    """Remove the labels with which options begin: `A. cat`; glued ones (`A)21`) only if all have them."""
    glued = [
        re.match(rf"\s*\(?{letter}\s?[).:、．。]", text or "")
        for letter, text in zip(letters, texts, strict=True)
    ]
    if all(glued):
        return [
            text and text[found.end() :].strip() for text, found in zip(texts, glued, strict=True) if found
        ]
    return [
        text and re.sub(rf"^\s*\(?{letter}[.):]\s+", "", text).strip()
        for letter, text in zip(letters, texts, strict=True)
    ]


def choose(response: str, options: Options) -> Choice:
    """Return what *response* chose; see `MultipleChoice`."""
    rest = last_turn(response)
    if rest is None:
        return Choice(None, "the thinking never ends")
    text = undecorated(rest[-TAIL_CHARS:]).strip()
    if len(text) < 2000 and (letter := options.alone(text) or options.with_text(text)):
        return Choice(letter)
    forms = _forms(tuple(sorted(options.names)))
    if (marked := _marked(text, options, forms)) is not None:
        return marked
    if len(text) < 500:
        plain = _without_own_words(text, options, forms)
        if (held := asserted(plain)).text not in (None, plain):
            letter = _named(_line(str(held.text)), options, forms)
            return Choice(letter) if letter else NO_CHOICE
    if (letter := _reply(text, options)) is not None:
        return Choice(letter, "what it replies")
    if (letter := _first(text, options, forms)) is not None:
        return Choice(letter, "what it begins with")
    if (said := _said(text, options, forms)) is not None:
        return said
    if mentioned := _mentioned(text, options, forms):
        one = mentioned.pop() if len(mentioned) == 1 else None
        return Choice(one, "the only one mentioned" if one else "several options are mentioned")
    if (letter := _by_text(text, options)) is not None:
        return Choice(letter, "by its text")
    if _only_listed(text, options):
        return Choice(None, "the options are only listed")
    return _alone_in(text, options, forms)


def _marked(text: str, options: Options, forms: _Forms) -> Choice | None:
    """Return the choice that is marked as the answer; None if none is marked."""
    found = claims(text, choice=True)
    while len(found) > 1 and found[-1].kind == "boxed" and found[-1].complete and found[-2].kind != "boxed":
        if _named(found[-1].text, options, forms) is not None or _like_a_letter(found[-1].text):
            break
        found.pop()  # a box of mathematics beside the answer
    found = [claim._replace(text=_without_own_words(claim.text, options, forms)) for claim in found]
    marked = commitment(text, lambda part: _named(_line(part), options, forms), found=found)
    if marked is None:
        return None
    assert marked.claim is not None
    if marked.text is None:
        whole = options.with_text(_line(marked.claim.text)) if marked.claim.complete else None
        return Choice(whole, "" if whole else marked.why)
    letter = _named(_line(marked.text), options, forms)
    if letter and _below(text[marked.claim.end :], letter, options):
        return Choice(None, "several options are named")
    return Choice(letter) if letter else NO_CHOICE


def _without_own_words(text: str, options: Options, forms: _Forms) -> str:
    """Leave out the text of an option behind its letter: "B. No" and "B. It cannot be determined" say no more than "B"."""
    lead = forms.lead.match(text)
    option = options.texts.get(options.named(lead["letter"]) or "") if lead else None
    if lead is None or not option:
        return text
    at = lead.end() + len(_AROUND_LETTER.match(text, lead.end())[0])  # type: ignore[index]
    own = undecorated(option).rstrip(".")
    end = at + len(own)
    # no pattern: each question has other options, and compiling one takes longer than the rest
    if text[at:end].lower() != own.lower() or re.match(r"\w", text[end : end + 1]):
        return text
    return text[: lead.end()] + text[end:]


_AROUND_LETTER = re.compile(r"[\s)\]}>.:,、*_–—-]*")


def _reply(text: str, options: Options) -> str | None:
    """Return the option that a response begins by replying: "Yes, …"; None if it replies another, too."""
    reply = re.match(rf"\W*({_REPLIES})(?=[.,;:!\n]|\s+[–—-]\s)", text, re.IGNORECASE)
    letter = options.with_text(reply[1]) if reply else None
    if reply is None or letter is None:
        return None
    others = rf"\b(?<!\bnot\s)(?!{reply[1]}\b)(?:{_REPLIES})\s*(?:[.,;:!?\n]|$)"
    return None if re.search(others, text[reply.end() :], re.IGNORECASE) else letter


_REPLIES = "yes|no|true|false|maybe"


def _only_listed(text: str, options: Options) -> bool:
    """Whether a response ends with options as the prompt shows them, one below the other."""
    found = set()
    for line in [line for line in text.split("\n") if line.strip()][-2:]:
        shown = re.fullmatch(r"\s*[(\[]?([A-Z])[)\].:、]\s*(.+)", line)
        letter = options.named(shown[1]) if shown else None
        if shown is None or letter is None or not same_value(options.texts.get(letter, ""), shown[2].strip()):
            return False
        found.add(letter)
    return len(found) > 1


def _alone_in(text: str, options: Options, forms: _Forms) -> Choice:
    """Return the only letter of a text's last line, unless the line before is another's alone."""
    above, _, last = text.rpartition("\n")
    before = options.named(above.rpartition("\n")[2].strip(" ()[].*"))
    letters = {
        _letter_of(m) for m in forms.any.finditer(last) if not _is_word(_letter_of(m), last[m.end() :])
    }
    if len(letters) > 1:
        return Choice(None, "several options are named")
    alone = {
        letter
        for m in [*forms.isolated.finditer(last)][-_MOST_MENTIONS:]
        if (letter := options.named(_letter_of(m)))
        and not _rejected(last, m, forms)
        and not _is_word(_letter_of(m), last[m.end() :])
        and not _denies(last[m.end() :].lstrip(")].: "), options.texts.get(letter), forms)
    }
    if len(alone) == 1 and before not in (None, *alone):
        return Choice(None, "several options are named")
    return Choice(alone.pop(), "the only letter of its last line") if len(alone) == 1 else NO_CHOICE


def _line(text: str) -> str:
    return undecorated(text).strip().partition("\n")[0]


def _like_a_letter(text: str) -> bool:
    return re.fullmatch(r"\W*[A-Za-z]\W*", undecorated(text)) is not None


class _Forms(NamedTuple):
    lead: re.Pattern[str]
    second: re.Pattern[str]
    begins: re.Pattern[str]
    listed: re.Pattern[str]
    said: re.Pattern[str]
    mention: re.Pattern[str]
    isolated: re.Pattern[str]
    any: re.Pattern[str]
    wrong: re.Pattern[str]


@lru_cache(maxsize=64)
def _forms(names: tuple[str, ...]) -> _Forms:
    """Compile the patterns for a question's letters and labels."""
    other = [
        re.escape(name) for name in sorted(names, key=len, reverse=True) if not re.fullmatch("[A-Z]", name)
    ]
    any_case = (
        "(?P<letter>(?:" + "|".join(["[A-Za-z]", *other]) + r")(?![A-Za-z0-9]|['’][A-Za-z]|[+#=^]|[/<>-]\S))"
    )
    upper = "(?P<letter>(?:" + "|".join(["[A-Z]", *other]) + r")(?![A-Za-z0-9'’]|[+#=^]|[/<>-]\S))"
    bound = r"(?<![A-Za-z0-9'’+#=^\\/-])"
    noun = (
        r"(?:(?:clearly|definitely|certainly|obviously|probably|likely|indeed|simply|just|actually|of\s+course|in\s+fact)\b,?\s+)*"
        r"(?:(?:the\s+)?(?:correct\s+|right\s+|best\s+)?(?:option|choice|answer|letter|one|number|no\.)\s*(?:is\s+|:\s*)?)"
    )
    return _Forms(
        lead=re.compile(rf"[\s$*_\"'`“‘:]*+{noun}?[\s*_$\"'`“‘(\[{{<]*+{any_case}", re.IGNORECASE),
        second=re.compile(
            r"[\s)\]}>\"'.*]*\(?\s*(?:,\s*(?:or|and)?|/|&|;|\||\bor\b|\band\b|\bor\s+else\b|或|和)\s*(?:(?:maybe|possibly|perhaps|even|also|option|choice)\s+)*[(\[]?"
            + upper
            + r"(?![)\]]?\s+(?:is|was|are|has|have|does|can|would|seems|looks|fits|because|gives)\b)"
        ),
        begins=re.compile(
            rf"(?:(?:option|choice)\s+)?(?:\({any_case}\)|\[{any_case.replace('letter', 'letter2')}\]|"
            rf"{upper.replace('letter', 'letter3')}[.):、])(?=\s|$|[^\x00-\x7f])|{upper.replace('letter', 'letter5')}(?=,?\s+(?:because|since)\b|,\s+(?:not|rather\s+than|instead\s+of)\b)|{upper.replace('letter', 'letter4')}(?=\s*(?:\n|$))",
        ),
        listed=re.compile(rf"^[ \t]*(?:[-*]\s+)?[(\[]?{upper}[)\].:、]", re.MULTILINE),
        said=re.compile(
            rf"""(?ix:
              \b(?:choose|choosing|chose|pick(?:ed|ing)?|select(?:ed|ing)?|go(?:ing)?\ (?:for|with)|went\ with|opt(?:ed)?\ for|vote\ for|settle\ on|decide\ on|say)\s+
              | \b(?:it|this|that|which)(?:['’]s|\s+(?:is|must\ be|should\ be|has\ to\ be|would\ be|can\ only\ be))\s+
              | \b(?:i\ (?:\w+\ )?(?:think|believe|guess|suspect)(?:\ that)?|probably|most\ likely)\s+
              | \b(?:therefore|thus|hence|so|consequently|conclusion|finally)\b\s*[,:]?\s*
              | \b(?:leaves|leaving|only|left\ with|remains?|remaining)\s+
            )(?:(?i:definitely|clearly|certainly|obviously|probably|just|only|the|correct|right|answer|option|choice|letter|with)\s+)*[("\[]*{bound}{any_case}
            | {bound}{upper.replace("letter", "letter2")}(?=[)\]"]?\s+(?:is|must\ be|should\ be|would\ be|seems|looks|remains)\s+(?:(?:clearly|definitely|obviously|certainly|probably|therefore|thus|to\ be)\s+)*(?:the\s+)?(?:only\s+)?(?:correct|right|best|true|answer|most|my)\b)""",
            re.VERBOSE,
        ),
        mention=re.compile(
            rf"[(\[]{any_case}[)\]]|\b(?i:option|choice|answer)[ \t]+[(\[\"]?{upper.replace('letter', 'letter2')}"
            rf"|\b(?i:option|choice)[ \t]+[(\[\"]?(?P<letter3>[b-hj-z])(?=\W|$)".replace(
                "(?P<letter2>", "(?P<letter2>"
            )
        ),
        isolated=re.compile(
            rf"(?:(?<![A-Za-z]\s){bound}|(?i:(?<=\bis\s)|(?<=\bbe\s)|(?<=\bso\s)|(?<=answer\s)|(?<=option\s)|(?<=choice\s)|(?<=letter\s)|(?<=\bthen\s)|(?<=\band\s)|(?<=\bor\s)|(?<=\bBoth\s))){upper}"
        ),
        any=re.compile(bound + upper),
        wrong=re.compile(
            r"[)\]\"'.:]*\s*(?:(?:is|are|was|seems|looks|would\s+be|can(?:not|['’]t)|could(?:not|n['’]t)|does|do|did|has|have|isn['’]t|doesn['’]t|won['’]t)\s*)+"
            r"(?:(?:clearly|obviously|also|definitely|certainly|simply|just|be|the|an?)\s+)*(?:wrong|incorrect|false|not\b|n['’]t|too\b|impossible|out\b|never|no\b|irrelevant|unlikely|eliminated|ruled)"
            r"|[)\]\"'.:]*\s+(?:is|looks|seems)\s+\w+(?:,)?\s+but\s+(?:\w+\s+)?(?:wrong|incorrect|false|not)\b"
            r"|[)\]\"'.:]*\s*(?:[✗✘❌]|(?:wrong|incorrect)\s*[.!]?\s*(?:\n|$))"
            r"|[)\]\"'.:]*\s*(?:isn['’]t|doesn['’]t|cannot|can['’]t|won['’]t|ignores?\b|fails?\b|contradicts?\b|misses\b)"
        ),
    )


def _letter_of(match: re.Match[str]) -> str:
    return next(str(value) for key, value in match.groupdict().items() if key.startswith("letter") and value)


def _named(line: str, options: Options, forms: _Forms) -> str | None:
    """Return the option named after a marker; None if there is none, or two."""
    line = line.strip()
    if options.unclear(_bare(line)):
        return None
    if (letter := options.alone(line) or options.with_text(line.rstrip(".!"))) is not None:
        return letter
    lead = forms.lead.match(line)
    if lead and (letter := options.named(lead["letter"])):
        rest = line[lead.end() :]
        lower = lead["letter"].islower() and re.match(r"\s+[a-z]", rest) and not _NAMING.search(lead[0])
        if not lower and not _is_word(lead["letter"], rest):
            return None if _second(rest, letter, options, forms) else letter
    if (reply := _reply(line, options)) is not None:
        return reply
    mentioned = _mentioned(line, options, forms)
    if (by_text := _by_text(line, options)) is not None:
        return None if mentioned - {by_text} else by_text
    if not mentioned and (said := _said(line, options, forms)):
        return said.letter
    return mentioned.pop() if len(mentioned) == 1 else None


def _mentioned(text: str, options: Options, forms: _Forms) -> set[str]:
    """Return the options that *text* mentions without a word against them, in its last mentions."""
    found: set[str] = set()
    for m in [*forms.mention.finditer(text)][-_MOST_MENTIONS:]:
        letter = options.named(_letter_of(m))
        if letter and letter not in found and not _rejected(text, m, forms):
            found.add(letter)
    return found


_MOST_MENTIONS = 200
"""The last so many mentions and choices are looked at."""
_NAMING = re.compile(r"option|choice|[(\[]", re.IGNORECASE)


def _is_word(name: str, rest: str) -> bool:
    """Whether a letter is a word of English: "a city", "I think"."""
    if name not in ("a", "A", "I"):
        return False
    follows = re.match(
        r"\s+(?!is\b|was\b|because\b|since\b|as\b|for\b|over\b|and\b|or\b|but\b|not\b|which\b|rather\b|with\b|instead\b|seems\b)[a-z]",
        rest,
    )
    return follows is not None or (
        name == "I"
        and re.match(r"\s+[a-z]", rest) is not None
        and not re.match(r"\s+(?:is|because|since|over|rather)\b", rest)
    )


def _second(rest: str, letter: str, options: Options, forms: _Forms) -> bool:
    """Return whether more letters follow the first: "B or C", "A, B"."""
    if _below(rest, letter, options):
        return True
    more = forms.second.match(rest) or _BESIDE.match(rest)
    return bool(more and (other := options.named(more["letter"])) and other != letter)


_BESIDE = re.compile(
    r"[)\]*]*[ \t]+[(\[*]*(?P<letter>[A-Z])[)\]*]*(?:[ \t]+[(\[*]*[A-Z](?![A-Za-z'’])|[ \t]*[.!]?[ \t]*(?:\n|$))"
)
"""Letters in a row: "A B C"."""
_BELOW = re.compile(
    r"[)\]*.!]*[ \t]*\n\s*(?:[-*•]\s+|\d[.)]\s+)?[(\[*]*(?P<letter>[A-Z])[)\]*.]*[ \t]*(?:\n|$)"
)
"""A letter alone on the next line."""


def _below(rest: str, letter: str, options: Options) -> bool:
    """Whether another option's letter stands alone on the next line: a list."""
    found = _BELOW.match(rest)
    return bool(found and options.named(found["letter"]) not in (None, letter))


def _first(text: str, options: Options, forms: _Forms) -> str | None:
    """Return the option with which a response begins, to explain it afterwards."""
    begins = forms.begins.match(text)
    if begins is None or not (letter := options.named(_letter_of(begins))):
        return None
    line = text[begins.end() :].partition("\n")[0].strip()
    if not line and begins["letter4"]:
        return None if _below(text[begins.end() :], letter, options) else letter
    if begins["letter5"]:  # "B, because A is too low"
        return None if _second(text[begins.end() :], letter, options, forms) else letter
    if _only_discussed(line, options.texts.get(letter), forms):
        return None
    if _second(text[begins.end() :], letter, options, forms):
        return None
    if line and any(
        options.named(_letter_of(m)) not in (None, letter) and not _rejected(line, m, forms)
        for m in forms.mention.finditer(line)
    ):
        return None
    for other in forms.listed.finditer(text, begins.end()):
        named = options.named(other["letter"])
        if named not in (None, letter) and not re.match(
            r"\s*(?:is|are|was|can|cannot|would|does|do|has)\b", text[other.end() :]
        ):
            return None  # the options are only listed
    return letter


def _denies(line: str, option: str | None, forms: _Forms) -> bool:
    """Whether a line begins with an option's text, and says that it is wrong."""
    if not option or not line.lower().startswith(option.lower()):
        return False
    return forms.wrong.match(line, len(option)) is not None


def _only_discussed(line: str, option: str | None, forms: _Forms) -> bool:
    """Whether what follows a letter speaks of the option, or against it, instead of choosing it."""
    if option and same_value(option, line.rstrip(".")):
        return False
    if re.match(
        r"(?:is|are|was|can|cannot|could|would|has|have|does|do|and|or|seems?|looks?|says?|gives?|refers?)\b",
        line,
    ):
        chosen = re.match(
            r"(?:is|would be)\s+(?:clearly\s+|definitely\s+)?(?:the\s+)?(?:only\s+)?(?:correct|right|best|my|answer)",
            line,
        )
        return chosen is None
    if _AGAINST.match(f" {line}") or _denies(line, option, forms):
        return True
    if option and line.lower().rstrip(".!") in ("no", "false"):
        return True
    against = re.search(
        r"\b(?:wrong|incorrect|false|eliminated|ruled out|impossible)\b|\btoo\s+\w+",
        re.split(r"[.!?]", line)[0],
    )
    return against is not None


def _said(text: str, options: Options, forms: _Forms) -> Choice | None:
    """Return what a response says to choose, if it says so; a later word replaces an earlier only as a correction."""
    chosen: list[tuple[str, int, int, str]] = []
    for m in [*forms.said.finditer(text)][-_MOST_MENTIONS:]:
        name = _letter_of(m)
        letter = options.named(name)
        rest = text[m.end() : m.end() + 80]
        if letter is None or _is_word(name, rest[:20]):
            continue
        if name.islower() and not _NAMING.search(m[0]):
            continue
        if doubt(text, m.start(), m.end()) or forms.wrong.match(text, m.end()):
            continue
        if re.search(
            rf"(?:\b(?:not|never)|n['’]t|{_OTHERS})\s+(?:\w+\s+)?$",
            text[max(0, m.start() - 20) : m.start()],
            re.IGNORECASE,
        ) or re.search(r"\bnot\b", m[0]):
            continue
        if _second(rest, letter, options, forms):
            return Choice(None, "several options are named")
        chosen.append((letter, m.start(), m.end(), m[0]))
    if not chosen:
        return None
    letter, start, _, words = chosen[-1]
    if len(chosen) > 1 and chosen[-2][0] != letter:
        between = text[chosen[-2][2] : start]
        if not re.search(
            r"\b(?:wait|actually|no|but|however|instead|rather|so|therefore|thus|hence|hmm|correction|sorry|finally)\b",
            between + words,
            re.IGNORECASE,
        ):
            return Choice(None, "several options are chosen")
    return Choice(letter, words.strip()[:60])


def _rejected(text: str, m: re.Match[str], forms: _Forms) -> bool:
    """Whether a text says of a letter that it is wrong, or compares another with it."""
    if forms.wrong.match(text, m.end()) or _AGAINST.match(text, m.end()):
        return True
    if doubt(text, m.start(), m.end()):
        return True
    before = text[max(0, m.start() - 30) : m.start()]
    if re.search(rf"{_OTHERS}\s+(?:\w+\s+)?{_CHOSE}\s+[(\[\"]?$", before, re.IGNORECASE):
        return True
    return bool(
        re.search(
            r"(?:\b(?:not|never|neither|nor|over|than|unlike|except|without|against|eliminate|exclude|reject|ruled?\s+out|instead\s+of|rather\s+than)|n['’]t(?:\s+be)?)\s+(?:(?:option|choice|the|be|with)\s*)*(?:[a-z]+\s+)?$",
            before,
            re.IGNORECASE,
        )
    )


_AGAINST = re.compile(
    r"""[)\]*.:]*\s+(?:(?!\b(?:because|since|as|for|but|and|so|while|that|which|where|when|if|(?-i:[A-Z](?!\w)))\b)[^.,;!?\n]){1,60}?
        (?:\s+(?:is|are|was|were)\s+(?:\w+ly\s+)?(?:wrong|incorrect|false|not\s+(?:the\s+)?(?:right|correct|answer|best|true|it\b))
          | \s+(?:isn['’]t|aren['’]t|cannot\s+be|can['’]t\s+be)\s+(?:the\s+)?(?:right|correct|answer|best|true|it\b)
          | \s*[-–—:]\s*(?:wrong|incorrect|false|no)\b | \s*[✗✘❌])""",
    re.VERBOSE | re.IGNORECASE,
)
"""What speaks of the option whose letter stands before it, and against it: ". Rome is wrong"."""
_OTHERS = r"\b(?:students?|people|many|most|some|others?|everyone|they|he|she|you)"
"""Whose choice is not the response's."""
_CHOSE = r"(?:choose|chose|pick(?:ed)?|select(?:ed)?|say|said|think|thought|answer(?:ed)?|(?:go|went)\s+(?:for|with))"
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_UNSURE = re.compile(r"\b(?:maybe|perhaps|possibly|might|could|may|whether)\b|\?\s*$", re.IGNORECASE)


def _by_text(text: str, options: Options) -> str | None:
    """Return the only option whose text occurs in *text*, ignoring options contained in a longer one."""
    words = tokens(" ".join(part for part in _SENTENCE.split(text) if not _UNSURE.search(part)))
    found = {
        letter: value
        for letter, option in options.texts.items()
        if (value := tokens(option)) and occurs(value, words)
    }
    joined = {letter: f" {' '.join(value)} " for letter, value in found.items()}
    longest = [
        letter
        for letter, value in joined.items()
        if not any(value != other and value in other for other in joined.values())
    ]
    return longest[0] if len(longest) == 1 else None
