"""Which arguments of the rules are refused, by which sentence, and which are taken.

`arguments.json` has, for each rule and each of its parameters, what is said of odd values. After a change that is meant,
`python -m tests.graders.test_arguments` writes it anew: read the diff.
"""

from __future__ import annotations

import inspect
import json
import math
from pathlib import Path
from typing import Any

import pytest

from judgekit import ConfigError

from .registered import class_of

TABLE = Path(__file__).with_name("arguments.json")
ODD: tuple[Any, ...] = (-1, 0, 1, 3, 0.5, 2.5, "x", "a.b", None, True, [], ["x"], {}, math.inf, math.nan)
BESIDE: dict[str, dict[str, Any]] = {
    "soft_overlong": {"max_length": 20, "cache": 5},
    "regex": {"pattern": "a"},
    "length": {"soft_max": 10, "hard_max": 20},
    "script": {"language": "en"},
}
"""What a rule cannot do without."""
FINE = "fine"


def saying(rule: str, parameter: str) -> dict[str, str]:
    """What is said of each odd value, by how it is written. Values of a type that the reader of reward.yaml refuses are left out."""
    found = {}
    for value in ODD:
        try:
            class_of(rule)(**{**BESIDE.get(rule, {}), parameter: value})
        except ConfigError as error:
            found[repr(value)] = str(error)
        except TypeError:
            continue
        else:
            found[repr(value)] = FINE
    return found


def parameters(rule: str) -> list[str]:
    signature = inspect.signature(class_of(rule).__init__)
    return [key for key in signature.parameters if key not in ("self", "name", "count_tokens")]


def table() -> dict[str, dict[str, dict[str, str]]]:
    return dict(json.loads(TABLE.read_text()))


@pytest.mark.parametrize("rule", table())
def test_what_is_said_of_arguments_has_not_changed(rule: str) -> None:
    expected = table()[rule]
    assert set(expected) == set(parameters(rule))
    for parameter, said in expected.items():
        assert saying(rule, parameter) == said, parameter


if __name__ == "__main__":
    made = {rule: {parameter: saying(rule, parameter) for parameter in parameters(rule)} for rule in table()}
    TABLE.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
