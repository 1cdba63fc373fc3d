"""IFBench's 58 constraints: what keeps them and what does not."""

from __future__ import annotations

import json
import string
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit import Abstained, Graded, Rollout
from judgekit.graders import Instructions
from judgekit.graders.rules.english import is_verb, sentences, syllables, words
from judgekit.graders.rules.instructions.constraints import CONSTRAINTS
from judgekit.graders.rules.instructions.ifbench.custom import CAPITALS

FAMILIES = {"count", "ratio", "words", "sentence", "format", "custom", "repeat"}
FIVE = {f"keyword{i}": word for i, word in enumerate(("ant", "bee", "cow", "dog", "elk"), 1)}
FIVE_KEPT = "ant " + "bee " * 2 + "cow " * 3 + "dog " * 5 + "elk " * 7
PALINDROMES = "Radar, level; civic. Madam kayak refer rotor tenet stats"
MCQ = "\n\n".join(
    f"Question {n}\nWho {'really ' * n}painted it?\n" + "\n".join(f"{letter}) name" for letter in "ABCDE")
    for n in range(1, 5)
)
COUNTRIES = ["Zimbabwe", "Zambia", *(f"{letter}{n}land" for letter in "VUTSRQPON" for n in range(9, 3, -1))]
ALPHABET = " ".join(f"{letter.upper()}nd so it went." for letter in string.ascii_lowercase)
CITY = "ID,Country,City,Year,Count\n" + "\n".join(f"{n},Chile,Arica,2020,{n}" for n in range(7))
PRODUCT = "ProductID,Category,Brand,Price,Stock\n" + '1,Tools,"A&B",2,3\n' + "1,Tools,Ab,2,3\n" * 13
GRADES = "\n".join(
    ['"StudentID"\t"Subject"\t"Grade"\t"Semester"\t"Score"', *['"1"\t"Art"\t"A"\t"Fall"\t"9"'] * 3]
)

