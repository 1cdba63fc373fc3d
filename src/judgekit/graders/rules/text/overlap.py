"""Rules that compare an answer's tokens with a reference's: Jaccard and its kin, GLEU, METEOR."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal

from judgekit.graders.rules.english import words
from judgekit.graders.rules.rule import Compared, Part, Several, at_least, needs, normaliser, one_of, share

Measure = Literal["jaccard", "dice", "smaller", "reference", "cosine"]
MEASURES = ("jaccard", "dice", "smaller", "reference", "cosine")


class Overlap(Compared):
    """Scores how many different tokens the answer and the reference have in common, 0 to 1.

    *of*: "jaccard" (of the tokens in either), "dice" (F1 of the two sets), "smaller" (of the smaller set: the overlap
    coefficient), "reference" (of the reference's), or "cosine" (of the vectors of counts, where repetition counts).
    *unit*: "words" (between spaces) or "characters" (without spaces). *ngram*: compare runs of so many tokens; a text
    with fewer is one run. *normalise*: apply SQuAD's normalisation first; else *ignore_case* compares without case. An
    answer without a token scores 0. Abstains without a reference text.

    Source: Jaccard 1912, Dice 1945, Szymkiewicz–Simpson; the first two and the cosine are among OpenJudge's
    similarities, the shares of the reference's words and characters among its string matches.
    """

    def __init__(
        self,
        *,
        of: Measure = "jaccard",
        unit: Literal["words", "characters"] = "words",
        ngram: int = 1,
        normalise: bool = False,
        ignore_case: bool = True,
        part: Part = "after_think",
        several: Several = "best",
        name: str = "overlap",
    ) -> None:
        super().__init__(name, part, several)
        one_of(name, "of", of, MEASURES)
        one_of(name, "unit", unit, ("words", "characters"))
        at_least(name, "ngram", ngram, 1, whole=True)
        self.of: Measure = of
        self.unit = unit
        self.ngram = ngram
        self.normalise = normalise
        self.ignore_case = ignore_case
        self.inline_limit = 40_000 // ngram

    def compare(self, answer: str, reference: str) -> float:
        way = normaliser(reference) if self.normalise else str.casefold if self.ignore_case else str
        mine, theirs = self._tokens(way(answer)), self._tokens(way(reference))
        if not mine or not theirs:
            return 0.0
        if self.of == "cosine":
            return _cosine(Counter(mine), Counter(theirs))
        a, b = set(mine), set(theirs)
        common = len(a & b)
        if self.of == "dice":
            return 2 * common / (len(a) + len(b))
        whole = {"jaccard": len(a | b), "smaller": min(len(a), len(b)), "reference": len(b)}[self.of]
        return common / whole

    def _tokens(self, text: str) -> list[Any]:
        tokens = text.split() if self.unit == "words" else list("".join(text.split()))
        return tokens if self.ngram == 1 else ngrams(tokens, min(self.ngram, len(tokens)))


class Gleu(Compared):
    """Scores the answer's sentence GLEU, 0 to 1: BLEU's kin that suits single sentences.

    All runs of 1 to *max_order* words that the two texts have in common, as a share of the runs of the one that has
    more: the smaller of precision and recall. Words stand between spaces. *lowercase*: without case. Abstains without a
    reference text.

    Source: Google's GLEU (Wu et al. 2016, arXiv:1609.08144, section 4.3), as NLTK's `sentence_gleu` with one reference.
    """

    def __init__(
        self,
        *,
        max_order: int = 4,
        lowercase: bool = False,
        part: Part = "after_think",
        several: Several = "best",
        name: str = "gleu",
    ) -> None:
        super().__init__(name, part, several)
        at_least(name, "max_order", max_order, 1, whole=True)
        self.max_order = max_order
        self.lowercase = lowercase
        self.inline_limit = 40_000 // max_order

    def compare(self, answer: str, reference: str) -> float:
        if self.lowercase:
            answer, reference = answer.lower(), reference.lower()
        mine, theirs = self._runs(answer.split()), self._runs(reference.split())
        whole = max(mine.total(), theirs.total())
        return (mine & theirs).total() / whole if whole else 0.0

    def _runs(self, tokens: Sequence[str]) -> Counter[tuple[str, ...]]:
        return Counter(run for n in range(1, self.max_order + 1) for run in ngrams(tokens, n))


class Meteor(Compared):
    """Scores the answer's METEOR, 0 to 1: matched words, less a penalty for their order.

    Words match if they are equal without case, or have one stem. The score is (1 - *gamma* · (chunks / matches) ^
    *beta*) · P·R / (*alpha*·P + (1 - *alpha*)·R), with chunks of matches that stand side by side in both texts.
    *stem*: Porter's stems, of English. Synonyms do not match: WordNet would have to be downloaded. Abstains without a
    reference text.

    Source: Banerjee and Lavie 2005; parameters and formula as NLTK's `meteor_score`, which also has the synonyms.
    """

    def __init__(
        self,
        *,
        alpha: float = 0.9,
        beta: float = 3.0,
        gamma: float = 0.5,
        stem: bool = True,
        part: Part = "after_think",
        several: Several = "best",
        name: str = "meteor",
    ) -> None:
        super().__init__(name, part, several)
        share(name, "alpha", alpha)
        share(name, "gamma", gamma)
        at_least(name, "beta", beta, 0)
        self.alpha, self.beta, self.gamma = alpha, beta, gamma
        self.stem: Callable[[str], str] | None = None
        if stem:
            self.libraries = (*self.libraries, needs(name, "nltk.stem.porter", "text"))
            from nltk.stem.porter import PorterStemmer  # type: ignore[import-untyped]

            self.stem = PorterStemmer().stem
        self.inline_limit = 5_000 if stem else 40_000

    def compare(self, answer: str, reference: str) -> float:
        mine, theirs = words(answer.lower()), words(reference.lower())
        if not mine or not theirs:
            return 0.0
        pairs = self._aligned(mine, theirs)
        if not pairs:
            return 0.0
        precision, recall = len(pairs) / len(mine), len(pairs) / len(theirs)
        mean = precision * recall / (self.alpha * precision + (1 - self.alpha) * recall)
        chunks = 1 + sum((j - i, b - a) != (1, 1) for (i, a), (j, b) in pairwise(pairs))
        return float((1 - self.gamma * (chunks / len(pairs)) ** self.beta) * mean)

    def has_tokens(self, reference: str) -> bool:
        return bool(words(reference.lower()))

    def _aligned(self, mine: Sequence[str], theirs: Sequence[str]) -> list[tuple[int, int]]:
        """Pair equal words, then words of one stem; where there is a choice, the word after the last pair's."""
        pairs = _pairs(enumerate(mine), enumerate(theirs))
        if self.stem is not None:
            left, right = {i for i, _ in pairs}, {j for _, j in pairs}
            pairs += _pairs(
                ((i, self.stem(word)) for i, word in enumerate(mine) if i not in left),
                ((j, self.stem(word)) for j, word in enumerate(theirs) if j not in right),
            )
        return sorted(pairs)


def ngrams(tokens: Sequence[Any], n: int) -> list[tuple[Any, ...]]:
    """Return the runs of *n* tokens."""
    return list(zip(*(tokens[i:] for i in range(n)), strict=False)) if n else []


def _pairs(mine: Iterable[tuple[int, str]], theirs: Iterable[tuple[int, str]]) -> list[tuple[int, int]]:
    free: dict[str, deque[int]] = defaultdict(deque)
    word_at: dict[int, str] = {}
    for j, word in theirs:
        free[word].append(j)
        word_at[j] = word
    pairs: list[tuple[int, int]] = []
    last = -1
    for i, word in mine:
        if word_at.get(last + 1) == word:
            last += 1
        else:
            waiting = free[word]
            while waiting and waiting[0] not in word_at:  # taken as the word after a pair
                waiting.popleft()
            if not waiting:
                continue
            last = waiting.popleft()
        del word_at[last]
        pairs.append((i, last))
    return pairs


def _cosine(a: Counter[Any], b: Counter[Any]) -> float:
    dot = sum(count * b[token] for token, count in a.items())
    return dot / math.sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))
