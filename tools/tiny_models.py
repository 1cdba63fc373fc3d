"""Small random models for tests and benchmarks, made in seconds: they judge nothing, but load like real ones."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

WORDS = [
    "answer",
    "apple",
    "add",
    "after",
    "book",
    "before",
    "both",
    "boxes",
    "bread",
    "buys",
    "cards",
    "change",
    "cost",
    "count",
    "day",
    "each",
    "eight",
    "equal",
    "every",
    "fewer",
    "five",
    "four",
    "gives",
    "half",
    "has",
    "have",
    "hour",
    "how",
    "hundred",
    "if",
    "in",
    "is",
    "left",
    "less",
    "many",
    "minutes",
    "more",
    "much",
    "nine",
    "number",
    "of",
    "one",
    "pays",
    "people",
    "problem",
    "reach",
    "sells",
    "seven",
    "she",
    "six",
    "solution",
    "some",
    "step",
    "sum",
    "take",
    "ten",
    "than",
    "the",
    "then",
    "there",
    "three",
    "times",
    "to",
    "total",
    "two",
    "was",
    "week",
    "what",
    "when",
    "with",
    "write",
    "years",
    "yes",
    "you",
]

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES: dict[str, tuple[list[str], str]] = {
    "chatml": (["<|endoftext|>", "<|im_start|>", "<|im_end|>"], CHATML),
    "thinking": (
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"],
        CHATML.replace(
            "assistant\n{% endif %}",
            "assistant\n{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
        ),
    ),
    "always thinking": (
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"],
        CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}"),
    ),
    "harmony": (
        ["<|startoftext|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>"],
        "{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final{% endif %}<|message|>"
        "{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}",
    ),
    "headers": (
        ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        "{{ '<|begin_of_text|>' }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
        "{{ m.content | trim }}<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    ),
    "no system role": (
        ["<bos>", "<start_of_turn>", "<end_of_turn>"],
        "{{ '<bos>' }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        "{% for m in messages %}<start_of_turn>{{ m.role }}\n{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
    ),
    "brackets": (
        ["<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"],
        "<s>{% for m in messages %}{% if m.role == 'system' %}[SYSTEM_PROMPT]{{ m.content }}[/SYSTEM_PROMPT]"
        "{% else %}[INST]{{ m.content }}[/INST]{% endif %}{% endfor %}",
    ),
    "seeing": (
        [
            "<|endoftext|>",
            "<|im_start|>",
            "<image>",
            "<fake_token_around_image>",
            "<global-img>",
            "<end_of_utterance>",
            "<|im_end|>",
        ],
        CHATML.replace(
            "{{ m.content }}",
            "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
            "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}",
        ),
    ),
    "drops system": (
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        "{% for m in messages %}{% if m.role != 'system' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    ),
}
"""Chat templates in the manner of the common model families: (control strings, template)."""


def make_tokenizer(template: str = "chatml", *, vocab: int = 1200, in_vocabulary: bool = False) -> Any:
    """A byte-level BPE tokenizer with the control strings and chat template of a family.

    *in_vocabulary*: the control strings are entries of the plain vocabulary too, as in some models.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    control, chat = TEMPLATES[template]
    rng = random.Random(0)
    texts = [" ".join(rng.choice(WORDS) for _ in range(40)) + f" {rng.randrange(1000)}" for _ in range(400)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=control,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    if in_vocabulary:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(" ", "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        texts += [s for s in control for _ in range(500)]
        trainer = trainers.BpeTrainer(
            vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
        )
    tokenizer.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=control[-1], pad_token=control[0])
    made.add_special_tokens({"additional_special_tokens": control[1:-1]})
    made.chat_template = chat
    return made


def make_model(
    folder: Path,
    *,
    layers: int = 1,
    hidden: int = 64,
    template: str = "chatml",
    reward: bool = False,
    seed: int = 0,
) -> Path:
    """A random Qwen2 in *folder*: causal, or with *reward* a sequence classifier with one label."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification

    tokenizer = make_tokenizer(template)
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=max(2, hidden // 32),
        num_key_value_heads=max(1, hidden // 64),
        max_position_embeddings=4096,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.1,
        **({"num_labels": 1} if reward else {}),
    )
    model = (Qwen2ForSequenceClassification if reward else Qwen2ForCausalLM)(config).float()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_seeing_model(folder: Path, *, seed: int = 0) -> Path:
    """A random Idefics3 in *folder*: a model that sees an image of 32 × 32 pixels, as 4 tokens and their frame."""
    import torch
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessorPil,
        Idefics3Processor,
        LlamaConfig,
    )

    tokenizer = make_tokenizer("seeing")
    torch.manual_seed(seed)
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.1,
    )
    eyes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
        "initializer_range": 0.1,
    }
    config = Idefics3Config(
        vision_config=eyes,
        text_config=text,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=tokenizer.pad_token_id,
    )
    size = {"longest_edge": 32}
    sees = Idefics3ImageProcessorPil(size=size, max_image_size=size, do_image_splitting=False)
    Idefics3ForConditionalGeneration(config).float().save_pretrained(folder)
    Idefics3Processor(sees, tokenizer, image_seq_len=4).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
