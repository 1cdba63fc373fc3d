"""Every fault × every place × every setting, with and without a ledger: is one wrong number paid?

    make bench-faults

What must come of each cell is written by hand in fault_table. A cell is bad where
- `silent_numbers`: a grade that failed has a score, or a missing reward is paid;
- `wrong_values`: a valid sibling's grade, reward or status differs, or a failure names another error or cause;
- `lost`: a rollout has no result, or no row in the ledger;
- `hangs`: it does not end in time; it and what is left of its fault in its place are then given up.
Tasks, threads and processes that stay behind are counted too. Hosts are also interrupted, ended and killed in
the middle of a run, and set into the scenes of fault_scenes. The same faults against OpenJudge's runner and TRL's reward
handling stand beside. `distinct_paths`: ways through the code, cells that differ in a name or a setting counted once.
`distinct_outcomes`: different lists of grades, rewards and statuses that came of a cell.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from common import finish, machine, reported
from fault_signals import CELLS as SIGNAL_CELLS
from fault_signals import signal_cell
from fault_table import SETTINGS, TABLE, cells, path_of

HERE = Path(__file__).parent
CHILDREN = max(2, os.cpu_count() or 1)
CELL_LIMIT_S = 25.0
"""After so long a child that answers nothing is killed: the cell holds the event loop."""
SCENE_LIMIT_S = 240.0
"""For all cells of one scene."""
SCENES = (
    "interpreter_shutdown", "closed_outputs", "two_graders", "uvloop", "fork", "spawn", "stopped_worker", "stopped_host",
    "no_descriptors", "no_threads", "clock_that_jumps", "left_by_its_caller", "retried",
)  # fmt: skip
"""Of fault_scenes."""
WAYS = ("stream", "run_sync", "second loop", "two threads", "ray actor")
GOALS = {
    "cells": (">=", 2000),
    "distinct_paths": (">", 189),
    "distinct_outcomes": (">", 91),
    "silent_numbers": ("==", 0),
    "wrong_values": ("==", 0),
    "lost": ("==", 0),
    "hangs": ("==", 0),
    "leaked_tasks": ("==", 0),
    "leaked_threads": ("==", 0),
    "leaked_processes": ("==", 0),
}

Job = dict[str, Any]


def jobs() -> list[list[Job]]:
    """The cells of one fault in one place together, those that take long first."""
    found = [
        [
            {"fault": fault, "place": place, "setting": setting, "ledger": ledger, "way": "run"}
            for setting in SETTINGS
            for ledger in (False, True)
        ]
        for fault, place in cells()
    ]
    for way in WAYS:
        for fault, row in TABLE.items():
            if "async" in row.places:
                job = {"fault": fault, "place": "async", "setting": "exclude", "ledger": False, "way": way}
                found.append([job])
    return sorted(found, key=lambda block: (block[0]["way"] != "ray actor", block[0]["place"] != "process"))


class Child:
    """A process that grades cells one after another, and is replaced where it hangs."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, job: Any, limit_s: float) -> dict[str, Any] | None:
        """Its answer; None where there is none in time, or it has died, and it is gone then."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, HERE / "fault_cells.py"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # what graders print, and what the interpreter says of them
                start_new_session=True,
                env={k: v for k, v in os.environ.items() if k != "JUDGEKIT_FAULTS_HOST"},
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(job).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            self.kill()
            return None
        line = b""
        end = time.monotonic() + limit_s
        while not line.endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                break
            if not (chunk := os.read(self.process.stdout.fileno(), 65536)):
                break
            line += chunk
        if not line.endswith(b"\n"):
            self.kill()
            return None
        return dict(json.loads(line))

    def kill(self) -> None:
        """End it and all its children."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self.process = None

    def end(self) -> dict[str, int]:
        """What it left behind: threads and processes."""
        if self.process is None:
            return {}
        answer = self.ask("end", 60)
        if answer is None:
            return {"hangs": 1}
        self.kill()
        return answer


