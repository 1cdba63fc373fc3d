"""Train the embedded judge from nothing: `python -m embedded_judge.train`. Steps decide, not the clock.

OUT/final.pt is what `embedded_judge.export` reads, beside the tokenizer.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoTokenizer

from .dodges import dodge
from .export import TARGET, state_of
from .garbage import LONGEST, garbage
from .generator import (
    HARD_NUMBERS,
    MISSES,
    Recipe,
    drill,
    has_run,
    has_two,
    has_zero,
    other_digit,
    other_run,
    other_zeros,
    sample,
    swapped,
    times_ten,
    whole,
)
from .lessons import INDEX_CLASSES, Lesson, Maker, trusted_words
from .model import Judge, Shape
from .tokenizer import train_tokenizer

HEADS = {"digit": (3, 0), "end": (3, 1), "copy": (4, 1), "pick": (5, 0)}
"""The (layer, head) whose attention is supervised, by kind of link."""
INDEX_LAYER, SAME_LAYER, EQUAL_LAYER = 1, 3, 4
"""After which layer the place in a number, the comparison of characters and that of numbers is read."""
BATCH_TOKENS = 4096
"""Of each of the workers; small matrices gain more from two processes than from two threads."""
WORKERS = 2


@dataclass(frozen=True)
class Stage:
    """A part of the training: so many steps with one mix of lessons."""

    steps: int
    mix: dict[str, float]
    written: float = 0.0
    """Share of lessons in the written forms."""


@dataclass(frozen=True)
class Run:
    stages: tuple[Stage, ...]
    cool: float
    """Share of the steps, at the end, over which the learning rates fall to nothing."""
    lr: float = 0.02
    seed: int = 0
    index: float = 0.2
    """Weight of the places of digits in their numbers."""
    probed: bool = True
    """Whether the probes are trained, too. Exported weights have none."""
    planned: int = 0
    """Steps that the fall of the learning rates is laid out for, where they are more than are made."""


_LATE = {"drill": 0.08, "hard drill": 0.12, "hard": 0.2, "full": 0.48, "long": 0.12}
_LAST = {"garbage": 0.15, "dodge": 0.3, "hard drill": 0.05, "hard": 0.12, "full": 0.32, "long": 0.06}
_POLISH = {"garbage": 0.15, "dodge": 0.25, "hard drill": 0.1, "hard": 0.25, "full": 0.2, "long": 0.05}
_AGAIN = {"garbage": 0.1, "dodge": 0.35, "hard drill": 0.08, "hard": 0.25, "full": 0.17, "long": 0.05}
RUNS = (
    Run(
        (
            Stage(200, {"drill": 0.6, "short": 0.4}),
            Stage(150, {"drill": 0.3, "short": 0.4, "full": 0.3}),
            Stage(550, {"drill": 0.15, "short": 0.1, "full": 0.68, "long": 0.07}, written=0.06),
        ),
        cool=0.85,
    ),
    Run((Stage(1000, _LATE, written=0.12),), cool=0.9, lr=0.01, seed=1, index=0.5, planned=1500),
    Run((Stage(200, _LATE, written=0.12),), cool=1.0, lr=0.0037, seed=2, index=0.5),
    Run((Stage(400, _LAST, written=0.12),), cool=1.0, lr=0.003, seed=3, probed=False),
    Run((Stage(200, _POLISH, written=0.12),), cool=1.0, lr=0.0015, seed=4, probed=False),
    Run((Stage(250, _AGAIN, written=0.12),), cool=1.0, lr=0.002, seed=5, probed=False),
)
_GOLD = (None, whole(2, 6, has_zero), whole(3, 7, has_run), whole(2, 6, has_two))
_MISS = (None, times_ten, other_zeros, other_digit, swapped, other_run)


def lesson(rng: random.Random, maker: Maker, mix: dict[str, float], written: float) -> Lesson:
    kind = rng.choices(list(mix), list(mix.values()))[0]
    form = "direct"
    if rng.random() < written:
        form = rng.choice(["line", "plain"])
    elif rng.random() < 0.13:
        form = "spare"
    template = "default" if rng.random() < 0.75 else "variant"
    if kind == "drill":
        return maker.lesson(rng, drill(rng), form=form, template="short" if rng.random() < 0.8 else template)
    if kind == "hard drill":
        return maker.lesson(
            rng, drill(rng, hard=True), form=form, template="short" if rng.random() < 0.8 else template
        )
    if kind == "hard":
        recipe = Recipe(right=rng.random() < 0.5, gold=rng.choice(HARD_NUMBERS), miss=rng.choice(MISSES))
        return maker.lesson(rng, sample(rng, recipe), form=form, template=template)
    if kind == "garbage":
        longest = LONGEST if rng.random() < 0.1 else 700
        made = garbage(rng, longest=longest)
        return maker.lesson(rng, made, form=form if form == "spare" else "direct", template=template)
    if kind == "dodge":
        return maker.lesson(rng, dodge(rng), form=form, template=template)
    if kind == "short":
        made = sample(rng, Recipe(short=0.85))
        return maker.lesson(rng, made, form=form, template="short" if rng.random() < 0.7 else template)
    if kind == "long":
        return maker.lesson(
            rng, sample(rng, Recipe(long=rng.randint(100, 480))), form=form, template=template
        )
    chance = rng.random()
    recipe = Recipe()
    if chance < 0.15:
        recipe = Recipe(digits=(4, 8))
    elif chance < 0.22:
        recipe = Recipe(candidate="empty" if rng.random() < 0.4 else "none")
    elif chance < 0.32:
        recipe = Recipe(right=False, text="right")
    elif chance < 0.37:
        recipe = Recipe(right=True, text="wrong")
    elif chance < 0.55:
        recipe = Recipe(right=rng.random() < 0.5, gold=rng.choice(_GOLD), miss=rng.choice(_MISS))
    return maker.lesson(rng, sample(rng, recipe), form=form, template=template)


def batches(rng: random.Random, lessons: Iterable[Lesson], tokens: int) -> Iterator[list[Lesson]]:
    """Lessons of like lengths together, so that little is padded."""
    made: list[list[Lesson]] = [[]]
    for item in sorted(lessons, key=lambda item: len(item.ids) + 8 * rng.random()):
        if made[-1] and len(item.ids) * (len(made[-1]) + 1) > tokens:
            made.append([])
        made[-1].append(item)
    rng.shuffle(made)
    yield from made


def stream(seed: int, maker: Maker, stage: Stage) -> Iterator[list[Lesson]]:
    rng = random.Random(seed)
    while True:
        yield from batches(
            rng, [lesson(rng, maker, stage.mix, stage.written) for _ in range(500)], BATCH_TOKENS
        )


class Probes(nn.Module):
    """What is read from the stream in training only."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.index = nn.Linear(hidden, INDEX_CLASSES)
        self.same = nn.Linear(hidden, 1)
        self.equal = nn.Linear(hidden, 1)


