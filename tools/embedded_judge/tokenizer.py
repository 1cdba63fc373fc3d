"""The tokenizer: byte-level BPE in which every digit and every punctuation mark is a token of its own."""

from __future__ import annotations

import random
from typing import Any

from .generator import Recipe, nonsense, sample
from .words import COMMON, ITEMS, NAMES, PEOPLE, PLACES, SYLLABLES, UNITS

VOCABULARY = 1536
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_PARTS = r" ?\p{L}+|\p{N}| ?(?:#+|`+|<+|>+|=+)| ?[^\s\p{L}\p{N}]|\n+|\s+(?=\S)|\s"


def train_tokenizer(trusted: list[str], seed: int = 1) -> Any:
    """A tokenizer trained on what the generator writes and on *trusted*, the words around it."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    rng = random.Random(seed)
    texts = [text for text in trusted for _ in range(500)]
    for _ in range(3000):
        case = sample(rng, Recipe()).case
        texts += [case.prompt, case.ground_truth, case.response, nonsense(rng, 40)]
    for word in COMMON + ITEMS + PLACES + PEOPLE + UNITS:
        texts += [f"{word} {word}"] * 12
    texts += [f"{name} {name}" for name in NAMES for _ in range(2)]
    texts += [f"{a}{b}" for a in SYLLABLES for b in SYLLABLES]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PARTS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    made.chat_template = CHAT_TEMPLATE
    return made
