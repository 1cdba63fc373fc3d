"""Applies a patch in the sandbox and runs the repository's tests: a part of `code_harness.py`, in whose names it runs.

The tests are pytest's, and are driven from here: no plugin of ours is there to be found, and what a test came to is what
pytest hands back for it. Nothing that a program prints or writes counts. Whatever decides about tests is as the row has it,
whatever the patch makes of it; a test that must fail stands among the others. What fails is raised, so that the secret of an
answer is never written where the patch could read it and write another.
"""

import ast
import base64
import contextlib
import gzip
import importlib
import io
import os
import re
import secrets
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # in the sandbox, these are names of the harness
    from judgekit.graders.rules.programs.code_harness import TRUSTED, hide, keeping, known, stored

Listing = dict[str, tuple[int, int, int, int]]
"""Size, time, inode and mode of each file, by its path in the repository."""


def patched(source: str, job: dict[str, Any]) -> dict[str, Any]:
    """Apply a patch and run its tests. Returns how many passed, all of those that must.

    *source*: the repository's archive in base64, a newline, and the patch.
    Returns {"missing"} or {"row"} if the machine or the row is to blame, and {"refused"} if the patch does not apply.
    Ends the process, with what is wrong as the last line of its errors, if the tests do not pass.
    """
    if shutil.which("git") is None:
        return {"missing": ["git"]}
    if find_spec("pytest") is None:
        return {"missing": ["pytest"]}
    work = os.open(".", os.O_RDONLY)
    os.mkdir("repository")
    os.chdir("repository")
    try:
        archive, _, patch = source.partition("\n")
        return in_repository(os.getcwd(), base64.b64decode(archive), patch, job)
    finally:
        os.chdir(work)


def in_repository(root: str, archive: bytes, patch: str, job: dict[str, Any]) -> dict[str, Any]:
    """Do what `patched` does, in the folder of the repository."""
    tar, members = opened(archive, job["inside"])
    for path in members:
        put_back(path, tar, members)
    files = sorted({name.partition("::")[0] for name in job["wanted"]})
    theirs = changed_by_row(files, tar, members, job)
    if isinstance(theirs, str):
        return {"row": theirs}
    before = listing(".")
    if patch and (said := applied(patch)):
        return {"refused": f"the patch does not apply: {said}"}
    mine = changed_paths(before, listing("."))
    if any(os.path.islink(path) for path in mine):
        return {"refused": "the patch makes a link"}
    folders = tuple({folder for path in (*files, *theirs) if (folder := tests_folder(path))})
    restored = [path for path in mine if path in theirs or path in files or decides(path, folders)]
    for path in restored:
        put_back(path, tar, members)
    lay(theirs)
    added = {path for path in mine if path not in before and os.path.lexists(path)}
    tar.close()
    members.clear()
    errors, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null, stream)
    try:
        prefer_installed(new_modules(added))
        passed = run_tests(root, {*mine} - {*restored} - {*theirs}, files, folders, job)
    except BaseException as error:  # at once, before anything else of the patch's can run
        os.write(errors, f"\n{one_line(error)}\n".encode("utf-8", "replace"))
        os._exit(1)
    return {"passed": passed, "restored": len(restored)}


def changed_by_row(
    files: Sequence[str], tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo], job: dict[str, Any]
) -> dict[str, bytes | None] | str:
    """Return the files that the row's test patch and test files change, as they make them; None: it is removed.

    The repository is left as the archive has it. Returns what is wrong with the row, if something is.
    """
    before = listing(".")
    if job["test_patch"] and (said := applied(job["test_patch"])):
        return f"its test patch does not apply: {said}"
    for path, text in job["test_files"].items():
        place(path, text.encode("utf-8", "surrogatepass"))
    if lost := [path for path in files if not os.path.isfile(path)]:
        return f"its tests are to be in {lost[0]}, which is not there"
    theirs: dict[str, bytes | None] = {}
    for path in changed_paths(before, listing(".")):
        theirs[path] = read(path)
        put_back(path, tar, members)
    return theirs


