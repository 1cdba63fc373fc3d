"""IFBench's constraints on how often something occurs."""

from __future__ import annotations

import re
import string

from judgekit.graders.rules.english import CONJUNCTIONS, PRONOUNS, PUNCTUATION, listed, stripped, words
from judgekit.graders.rules.instructions.constraints import constraint

NAMES = listed(
    "Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander Amelia Benjamin "
    "Harper Leo Zoe Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel Ella Jacob Scarlett Nathan Victoria "
    "Elijah Layla Nicholas Audrey David Hannah Christopher Penelope Thomas Nora Andrew Aria Joseph Claire Ryan Stella "
    "Jonathan"
)
"""The names that the instruction offers."""
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_JAPANESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")


@constraint("count:word_count_range", min_words="int", max_words="int")
def word_count_range(text: str, min_words: int, max_words: int) -> bool:
    return min_words <= len(words(text)) <= max_words


@constraint("count:unique_word_count", N="int")
def unique_word_count(text: str, N: int) -> bool:
    return len({word for part in text.split() if (word := stripped(part))}) >= N


@constraint("count:conjunctions", small_n="int")
def conjunctions(text: str, small_n: int) -> bool:
    return len(CONJUNCTIONS & set(map(stripped, text.split()))) >= small_n


@constraint("count:person_names", N="int")
def person_names(text: str, N: int) -> bool:
    return len(set(NAMES) & set(words(text))) >= N


@constraint("count:numbers", N="int")
def numbers(text: str, N: int) -> bool:
    # 3.14 and 100,000 are one number each, as are digits on both sides of any other mark
    return len(re.findall(r"\d+", text.translate(_NO_PUNCTUATION))) == N


@constraint("count:punctuation")
def punctuation(text: str) -> bool:
    """Every standard mark, and an interrobang whose two marks count for nothing else."""
    rest = text
    for interrobang in ("?!", "!?", "‽"):
        if interrobang in text:
            rest = text.replace(interrobang, "", 1)
            break
    else:
        return False
    return all(mark in rest for mark in ".,!?;:")


@constraint("count:words_japanese", N="int")
def words_japanese(text: str, N: int) -> bool:
    every = [part.strip(PUNCTUATION) for part in text.split()][N - 1 :: N] if N > 0 else []
    return all(_JAPANESE.search(word) for word in every if word and not word.isdigit())


@constraint("count:pronouns", N="int")
def pronouns(text: str, N: int) -> bool:
    found = re.findall(r"[a-z]+(?:-[a-z]+)*", text.lower())
    return sum(word in PRONOUNS for word in found) >= N


@constraint(
    "count:keywords_multiple",
    keyword1="text",
    keyword2="text",
    keyword3="text",
    keyword4="text",
    keyword5="text",
)
def keywords_multiple(
    text: str, keyword1: str, keyword2: str, keyword3: str, keyword4: str, keyword5: str
) -> bool:
    wanted = zip((keyword1, keyword2, keyword3, keyword4, keyword5), (1, 2, 3, 5, 7), strict=True)
    return all(
        len(re.findall(rf"(?<!\w){re.escape(keyword.strip())}(?!\w)", text, re.IGNORECASE)) == times
        for keyword, times in wanted
    )
