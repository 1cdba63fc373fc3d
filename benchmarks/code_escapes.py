"""Ways out of the sandbox of code, and what each level of isolation holds of them, as docs/security.md says it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from judgekit.graders.rules.programs import sandbox
from judgekit.graders.rules.programs.sandbox import OWN, Finished, Limits, SandboxError, Way, run_program

PYTHON = sys.executable
LIMITS = Limits(time_s=2, wall_s=5, memory_mb=128, output_kb=64)
GOT = "GOT-OUT"
"""What a program prints that has reached what it tried to."""

LEVELS = ("bubblewrap", "namespaces, its own user", "namespaces", "none")
KINDS: dict[str, tuple[bool, bool, bool, bool]] = {
    # what is held, by level
    "the network": (True, True, True, False),
    "Unix sockets of the machine": (True, True, True, False),
    "processes of the machine": (True, True, True, False),
    "the trainer's environment": (True, True, True, False),
    "files outside its folder: reading": (True, True, True, False),
    "files outside its folder: writing": (True, True, True, False),
    "another rollout's folder": (True, True, True, False),
    "/tmp, /dev/shm and home of its own": (True, True, True, False),
    "outliving its run": (True, True, True, False),
    "its limits": (True, True, True, True),
    "what its processes use together": (True, True, True, True),
    "its answer": (True, True, True, True),
}


class Scene(NamedTuple):
    """What there is on the machine to be reached."""

    folder: Path
    port: int
    abstract: str
    sleeper: int
    neighbour: Path
    mark: Path


@contextlib.contextmanager
def scene() -> Iterator[Scene]:
    """Set up a trainer's sockets, a process, another rollout's folder, and a file that a daemon would write."""
    with tempfile.TemporaryDirectory(prefix="jk-trainer-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "secret").write_text("s3cret")
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        file = stack.enter_context(socket.socket(socket.AF_UNIX))
        file.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        file.listen()
        abstract = f"jk-{os.getpid()}"
        other = stack.enter_context(socket.socket(socket.AF_UNIX))
        other.bind(f"\0{abstract}")
        other.listen()
        sleeper = subprocess.Popen(["sleep", "1000"], env={"JK_KEY": "s3cret", "PATH": os.environ["PATH"]})
        stack.callback(lambda: (sleeper.kill(), sleeper.wait()))
        neighbour = Path(tempfile.mkdtemp(prefix="judgekit-"))
        stack.callback(shutil.rmtree, neighbour, True)
        (neighbour / "code.py").write_text("s3cret")
        shared = Path("/dev/shm/jk-shared")
        with contextlib.suppress(OSError):
            shared.write_text("s3cret")
            stack.callback(lambda: shared.unlink(missing_ok=True))
        yield Scene(folder, server.getsockname()[1], abstract, sleeper.pid, neighbour, folder / "alive")


def _tries(line: str) -> str:
    return f"import os, socket, signal\n{line}\nprint({GOT!r})\n"


def _reads(path: object) -> str:
    return f"if 's3cret' in open({str(path)!r}, errors='replace').read(): print({GOT!r})\n"


def _connects(kind: str, address: str) -> str:
    return _tries(f"s = socket.socket(socket.{kind}); s.settimeout(2); s.connect({address})")


def attempts(at: Scene) -> dict[str, tuple[str, str]]:
    """Return the ways out by name: their kind, and the program."""
    me, his = os.getpid(), at.sleeper
    outside = [at.folder / "new", at.neighbour / "answer.json", "/usr/lib/jk", "/etc/jk", "/usr/bin/jk", "/root/jk", "/var/tmp/jk", "/jk", "/opt/jk", "/home/jk"]  # fmt: skip
    found: dict[str, tuple[str, str]] = {
        "TCP to the trainer": ("the network", _connects("AF_INET", f"('127.0.0.1', {at.port})")),
        "TCP over IPv6": ("the network", _connects("AF_INET6", f"('::ffff:127.0.0.1', {at.port})")),
        "a name of localhost": ("the network", _tries(f"socket.create_connection(('localhost', {at.port}), 2)")),
        "a raw network device": ("the network", _tries("assert any(n not in ('lo',) for _, n in socket.if_nameindex())")),
        "a Unix socket": ("Unix sockets of the machine", _connects("AF_UNIX", repr(str(at.folder / "socket")))),
        "a Unix socket by a relative path": ("Unix sockets of the machine", _tries(f"os.chdir({str(at.folder)!r}); s = socket.socket(socket.AF_UNIX); s.connect('socket')")),
        "an abstract Unix socket": ("Unix sockets of the machine", _connects("AF_UNIX", repr(f"\0{at.abstract}"))),
        "a signal to the trainer": ("processes of the machine", _tries(f"os.kill({me}, 0)")),
        "a signal to a neighbour": ("processes of the machine", _tries(f"os.kill({his}, 0)")),
        "ptrace": ("processes of the machine", _tries(f"import ctypes; assert ctypes.CDLL(None).ptrace(16, {his}, 0, 0) == 0")),
        "its command line": ("processes of the machine", _tries(f"assert open('/proc/{his}/cmdline').read()")),
        "its memory": ("processes of the machine", _tries(f"open('/proc/{his}/mem', 'rb')")),
        "its priority": ("processes of the machine", _tries(f"os.setpriority(os.PRIO_PROCESS, {his}, 5)")),
        "the list of processes": ("processes of the machine", _tries(f"assert '{his}' in os.listdir('/proc')")),
        "its environment": ("the trainer's environment", _reads(f"/proc/{his}/environ")),
        "the trainer's environment": ("the trainer's environment", _tries(f"assert open('/proc/{me}/environ').read()")),
        "a key in its own environment": ("the trainer's environment", _tries("assert 'JK_KEY' in os.environ")),
        "its working directory": ("files outside its folder: reading", _tries(f"os.listdir('/proc/{me}/cwd/')")),
        "its root": ("files outside its folder: reading", _tries(f"os.listdir('/proc/{me}/root/')")),
        "a file of the trainer": ("files outside its folder: reading", _reads(at.folder / "secret")),
        "the trainer's folder": ("files outside its folder: reading", _tries(f"assert 'secret' in os.listdir({str(at.folder)!r})")),
        "a file by a link": ("files outside its folder: reading", f"import os\nos.symlink({str(at.folder / 'secret')!r}, 'link')\n" + _reads("link")),
        "the way up": ("files outside its folder: reading", _reads(f"../{at.folder.name}/secret")),
        "the file system before": ("files outside its folder: reading", _tries(f"assert any(os.path.exists(p + {str(at.folder / 'secret')!r}) for p in ('/.old', '/mnt', '/proc/1/root', ''))")),
        "another's code": ("another rollout's folder", _reads(at.neighbour / "code.py")),
        "another's name": ("another rollout's folder", _tries(f"assert {at.neighbour.name!r} in os.listdir('/tmp')")),
        "another's folder by rename": ("another rollout's folder", _tries(f"os.rename({str(at.neighbour / 'code.py')!r}, 'taken'); os.rename('taken', {str(at.neighbour / 'code.py')!r})")),
        "what lies in /tmp": ("/tmp, /dev/shm and home of its own", _tries(f"assert {at.folder.name!r} in os.listdir('/tmp')")),
        "what lies in /dev/shm": ("/tmp, /dev/shm and home of its own", _reads("/dev/shm/jk-shared")),
        "keys in the home": ("/tmp, /dev/shm and home of its own", _tries("import pwd; assert set(os.listdir(pwd.getpwuid(0).pw_dir)) - {'.pyenv'} if os.getuid() == 0 else 0")),
        "a daemon": ("outliving its run", f"import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        [os.close(n) for n in (0, 1, 2)]\n        time.sleep(2); open({str(at.mark)!r}, 'w').write('x')\n    os._exit(0)\n"),
        "its pid namespace": ("processes of the machine", _tries(f"assert os.readlink('/proc/self/ns/pid') == os.readlink('/proc/{me}/ns/pid')")),
        "mounting": ("files outside its folder: writing", _tries("import ctypes; assert ctypes.CDLL(None).mount(None, b'/usr', None, 32 | 4096, None) == 0; open('/usr/lib/jk', 'w')")),
        "a device": ("files outside its folder: reading", _tries("os.mknod('disk', 0o60600, os.makedev(254, 0)); open('disk', 'rb').read(1)")),
        "a disk": ("files outside its folder: reading", _tries("import glob; [open(p, 'rb').read(1) for p in glob.glob('/dev/[svn][dvm]*')][0]")),
        "chroot": ("files outside its folder: reading", _tries(f"os.mkdir('c'); os.chroot('c'); [os.chdir('..') for _ in range(64)]; os.chroot('.'); assert os.path.exists({str(at.folder / 'secret')!r})")),
        "root by setuid": ("files outside its folder: writing", _tries("os.setuid(0); open('/usr/lib/jk', 'w')")),
        "kernel settings": ("files outside its folder: writing", _tries("f = open('/proc/sys/kernel/hostname', 'r+'); t = f.read(); f.write(t)")),
        "a core pattern": ("files outside its folder: writing", _tries("f = open('/proc/sys/kernel/core_pattern', 'r+'); t = f.read(); f.seek(0); f.write(t)")),
        "the machine's name": ("processes of the machine", _tries(f"n = socket.gethostname(); socket.sethostname(n); assert os.readlink('/proc/self/ns/uts') == os.readlink('/proc/{me}/ns/uts')")),
        "the interpreter": ("files outside its folder: writing", _tries("import os; open(os.__file__, 'a')")),
        "time without end": ("its limits", "while True: pass\n"),
        "time without CPU": ("its limits", "import time\ntime.sleep(1000)\n"),
        "a signal ignored": ("its limits", "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass\n"),
        "output without end": ("its limits", "while True: print('x' * 1000)\n"),
        "errors without end": ("its limits", "import sys\nwhile True: sys.stderr.write('x' * 1000)\n"),
        "memory at once": ("its limits", _tries("b = bytearray(1 << 30)")),
        "memory bit by bit": ("its limits", _tries("l = [bytearray(1 << 20) for _ in range(1000)]")),
        "a large file": ("its limits", _tries("open('f', 'wb').write(b'x' * (64 << 20)); assert os.path.getsize('f') >= 64 << 20")),
        "many descriptors": ("its limits", _tries("l = [os.open('/dev/null', 0) for _ in range(1000)]")),
        "children with memory": ("what its processes use together", "import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n        b = bytearray(100 << 20); b[::4096] = b'x' * len(b[::4096]); time.sleep(3); os._exit(0)\ntime.sleep(2)\n" + f"print({GOT!r})\n"),
        "files of memory": ("what its processes use together", "import os, time\nl = [os.memfd_create('a') for _ in range(20)]\nfor f in l: os.write(f, b'x' * (15 << 20))\ntime.sleep(2)\n" + f"print({GOT!r})\n"),
        "children with CPU": ("what its processes use together", "import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n        t = time.process_time()\n        while time.process_time() - t < 1.9: pass\n        os._exit(0)\nfor _ in range(4): os.wait()\n" + f"print({GOT!r})\n"),
        "many processes": ("what its processes use together", "import os, time\nn = 0\nfor _ in range(100):\n    try:\n        if os.fork() == 0:\n            time.sleep(3); os._exit(0)\n        n += 1\n    except OSError: break\ntime.sleep(2)\n" + f"if n > 40: print({GOT!r})\n"),
        "many threads' CPU": ("what its processes use together", "import subprocess, sys, time\np = [subprocess.Popen([sys.executable, '-c', 'import time\\nt=time.process_time()\\nwhile time.process_time()-t<1.9: pass']) for _ in range(4)]\n[x.wait() for x in p]\n" + f"print({GOT!r})\n"),
    }  # fmt: skip
    for name in ("RLIMIT_CPU", "RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_NOFILE"):
        found[f"raising {name}"] = ("its limits", _tries(f"import resource; resource.setrlimit(resource.{name}, (-1, -1))"))  # fmt: skip
    for path in outside:
        found[f"writing {path if str(path).count('/') < 4 else Path(path).name}"] = ("files outside its folder: writing", _tries(f"open({str(path)!r}, 'w').write('x'); os.unlink({str(path)!r})"))  # fmt: skip
    for name, code in {
        "exits": "import os; os._exit(0)",
        "writes the answer": 'import os; open("answer.json", "w").write(\'{"secret": "", "answer": {"checks": 9}}\'); os._exit(0)',
        "links to the answer": "import os; os.symlink('/etc/passwd', 'answer.json'); os._exit(0)",
        "makes it a pipe": "import os; os.mkfifo('answer.json'); os._exit(0)",
        "makes it a folder": "import os; os.mkdir('answer.json'); os._exit(0)",
        "writes it at the end": 'import atexit; atexit.register(lambda: open("answer.json", "w").write(\'{"secret": "", "answer": true}\'))\ndef f(x): return 0',
    }.items():
        found[f"an answer that {name}"] = ("its answer", code)
    return found


def ways() -> dict[str, Way]:
    """Return the levels of isolation that this machine has."""
    root = os.geteuid() == 0
    made = {
        "bubblewrap": Way("bwrap", sandbox._bubblewrap(PYTHON, False), False, None, not root, True),
        "namespaces, its own user": Way("namespaces", sandbox._namespaces(PYTHON, False, True), False, OWN, True, True),
        "namespaces": Way("namespaces", sandbox._namespaces(PYTHON, False, False), False, None, not root, True),
        "none": Way("a plain process", (), True, None, False),
    }  # fmt: skip
    if not root:
        del made["namespaces, its own user"]
    found: dict[str, Way] = {}
    for name, way in made.items():
        with contextlib.suppress(SandboxError, OSError):
            if run_program("print('up')", way=way, python=PYTHON, limits=Limits()).output == "up\n":
                found[name] = way
    return found


def holds(way: Way, kind: str, code: str, at: Scene) -> bool:
    """Run one attempt; whether it was held."""
    tests = {"kind": "tests", "form": "asserts", "tests": "assert f(1) == 2", "entry": None}
    started = time.monotonic()
    finished: Finished = run_program(code, way=way, python=PYTHON, limits=LIMITS, job=tests if kind == "its answer" else None)  # fmt: skip
    if kind == "its answer":
        return not finished.answered
    if kind == "outliving its run":
        time.sleep(3)
        alive = at.mark.exists()
        at.mark.unlink(missing_ok=True)
        return not alive
    in_time = time.monotonic() - started < LIMITS.wall_s * 1.2 + 2
    return GOT not in finished.output and in_time
