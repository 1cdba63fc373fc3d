"""What goes wrong in code like this, one place at a time: the mutants of a module.

Some are of grammar (a comparison, a sign, a condition, a statement left out), some of the kind that people write: the
neighbour's value, swapped arguments, the wrong one of two variables, a lock, a `finally` or a check left out, an escaping
left out, another exception, another key. Messages, annotations and what is asserted for the type checker stay.
"""

from __future__ import annotations

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], str, str]] = {
    ast.Lt: (ast.LtE, "<", "<="),
    ast.LtE: (ast.Lt, "<=", "<"),
    ast.Gt: (ast.GtE, ">", ">="),
    ast.GtE: (ast.Gt, ">=", ">"),
    ast.Eq: (ast.NotEq, "==", "!="),
    ast.NotEq: (ast.Eq, "!=", "=="),
    ast.Is: (ast.IsNot, "is", "is not"),
    ast.IsNot: (ast.Is, "is not", "is"),
    ast.In: (ast.NotIn, "in", "not in"),
    ast.NotIn: (ast.In, "not in", "in"),
}
SIGNS: dict[type[ast.operator], tuple[type[ast.operator], str]] = {
    ast.Add: (ast.Sub, "+ → -"),
    ast.Sub: (ast.Add, "- → +"),
    ast.Mult: (ast.Div, "* → /"),
    ast.Div: (ast.Mult, "/ → *"),
}
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}
UNSEEN = ("__repr__", "__reduce__", "__str__", "__doc__", "__slots__", "__all__")
"""Functions and names that are for people, or that have another test."""
CHECKS = ("strict", "digest_size")
"""Arguments like an assertion, or of no meaning to anybody."""
GUARD = re.compile(r"lock|guard|limit|sem|gate|shield|suppress|cond|turn|slot|clean", re.IGNORECASE)
"""Names of what a block is entered through for safety's sake."""
ESCAPES = re.compile(r"escape|quote|fence|saniti|clean|neutral|strip|fold|normali|check", re.IGNORECASE)
"""Names of functions that make a text harmless, or like others."""
KEYED = ("get", "pop", "setdefault")


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: str
    """Its path under the package."""
    function: str
    line: int
    start: int
    end: int
    """Offsets of what is replaced, in the encoded source."""
    text: str
    what: str
    """The change in words; with the line's text it names the mutant in survivors.toml."""

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


