"""Rules about JSON in a response: presence, schema, equality with a reference."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from judgekit.errors import ConfigError, RolloutError, reads_rollout
from judgekit.graders.protocol import Where
from judgekit.graders.rules.pairs import best_pairs
from judgekit.graders.rules.rule import Rule, at_least, code_blocks, needs, one_of
from judgekit.graders.rules.stored import as_python, without_nulls
from judgekit.graders.rules.thoughts import after_think, without_end
from judgekit.types import Abstained, Grade, Graded, Rollout, look_up

Found = Literal["fenced", "whole", "anywhere"]
FOUND = ("fenced", "whole", "anywhere")
_MISSING: Any = object()
_MAX_DIGITS = 4000


class NotJson(ValueError):
    """The text contains no JSON; the message says why."""


def read_json(text: str, where: Found) -> Any:
    """Parse the JSON value of a response. Raises NotJson.

    "fenced": the whole response after its thinking, or its `<answer>`, or the last fenced block in it that is JSON. "whole": the
    response is JSON and nothing else. "anywhere": also the last object or array within text. NaN and Infinity are
    not JSON (RFC 8259).
    """
    text = without_end(text)
    try:
        return loads(text)  # tags in its texts are only text
    except NotJson as error:
        # not the error: it holds this frame, which only the garbage collector would free
        problem = str(error)
    if where == "whole":
        raise NotJson(problem)
    rest = after_think(text)
    if rest is None:
        raise NotJson("the thinking never ends")
    if (opened := _last_answer(rest)) is not None:
        rest = rest[opened:].partition("</answer>")[0]
    try:
        return loads(rest)
    except NotJson as error:
        problem = str(error)
    blocks = code_blocks(rest)
    named = [block for block in blocks if block[0] in (*_JSON, *_SCRIPT)]
    for language, content in reversed(named or blocks):
        try:
            return loads(content)
        except NotJson as error:
            problem = str(error)
            if language in _JSON:
                break
    if where == "anywhere" and not named and (value := _last_value(rest)) is not _MISSING:
        return value
    raise NotJson(problem)


_JSON, _SCRIPT = ("json", "json5", "jsonc"), ("javascript", "js")
"""Languages of fences: the last block in one of the first must be JSON, one in the second may be."""


def _last_answer(text: str) -> int | None:
    """Return where the last `<answer>` begins that is not within quotes; None without one."""
    return max((found.end() for found in re.finditer(r"(?<![\"'`])<answer>", text)), default=None)


@reads_rollout
def loads(text: str) -> Any:
    """Parse strict JSON. Raises NotJson, or RolloutError if it is nested too deep."""
    text = text.strip().removeprefix("\ufeff")
    if not text:
        raise NotJson("it is empty")
    try:
        return json.loads(text, parse_constant=_no_constant, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise NotJson(f"line {error.lineno}, column {error.colno}: {error.msg}") from None


def _no_constant(name: str) -> Any:
    raise NotJson(f"{name} is not JSON")


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise RolloutError(f"a number of {len(text)} digits")
    return int(text)


@reads_rollout
def _last_value(text: str) -> Any:
    """Return the last outermost object or array in *text*; `_MISSING` without one."""
    decoder = json.JSONDecoder(parse_constant=_no_constant, parse_int=_integer)
    found: Any = _MISSING
    at = 0
    # what was read in vain is read again from the next bracket: bounded, so that nested ones take no quadratic time
    allowed = 20 * len(text) + 10_000
    opening = re.compile(r"[{\[]")
    while allowed > 0 and (match := opening.search(text, at)):
        try:
            found, at = decoder.raw_decode(text, match.start())
        except json.JSONDecodeError as error:
            at = match.end()
            allowed -= error.pos - match.start() + 10
        except NotJson:
            at = match.end()
            allowed -= len(text) - at
    return found


class JsonFormat(Rule):
    """Scores 1 if the response is JSON and fits the schema, if any; else 0.

    *where*: "fenced" (the whole answer, or a fenced block in it: the default), "whole" (only JSON, without a fence)
    or "anywhere"; see `read_json`. *schema*: a JSON Schema as a mapping, its file, or its dotted path in the
    rollout, such as "extra.schema". *kind*: "object" or "array"; other values then score 0. *partial*: with a
    schema, the score of JSON that does not fit. Broken JSON scores 0; it is not a failure. JSON nested too deep to be
    parsed fails, with cause "rollout". A schema with patterns, or from the rollout, is checked in a worker process.

    Abstains if a schema from the rollout is missing or not valid.

    Source: RFC 8259; JSON Schema as `jsonschema` checks it (draft as the schema says, else 2020-12).
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("response", "extra.schema")
    abstains = "the rollout's schema is missing or not valid"
    abstains_by_row = True
    only_form = True
    inline_limit = 200_000
    timeout_s = 10.0

    def __init__(
        self,
        *,
        where: Found = "fenced",
        schema: Mapping[str, Any] | str | None = None,
        kind: Literal["any", "object", "array"] = "any",
        partial: float = 0.0,
        name: str = "json",
    ) -> None:
        one_of(name, "where", where, FOUND)
        one_of(name, "kind", kind, ("any", "object", "array"))
        if not 0 <= partial < 1:
            raise ConfigError(
                f"{name}: partial is the score of JSON that does not fit, 0 to below 1, not {partial!r}"
            )
        self.name = name
        self.found_where: Found = where
        self.kind = kind
        self.partial = partial
        self.path: str | None = None
        self.schema: Any = None
        if schema is not None:
            self.libraries = (*self.libraries, needs(name, "jsonschema", "json"))
            self._take_schema(schema)
            self.inline_limit = 8_000
        elif where == "anywhere":
            self.inline_limit = 20_000
        slow = self.path is not None or (self.schema is not None and may_take_long(self.schema))
        self.where: Where = "process" if slow else "inline"

    def _take_schema(self, schema: Mapping[str, Any] | str) -> None:
        if isinstance(schema, str) and re.match(r"(?:extra|ground_truth)\b", schema):
            self.path = schema
            return
        if isinstance(schema, str):
            try:
                schema = json.loads(Path(schema).read_text("utf-8"))
            except OSError as error:
                raise ConfigError(
                    f"{self.name}: cannot read the schema {schema} ({error.strerror}); or give a path in the rollout, "
                    "such as extra.schema"
                ) from None
            except ValueError as error:
                raise ConfigError(f"{self.name}: the schema {schema} is not JSON: {error}") from None
        if problem := schema_problem(schema):
            raise ConfigError(f"{self.name}: the schema is not valid: {problem}")
        self.schema = schema

    @reads_rollout
    def grade(self, rollout: Rollout, /) -> Grade:
        schema = self.schema
        if self.path is not None:
            schema = without_nulls(as_python(look_up(rollout, self.path, None)))
            if isinstance(schema, str):
                try:
                    schema = json.loads(schema)
                except ValueError:
                    schema = None
            if not isinstance(schema, Mapping | bool):
                return Abstained(f"there is no schema at {self.path}")
            if problem := schema_problem(schema):
                return Abstained(f"the schema at {self.path} is not valid: {problem}")
        try:
            value = read_json(rollout.response, self.found_where)
        except NotJson as error:
            return Graded(0.0, f"no JSON: {error}")
        if self.kind != "any" and not isinstance(value, dict if self.kind == "object" else list):
            return Graded(0.0, f"{type(value).__name__} instead of an {self.kind}")
        if schema is None or (problem := misfit(value, schema)) is None:
            return Graded(1.0)
        return Graded(self.partial, f"does not fit the schema: {problem}")


