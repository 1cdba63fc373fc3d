"""Rules that compare tool calls with a reference: tools, arguments, order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from judgekit.errors import ConfigError, reads_rollout
from judgekit.graders.protocol import Per
from judgekit.graders.rules.agents import bfcl
from judgekit.graders.rules.agents.expected import AnyOf, Expected, Fields, Positional, expected_calls
from judgekit.graders.rules.agents.trajectory import by_turn, read_trajectory
from judgekit.graders.rules.calls import Call, Untyped, canonical
from judgekit.graders.rules.pairs import best_pairs
from judgekit.graders.rules.rule import one_of
from judgekit.graders.rules.stored import without_nulls
from judgekit.graders.rules.work import Paced, Work, calls_of
from judgekit.types import Abstained, Grade, Graded, Rollout, look_up

Arguments = Literal["exact", "subset", "partial", "ignore"]
ARGUMENTS = ("exact", "subset", "partial", "ignore")


class _Compared(Paced):
    """Base of the graders below: finds the reference, and compares two calls."""

    score_range = (0.0, 1.0)
    version = "1"
    inputs: tuple[str, ...] = ("messages", "response", "ground_truth")
    abstains = "the reference holds no calls"
    inline_limit = 40_000
    timeout_s = 10.0

    def __init__(
        self,
        name: str,
        reference: str,
        arguments: Arguments,
        ignore_case: bool,
        text: Literal["exact", "standardised"] = "exact",
    ) -> None:
        one_of(name, "arguments", arguments, ARGUMENTS)
        one_of(name, "text", text, ("exact", "standardised"))
        self.text = text
        if not isinstance(reference, str) or not reference:
            raise ConfigError(
                f"{name}: reference is the dotted path of the reference's calls, such as extra.calls"
            )
        self.name = name
        self.reference = reference
        self.arguments: Arguments = arguments
        self.ignore_case = ignore_case

    def read(self, rollout: Rollout) -> tuple[list[Call], list[Expected]] | Abstained:
        wanted = expected_calls(look_up(rollout, self.reference, None))
        if wanted is None:
            return Abstained(f"{self.reference} holds no calls")
        return read_trajectory(rollout).calls, wanted

    def work(self, rollout: Rollout) -> Work:
        calls, reference = calls_of(rollout), look_up(rollout, self.reference, None)
        wanted = reference.count("{") + 1 if isinstance(reference, str) else 1
        wanted = len(reference) if isinstance(reference, list | tuple) else wanted
        return Work(max(calls, wanted), calls * wanted)

    def by_name(self, wanted: Sequence[Expected]) -> dict[str, list[tuple[int, Expected]]]:
        """Index the reference's calls by the names of their forms."""
        found: dict[str, list[tuple[int, Expected]]] = {}
        for j, expected in enumerate(wanted):
            for name in {self._name(form[0]) for form in expected.forms}:
                found.setdefault(name, []).append((j, expected))
        return found

    def alike(self, call: Call, expected: Expected) -> float:
        """Compare two calls: 1 if equal, 0 if not; with "partial", the share of right arguments."""
        given = without_nulls(call.arguments) if expected.filled else call.arguments
        return max(self._form(call.name, given, *form) for form in expected.forms)

    def _form(self, called: str, given: Any, name: str, arguments: Any, optional: frozenset[str]) -> float:
        if self._name(called) != self._name(name):
            return 0.0
        if self.arguments == "ignore":
            return 1.0
        if not isinstance(arguments, Mapping) or not isinstance(given, Mapping):
            return float(self._same(given, arguments))
        if isinstance(arguments, Positional):
            arguments = arguments.named(given)
        missing = arguments.keys() - given.keys() - optional
        extra = 0 if self.arguments == "subset" else len(given.keys() - arguments.keys())
        common = [k for k in arguments if k in given]
        if self.arguments != "partial":
            return float(
                not missing and not extra and all(self._same(given[k], arguments[k]) for k in common)
            )
        everything = len(common) + len(missing) + extra
        right = sum(self._same(given[k], arguments[k]) for k in common)
        return right / everything if everything else 1.0

    def _same(self, given: Any, wanted: Any) -> bool:
        if isinstance(wanted, AnyOf):
            return any(self._same(given, value) for value in wanted)
        if isinstance(given, Untyped) or isinstance(wanted, Untyped):
            return any(self._same(one, other) for one in _meanings(given) for other in _meanings(wanted))
        if isinstance(wanted, Fields):
            return isinstance(given, Mapping) and self._fields(given, wanted)
        if isinstance(wanted, list) and any(isinstance(v, Fields) for v in wanted):
            return (
                isinstance(given, list | tuple)
                and len(given) == len(wanted)
                and all(map(self._same, given, wanted))
            )
        if self.text == "standardised":
            given, wanted = _standardised(given), _standardised(wanted)
        return _equal(given, wanted, self.ignore_case)

    def _fields(self, given: Mapping[str, Any], wanted: Fields) -> bool:
        return (
            not set(given) - set(wanted)
            and all(k in given or k in wanted.optional for k in wanted)
            and all(self._same(given[k], v) for k, v in wanted.items() if k in given)
        )

    def _name(self, text: str) -> str:
        return text.strip().casefold() if self.ignore_case else text.strip()


