"""IFBench's constraints on words: their letters, lengths and places."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from judgekit.graders.rules.english import bare_words, is_verb, sentences, stripped, syllables
from judgekit.graders.rules.instructions.constraints import constraint

_CLUSTER = re.compile(r"[bcdfghjklmnpqrstvwxyz]{2}")
_LETTER = re.compile(r"[^\W\d_]")


@constraint("words:alphabet")
def alphabet(text: str) -> bool:
    """Each word starts with the letter after that of the word before it; a follows z."""
    first = [word[0] for word in bare_words(text)]
    if not first or not all("a" <= letter <= "z" for letter in first):
        return False
    return all((ord(after) - ord(before)) % 26 == 1 for before, after in pairwise(first))


@constraint("words:vowel")
def vowel(text: str) -> bool:
    """One paragraph with at most three different vowels."""
    text = text.strip().lower()
    return "\n" not in text and sum(letter in text for letter in "aeiou") <= 3


@constraint("words:consonants")
def consonants(text: str) -> bool:
    found = [word for word in text.lower().split() if _LETTER.search(word)]
    return bool(found) and all(_CLUSTER.search(word) for word in found)


@constraint("words:palindrome")
def palindrome(text: str) -> bool:
    """At least ten palindromes of at least five letters."""
    return sum(len(word) >= 5 and word == word[::-1] for word in bare_words(text)) >= 10


@constraint("words:prime_lengths")
def prime_lengths(text: str) -> bool:
    lengths = set(map(len, bare_words(text)))
    return all(n > 1 and all(n % d for d in range(2, int(n**0.5) + 1)) for n in lengths)


@constraint("words:start_verb")
def start_verb(text: str) -> bool:
    first = re.match(r"\W*([^\W\d_]+)", text)
    return first is not None and is_verb(first[1])


@constraint("words:repeats", small_n="int")
def repeats(text: str, small_n: int) -> bool:
    return max(Counter(bare_words(text)).values(), default=0) <= small_n


@constraint("words:odd_even_syllables")
def odd_even_syllables(text: str) -> bool:
    parities = [syllables(word) % 2 for word in bare_words(text)]
    return all(before != after for before, after in pairwise(parities))


@constraint("words:last_first")
def last_first(text: str) -> bool:
    """Each sentence starts with the last word of the one before it."""
    edges = [_edges(sentence) for sentence in sentences(text)]
    return all(before[1] == after[0] for before, after in pairwise(edges))


@constraint("words:paragraph_last_first")
def paragraph_last_first(text: str) -> bool:
    """Each line ends with the word that it starts with."""
    return all(first == last for first, last in map(_edges, text.split("\n")))


@constraint("words:no_consecutive")
def no_consecutive(text: str) -> bool:
    return all(before[0] != after[0] for before, after in pairwise(bare_words(text)))


@constraint("words:keywords_specific_position", keyword="text", n="int", m="int")
def keywords_specific_position(text: str, keyword: str, n: int, m: int) -> bool:
    found = sentences(text)
    if not 1 <= n <= len(found):
        return False
    own = _words(found[n - 1])
    return 1 <= m <= len(own) and own[m - 1] == keyword.strip().lower()


@constraint("words:words_position", keyword="text")
def words_position(text: str, keyword: str) -> bool:
    own = _words(text)
    return len(own) > 1 and own[1] == own[-2] == keyword.strip().lower()


def _words(text: str) -> list[str]:
    return [word for part in text.split() if (word := stripped(part))]


def _edges(text: str) -> tuple[str, str]:
    """The first and the last word."""
    found = _words(text)
    return (found[0], found[-1]) if found else ("", "")
