"""IFBench's constraints on single sentences and on one after the other."""

from __future__ import annotations

import re
from itertools import groupby, pairwise

from judgekit.graders.rules.english import bare_words, sentences
from judgekit.graders.rules.instructions.constraints import constraint


@constraint("sentence:alliteration_increment")
def alliteration_increment(text: str) -> bool:
    """Each sentence has a longer run of words with one first letter than the sentence before it."""
    runs = [
        max((len(list(run)) for _, run in groupby(bare_words(sentence), key=lambda word: word[0])), default=0)
        for sentence in sentences(text)
    ]
    return all(before < after for before, after in pairwise(runs))


@constraint("sentence:keyword", word="text", N="int")
def keyword(text: str, word: str, N: int) -> bool:
    found = sentences(text)
    pattern = rf"(?<!\w){re.escape(word.strip())}(?!\w)"
    return 1 <= N <= len(found) and re.search(pattern, found[N - 1], re.IGNORECASE) is not None


@constraint("sentence:increment", small_n="int")
def increment(text: str, small_n: int) -> bool:
    """Each sentence has so many words more than the sentence before it."""
    sizes = [len(bare_words(sentence)) for sentence in sentences(text)]
    return bool(sizes) and all(after - before == small_n for before, after in pairwise(sizes))
