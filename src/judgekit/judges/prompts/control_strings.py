"""Control strings: text that a model's tokenizer turns into the structure of a chat.

Where a prompt goes as text, the server tokenises the rollout's words with the chat's own tokens switched on. Every
string that could become one is broken up here (`disarm`): the strings of the model itself, where they are known,
and everything that has the shape of such a string in any model family.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from functools import lru_cache

_NAMES = """
abbr article aside blockquote body br button canvas caption center cite code col dd del details div dl dt em fieldset
figure footer form h1 h2 h3 h4 h5 h6 head header hr html iframe img input ins kbd label li link main math meta nav object
ol option pre progress samp script section select small span strong style sub summary sup svg table tbody td template
textarea tfoot th thead title tr ul var
answer solution reasoning
int long short float double char bool boolean byte void string integer any auto str list dict number object int8 int16
int32 int64 uint uint8 uint16 uint32 uint64 i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 usize isize
iostream vector map set algorithm cmath queue stack stdio.h stdlib.h string.h math.h bits/stdc++.h
"""
_ORDINARY = frozenset(_NAMES.split())
"""Names in angle brackets that are no model's control strings: HTML, what policies are asked to write, types and headers
of common languages. Single letters but `s` are none either."""

# Looked for in a folded view of the text (`_view`): full-width bars and brackets are ASCII there.
_SHAPE = re.compile(
    r"<(?=(/?[^\s<>]{1,80})>)"  # <s>, </think>, <start_of_turn>, <turn|>, <SPECIAL_11>, <seed:eos>, <minimax:…>
    r"|<(?=/?[A-Za-z][\w.-]{0,31}:[A-Za-z_])"  # <dsml:invoke name=…
    r"|[<\[](?=\|\S)"  # <|im_start|>, <｜User｜>, <|turn>, [|user|]
    r"|(?<=\S)\|(?=[>\]])"  # …|>, …｜>, …|]
    r"|\|(?=[A-Z][A-Z_]{2,31}\|)"  # ｜DSML｜, |ENDOFTEXT|
    r"|\[(?=/?(?=[^\s\[\]]{0,62}[A-Z]{2})[^\s\[\]]{1,64}\])"  # [INST], [/INST], [gMASK], [EOT], [UNUSED_TOKEN_1]
    r"|\[(?=(?i:control|unused|reserved|special|extra)[^\s\[\]]{0,32}\])"  # [control_7]
    r"|[\[\]](?=[^\s\[\]]{0,16}~[^\s\[\]]{0,16}[\[\]])"  # ]~b], [e~[, ]~!b[
    r"|/(?=(?i:(?:no_?)?think))"  # /think, /no_think, /nothink: what templates and models switch thinking by
)
PLAIN_HEADERS = tuple(
    f"\n{header}"
    for header in (
        "Human:", "Assistant:", "User:", "System:", "Bot:", "### Human", "### Assistant", "### User", "### System",
        "### Instruction", "### Response", "GPT4 Correct User:", "GPT4 Correct Assistant:",
    )
)  # fmt: skip
"""Headers that templates without control tokens part turns by, where they begin a line. A text that stands in no quotation
must not contain them."""
_EDGE = re.compile(r"[^\w\s].*\w.*[^\w\s]|[<\[][|｜].*", re.DOTALL)
_JINJA = re.compile(r"\{#.*?#\}|\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_STRING = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_MARKUP = re.compile(
    r"<<?/?[^\s<>]{1,80}>>?|[<\[][|｜]\S{1,80}?[|｜][>\]]|\[/?[^\s\[\]'\"]{1,64}\]|[\[\]]\S{0,16}~\S{0,16}[\[\]]"
    r"|[|｜]\w{3,32}[|｜]"
)
_HEADER = re.compile(r"\s*((?:#{1,6} ?)?\w[\w ]{0,30}:)\s*")


def is_control(token: str, *, special: bool, template: str) -> bool:
    """Say whether an added token of a tokenizer is a control token.

    Those are the special ones, those that the chat *template* contains, and those with the look of markup. White
    space and single characters are not, whatever the tokenizer says: every text has them (Gemma lists runs of
    newlines and spaces among its added tokens, others pad with "!").
    """
    if len(token) < 2 or not token.strip():
        return False
    return special or token in template or _EDGE.fullmatch(token.strip()) is not None


def template_strings(template: str) -> set[str]:
    """Return the markup and the headers of turns (`USER:`) that a chat template writes itself."""
    found: set[str] = set()
    plain, last = [], 0
    for code in _JINJA.finditer(template):
        plain.append(template[last : code.start()])
        last = code.end()
        for literal in jinja_literals(code[0]):
            plain.append(literal)
            if header := _HEADER.fullmatch(literal):
                found.add(header[1])
    plain.append(template[last:])
    for text in plain:
        found.update(match[0] for match in _MARKUP.finditer(text))
    return found


def jinja_literals(template: str) -> Iterator[str]:
    """Yield the string literals in a template's code."""
    for code in _JINJA.finditer(template):
        for quoted in _STRING.finditer(code[0]):
            text = quoted[1] or quoted[2] or ""
            yield text.replace("\\n", "\n").replace("\\'", "'").replace('\\"', '"')


