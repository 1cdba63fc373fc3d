"""A forked child starts afresh: nothing that another thread of its parent held can hang it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import judgekit

pytestmark = pytest.mark.timeout(120)

PRELUDE = """
    import asyncio, os, signal, sys, threading, time, warnings
    from pathlib import Path
    from judgekit import ConfigError, GradingRunner, Ledger, Rollout, grader

    def ends_well(check, timeout_s=30):
        # whether check() is true in a forked child, which does not hang
        child = os.fork()
        if child == 0:
            try:
                fine = check()
            except BaseException as error:
                print(repr(error), flush=True)
                fine = False
            os._exit(0 if fine else 1)
        for _ in range(timeout_s * 200):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status) == 0
            time.sleep(0.005)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        print("a child hangs")
        return False
"""


def script(body: str, *args: str) -> str:
    """Run a program of its own: pytest's process has threads that nobody wants in a child."""
    program = textwrap.dedent(PRELUDE) + textwrap.dedent(body)
    # Python 3.12 warns of every fork of a process with threads
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, *args],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_children_of_a_process_that_grades_can_grade() -> None:
    """As a data loader's workers do, forked while other threads grade with the same runner."""
    said = script(
        """
        @grader
        def one(rollout): return 1.0

        @grader
        async def two(rollout):
            await asyncio.sleep(0)
            return 1.0

        @grader(where="thread")
        def three(rollout): return 1.0

        @grader(where="process")
        def four(rollout): return 1.0

        graders = {"one": one, "two": two, "three": three, "four": four}
        runner = GradingRunner(graders, max_concurrency=4).with_settings(shared=True)
        rollouts = [Rollout(response="x" * 50, group=i) for i in range(16)]
        stop = False

        def busy():
            while not stop:
                runner.run_sync(rollouts)

        threads = [threading.Thread(target=busy, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()

        def grades():
            results = runner.run_sync(rollouts[:4])
            return [len(result.grades) for result in results] == [4] * 4 and all(r.reward == 1 for r in results)

        found = [ends_well(grades) for _ in range(20)]
        stop = True
        for thread in threads:
            thread.join()
        print(found.count(True), [result.reward for result in runner.run_sync(rollouts[:2])])
        """
    )
    assert said == "20 [1.0, 1.0]\n"


def test_what_other_threads_hold_at_the_fork_is_free_in_the_child() -> None:
    said = script(
        """
        from judgekit.execution import background, threads
        from judgekit.execution.limits import Limiter, RetryBudget
        from judgekit.metrics import Metrics
        from judgekit.run import scheduler

        limiter, budget, metrics = Limiter(1), RetryBudget(1.0), Metrics()
        assert limiter.try_acquire()
        threads._abandoned = threads.MAX_ABANDONED
        background.background_loop()
        held, name = threading.Event(), scheduler._process

        def hold():
            with background._lock, threads._lock, limiter._lock, budget._lock, metrics._since.lock:
                held.set()
                time.sleep(3600)

        threading.Thread(target=hold, daemon=True).start()
        held.wait()

        async def use():
            async with limiter:
                budget.call()
                return await threads.call_in_thread(len, "abc") == 3 and limiter.held == 1

        def check():
            return (
                limiter.held == 0
                and asyncio.run(use())
                and budget.allow()
                and metrics.summary() == {}
                and scheduler._process != name
            )

        print(ends_well(check), limiter.held, flush=True)
        os._exit(0)
        """
    )
    assert said == "True 1\n"


def test_a_child_has_counts_lines_and_workers_of_its_own(tmp_path: Path) -> None:
    said = script(
        """
        from judgekit.execution.pool import default_pool

        @grader(where="process")
        def pid(rollout): return float(os.getpid())

        pid.score_range = (0.0, 1e9)
        ledger = Ledger(sys.argv[1])
        runner = GradingRunner({"pid": pid}, ledger=ledger)
        first = runner.run_sync([Rollout(response="", group=0)])[0].reward

        def check():
            (result,) = runner.run_sync([Rollout(response="", group=0)])
            ledger.close()
            return (
                result.reward != first
                and default_pool().started == 1
                and runner.metrics.summary()["judgekit/rollouts"] == 1
                and ledger.lost == 0
            )

        print(ends_well(check), runner.run_sync([Rollout(response="", group=0)])[0].reward == first)
        ledger.close()
        """,
        str(tmp_path / "ledger.jsonl"),
    )
    assert said == "True True\n"
    entries = judgekit.read_ledger(tmp_path / "ledger.jsonl").entries
    assert len(entries) == 3
    assert len({entry.run.split("-")[0] for entry in entries}) == 2


def test_a_call_to_a_loop_of_the_parent_says_what_to_do() -> None:
    """It would never be answered."""
    said = script(
        """
        from judgekit.execution.background import background_loop
        from judgekit.execution.crossing import Crossing

        crossing = Crossing(background_loop())

        async def three(): return 3

        assert asyncio.run(crossing.run(three())) == 3

        def check():
            try:
                asyncio.run(crossing.run(three()))
            except ConfigError as error:
                return "after the fork" in str(error)

        print(ends_well(check), asyncio.run(crossing.run(three())))
        """
    )
    assert said == "True 3\n"


def test_the_registry_holds_objects_weakly_and_functions_for_good() -> None:
    said = script(
        """
        import gc
        from judgekit import fork

        class Counts:
            def __init__(self, name):
                self.name = name
                fork.in_child(self.reset)

            def reset(self):
                seen.append(self.name)

        seen = []
        kept, gone = Counts("kept"), Counts("gone")
        registered = len(fork._methods)
        del gone
        gc.collect()
        assert len(fork._methods) == registered - 1

        @fork.in_child
        def function(): seen.append("function")

        print(ends_well(lambda: seen == ["function", "kept"]), seen)
        """
    )
    assert said == "True []\n"
