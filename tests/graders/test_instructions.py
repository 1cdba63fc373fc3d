"""IFEval's constraints, strict and loose."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Failed, Graded, GradingRunner, Rollout
from judgekit.graders import Instructions
from judgekit.graders.rules.english import sentences
from judgekit.graders.rules.instructions.constraints import CONSTRAINTS

KEPT: list[tuple[str, dict[str, Any], str, bool]] = [
    ("keywords:existence", {"keywords": ["dog", "Cat"]}, "A DOG and a cat.", True),
    ("keywords:existence", {"keywords": ["dog", "cat"]}, "A dog.", False),
    ("keywords:existence", {"keywords": ["C++"]}, "I like c++.", True),
    ("keywords:frequency", {"keyword": "dog", "frequency": 2, "relation": "at least"}, "dog Dog", True),
    ("keywords:frequency", {"keyword": "dog", "frequency": 2, "relation": "less than"}, "dog Dog", False),
    ("keywords:frequency", {"keyword": "dog", "frequency": 2, "relation": "exactly"}, "dogdog", True),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "A category.", True),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "A CAT!", False),
    ("keywords:letter_frequency", {"letter": "A", "let_frequency": 3, "let_relation": "at least"}, "aAa", True),
    ("keywords:letter_frequency", {"letter": "a", "let_frequency": 3, "let_relation": "less than"}, "aAa", False),
    ("keywords:key_sentences", {"key_sentences": ["It is so."], "num_sentences": 1}, "No. It is so.", True),
    ("language:response_language", {"language": "de"}, "Das ist ein Satz über einen großen Hund und seine Katze.", True),
    ("language:response_language", {"language": "de"}, "This is a sentence about a big dog and its cat.", False),
    ("language:response_language", {"language": "zh-cn"}, "这是一个关于大狗和它的猫的句子。", True),
    ("language:response_language", {"language": "de"}, "123", True),
    ("change_case:english_capital", {}, "THIS IS A SENTENCE ABOUT THE WEATHER IN THE NORTH OF ENGLAND.", True),
    ("change_case:english_capital", {}, "This is not.", False),
    ("change_case:english_lowercase", {}, "this is a sentence about the weather in the north of england.", True),
    ("change_case:english_lowercase", {}, "This is not.", False),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"}, "I am VERY glad", True),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "less than"}, "A WELL-KNOWN Thing", False),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "at least"}, "One. Two!", True),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"}, "Mr. Fox is 3.5 m tall, e.g. today", True),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "one two-three", True),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, "one two-three", False),
    ("length_constraints:number_characters", {"num_characters": 3, "relation": "at most"}, "abc", True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\ntwo", True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***one\n***\ntwo***", True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n\ntwo", False),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one ***\n*** two", False),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Two"}, 'one\n\n"two," he', True),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "two"}, "two\n\none", False),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 1, "nth_paragraph": 2, "first_word": "two"}, "two", False),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[name] and [address]", True),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[[name] [x", False),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Hi.\nP. S. more", True),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Hi.\nP.S. more", False),
    ("detectable_content:rephrase_paragraph", {"original_paragraph": "a b c", "low": 1, "high": 2}, "a b d", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* one\n  - two", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "**bold**\n* one", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "* one\n* two", False),
    ("detectable_format:constrained_response", {}, "My answer is yes.", True),
    ("detectable_format:constrained_response", {}, "Yes.", False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* and **two**", True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "** and *\n*", False),
    ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2}, "Section 1\nx\nSection 2\ny", True),
    ("detectable_format:multiple_sections", {"section_spliter": "SECTION", "num_sections": 1}, "Section 1", False),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', True),
    ("detectable_format:json_format", {}, "{'a': 1}", False),
    ("detectable_format:title", {}, "<<A title>>\ntext", True),
    ("detectable_format:title", {}, "<< >> <", False),
    ("punctuation:no_comma", {}, "one two", True),
    ("punctuation:no_comma", {}, "one, two", False),
    ("combination:two_responses", {}, "one\n******\ntwo", True),
    ("combination:two_responses", {}, "one\n******\none", False),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it"}, "say it. It.", True),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it"}, "It. Say it", False),
    ("startend:end_checker", {"end_phrase": "the end."}, '"That is The End."', True),
    ("startend:end_checker", {"end_phrase": "the end."}, "The end. Or not", False),
    ("startend:quotation", {}, '"so"', True),
    ("startend:quotation", {}, '"', False),
    ("multi-turn:constrained_start", {"starter": "I think"}, "I think so", True),
    ("punctuation:no_comma", {}, "", False),
    ("punctuation:no_comma", {}, " \n", False),
    ("punctuation:no_comma", {}, "犬，猫", True),
]  # fmt: skip


@pytest.mark.parametrize(("id_", "kwargs", "text", "kept"), KEPT)
def test_constraints(id_: str, kwargs: dict[str, Any], text: str, kept: bool) -> None:
    for grader in (
        Instructions([{"id": id_, **kwargs}]),
        Instructions([{"id": id_, **kwargs}], mode="loose"),
    ):
        found = grader.grade(Rollout(response=text))
        assert isinstance(found, Graded)
        if grader.mode == "strict" or kept:
            assert found.score == kept
    row = {"instruction_id_list": [id_], "kwargs": [{**dict.fromkeys(("num_words", "language")), **kwargs}]}
    found = Instructions().grade(Rollout(response=text, extra=row))
    assert isinstance(found, Graded)
    assert found.score == kept


def test_every_constraint_of_ifeval_has_a_case() -> None:
    families = {case[0].partition(":")[0] for case in KEPT}
    assert {case[0] for case in KEPT} == {id_ for id_ in CONSTRAINTS if id_.partition(":")[0] in families}


def test_scores_parts_and_forms() -> None:
    two = [{"id": "no_comma"}, {"id": "quotation"}]
    assert Instructions(two).grade(Rollout(response="so")) == Graded(
        0.5, "not kept: startend:quotation", {"kept": [True, False]}
    )
    assert Instructions(two, score="all").grade(Rollout(response="so")).score == 0  # type: ignore[union-attr]
    assert Instructions(["no_comma"]).grade(Rollout(response="<think>a,b</think>so")).score == 1  # type: ignore[list-item, union-attr]
    assert Instructions(["no_comma"], part="whole").grade(Rollout(response="<think>a,b</think>so")).score == 0  # type: ignore[list-item, union-attr]
    truth = json.dumps([{"instruction_id": ["punctuation:no_comma"], "kwargs": [None]}])
    for written in (truth, repr(json.loads(truth))):  # data sets have either
        assert Instructions("ground_truth").grade(Rollout(response="so", ground_truth=written)).score == 1  # type: ignore[union-attr]
    assert isinstance(
        Instructions("ground_truth").grade(Rollout(response="so", ground_truth="[open(")), Abstained
    )


@pytest.mark.parametrize(
    ("text", "strict", "loose"),
    [
        ("Sure, here it is:\nno comma", 0, 1),
        ("no comma\nSure, that was it", 0, 1),
        ("Well, so:\nno comma\nSure, that was it", 0, 1),
        ("a, b", 0, 0),
        ("none", 1, 1),
        ("", 0, 0),
        ("a,", 0, 0),
    ],
)
def test_loose_leaves_out_first_and_last_lines(text: str, strict: float, loose: float) -> None:
    rollout = Rollout(response=text)
    assert Instructions(["no_comma"]).grade(rollout).score == strict  # type: ignore[list-item, union-attr]
    assert Instructions(["no_comma"], mode="loose").grade(rollout).score == loose  # type: ignore[list-item, union-attr]
    quoted = Rollout(response=f'*"{text or "x"}"*')
    assert Instructions(["quotation"], mode="loose").grade(quoted).score == 1  # type: ignore[list-item, union-attr]


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"instruction_id_list": []},
        {"instruction_id_list": ["no:such"], "kwargs": [{}]},
        {"instruction_id_list": ["keywords:existence"], "kwargs": [{}]},
        {"instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": 5}]},
        {"instruction_id_list": ["keywords:existence"], "kwargs": []},
        {"instruction_id_list": [None], "kwargs": [{}]},
        {"instruction_id_list": 5, "kwargs": 6},
        {
            "instruction_id_list": ["length_constraints:number_words"],
            "kwargs": [{"num_words": 5, "relation": "about"}],
        },
        {"instruction_id_list": ["length_constraints:number_words"], "kwargs": ["x"]},
        {"instruction_id_list": ["length_constraints:number_words"], "kwargs": "{"},
    ],
)
def test_wrong_data_abstains(extra: Any) -> None:
    assert isinstance(Instructions().grade(Rollout(response="so", extra=extra)), Abstained)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("...", 0),
        ("One", 1),
        ("One. Two. Three", 3),
        ("Dr. Fox and Mr. Dog met J. R. Cat.", 1),
        ("It is 3.5 m. Really?! Yes.", 3),
        ("He said e.g. this. And that", 2),
        ("“So.” He left.", 2),
        ("犬です。猫です。", 2),
        ("one\ntwo", 1),
        ("." * 30_000 + "x", 1),
        ("Wait... What? No!", 3),
    ],
)
def test_sentences(text: str, count: int) -> None:
    assert len(sentences(text)) == count


def test_deep_json_is_the_rollouts_failure() -> None:
    rollout = Rollout(response="[" * 20_000)
    (result,) = GradingRunner([Instructions(["json_format"])]).run_sync([rollout])  # type: ignore[list-item]
    failed = result.grades["instructions"]
    assert isinstance(failed, Failed)
    assert failed.cause == "rollout"


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Instructions([]), "at least one constraint"),
        (lambda: Instructions([{"id": "no_coma"}]), "no constraint 'no_coma'"),
        (lambda: Instructions([{"id": "punctuation:no_coma"}]), "did you mean 'punctuation:no_comma'"),
        (lambda: Instructions([{"id": "keywords:existence", "keyword": ["a"]}]), "needs keywords; did you mean 'keyword'"),
        (lambda: Instructions([{"id": "number_words", "num_words": "5", "relation": "at least"}]), "a whole number"),
        (lambda: Instructions([{"id": "number_words", "num_words": 5, "relation": "least"}]), "less than, at least"),
        (lambda: Instructions([{"id": "letter_frequency", "letter": "ab", "let_frequency": 1, "let_relation": "at least"}]), "one character"),
        (lambda: Instructions([5]), "a mapping with an id"),  # type: ignore[list-item]
        (lambda: Instructions(mode="lose"), "did you mean 'loose'"),  # type: ignore[arg-type]
        (lambda: Instructions(score="any"), "score is one of"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_wrong_settings_are_said(build: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()


def test_without_langdetect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langdetect", None)
    Instructions([{"id": "no_comma"}])
    for constraints in ("extra", [{"id": "response_language", "language": "de"}]):
        with pytest.raises(ConfigError, match=r"judgekit-rl\[lang\]"):
            Instructions(constraints)


@pytest.mark.parametrize("language", ["zh", "zh-cn", "ZH_CN", "Chinese", "Simplified Chinese"])
def test_a_language_is_its_code_or_its_name(language: str) -> None:
    pytest.importorskip("langdetect")
    rule = Instructions([{"id": "language:response_language", "language": language}])  # type: ignore[list-item]
    for text, kept in (
        ("北京是中国的首都，也是一座历史悠久的城市。这里有很多名胜古迹。", 1),
        ("I live in a small town.", 0),
    ):
        graded = rule.grade(Rollout(response=text))
        assert isinstance(graded, Graded)
        assert graded.score == kept


def test_a_language_that_nobody_detects_is_said() -> None:
    pytest.importorskip("langdetect")
    with pytest.raises(ConfigError, match="language is a language or its code .*zh-tw.*, not 'klingon'"):
        Instructions([{"id": "language:response_language", "language": "klingon"}])  # type: ignore[list-item]


ROW: dict[str, Any] = {
    "instruction_id_list": ["keywords:forbidden_words", "length_constraints:number_words"],
    "kwargs": [{"forbidden_words": ["apple", "pie"]}, {"num_words": 3, "relation": "at least"}],
}


def test_rows_are_read_as_tables_hold_them() -> None:
    """numpy's arrays, NaN for what a constraint lacks, JSON text for the whole or for a part."""
    np = pytest.importorskip("numpy")
    ids, (words, number) = ROW["instruction_id_list"], ROW["kwargs"]
    arrays = np.array([{**words, "num_words": math.nan}, {**number, "forbidden_words": None}], dtype=object)
    forms = [
        ROW,
        {"instruction_id_list": np.array(ids, dtype=object), "kwargs": arrays},
        {"instruction_id_list": json.dumps(ids), "kwargs": json.dumps(ROW["kwargs"])},
        {"instruction_id_list": ids, "kwargs": [json.dumps(words), json.dumps(number)]},
        {
            "instruction_id_list": ids,
            "kwargs": [
                {"forbidden_words": json.dumps(words["forbidden_words"])},
                number,
            ],
        },
        {
            "instruction_id_list": ids,
            "kwargs": [
                {"forbidden_words": np.array(["apple", "pie"], dtype=object)},
                {**number, "num_words": 3.0},
            ],
        },
    ]
    for extra in forms:
        for text, kept in (("I love plums", [True, True]), ("apple pie", [False, False])):
            graded = Instructions().grade(Rollout(response=text, extra=extra))
            assert isinstance(graded, Graded), (extra, graded)
            assert graded.metadata == {"kept": kept}, extra