class Mutator(ast.NodeVisitor):
    """Collects the mutants of one module in `found`."""

    def __init__(self, module: str, source: str) -> None:
        self.module = module
        self.found: list[Mutant] = []
        self._names: list[str] = []
        self._scopes: list[dict[str, str]] = []
        """Of each function around: its variables, and how they are annotated."""
        self._source = source.encode()
        self._lines = [0]
        for line in self._source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self.visit(ast.parse(source))

    def _add(self, node: Any, text: str | ast.AST | Sequence[ast.stmt], what: str) -> None:
        """Put *text*, an expression or statements, in the place of *node*."""
        if isinstance(text, ast.expr):
            text = f"({ast.unparse(text)})"
        elif isinstance(text, ast.AST):
            text = ast.unparse(text)
        elif not isinstance(text, str):
            text = "\n".join(ast.unparse(statement) for statement in text) or "pass"
        start = self._lines[node.lineno - 1] + node.col_offset
        end = self._lines[node.end_lineno - 1] + node.end_col_offset
        text = text.replace("\n", "\n" + " " * node.col_offset)
        name = ".".join(self._names) or "(module)"
        self.found.append(Mutant(self.module, name, node.lineno, start, end, text, what))

    # -- where not to look

    def _named(self, node: Any) -> None:
        if node.name in UNSEEN or _is_abstract(node):
            return
        self._names.append(node.name)
        arguments = getattr(node, "args", None)
        if arguments is not None:
            self._scopes.append(_variables(node))
            # no decorators, no annotations, and of the arguments only the defaults
            for default in [*arguments.defaults, *arguments.kw_defaults]:
                if default is not None:
                    self.visit(default)
        for statement in node.body:
            self.visit(statement)
        if arguments is not None:
            self._scopes.pop()
        self._names.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _named

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        """What is asserted is for the type checker."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A message."""

    # -- conditions

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            return
        leaves = isinstance(node.body[0], ast.Raise | ast.Return | ast.Continue)
        if leaves and len(node.body) == 1 and not node.orelse:
            self._add(node, "pass", "check left out")
        self._condition(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def _condition(self, test: ast.expr) -> None:
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.NamedExpr):
            self._add(test, ast.UnaryOp(ast.Not(), test), "condition negated")

    def visit_Compare(self, node: ast.Compare) -> None:
        for i, op in enumerate(node.ops):
            other, before, after = COMPARISONS[type(op)]
            ops = [*node.ops[:i], other(), *node.ops[i + 1 :]]
            self._add(node, ast.Compare(node.left, ops, node.comparators), f"{before} → {after}")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other, what = (ast.Or(), "and → or") if isinstance(node.op, ast.And) else (ast.And(), "or → and")
        self._add(node, ast.BoolOp(other, node.values), what)
        for i in range(len(node.values)):
            left = [*node.values[:i], *node.values[i + 1 :]]
            self._add(
                node, left[0] if len(left) == 1 else ast.BoolOp(node.op, left), f"part {i + 1} left out"
            )
        self.generic_visit(node)

    # -- values

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, node.operand, "not removed")
        elif isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
            self._add(node, node.operand, "minus removed")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = SIGNS.get(type(node.op))
        if other is not None and (isinstance(node.op, ast.Sub | ast.Div) or not _is_text(node)):
            self._add(node, ast.BinOp(node.left, other[0](), node.right), other[1])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._add(node, str(not value), f"{value} → {not value}")
        elif isinstance(value, int | float):
            if self._names or not value:  # ten times nothing is nothing
                self._add(node, f"({value!r} + 1)", f"{value!r} + 1")
            else:  # a setting
                self._add(node, f"({value!r} * 10)", f"{value!r} * 10")

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load) or not self._scopes or node.id in ("self", "cls"):
            return
        scope = self._scopes[-1]
        if node.id not in scope:
            return
        others = [name for name in scope if name not in (node.id, "self", "cls")]
        alike = [name for name in others if scope[name] and scope[name] == scope[node.id]]
        if others:
            place = blake2b(f"{node.id}|{node.col_offset}|{self._names}".encode(), digest_size=4).digest()
            chosen = (alike or others)[int.from_bytes(place) % len(alike or others)]
            self._add(node, chosen, f"{node.id} → {chosen}")

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Load):
            if isinstance(node.slice, ast.Name | ast.Attribute) and self._names:
                self._add(node.slice, f"{ast.unparse(node.slice)} - 1", "the neighbour's")
            self._key(node.slice)
        self.generic_visit(node)

    def _key(self, node: ast.AST | None) -> None:
        if self._names and isinstance(node, ast.Constant) and isinstance(node.value, str):
            self._add(node, repr(node.value + "_"), "another key")

    def visit_Dict(self, node: ast.Dict) -> None:
        for key in node.keys:
            self._key(key)
        self._elements(node, node.values)
        self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> None:
        if isinstance(node.ctx, ast.Load):
            self._elements(node, node.elts)
        self.generic_visit(node)

    def visit_Set(self, node: ast.Set) -> None:
        self._elements(node, node.elts)
        self.generic_visit(node)

    def _elements(self, node: Any, values: Sequence[ast.expr]) -> None:
        """A constant of the module that holds one thing fewer."""
        if (
            not self._names
            and len(values) > 1
            and all(isinstance(v, ast.Constant | ast.Tuple) for v in values)
        ):
            kept = (
                ast.Dict(node.keys[:-1], node.values[:-1])
                if isinstance(node, ast.Dict)
                else type(node)(values[:-1])
            )
            self._add(node, kept, "last one left out")

    # -- calls

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in TWINS:
            self._add(node.func, TWINS[node.func.id], f"{node.func.id} → {TWINS[node.func.id]}")
        if _is_message(node):
            return
        self._swapped(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        if ESCAPES.search(name) and len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
            self._add(node, node.args[0], f"{name} left out")
        elif ESCAPES.search(name) and not node.args and isinstance(node.func, ast.Attribute):
            self._add(node, node.func.value, f"{name} left out")
        if name == "zip" and len(node.args) == 2:
            self._add(node.args[1], f"reversed(list({ast.unparse(node.args[1])}))", "the neighbour's")
        if name in KEYED and node.args:
            self._key(node.args[0])
        self.visit(node.func)
        for value in [*node.args, *(k.value for k in node.keywords if k.arg not in CHECKS)]:
            self.visit(value)

    def _swapped(self, node: ast.Call) -> None:
        called = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if called in ("min", "max", "suppress") and len(node.args) > 1:
            return  # their order says nothing
        for i, (first, second) in enumerate(zip(node.args, node.args[1:], strict=False)):
            if isinstance(first, ast.Starred) or isinstance(second, ast.Starred):
                continue
            if ast.dump(first) != ast.dump(second):
                args = [*node.args[:i], second, first, *node.args[i + 2 :]]
                self._add(
                    node, ast.Call(node.func, args, node.keywords), f"arguments {i + 1} and {i + 2} swapped"
                )

    # -- statements

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not _is_none(node.value):
            self._add(node, "return None", "return None")
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and not _is_message(call):
            self._add(node, "pass", "call removed")
            if isinstance(node.value, ast.Await):
                self._add(node, ast.Expr(call), "await left out")
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self._names and all(
            isinstance(t, ast.Attribute | ast.Subscript | ast.Tuple) for t in node.targets
        ):
            init = self._names[-1] == "__init__"  # without its attributes nothing works: no news
            if not init and not any(_binds_name(t) for t in node.targets):
                self._add(node, "pass", "assignment removed")
        elif any(isinstance(t, ast.Name) and t.id in UNSEEN for t in node.targets):
            return
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "pass", "assignment removed")
        self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(node, "pass", "raise removed")
        if isinstance(node.exc, ast.Call) and ast.unparse(node.exc.func).endswith("Error"):
            other = "ValueError" if ast.unparse(node.exc.func) == "RuntimeError" else "RuntimeError"
            self._add(node.exc.func, other, "another exception")

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "pass", "break removed")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "pass", "continue removed")

    def visit_Try(self, node: ast.Try) -> None:
        if node.finalbody:
            kept = [ast.Try(node.body, node.handlers, node.orelse, [])] if node.handlers else node.body
            self._add(node, kept, "finally left out")
        for i, handler in enumerate(node.handlers):
            if (
                len(handler.body) == 1
                and isinstance(handler.body[0], ast.Raise)
                and handler.body[0].exc is None
            ):
                continue
            left = [*node.handlers[:i], *node.handlers[i + 1 :]]
            whole = left or node.finalbody
            kept = (
                [ast.Try(node.body, left, node.orelse, node.finalbody)]
                if whole
                else [*node.body, *node.orelse]
            )
            self._add(node, kept, f"except {i + 1} left out")
            if isinstance(handler.type, ast.Tuple):
                for caught in handler.type.elts:
                    fewer = [other for other in handler.type.elts if other is not caught]
                    self._add(
                        handler.type, ast.Tuple(fewer, ast.Load()), f"{ast.unparse(caught)} is not caught"
                    )
        self.generic_visit(node)

    def _with(self, node: Any) -> None:
        named = any(item.optional_vars is not None for item in node.items)
        if not named and any(GUARD.search(ast.unparse(item.context_expr)) for item in node.items):
            self._add(node, node.body, "with left out")
            if len(node.body) > 1:
                later = type(node)(node.items, node.body[1:], lineno=node.lineno)
                self._add(node, [node.body[0], later], "entered later")
        self.generic_visit(node)

    visit_With = visit_AsyncWith = _with


