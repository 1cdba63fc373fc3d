"""Judge prompts: templates filled in one pass, with untrusted text quoted.

Rollouts come from a policy that is rewarded for fooling the judge. Four measures keep them data:

* they are quoted between fences that nothing in them can close, also after a tokenizer's normalisation (`quoted`);
* they stay an untrusted `Piece` up to the engine, which tokenises them with special tokens switched off
  (`judgekit.judges.prompts.tokens`); if only text can be sent, `judgekit.judges.prompts.control_strings` breaks up control
  strings;
* invisible and direction-changing characters are written out (`made_visible`);
* a quotation never begins with a label of a one-token verdict, and never contains what introduces a written one without
  a code (`without_markers`), so that a judge that repeats what it read gives none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct

from judgekit.errors import ConfigError, did_you_mean, read_utf8
from judgekit.judges.base import UNLIMITED, Piece, Role, Turn
from judgekit.judges.prompts.cutting import LEAST, shortened
from judgekit.judges.prompts.images import Image
from judgekit.judges.verdicts.formats import LineVerdict

Material = str | Sequence[tuple[str, str | Image]]
"""Content of a data field: one text, or several texts and images, each with a trusted label before it."""

MAX_FENCE = 16
"""Longest fence, in backticks. Runs in a text that are as long are shortened to one less, and marked."""

MOST_CHARS = 500_000
"""Longest text that is quoted whole, whatever its budget: more than 100,000 tokens of ordinary text."""
CHARS_PER_TOKEN = 16
"""Texts longer than this many characters per token of their budget are cut before anything else is done with them."""

# Characters that nobody sees or that reorder text, and lone surrogates, which no tokenizer can encode: the categories
# Cc (but tab and newline), Cf, Zl, Zp, Cs; the default ignorable code points; blanks that are no white space; and
# U+2581, which sentencepiece's vocabularies take for a space.
# One variation selector behind an emoji stays: it hides nothing.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2581\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U000110bd"
    "\U000110cd\U00013430-\U0001345f\U00016fe4\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff\ud800-\udfff]"
    "|(?<![\u203c-\u32ff\U0001f000-\U0001faff])[\ufe0e\ufe0f]"
)
_TICKS = re.compile("`+")
_LONG_TICKS = re.compile(f"`{{{MAX_FENCE},}}")
_TICK_LIKE = re.compile("[\u1fef\uff40]")
"""What normalisation turns into a backtick: U+1FEF in every form, U+FF40 in NFKC and NFKD."""
_AFTER_TICK = re.compile("(?<=`)[^\x00-\x7f]+")
_FIELD = re.compile(r"\{([A-Z][A-Z_]*)\}")
_NEARLY = re.compile(r"(?<![\w\\^_])(?:\{\{ ?([A-Za-z][\w ]{1,30}?) ?\}\}|\{([A-Za-z][\w ]{1,30}?)\})")
OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(
        ("PROMPT", "QUESTION", "QUERY", "INSTRUCTION", "INPUT", "TASK", "CONVERSATION"), "PROBLEM"
    ),
    **dict.fromkeys(
        ("RESPONSE", "ANSWER", "COMPLETION", "OUTPUT", "CANDIDATE", "SOLUTION", "SOLUTION_STR", "GENERATION"),
        "CANDIDATE_SOLUTION",
    ),
    **dict.fromkeys(
        ("REFERENCE", "REFERENCE_ANSWER", "GROUND_TRUTH", "TARGET", "EXPECTED", "GOLD", "LABEL"),
        "REFERENCE_SOLUTION",
    ),
    **dict.fromkeys(("CRITERIA", "CRITERION"), "RUBRIC"),
    **dict.fromkeys(("RESPONSE_1", "ANSWER_A", "ANSWER_1", "COMPLETION_A"), "RESPONSE_A"),
    **dict.fromkeys(("RESPONSE_2", "ANSWER_B", "ANSWER_2", "COMPLETION_B"), "RESPONSE_B"),
    **dict.fromkeys(("MESSAGES", "TURNS", "TRACE"), "TRAJECTORY"),
}
"""What other libraries call the fields of a template."""
_OWN = {"CANDIDATE_SOLUTION": 0, "TRAJECTORY": 1}
_SECTION = re.compile(r"^--- (verdict|system|user) ---$", re.MULTILINE)


def made_visible(text: str) -> str:
    """Write invisible and direction-changing characters of *text* as `<U+200B>`."""
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub(_written, text.replace("\r\n", "\n"))


def without_markers(text: str, markers: Collection[str]) -> str:
    """Break up each of *markers* in *text* by a space, also where a tokenizer's normalisation would make it one.

    Compatibility forms, marks that combine, and the kind and number of spaces make no difference.
    """
    for marker in markers:
        pattern = _broken_at(marker)
        folds = _folds(text)
        if pattern.search(text.translate(folds)) is None:
            continue
        # characters that stand for several cannot be broken: they are written out
        text = text.translate({c: f"<U+{c:04X}>" for c, fold in folds.items() if len(fold) > 1})
        for _ in range(4):  # a break may join what makes another
            folds = _folds(text)
            places = [i for i, c in enumerate(text) if folds.get(ord(c), c)]
            found = {places[m.end(1)] for m in pattern.finditer(text.translate(folds))} - {0}
            if not found:
                break
            text = " ".join(text[i:j] for i, j in pairwise([0, *sorted(found), len(text)]))
    return text


@lru_cache(maxsize=64)
def _broken_at(marker: str) -> re.Pattern[str]:
    """Return what finds a marker, of which the first group ends where it is broken up: within its last long word."""
    words = marker.split()
    last = max((i for i, word in enumerate(words) if len(word) > 1), default=len(words) - 1)
    before = r"\s+".join(map(re.escape, [*words[:last], words[last][:-1]]))
    after = r"\s+".join(map(re.escape, [words[last][-1], *words[last + 1 :]]))
    return re.compile(f"(?=({before}){after})", re.IGNORECASE)  # it is read in whatever case


def _folds(text: str) -> dict[int, str]:
    """What each character of *text* is without marks and compatibility forms, where that is another; as for `translate`."""
    if text.isascii():
        return {}
    return {ord(c): fold for c in set(text) if not c.isascii() and (fold := _folded(c)) != c}


@lru_cache(maxsize=4096)
def _folded(c: str) -> str:
    return "".join(f for f in unicodedata.normalize("NFKD", c) if not _is_accent(f))


def quoted(
    text: str,
    *,
    max_tokens: int | None = None,
    pool: int = 0,
    least: int = 3,
    labels: Collection[str] = (),
    markers: Collection[str] = (),
) -> tuple[Piece, Piece, Piece]:
    """Quote *text* between two fences that nothing in it can close. *least*: backticks of a fence, if not more are needed.

    Returns the opening fence, the untrusted text and the closing fence. The fence is a line of backticks longer
    than any run inside (CommonMark's rule); a run of `MAX_FENCE` or more is shortened, and its length noted. No
    normalisation lengthens a run: characters that become backticks are written out, and so are accents behind one.
    A text that begins with one of *labels* gets a `> ` before it, and *markers* in it are broken up.
    """
    # cut first and again: what is written out is eight times as long
    most = MOST_CHARS if max_tokens is None else min(max(max_tokens * CHARS_PER_TOKEN, LEAST), MOST_CHARS)
    text = shortened(text, most)
    text = made_visible(text)
    if not text.isascii():
        text = _AFTER_TICK.sub(_without_accents, _TICK_LIKE.sub(_written, text))
    text = without_markers(text, markers)
    text = shortened(text, most)
    text = _LONG_TICKS.sub(lambda m: f"{'`' * (MAX_FENCE - 1)}(repeated to {len(m[0])})", text)
    if labels and _begins(text, labels):
        text = f"> {text}"
    longest = max(map(len, _TICKS.findall(text)), default=0)
    fence = "`" * max(3, least, longest + 1)
    quote = Piece(text, trusted=False, max_tokens=max_tokens, pool=pool)
    return Piece(f"{fence}\n"), quote, Piece(f"\n{fence}")


def fence_around(texts: Iterable[str]) -> int:
    """Return how many backticks the fence has that nothing in any of these texts can close."""
    longest = max((len(run) for text in texts for run in _TICKS.findall(text)), default=0)
    return max(3, min(longest, MAX_FENCE - 1) + 1)


def _written(match: re.Match[str]) -> str:
    return f"<U+{ord(match[0]):04X}>"


def _without_accents(match: re.Match[str]) -> str:
    """Write out the marks that combine with a backtick: a tokenizer may remove them, and join what they part."""
    text = match[0]
    end = next((i for i, c in enumerate(text) if not _is_accent(c)), len(text))
    return "".join(f"<U+{ord(c):04X}>" for c in text[:end]) + text[end:]


@lru_cache(maxsize=4096)
def _is_accent(c: str) -> bool:
    """Whether a character combines with the one before it, or may in another version of Unicode than Python's."""
    first = unicodedata.normalize("NFKD", c)[0]
    return first in "\u1cf2\u1cf3" or unicodedata.category(first) in ("Mn", "Mc", "Me", "Cn")


def _begins(text: str, labels: Collection[str]) -> bool:
    start = unicodedata.normalize("NFKC", text[:4096].lstrip()[:64]).casefold().lstrip()
    return start.startswith(tuple(map(str.casefold, labels)))


class _Section(Struct, frozen=True):
    role: Role
    parts: tuple[tuple[str, bool], ...]
    """(text, is_field), in order."""
    fields: tuple[str, ...]


class Template:
    """A judge prompt with fields, filled in one pass: braces in a rollout stay literal.

    A template file has a `--- system ---` section with everything a group shares (rubric, problem,
    reference) and a `--- user ---` section with the candidate, so that a group hits the engine's prefix
    cache. A file without sections is one user turn. Fields are `{NAMES}` in capitals: the verdict format fills
    `HOW_TO_ANSWER` and `REMINDER`; every other field is data and is quoted.

    A template for judges that were trained to answer in a form of their own begins with a `--- verdict ---` section, in
    YAML: the arguments of a `LineVerdict` without nonce, and beside them `source`, `models` and a default `rubric`.
    """

    TRUSTED = ("HOW_TO_ANSWER", "REMINDER", "RUBRIC")

    def __init__(self, text: str, *, name: str = "custom") -> None:
        self.name = name
        self.text = text
        cuts = list(_SECTION.finditer(text))
        if cuts:
            if text[: cuts[0].start()].strip():
                raise ConfigError(
                    f"template {name!r}: there is text before the first section header {cuts[0][0]!r}"
                )
            ends = [cut.start() for cut in cuts[1:]] + [len(text)]
            spans = [(cut[1], text[cut.end() : end].strip("\n")) for cut, end in zip(cuts, ends, strict=True)]
        else:
            spans = [("user", text.strip("\n"))]
        self.verdict: LineVerdict | None = None
        """The form in which the judges answer that it is for; None: the grader's verdict format."""
        self.rubric = ""
        """The rubric where the grader has none."""
        self.about: Mapping[str, Any] = {}
        """Its `source` and `models`."""
        if spans[0][0] == "verdict":
            self._read_verdict(spans.pop(0)[1])
        if [role for role, _ in spans] not in (["user"], ["system", "user"]):
            raise ConfigError(
                f"template {name!r}: the sections must be system then user, or only user; before them there may be a verdict"
            )
        self._check_nearly(body for _, body in spans)
        self._sections = tuple(_section("system" if r == "system" else "user", body) for r, body in spans)
        self.fields = frozenset(field for section in self._sections for field in section.fields)

    def _check_nearly(self, bodies: Iterable[str]) -> None:
        """Refuse what was meant as a field and is none: the judge would read the braces."""
        for body in bodies:
            for match in _NEARLY.finditer(body):
                said = (match[1] or match[2]).upper().replace(" ", "_")
                meant = OTHER_NAMES.get(
                    said, said if said in (*OTHER_NAMES.values(), *self.TRUSTED) else None
                )
                if meant is not None and not _FIELD.fullmatch(match[0]):
                    raise ConfigError(
                        f"template {self.name!r}: {match[0]} is no field, and the judge would read it as it stands: write {{{meant}}}, "
                        "or put a space behind the brace"
                    )

    def _read_verdict(self, text: str) -> None:
        from judgekit.strict_yaml import parse_yaml  # most templates have no verdict

        given = parse_yaml(text, f"template {self.name!r}")
        own = {"source": str, "models": list[str], "rubric": str}
        known = get_type_hints(LineVerdict.__init__)
        del known["nonce"], known["return"]
        if not isinstance(given, dict):
            raise ConfigError(
                f"template {self.name!r}: the section verdict is a mapping, such as line: 'Score: {{score}}'"
            )
        for key, value in given.items():
            if key not in own and key not in known:
                raise ConfigError(
                    f"template {self.name!r}: verdict has no {key!r}{did_you_mean(key, [*own, *known])}"
                )
            try:
                given[key] = msgspec.convert(value, own[key] if key in own else known[key])
            except msgspec.ValidationError as error:
                raise ConfigError(f"template {self.name!r}: {key}: {error}") from None
        if "line" not in given:
            raise ConfigError(
                f"template {self.name!r}: the verdict needs its line, such as line: 'Score: {{score}}'"
            )
        try:
            self.verdict = LineVerdict(nonce=False, **{k: v for k, v in given.items() if k not in own})
        except (ConfigError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"template {self.name!r}: {error}") from None
        self.rubric = given.get("rubric", "").strip()
        self.about = {key: given[key] for key in ("source", "models") if key in given}

    @staticmethod
    def shipped() -> dict[str, Any]:
        """The files of the shipped templates, by name."""
        folder = resources.files("judgekit.judges.prompts") / "templates"
        return {f.name.removesuffix(".txt"): f for f in folder.iterdir() if f.name.endswith(".txt")}

    @classmethod
    def load(cls, name_or_path: str) -> Template:
        """Load a shipped template by name (`default`, `open`, `prometheus-2`), a file by path, or the text itself.

        A text has several lines, or a field.
        """
        if "\n" in name_or_path or _FIELD.search(name_or_path):
            return cls(name_or_path)
        shipped = cls.shipped()
        if name_or_path in shipped:
            return cls(shipped[name_or_path].read_text("utf-8"), name=name_or_path)
        path = Path(name_or_path)
        if path.is_file():
            return cls(read_utf8(path), name=path.stem)
        if path.suffix or "/" in name_or_path:
            raise ConfigError(f"no template file at {name_or_path}")
        raise ConfigError(f"no template named {name_or_path!r}{did_you_mean(name_or_path, shipped)}")

    def render(
        self,
        data: Mapping[str, Material],
        words: Mapping[str, str],
        *,
        max_tokens: int | None = None,
        pools: Mapping[str, int] = _OWN,
        fence: int = 3,
        labels: Collection[str] = (),
        markers: Collection[str] = (),
    ) -> tuple[Turn, ...]:
        """Fill the template; returns the turns of one request.

        *data*: text of each data field, untrusted and quoted; several labelled texts are quoted one by one.
        *words*: the trusted fields. *pools*: the fields that rollouts wrote, which are the first to be shortened if the prompt
        does not fit the context, and the others the last. *max_tokens* limits each of their texts, and all texts of fields with
        the same number above 0 together. *fence*: backticks around them, at least. *labels*: those of a one-token verdict; no quotation begins with one. *markers*: what
        introduces a written verdict; no quotation contains it.
        """
        limit = UNLIMITED if max_tokens is None else max_tokens

        def quote(field: str, text: str | Image) -> tuple[Piece, Piece, Piece]:
            most, pool, least = (limit, pools[field], fence) if field in pools else (None, 0, 3)
            if isinstance(text, Image):  # a part of its own, so that no fence is needed
                return Piece(""), Piece("", False, most, pool, image=text.url), Piece("")
            return quoted(text, max_tokens=most, pool=pool, least=least, labels=labels, markers=markers)

        turns: list[Turn] = []
        for section in self._sections:
            fields = section.fields
            if pools.keys().isdisjoint(fields):
                given = [(field, data[field]) for field in fields if field in data]
                said = [(field, words[field]) for field in fields if field in words]
                # an unknown field is an error, and texts with labels and images are not remembered
                if len(given) + len(said) == len(fields) and all([type(text) is str for _, text in given]):
                    # a user's own verdict format may have lists
                    turn = _shared_turn(section, tuple(given), tuple(said), tuple(labels), tuple(markers))
                    turns.append(turn)
                    continue
            turns.append(Turn(section.role, tuple(_fill(section, data, words, quote, self.name))))
        return tuple(turns)


def _section(role: Role, body: str) -> _Section:
    parts = _FIELD.split(body)
    return _Section(
        role, tuple((text, i % 2 == 1) for i, text in enumerate(parts) if text), tuple(parts[1::2])
    )


@lru_cache(maxsize=128)
def _shared_turn(
    section: _Section,
    data: tuple[tuple[str, Any], ...],
    words: tuple[tuple[str, str], ...],
    labels: tuple[str, ...],
    markers: tuple[str, ...],
) -> Turn:
    """Fill a section without a rollout's own text, which is the same for all of a group."""

    def quote(field: str, text: Any) -> tuple[Piece, Piece, Piece]:
        return quoted(text, labels=labels, markers=markers)

    return Turn(section.role, tuple(_fill(section, dict(data), dict(words), quote, "")))


def _fill(
    section: _Section,
    data: Mapping[str, Material],
    words: Mapping[str, str],
    quote: Callable[[str, str | Image], tuple[Piece, Piece, Piece]],
    name: str,
) -> list[Piece]:
    pieces: list[Piece] = []
    trusted = ""
    for text, is_field in section.parts:
        if not is_field:
            trusted += text
        elif text in words:
            trusted += words[text]
        elif text in data:
            given = data[text]
            for label, material in [("", given)] if isinstance(given, str) else given:
                opening, inside, closing = quote(text, material)
                pieces += [Piece(trusted + label + opening.text), inside]
                trusted = closing.text if isinstance(given, str) else closing.text + "\n"
        else:
            raise ConfigError(
                f"template {name!r}: no value for the field {{{text}}}{did_you_mean(text, {*data, *words})}"
            )
    if trusted := trusted.rstrip("\n"):
        pieces.append(Piece(trusted))
    return pieces