def opened(data: bytes, inside: bool) -> tuple[tarfile.TarFile, dict[str, tarfile.TarInfo]]:
    """Open an archive. Returns it, and its members by their paths. *inside*: whether they may stand in one folder of it.

    What leads out of it, and what git and Python keep there, is left out. No class, which a patch could find.
    """
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    tar = tarfile.open(fileobj=io.BytesIO(data))  # noqa: SIM115 - it is read until the tests begin
    named = [(os.path.normpath(member.name), member) for member in tar]
    tops = {name.partition("/")[0] for name, _ in named if name != "."}
    cut = 0
    if inside and len(tops) == 1 and all("/" in name or member.isdir() for name, member in named):
        cut = len(tops.pop()) + 1
    found = {name[cut:]: member for name, member in named if name[cut:] not in ("", ".")}
    return tar, {
        path: m for path, m in found.items() if not {"..", ".git", "__pycache__", ""} & {*path.split("/")}
    }


def put_back(path: str, tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo]) -> None:
    """Make a file what it is in the archive, or remove it if it is not there."""
    member = members.get(path)
    if member is not None and member.isdir() and os.path.isdir(path) and not os.path.islink(path):
        return
    remove(path)
    if member is None:
        return
    if member.isdir():
        os.makedirs(path)
    elif member.issym():
        leads = os.path.normpath(os.path.join(os.path.dirname(path), member.linkname))
        if not member.linkname.startswith("/") and not leads.startswith(".."):
            parents(path)
            os.symlink(member.linkname, path)
    elif member.isreg() or member.islnk():
        file = tar.extractfile(member)
        place(path, file.read() if file is not None else b"", member.mode & 0o111)


def parents(path: str) -> None:
    """Make the folders above a file, in the place of whatever is there and is none."""
    above = ""
    for part in path.split("/")[:-1]:
        above = os.path.join(above, part)
        if os.path.islink(above) or (os.path.lexists(above) and not os.path.isdir(above)):
            os.unlink(above)
        if not os.path.isdir(above):
            os.mkdir(above)


def lay(files: Mapping[str, bytes | None]) -> None:
    """Write files, or remove those that are None."""
    for path, data in files.items():
        remove(path) if data is None else place(path, data)


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)


def place(path: str, data: bytes, executable: int = 0) -> None:
    if ".." in path.split("/") or path.startswith("/"):
        raise ValueError(f"{path} is not in the repository")
    parents(path)
    remove(path)
    with open(path, "wb") as file:
        file.write(data)
    if executable:
        os.chmod(path, 0o755)


def read(path: str) -> bytes | None:
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        return file.read()


def listing(root: str) -> Listing:
    found: Listing = {}
    for folder, folders, names in os.walk(root):
        for name in (*names, *(f for f in folders if os.path.islink(os.path.join(folder, f)))):
            path = os.path.join(folder, name)
            about = os.lstat(path)
            found[os.path.relpath(path, root)] = (
                about.st_size,
                about.st_mtime_ns,
                about.st_ino,
                about.st_mode,
            )
    return found


def changed_paths(before: Listing, after: Listing) -> list[str]:
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def applied(patch: str) -> str:
    """Apply a patch with git. Returns "", or what git says of it."""
    said = ""
    space = {
        **os.environ,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CEILING_DIRECTORIES": os.path.dirname(os.getcwd()),
    }
    for options in ([], ["--ignore-whitespace", "-C1"], ["--unidiff-zero"]):
        command = ["git", "apply", "--whitespace=nowarn", *options, "-"]
        done = subprocess.run(
            command, input=patch.encode("utf-8", "surrogatepass"), capture_output=True, env=space
        )
        if done.returncode == 0:
            return ""
        said = said or done.stderr.decode("utf-8", "replace")
    return " ".join(said.replace("error: ", "").split())[:150] or "git gives no reason"