def padded(batch: list[Lesson], pad: int) -> Tensor:
    ids = torch.full((len(batch), max(len(item.ids) for item in batch)), pad)
    for row, item in enumerate(batch):
        ids[row, : len(item.ids)] = torch.tensor(item.ids)
    return ids


def flat(batch: list[Lesson], part: str) -> tuple[Tensor, Tensor, Tensor]:
    """(row, position, value) of one kind of supervision."""
    rows = [(row, *pair) for row, item in enumerate(batch) for pair in getattr(item, part)]
    return tuple(torch.tensor(rows).T) if rows else (torch.zeros(0, dtype=torch.long),) * 3  # type: ignore[return-value]


def link_loss(batch: list[Lesson], kind: str, attention: list[Tensor]) -> Tensor | None:
    rows = [(row, *pair) for row, item in enumerate(batch) for pair in item.links.get(kind, ())]
    if not rows:
        return None
    layer, head = HEADS[kind]
    row, query, key = torch.tensor(rows).T
    q, k = attention[layer][:, :, :, head].float().unbind(2)
    scores = (q @ k.transpose(1, 2))[row, query] / q.shape[-1] ** 0.5
    scores = scores.masked_fill(torch.arange(q.shape[1]) > query[:, None], -1e9)
    return F.cross_entropy(scores, key)


