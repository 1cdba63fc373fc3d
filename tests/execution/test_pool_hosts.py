"""A pool in real host processes: stopped, interrupted, spawned, short of descriptors and threads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import deque
from pathlib import Path

import pytest

from judgekit import Failed, GradingRunner, grader
from judgekit.execution.background import close_background_loop
from judgekit.execution.pool import ProcessPool

from .hostile_graders import Echo
from .test_pool_faults import alive, outcome, rollouts

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="/proc tells who a process's children are"),
]

HOST = """
    import multiprocessing, os, resource, signal, sys, time
    from pathlib import Path
    from judgekit import GradingRunner, Rollout, grader

    folder = Path(sys.argv[1])

    def say(name):
        draft = folder / f"{name}.draft"
        draft.write_text(str(os.getpid()))
        draft.rename(folder / name)

    def wait_for(name):
        while not (folder / name).exists():
            time.sleep(0.002)

    @grader(where="process", timeout_s=1.5)
    def one(rollout):
        say(f"begun-{rollout.id}")
        wait_for("release")
        say(f"done-{rollout.id}")
        return 0.5

    @grader(where="thread", timeout_s=60)
    def waits(rollout):
        say(f"thread-{rollout.id}")
        wait_for("release")
        return 0.5

    def rollouts(count):
        return [Rollout(response="", group=0, id=str(i)) for i in range(count)]

    def outcome(results):
        return [r.reward if r.reward is not None else r.grades["one"].cause for r in results]
"""


class Host:
    """A program that grades, in a process of its own."""

    def __init__(self, folder: Path, body: str, *, shell: str = "") -> None:
        self.folder = folder
        script = folder / "host.py"
        script.write_text(textwrap.dedent(HOST) + textwrap.dedent(body))
        command = [sys.executable, str(script), str(folder)]
        if shell:
            command = ["sh", "-c", f'exec "$@" {shell}', "sh", *command]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def until(self, *names: str) -> list[int]:
        """Wait until the host's graders have said *names*; return who said so."""
        while not all((self.folder / name).exists() for name in names):
            assert self.process.poll() is None, self.process.communicate()[1]
            time.sleep(0.005)
        return [int((self.folder / name).read_text()) for name in names]

    def release(self) -> None:
        (self.folder / "release").touch()

    def end(self) -> tuple[str, str]:
        """Return what it has written, once it has ended."""
        try:
            return self.process.communicate(timeout=90)
        finally:
            self.process.kill()
            self.process.wait()


def until_gone(pids: list[int]) -> None:
    while any(map(alive, pids)):
        time.sleep(0.005)


GRADES = """
    runner = GradingRunner({"one": one}, missing_reward="mask")
    print(outcome(runner.run_sync(rollouts(2))))
"""


def test_a_host_that_was_stopped_reads_what_came_meanwhile(tmp_path: Path) -> None:
    """Its limits have all passed when it goes on: nobody had the time to look."""
    host = Host(tmp_path, GRADES)
    host.until("begun-0")
    host.process.send_signal(signal.SIGSTOP)
    host.release()
    host.until("done-0")
    time.sleep(2.5)  # longer than the limit
    host.process.send_signal(signal.SIGCONT)
    assert host.end() == ("[0.5, 0.5]\n", "")


def test_a_host_that_was_stopped_with_its_workers_goes_on_with_them(tmp_path: Path) -> None:
    """As a container is paused. The workers had no time to answer, either."""
    host = Host(tmp_path, GRADES)
    workers = host.until("begun-0")
    for pid in (host.process.pid, *workers):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(2.5)
    for pid in (host.process.pid, *workers):
        os.kill(pid, signal.SIGCONT)
    host.release()
    assert host.end() == ("[0.5, 0.5]\n", "")


def test_an_interrupt_ends_a_host_and_all_its_workers(tmp_path: Path) -> None:
    host = Host(
        tmp_path,
        """
        runner = GradingRunner({"one": one, "waits": waits}, timeout_s=60)
        try:
            runner.run_sync(rollouts(2))
        except KeyboardInterrupt:
            print("interrupted")
        """.replace("runner = ", "one.timeout_s = 60\n        runner = "),
    )
    workers = host.until("begun-0", "thread-0")[:1]
    host.process.send_signal(signal.SIGINT)
    said, _ = host.end()
    assert said == "interrupted\n"
    assert host.process.returncode == 0
    until_gone(workers)