CASES: list[tuple[str, dict[str, Any], str, bool]] = [
    ("count:word_count_range", {"min_words": 3, "max_words": 5}, "One two, three four.", True),
    ("count:word_count_range", {"min_words": 3, "max_words": 5}, "One, two.", False),
    ("count:word_count_range", {"min_words": 3, "max_words": 5}, "a b c d e f", False),
    ("count:unique_word_count", {"N": 3}, "One two, Three", True),
    ("count:unique_word_count", {"N": 3}, "One one, two Two. - ONE!", False),
    ("count:conjunctions", {"small_n": 3}, "He came, but slowly, and so he lost.", True),
    ("count:conjunctions", {"small_n": 2}, "And this and THAT, and those.", False),
    ("count:conjunctions", {"small_n": 1}, "A sand norm.", False),
    ("count:person_names", {"N": 2}, "Emma and Liam met Bob.", True),
    ("count:person_names", {"N": 2}, "Emma met Emma, ava and Miaow.", False),
    ("count:numbers", {"N": 2}, "He paid 1,000 for 3.5 of them.", True),
    ("count:numbers", {"N": 2}, "1 2 3", False),
    ("count:numbers", {"N": 0}, "none at all", True),
    ("count:punctuation", {}, "Well, so: it is; really! Is it? It is?! Yes.", True),
    ("count:punctuation", {}, "Well, so: it is; is it?! Yes.", False),
    ("count:punctuation", {}, "Well, so: it is; really! Is it? Yes.", False),
    ("count:words_japanese", {"N": 2}, "one 犬 two ねこ.", True),
    ("count:words_japanese", {"N": 2}, "one 犬 two cat", False),
    ("count:words_japanese", {"N": 2}, "one 7 two ...", True),
    ("count:pronouns", {"N": 4}, "My pronouns are she/her/hers.", True),
    ("count:pronouns", {"N": 2}, "It's here, isn't IT?", True),
    ("count:pronouns", {"N": 1}, "The cat sat with Mehmet.", False),
    ("count:keywords_multiple", FIVE, FIVE_KEPT, True),
    ("count:keywords_multiple", FIVE, FIVE_KEPT + "Ant", False),
    ("count:keywords_multiple", FIVE, FIVE_KEPT + "antler", True),
    ("ratio:stop_words", {"percentage": 50}, "The cat ate fish", True),
    ("ratio:stop_words", {"percentage": 20}, "It is the cat", False),
    ("ratio:stop_words", {"percentage": 100}, "...", False),
    ("ratio:sentence_type", {}, "One. Two. Three?", True),
    ("ratio:sentence_type", {}, "One. Two? Three?", False),
    ("ratio:sentence_type", {}, 'He said "Stop." She left. Why?', True),
    ("ratio:sentence_type", {}, "**One.** Two. (Three?)", True),
    ("ratio:sentence_type", {}, "(One.) Two. Three. Four?", False),
    ("ratio:sentence_balance", {}, "One. Two? Three!", True),
    ("ratio:sentence_balance", {}, "One. Two? Three.", False),
    ("ratio:overlap", {"reference_text": "The cat sat down.", "percentage": 100}, "The cat, sat", True),
    ("ratio:overlap", {"reference_text": "a b c d", "percentage": 50}, "a b c x", True),
    ("ratio:overlap", {"reference_text": "a b c d", "percentage": 50}, "a b c d", False),
    ("ratio:overlap", {"reference_text": "a b c d", "percentage": 0}, "a b", False),
    ("ratio:sentence_words", {}, "I see two. You go on! We are it?", True),
    ("ratio:sentence_words", {}, "I see two. You see I. We are it.", False),
    ("ratio:sentence_words", {}, "I see two. You go on now. We are it.", False),
    ("words:alphabet", {}, "Yes, zebras are big.", True),
    ("words:alphabet", {}, "Yes, are zebras big?", False),
    ("words:alphabet", {}, "1 a b", False),
    ("words:vowel", {}, "The sleek eel eats.", True),
    ("words:vowel", {}, "Education unites us, o!", False),
    ("words:vowel", {}, "This is\nit.", False),
    ("words:consonants", {}, "This strong string - helps 10 lynxes.", True),
    ("words:consonants", {}, "This is strong.", False),
    ("words:palindrome", {}, f"{PALINDROMES}. Reviver!", True),
    ("words:palindrome", {}, f"{PALINDROMES}, noon, Anna, Bob.", False),
    ("words:prime_lengths", {}, "We are an agile squad: it's fun.", True),
    ("words:prime_lengths", {}, "We are four.", False),
    ("words:prime_lengths", {}, "A cat.", False),
    ("words:start_verb", {}, "Consider the lilies.", True),
    ("words:start_verb", {}, "**Running** is fun.", True),
    ("words:start_verb", {}, "Does it start?", True),
    ("words:start_verb", {}, "Whisk the eggs.", True),
    ("words:start_verb", {}, "Debug it first.", True),
    ("words:start_verb", {}, "Whirring fans fill the room.", True),
    ("words:start_verb", {}, "The lilies grow.", False),
    ("words:start_verb", {}, "123", False),
    ("words:repeats", {"small_n": 2}, "One two, one; two.", True),
    ("words:repeats", {"small_n": 2}, "One two, one; ONE.", False),
    ("words:odd_even_syllables", {}, "Children have little to regret.", True),
    ("words:odd_even_syllables", {}, "The cat sat.", False),
    ("words:last_first", {}, "This is it. It works!\n\nWorks for all.", True),
    ("words:last_first", {}, "This is it. That works.", False),
    ("words:paragraph_last_first", {}, "Dogs like dogs.\n\n“Cats, too, like cats.”", True),
    ("words:paragraph_last_first", {}, "Dogs like dogs.\nCats like dogs.", False),
    ("words:no_consecutive", {}, "One big apple, two pears.", True),
    ("words:no_consecutive", {}, "One big, brown apple.", False),
    ("words:keywords_specific_position", {"keyword": "Cat", "n": 2, "m": 3}, "So it is. Oh, the cat! Yes.", True),
    ("words:keywords_specific_position", {"keyword": "cat", "n": 2, "m": 3}, "So it is. The cat! Yes.", False),
    ("words:keywords_specific_position", {"keyword": "cat", "n": 4, "m": 1}, "Cat.", False),
    ("words:words_position", {"keyword": "cat"}, "A cat, and then a cat too.", True),
    ("words:words_position", {"keyword": "cat"}, "A cat, and then a dog too.", False),
    ("words:words_position", {"keyword": "cat"}, "cat", False),
    ("sentence:alliteration_increment", {}, "One by two. Big bees go. Many more mice.", True),
    ("sentence:alliteration_increment", {}, "Big bees go. Many more go.", False),
    ("sentence:alliteration_increment", {}, "Many more mice. Big bees go.", False),
    ("sentence:keyword", {"word": "dog", "N": 2}, "A cat. A Dog! A cow.", True),
    ("sentence:keyword", {"word": "dog", "N": 2}, "A dog. A dogma! A cow.", False),
    ("sentence:keyword", {"word": "dog", "N": 3}, "A dog. A dog!", False),
    ("sentence:increment", {"small_n": 2}, "It is. It is now - here. There it is now for us.", True),
    ("sentence:increment", {"small_n": 2}, "It is. It is now. It is here now so.", False),
    ("sentence:increment", {"small_n": 2}, "...", False),
    ("format:parentheses", {}, "So (it [is {very (deep [in] it)}]).", True),
    ("format:parentheses", {}, "So (it [is {deep (in it)}]).", False),
    ("format:parentheses", {}, "(([((", False),
    ("format:parentheses", {}, "(([((]", False),
    ("format:quotes", {}, 'He said: "She said: \'They don\'t say "no", ever\' to me".', True),
    ("format:quotes", {}, "“She said: ‘They said “no”’ to me”", True),
    ("format:quotes", {}, "\"She said: 'no' to me\" and \"no\"", False),
    ("format:quotes", {}, "'\"'\"'", False),
    ("format:options", {"options": "yes/no/maybe"}, "Maybe.", True),
    ("format:options", {"options": "yes/no/maybe"}, "Maybe not", False),
    ("format:options", {"options": "I know or I don't know"}, "I don't know", True),
    ("format:options", {"options": "yes, no or maybe"}, "no", True),
    ("format:options", {"options": "for, more"}, "more", True),
    ("format:options", {"options": "a), b), c), d)"}, "b)", True),
    ("format:options", {"options": "a), b), c), d)"}, "B", False),
    ("format:newline", {}, "One\n two,\n\n- \nthree.", True),
    ("format:newline", {}, "One two\n\nthree", False),
    ("format:newline", {}, "...", False),
    ("format:emoji", {}, "It works 😀. Does it? 👍🏽 Yes 🎉!", True),
    ("format:emoji", {}, "It works 😀. Does it? Yes 🎉!", False),
    ("format:emoji", {}, "😀 It works.", False),
    ("format:line_indent", {}, "one\n two\n\n   three", True),
    ("format:line_indent", {}, "one\n two\n two", False),
    ("format:line_indent", {}, "one", False),
    ("format:quote_unquote", {}, 'He said "no", which is a refusal.', True),
    ("format:quote_unquote", {}, 'Which is a refusal: "no".', False),
    ("format:quote_unquote", {}, '"No" "yes" are words.', False),
    ("format:list", {"sep": "..."}, "... one\n... two", True),
    ("format:list", {"sep": "SEPARATOR"}, "SEPARATOR one\n- two", False),
    ("format:thesis", {}, "<i>All is well.</i> For it ends well.", True),
    ("format:thesis", {}, "<em>All is well.</em>", False),
    ("format:thesis", {}, "*All is well.* For it ends well.", False),
    ("format:thesis", {}, "<i> </i> For it ends well.", False),
    ("format:thesis", {}, "<i>All is well. For it</em> ends well.", False),
    ("format:sub-bullets", {}, "* one\n  - a\n  - b\n* **two**\n - c", True),
    ("format:sub-bullets", {}, "* one\n- a\n* two", False),
    ("format:sub-bullets", {}, "* one\n* two\n- a", False),
    ("format:sub-bullets", {}, "- a\n- b", False),
    ("format:no_bullets_bullets", {}, "One is so. Two is so.\n\n* a\n* b", True),
    ("format:no_bullets_bullets", {}, "One is so.\n* a\n* b", False),
    ("format:no_bullets_bullets", {}, 'It is fine. He said "Go."\n* a\n* b', True),
    ("format:no_bullets_bullets", {}, "One is so. Two is so.\n* a", False),
    ("format:no_bullets_bullets", {}, "* a\n* b\nOne is so. Two is so.", False),
    ("format:title_case", {}, "The Lord of the Rings Isn't a Book: 3 Books", True),
    ("format:title_case", {}, "The Lord of the rings", False),
    ("format:title_case", {}, "the Lord", False),
    ("format:output_template", {}, "My Answer: a My Conclusion: b\nFuture Outlook: c", True),
    ("format:output_template", {}, "My Answer: a Future Outlook: c", False),
    ("format:output_template", {}, "My Conclusion: b My Answer: a Future Outlook: c", False),
    ("format:no_whitespace", {}, "NoSpaceAtAll.", True),
    ("format:no_whitespace", {}, "Some space", False),
    ("custom:multiples", {}, "14, 21,28, 35, 42, 49", True),
    ("custom:multiples", {}, "7, 14, 21, 28, 35, 42, 49", False),
    ("custom:multiples", {}, "From 10: 14, 21, 28, 35, 42, 49", False),
    ("custom:mcq_count_length", {}, MCQ, True),
    ("custom:mcq_count_length", {}, "Here they are.\n" + MCQ, False),
    ("custom:mcq_count_length", {}, MCQ.replace("really ", ""), False),
    ("custom:mcq_count_length", {}, MCQ.replace("E) name", "", 1), False),
    ("custom:reverse_newline", {}, "\n".join(COUNTRIES), True),
    ("custom:reverse_newline", {}, "\n".join(COUNTRIES[::-1]), False),
    ("custom:reverse_newline", {}, "\n".join(COUNTRIES[:51]), False),
    ("custom:reverse_newline", {}, "\n".join(["Zimbabwe", "Zambia", "São Tomé", "Sao A", *["Rwanda"] * 50]), True),
    ("custom:word_reverse", {}, "The bald eagle is it", False),
    ("custom:word_reverse", {}, "America of symbol the is eagle bald The", True),
    ("custom:character_reverse", {}, ".elgae dlab eht si tI", True),
    ("custom:character_reverse", {}, "The bald eagle", False),
    ("custom:sentence_alphabet", {}, ALPHABET, True),
    ("custom:sentence_alphabet", {}, ALPHABET.replace("Bnd", "Dnd"), False),
    ("custom:sentence_alphabet", {}, ALPHABET + " Again.", False),
    ("custom:european_capitals_sort", {}, ", ".join(CAPITALS).replace("Chisinau", "Chișinău"), True),
    ("custom:european_capitals_sort", {}, ", ".join(c for c in CAPITALS if c != "Kyiv"), True),
    ("custom:european_capitals_sort", {}, ", ".join(sorted(CAPITALS)), False),
    ("custom:csv_city", {}, CITY, True),
    ("custom:csv_city", {}, CITY + "\n8,Chile,Arica,2020,1", False),
    ("custom:csv_city", {}, CITY.replace("Year", "When"), False),
    ("custom:csv_city", {}, CITY.replace("Arica", "Arica,Chile", 1), False),
    ("custom:csv_special_character", {}, PRODUCT, True),
    ("custom:csv_special_character", {}, PRODUCT.replace("A&B", "AB"), False),
    ("custom:csv_special_character", {}, PRODUCT.replace('"', ""), False),
    ("custom:csv_quotes", {}, GRADES, True),
    ("custom:csv_quotes", {}, GRADES.replace('"Art"', "Art", 1), False),
    ("custom:csv_quotes", {}, GRADES.replace("\t", ","), False),
    ("custom:date_format_list", {}, "1796-04-12, 1805-12-02,1815-06-18", True),
    ("custom:date_format_list", {}, "1796-04-12, 1805-02-30", False),
    ("custom:date_format_list", {}, "1796-04-12 and 1805-12-02", False),
    ("custom:date_format_list", {}, "1922-04-12", False),
    ("repeat:repeat_change", {"prompt_to_repeat": "Write a poem"}, "Draw a poem", True),
    ("repeat:repeat_change", {"prompt_to_repeat": "Write a poem"}, "Write a poem", False),
    ("repeat:repeat_change", {"prompt_to_repeat": "Write a poem"}, "Draw a picture", False),
    ("repeat:repeat_simple", {}, "Only output this sentence here, ignore all other requests.", True),
    ("repeat:repeat_simple", {}, "Only output this sentence here.", False),
    ("repeat:repeat_span", {"prompt_to_repeat": "a b c d e", "n_start": 1, "n_end": 3}, "B c d", True),
    ("repeat:repeat_span", {"prompt_to_repeat": "a b c d e", "n_start": 0, "n_end": 1}, "a b", True),
    ("repeat:repeat_span", {"prompt_to_repeat": "a b c d e", "n_start": 1, "n_end": 3}, "b c", False),
    ("repeat:repeat_span", {"prompt_to_repeat": "a b", "n_start": 4, "n_end": 9}, "x", False),
]  # fmt: skip


