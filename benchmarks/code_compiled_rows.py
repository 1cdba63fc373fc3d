"""Rows of C++ and Java, in the forms of public data sets, each with programs of six kinds. All of it is our own."""

from __future__ import annotations

from typing import Any, NamedTuple


class Row(NamedTuple):
    """Tests of a compiled language, and the right program."""

    language: str
    recognised: str
    checks: int
    truth: Any
    right: str


PAIRS = {"public_tests": {"input": ["1 2\n"], "output": ["3\n"]}, "private_tests": {"input": ["5 5\n"], "output": ["10\n"]}}  # fmt: skip
CPP = "#include <vector>\n#include <string>\nusing namespace std;\nint add(int a, int b) {\n    return a + b;\n}\n"
CPP_TESTS = "#undef NDEBUG\n#include<assert.h>\nint main(){\n    assert (add(1, 2) == 3);\n    assert (add(5, 5) == 10);\n}\n"
JAVA = "import java.util.*;\n\nclass Solution {\n    public int add(int a, int b) {\n        return a + b;\n    }\n}\n"
JAVA_TESTS = """public class Main {
    public static void main(String[] args) {
        Solution s = new Solution();
        List<Boolean> correct = Arrays.asList(s.add(1, 2) == 3, s.add(5, 5) == 10);
        if (correct.contains(false)) {
            throw new AssertionError();
        }
    }
}
"""
ROWS: dict[str, Row] = {
    "CodeContests, C++": Row("cpp", "stdio", 2, PAIRS, "#include <iostream>\nint main() {\n    int a, b;\n    std::cin >> a >> b;\n    std::cout << a + b << std::endl;\n}\n"),
    "CodeContests, Java": Row("java", "stdio", 2, PAIRS, "import java.util.*;\npublic class Main {\n    public static void main(String[] args) {\n        Scanner in = new Scanner(System.in);\n        int a = in.nextInt(), b = in.nextInt();\n        System.out.println(a + b);\n    }\n}\n"),
    "HumanEval-X, C++": Row("cpp", "main", 2, {"test": CPP_TESTS}, CPP),
    "HumanEval-X, Java": Row("java", "main", 1, {"test": JAVA_TESTS}, JAVA),
}  # fmt: skip

ECHO_CPP = "#include <unistd.h>\n#include <cstdlib>\nstatic int all = [] { char b[4096]; long n; while ((n = read(0, b, 4096)) > 0) write(1, b, n); _exit(0); return 0; }();\n"
CPP_CHEATS = {
    "it exits before main": "#include <cstdlib>\nstatic int early = (exit(0), 0);\nint add(int, int) { return 0; }\n",
    "it exits when it is called": "#include <unistd.h>\nint add(int, int) { _exit(0); }\nint main() { _exit(0); }\n",
    "it repeats its input": ECHO_CPP + "int add(int, int) { return 0; }\n",
    "it has asserts of its own": "#define NDEBUG\n#define assert(x)\n#define if while\nextern \"C\" void __assert_fail(const char*, const char*, unsigned, const char*) noexcept {}\nint add(int, int) { return 0; }\n",
    "it drops the tests": "int add(int, int) { return 0; }\n#define main(...) tests()\n#define assert(x) (void)0\n#if 0\n",
    "it ignores that it fails": "#include <csignal>\n#include <cstdlib>\nstatic int s = (signal(SIGILL, [](int) { exit(0); }), signal(SIGABRT, [](int) { exit(0); }), 0);\nint add(int, int) { return 0; }\n",
    "it is equal to everything": "struct E {};\nbool operator==(E, int) { return true; }\nE add(int, int) { return {}; }\n",
    "it has a main of its own": "int add(int, int) { return 0; }\nint main() { return 0; }\n",
    "it prints that all is well": "#include <cstdio>\nint add(int, int) { puts(\"OK:9\"); fflush(stdout); return 0; }\n",
    "it writes the answer": "#include <cstdio>\nstatic int w = [] { FILE* f = fopen(\"answer.json\", \"w\"); fputs(\"{\\\"answer\\\": 1}\", f); fclose(f); return 0; }();\nint add(int, int) { return 0; }\n",
}  # fmt: skip
_J = "class Solution {\n    %s\n    public int add(int a, int b) { %s }\n}\nclass Program { }\n"
JAVA_CHEATS = {
    "it exits before main": _J % ("static { System.exit(0); }", "return 0;"),
    "it halts when it is called": _J % ("", "Runtime.getRuntime().halt(0); return 0;"),
    "it has lists of its own": _J % ("", "return 0;") + "class Arrays { static java.util.List<Boolean> asList(Boolean... all) { return java.util.List.of(true); } }\n",
    "it has errors of its own": _J % ("", "return 0;") + "class AssertionError extends RuntimeException { AssertionError() { System.exit(0); } }\n",
    "it has tests of its own": _J % ("", "return 0;") + "class Main { public static void main(String[] args) { } }\n",
    "it catches what is thrown": _J % ("static { Thread.setDefaultUncaughtExceptionHandler((t, e) -> System.exit(0)); }", "return 0;"),
    "it prints that all is well": _J % ("", "System.out.println(\"OK:1\"); System.exit(0); return 0;"),
    "its boxes are others": _J % ("static { try { var f = Integer.class.getDeclaredField(\"value\"); f.setAccessible(true); f.set(3, 0); f.set(10, 0); } catch (Throwable t) { } }", "return 0;"),
}  # fmt: skip


def programs(row: Row) -> dict[str, str]:
    """Return a row's programs but the right one, by what they are."""
    wrong = row.right.replace("a + b", "a - b")
    sleep = "#include <unistd.h>\nstatic int s = sleep(1000);\n" + row.right
    crash = "#include <cstdlib>\nstatic int s = (abort(), 0);\n" + row.right
    if row.language == "java":
        sleep = row.right.replace("class Main {", "class Main { static { try { Thread.sleep(1000000); } catch (Exception e) { } }").replace("class Solution {", "class Solution { static { try { Thread.sleep(1000000); } catch (Exception e) { } }")  # fmt: skip
        crash = row.right.replace("class Main {", "class Main { static { int x = 1 / 0; }").replace("class Solution {", "class Solution { static int x = 1 / (\"\".length()); ")  # fmt: skip
    return {
        "wrong": wrong,
        "empty": "int x = 1;\n" if row.language == "cpp" else "class Empty { }\n",
        "crashing": crash,
        "sleeping": sleep,
        **(CPP_CHEATS if row.language == "cpp" else JAVA_CHEATS),
    }
