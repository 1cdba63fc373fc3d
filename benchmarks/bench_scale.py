"""Grades a large data set on a Ray cluster of four nodes on this machine: is every row there once, and right?

    make bench-scale

Rollouts in Parquet, groups of 8; rules, a group transform, and an instant judge behind a named actor, which writes down
what it is asked. `judgekit grade --ray` grades a tenth of them (for `rss_growth`: the peak of all processes' memory,
driver, actors, judge and Ray's own, of all rows against a tenth), all of them undisturbed (`overhead`: its time from start
to end with shipped defaults, an actor for each free CPU of the cluster, the median of rounds in turn, against one process
per core of this machine, each with a runner and its share of the files, and no block, journal or cluster but the judge's),
all of them with a node killed in the middle, and all of them with the command killed in the middle and resumed. The nodes
claim as many CPUs as this machine has cores, and one more for the judge; `overhead_oversubscribed` is one run with twice as many actors. `resume_paid_twice`: judge calls after the resume for rows whose grades were on the disk.
`resume_paid_in_flight`: calls for rows that were being graded when it was killed, whose grades were not written yet.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import FIGURES, WORDS, finish, machine, median, reported
from scale_judge import verdict

HERE = Path(__file__).resolve().parent
FILES, PER_GROUP = 20, 8
REWARD = """
graders:
  correct: {use: final_answer}
  brief:   {use: length, soft_max: 1200, hard_max: 2400}
  judge:   {use: judge, judge: instant}
judges:
  instant: {engine: ray, name: instant}
reward: {weighted: {correct: 0.6, brief: 0.1, judge: 0.3}}
runner: {max_concurrency: 256, transform: center}
"""
GOALS: dict[str, tuple[str, float]] = {
    "rows_missing": ("==", 0),
    "rows_twice": ("==", 0),
    "wrong": ("==", 0),
    "rss_growth": ("<=", 1.2),
    "overhead": ("<=", 1.3),
    "resume_paid_twice": ("==", 0),
}


def make_data(folder: Path, count: int) -> dict[str, float]:
    """Write the files; return each row's expected reward."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    rng = random.Random(7)
    folder.mkdir()
    per = count // FILES // PER_GROUP * PER_GROUP
    expected: dict[str, float] = {}
    for number in range(FILES):
        rows, raw = [], []
        for i in range(number * per, (number + 1) * per):
            truth, answer = i // PER_GROUP % 7, rng.randrange(7)
            text = " ".join(rng.choices(WORDS, k=rng.randint(20, 150)))
            rows.append(
                {
                    "id": f"r{i}",
                    "group": f"g{i // PER_GROUP}",
                    "prompt": f"Question {i // PER_GROUP}: what is left?",
                    "ground_truth": str(truth),
                    "response": f"solution {i}: {text}\n\\boxed{{{answer}}}",
                }
            )
            raw.append(0.6 * (truth == answer) + 0.1 + 0.3 * verdict(i))
        for first in range(0, len(raw), PER_GROUP):
            mean = sum(raw[first : first + PER_GROUP]) / PER_GROUP
            for row, value in zip(rows[first:], raw[first : first + PER_GROUP], strict=False):
                expected[row["id"]] = value - mean
        write_table(pa.Table.from_pylist(rows), folder / f"part-{number:03d}.parquet", row_group_size=5003)
    return expected


def check(folder: Path, expected: dict[str, float]) -> dict[str, int]:
    """Rows of a result that are missing, there twice, or wrong."""
    from pyarrow.parquet import read_table

    seen: Counter[str] = Counter()
    wrong = 0
    for path in folder.glob("*.parquet"):
        table = read_table(path, columns=["id", "reward"])
        for id_, reward in zip(table["id"].to_pylist(), table["reward"].to_pylist(), strict=True):
            seen[id_] += 1
            wrong += reward is None or abs(reward - expected[id_]) > 1e-9
    twice = sum(count - 1 for count in seen.values())
    return {"rows_missing": len(expected) - len(seen), "rows_twice": twice, "wrong": wrong}