def may_take_long(schema: Any) -> bool:
    """Whether a short hostile text may take the schema's check forever. None: the schema is not known.

    Patterns may backtrack, references recurse (two branches at each level double the work), and unique items are
    compared in pairs.
    """
    if schema is None:
        return True
    text = json.dumps(schema, default=str)
    words = ("pattern", "$ref", "$dynamicRef", "$recursiveRef", "uniqueItems")
    return any(word in text for word in words)


def schema_problem(schema: Any) -> str | None:
    import jsonschema

    if not isinstance(schema, Mapping | bool):
        return f"a schema is a mapping, not {type(schema).__name__}"
    try:
        jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator).check_schema(schema)
    except jsonschema.SchemaError as error:
        return str(error.message)[:200]
    return None


def misfit(value: Any, schema: Any) -> str | None:
    """Return why *value* does not fit; None if it does."""
    import jsonschema
    from referencing import Registry  # never fetch referenced schemas

    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    try:
        error = next(kind(schema, registry=Registry()).iter_errors(value), None)
    except (ArithmeticError, ValueError):  # multipleOf of infinity, NaN or 10**400
        return "a number is too large to check"
    if error is None:
        return None
    place = "/".join(str(part) for part in error.absolute_path)
    return f"{place + ': ' if place else ''}{error.message}"[:200]