def _variables(node: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, str]:
    """A function's arguments and variables, each with its annotation."""
    given = node.args
    found = {
        a.arg: ast.unparse(a.annotation) if a.annotation else ""
        for a in [*given.posonlyargs, *given.args, *given.kwonlyargs]
    }
    for inner in ast.walk(node):
        if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
            found[inner.target.id] = ast.unparse(inner.annotation)
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            found.setdefault(inner.id, "")
    return found


def _is_text(node: ast.BinOp) -> bool:
    """Whether either side is clearly text or a sequence, which cannot be subtracted."""
    kinds = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
    return any(
        isinstance(side, kinds) or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (node.left, node.right)
    )


def _is_abstract(node: Any) -> bool:
    """Whether a function is only there to be overridden."""
    last = node.body[-1]
    return (
        isinstance(last, ast.Raise)
        and last.exc is not None
        and "NotImplementedError" in ast.unparse(last.exc)
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_message(node: ast.Call) -> bool:
    """Whether the call only tells somebody something, or builds an error."""
    name = ast.unparse(node.func)
    return name.startswith(("logger.", "warnings.")) or name.endswith(("Error", "add_note"))


def _binds_name(target: ast.expr) -> bool:
    return isinstance(target, ast.Tuple) and any(isinstance(t, ast.Name) for t in target.elts)


def mutants_of(module: str, source: str) -> list[Mutant]:
    """Every mutant of a module, each once, that is a program."""
    found: dict[tuple[int, int, str], Mutant] = {}
    for mutant in Mutator(module, source).found:
        if mutant.text != source.encode()[mutant.start : mutant.end].decode():
            found.setdefault((mutant.start, mutant.end, mutant.text), mutant)
    return list(found.values())


def sample(mutants: Iterable[Mutant], count: int, seed: int) -> list[Mutant]:
    """So many of them: lines at random, each once before one comes twice; of a line any kind of change, then one of the kind."""
    chance = random.Random(seed)
    by_line: dict[tuple[str, int], dict[str, list[Mutant]]] = defaultdict(lambda: defaultdict(list))
    for mutant in mutants:
        kind = (
            "variable"
            if " → " in mutant.what and mutant.what.replace(" → ", "").isidentifier()
            else mutant.what
        )
        by_line[mutant.module, mutant.line][kind].append(mutant)
    lines = sorted(by_line)
    chosen: list[Mutant] = []
    while lines and len(chosen) < count:
        chance.shuffle(lines)
        for line in lines:
            kinds = by_line[line]
            kind = chance.choice(sorted(kinds))
            chosen.append(kinds[kind].pop(chance.randrange(len(kinds[kind]))))
            if not kinds[kind]:
                del kinds[kind]
            if len(chosen) == count:
                break
        lines = [line for line in lines if by_line[line]]
    return sorted(chosen, key=lambda m: (m.module, m.start, m.what))