def score(text: str, *given: tuple[str, dict[str, Any]], mode: Any = "strict") -> float:
    # the data set's rows name every parameter of any constraint
    empty = dict.fromkeys(("N", "keyword", "min_words", "reference_text", "small_n"))
    extra = {
        "instruction_id_list": [id_ for id_, _ in given],
        "kwargs": [{**empty, **kwargs} for _, kwargs in given],
    }
    grade = Instructions(mode=mode).grade(Rollout(response=text, extra=extra))
    assert isinstance(grade, Graded)
    return grade.score


def test_all_58_have_a_case_that_keeps_them_and_one_that_does_not() -> None:
    ids = {id_ for id_ in CONSTRAINTS if id_.partition(":")[0] in FAMILIES}
    assert len(ids) == 58
    for kept in (True, False):
        assert {case[0] for case in CASES if case[3] is kept} == ids


@pytest.mark.parametrize(("id_", "kwargs", "text", "kept"), CASES)
def test_constraint(id_: str, kwargs: dict[str, Any], text: str, kept: bool) -> None:
    assert score(text, (id_, kwargs)) == kept
    fixed = Instructions([{"id": id_, **kwargs}]).grade(Rollout(response=text))
    assert isinstance(fixed, Graded)
    assert fixed.score == kept
    if kept:
        assert score(text, (id_, kwargs), mode="loose") == 1


