"""Comparing texts: equal, contained, overlapping, similar; several references."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest

from judgekit import ConfigError, Failed, Graded, GradingRunner, Rollout
from judgekit.execution.pool import ProcessPool
from judgekit.graders import Bleu, ChrF, EditSimilarity, Rouge, TextMatch, TokenF1
from judgekit.graders.rules.committed import last_boxed
from judgekit.graders.rules.rule import code_blocks, normalised, part_of


def score(grader: Any, response: str, truth: Any) -> float | None:
    grade = grader.grade(Rollout(response=response, ground_truth=truth))
    return grade.score if isinstance(grade, Graded) else None


@pytest.mark.parametrize(
    ("how", "response", "truth", "expected"),
    [
        ("exact", "Paris", "Paris", 1),
        ("exact", " Paris\n", "Paris", 1),
        ("exact", "paris", "Paris", 0),
        ("exact", "Paris.", "Paris", 0),
        ("exact", "", "Paris", 0),
        ("exact", "72", 72, 1),
        ("exact", "<think>Rome</think>\nParis", "Paris", 1),
        ("exact", "<think>Paris", "Paris", 0),
        ("exact", "東京", "東京", 1),
        ("exact", "Rome", ["Paris", "Rome"], 1),
        ("exact", "x" * 10**6, "Paris", 0),
        ("normalised", "The Paris!", "paris", 1),
        ("normalised", "an  apple a day", "Apple day.", 1),
        ("normalised", "...", "...", 1),
        ("normalised", "...", "!!!", 0),
        ("normalised", "", "the", 0),
        *(("normalised", written, "A", 1) for written in ("A", "A.", "a", "(A)", "[[A]]", "**A**")),
        ("normalised", "The", "A", 0),
        ("normalised", "[[B]]", "B", 1),
        ("normalised", "(12,3)", "(1,23)", 0),
        ("normalised", "1,2", "12", 0),
        ("normalised", r"\frac{1}{23}", r"\frac{12}{3}", 0),
        ("normalised", "January 5, 2020", "january 5 2020", 1),
        ("normalised", "3,000 to 1,00,000", "3000 to 100000", 1),
        *(
            ("normalised", written, "12500", 1)
            for written in ("12{,}500", r"12\,500", "12'500", "12’500", "12_500", "12，500", "1,2500")
        ),
        ("normalised", "(212)5551234", "2125551234", 1),
        ("prefix", "Paris is it", "Paris", 1),
        ("prefix", "It is Paris", "Paris", 0),
        ("suffix", "It is Paris", "Paris", 1),
        ("suffix", "It is Paris.", "Paris", 0),
        ("contains", "It is Paris, surely", "Paris", 1),
        ("contains", "It is Par", "Paris", 0),
        ("contains", "a.c", ".", 1),
        ("contained", "Par", "Paris", 1),
        ("contained", "", "Paris", 0),
        ("regex", "It is 72.", r"\b\d+\b", 1),
        ("regex", "It is so.", r"\b\d+\b", 0),
        ("exact", "x", None, None),
        ("exact", "x", "", None),
        ("exact", "x", [], None),
        ("exact", "x", [None, " "], None),
        ("exact", "x", True, 0),
        ("exact", "x", math.nan, None),
        ("regex", "x", "(", None),
    ],
)
def test_text_match(how: Any, response: str, truth: Any, expected: float | None) -> None:
    assert score(TextMatch(how=how), response, truth) == expected


def test_text_match_options() -> None:
    assert score(TextMatch(ignore_case=True), "PARIS", "paris") == 1
    assert score(TextMatch(how="regex", ignore_case=True), "PARIS", "par.s") == 1
    words = TextMatch(how="contains", whole_words=True)
    assert score(words, "in Paris.", "Paris") == 1
    assert score(words, "Parisian", "Paris") == 0
    assert score(words, "c++ is it", "c++") == 1
    assert score(TextMatch(how="contains", several="all"), "a and b", ["a", "b"]) == 1
    assert score(TextMatch(how="contains", several="all"), "a", ["a", "b"]) == 0
    assert score(TextMatch(part="boxed"), r"so \boxed{\frac{1}{2}}", r"\frac{1}{2}") == 1
    assert score(TextMatch(part="boxed"), "so 1/2", "1/2") == 0
    assert score(TextMatch(part="answer"), "hm <answer> 5 </answer>.", "5") == 1
    assert score(TextMatch(part="last_line"), "hm\n5\n\n", "5") == 1


@pytest.mark.parametrize(
    ("response", "truth", "expected"),
    [
        ("The answer is J. K. Rowling.", "J. K. Rowling", 1),
        ("The answer is Mr. Smith. He is a baker.", "Mr. Smith", 1),
        ("The answer is Paris. Or Rome.", "Paris", 0),
        ("The answer is Paris. Wait, no, it's Rome.", "Rome", 1),
        ("The answer is Paris. Actually, it's in France.", "Paris", 1),
        ("The answer is \u201cParis\u201d.", "Paris", 1),
        ("The answer is 1914\u20131918.", "1914-1918", 1),
        ("The answer is 1914\u20131919.", "1914-1918", 0),
        ("The answer is George W. Bush.", "George W. Bush", 1),
        ("The answer is George W. Bush. He won in 2000.", "George W. Bush", 1),
        ("The answer is George W. Bush, the 43rd.", "George W. Bush", 0),
        ("The answer is Samuel L. Jackson and no other.", "Samuel L. Jackson", 0),
        ("The answer is St. Louis.", "St. Louis", 1),
        ("The answer is Mt. Everest. It is high.", "Mt. Everest", 1),
        ("The answer is Washington, D.C. It is a city.", "Washington, D.C.", 1),
        ("The answer is the U.S. The war began there.", "the U.S.", 1),
        ("The answer is the U.S. Navy.", "the U.S. Navy", 1),
        ("The answer is Martin Luther King Jr. He was a minister.", "Martin Luther King Jr.", 1),
        ("The answer is Apple Inc. of Cupertino", "Apple Inc. of Cupertino", 1),
        ("The answer is Roe vs. Wade.", "Roe vs. Wade", 1),
        ("The answer is vitamin C. Oranges have it.", "vitamin C", 1),
        ("The answer is Plan B. It costs less.", "Plan B", 1),
        ("The answer is Hepatitis B. Symptoms include fever.", "Hepatitis B", 1),
        ("The answer is No. 5.", "No. 5", 1),
        ("The answer is Prof. Moriarty.", "Prof. Moriarty", 1),
    ],
)
def test_a_committed_text_ends_where_its_sentence_does(response: str, truth: str, expected: float) -> None:
    assert score(TextMatch(how="normalised", part="committed"), response, truth) == expected


@pytest.mark.parametrize(
    "response", ["On May 5 it was in Paris.", "Without a doubt it is Paris.", "There is no doubt: Paris"]
)
def test_what_is_certain_is_contained(response: str) -> None:
    assert score(TextMatch(how="contains", ignore_case=True), response, "Paris") == 1


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("It is a cat", 1),
        ("It is not a dog, it is a cat", 1),
        ("a cat? It is a cat", 1),
        ("It is not a cat", 0),
        ("It isn't the cat", 0),
        ("It may look like a cat, but it is not a cat", 0),
    ],
)
def test_an_answer_that_ends_in_a_denial_does_not_end_in_what_it_denies(
    response: str, expected: float, whole_words: bool
) -> None:
    assert score(TextMatch(how="suffix", whole_words=whole_words), response, "cat") == expected


def test_a_pattern_that_never_ends_is_the_rollouts_fault() -> None:
    pool = ProcessPool(1)
    try:
        runner = GradingRunner([TextMatch(how="regex", timeout_s=0.5)], pool=pool)
        causes = set()
        while (
            "rollout" not in causes
        ):  # a busy machine, which gives the worker too little time, is to blame instead
            (result,) = runner.run_sync([Rollout(response="a" * 40 + "!", ground_truth="(a+)+$")])
            grade = result.grades["text_match"]
            assert isinstance(grade, Failed)
            causes.add(grade.cause)
    finally:
        pool.close()


@pytest.mark.parametrize(
    ("response", "truth", "expected"),
    [
        ("the cat sat", "cat sat", 1.0),
        ("cat", "cat sat", 2 / 3),
        ("cat sat on mat", "cat sat", 2 / 3),
        ("dog", "cat", 0.0),
        ("", "cat", 0.0),
        ("the", "an", 0.0),
        ("", "the", 0.0),
        ("cat cat cat", "cat", 0.5),
        ("cat", "cat cat cat", 0.5),
        ("Cat, SAT!", "cat sat", 1.0),
        ("on the mat", ["dog", "mat on"], 1.0),
        ("a b", "b a", 1.0),  # "a" is an article
        ("x y", "y x", 1.0),
        ("café noir", "café blanc", 0.5),
        ("72", 72, 1.0),
        ("seven", "7", 0.0),
        ("東京 都", "東京", 2 / 3),
        ("<think>cat</think> dog", "cat", 0.0),
        ("x " * 1000, "x", 2 / 1001),
        ("cat", None, None),
        ("cat", {"a": 1}, None),
    ],
)
def test_token_f1_is_squads(response: str, truth: Any, expected: float | None) -> None:
    assert score(TokenF1(), response, truth) == (expected if expected is None else pytest.approx(expected))


def test_token_f1_options() -> None:
    assert score(TokenF1(of="precision"), "cat sat on mat", "cat sat") == 0.5
    assert score(TokenF1(of="recall"), "cat sat on mat", "cat sat") == 1
    assert score(TokenF1(unit="characters"), "東京", "東京都") == pytest.approx(0.8)
    assert score(TokenF1(normalise=False), "The cat", "the cat") == 0.5
    assert score(TokenF1(several="all"), "cat", ["cat", "dog"]) == 0


@pytest.mark.parametrize(
    ("distance", "a", "b", "expected"),
    [
        ("levenshtein", "kitten", "sitting", 1 - 3 / 7),
        ("levenshtein", "", "", None),
        ("levenshtein", "", "abc", 0),
        ("levenshtein", "abc", "abc", 1),
        ("levenshtein", "ca", "abc", 0),
        ("levenshtein", "ABC", "abc", 0),
        ("levenshtein", "日本語", "日本", 2 / 3),
        ("levenshtein", "😀😀", "😀", 0.5),
        ("levenshtein", "ab", ["xy", "ab"], 1),
        ("indel", "ab", "abcd", 2 * 2 / 6),
        ("indel", "abc", "abd", 2 * 2 / 6),
        ("osa", "ab", "ba", 0.5),
        ("levenshtein", "ab", "ba", 0),
        ("damerau_levenshtein", "ca", "abc", 1 / 3),
        ("jaro", "martha", "marhta", 0.944444),
        ("jaro_winkler", "martha", "marhta", 0.961111),
        ("lcs", "abcd", "acd", 0.75),
        ("levenshtein", "x" * 5000, "x" * 5000, 1),
        ("levenshtein", "x" * 5000, "y", 0),
        ("levenshtein", " abc ", "abc", 1),
        ("levenshtein", "abc", None, None),
    ],
)
def test_edit_similarity(distance: Any, a: str, b: Any, expected: float | None) -> None:
    found = score(EditSimilarity(distance=distance), a, b)
    assert found == (expected if expected is None else pytest.approx(expected, abs=1e-5))


PAIRS = [
    ("the cat sat on the mat", "the cat sat on the mat"),
    ("the cat sat on a mat", "the cat sat on the mat"),
    ("a completely different text", "the cat sat on the mat"),
    ("cat", "the cat"),
    ("The CAT, sat!", "the cat sat"),
    ("mat the on sat cat the", "the cat sat on the mat"),
    ("", "the cat"),
    ("it is 3.5 m long.", "it is 3.4 m long"),
    ("running runs runner", "run ran running"),
    ("one\ntwo three", "one two\nthree"),
    ("naïve café", "naive cafe"),
    ("東京は首都", "東京は日本の首都"),
    ("x " * 200, "x y " * 100),
    ("Don't stop, it's 5 o'clock!", "Do not stop; it is five o'clock."),
    ("1,234.50 dollars", "1234.5 dollars"),
    ("a", "a"),
    ("a b", "b a"),
    ("the the the the", "the"),
    ("First line.\nSecond line.", "First line.\nSecond line."),
    ("🐕 dog", "🐈 dog"),
]


@pytest.mark.parametrize(("answer", "reference"), PAIRS)
def test_bleu_chrf_and_rouge_are_the_packages_own(answer: str, reference: str) -> None:
    import sacrebleu
    from rouge_score.rouge_scorer import RougeScorer

    assert score(Bleu(), answer, reference) == pytest.approx(
        min(sacrebleu.sentence_bleu(answer, [reference]).score / 100, 1)
    )
    assert score(ChrF(), answer, reference) == pytest.approx(
        sacrebleu.sentence_chrf(answer, [reference]).score / 100
    )
    for variant in ("rouge1", "rouge2", "rougeL", "rougeLsum"):
        for stem in (False, True):
            wanted = RougeScorer([variant], use_stemmer=stem).score(reference, answer)[variant]
            found = score(Rouge(variant=variant, stem=stem), answer, reference)
            if reference.isascii():
                assert found == pytest.approx(wanted.fmeasure)
    assert score(Rouge(of="recall"), "the cat", "the cat sat") == pytest.approx(2 / 3)
    assert score(Rouge(of="precision"), "the cat", "the cat sat") == 1


def test_several_references_for_bleu_are_one_set() -> None:
    import sacrebleu

    references = ["the cat sat", "a cat was sitting"]
    assert score(Bleu(), "a cat sat", references) == pytest.approx(
        sacrebleu.sentence_bleu("a cat sat", references).score / 100
    )
    assert score(Bleu(several="all"), "the cat sat", references) < 1  # type: ignore[operator]
    assert score(Rouge(), "東京", "東京") is None


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: TextMatch(how="exakt"), "how is one of .*did you mean 'exact'"),  # type: ignore[arg-type]
        (lambda: TextMatch(part="box"), "part is one of .*did you mean 'boxed'"),  # type: ignore[arg-type]
        (lambda: TextMatch(several="some"), "several is one of"),  # type: ignore[arg-type]
        (lambda: TextMatch(whole_words=True), "whole_words is for"),
        (lambda: TokenF1(of="f2"), "of is one of f1, precision, recall"),  # type: ignore[arg-type]
        (lambda: TokenF1(unit="word"), "did you mean 'words'"),  # type: ignore[arg-type]
        (lambda: EditSimilarity(distance="levenstein"), "did you mean 'levenshtein'"),  # type: ignore[arg-type]
        (lambda: Bleu(max_order=0), "max_order is a whole number of at least 1"),
        (lambda: Bleu(tokenize="13b"), "did you mean '13a'"),
        (lambda: ChrF(beta=0), "beta"),
        (lambda: Rouge(variant="rougel"), "did you mean 'rougeL'"),
    ],
)
def test_wrong_settings_are_said(build: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()


@pytest.mark.parametrize(
    ("build", "module", "extra"),
    [
        (EditSimilarity, "rapidfuzz.distance", "text"),
        (Bleu, "sacrebleu", "text"),
        (ChrF, "sacrebleu", "text"),
        (Rouge, "rouge_score.rouge_scorer", "text"),
    ],
)
def test_a_missing_library_names_its_extra(
    build: Any, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"judgekit-rl\[{extra}\]"):
        build()


def test_large_texts_are_compared_in_a_worker() -> None:
    pool = ProcessPool(1)
    try:
        runner = GradingRunner([EditSimilarity(timeout_s=20), TokenF1()], pool=pool)
        small, large = runner.run_sync(
            [Rollout(response=r, ground_truth="abc " * 10) for r in ("abc", "abc " * 50_000)]
        )
        assert pool.started == 1
        assert small.score("token_f1") == pytest.approx(2 / 11)
        assert 0 < large.score("edit_similarity") < 1  # type: ignore[operator]
    finally:
        pool.close()


@pytest.mark.parametrize(
    ("text", "boxed"),
    [
        (r"\boxed{1}", "1"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\fbox{3}", "3"),
        (r"\boxed {4}", "4"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"\boxed{1", None),
        (r"\boxed{1} \boxed{2", None),
        (r"\boxed", None),
        (r"\boxed{5} and \boxed is a command", "5"),
        ("", None),
        (r"\boxed{}", ""),
    ],
)
def test_the_last_box(text: str, boxed: str | None) -> None:
    assert last_boxed(text) == boxed


def test_parts_blocks_and_normalisation() -> None:
    assert part_of("a</think>b</think> c ", "after_think") == "c"
    assert part_of("<think>a", "whole") == "<think>a"
    assert part_of("<answer>a</answer><answer>b", "answer") == "a"
    assert normalised("The  Cat's a 'hat'!") == "cats hat"
    text = "x\n```Python title=y\na\n```\n~~~\nb\n```\n~~~\n```json\n{}"
    assert code_blocks(text) == [("python", "a"), ("", "b\n```"), ("json", "{}")]
    assert code_blocks("````md\n```\nx\n```\n````") == [("md", "```\nx\n```")]
    assert code_blocks("```\n```") == [("", "")]


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("Lisbon", 1),
        ("lisbon.", 1),
        ("**Lisbon**", 1),
        ("The answer is Lisbon. It lies on the Tagus.", 1),
        ("Porto is large.\n\nThe answer is **Lisbon**.", 1),
        ("<think>Porto?</think>\n<answer>Lisbon</answer>", 1),
        ("#### Lisbon", 1),
        ("So it is $\\boxed{\\text{Lisbon}}$.", 1),
        ("The answer is Lisbon\n\nDone.", 1),
        ("The answer is not Lisbon.", 0),
        ("The answer is Lisbon or Porto.", 0),
        ("The answer is Porto, not Lisbon.", 0),
        ("The answer is Lisbon. Wait, that is wrong. The answer is Porto.", 0),
        ("<think>Lisbon</think> The answer is Porto.", 0),
        ("The answer is Lisbon\nPorto\nBraga", 0),
        ("The answer is:\nLisbon\nPorto\nBraga", 0),
        ("The answer is Lisbon\n- Porto\n- Braga", 0),
        ("The answer is Lisbon.\n\nI hope this answer is helpful!", 1),
        ("Answer: Lisbon\n\nNote: the answer is based on the passage.", 1),
        ("Answer: Lisbon\nIncorrect: Osaka", 1),
        ("Answer: Lisbon\nThe answer is right there.", 0),
        ("The answer is Lisbon. The answer is Porto.", 0),
        ("The answer is Lisbon\n\nThat is all.\nGood luck!", 1),
        ("<answer>Lisbon</answer>\nConfidence: high\nDone.", 1),
        ("The answer is Lisbon\nConfidence: high\nThat is all.", 1),
        ("Lisbon\nPorto\nBraga", 0),
        ("Lisbon is not the answer.", 0),
        ("I would say that it could be many towns.", 0),
        ("", 0),
    ],
)
def test_the_text_that_a_response_commits_to(response: str, score: float) -> None:
    grader = TextMatch(part="committed", ignore_case=True)
    grade = grader.grade(Rollout(response=response, ground_truth="Lisbon"))
    assert isinstance(grade, Graded)
    assert grade.score == score


@pytest.mark.parametrize(
    ("response", "truth", "expected"),
    [
        ("Answer: maybe", "maybe", 1),
        ("The answer is: Maybe.", "maybe", 1),
        ("maybe", "maybe", 1),
        ("Maybe.", ["yes", "maybe"], 1),
        ("<answer>maybe</answer>", "maybe", 1),
        ("\\boxed{maybe}", "maybe", 1),
        ("Answer: not enough info", "NOT ENOUGH INFO", 1),
        ("not enough info", "not enough info", 1),
        ("The answer is not enough info.", "not enough info", 1),
        ("Answer: never", "never", 1),
        ("The answer is Never Let Me Go.", "Never Let Me Go", 1),
        ('The answer is "Who Framed Roger Rabbit?"', "Who Framed Roger Rabbit?", 1),
        ("The answer is What's Up, Doc? It is a film.", "What's Up, Doc?", 1),
        ("The answer is Yahoo! Inc.", "Yahoo! Inc.", 1),
        ("The answer is Who Knows? That is wrong.", "Who knows?", 0),
        ("Who knows?", "Rome", 0),
        ("Answer: maybe yes", "yes", 0),
        ("Answer: maybe", "yes", 0),
        ("The answer is not yes.", "yes", 0),
        ("Answer: maybe. No, that is wrong.", "maybe", 0),
        ("Answer: not enough info. That is wrong.", "not enough info", 0),
        ("Answer: maybe not", "maybe", 0),
    ],
)
def test_a_reference_may_be_a_hedge(response: str, truth: Any, expected: float) -> None:
    for grader in (TextMatch(how="normalised", part="committed"), TokenF1(part="committed")):
        grade = grader.grade(Rollout(response=response, ground_truth=truth))
        assert isinstance(grade, Graded)
        assert grade.score == expected


@pytest.mark.parametrize(
    ("response", "truth"),
    [
        ("\u5df4\u9ece\u3002", "\u5df4\u9ece"),
        ("\u00a1Lisboa!", "Lisboa"),
        ("\u300c\u6771\u4eac\u300d\uff0c", "\u6771\u4eac"),
    ],
)
def test_punctuation_of_other_scripts_is_none_of_a_word(response: str, truth: str) -> None:
    for grader in (TextMatch(how="normalised"), TextMatch(part="committed", how="normalised"), TokenF1()):
        grade = grader.grade(Rollout(response=response, ground_truth=truth))
        assert isinstance(grade, Graded)
        assert grade.score == 1


@pytest.mark.parametrize(
    ("response", "truth"),
    [
        ("Apple Inc.", "Apple Inc."),
        ("The answer is Washington, D.C.", "Washington, D.C."),
        ("The answer is Yahoo!", "Yahoo!"),
        ("Answer: 3 p.m.", "3 p.m."),
        ("The answer is Martin Luther King Jr.", "Martin Luther King Jr."),
        ("The answer is \u201cParis\u201d.", "Paris"),
        ("The answer is 'Paris'.", "Paris"),
        ("The answer is \u201cParis.\u201d", "Paris"),
        ("The answer is Paris", '"Paris"'),
        ("The answer is Rock 'n' Roll", "Rock 'n' Roll"),
    ],
)
def test_a_stop_and_quotes_are_no_part_of_what_is_committed_to(response: str, truth: str) -> None:
    assert score(TextMatch(part="committed", ignore_case=True), response, truth) == 1
    assert score(TextMatch(part="committed", how="regex"), response, truth.strip('"!.')) == 1
    assert score(TextMatch(part="committed", ignore_case=True), response, f"{truth} x") == 0


@pytest.mark.parametrize(
    ("response", "truth", "several", "expected"),
    [
        ("Austen", '["Jane Austen", "Austen"]', "any", 1),
        ('["Jane Austen", "Austen"]', '["Jane Austen", "Austen"]', "any", 1),
        ("Jane", '["Jane Austen", "Austen"]', "any", 0),
        ("Jane Austen", '["Jane Austen", "Austen"]', "all", 1),
        ("Jane", '["Jane Austen", "Austen"]', "all", 0),
        ("1", "[1, 2]", "any", 0),
        ("[1, 2]", "[1, 2]", "any", 1),
        ("[Austen", "[Austen", "any", 1),
        ("[]", "[]", "any", 1),
    ],
)
def test_references_may_be_a_list_in_json(response: str, truth: str, several: Any, expected: float) -> None:
    how: Any = "contains" if several == "all" else "exact"
    assert score(TextMatch(several=several, how=how), response, truth) == expected


def test_a_value_that_begins_like_a_remark_is_one() -> None:
    said = "First answer: square. Then I looked again: the answer is right triangle."
    assert score(TextMatch(part="committed", ignore_case=True), said, "right triangle") == 1
    assert score(TextMatch(part="committed", ignore_case=True), said, "square") == 0
