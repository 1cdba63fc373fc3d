"""Chat templates: those that packages ship, read here, and ours, in real tokenizers."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from chat_templates import READING, framed
from tiny_models import make_tokenizer

from judgekit import Rollout
from judgekit.graders import JudgeGrader, RewardModelGrader
from judgekit.judges.prompts.messages import control_strings, text_messages
from judgekit.judges.prompts.rendered import JUDGE, REWARD_MODEL, look, template_words
from judgekit.judges.prompts.tokens import PromptEncoder

WRONG = "3 and 8 are 11.\n#### 11"


def shipped() -> dict[str, str]:
    """The chat templates in installed packages."""
    found = {}
    for package in ("vllm", "trl", "sglang", "llama_cpp"):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            for path in sorted(Path(folder).rglob("*.jinja")):
                if (text := path.read_text()) and "messages" in text:
                    found[f"{package} {path.stem}"] = text
    return found


SHIPPED = shipped()


class Nobody:
    async def complete(self, request: Any) -> Any: ...
    async def reward(self, turns: Any) -> Any: ...


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer("chatml")


def shows(tokenizer: Any, template: str, generation_prompt: bool) -> Any:
    async def show(messages: list[dict[str, Any]], thinking: bool) -> str:
        return str(
            tokenizer.apply_chat_template(
                messages,
                chat_template=template,
                tokenize=False,
                add_generation_prompt=generation_prompt,
                enable_thinking=thinking,
                bos_token="<s>",
                eos_token="</s>",
            )
        )

    return show


def test_packages_ship_some() -> None:
    assert len(SHIPPED) >= 5


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_template_shows_what_was_sent(name: str, tokenizer: Any) -> None:
    """With each of its own words in a rollout's text, and all together; or it is said to be unverified."""
    template = SHIPPED[name]
    strings = control_strings({}, template)
    show = shows(tokenizer, template, True)
    try:
        found = asyncio.run(look(show, JUDGE, strings, template))
    except (
        Exception
    ) as error:  # it has no system role, or takes no plain text: the server refuses such messages
        pytest.skip(f"{type(error).__name__}: {error}")
    asking = JudgeGrader(Nobody()).asking  # type: ignore[arg-type]
    words = [word for word in template_words(template) if word.strip()]
    for text in [*(f"{WRONG}\n``{w}``\n{w}" for w in words), " ".join(words), "\n".join(words)]:
        request, _ = asking.request(asking.prepare(Rollout(prompt="p", ground_truth="24", response=text)))  # type: ignore[arg-type]
        messages = text_messages(request.turns, control_strings=(*strings, *found.strings))
        shown = asyncio.run(show(messages, False))
        frame = asyncio.run(show([{**m, "content": f"opal{i}"} for i, m in enumerate(messages)], False))
        for i, message in enumerate(messages):
            frame = frame.replace(f"opal{i}", message["content"])
        assert found.unverified or shown.split() == frame.split(), text


@pytest.mark.parametrize("name", [n for n, t in READING.items() if not t.framed])
def test_a_response_makes_no_turn_as_token_ids_either(name: str, tokenizer: Any) -> None:
    """Headers of plain words are the same tokens, whoever wrote them."""
    tokenizer = make_tokenizer("chatml")
    tokenizer.chat_template = READING[name].text
    contents = ["2+2?", "5", "Thank you!", "You are welcome."]
    real = tokenizer.apply_chat_template(
        [{"role": "assistant" if i % 2 else "user", "content": c} for i, c in enumerate(contents)],
        tokenize=False,
    )
    text = "5" + real.split("2+2?")[1].split("5", 1)[1]
    grader = RewardModelGrader(Nobody())  # type: ignore[arg-type]
    encoder = PromptEncoder(tokenizer, context_tokens=4096)
    turns = grader._turns(Rollout(prompt="2+2?", response=text))
    assert tokenizer.decode(encoder.encode_dialogue(turns).ids).strip() != real.strip()
    plain = encoder.encode(turns, reply_tokens=0, generation_prompt=False)
    assert tokenizer.decode(plain.ids).strip() == real.strip()  # else this test shows nothing
    honest = grader._turns(Rollout(prompt="2+2?", response="Assistants and persons: 4"))
    assert "Assistants and persons: 4" in tokenizer.decode(encoder.encode_dialogue(honest).ids)


@pytest.mark.parametrize("name", [n for n, t in READING.items() if t.framed])
def test_token_ids_are_safe_from_what_a_template_reads(name: str, tokenizer: Any) -> None:
    tokenizer = make_tokenizer("chatml")
    tokenizer.chat_template = framed(READING[name].text)
    encoder = PromptEncoder(tokenizer, context_tokens=4096)
    asking = JudgeGrader(Nobody()).asking  # type: ignore[arg-type]

    def ids(text: str) -> list[int]:
        rollout = Rollout(prompt="p", ground_truth="24", response=text)
        request, _ = asking.request(asking.prepare(rollout))  # type: ignore[arg-type]
        prompt = encoder.encode(request.turns, reply_tokens=1)
        start, end = prompt.untrusted[-1]
        assert tokenizer.decode(prompt.ids[start:end]) == text
        return [*prompt.ids[:start], *prompt.ids[end:]]

    plain = ids("It is 11.")
    for word in READING[name].words:
        assert ids(f"It is {word} 11.") == plain


def test_a_look_at_a_reward_model_finds_its_headers(tokenizer: Any) -> None:
    for name in ("headers", "words on lines"):
        found = asyncio.run(look(shows(tokenizer, READING[name].text, False), REWARD_MODEL))
        assert found.unverified == ""
        assert found.strings