def test_spawned_processes_grade_with_their_own_default_pool(tmp_path: Path) -> None:
    host = Host(
        tmp_path,
        """
        from judgekit.execution.pool import default_pool

        class Pid:
            name, version, score_range, where = "one", "1", (0.0, 1e9), "process"

            def grade(self, rollout):
                return float(os.getpid())

        def grade(answers):
            runner = GradingRunner({"one": Pid()})
            answers.put(({r.reward for r in runner.run_sync(rollouts(8))}, default_pool().started))

        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            answers = context.SimpleQueue()
            grade(answers)
            children = [context.Process(target=grade, args=(answers,)) for _ in range(2)]
            for child in children:
                child.start()
            found = [answers.get() for _ in range(3)]
            for child in children:
                child.join()
            pids = [int(pid) for ours, _ in found for pid in ours]
            assert len(set(pids)) == len(pids), pids
            assert all(1 <= started <= default_pool().workers for _, started in found)
            Path(folder / "pids").write_text(" ".join(map(str, pids)))
            print([child.exitcode for child in children])
        """,
    )
    assert host.end() == ("[0, 0]\n", "")
    until_gone(list(map(int, (tmp_path / "pids").read_text().split())))


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-"])
def test_a_host_without_standard_descriptors_grades(closed: str, tmp_path: Path) -> None:
    """What a grader prints ends up in no reply."""
    host = Host(
        tmp_path,
        """
        @grader(where="process")
        def prints(rollout):
            print("x" * 100_000)
            os.write(1, b"y" * 100_000)
            return float(rollout.id) / 10

        runner = GradingRunner({"one": prints})
        print([r.reward for r in runner.run_sync(rollouts(4))], file=open(folder / "said", "w"))
        """,
        shell=closed,
    )
    host.end()
    assert (tmp_path / "said").read_text() == "[0.0, 0.1, 0.2, 0.3]\n"


def test_a_host_without_descriptors_fails_at_once_and_recovers(tmp_path: Path) -> None:
    """The loop, the sockets and the processes all need some."""
    host = Host(
        tmp_path,
        """
        from judgekit.execution.pool import ProcessPool

        def told(results):
            return {(r.grades["one"].cause, "open files" in r.grades["one"].detail) for r in results}

        def fill(leave):
            # leaves so many descriptors
            opened = []
            try:
                while True:
                    opened.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                pass
            for number in opened[:leave]:
                os.close(number)
            return opened[leave:]

        def empty(opened):
            for number in opened:
                os.close(number)

        resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        (folder / "release").touch()
        held = fill(0)
        try:
            GradingRunner({"one": one}).run_sync(rollouts(2))
        except OSError as error:
            print("no loop:", error.strerror)
        empty(held)
        runner = GradingRunner({"one": one}, pool=ProcessPool(2), missing_reward="mask")
        runner.run_sync([])
        for leave in range(9):
            held = fill(leave)
            results = runner.run_sync(rollouts(4))
            empty(held)
            if outcome(results) != [0.5] * 4:
                assert told(results) == {("infrastructure", True)}, results
                print(leave, "fail")
            runner._plan.pool.close()
        print(outcome(runner.run_sync(rollouts(4))))
        """,
    )
    said, errors = host.end()
    lines = said.splitlines()
    assert lines[0] == "no loop: Too many open files", errors
    assert lines[1:4] == ["0 fail", "1 fail", "2 fail"]
    assert lines[-1] == "[0.5, 0.5, 0.5, 0.5]", errors


async def test_a_worker_that_lives_grades_what_no_other_can_be_started_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = ProcessPool(4)
    echo = GradingRunner({"act": Echo()}, pool=pool)
    try:
        assert outcome(await echo.run(rollouts("a"))) == [0.0]

        async def none_left(*args: object, **options: object) -> None:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(asyncio, "create_subprocess_exec", none_left)
        assert outcome(await echo.run(rollouts(*"abcdefgh"))) == [float(i) for i in range(8)]
        assert pool.started == 1
    finally:
        pool.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_system_without_threads_costs_grades_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a grader's thread nor the background loop can be started; then they can."""

    @grader(where="thread")
    def length(response: str) -> float:
        return len(response) / 10

    close_background_loop()
    pool = ProcessPool(1)
    runner = GradingRunner({"act": Echo(), "length": length}, pool=pool, missing_reward="mask")
    with monkeypatch.context() as patch:

        def start(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patch.setattr(threading.Thread, "start", start)
        patch.setattr("judgekit.execution.threads._idle", deque())  # of other tests
        with pytest.raises(RuntimeError, match="new thread"):
            runner.run_sync(rollouts("a"))
        (result,) = asyncio.run(runner.run(rollouts("a")))
    for grade in result.grades.values():
        assert isinstance(grade, Failed)
        assert (grade.cause, grade.detail) == ("infrastructure", "can't start new thread")
    try:
        (result,) = runner.run_sync(rollouts("a"))
        assert (result.score("act"), result.score("length")) == (0.0, 0.1)
    finally:
        pool.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_threads_that_run_out_while_a_pool_grades_cost_grades_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = ProcessPool(2)
    echo = GradingRunner({"act": Echo()}, pool=pool, missing_reward="mask")
    real = threading.Thread.start
    left = 0

    def start(thread: threading.Thread) -> None:
        if left <= 0:
            raise RuntimeError("can't start new thread")
        real(thread)

    try:
        await echo.run([])
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            for found in outcome(await echo.run(rollouts("a", "b"))):
                assert found in (0.0, 1.0, "infrastructure")
        assert outcome(await echo.run(rollouts("a", "b"))) == [0.0, 1.0]
    finally:
        with contextlib.suppress(RuntimeError):
            pool.close()