class Bench:
    """Deals blocks of cells to children and adds up what they answer."""

    def __init__(self) -> None:
        self.blocks = jobs()[::-1]
        self.signals = list(SIGNAL_CELLS)
        self.scenes = list(SCENES)
        self.paths: set[str] = set()
        self.outcomes: set[str] = set()
        self.totals: Counter[str] = Counter()
        self.bad: dict[str, list[str]] = defaultdict(list)
        self.seconds: Counter[str] = Counter()
        self.rows_expected = 0
        self.lock = threading.Lock()

    def run(self) -> None:
        threads = [threading.Thread(target=self._serve) for _ in range(CHILDREN)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _serve(self) -> None:
        with_ray, child = Child(), Child()
        while True:
            with self.lock:
                block = self.blocks.pop() if self.blocks else None
                scene = None if block or not self.scenes else self.scenes.pop()
                at = None if block or scene or not self.signals else self.signals.pop()
            if block:
                self._block(with_ray if block[0]["way"] == "ray actor" else child, block)
            elif scene:
                self._scene(scene)
            elif at:
                self._signal(at)
            else:
                break
        for one in (with_ray, child):
            self._add("at the end of a child", one.end(), cells=0)

    def _block(self, child: Child, block: list[Job]) -> None:
        hangs = 0
        for i, job in enumerate(block):
            what = "{fault} | {place} | {setting} | {way}".format(**job) + (
                " | ledger" if job["ledger"] else ""
            )
            start = time.monotonic()
            # the first cell of a child pays for its imports; Ray's actor for all of Ray's
            answer = child.ask(job, CELL_LIMIT_S + (60 if job["way"] == "ray actor" else 0))
            self.seconds[f"{job['fault']} {job['place']}"] += int(1000 * (time.monotonic() - start))
            if answer is None:
                answer = {"hangs": 1, "why": "the process holds still, or has died"}
            self._came(path_of(job["fault"], job["place"], job["way"]), answer.pop("outcome", "no answer"))
            self._add(what, answer)
            hangs += answer["hangs"]
            if hangs >= 2 and i + 1 < len(block):
                left = len(block) - i - 1
                self._add(f"{what}, and {left} cells like it", {"hangs": left, "why": "given up"}, cells=left)
                return

    def _scene(self, name: str) -> None:
        """Run a scene's process, and add up the lines that it prints."""
        process = subprocess.Popen(
            [sys.executable, HERE / "fault_scenes.py", name],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
        try:
            shown = process.communicate(timeout=SCENE_LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            shown = process.communicate()[0]
        lines = [line for line in shown.splitlines() if line.startswith("[")]
        for line in lines:
            path, answer, outcome = json.loads(line)
            self._came(path, outcome)
            self._add(f"{name} | {path}", answer)
        if not (lines and shown.endswith("end\n")):
            self._add(name, {"hangs": 1, "why": f"the scene ended after {len(lines)} cells"})

    def _came(self, path: str, outcome: str) -> None:
        with self.lock:
            self.paths.add(path)
            self.outcomes.add(outcome)

    def _signal(self, at: tuple[Any, ...]) -> None:
        answer = signal_cell(*at)
        rows = answer.pop("rows")
        with self.lock:
            if at[3]:
                self.rows_expected += 8
                self.totals["rows"] += min(rows, 8)
        what = f"host: {at[0]}, {at[1]}, {at[2].name}{', ledger' if at[3] else ''}"
        self._came(what, f"{rows} rows")
        self._add(what, answer)

    def _add(self, what: str, answer: dict[str, Any], cells: int = 1) -> None:
        with self.lock:
            self.totals["cells"] += cells
            why = answer.pop("why", "")
            for key, count in answer.items():
                self.totals[key] += count
            if any(answer.values()):
                fault = what.split(" | ")[0]
                shown = ", ".join(f"{n} {key}" for key, n in answer.items() if n)
                self.bad[fault].append(f"{what}: {shown}{f' ({why})' if why else ''}")


def peers() -> dict[str, Any]:
    """What the same faults do to others."""
    print(
        "peers: OpenJudge's batch stands in a wait_for, for it has no timeout; TRL's judge function catches"
    )
    print("its own errors and timeouts and returns None, TRL's contract; weighed by TRL, or in one function.")
    running = {
        name: subprocess.Popen(
            [sys.executable, HERE / "fault_peers.py", name],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for name in ("openjudge", "trl", "trl_one_function")
    }
    found: dict[str, Any] = {}
    for name, process in running.items():
        try:
            shown = process.communicate(timeout=150)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            shown = f"  {name} does not end\nnull"
        *lines, last = shown.splitlines() or ["null"]
        print("\n".join(lines), flush=True)
        found[name] = json.loads(last) if last.startswith("{") else None
    return found


def main() -> None:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    print(machine())
    start = time.monotonic()
    bench = Bench()
    print(f"{len(cells())} faults in their places × {len(SETTINGS)} settings × ledger or none,", end=" ")
    print(
        f"{len(WAYS)} more ways to call, {len(SCENES)} scenes, {len(SIGNAL_CELLS)} hosts that are signalled",
        flush=True,
    )
    bench.run()
    for fault, lines in sorted(bench.bad.items()):
        print(f"  {fault}: {len(lines)} bad cells, as")
        for line in lines[:4]:
            print(f"    {line}"[:200])
    slow = ", ".join(f"{what} {ms / 1000:.0f} s" for what, ms in bench.seconds.most_common(5))
    print(f"{time.monotonic() - start:.0f} s; the longest: {slow}", flush=True)
    print(
        f"ledger rows of rollouts graded before their host's signal: {bench.totals.pop('rows', 0)} of {bench.rows_expected}"
    )
    bench.totals.update(distinct_paths=len(bench.paths), distinct_outcomes=len(bench.outcomes))
    figures: dict[str, Any] = {name: bench.totals[name] for name in GOALS}
    figures["peers"] = peers()
    finish(figures, GOALS)


if __name__ == "__main__":
    reported(main)
