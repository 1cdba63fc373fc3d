"""The model: Qwen2's architecture, small, with a view of its attention for supervision."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    vocabulary: int
    hidden: int = 128
    layers: int = 6
    heads: int = 4
    feed_forward: int = 256
    theta: float = 10_000.0
    positions: int = 4096

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-6)


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        h, f = shape.hidden, shape.feed_forward
        self.heads = shape.heads
        self.norm1, self.norm2 = Norm(h), Norm(h)
        self.qkv = nn.Linear(h, 3 * h)
        self.out = nn.Linear(h, h, bias=False)
        self.up = nn.Linear(h, 2 * f, bias=False)
        self.down = nn.Linear(f, h, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """The new stream, and queries and keys as [batch, position, 2, head, width]."""
        b, t, h = x.shape
        qk, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, h // self.heads).split((2, 1), dim=2)
        even, odd = qk.chunk(2, -1)
        qk = torch.cat((even * cos - odd * sin, odd * cos + even * sin), -1)
        q, k, value = (part.squeeze(2).transpose(1, 2).float() for part in (*qk.chunk(2, 2), v))
        with torch.autocast("cpu", enabled=False):  # single precision is the faster one here
            y = F.scaled_dot_product_attention(q, k, value, is_causal=True).to(v.dtype)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, h))
        gate, up = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up), qk


class Judge(nn.Module):
    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList([Layer(shape) for _ in range(shape.layers)])
        self.norm = Norm(shape.hidden)
        width = shape.hidden // shape.heads
        frequencies = 1 / shape.theta ** (torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(shape.positions).float(), frequencies)
        self.register_buffer("cos", angles.cos()[:, None, None, :], persistent=False)
        self.register_buffer("sin", angles.sin()[:, None, None, :], persistent=False)
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif "embedding" in name:
                nn.init.normal_(p, std=0.1)
            elif p.dim() == 2:  # what writes into the stream begins at nothing
                nn.init.normal_(p, std=0.0 if ".out." in name or ".down." in name else shape.hidden**-0.5)

    def forward(self, ids: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """The last state, and each layer's stream and its queries and keys."""
        x = self.embedding(ids)
        streams, attention = [], []
        t = ids.shape[1]
        for layer in self.layers:
            x, qk = layer(x, self.cos[:t], self.sin[:t])
            streams.append(x)
            attention.append(qk)
        return self.norm(x), streams, attention

    def logits(self, state: Tensor) -> Tensor:
        return F.linear(state, self.embedding.weight)