class Memory:
    """The most memory that this process's descendants have had together, in bytes; looked at twice a second."""

    def __init__(self) -> None:
        self.peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        from judgekit.execution.watchdog import descendants

        while not self._over.wait(0.5):
            self.peak = max(self.peak, sum(map(_proportional, descendants(os.getpid()))))

    def close(self) -> int:
        self._over.set()
        self._thread.join()
        return self.peak


def _proportional(pid: int) -> int:
    """A process's memory; of what several share (the object store), its part."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) * 1024
    except (OSError, StopIteration):
        return 0


def share(reward: Path, files: list[str], out: Path, address: str) -> None:
    """One runner, some files: what `overhead` compares with."""
    from pyarrow.parquet import read_table, write_table

    from judgekit.config import load_runner
    from judgekit.data import results_frame, rollouts_from
    from judgekit.judges.engines.ray.judge import connect

    connect(address)
    runner = load_runner(reward)
    for path in files:
        rollouts = rollouts_from(read_table(path))
        write_table(results_frame(rollouts, runner.run_sync(rollouts), "arrow"), out / Path(path).name)


class Bench:
    def __init__(self, folder: Path, nodes: int) -> None:
        import ray
        from ray.cluster_utils import Cluster

        from judgekit.judges import start_ray_judge

        self.folder = folder
        self.reward = folder / "reward.yaml"
        self.reward.write_text(REWARD)
        self.asked = folder / "asked.txt"
        self.cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 300 << 20}
        )
        ray.init(address=self.cluster.address, logging_level="ERROR", log_to_driver=False)
        self.judge = start_ray_judge(  # on the head: a judge's death is bench_crash's
            name="instant", factory="scale_judge:CountingJudge", cpus=1, options={"path": str(self.asked)}
        )
        cores, workers = os.cpu_count() or 1, nodes - 1
        self.cpus = [cores // workers + (i < cores % workers) for i in range(workers)]
        self.nodes = [self.node(cpus) for cpus in self.cpus]
        self.cluster.wait_for_nodes()

    def node(self, cpus: int) -> Any:
        return self.cluster.add_node(num_cpus=cpus, object_store_memory=300 << 20)

    def grade(self, source: str, out: Path, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "judgekit", "grade", str(self.reward), source, "--out", str(out)]
        return subprocess.Popen(
            [*command, "--ray", "--address", self.cluster.address, *options], stdout=subprocess.DEVNULL
        )

    def paid(self) -> Counter[str]:
        return Counter(self.asked.read_text().split()) if self.asked.exists() else Counter()

    def forget(self) -> None:
        if self.asked.exists():
            os.truncate(self.asked, 0)


def ended(process: subprocess.Popen[bytes], what: str) -> None:
    if process.wait() != 0:
        raise SystemExit(f"{what} ended with {process.returncode}")


def wait_for_blocks(out: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    while len(list(out.glob("*.parquet"))) < count:
        if process.poll() is not None:
            raise SystemExit("it was over before it could be disturbed: take more --rollouts")
        time.sleep(0.05)


def timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rollouts", type=int, default=200_000)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3, help="of all rows and of the baseline, in turn")
    args = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    os.environ["RAY_DEDUP_LOGS"] = "0"
    # Ray's workers have the priority of the processes that they are compared with, where others compute, too
    os.environ.update({"RAY_worker_niceness": "0"})
    with tempfile.TemporaryDirectory() as name:
        run(Path(name), args.rollouts, args.nodes, args.rounds)


def run(folder: Path, count: int, nodes: int, rounds: int) -> None:
    print(machine())
    expected = make_data(folder / "in", count)
    count = len(expected)
    everything = str(folder / "in" / "*.parquet")
    bench = Bench(folder, nodes)
    figures = FIGURES
    figures |= {"rollouts": count, "nodes": nodes}

    def baseline(out: Path) -> None:
        cores = os.cpu_count() or 1
        out.mkdir()
        files = sorted(map(str, (folder / "in").iterdir()))
        code = "import sys, json, bench_scale as b; from pathlib import Path as P; r, f, o, a = json.loads(sys.argv[1]); b.share(P(r), f, P(o), a)"
        shares = [
            json.dumps([str(bench.reward), files[i::cores], str(out), bench.cluster.address])
            for i in range(cores)
        ]
        for process in [subprocess.Popen([sys.executable, "-c", code, given]) for given in shares]:
            ended(process, "the baseline")

    memory = Memory()
    tenth = _tenth(folder)
    figures["tenth_s"] = timed(lambda: ended(bench.grade(tenth, folder / "tenth"), "a tenth"))
    peak_of_tenth = memory.close()
    memory = Memory()
    figures["watched_s"] = timed(lambda: ended(bench.grade(everything, folder / "all"), "all"))
    peak = memory.close()
    figures["rss_mb"] = peak / 2**20
    figures["rss_growth"] = peak / peak_of_tenth
    found = Counter(check(folder / "all", expected))

    seconds: list[tuple[float, float]] = []
    for number in range(rounds):
        out, base = folder / f"all-{number}", folder / f"baseline-{number}"
        with_ray = timed(lambda out=out: ended(bench.grade(everything, out), "all"))  # type: ignore[misc]
        seconds.append((with_ray, timed(lambda base=base: baseline(base))))  # type: ignore[misc]
        found += Counter(check(out, expected)) + Counter(check(base, expected))
    figures["ray_s"] = median([ray for ray, _ in seconds])
    figures["baseline_s"] = median([alone for _, alone in seconds])
    figures["overhead"] = median([ray / alone for ray, alone in seconds])

    twice = str(2 * (os.cpu_count() or 1))
    alone = timed(lambda: ended(bench.grade(everything, folder / "twice", "--concurrency", twice), "all"))
    figures["overhead_oversubscribed"] = alone / figures["baseline_s"]
    found += Counter(check(folder / "twice", expected))

    # a node dies
    bench.forget()
    blocks = len(list((folder / "all").glob("*.parquet")))

    def disturbed() -> None:
        process = bench.grade(everything, folder / "node")
        wait_for_blocks(folder / "node", blocks // 2, process)
        bench.cluster.remove_node(bench.nodes.pop(0), allow_graceful=False)
        ended(process, "the run whose node was killed")

    figures["node_killed_s"] = timed(disturbed)
    found += Counter(check(folder / "node", expected))
    figures["node_paid_again"] = sum(n - 1 for n in bench.paid().values())
    bench.nodes.append(bench.node(bench.cpus[0]))
    bench.cluster.wait_for_nodes()

    # the command dies, and is resumed
    bench.forget()
    out = folder / "resumed"
    process = bench.grade(everything, out)
    wait_for_blocks(out, blocks * 2 // 5, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(10)  # the actors of a dead driver end
    before = bench.paid()
    kept = on_disk(out)
    figures["resumed_s"] = timed(lambda: ended(bench.grade(everything, out, "--resume"), "the resumed run"))
    again = bench.paid() - before

    figures["resume_rows_kept"] = len(kept)
    figures["resume_paid_twice"] = sum(count for number, count in again.items() if number in kept)
    figures["resume_paid_in_flight"] = sum((again & before).values()) - figures["resume_paid_twice"]
    found += Counter(check(out, expected))
    for key in ("rows_missing", "rows_twice", "wrong"):
        figures[key] = found[key]
    finish(figures, GOALS)


def _tenth(folder: Path) -> str:
    """A folder with the first tenth of the files."""
    made = folder / "in-tenth"
    made.mkdir()
    for path in sorted((folder / "in").iterdir())[: FILES // 10]:
        (made / path.name).symlink_to(path)
    return str(made)


def on_disk(out: Path) -> set[str]:
    """Numbers of the solutions whose verdicts were written: into results, or into a block's journal."""
    from pyarrow.parquet import read_table

    from judgekit import Graded
    from judgekit.ledger.reader import read_ledger

    found: set[str] = set()
    for path in out.glob("*.parquet"):
        found.update(id_.removeprefix("r") for id_ in read_table(path, columns=["id"])["id"].to_pylist())
    for path in (out / ".judgekit" / "journal").glob("*.jsonl"):
        for entry in read_ledger(path, strict=False).entries:
            if isinstance(entry.grades.get("judge"), Graded):
                found.add(entry.id.removeprefix("r"))
    return found


if __name__ == "__main__":
    reported(main)