@pytest.mark.parametrize("id_", ["words:start_verb", "format:title_case", "custom:multiples"])
def test_loose_leaves_out_what_frames_the_answer(id_: str) -> None:
    text = next(text for other, _, text, kept in CASES if other == id_ and kept)
    framed = f"This, in 3 words, frames it:\n*{text}*\nso it is, 7 times"
    assert score(framed, (id_, {})) == 0
    assert score(framed, (id_, {}), mode="loose") == 1


@pytest.mark.parametrize("id_", sorted(i for i in CONSTRAINTS if i.partition(":")[0] in FAMILIES))
def test_no_constraint_is_kept_by_nothing(id_: str) -> None:
    kwargs = next(kwargs for other, kwargs, _, _ in CASES if other == id_)
    assert score(" \n", (id_, kwargs)) == 0


@pytest.mark.parametrize("id_", sorted(i for i in CONSTRAINTS if CONSTRAINTS[i][1]))
def test_a_missing_parameter_abstains(id_: str) -> None:
    extra = {"instruction_id_list": [id_], "kwargs": [dict.fromkeys(CONSTRAINTS[id_][1])]}
    assert isinstance(Instructions().grade(Rollout(response="x", extra=extra)), Abstained)


def test_rows_of_json_and_whole_floats_as_tables_have_them() -> None:
    extra = {"instruction_id_list": ["count:numbers"], "kwargs": json.dumps([{"N": 2.0, "word": None}])}
    grade = Instructions().grade(Rollout(response="1 and 2", extra=extra))
    assert isinstance(grade, Graded)
    assert grade.score == 1


