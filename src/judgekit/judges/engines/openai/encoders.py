"""Loads the tokenizer of a judge that is behind a server."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from judgekit.errors import ConfigError
from judgekit.judges.prompts.tokens import PromptEncoder

_one_import = threading.Lock()
"""transformers imports its parts on demand, which fails where two threads do it at once."""


def load_encoder(tokenizer: str, context: int, template_kwargs: Mapping[str, Any]) -> PromptEncoder:
    """Load a model's tokenizer, from a folder or the hub. Raises ConfigError."""
    try:
        with _one_import:
            from transformers import AutoTokenizer
    except ImportError:
        raise ConfigError(
            "openai: prompts as token ids need transformers: install judgekit-rl[tokenizers]"
        ) from None
    try:
        loaded = AutoTokenizer.from_pretrained(tokenizer)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"openai: cannot load the tokenizer {tokenizer}: {str(error).splitlines()[0]}"
        ) from None
    return PromptEncoder(loaded, context_tokens=context, chat_template_kwargs=template_kwargs)
