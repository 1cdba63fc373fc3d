"""YAML for configuration, with nothing guessed.

Plain scalars follow YAML 1.2: `yes`, `no`, `on` and dates are text, 010 is ten, 1e-3 is a number. Keys are text
and unique. `${NAME}` and `${NAME:-default}` are environment variables, `$${` is a literal `${`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

from judgekit.errors import ConfigError


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """Read a YAML file by the rules above. Raises ConfigError with file and line."""
    try:
        text = Path(path).read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    return parse_yaml(text, os.fspath(path))


def parse_yaml(text: str, path: str) -> Any:
    """Parse YAML text by the rules above. *path*: its name in errors. Raises ConfigError with the line."""
    try:
        return _Loader(text).loaded()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        text = " ".join(str(getattr(error, "problem", None) or error).split())
        if text == "but found another document":
            text = "a second document begins; one file holds one"
        tag = re.match("could not determine a constructor for the tag '(.*)'", text)
        if tag:
            text = f"the tag {tag[1]} is not known; write plain values"
        what = text if isinstance(error, _Fault) else f"not YAML ({text})"
        raise ConfigError(f"{path}{f', line {mark.line + 1}' if mark else ''}: {what}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    except (ValueError, LookupError, AttributeError) as error:  # an explicit tag that does not fit
        raise ConfigError(f"{path}: cannot be read ({error})") from None


class _Fault(yaml.MarkedYAMLError):
    """Valid YAML that is not allowed here."""


class _Loader(yaml.SafeLoader):
    """Loads YAML 1.2's plain scalars, environment variables, and unique text keys."""

    def __init__(self, text: str) -> None:
        self._variables: list[str] = []
        """What each variable's mark stands for: YAML itself would end `[${A:-1, 2}]` at the brace."""
        super().__init__(text if _BEGINS in text else _VARIABLE.sub(self._marked, text))

    def loaded(self) -> Any:
        """Return the document's data."""
        try:
            return self.get_single_data()
        finally:
            self.dispose()

    def _marked(self, match: re.Match[str]) -> str:
        if match[1] is None or "\n" in match[0]:
            return match[0]
        self._variables.append(match[0])
        return f"{_BEGINS}{len(self._variables) - 1}{_ENDS}"

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        if node in self.recursive_objects:
            raise _Fault(problem="an alias stands within what it names", problem_mark=node.start_mark)
        return super().construct_object(node, deep=True)  # PyYAML itself would make data that holds itself

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        # before the scalar is resolved, so that an unquoted `${N:-8}` is a number
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if self._variables:
            event.value = _MARK.sub(lambda match: self._variables[int(match[1])], event.value)
        event.value = _VARIABLE.sub(lambda match: _variable(match, event.start_mark), event.value)
        return super().compose_scalar_node(anchor)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        first: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _Fault(problem="a key is a name", problem_mark=key.start_mark)
            if key.value in first:
                text = f"the key {key.value!r} stands twice, first in line {first[key.value]}"
                raise _Fault(problem=text, problem_mark=key.start_mark)
            first[key.value] = key.start_mark.line + 1
            if key.tag != "tag:yaml.org,2002:merge":
                key.tag = "tag:yaml.org,2002:str"
        return node


_BEGINS, _ENDS = "\ue000", "\ue001"
_MARK = re.compile(f"{_BEGINS}([0-9]+){_ENDS}")
_VARIABLE = re.compile(r"\$(?:\$(?=\{)|\{([A-Za-z_]\w*)(?::-([^}]*))?\})")


def _variable(match: re.Match[str], mark: Any) -> str:
    name, default = match.groups()
    found = "$" if name is None else os.environ.get(name) or default
    if found is None:
        text = f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
        raise _Fault(problem=text, problem_mark=mark)
    return found


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern in {
    "null": "~|null|Null|NULL|",
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+",
    "float": r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    "merge": "<<",
}.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), None)
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))