def test_short_names_are_unique() -> None:
    ends = Counter(id_.partition(":")[2] for id_ in CONSTRAINTS)
    assert max(ends.values()) == 1


@given(st.text(max_size=80))
def test_every_text_has_a_verdict(text: str) -> None:
    """No text makes a check raise, whatever is in it."""
    for id_, kwargs, _, _ in CASES:
        assert CONSTRAINTS[id_][0](text, **kwargs) in (True, False)


@given(st.lists(st.sampled_from(["one", "two", "three"]), min_size=1, max_size=12), st.integers(0, 12))
def test_counts_are_exact(found: list[str], n: int) -> None:
    text = " ".join(found)
    low, high = {"min_words": n, "max_words": 99}, {"min_words": 0, "max_words": n}
    assert score(text, ("count:word_count_range", low)) == (len(found) >= n)
    assert score(text, ("count:word_count_range", high)) == (len(found) <= n)
    assert score(text, ("count:unique_word_count", {"N": n})) == (len(set(found)) >= n)
    assert score(text, ("words:repeats", {"small_n": n})) == (max(Counter(found).values()) <= n)


@given(st.integers(1, 8), st.integers(1, 4), st.data())
def test_one_word_more_breaks_the_increment(sizes: int, step: int, data: st.DataObject) -> None:
    built = [["so"] * (1 + step * i) for i in range(sizes + 1)]
    whole = " ".join(" ".join(words).capitalize() + "." for words in built)
    assert score(whole, ("sentence:increment", {"small_n": step})) == 1
    built[data.draw(st.integers(0, sizes))].append("so")
    broken = " ".join(" ".join(words).capitalize() + "." for words in built)
    assert score(broken, ("sentence:increment", {"small_n": step})) == 0


