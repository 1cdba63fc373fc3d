"""SkyRL's own generator; a script stands in for the policy."""

import asyncio
import sys
from pathlib import Path

import conftest  # noqa: F401 - the shim for Python 3.11, before skyrl

# isort: split
from samples import GROUPS, SIZE, Script, samples, write

from judgekit_skyrl import make_generator, register
from judgekit_skyrl.generator import EXCLUDED
from stand_ins import ScriptedPolicy, generator, input_of, make_tokenizer, totals

register(config=sys.argv[1])
tokenizer = make_tokenizer(Path("tokenizer"))
made = generator(make_generator(), tokenizer, ScriptedPolicy(tokenizer, Script()), workers=8)
found = asyncio.run(made.generate(input_of(GROUPS, SIZE), disable_tqdm=True))
texts = [tokenizer.decode(tokens, skip_special_tokens=True) for tokens in found["response_ids"]]
said = {
    reason: f"stop reason {EXCLUDED}: its trainer leaves it out" if reason == EXCLUDED else ""
    for reason in found["stop_reasons"]
}
by_text = {one.text: one for one in samples()}
write(
    "SkyRL, generator",
    (
        (by_text[text], reward, said[reason])
        for text, reward, reason in zip(texts, totals(found), found["stop_reasons"], strict=True)
    ),
    package="skyrl",
)
