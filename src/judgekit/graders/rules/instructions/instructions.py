"""A rule for instructions that can be verified."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from judgekit.errors import ConfigError, did_you_mean
from judgekit.graders.protocol import Where
from judgekit.graders.rules.instructions import ifbench  # noqa: F401 - adds its constraints
from judgekit.graders.rules.instructions.constraints import CONSTRAINTS, LANGUAGES, RELATIONS
from judgekit.graders.rules.rule import PARTS, Part, Rule, needs, one_of, part_of
from judgekit.graders.rules.stored import as_python
from judgekit.types import Abstained, Grade, Graded, Rollout, look_up

_LANGUAGE = ("language:", "change_case:english")
_BY_END: Mapping[str, str] = {id_.partition(":")[2]: id_ for id_ in CONSTRAINTS}

Given = tuple[str, Mapping[str, Any]]


class Instructions(Rule):
    """Scores the share of constraints that the response satisfies, 0 to 1.

    *constraints*: a list of mappings, each with an `id` of IFEval or IFBench ("keywords:existence", or without its
    family, "existence") and its parameters, for all rollouts; or the dotted path of each rollout's own constraints:
    such a list, or the data sets' columns `instruction_id_list` and `kwargs` (a mapping, or JSON of one). By default
    the rollout's `extra` is that mapping. *score*: "share" (instruction level), or "all": 1 if all are satisfied, else 0 (prompt
    level); the metadata has each result. *mode*: "strict", or "loose": a constraint also counts as satisfied if it is
    after removing the first line, the last line, or both, or the asterisks. *part*: see `Part`. An empty response
    satisfies no constraint.

    Language constraints need langdetect (extra `lang`) and run in a worker process. Abstains if a rollout has no
    constraints, or one that is unknown or lacks a parameter.

    Source: IFEval (Zhou et al. 2023, arXiv:2311.07911), `test_instruction_following_strict` and `…_loose`, and
    IFBench (Pyatkin et al. 2025, arXiv:2507.02833); see `judgekit.graders.rules.instructions.constraints` and
    `judgekit.graders.rules.instructions.ifbench` for the ids and the differences.
    """

    score_range = (0.0, 1.0)
    version = "2"
    inputs = ("response", "extra.instruction_id_list", "extra.kwargs")
    abstains = "the rollout has no constraints, or one that is unknown or incomplete"
    abstains_by_row = True
    inline_limit: int | None = 1000
    timeout_s = 10.0

    def __init__(
        self,
        constraints: Sequence[Mapping[str, Any]] | str = "extra",
        *,
        score: Literal["share", "all"] = "share",
        mode: Literal["strict", "loose"] = "strict",
        part: Part = "after_think",
        name: str = "instructions",
    ) -> None:
        one_of(name, "score", score, ("share", "all"))
        one_of(name, "mode", mode, ("strict", "loose"))
        one_of(name, "part", part, PARTS)
        self.name = name
        self.path = constraints if isinstance(constraints, str) else None
        self.score = score
        self.mode = mode
        self.part: Part = part
        self.fixed: list[Given] = []
        if not isinstance(constraints, str):
            try:
                self.fixed = read_constraints(list(constraints))
            except ValueError as error:
                raise ConfigError(f"{name}: {error}") from None
            if not self.fixed:
                raise ConfigError(
                    f"{name}: give at least one constraint, such as {{id: 'punctuation:no_comma'}}"
                )
        asks_language = self.path is not None or any(id_.startswith(_LANGUAGE) for id_, _ in self.fixed)
        if asks_language:
            self.libraries = (*self.libraries, needs(name, "langdetect", "lang"))
        self.where: Where = "process" if asks_language else "inline"
        # the worst texts take about 1 µs per character and check
        checks = len(self.fixed) * (8 if mode == "loose" else 1)
        self.inline_limit = max(1000, 20_000 // max(checks, 1))

    def grade(self, rollout: Rollout, /) -> Grade:
        given = self.fixed
        if self.path is not None:
            try:
                given = read_constraints(as_python(look_up(rollout, self.path, None)))
            except ValueError as error:
                return Abstained(str(error)[:300])
            if not given:
                return Abstained(f"there are no constraints at {self.path}")
        text = part_of(rollout.response, self.part) or ""
        texts = [text] if self.mode == "strict" else variants(text)
        kept = [any(t.strip() and CONSTRAINTS[id_][0](t, **kwargs) for t in texts) for id_, kwargs in given]
        broken = [id_ for (id_, _), fine in zip(given, kept, strict=True) if not fine]
        score = sum(kept) / len(kept) if self.score == "share" else float(not broken)
        reason = f"not kept: {', '.join(broken)}"[:200] if broken else ""
        return Graded(score, reason, {"kept": kept[:100]})


def variants(text: str) -> list[str]:
    """Return the variants of the loose mode: without first or last line, and without asterisks."""
    lines = text.split("\n")
    found = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return [*found, *(t.replace("*", "") for t in found)]


def read_constraints(value: Any) -> list[Given]:
    """Parse constraints. Raises ValueError if one is unknown, incomplete or of a wrong type."""
    if isinstance(value, str):
        value = _data(value)
    if isinstance(value, Mapping):
        ids = value.get("instruction_id_list", value.get("instruction_id"))
        if ids is not None:
            return _side_by_side(ids, value.get("kwargs"))
        value = [value] if "id" in value else []
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise ValueError(f"constraints are a list, not {type(value).__name__}")
    found: list[Given] = []
    for part in value:
        if isinstance(part, str):
            found.append(_constraint(part, {}))
        elif isinstance(part, Mapping) and "id" in part:
            found.append(_constraint(part["id"], {**(part.get("kwargs") or {}), **part}))
        elif isinstance(part, Mapping):
            found += read_constraints(part)
        else:
            raise ValueError(f"a constraint is a mapping with an id, not {part!r:.60}")
    return found


def _data(text: str) -> Any:
    """Read JSON, or the literals of Python that some data sets have in its place. Raises ValueError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        if len(text) <= _MOST_CHARS:
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError):
        pass
    raise ValueError(f"the constraints are not JSON: {text[:60]!r}")