_DECIDES = {
    "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg", "pyproject.toml",
    "sitecustomize.py", "usercustomize.py", "pytest.py",
}  # fmt: skip


def decides(path: str, folders: tuple[str, ...]) -> bool:
    """Whether a file decides about tests, or about what Python loads, and so is the row's."""
    *above, name = path.split("/")
    return (
        name in _DECIDES
        or name.endswith((".pyc", ".pyo", ".pth", ".so", ".pyd"))
        or any(part.endswith((".egg-info", ".dist-info")) or part in ("__pycache__", "_pytest") for part in above)
        or f"{path}/".startswith(folders)
    )  # fmt: skip


def tests_folder(path: str) -> str:
    """Return the outermost folder of tests that a file stands in, with a slash; "" if in none."""
    parts = path.split("/")[:-1]
    for at, part in enumerate(parts):
        if part in ("test", "tests"):
            return "/".join(parts[: at + 1]) + "/"
    return ""


def new_modules(added: Iterable[str]) -> set[str]:
    """Return the names of modules that files make which a patch adds."""
    return {
        os.path.basename(os.path.dirname(path)) if name == "__init__.py" else name.partition(".")[0]
        for path in added
        if (name := os.path.basename(path)).endswith(".py")
    } - {""}


# in a namespace of its own: what the patch can find of it leads nowhere
_INSTALLED = """
class Installed:
    def __init__(self, find, names, path):
        self.find, self.names, self.path = find, names, path
    def find_spec(self, name, path=None, target=None):
        return self.find(name, self.path) if path is None and name in self.names else None
"""


def prefer_installed(names: set[str]) -> None:
    """Load what is installed, where a patch lays a module of the same name beside the tests."""
    from importlib.machinery import PathFinder

    space: dict[str, Any] = {}
    exec(_INSTALLED, space)
    sys.meta_path.insert(0, space["Installed"](PathFinder.find_spec, names, [*sys.path]))


_PYTEST = (
    "pytest",
    "_pytest",
    "pluggy",
    "unittest",
    "doctest",
    "builtins",
    "pathlib",
    "ast",
    "importlib",
    "io",
)
"""What decides about a test, or reads it: the patch may not change it."""
_SOURCES = (".py", ".ini", ".cfg", ".toml")
_LOADED = ("unittest.mock", "doctest", "difflib", "_pytest.warnings", "_pytest.subtests", "_pytest.runner")


def run_tests(
    root: str, mine: set[str], files: Sequence[str], folders: tuple[str, ...], job: dict[str, Any]
) -> int:
    """Run the wanted tests. Returns how many there are, if all of them pass; raises AssertionError."""
    traps = [f"{path}::{set_trap(path)}" for path in files]
    by_tests = set_by_tests(files)
    for name in _LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.pycache_prefix = os.path.join(os.devnull, "none")  # compiled files could be written by the patch
    load_plugins()
    compare_well(job["equality"], files)
    _, changed = keeping([], _PYTEST)
    import pytest  # what is called later is what it is now
    from _pytest.config import _prepareconfig
    from _pytest.runner import runtestprotocol

    catch: Any = getattr(sys.modules.get("_pytest.warnings"), "catch_warnings_for_item", None)
    every = [path for path in listing(".") if path not in mine and path.endswith(_SOURCES)]
    dates = {os.path.join(root, path): date(path) for path in every}
    own = [os.path.join(root, path) for path in every if path in files or decides(path, folders)]
    TRUSTED.update(dates)
    stand_as_pytest(root)
    hide()
    config = configured(root, [*job["command"], *files], _prepareconfig)
    tampered = watching(config, changed, by_tests)
    try:
        session = collected(config, pytest)
        must_fail = choose_items(session, job["wanted"], traps, config)
        given = defined(own)
        passed = run_each(session, must_fail, lambda: tampered(session, given), runtestprotocol, catch)
    finally:
        with contextlib.suppress(BaseException):
            config._ensure_unconfigure()
    if late := next((path for path, found in dates.items() if date(path) != found), None):
        raise AssertionError(f"the patch changes {os.path.relpath(late, root)} while its tests run")
    return passed