class JsonMatch(Rule):
    """Scores how well the response's JSON matches the reference's, 0 to 1.

    *where*: see `read_json`. *score*: "exact" (1 if equal, else 0), or "leaves": F1 over the leaves, each a path
    and its value. *list_order*: False ignores the order of lists; for leaves, their items are paired so that most are right. *extra_keys*: "wrong", or "fine": ignore keys that
    the reference does not have. *tolerance*: largest relative difference of equal numbers. *ignore_case*: compare
    texts without case (space around them never counts). *number_texts*: "5" equals 5. *only*: compare only these
    keys of the top-level object.

    The reference is JSON text or a value; a list is one reference, not several. A null in a value is an absent key, as
    Arrow fills structs; in JSON text it is a null. A response without JSON scores 0.
    Abstains if the reference is not JSON.

    Source: deep equality as OpenJudge's `JsonMatchGrader` (strict_order, ignore_extra_keys); leaves as in
    field-level F1 of information extraction.
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("response", "ground_truth")
    abstains = "the reference is not JSON"
    abstains_by_row = True
    inline_limit = 50_000
    timeout_s = 10.0

    def __init__(
        self,
        *,
        where: Found = "fenced",
        score: Literal["exact", "leaves"] = "exact",
        list_order: bool = True,
        extra_keys: Literal["wrong", "fine"] = "wrong",
        tolerance: float = 0.0,
        ignore_case: bool = False,
        number_texts: bool = False,
        only: Sequence[str] = (),
        name: str = "json_match",
    ) -> None:
        one_of(name, "where", where, FOUND)
        one_of(name, "score", score, ("exact", "leaves"))
        one_of(name, "extra_keys", extra_keys, ("wrong", "fine"))
        at_least(name, "tolerance", tolerance, 0)
        self.name = name
        self.found_where: Found = where
        self.score = score
        self.list_order = list_order
        self.extra_keys = extra_keys
        self.tolerance = tolerance
        self.ignore_case = ignore_case
        self.number_texts = number_texts
        # without order, all pairs are compared
        self.where: Where = "inline" if list_order else "process"
        if where == "anywhere":
            self.inline_limit = 20_000
        self.only = tuple([only] if isinstance(only, str) else only)

    @reads_rollout
    def grade(self, rollout: Rollout, /) -> Grade:
        wanted = as_python(rollout.ground_truth)
        if wanted is None:
            return Abstained("there is no reference")
        if isinstance(wanted, str):
            try:
                wanted = read_json(wanted, "fenced")
            except (NotJson, RolloutError) as error:
                return Abstained(f"the reference is not JSON: {error}")
        try:
            given = read_json(rollout.response, self.found_where)
        except NotJson as error:
            return Graded(0.0, f"no JSON: {error}")
        if not isinstance(rollout.ground_truth, str):
            # a struct's absent keys are stored as nulls, if another row has them
            wanted, given = without_nulls(wanted), without_nulls(given)
        if self.only:
            if not isinstance(wanted, Mapping):
                return Abstained("the reference is not an object, so it has none of the keys to compare")
            wanted = {key: wanted[key] for key in self.only if key in wanted}
            if not wanted:
                return Abstained("the reference has none of the keys to compare")
            given = {k: given[k] for k in self.only if k in given} if isinstance(given, Mapping) else given
        if self.score == "exact":
            place = self._difference(given, wanted, "", [_MOST_PAIRINGS])
            return Graded(1.0) if place is None else Graded(0.0, f"differs at {place or 'the top'}"[:200])
        return self._leaves(given, wanted)

    def _difference(self, given: Any, wanted: Any, place: str, left: list[int]) -> str | None:
        """Return the path of the first difference; None if there is none. *left*: comparisons that pairings may take yet."""
        if isinstance(wanted, Mapping) and isinstance(given, Mapping):
            for key, value in wanted.items():
                if key not in given:
                    return f"{place}/{key}"
                if (found := self._difference(given[key], value, f"{place}/{key}", left)) is not None:
                    return found
            if self.extra_keys == "wrong" and (extra := [k for k in given if k not in wanted]):
                return f"{place}/{extra[0]}"
            return None
        if isinstance(wanted, list | tuple) and isinstance(given, list):
            if len(given) != len(wanted):
                return place
            if not self.list_order:
                return self._unordered(given, wanted, place, left)
            for i, (a, b) in enumerate(zip(given, wanted, strict=True)):
                if (found := self._difference(a, b, f"{place}/{i}", left)) is not None:
                    return found
            return None
        return None if self._same(given, wanted) else place

    def _unordered(
        self, given: Sequence[Any], wanted: Sequence[Any], place: str, left: list[int]
    ) -> str | None:
        free = list(given)
        for i, value in enumerate(wanted):
            match = next(
                (j for j, a in enumerate(free) if self._difference(a, value, "", left) is None), None
            )
            if match is None:
                return None if self._pair_otherwise(given, wanted, i, left) else f"{place}/{i}"
            del free[match]
        return None

    def _pair_otherwise(
        self, given: Sequence[Any], wanted: Sequence[Any], alone: int, left: list[int]
    ) -> bool:
        """Whether all fit in another pairing, where item *alone* has found none: one that it fits may fit others, too."""
        if not (self.extra_keys == "fine" or self.tolerance or self.number_texts):
            return False
        left[0] -= len(given) * (len(wanted) + 1)
        if left[0] < 0 or all(self._difference(one, wanted[alone], "", left) is not None for one in given):
            return False
        fits = [[float(self._difference(one, value, "", left) is None) for one in given] for value in wanted]
        return None not in best_pairs(fits)

    def _same(self, given: Any, wanted: Any) -> bool:
        if self.number_texts and isinstance(given, str) != isinstance(wanted, str):
            given, wanted = _number(given), _number(wanted)
        if isinstance(given, bool) or isinstance(wanted, bool) or given is None or wanted is None:
            return given is wanted
        if isinstance(given, int | float) and isinstance(wanted, int | float):
            if given == wanted:
                return True
            try:
                return bool(self.tolerance) and math.isclose(given, wanted, rel_tol=self.tolerance)
            except OverflowError:
                return False
        if isinstance(given, str) and isinstance(wanted, str):
            a, b = given.strip(), wanted.strip()
            return a == b or (self.ignore_case and a.casefold() == b.casefold())
        return type(given) is type(wanted) and bool(given == wanted)

    def _leaves(self, given: Any, wanted: Any) -> Grade:
        have, want = _leaves_of(given), _leaves_of(wanted)
        total_have, total_want = have.total(), want.total()
        right = self._right(given, wanted)
        if self.extra_keys == "fine":
            # an item more in a list is no key
            total_have = sum(count for path, count in have.items() if path in want)
        score = 2 * right / (total_have + total_want)  # the harmonic mean of precision and recall
        return Graded(min(score, 1.0), f"{right} of {total_want} leaves")

    def _right(self, given: Any, wanted: Any) -> int:
        """Return how many leaves are in both; without order, lists are paired so that these are the most."""
        if isinstance(given, Mapping) and isinstance(wanted, Mapping) and wanted:
            return sum(self._right(given[key], value) for key, value in wanted.items() if key in given)
        if isinstance(given, list | tuple) and isinstance(wanted, list | tuple) and wanted:
            if self.list_order:
                return sum(map(self._right, given, wanted))
            alike = [[self._right(one, other) for other in wanted] for one in given]
            pairs = zip(alike, best_pairs(alike), strict=True)
            return sum(row[j] for row, j in pairs if j is not None)
        return int(self._same(given, wanted))


_MOST_PAIRINGS = 10_000
"""Comparisons of items that the pairings of one response may take; beyond, the first pairing counts."""


def _number(value: Any) -> Any:
    if not isinstance(value, str) or len(value) > 100:
        return value
    try:
        if re.fullmatch(r"\s*[+-]?\d+\s*", value):
            return int(value)  # an id may be longer than floats are exact
        number = float(value)
    except ValueError:
        return value
    return number if math.isfinite(number) else value


def _leaves_of(value: Any) -> Counter[tuple[Any, ...]]:
    """Count the leaves by their paths, in which the items of a list are one. Empty containers are leaves."""
    found = Counter[tuple[Any, ...]]()
    left: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while left:
        path, part = left.pop()
        if len(path) > 1000:
            raise RolloutError("JSON nested more than 1,000 deep")
        if isinstance(part, Mapping) and part:
            left += [((*path, key), inner) for key, inner in part.items()]
        elif isinstance(part, list | tuple) and part:
            left += [((*path, None), inner) for inner in part]
        else:
            found[path] += 1
    return found