def losses(
    model: Judge, probes: Probes, batch: list[Lesson], pad: int, *, half: bool = True
) -> dict[str, Tensor]:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        state, streams, attention = model(padded(batch, pad))
        row, at, token = flat(batch, "targets")
        logits = model.logits(state[row, at]).float()
    verdict = torch.tensor([item.verdict for item in batch])[row] == at
    each = F.cross_entropy(logits, token, reduction="none")
    out = {"verdict": each[verdict].mean()}
    if not bool(verdict.all()):
        out["text"] = each[~verdict].mean()
    out["right"] = (logits.argmax(-1) == token)[verdict].float().mean()
    for kind in HEADS:
        if (loss := link_loss(batch, kind, attention)) is not None:
            out[kind] = loss
    row, at, value = flat(batch, "index")
    out["index"] = F.cross_entropy(probes.index(streams[INDEX_LAYER][row, at].float()), value)
    for name, layer in (("same", SAME_LAYER), ("equal", EQUAL_LAYER)):
        row, at, value = flat(batch, name)
        if len(row):
            read = getattr(probes, name)(streams[layer][row, at].float())[:, 0]
            out[name] = F.binary_cross_entropy_with_logits(read, value.float())
    return out


WEIGHTS: dict[str, float] = {
    "verdict": 1.0, "text": 0.7, "digit": 0.4, "end": 0.2, "copy": 0.3, "pick": 0.3, "same": 0.4, "equal": 0.6
}  # fmt: skip


class Muon(torch.optim.Optimizer):
    """Momentum made orthogonal by Newton-Schulz steps (Jordan et al. 2024), for the layers' matrices."""

    def __init__(self, parameters: list[nn.Parameter], lr: float, parts: dict[int, int]) -> None:
        """*parts*: how many matrices stand in one parameter, by its id."""
        super().__init__(parameters, {"lr": lr})
        self.parts = parts

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                momentum.mul_(0.95).add_(p.grad)
                parts = p.grad.add(momentum, alpha=0.95).chunk(self.parts[id(p)])
                scale = max(1.0, parts[0].shape[0] / parts[0].shape[1]) ** 0.5
                update = torch.cat([orthogonal(part) for part in parts])
                p.mul_(1 - group["lr"] * 0.01).add_(update, alpha=-group["lr"] * scale)


