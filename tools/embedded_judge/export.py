"""Writes a checkpoint as the shipped model folder: `python -m embedded_judge.export`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from .model import Shape

TARGET = Path(__file__).resolve().parents[2] / "src" / "judgekit" / "judges" / "embedded"


def config(shape: Shape) -> dict[str, Any]:
    """config.json, in the spelling of older and of newer transformers."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "max_position_embeddings": shape.positions,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": shape.theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.theta},
        "tie_word_embeddings": True,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "torch_dtype": "bfloat16",
        "dtype": "bfloat16",
    }


def weights(state: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """The weights under the names of Qwen2, in bfloat16."""
    out = {"model.embed_tokens.weight": state["embedding.weight"], "model.norm.weight": state["norm.weight"]}
    for i in range(shape.layers):
        own, theirs = f"layers.{i}.", f"model.layers.{i}."
        for kind in ("weight", "bias"):
            for name, part in zip("qkv", state[f"{own}qkv.{kind}"].chunk(3), strict=True):
                out[f"{theirs}self_attn.{name}_proj.{kind}"] = part
        out[f"{theirs}self_attn.o_proj.weight"] = state[f"{own}out.weight"]
        gate, up = state[f"{own}up.weight"].chunk(2)
        out[f"{theirs}mlp.gate_proj.weight"], out[f"{theirs}mlp.up_proj.weight"] = gate, up
        out[f"{theirs}mlp.down_proj.weight"] = state[f"{own}down.weight"]
        out[f"{theirs}input_layernorm.weight"] = state[f"{own}norm1.weight"]
        out[f"{theirs}post_attention_layernorm.weight"] = state[f"{own}norm2.weight"]
    return {name: value.bfloat16().contiguous() for name, value in out.items()}


def state_of(folder: Path) -> dict[str, Any]:
    """The weights of an exported folder as training has them: what `weights` wrote, in single precision."""
    import torch
    from safetensors.torch import load_file

    theirs = {name: value.float() for name, value in load_file(folder / "model.safetensors").items()}
    out = {
        "embedding.weight": theirs["model.embed_tokens.weight"],
        "norm.weight": theirs["model.norm.weight"],
    }
    layers = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    for i in range(layers):
        own, given = f"layers.{i}.", f"model.layers.{i}."
        for kind in ("weight", "bias"):
            parts = [theirs[f"{given}self_attn.{name}_proj.{kind}"] for name in "qkv"]
            out[f"{own}qkv.{kind}"] = torch.cat(parts)
        out[f"{own}out.weight"] = theirs[f"{given}self_attn.o_proj.weight"]
        gate, up = theirs[f"{given}mlp.gate_proj.weight"], theirs[f"{given}mlp.up_proj.weight"]
        out[f"{own}up.weight"] = torch.cat([gate, up])
        out[f"{own}down.weight"] = theirs[f"{given}mlp.down_proj.weight"]
        out[f"{own}norm1.weight"] = theirs[f"{given}input_layernorm.weight"]
        out[f"{own}norm2.weight"] = theirs[f"{given}post_attention_layernorm.weight"]
    return out


def export(checkpoint: Path, target: Path) -> int:
    """Writes *target* from the checkpoint and the tokenizer beside it; returns its size in bytes."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint.parent)
    shape = Shape(len(tokenizer))
    target.mkdir(parents=True, exist_ok=True)
    state = torch.load(checkpoint)["model"]
    save_file(weights(state, shape), target / "model.safetensors", metadata={"format": "pt"})
    (target / "tokenizer.json").write_text(tokenizer.backend_tokenizer.to_str() + "\n")
    (target / "chat_template.jinja").write_text(tokenizer.chat_template)
    files = {
        "config.json": config(shape),
        "generation_config.json": {"eos_token_id": 2, "pad_token_id": 0, "do_sample": False},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": shape.positions,
            "clean_up_tokenization_spaces": False,
        },
    }
    for name, content in files.items():
        (target / name).write_text(json.dumps(content, indent=2) + "\n")
    (target / "model.safetensors").chmod(0o644)
    return sum(path.stat().st_size for path in target.iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, nargs="?", default=Path("build/embedded-judge/final.pt"))
    parser.add_argument("--target", type=Path, default=TARGET)
    args = parser.parse_args()
    print(f"{args.target}: {export(args.checkpoint, args.target)} bytes")


if __name__ == "__main__":
    main()
