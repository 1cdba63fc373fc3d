"""The text path: control strings of any family broken, every cut marked, the whole prompt below a limit."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgekit.errors import JudgeRejected, RolloutError
from judgekit.judges import Piece, Turn
from judgekit.judges.engines.openai.fitting import shorter
from judgekit.judges.prompts.control_strings import (
    _view,
    disarm,
    is_control,
    template_strings,
    without_headers,
)
from judgekit.judges.prompts.cutting import MARK, shortened
from judgekit.judges.prompts.messages import control_strings, text_messages

OTHERS = """
<SPECIAL_11> <seed:eos> <seed:think> </seed:think> <reserved_107> [gMASK] <sop> <EOS_TOKEN> <BOS_TOKEN>
[EOT] [EOS] [UNUSED_TOKEN_145] <|action_end|> <|bom|> <eoa> <end_of_utterance> <|START_OF_TURN_TOKEN|> <用户>
<_user> <extra_id_1> <TOKENS_UNUSED_1> <|reserved_special_token_0|> <mask:1> <role> |ENDOFTEXT| <image>
<tool_call> </think> <[BOS_never_used_51bce0c785ca2f68081bfa7d91973934]> <fim_prefix> <0x0A> [MASK] [SEP]
"""
FAMILIES = {
    "ChatML": ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|IM_END|>"],
    "Llama": ["<|eot_id|>", "<|start_header_id|>", "<|begin_of_text|>", "<s>", "</s>", "<<SYS>>", "<</SYS>>"],
    "Gemma": ["<start_of_turn>", "<end_of_turn>", "<bos>", "<unused99>"],
    "Gemma 4": [
        "<|turn>",
        "<turn|>",
        "<|channel>",
        "<channel|>",
        "<|think|>",
        "<|tool_call>",
        "<tool_call|>",
    ],
    "Mistral": [
        "[INST]",
        "[/INST]",
        "[SYSTEM_PROMPT]",
        "[control_7]",
        "[BEGIN_AUDIO]",
        "[REFERENCE_DOC_0]",
        "[THINK]",
    ],
    "DeepSeek": ["<｜end▁of▁sentence｜>", "<｜User｜>", "｜DSML｜", "<dsml:invoke name=", "<｜DSML｜"],
    "MiniMax": ["]~b]", "[e~[", "]~!b[", "<minimax:tool_call>"],
    "EXAONE": ["[|endofturn|]", "[|assistant|]", "[|system|]", "[BOS]"],
    "others": OTHERS.split(),
}
ORDINARY = [
    "a < b and c > d, 1 << 3 | x",
    "if (a<b && c>d) { x |= y; }",
    "std::vector<int> v; map<string, int> m;\n#include <iostream>\nList<String>",
    "<div class='a'><p>One <b>two</b><br/></p></div>",
    "|x| + |y|, |a|b|c|, P(A|B), [1, 2], a[i], [x], f |> g",
    "A <-> B, x <= y >= z, <3",
    "[1] see [2], ~[a]~",
    "答えは 3、「は」",
]


@pytest.mark.parametrize("control", [c for family in FAMILIES.values() for c in family])
def test_control_strings_are_broken_where_only_text_is_sent(control: str) -> None:
    broken = disarm(f"a{control}b")
    assert control not in broken
    assert broken.replace(" ", "") == f"a{control}b".replace(" ", "")
    assert disarm(broken) == broken


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_maths_code_and_html_stay(text: str) -> None:
    assert disarm(text) == text


def test_what_normalisation_makes_a_control_string_is_broken() -> None:
    for text in (
        "＜|im_end|＞",
        "<｜ｉｍ_end｜>",
        "＜ｓ＞",
        "≮|im_end|≯",
        "［INST］",
        "<|i\u0301m_end|>",
        "<|ﬁm_preﬁx|>",
    ):
        broken = disarm(text)
        assert broken != text
        folded = "".join(c for c in unicodedata.normalize("NFKD", broken) if not unicodedata.combining(c))
        assert not any(c in folded for c in ("<|im", "|im_end|>", "<s>", "[INST]", "<|fim"))


def test_no_character_folds_to_two_of_markup() -> None:
    """So that a break beside one character always parts them."""
    for code in range(0x80, sys.maxunicode + 1):
        if not 0xD800 <= code < 0xE000:
            view, origin = _view(chr(code))
            assert sum(view.count(c) for c in "<>[]|~") < 2
            assert origin is None or len(origin) == len(view)


def test_control_strings_of_the_model_at_hand_are_broken_too() -> None:
    assert disarm("x @@END@@ y", ("@@END@@",)) == "x @ @END@@ y"
    assert disarm("x @@end@@ y", ("@@END@@",)) == "x @ @end@@ y"
    assert disarm("USER: hello", ("USER:", "  ", "x", "")) == "U SER: hello"
    assert disarm("<table>", ("<table>",)) == "< table>"
    assert disarm("say (sic)", ("(sic)", "something longer")) == "say ( sic)"
    assert disarm("Human: a\n\nhuman: b, human: c", ("\nHuman:",)) == "H uman: a\n\nh uman: b, human: c"
    assert disarm("x\nQ\n", ("\nQ",)) == "x\n Q\n"


def test_only_headers_are_broken_where_token_ids_are_sent() -> None:
    assert without_headers("<|im_end|> /think\nＨuman: x", ("\nHuman:",)) == "<|im_end|> /think\nＨ uman: x"


@pytest.mark.parametrize("word", ["/think", "/no_think", "/nothink", "/THINK", "／think"])
def test_switches_of_thinking_are_broken_up_for_every_server(word: str) -> None:
    assert disarm(f"24 {word}") == f"24 {word[0]} {word[1:]}"


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from([c for f in FAMILIES.values() for c in f] + ["<", "|", "[", "a", " ", "@@", "@"])
    )
)
def test_breaking_leaves_nothing_to_break(parts: list[str]) -> None:
    once = disarm("".join(parts), ("@@@", "a@"))
    assert disarm(once, ("@@@", "a@")) == once
    assert "@@@" not in once


QWEN = {
    "added_tokens_decoder": {
        "151643": {"content": "<|endoftext|>", "special": True},
        "151657": {"content": "<tool_call>", "special": False},
        "5": {"content": "\n\n", "special": False},
        "6": {"content": "▁▁▁", "special": False},
        "7": {"content": "kubernetes", "special": False},
        "8": {"content": "!", "special": True},
        "9": {"content": "@@turn", "special": False},
    },
    "additional_special_tokens": ["<|im_start|>", {"content": "<|im_end|>"}],
    "eos_token": {"content": "~eos~"},
    "pad_token": None,
    "model_max_length": 5,
}


def test_a_models_control_strings_come_from_its_configuration_and_template() -> None:
    template = "{{ bos }}{% for m in messages %}{{ '@@turn' + m['role'] + \"\\nUSER: \" }}[[TURN]]{{ 'ASSISTANT: ' }}{% endfor %}"
    found = control_strings(QWEN, template)
    assert {
        "<|endoftext|>",
        "<tool_call>",
        "<|im_start|>",
        "<|im_end|>",
        "~eos~",
        "@@turn",
        "ASSISTANT:",
    } <= set(found)
    assert not {"\n\n", "kubernetes", "!", "role", "['role']"} & set(found)
    assert control_strings({"chat_template": "{{ '<|a|>' }}"}) == ("<|a|>",)
    assert control_strings({"chat_template": [{"name": "x", "template": "<|b|>"}]}) == ("<|b|>",)
    assert control_strings({}, None) == ()
    assert template_strings("{# <|comment|> #}") == set()


def test_white_space_is_never_a_control_token() -> None:
    for token in ("\n", "\n\n\n", "  ", "\t", "!", ""):
        assert not is_control(token, special=True, template=f"x{token}y")


def quoting(*texts: str, max_tokens: int | None) -> tuple[Turn, ...]:
    shared = Piece("reference " * 20, trusted=False)
    pieces = [
        p for text in texts for p in (Piece("```\n"), Piece(text, trusted=False, max_tokens=max_tokens))
    ]
    return (Turn("system", (Piece("Judge."), shared)), Turn("user", (*pieces, Piece("\n```\nNow."))))


def test_over_long_pieces_are_cut_in_the_middle_and_say_so() -> None:
    system, user = text_messages(quoting("x" * 5000, max_tokens=100))
    assert MARK in user["content"]
    assert user["content"].endswith("x\n```\nNow.")
    assert len(user["content"]) == 300 + len("```\n") + len("\n```\nNow.")
    assert system["content"] == "Judge." + "reference " * 20


def test_the_whole_prompt_is_below_the_limit_and_the_candidate_is_cut_first() -> None:
    for text in ("x" * 50_000, "<|im_end|>" * 5000, "\u0301" * 50_000, "<|a" * 9000):
        messages = text_messages(quoting(text, "short", max_tokens=10**6), max_chars=2000)
        assert sum(len(m["content"]) for m in messages) <= 2000
        assert "reference " * 20 in messages[0]["content"]
        assert MARK in messages[1]["content"]
        assert "short" in messages[1]["content"]
    whole = text_messages(quoting("x", max_tokens=5), max_chars=2000)
    assert whole == text_messages(quoting("x", max_tokens=5))
    (first, _) = text_messages(quoting("x" * 900, max_tokens=10**6), max_chars=408)
    assert MARK in first["content"]  # what a group shares, only where nothing else is left
    with pytest.raises(JudgeRejected, match="characters longer than the 300"):
        text_messages((Turn("user", (Piece("trusted " * 100),)),), max_chars=300)


@pytest.mark.parametrize("max_tokens", [None, 1, 10**6])
def test_no_text_is_cut_to_nothing(max_tokens: int | None) -> None:
    """A judge that sees nothing of a candidate would grade it all the same."""
    fitting = 0
    for most in range(0, 1400, 7):
        try:
            first, last = text_messages(quoting("x" * 900, max_tokens=max_tokens), max_chars=most)
        except JudgeRejected:
            continue
        fitting += 1
        for text, word in ((first["content"], "reference "), (last["content"], "xxxxx")):
            assert word in text
            assert MARK in text or text.count("x") == 900 or text.count(word) == 20
    assert fitting > 100


@given(st.text(max_size=200), st.integers(0, 100))
def test_a_shortened_text_fits(text: str, most: int) -> None:
    assert len(shortened(text, most)) <= most


def test_a_rollout_with_too_many_messages_has_no_room_to_hide() -> None:
    pieces = [
        p
        for i in range(200)
        for p in (Piece(f"[{i}] assistant:\n```\n"), Piece("x", False, 99, 1), Piece("\n```\n"))
    ]
    merged = [Piece("Judge this.\n")]
    for piece in pieces:  # as a template fills them: one trusted piece between two texts
        if piece.trusted and merged[-1].trusted:
            merged[-1] = Piece(merged[-1].text + piece.text)
        else:
            merged.append(piece)
    turns = (Turn("user", tuple(merged)),)
    with pytest.raises(RolloutError, match="too many messages"):
        text_messages(turns, max_chars=1000)
    assert sum(len(m["content"]) for m in text_messages(turns, max_chars=10_000)) <= 10_000


def test_a_text_whose_few_characters_are_most_tokens_is_cut_until_little_is_left() -> None:
    """Cutting by the share of tokens would cut below what a template needs, and refuse the rollout."""
    turns = (Turn("user", (Piece("t" * 600), Piece("ﷺ" * 9_000, trusted=False, max_tokens=4096))),)
    messages = text_messages(turns)
    for _ in range(20):
        try:
            messages = shorter(turns, (), messages, 0.02)
        except JudgeRejected:
            break
    assert 600 < len(messages[0]["content"]) < 700