def disarm(text: str, control_strings: Collection[str] = ()) -> str:
    """Break every control string in *text* with a space, for engines that accept only text.

    Covers the model's own *control_strings* (one that begins with a newline: at the beginning of the text, too), and
    everything with the shape of one: names in angle brackets that are neither HTML nor a common type, bars inside brackets,
    capitals in square brackets, and `/think`. It also finds what a tokenizer's normalisation would turn into one, such as
    full-width brackets. Engines that accept token ids keep the text as it was written: prefer them.
    """
    view, origin = _view(text)
    return _broken(text, view, origin, {*_by_shape(view), *_by_own(view, control_strings)})


def without_headers(text: str, headers: Collection[str]) -> str:
    """Break only *headers* in *text*, for engines that accept token ids: to them plain words are what a template writes."""
    view, origin = _view(text)
    return _broken(text, view, origin, set(_by_own(view, headers)))


def _broken(text: str, view: str, origin: list[int] | None, breaks: set[int]) -> str:
    """Put a space at each of *breaks*, which are places in *view*."""
    if not breaks:
        return text
    parts, last = [], 0
    for place in sorted({origin[b - 1] + 1 for b in breaks} if origin is not None else breaks):
        parts.append(text[last:place])
        last = place
    parts.append(text[last:])
    return " ".join(parts)


def _by_shape(view: str) -> Iterator[int]:
    """Yield the places to break: behind the first character of each string that has the shape."""
    for match in _SHAPE.finditer(view):
        if (name := match[1]) is not None:
            name = name.removeprefix("/").removesuffix("/").lower()
            if name in _ORDINARY or (len(name) == 1 and name != "s") or not any(map(str.isalnum, name)):
                continue
        yield match.end()


def _by_own(view: str, strings: Collection[str]) -> Iterator[int]:
    """Yield the places to break for the model's own strings: behind the first character that is no newline."""
    if (own := _own(frozenset(strings))) is None:
        return
    first, lengths, known = own
    low = view.lower()
    view = low if len(low) == len(view) else view
    if any(f"\n{view[: length - 1]}" in known for length in lengths):
        yield 1
    for match in first.finditer(view):
        start = match.start()
        for length in lengths:
            if (found := view[start : start + length]) in known:
                yield start + min(1 + len(found) - len(found.lstrip("\n")), len(found) - 1)


@lru_cache(maxsize=16)
def _own(control_strings: frozenset[str]) -> tuple[re.Pattern[str], tuple[int, ...], frozenset[str]] | None:
    """Prepare the control strings that no shape covers: their first characters, their lengths, themselves."""
    views = (_view(string)[0] for string in control_strings)
    known = frozenset(
        view.lower() for view in views if len(view) > 1 and view.strip() and not any(_by_shape(view))
    )
    if not known:
        return None
    first = re.compile("[" + "".join(re.escape(c) for c in sorted({s[0] for s in known})) + "]")
    return first, tuple(sorted({len(s) for s in known})), known


def _view(text: str) -> tuple[str, list[int] | None]:
    """Fold *text* as far as any tokenizer's normaliser does, and say which character each one came from.

    Compatibility forms become what they stand for, and accents go. None: the places are the same.
    """
    if text.isascii():
        return text, None
    view = text.translate(_FOLDED)
    if len(view) == len(text) and all(len(_FOLDED[ord(c)]) == 1 for c in set(text)):
        return view, None
    return view, [i for i, c in enumerate(text) for _ in _FOLDED[ord(c)]]


class _Folded(dict[int, str]):
    def __missing__(self, code: int) -> str:
        parts = unicodedata.normalize("NFKD", chr(code))
        folded = "".join(c for c in parts if not unicodedata.category(c).startswith("M"))
        if len(self) < 100_000:
            self[code] = folded
        return folded


_FOLDED = _Folded()
