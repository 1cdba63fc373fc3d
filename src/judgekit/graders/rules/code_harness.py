"""Runs a rollout's code in the sandbox: `python -I harness.py` in the folder of its files.

Sets its own limits irrevocably, reports that it has started, and runs the program as described in `job.json`. The
secret that a result must contain is read only after the code has been loaded.
"""

import contextlib
import json
import os
import resource
import sys
from typing import Any


def main() -> None:
    with open("job.json", encoding="utf-8") as file:
        job = json.load(file)
    for name, value in job["limits"].items():
        limit = getattr(resource, name, None)
        if limit is not None:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(limit, (value, value))
    secret = os.dup(0)  # the secret comes on standard input, unless the program's input does
    if job["kind"] != "program":
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
    begun = job.get("begun")
    if begun is None:  # a sandbox service knows only files
        with open("begun", "w") as file:
            file.write("begun")
    else:  # the program that follows cannot take this back
        os.write(begun, b"1")
        os.close(begun)
    with open("code.py", encoding="utf-8", errors="surrogatepass") as file:
        source = file.read()
    sys.setrecursionlimit(20_000)
    sys.argv = ["code.py"]
    space: dict[str, Any] = {
        "__name__": "__main__" if job["kind"] == "program" else "code",
        "__builtins__": __builtins__,
    }
    exec(compile(source, "code.py", "exec"), space)
    if job["kind"] == "program":
        return
    if job["kind"] == "tests":
        exec(compile(job["tests"], "tests.py", "exec"), space)
        entry = job.get("entry")
        if entry and callable(space.get("check")):
            space["check"](space[entry])
        answer: Any = True
    else:
        answer = call(space, job["function"], job["arguments"])
    text = json.dumps(answer, default=plain)
    if len(text) > job["answer_bytes"]:
        raise ValueError(f"the answer has more than {job['answer_bytes'] >> 10} KiB")
    with os.fdopen(secret) as file:
        said = file.read()
    with open("answer.json", "w", encoding="utf-8") as file:
        file.write(f'{{"secret": {json.dumps(said)}, "answer": {text}}}')


def call(space: dict[str, Any], name: str, arguments: list[Any]) -> Any:
    function = space.get(name)
    if function is None and isinstance(space.get("Solution"), type):
        function = getattr(space["Solution"](), name, None)
    if function is None:
        raise NameError(f"the code defines no {name}")
    return function(*arguments)


def plain(value: Any) -> Any:
    """Convert values that JSON cannot represent: sets to sorted lists, other iterables to lists."""
    if isinstance(value, set | frozenset):
        try:
            return sorted(value)
        except TypeError:
            return sorted(value, key=repr)
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value)


if __name__ == "__main__":
    main()
