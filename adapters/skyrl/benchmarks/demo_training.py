"""The four configurations of examples/skyrl at toy size, on CPU: rule or judge, synchronous or one step ahead.

    make demo-training

SkyRL's real trainers, generator and GRPO; a policy of two layers over bytes that is to learn to answer "7"; the
embedded judge on a real vLLM server in its own environment, over HTTP. Three seeds each, the same for all four.
Writes demo-out/training.png and demo-out/training.json. What CPU cannot show: the policy's own engine and the
trainer's GPU work, so that times here compare the configurations with each other and with nothing else.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import typing
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
if sys.version_info < (3, 12):
    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict  # type: ignore[misc, assignment]
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from loguru import logger

from toy_training import train

logger.remove()
VLLM = Path(sys.prefix).parent / "vllm" / "bin" / "python"
RULE = "graders: {correct: final_answer}\nreward: correct\n"
JUDGE = """graders: {{judge: {{use: judge, judge: local}}}}
judges: {{local: {{engine: openai, url: "{url}", layers: {{max_concurrency: 64}}}}}}
reward: judge
runner: {{max_concurrency: 64}}
"""
CONFIGURATIONS = {
    "rule, sync": (False, False),
    "judge, sync": (True, False),
    "rule, async": (False, True),
    "judge, async": (True, True),
}
"""Name: whether a judge rewards, whether generation is one step ahead."""
REWARD = "reward/avg_raw_reward"
TIMES = {"step": "timing/step", "generate": "timing/generate", "train": "timing/train_critic_and_policy"}


@contextmanager
def embedded_judge() -> Iterator[str]:
    """The embedded judge on a vLLM server of its own."""
    if not VLLM.exists():
        sys.exit("the judge runs in the vllm environment: make env-vllm")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(VLLM), "-m", "judgekit", "serve", "--name", f"demo-{port}", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            time.sleep(0.5)
            if process.poll() is not None:
                sys.exit("the judge's server did not start: judgekit serve says why")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
                break
            except OSError:
                pass
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def run(name: str, url: str, steps: int, seed: int) -> dict[str, list[float]]:
    judged, ahead = CONFIGURATIONS[name]
    folder = Path(tempfile.mkdtemp())
    file = folder / "reward.yaml"
    file.write_text(JUDGE.format(url=url) if judged else RULE)
    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):  # progress bars
        rows = train(
            folder,
            steps=steps,
            seed=seed,
            fully_async=ahead,
            per_prompt=8,
            truth=lambda i: "#### 7",
            config=file,
        )
    missing = rows.series("environment/judgekit/missing_mean")
    found = {"reward": rows.series(REWARD), "missing": missing}
    return found | {label: rows.series(key) for label, key in TIMES.items()}


def table(head: list[str], lines: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in [head, *lines]) for i in range(len(head))]
    return "\n".join("  ".join(c.rjust(w) for c, w in zip(r, widths, strict=True)) for r in [head, *lines])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("demo-out"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[dict[str, list[float]]]] = {}
    with embedded_judge() as url:
        for name in CONFIGURATIONS:
            for seed in given.seeds:
                start = time.perf_counter()
                found.setdefault(name, []).append(run(name, url, given.steps, seed))
                rewards = found[name][-1]["reward"]
                print(
                    f"{name}, seed {seed}: {statistics.fmean(rewards[:10]):.2f} → "
                    f"{statistics.fmean(rewards[-10:]):.2f} in {time.perf_counter() - start:.0f} s",
                    flush=True,
                )

    def middle(name: str, key: str) -> str:
        values = [v for one in found[name] for v in one[key]]
        return f"{statistics.median(values):.2f} s" if values else "–"

    print("\nMedian seconds")
    print(table(["", *TIMES], [[name, *(middle(name, key) for key in TIMES)] for name in found]))
    marks = [1, *range(10, given.steps + 1, 10)]

    def at(name: str, step: int) -> str:
        return f"{statistics.fmean(one['reward'][step - 1] for one in found[name]):.3f}"

    print("\nMean reward by step, over the seeds")
    print(table(["step", *found], [[str(step), *(at(name, step) for name in found)] for step in marks]))
    draw(found, given.out / "training.png")
    ends = {n: [statistics.fmean(o["reward"][-10:]) for o in ones] for n, ones in found.items()}
    begins = {n: [statistics.fmean(o["reward"][:10]) for o in ones] for n, ones in found.items()}
    figures: dict[str, Any] = {
        "learns": {n: all(e > b for b, e in zip(begins[n], ends[n], strict=True)) for n in found},
        "last_ten": {n: [round(e, 3) for e in ends[n]] for n in found},
        "sync_and_async_overlap": {
            kind: overlap(ends[f"{kind}, sync"], ends[f"{kind}, async"]) for kind in ("rule", "judge")
        },
        "missing": max(m for ones in found.values() for o in ones for m in o["missing"]),
    }
    (given.out / "training.json").write_text(json.dumps({"figures": figures, "runs": found}))
    print(f"\ncurves  {given.out / 'training.png'}\nvalues  {given.out / 'training.json'}")
    print(json.dumps(figures))
    if not all(figures["learns"].values()):
        sys.exit("a reward did not rise")


def overlap(a: list[float], b: list[float]) -> bool:
    return min(a) <= max(b) and min(b) <= max(a)


def draw(found: dict[str, list[dict[str, list[float]]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5))
    for name, ones in found.items():
        steps = range(1, 1 + min(len(o["reward"]) for o in ones))
        values = [[o["reward"][i - 1] for o in ones] for i in steps]
        (line,) = axes.plot(steps, [statistics.fmean(v) for v in values], label=name)
        axes.fill_between(
            steps, [min(v) for v in values], [max(v) for v in values], alpha=0.15, color=line.get_color()
        )
    axes.set_xlabel("step")
    axes.set_ylabel("mean reward")
    axes.set_ylim(0, 1)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
