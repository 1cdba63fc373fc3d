"""Checks plain data from YAML against the types of parameters; converts nothing but a list to a tuple."""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import msgspec
import pydantic
from pydantic import ConfigDict

from judgekit.errors import ConfigError, MissingExtra, did_you_mean
from judgekit.graders.protocol import Grader
from judgekit.judges.base import Judge, RewardModel, Sampling
from judgekit.judges.layers.routes import JudgeRoutes
from judgekit.judges.verdicts.formats import VerdictFormat


def parameters_of(make: Any, where: str) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or a function. Raises ConfigError."""
    try:
        return inspect.signature(make).parameters
    except (TypeError, ValueError):  # a number, a built-in class
        raise ConfigError(f"{where}: {make!r:.80} is no class or function with parameters to set") from None


def hints_of(make: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the types of a callable's parameters; Any for those that cannot be resolved at run time."""
    kept = inspect.isclass(make) or inspect.isfunction(make)
    return _hints(make) if kept else _hints.__wrapped__(make)


@functools.lru_cache(maxsize=256)
def _hints(make: Callable[..., Any]) -> Mapping[str, Any]:
    is_class = inspect.isclass(make) and not issubclass(make, msgspec.Struct)
    target: Any = make.__init__ if is_class else make
    try:
        return typing.get_type_hints(target)
    except Exception:  # names that are imported for type checkers only
        names = {"Judge": Judge, "JudgeRoutes": JudgeRoutes, "VerdictFormat": VerdictFormat, "Grader": Grader}
        names |= {"RewardModel": RewardModel, "Sampling": Sampling, **getattr(target, "__globals__", {})}
        hints: dict[str, Any] = {}
        for name, text in inspect.get_annotations(target).items():
            try:
                hints[name] = eval(text, names) if isinstance(text, str) else text
            except Exception:
                hints[name] = Any
        return hints


def struct_of(hint: Any) -> type[msgspec.Struct] | None:
    """Return the Struct that a parameter of this type takes, written as a mapping in YAML; or None."""
    kinds = {*(typing.get_args(hint) or (hint,))} - {type(None)}
    kind = kinds.pop() if len(kinds) == 1 else None
    return kind if inspect.isclass(kind) and issubclass(kind, msgspec.Struct) else None


def checked(value: Any, hint: Any, where: str) -> Any:
    """Return *value* if it has the type *hint*. Converts nothing but a list to a tuple. Raises ConfigError."""
    if isinstance(value, float) and math.isnan(value):
        raise ConfigError(f"{where}: expected a number (got {value!r})")
    try:
        adapter = pydantic.TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True, strict=True))
    except (pydantic.PydanticSchemaGenerationError, pydantic.PydanticUserError):
        return value
    try:
        data = json.dumps(value)
    except (TypeError, ValueError):  # objects, from a RewardConfig that was made in Python
        data = None
    try:
        return adapter.validate_python(value) if data is None else adapter.validate_json(data)
    except pydantic.ValidationError as error:
        said = dict.fromkeys(p["msg"] for p in error.errors() if p["type"] not in _OF_PYTHON)
        text = " or ".join(m.removeprefix("Input should be ") for m in said) or "something else"
        text = _WORDS.sub(lambda match: _IN_YAML[match[0]], text)
        expected = "expected " if next(iter(said), "Input").startswith("Input") else ""
        raise ConfigError(f"{where}: {expected}{text} (got {value!r:.80})") from None


_OF_PYTHON: Final = ("is_instance_of", "needs_python_object")
"""Kinds of values that only Python has: nothing that a file could say instead."""
_IN_YAML: Final = {
    "an object": "a mapping",
    "a valid dictionary": "a mapping",
    "a valid array": "a list",
    "a valid string": "text",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid boolean": "true or false",
}
"""Pydantic's words in those of YAML."""
_WORDS: Final = re.compile("|".join(_IN_YAML))


def check_keys(given: Iterable[str], known: Collection[str], where: str) -> None:
    for key in given:
        if key not in known:
            raise ConfigError(f"{where}: there is no parameter {key!r}{did_you_mean(str(key), known)}")


def placed(error: ConfigError, where: str) -> ConfigError:
    """Return an error with its place in front."""
    if isinstance(error, MissingExtra):
        return MissingExtra(f"{where}: {error.reason}", error.extra)
    return ConfigError(f"{where}: {error}")
