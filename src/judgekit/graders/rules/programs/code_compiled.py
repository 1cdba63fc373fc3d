"""C++ and Java: what is compiled for a rollout, and how its tests say that they have run.

A program is compiled once, inside the sandbox, and run once for each case. Tests with a `main` of their own are compiled
with it. They are passed where `main` has come to its end and has printed a token; the program cannot name it, and no
exit of its own prints it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Language = Literal["python", "cpp", "java"]
COMPILERS: Mapping[str, str] = {"cpp": "g++", "java": "javac"}
FENCES: Mapping[str, tuple[str, ...]] = {
    "python": ("python", "py", "python3"),
    "cpp": ("cpp", "c++", "cc", "cxx"),
    "java": ("java",),
}
"""What a response's fences say for each language."""


@dataclass(frozen=True, slots=True)
class Source:
    """What is compiled, and what the tests print at their end."""

    files: Mapping[str, str]
    main: str
    token: str = ""

    def job(self, language: str) -> dict[str, Any]:
        command = ["g++", "-O1", "-std=c++20", "-w", "-o", "program", *self.files]
        if language == "java":
            command = ["javac", "-nowarn", "-J-XX:+UseSerialGC", "-J-XX:-UsePerfData", *self.files]
        return {"kind": "compile", "language": language, "files": dict(self.files), "command": command}

    def run(self, language: str, made: Mapping[str, str], memory_mb: int) -> dict[str, Any]:
        command = ["./program"]
        if language == "java":
            options = [
                "-XX:+UseSerialGC",
                "-XX:-UsePerfData",
                "-XX:TieredStopAtLevel=1",
                f"-Xmx{max(memory_mb // 2, 32)}m",
                "-Xss64m",
            ]
            command = ["java", *options, "-ea", "-cp", ".", self.main]  # fmt: skip
        return {"kind": "compiled", "language": language, "files": dict(made), "command": command}

    def checks(self, output: str) -> int | None:
        """Return how many checks the tests say that they have run; None if they have not come to their end."""
        found = re.search(rf"{self.token}:(\d{{1,9}})\s*\Z", output) if self.token else None
        return int(found[1]) if found else None


def source_of(language: str, code: str, tests: str | None) -> Source | str:
    """Return what to compile of a program and tests with a `main`; why the program cannot pass them, if it cannot."""
    if tests is not None and (found := re.search(_DECIDES[language], _bare(code))):
        return f"the program decides itself what it is equal to, by {' '.join(found[0].split())}"
    if language == "cpp":
        return Source({"program.cpp": code}, "") if tests is None else _cpp(code, tests)
    return _java(code, tests)


_DECIDES: Mapping[str, str] = {
    "cpp": r"\boperator\s*(?:==|!=|<=>|-(?!>))|\b(?:double|float|int|long|auto)\s+f?abs\w?\s*\(|__assert_fail",
    "java": r"\bboolean\s+equals\s*\(",
}
"""What a program whose answers are compared in its own process must not define."""


def has_main(language: str, text: str) -> bool:
    return re.search(_MAIN[language], text) is not None


_MAIN: Mapping[str, str] = {"cpp": r"\bint\s+main\s*\([^)]*\)\s*\{", "java": r"\bstatic\s+void\s+main\s*\("}


def _bare(code: str) -> str:
    """Return code without comments and texts."""
    return re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", " ", code, flags=re.DOTALL)


def _cpp(code: str, tests: str) -> Source:
    token, key, name = secrets.token_hex(16), secrets.token_bytes(32), f"k_{secrets.token_hex(8)}"
    code = re.sub(_MAIN["cpp"], f"int {name}_own() {{", code)
    undone = "".join(f"#undef {one}\n" for one in {*re.findall(r"(?:#|%:|\?\?=)\s*define\s+(\w+)", code)})
    tests = re.sub(r"\bassert\s*\(", f"{name}_check(", tests)
    tests = re.sub(f"({_MAIN['cpp']})", rf"\1 {name}_end {name}_here; ", tests, count=1)
    hidden = ",".join(str(ord(letter) ^ one) for letter, one in zip(token, key, strict=True))
    made = f"""{code}
{undone}
#include <cstdio>
#include <exception>
#include <unistd.h>
static volatile unsigned long {name}_count = 0;
static volatile bool {name}_bad = false;
#define {name}_check(...) do {{ if (__VA_ARGS__) {name}_count = {name}_count + 1; else {{ {name}_bad = true; __builtin_trap(); }} }} while (0)
struct {name}_end {{
    ~{name}_end() {{
        static const volatile unsigned char a[] = {{{hidden}}}, b[] = {{{",".join(map(str, key))}}};
        if ({name}_bad || std::uncaught_exceptions()) return;
        char said[33] = {{0}};
        for (int i = 0; i < 32; i++) said[i] = a[i] ^ b[i];
        ::std::printf("\\n%s:%lu\\n", said, (unsigned long){name}_count);
        ::std::fflush(stdout);
    }}
}};
{tests}
"""
    return Source({"program.cpp": made}, "", token)


_IMPORTS = "import java.util.*; import java.util.function.*; import java.util.stream.*; import java.math.*;\n"


def _java(code: str, tests: str | None) -> Source | str:
    public = re.search(r"\bpublic\s+(?:final\s+|abstract\s+)*(?:class|interface|enum|record)\s+(\w+)", code)
    bare = _bare(code)
    defined = re.findall(r"\b(?:class|interface|enum|record)\s+(\w+)", bare)
    if tests is None:
        mains = re.search(
            r"\b(?:class|record|enum)\s+(\w+)(?:(?!\bclass\b).)*?\bstatic\s+void\s+main\s*\(", bare, re.DOTALL
        )
        main = public[1] if public else mains[1] if mains else "Main"
        return Source({f"{public[1] if public else 'Program'}.java": code}, main)  # fmt: skip
    taken = sorted({*defined} & {*re.findall(r"\w+", tests)} - {"Solution"})
    if taken:
        return f"the program defines {taken[0]}, which its tests use"
    name, token = f"K{secrets.token_hex(8)}", secrets.token_hex(16)
    key = secrets.token_bytes(32)
    hidden = ",".join(str(ord(letter) ^ one) for letter, one in zip(token, key, strict=True))
    test_class = re.search(r"\bclass\s+(\w+)", tests)
    own = test_class[1] if test_class else "Main"
    # what decides in the tests counts itself: an `assert`, and the conditions before a `throw`
    tests = re.sub(r"\bassert\b(?!\s*\()\s|\bassert\s*(?=\()", f"assert {name}.ran() && ", tests)
    if re.search(r"\bthrow\b|\bexit\s*\(", tests):
        tests = re.sub(r"\bif\s*\(", f"if ({name}.ran() && ", tests)
    last = f"""class {name} {{
    private static int count = 0;
    static boolean ran() {{ count++; return true; }}
    public static void main(String[] args) throws Throwable {{
        {own}.main(args);
        int[] a = {{{hidden}}}, b = {{{",".join(map(str, key))}}};
        StringBuilder said = new StringBuilder("\\n");
        for (int i = 0; i < a.length; i++) said.append((char) (a[i] ^ b[i]));
        System.out.println(said + ":" + count);
        System.out.flush();
    }}
}}
"""
    files = {
        f"{public[1] if public else 'Program'}.java": code,
        f"{own}.java": _IMPORTS + tests,
        f"{name}.java": last,
    }
    return Source(files, name, token)
