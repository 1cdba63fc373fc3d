"""Judge prompts: templates filled in one pass, with untrusted text quoted.

Rollouts come from a policy that is rewarded for fooling the judge. Three measures keep them data:

* they are quoted between fences that nothing in them can close (`quoted`);
* they stay an untrusted `Piece` up to the engine, which tokenises them with special tokens switched off
  (`judgekit.judges.asking.tokens`); if only text can be sent, `judgekit.judges.asking.control` breaks up control strings;
* invisible and direction-changing characters are written out (`made_visible`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from importlib import resources
from pathlib import Path

from msgspec import Struct

from judgekit.errors import ConfigError, did_you_mean
from judgekit.judges.base import Piece, Role, Turn

Material = str | Sequence[tuple[str, str]]
"""Content of a data field: one text, or several, each with a trusted label before it."""

MAX_FENCE = 16
"""Longest fence, in backticks. Runs in a text that are as long are shortened to one less, and marked."""

# Characters that are invisible or reorder text: C0/C1 controls except tab and newline, soft
# hyphen, zero-width and bidi controls, line separators, invisible operators, byte-order mark, interlinear
# marks, tag characters; and lone surrogates, which no tokenizer can encode.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff\ud800-\udfff]"
)
_TICKS = re.compile("`+")
_LONG_TICKS = re.compile(f"`{{{MAX_FENCE},}}")
_FIELD = re.compile(r"\{([A-Z][A-Z_]*)\}")
_SECTION = re.compile(r"^--- (system|user) ---$", re.MULTILINE)


def made_visible(text: str) -> str:
    """Write invisible and direction-changing characters of *text* as `<U+200B>`."""
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub(lambda m: f"<U+{ord(m[0]):04X}>", text.replace("\r\n", "\n"))


def quoted(text: str, *, max_tokens: int | None = None) -> tuple[Piece, Piece, Piece]:
    """Quote *text* between two fences that nothing in it can close.

    Returns the opening fence, the untrusted text and the closing fence. The fence is a line of backticks longer
    than any run inside (CommonMark's rule); a run of `MAX_FENCE` or more is shortened, and its length noted.
    """
    text = made_visible(text)
    text = _LONG_TICKS.sub(lambda m: f"{'`' * (MAX_FENCE - 1)}(repeated to {len(m[0])})", text)
    longest = max(map(len, _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Piece(f"{fence}\n"), Piece(text, trusted=False, max_tokens=max_tokens), Piece(f"\n{fence}")


class _Section(Struct, frozen=True):
    role: Role
    parts: tuple[tuple[str, bool], ...]
    """(text, is_field), in order."""


class Template:
    """A judge prompt with fields, filled in one pass: braces in a rollout stay literal.

    A template file has a `--- system ---` section with everything a group shares (rubric, problem,
    reference) and a `--- user ---` section with the candidate, so that a group hits the engine's prefix
    cache. A file without sections is one user turn. Fields are `{NAMES}` in capitals: the verdict format fills
    `HOW_TO_ANSWER` and `REMINDER`; every other field is data and is quoted.
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
        if [role for role, _ in spans] not in (["user"], ["system", "user"]):
            raise ConfigError(f"template {name!r}: the sections must be system then user, or only user")
        self._sections = tuple(
            _Section("system" if r == "system" else "user", _split(body)) for r, body in spans
        )
        self.fields = frozenset(t for s in self._sections for t, is_field in s.parts if is_field)

    @classmethod
    def load(cls, name_or_path: str) -> Template:
        """Load a shipped template by name (`default`, `detailed`, `rubric`), or a file by path."""
        folder = resources.files("judgekit.judges.asking") / "templates"
        shipped = {f.name.removesuffix(".txt"): f for f in folder.iterdir() if f.name.endswith(".txt")}
        if name_or_path in shipped:
            return cls(shipped[name_or_path].read_text("utf-8"), name=name_or_path)
        path = Path(name_or_path)
        if path.is_file():
            return cls(path.read_text("utf-8"), name=path.stem)
        if path.suffix or "/" in name_or_path:
            raise ConfigError(f"no template file at {name_or_path}")
        raise ConfigError(f"no template named {name_or_path!r}{did_you_mean(name_or_path, shipped)}")

    def render(
        self,
        data: Mapping[str, Material],
        words: Mapping[str, str],
        *,
        max_tokens: int | None = None,
        cut: Collection[str] = ("CANDIDATE_SOLUTION", "TRAJECTORY"),
    ) -> tuple[Turn, ...]:
        """Fill the template; returns the turns of one request.

        *data*: text of each data field, untrusted and quoted; several labelled texts are quoted one by one.
        *words*: the trusted fields. *max_tokens* limits each text of the fields *cut*; other fields are
        shortened only if the prompt would not fit the context.
        """
        return tuple(
            Turn(section.role, tuple(_fill(section, data, words, max_tokens, cut, self.name)))
            for section in self._sections
        )


def _split(body: str) -> tuple[tuple[str, bool], ...]:
    parts = _FIELD.split(body)
    return tuple((text, i % 2 == 1) for i, text in enumerate(parts) if text)


def _fill(
    section: _Section,
    data: Mapping[str, Material],
    words: Mapping[str, str],
    max_tokens: int | None,
    cut: Collection[str],
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
                opening, quote, closing = quoted(material, max_tokens=max_tokens if text in cut else None)
                pieces += [Piece(trusted + label + opening.text), quote]
                trusted = closing.text if isinstance(given, str) else closing.text + "\n"
        else:
            raise ConfigError(
                f"template {name!r}: no value for the field {{{text}}}{did_you_mean(text, {*data, *words})}"
            )
    if trusted := trusted.rstrip("\n"):
        pieces.append(Piece(trusted))
    return pieces