def _meanings(value: Any) -> tuple[Any, ...]:
    """Return the values that one without quotes may be."""
    return (str(value), value.read()) if isinstance(value, Untyped) else (value,)


def _equal(given: Any, wanted: Any, ignore_case: bool) -> bool:
    """Whether two values are written alike: numbers by value, texts without space around them."""
    kind = type(given)
    # most values are integers and texts, and thousands of pairs are compared
    if kind is type(wanted) and kind is int:
        return bool(given == wanted)
    if kind is type(wanted) and kind is str:
        one, other = given.strip(), wanted.strip()
    elif isinstance(given, bool) != isinstance(wanted, bool):
        return False
    else:
        one, other = canonical(given), canonical(wanted)
    return bool(one == other or (ignore_case and one.casefold() == other.casefold()))


@reads_rollout
def _standardised(value: Any) -> Any:
    """BFCL's `standardize_string`, for all texts in *value*."""
    if isinstance(value, str):
        return re.sub(r"[ ,./\-_*^]", "", value).lower().replace("'", '"')
    if isinstance(value, Mapping):
        return {k: _standardised(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_standardised(v) for v in value]
    return value


class ToolCallMatch(_Compared):
    """Scores how well tool calls match the reference's, in any order, 0 to 1.

    *of*: "f1", "precision" (share of the calls made that are in the reference), "recall" (share of the reference's
    calls that were made), "exact" (1 if all of them and no others were made), "recall_all" (1 if all were made).
    Each call matches at most one of the reference's; the best pairing counts. *arguments*: "exact"; "subset" (extra
    arguments are fine); "partial" (a call counts by the share of its arguments that are right); "ignore" (only
    names). Numbers are compared by value, texts without space around them; *ignore_case*: without case. *text*:
    "standardised" compares them without case, spaces and punctuation.

    *checks*: "bfcl" compares as BFCL's AST checker does, with arguments of the types in *tools* (tool definitions, or
    their dotted path in the rollout) and the literals of *language* ("python", "java" or "javascript"); see
    `judgekit.graders.rules.agents.bfcl`. The reference is then BFCL's `possible_answer`, *arguments*, *ignore_case* and *text*
    have no meaning, and `of: exact` is BFCL's verdict for its simple, multiple, parallel and irrelevance categories.

    *per*: "turn" also says of each turn which share of its calls match the reference's; of a turn without calls, nothing.

    *reference*: dotted path of the reference's calls; see `expected_calls` for its formats, including alternatives
    and optional arguments. An empty reference expects no calls. Abstains without a reference.

    Source: precision, recall and exact match over calls as in Vertex AI's trajectory metrics (any-order) and
    T-Eval; accepted values per argument as in BFCL's `possible_answer`.
    """

    def __init__(
        self,
        *,
        of: Literal["f1", "precision", "recall", "exact", "recall_all"] = "f1",
        arguments: Arguments = "exact",
        ignore_case: bool = False,
        text: Literal["exact", "standardised"] = "exact",
        checks: Literal["judgekit", "bfcl"] = "judgekit",
        tools: Sequence[Mapping[str, Any]] | str = "extra.tools",
        language: bfcl.Language = "python",
        reference: str = "ground_truth",
        per: Per = "rollout",
        name: str = "tool_calls",
    ) -> None:
        super().__init__(name, reference, arguments, ignore_case, text)
        one_of(name, "per", per, get_args(Per))
        self.gives_turns = per == "turn"
        one_of(name, "of", of, ("f1", "precision", "recall", "exact", "recall_all"))
        one_of(name, "checks", checks, ("judgekit", "bfcl"))
        one_of(name, "language", language, bfcl.LANGUAGES)
        if checks == "bfcl" and (arguments != "exact" or ignore_case or text != "exact"):
            raise ConfigError(
                f"{name}: checks='bfcl' compares arguments as BFCL does: leave out arguments, ignore_case and text"
            )
        if checks == "judgekit" and language != "python":
            raise ConfigError(f"{name}: language={language!r} is for checks='bfcl'")
        self.of = of
        self.checks = checks
        self.tools = tools
        self.language: bfcl.Language = language

    def here(self, rollout: Rollout) -> Grade:
        if self.checks == "bfcl":
            answers = bfcl.answers(look_up(rollout, self.reference, None))
            if answers is None:
                return Abstained(f"{self.reference} holds no possible_answer of BFCL")
            tools = look_up(rollout, self.tools, None) if isinstance(self.tools, str) else self.tools
            documents = bfcl.documents(tools)
            calls = read_trajectory(rollout).calls
            known: dict[str, list[int]] = {}
            fits = []
            for call in calls:
                key = _key(call)
                if key not in known:
                    known[key] = [
                        j
                        for j, answer in enumerate(answers)
                        if bfcl.fits(call, answer, documents, self.language)
                    ]
                fits.append(known[key])
            return self._score(rollout, calls, _paired(fits), len(answers))
        read = self.read(rollout)
        if isinstance(read, Abstained):
            return read
        calls, wanted = read
        return self._score(rollout, calls, self._matches(calls, wanted), len(wanted))

    def _score(self, rollout: Rollout, calls: Sequence[Call], matches: Sequence[float], wanted: int) -> Grade:
        score, reason = self._of(sum(matches), len(calls), wanted)
        return Graded(score, reason, turns=by_turn(rollout, calls, matches) if self.gives_turns else None)

    def _of(self, matched: float, made: int, wanted: int) -> tuple[float, str]:
        reason = f"{matched:g} of {wanted} calls of the reference, {made} made"
        if self.of in ("exact", "recall_all"):
            whole = matched >= wanted - 1e-9 and (self.of == "recall_all" or made == wanted)
            return float(whole), reason
        if not made and not wanted:
            return 1.0, "no calls, as asked for"
        precision = matched / made if made else 0.0
        recall = matched / wanted if wanted else float(self.of == "recall")
        if self.of == "precision":
            # without calls none is wrong, but none is right either
            return precision, reason
        if self.of == "recall":
            return recall, reason
        score = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        return min(score, 1.0), reason

    def _matches(self, calls: Sequence[Call], wanted: Sequence[Expected]) -> list[float]:
        """Return how well each call matches the one of the reference with which it is paired, each used once."""
        if self.arguments == "partial":
            by_name, rows = self.by_name(wanted), dict[str, list[float]]()
            for call in calls:
                if (key := _key(call)) not in rows:
                    rows[key] = [0.0] * len(wanted)
                    for j, expected in by_name.get(self._name(call.name), ()):
                        rows[key][j] = self.alike(call, expected)
            alike = [rows[_key(call)] for call in calls]
            return [0.0 if j is None else row[j] for row, j in zip(alike, best_pairs(alike), strict=True)]
        known: dict[str, list[int]] = {}
        by_name = self.by_name(wanted)
        return _paired([self._fitting(call, known, by_name) for call in calls])

    def _fitting(
        self, call: Call, known: dict[str, list[int]], by_name: Mapping[str, Sequence[tuple[int, Expected]]]
    ) -> list[int]:
        """Return which calls of the reference a call is; equal calls are compared once."""
        key = _key(call)
        if key not in known:
            known[key] = [
                j
                for j, expected in by_name.get(self._name(call.name), ())
                if self.alike(call, expected) == 1.0
            ]
        return known[key]


@reads_rollout
def _key(call: Call) -> str:
    """A key that two calls share only if they are written alike, types and order of arguments included."""
    return f"{call.name}\0{call.arguments!r}"


def _paired(options: Sequence[Sequence[int]]) -> list[float]:
    """Return 1 for each call that the largest matching pairs, else 0."""
    taken = set(_pairing(options).values())
    return [float(i in taken) for i in range(len(options))]


def _pairing(options: Sequence[Sequence[int]]) -> dict[int, int]:
    """Find the largest matching by augmenting paths, without recursion."""
    owner: dict[int, int] = {}
    free = {j for some in options for j in some}
    for start in range(len(options)):
        if len(owner) == len(free):
            break  # all are taken
        came: dict[int, int] = {}
        left = [start]
        end: int | None = None
        seen: set[int] = set()
        while left and end is None:
            i = left.pop()
            for j in options[i]:
                if j in seen:
                    continue
                seen.add(j)
                came[j] = i
                if j not in owner:
                    end = j
                    break
                left.append(owner[j])
        while end is not None:
            i = came[end]
            before = next((j for j, who in owner.items() if who == i), None)
            owner[end] = i
            end = None if i == start else before
    return owner


class StepSequence(_Compared):
    """Scores how well tool calls follow the reference's order, 0 to 1.

    *of*: "f1", "precision" or "recall" of the longest common subsequence of calls; "in_order" (1 if all of the
    reference's calls were made in its order, with others between them allowed); "exact" (1 if the calls equal the
    reference's, one by one); "prefix" (share of the reference that was followed before the first deviation).
    *arguments*: "ignore" (the default: a step is the tool's name), "exact" or "subset"; *ignore_case* and
    *reference* as in `ToolCallMatch`. If neither side has steps the score is 1. Abstains without a
    reference.

    Source: exact and in-order match as in Vertex AI's trajectory metrics; the subsequence as in ROUGE-L
    (Lin 2004) over calls.
    """

    def __init__(
        self,
        *,
        of: Literal["f1", "precision", "recall", "in_order", "exact", "prefix"] = "f1",
        arguments: Literal["exact", "subset", "ignore"] = "ignore",
        ignore_case: bool = False,
        reference: str = "ground_truth",
        name: str = "step_sequence",
    ) -> None:
        one_of(name, "arguments", arguments, ("exact", "subset", "ignore"))
        super().__init__(name, reference, arguments, ignore_case)
        one_of(name, "of", of, ("f1", "precision", "recall", "in_order", "exact", "prefix"))
        self.of = of

    def here(self, rollout: Rollout) -> Grade:
        read = self.read(rollout)
        if isinstance(read, Abstained):
            return read
        calls, wanted = read
        if not wanted:
            return Graded(float(not calls or self.of in ("in_order", "recall", "prefix")))
        by_name, known = self.by_name(wanted), dict[str, int]()
        fits: list[int] = []
        for call in calls:
            key = call.name if self.arguments == "ignore" else _key(call)
            if key not in known:
                same = by_name.get(self._name(call.name), ())
                known[key] = sum(1 << j for j, expected in same if self.alike(call, expected) == 1.0)
            fits.append(known[key])
        if self.of == "exact":
            return Graded(
                float(len(calls) == len(wanted) and all(fit >> i & 1 for i, fit in enumerate(fits)))
            )
        if self.of == "prefix":
            kept = 0
            while kept < min(len(calls), len(wanted)) and fits[kept] >> kept & 1:
                kept += 1
            return Graded(kept / len(wanted), f"{kept} of {len(wanted)} steps before the first deviation")
        common = _common(fits, len(wanted))
        reason = f"{common} of {len(wanted)} steps in order, {len(calls)} made"
        if self.of == "in_order":
            return Graded(float(common == len(wanted)), reason)
        precision = common / len(calls) if calls else 0.0
        recall = common / len(wanted)
        if self.of == "precision":
            return Graded(precision, reason)
        if self.of == "recall":
            return Graded(recall, reason)
        return Graded(2 * precision * recall / (precision + recall) if common else 0.0, reason)


def _common(fits: Sequence[int], size: int) -> int:
    """Return the longest common subsequence's length; bit j of a call's *fit*: it matches step j.

    Bit-parallel (Hyyrö 2004): one row of the table is one integer.
    """
    whole = (1 << size) - 1
    row = whole
    for fit in fits:
        both = row & fit
        row = ((row + both) | (row - both)) & whole
    return size - row.bit_count()