_MOST_CHARS = 20_000


def _side_by_side(ids: Any, kwargs: Any) -> list[Given]:
    """Parse IFEval's two lists. Raises ValueError."""
    if isinstance(ids, str):
        ids = _data(ids) if ids.lstrip().startswith("[") else [ids]
    kwargs = _data(kwargs) if isinstance(kwargs, str) else kwargs
    kwargs = [kwargs] if isinstance(kwargs, Mapping) else kwargs or [{}] * len(ids)
    if not isinstance(ids, list | tuple) or not isinstance(kwargs, list | tuple) or len(ids) != len(kwargs):
        raise ValueError("instruction_id_list and kwargs must be lists of equal length")
    each = [_data(own) if isinstance(own, str) and own else own for own in kwargs]
    return [_constraint(id_, own or {}) for id_, own in zip(ids, each, strict=True)]


def _constraint(id_: Any, given: Mapping[str, Any]) -> Given:
    if not isinstance(id_, str):
        raise ValueError(f"a constraint's id is a text, not {id_!r:.60}")
    id_ = _BY_END.get(id_, id_)
    if id_ not in CONSTRAINTS:
        raise ValueError(f"there is no constraint {id_!r}{did_you_mean(str(id_), CONSTRAINTS)}")
    wanted = CONSTRAINTS[id_][1]
    if not isinstance(given, Mapping):
        raise ValueError(f"{id_}: its parameters are a mapping, not {given!r:.60}")
    # data sets list every parameter, most of them None
    known = {name: value for name, value in given.items() if value is not None and value == value}
    kwargs: dict[str, Any] = {}
    for name, kind in wanted.items():
        if name not in known:
            close = did_you_mean(name, set(known) - {"id", "kwargs"}) if set(known) - {"id", "kwargs"} else ""
            raise ValueError(f"{id_} needs {name}{close}")
        kwargs[name] = _value(id_, name, kind, known[name])
    return id_, kwargs


def _value(id_: str, name: str, kind: str, value: Any) -> Any:
    """Return a parameter as its kind has it. Raises ValueError."""
    read, what = _KINDS.get(kind, (_text, "a text"))
    found = read(value)
    if found is None:
        raise ValueError(f"{id_}: {name} is {what}, not {value!r:.60}")
    return found


def _whole(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _texts(value: Any) -> Sequence[str] | None:
    """Return texts: a list of them, one alone, or a list as JSON or Python writes it."""
    if isinstance(value, str):
        texts: Any = [value]
        if value.lstrip().startswith("["):
            with suppress(ValueError):
                listed = _data(value)
                if isinstance(listed, list) and all(isinstance(one, str) for one in listed):
                    texts = listed
        value = texts
    fine = isinstance(value, list | tuple) and value and all(isinstance(one, str) and one for one in value)
    return value if fine else None


def _relation(value: Any) -> str | None:
    return value if isinstance(value, str) and value in RELATIONS else None


def _language(value: Any) -> str | None:
    code = value.strip().lower().replace("_", "-") if isinstance(value, str) else ""
    code = LANGUAGES.get(code, code)
    return code if code in _CODES else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _letter(value: Any) -> str | None:
    letter = value.strip() if isinstance(value, str) else ""
    return letter if len(letter) == 1 else None


_CODES = frozenset(LANGUAGES.values())
_KINDS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "int": (_whole, "a whole number"),
    "texts": (_texts, "a list of texts"),
    "relation": (_relation, ", ".join(RELATIONS)),
    "letter": (_letter, "one character"),
    "language": (_language, f"a language or its code ({', '.join(sorted(_CODES))})"),
}