def set_by_tests(files: Iterable[str]) -> set[str]:
    """Return the attributes that the files of tests set themselves."""
    found: set[str] = set()
    for path in files:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError), open(path, "rb") as source:
            found |= stored(ast.parse(source.read()))
    return found


def stand_as_pytest(root: str) -> None:
    """Make this process what `python -m pytest` would be in the repository: its paths, its arguments, its main module."""
    places = [root, *(folder for folder in (os.path.join(root, "src"),) if os.path.isdir(folder))]
    sys.path[:0] = places
    os.environ["PYTHONPATH"] = os.pathsep.join(places)
    sys.argv = ["pytest"]
    sys.modules["__main__"] = type(sys)("__main__")


def choose_items(session: Any, wanted: Sequence[str], traps: Sequence[str], config: Any) -> set[int]:
    """Leave in a session the tests that are wanted and those that must fail. Returns the ids of the latter."""
    items = {name: matching(session.items, name) for name in (*wanted, *traps)}
    if not any(items[name] for name in wanted):
        raise AssertionError(f"{NOTHING_RAN}: {why_not_collected(config)}")
    for name in wanted:
        if not items[name]:
            raise AssertionError(f"{name} is not there{why_not_collected(config, ': ')}")
    chosen = {id(item) for found in items.values() for item in found}
    session.items[:] = [item for item in session.items if id(item) in chosen]
    return {id(item) for name in traps for item in items[name]}


