"""The tool of run_trajectory.sh: verl's agent loop calls it with what the policy writes."""

from __future__ import annotations

import ast
import operator

from verl.tools.function_tool import function_tool

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


@function_tool
def calculate(expression: str) -> str:
    """Calculate an arithmetic expression.

    Args:
        expression: Numbers, + - * / and brackets, such as "(48 + 24) / 2".
    """
    try:
        return f"{_value(ast.parse(expression[:200], mode='eval').body):g}"
    except (ArithmeticError, KeyError, RecursionError, SyntaxError, ValueError) as error:
        return f"cannot calculate that: {error}"


def _value(node: ast.AST) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.BinOp):
        return float(_OPERATORS[type(node.op)](_value(node.left), _value(node.right)))
    if isinstance(node, ast.UnaryOp):
        return float(_OPERATORS[type(node.op)](_value(node.operand)))
    raise ValueError(f"{type(node).__name__} is not arithmetic")