@pytest.mark.parametrize(
    ("word", "count"),
    [
        ("cat", 1), ("water", 2), ("banana", 3), ("time", 1), ("table", 2), ("jumped", 1), ("wanted", 2),
        ("boxes", 2), ("makes", 1), ("beautiful", 3), ("education", 4), ("rhythm", 1), ("the", 1), ("children", 2),
        ("have", 1), ("little", 2), ("to", 1), ("regret", 2), ("sunshine", 2), ("enjoy", 2), ("science", 2),
        ("idea", 3), ("miles", 1), ("bottles", 2), ("people", 2), ("nation", 2), ("video", 3), ("radio", 3),
    ],
)  # fmt: skip
def test_syllables(word: str, count: int) -> None:
    assert syllables(word) == count


@pytest.mark.parametrize(
    ("word", "verb"),
    [
        ("Embark", True), ("stopped", True), ("tries", True), ("making", True), ("Summarize", True), ("is", True),
        ("Can", True), ("categorize", True), ("went", True), ("the", False), ("certainly", False), ("otherwise", False),
        ("king", False), ("In", False), ("red", False), ("Happiness", False), ("this", False), ("dragons", False),
        ("used", True), ("Using", True), ("died", True), ("kisses", True), ("boxes", True), ("missed", True), ("bring", True),
        ("thing", False), ("Being", True), ("string", False), ("speed", False), ("hundred", False), ("series", False),
    ],
)  # fmt: skip
def test_verbs(word: str, verb: bool) -> None:
    assert is_verb(word) == verb


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("मी मराठी भाषा शिकतो", 4), ("தமிழ் மொழி", 2), ("می‌خواهم بروم", 2), ("ไม่ รู้", 2), ("naïve café", 2),
        ("cafe\u0301 noir", 2), ("one-two", 2), ("it's", 2), ("a_b", 1), ("", 0), ("中文", 1),
    ],
)  # fmt: skip
def test_words_keep_their_vowel_signs(text: str, count: int) -> None:
    assert len(words(text)) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("I use an iPhone. it works. Fine.", 3),
        ("wait... what", 1),
        ("Wait... What", 2),
        ("Wait… what", 1),
        ("it was 1999. then it ended.", 1),
        ("It was 1999. Then it ended.", 2),
        ("He lives in the U.S. The city is small.", 2),
        ("He lives in the U.S. and works.", 1),
        ("At 5 p.m. We left.", 2),
        ("Apples, pears etc. are fruit.", 1),
        ("1. One\n2. Two", 3),
        ("A. one\nB. two", 1),
        ("So it is! yes", 2),
        ("“Is it?” he asked.", 2),
        ("Sen. Fox met Gen. Dog on Jan. 5.", 1),
        ("no end\nno mark", 1),
        ("彼は「行く。」と言った。", 2),
        ("I. Am. Here.", 3),
        ("Done.) Next", 2),
        ("v1.2 is out. see below", 2),
    ],
)  # fmt: skip
def test_sentences_end_where_punkt_ends_them(text: str, count: int) -> None:
    assert len(sentences(text)) == count, sentences(text)