def configured(root: str, command: Sequence[str], prepare: Callable[[list[str]], Any]) -> Any:
    """Return pytest's configuration for a command."""
    options = [f"--rootdir={root}", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:judgekit"]
    if find_spec("xdist") is not None:
        options += ["-n", "0"]
    try:
        return prepare([*options, *command])
    except BaseException as error:
        raise AssertionError(f"{CANNOT_START}: {one_line(error)}") from None


def collected(config: Any, pytest: Any) -> Any:
    """Return pytest's session, with its tests."""
    try:
        session = pytest.Session.from_config(config)
        config._do_configure()
        config.hook.pytest_sessionstart(session=session)
    except BaseException as error:
        raise AssertionError(f"{CANNOT_START}: {one_line(error)}") from None
    with contextlib.suppress(pytest.UsageError):  # a file in which nothing is found
        config.hook.pytest_collection(session=session)
    return session


def run_each(
    session: Any, must_fail: set[int], tampered: Callable[[], str], run: Callable[..., list[Any]], catch: Any
) -> int:
    """Run a session's tests one after another. Returns how many have passed, if all have that must."""
    items = tuple(session.items)
    bodies = {id(item): body(item) for item in items}
    passed = 0
    if what := tampered():
        raise AssertionError(what)
    for item, following in zip(items, (*items[1:], None), strict=True):
        if overridden(item) or body(item) is not bodies[id(item)]:
            raise AssertionError(f"the patch changes the test {item.nodeid}")
        failed = session.testsfailed
        around: Any = contextlib.nullcontext()
        if catch is not None:
            around = catch(config=item.config, ihook=item.ihook, when="runtest", item=item)
        with around:
            reports = run(item, log=True, nextitem=following)
        if what := tampered():
            raise AssertionError(what)
        fine, why = came_to(item, reports)
        if fine and session.testsfailed != failed:
            fine, why = False, "has a part that fails"
        if id(item) in must_fail:
            if fine:
                raise AssertionError("a test that must fail has passed: the patch takes pytest apart")
        elif not fine:
            raise AssertionError(f"{item.nodeid} {why}")
        else:
            passed += 1
    return passed


def watching(
    config: Any, changed: Callable[[set[str]], str], by_tests: set[str]
) -> Callable[[Any, list[tuple[Mapping[str, Any], str, str]]], str]:
    """Return what says how the patch has changed pytest, or a session and what its tests define; "" if it has not."""
    relay, manager = config.hook, config.pluginmanager
    hooks, inner = callers(relay), manager._inner_hookexec

    def tampered(session: Any, given: list[tuple[Mapping[str, Any], str, str]]) -> str:
        if what := changed(by_tests):
            return f"the patch changes {what}"
        if config.hook is not relay or any(callers(relay).get(name) is not hooks[name] for name in hooks):
            return "the patch changes pytest's hooks"
        if config.pluginmanager is not manager or manager._inner_hookexec is not inner:
            return "the patch changes how pytest calls its hooks"
        if what := next(filter(None, map(overridden, (session, config, manager))), ""):
            return f"the patch changes pytest's {what}"
        if what := next((name for space, name, path in given if path != made_in(space.get(name))), ""):
            return f"the patch changes {what} of the tests"
        return foreign(callers(relay).values())

    return tampered


def callers(relay: Any) -> dict[str, Any]:
    """Return pytest's hooks, by name."""
    return {name: value for name, value in vars(relay).items() if hasattr(value, "get_hookimpls")}


def compare_well(source: str, files: Sequence[str]) -> None:
    """Let no object of the patch's be equal to everything; see `patch_equality`."""
    import unittest

    from _pytest.assertion import rewrite

    space: dict[str, Any] = {"__name__": "patch_equality"}
    exec(compile(source, "<frozen patch_equality>", "exec"), space)
    for path in files:
        with open(path, "rb") as file:
            space["tests_use_any"] |= b"ANY" in file.read()
    with contextlib.suppress(AttributeError):  # pytest rewrites in another way
        space["install"](sys.modules["builtins"], rewrite, unittest.TestCase)


def load_plugins() -> None:
    """Let pytest and its plugins change what they change of pytest, before it is kept."""
    from _pytest.config import _prepareconfig

    os.mkdir("../empty")
    finders = [*sys.meta_path]
    with contextlib.suppress(Exception, SystemExit):
        _prepareconfig(
            ["-s", "--rootdir=../empty", "-p", "no:cacheprovider", "-p", "no:judgekit", "../empty"]
        )
    sys.meta_path[:] = finders


CANNOT_START, NOTHING_RAN = "the test command cannot start", "none of its tests ran"


def one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def matching(items: Sequence[Any], name: str) -> list[Any]:
    """Return the tests of a name. A name that a log has cut at a space is that of all which begin so."""
    found = [item for item in items if item.nodeid == name]
    if not found and "[" in name and not name.endswith("]"):
        found = [item for item in items if item.nodeid.split(" ")[0] == name]
    return found


def overridden(thing: Any) -> str:
    """Return which method of its class an object has another of; "" if none."""
    found = (
        name
        for name, value in vars(thing).items()
        if callable(value) and callable(getattr(type(thing), name, None))
    )
    return next(found, "")


def body(item: Any) -> Any:
    """Return the code of a test's function; None if it has none."""
    found = getattr(item, "obj", None)
    return getattr(getattr(found, "__func__", found), "__code__", None)


def came_to(item: Any, reports: Sequence[Any]) -> tuple[bool, str]:
    """Return whether a test has passed, and what else it did. One that is marked to fail has passed if it does."""
    if [report.when for report in reports] != ["setup", "call", "teardown"]:
        last = reports[-2] if len(reports) > 1 else reports[-1]
        return False, f"was not run: {crash(last)}"
    for report in reports:
        if report.outcome == "passed":
            continue
        if report.when == "call" and getattr(report, "wasxfail", None) is not None:
            if any(True for _ in item.iter_markers("xfail")):
                continue
            return False, "is said to fail, by no mark of its own"
        return False, f"{'is skipped' if report.outcome == 'skipped' else 'fails'}: {crash(report)}"
    return True, ""


def crash(report: Any) -> str:
    said = getattr(getattr(report.longrepr, "reprcrash", None), "message", None)
    if said is None and isinstance(report.longrepr, tuple):
        said = report.longrepr[-1]
    return " ".join(str(said if said is not None else report.longrepr or "").split())[:120]


def why_not_collected(config: Any, before: str = "") -> str:
    """Return the last line of the first error of collecting the tests."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    errors = getattr(reporter, "stats", {}).get("error", [])
    lines = [line for line in str(errors[0].longrepr).splitlines() if line.strip()] if errors else []
    return (
        before + " ".join(lines[-1].split())[:150]
        if lines
        else ""
        if before
        else "there is no test of that name"
    )


def foreign(callers: Iterable[Any]) -> str:
    """Return who has given pytest a hook that is no library's and none of the row's; "" if nobody."""
    for caller in callers:
        for found in caller.get_hookimpls():
            function = getattr(found.function, "__func__", found.function)
            code = getattr(function, "__code__", None)
            if code is None or not known(code.co_filename):
                return f"the patch adds to pytest's {caller.name}"
    return ""


lstat = os.lstat


def date(path: str) -> tuple[int, int] | None:
    """Return a file's number, and when it was last changed, which nobody can set; None if it is not there."""
    try:
        found = lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def defined(paths: Iterable[str]) -> list[tuple[Mapping[str, Any], str, str]]:
    """Return what the loaded files of tests define: the names of a module or class, one of them, and the file.

    Without what a decorator or another line of the file may have changed.
    """
    loaded = {getattr(module, "__file__", None): vars(module) for module in [*sys.modules.values()]}
    found: list[tuple[Mapping[str, Any], str, str]] = []
    for path in paths:
        if path not in loaded or not path.endswith(".py"):
            continue
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
        bound = assigned(tree)
        for space, body in scopes(tree, loaded[path]):
            names = [n.name for n in body if isinstance(n, ast.FunctionDef) and not n.decorator_list]
            found += [(space, name, path) for name in names if names.count(name) == 1 and name not in bound]
    return found


def assigned(tree: ast.Module) -> set[str]:
    """Return the names that a file assigns or imports, and the attributes that it sets."""
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    names |= {n.asname or n.name for n in ast.walk(tree) if isinstance(n, ast.alias)}
    return names | stored(tree)


def scopes(tree: ast.Module, space: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], list[ast.stmt]]]:
    """Return a loaded file's names and those of its plain classes, each with the lines that define them."""
    found: list[tuple[Mapping[str, Any], list[ast.stmt]]] = [(space, tree.body)]
    for node in tree.body:
        made: Any = space.get(node.name) if isinstance(node, ast.ClassDef) else None
        if isinstance(node, ast.ClassDef) and isinstance(made, type) and not node.decorator_list:
            found.append((vars(made), node.body))
    return found


def made_in(value: Any) -> str | None:
    """Return the file of a function's code; None if it is none."""
    return getattr(getattr(value, "__code__", None), "co_filename", None)


def set_trap(path: str) -> str:
    """Add a test to a file that must fail, under a name like its others'. Returns the name."""
    with open(path, "rb") as file:
        text = file.read().decode("utf-8", "replace")
    words = sorted({*re.findall(r"[a-z]{3,9}", text)} - {"def", "test"}) or ["value"]
    name = ""
    while name in text:
        name = f"test_{secrets.choice(words)}_{secrets.choice(words)}_{secrets.choice(words)}"
    line = secrets.choice(
        ("assert 1 == 2", "assert not 1", "raise ValueError(1)", "assert [] != []", "int('x')")
    )
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"\n\ndef {name}():\n    {line}\n")
    return name
