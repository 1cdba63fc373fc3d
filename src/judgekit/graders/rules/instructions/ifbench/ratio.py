"""IFBench's constraints on shares and balances."""

from __future__ import annotations

from judgekit.graders.rules.english import STOP_WORDS, bare_words, end_of, sentences, words
from judgekit.graders.rules.instructions.constraints import constraint


@constraint("ratio:stop_words", percentage="int")
def stop_words(text: str, percentage: int) -> bool:
    found = [word.lower() for word in words(text)]
    return bool(found) and 100 * sum(word in STOP_WORDS for word in found) <= percentage * len(found)


@constraint("ratio:sentence_type")
def sentence_type(text: str) -> bool:
    """Two statements for each question."""
    ends = _ends(text)
    return ends.count(".") == 2 * ends.count("?")


@constraint("ratio:sentence_balance")
def sentence_balance(text: str) -> bool:
    ends = _ends(text)
    return ends.count(".") == ends.count("?") == ends.count("!")


@constraint("ratio:overlap", reference_text="text", percentage="int")
def overlap(text: str, reference_text: str, percentage: int) -> bool:
    """The share of the text's different runs of three words that the reference has, too."""
    mine, theirs = (set(zip(w, w[1:], w[2:], strict=False)) for w in map(bare_words, (text, reference_text)))
    return bool(mine) and abs(100 * len(mine & theirs) / len(mine) - percentage) <= 2


@constraint("ratio:sentence_words")
def sentence_words(text: str) -> bool:
    """Three sentences of equal length in characters, without a word in common."""
    found = sentences(text)
    if len(found) != 3 or len(set(map(len, found))) != 1:
        return False
    used = [set(bare_words(sentence)) for sentence in found]
    return sum(map(len, used)) == len(used[0] | used[1] | used[2])


def _ends(text: str) -> list[str]:
    return [end_of(sentence) for sentence in sentences(text)]