def orthogonal(g: Tensor) -> Tensor:
    x = g / (g.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if tall else x


def optimizers(model: Judge, probes: Probes, lr: float) -> list[torch.optim.Optimizer]:
    matrices = {n: p for n, p in model.layers.named_parameters() if p.dim() == 2}
    chosen = {id(p) for p in matrices.values()}
    rest = [p for p in [*model.parameters(), *probes.parameters()] if id(p) not in chosen]
    parts = {id(p): 3 if ".qkv." in n else 2 if ".up." in n else 1 for n, p in matrices.items()}
    return [
        Muon(list(matrices.values()), lr, parts),
        torch.optim.AdamW(rest, lr=lr / 5, betas=(0.9, 0.98), weight_decay=0.0),
    ]


@torch.no_grad()
def accuracy(model: Judge, probes: Probes, lessons: list[Lesson], pad: int, *, half: bool) -> float:
    right = 0.0
    for batch in batches(random.Random(0), lessons, BATCH_TOKENS):
        right += float(losses(model, probes, batch, pad, half=half)["right"]) * len(batch)
    return right / len(lessons)


def average_gradients(parameters: list[nn.Parameter]) -> None:
    """The mean of the workers' gradients, in place."""
    whole = torch.cat(
        [p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in parameters]
    )
    dist.all_reduce(whole)
    whole /= dist.get_world_size()
    for p, part in zip(parameters, whole.split([p.numel() for p in parameters]), strict=True):
        p.grad = part.view_as(p)


def train(run: Run, model: Judge, probes: Probes, maker: Maker, out: Path, *, half: bool) -> None:
    pad, rank = maker.tokenizer.pad_token_id, dist.get_rank()
    held_out = {
        kind: [lesson(rng, maker, {kind: 1.0}, 0.0) for _ in range(200)]
        for rng, kind in (
            (random.Random(900_000 + i), kind)
            for i, kind in enumerate(("drill", "full", "long", "garbage", "dodge"))
        )
    }
    parameters = [*model.parameters(), *probes.parameters()]
    opts = optimizers(model, probes, run.lr)
    rates = [opt.param_groups[0]["lr"] for opt in opts]
    total, step, mean = sum(stage.steps for stage in run.stages), 0, {}
    begin, seen = time.monotonic(), 0
    for part, stage in enumerate(run.stages):
        lessons = stream((run.seed * 1000 + part + 1) * WORKERS + rank, maker, stage)
        for _ in range(stage.steps):
            planned = max(total, run.planned)
            share = min(1.0, (step + 1) / 30) * min(1.0, (planned - step) / (run.cool * planned))
            for opt, rate in zip(opts, rates, strict=True):
                opt.param_groups[0]["lr"] = rate * share
            batch = next(lessons)
            found = losses(model, probes, batch, pad, half=half)
            weights = {**WEIGHTS, "index": run.index}
            if not run.probed:
                weights |= {"index": 0.0, "same": 0.0, "equal": 0.0}
            torch.stack(
                [weights[name] * loss for name, loss in found.items() if name in weights]
            ).sum().backward()
            average_gradients(parameters)
            nn.utils.clip_grad_norm_(opts[1].param_groups[0]["params"], 1.0)
            for opt in opts:
                opt.step()
                opt.zero_grad(set_to_none=True)
            step, seen = step + 1, seen + len(batch)
            now = {k: v.item() for k, v in found.items()}
            mean |= {k: 0.95 * mean.get(k, v) + 0.05 * v for k, v in now.items()}
            if rank == 0 and (step % 50 == 0 or step == total):
                shown = " ".join(f"{k} {v:.3f}" for k, v in mean.items())
                print(
                    f"step {step}/{total} lessons {seen} {time.monotonic() - begin:.0f} s: {shown}",
                    flush=True,
                )
            if rank == 0 and (step % 200 == 0 or step == total):
                held = " ".join(
                    f"{k} {accuracy(model, probes, v, pad, half=half):.3f}" for k, v in held_out.items()
                )
                print(f"  held out: {held}", flush=True)
                torch.save(
                    {"model": model.state_dict(), "probes": probes.state_dict()}, out / "checkpoint.pt"
                )


def work(rank: int, args: argparse.Namespace) -> None:
    """One worker: the same model in all, other lessons in each."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", f"file://{args.out.resolve()}/meeting", rank=rank, world_size=WORKERS)
    tokenizer = AutoTokenizer.from_pretrained(args.out)
    maker = Maker(tokenizer)
    model, probes = Judge(Shape(len(tokenizer))), Probes(Shape(1).hidden)
    if args.shipped:
        model.load_state_dict(state_of(TARGET))
    elif args.run:
        saved = torch.load(args.out / f"run{args.run - 1}.pt")
        model.load_state_dict(saved["model"])
        probes.load_state_dict(saved["probes"])
    for number, run in enumerate(RUNS):
        if args.run in (None, number):
            stages = tuple(Stage(max(1, int(s.steps * args.scale)), s.mix, s.written) for s in run.stages)
            train(replace(run, stages=stages), model, probes, maker, args.out, half=not args.single)
            if rank == 0:
                torch.save(
                    {"model": model.state_dict(), "probes": probes.state_dict()}, args.out / f"run{number}.pt"
                )
    if rank == 0 and args.run in (None, len(RUNS) - 1):
        shutil.copy(args.out / f"run{len(RUNS) - 1}.pt", args.out / "final.pt")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/embedded-judge"))
    parser.add_argument("--run", type=int, help="only this one of the runs, from the end of the one before")
    parser.add_argument("--shipped", action="store_true", help="begin --run 3 with the shipped weights")
    parser.add_argument(
        "--single", action="store_true", help="in single precision: faster where the CPU has no bfloat16"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of the steps, for a trial")
    args = parser.parse_args()
    if args.shipped and (args.run is None or RUNS[args.run].probed):
        parser.error("--shipped begins with the shipped weights, which have no probes: give --run 3 with it")
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "meeting").unlink(missing_ok=True)
    if args.shipped:  # its vocabulary, byte for byte
        AutoTokenizer.from_pretrained(TARGET).save_pretrained(args.out)
    elif not args.run:  # later runs go on with the vocabulary that their weights know
        train_tokenizer(trusted_words()).save_pretrained(args.out)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the workers end too
    mp.spawn(work, (args,), nprocs=WORKERS, daemon=True)


if __name__ == "__main__":
    main()
