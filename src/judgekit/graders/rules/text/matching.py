"""Rules that compare an answer's text with references: equality, overlap, similarity."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Literal

from judgekit.errors import ConfigError
from judgekit.graders.protocol import Where
from judgekit.graders.rules.asserted import doubt
from judgekit.graders.rules.rule import (
    Compared,
    Part,
    Several,
    at_least,
    decided,
    needs,
    normaliser,
    one_of,
)
from judgekit.graders.rules.values import signs
from judgekit.types import Abstained, Grade, Graded, Rollout

How = Literal["exact", "normalised", "prefix", "suffix", "contains", "contained", "regex"]


class TextMatch(Compared):
    """Scores 1 if the answer matches a reference, else 0.

    *how*: "exact" (equal, ignoring space around the text), "normalised" (equal without case, punctuation, articles
    and extra space: SQuAD's exact match), "prefix", "suffix" (the answer begins or ends with the reference),
    "contains" (the answer contains the reference), "contained" (the reference contains the answer), "regex" (the
    answer contains a match of the reference, a pattern). *ignore_case*: compare without case. *ignore_space*: compare
    without any space, also inside. *whole_words*: for "contains", "prefix" and "suffix", the reference must not be part of a longer word. *part*, *several*: see `Part`
    and `Several`. An empty answer matches nothing. Unlike SQuAD's, "normalised" tells values apart by their digits, signs, points
    and operators (`-5` is not `5`); and an answer neither contains nor ends in what it denies ("it is not 42").

    Patterns run in a worker process that is killed at *timeout_s*; if a reference is not a valid pattern the grader
    abstains. Abstains without a reference text.

    Source: exact match and its normalisation are SQuAD's (`exact_match_score`, arXiv:1606.05250); the others
    are string operations.
    """

    abstains = "there is no reference text, or it is not a valid pattern"

    def __init__(
        self,
        *,
        how: How = "exact",
        ignore_case: bool = False,
        ignore_space: bool = False,
        whole_words: bool = False,
        part: Part = "after_think",
        several: Several = "any",
        timeout_s: float = 5.0,
        name: str = "text_match",
    ) -> None:
        super().__init__(name, part, several)
        one_of(name, "how", how, (*_PLAIN, "regex"))
        if whole_words and how not in ("prefix", "suffix", "contains"):
            raise ConfigError(
                f"{name}: whole_words is for how='contains', 'prefix' and 'suffix', not {how!r}"
            )
        if ignore_space and (whole_words or how == "regex"):
            raise ConfigError(
                f"{name}: without spaces there are no words or patterns: leave out ignore_space"
            )
        self.how: How = how
        self.ignore_case = ignore_case
        self.ignore_space = ignore_space
        self.whole_words = whole_words
        self.where: Where = "process" if how == "regex" else "inline"
        self.inline_limit = 500_000
        self.timeout_s = timeout_s

    def written(self, reference: str) -> str:
        return reference if self.how == "regex" else super().written(reference)

    def against(self, answer: str, accepted: Sequence[str]) -> Grade:
        if self.how == "regex":
            flags = re.IGNORECASE if self.ignore_case else 0
            try:
                patterns = [re.compile(pattern, flags) for pattern in accepted]
            except (re.error, OverflowError) as error:
                return Abstained(f"the reference is not a valid pattern: {error}")
            return Graded(decided([float(bool(p.search(answer))) for p in patterns], self.several))
        return super().against(answer, accepted)

    def compare(self, answer: str, reference: str) -> float:
        answer, reference = answer.strip(), reference.strip()
        if self.how == "normalised":
            if signs(answer) != signs(reference):
                return 0.0
            way = normaliser(reference)
            answer, reference = way(answer), way(reference)
        elif self.ignore_case:
            answer, reference = answer.casefold(), reference.casefold()
        if self.ignore_space:
            answer, reference = "".join(answer.split()), "".join(reference.split())
        if not answer or not reference:
            return 0.0
        if not _PLAIN[self.how](answer, reference):
            return 0.0
        if self.how not in ("prefix", "suffix", "contains"):
            return 1.0
        start, end = (r"(?<!\w)", r"(?!\w)") if self.whole_words else ("", "")
        pattern = (
            (r"\A" if self.how == "prefix" else start)
            + re.escape(reference)
            + (r"\Z" if self.how == "suffix" else end)
        )
        if self.how == "prefix":
            return float(re.match(pattern, answer) is not None)
        return float(not _denied(answer, pattern))


_MOST_OCCURRENCES = 50


def _denied(answer: str, pattern: str) -> bool:
    """Whether there is no occurrence but denied and only possible ones: "it is not 42"."""
    found = islice(re.finditer(pattern, answer), _MOST_OCCURRENCES)
    return all(doubt(answer, m.start(), m.end()) for m in found)


_PLAIN: dict[str, Callable[[str, str], bool]] = {
    "exact": lambda answer, reference: answer == reference,
    "normalised": lambda answer, reference: answer == reference,
    "prefix": lambda answer, reference: answer.startswith(reference),
    "suffix": lambda answer, reference: answer.endswith(reference),
    "contains": lambda answer, reference: reference in answer,
    "contained": lambda answer, reference: answer in reference,
}


class TokenF1(Compared):
    """Scores the F1 of the answer's tokens against the reference's, 0 to 1.

    Repeated tokens count as often as they occur. *normalise*: apply SQuAD's normalisation before splitting at
    spaces; unlike SQuAD's it keeps the articles or the punctuation of a reference that is nothing else ("A"). *of*: "f1",
    "precision" or "recall". *unit*: "words", or "characters" for text without spaces between words. An answer without a
    token scores 0. Where the reference or the answer is "yes", "no" or "noanswer", only the same scores (HotpotQA). Of
    several references the best counts, as in SQuAD. Abstains without a reference text.

    Source: `f1_score` / `compute_f1` of the official SQuAD scripts (arXiv:1606.05250, arXiv:1806.03822).
    """

    def __init__(
        self,
        *,
        of: Literal["f1", "precision", "recall"] = "f1",
        unit: Literal["words", "characters"] = "words",
        normalise: bool = True,
        part: Part = "after_think",
        several: Several = "best",
        name: str = "token_f1",
    ) -> None:
        super().__init__(name, part, several)
        one_of(name, "of", of, ("f1", "precision", "recall"))
        one_of(name, "unit", unit, ("words", "characters"))
        self.of = of
        self.unit = unit
        self.normalise = normalise
        self.inline_limit = 100_000

    def compare(self, answer: str, reference: str) -> float:
        way = normaliser(reference) if self.normalise else str
        given, wanted = self._tokens(way(answer)), self._tokens(way(reference))
        if not given or not wanted:
            return 0.0
        if given != wanted and (_alone(given) in _YES_NO or _alone(wanted) in _YES_NO):
            return 0.0
        common = sum((Counter(given) & Counter(wanted)).values())
        if common == 0:
            return 0.0
        precision, recall = common / len(given), common / len(wanted)
        if self.of == "precision":
            return precision
        return recall if self.of == "recall" else 2 * precision * recall / (precision + recall)

    def has_tokens(self, reference: str) -> bool:
        return bool(reference.strip())

    def _tokens(self, text: str) -> list[str]:
        return text.split() if self.unit == "words" else [c for c in text if not c.isspace()]


_YES_NO = ("yes", "no", "noanswer")


def _alone(tokens: Sequence[str]) -> str:
    return "".join(tokens).lower() if len(tokens) < 10 else ""


Distance = Literal[
    "levenshtein",
    "indel",
    "osa",
    "damerau_levenshtein",
    "jaro",
    "jaro_winkler",
    "lcs",
    "difflib",
    "partial",
    "token_sort",
    "token_set",
]
_DISTANCES = {
    "levenshtein": "Levenshtein",
    "indel": "Indel",
    "osa": "OSA",
    "damerau_levenshtein": "DamerauLevenshtein",
    "jaro": "Jaro",
    "jaro_winkler": "JaroWinkler",
    "lcs": "LCSseq",
}
_RATIOS = {"partial": "partial_ratio", "token_sort": "token_sort_ratio", "token_set": "token_set_ratio"}


class EditSimilarity(Compared):
    """Scores the similarity of answer and reference by characters: 1 (equal) to 0.

    *distance*: "levenshtein" (1 - edits / length of the longer text, the default), "indel" (insertions and
    deletions only, over the sum of the lengths: `fuzz.ratio`), "osa", "damerau_levenshtein", "jaro", "jaro_winkler",
    "lcs" (longest common subsequence / length of the longer), "difflib" (`SequenceMatcher.ratio` without its heuristic
    for junk: matching blocks, the longest first), "partial" (indel with the best part of the longer text),
    "token_sort" (indel of the sorted words), "token_set" (indel where words in common count once).
    *ignore_case*: compare without case. *ignore_space*: compare without any space. *normalise*: apply SQuAD's
    normalisation first. The time grows with the product of the lengths, so long texts are
    compared in a worker process, for up to *timeout_s*. Abstains without a reference text.

    Source: `rapidfuzz.distance.*.normalized_similarity` and `rapidfuzz.fuzz`; Levenshtein 1966; Ratcliff and
    Obershelp 1988.
    """

    def __init__(
        self,
        *,
        distance: Distance = "levenshtein",
        ignore_case: bool = False,
        ignore_space: bool = False,
        normalise: bool = False,
        part: Part = "after_think",
        several: Several = "best",
        timeout_s: float = 10.0,
        name: str = "edit_similarity",
    ) -> None:
        super().__init__(name, part, several)
        one_of(name, "distance", distance, (*_DISTANCES, *_RATIOS, "difflib"))
        if ignore_space and distance in ("token_sort", "token_set"):
            raise ConfigError(f"{name}: without spaces there are no words: leave out ignore_space")
        module = "rapidfuzz.fuzz" if distance in _RATIOS else "rapidfuzz.distance"
        self.libraries = (
            *self.libraries,
            "difflib" if distance == "difflib" else needs(name, module, "text"),
        )
        self.distance = distance
        self.ignore_case = ignore_case
        self.ignore_space = ignore_space
        self.normalise = normalise
        self.timeout_s = timeout_s
        self.inline_limit = {"difflib": 300, "partial": 1_000}.get(distance, 12_000)

    def compare(self, answer: str, reference: str) -> float:
        answer, reference = answer.strip(), reference.strip()
        if self.normalise:
            way = normaliser(reference)
            answer, reference = way(answer), way(reference)
        elif self.ignore_case:
            answer, reference = answer.casefold(), reference.casefold()
        if self.ignore_space:
            answer, reference = "".join(answer.split()), "".join(reference.split())
        if self.distance == "difflib":
            from difflib import SequenceMatcher

            return SequenceMatcher(None, answer, reference, autojunk=False).ratio()
        if self.distance in _RATIOS:
            from rapidfuzz import fuzz

            return float(getattr(fuzz, _RATIOS[self.distance])(answer, reference)) / 100
        from rapidfuzz import distance

        return float(getattr(distance, _DISTANCES[self.distance]).normalized_similarity(answer, reference))


class Bleu(Compared):
    """Scores the answer's sentence BLEU, 0 to 1.

    *max_order*: longest n-gram; *effective_order*: leave out n-grams longer than the answer, as sacreBLEU does
    for sentences; *smoothing*: "exp", "floor", "add-k" or "none"; *tokenize*: sacreBLEU's tokenizer ("13a",
    "zh", "char", "intl", …); *lowercase*. Several references are one set, as BLEU defines it; with
    several="all" the one that matches worst counts. Abstains without a reference text.

    Source: sacreBLEU's `BLEU.sentence_score` (Post 2018, arXiv:1804.08771; Papineni et al. 2002), over 100.
    """

    def __init__(
        self,
        *,
        max_order: int = 4,
        effective_order: bool = True,
        smoothing: Literal["exp", "floor", "add-k", "none"] = "exp",
        tokenize: str = "13a",
        lowercase: bool = False,
        part: Part = "after_think",
        several: Several = "best",
        name: str = "bleu",
    ) -> None:
        super().__init__(name, part, several)
        at_least(name, "max_order", max_order, 1, whole=True)
        one_of(name, "smoothing", smoothing, ("exp", "floor", "add-k", "none"))
        self.libraries = (*self.libraries, needs(name, "sacrebleu", "text"))
        from sacrebleu.metrics.bleu import BLEU

        one_of(name, "tokenize", tokenize, sorted(BLEU.TOKENIZERS))
        self.metric = BLEU(
            max_ngram_order=max_order,
            effective_order=effective_order,
            smooth_method=smoothing,
            tokenize=tokenize,
            lowercase=lowercase,
        )
        self.inline_limit = 4_000

    def against(self, answer: str, accepted: Sequence[str]) -> Grade:
        sets = [[reference] for reference in accepted] if self.several == "all" else [list(accepted)]
        scores = [self.metric.sentence_score(answer, references).score / 100 for references in sets]
        return Graded(decided(scores, self.several))


class ChrF(Compared):
    """Scores the answer's sentence chrF, an F-score of character n-grams, 0 to 1.

    *char_order* 6, *beta* 2 and *word_order* 0 are chrF2; word_order=2 is chrF++. Of several references
    the best counts. Abstains without a reference text.

    Source: sacreBLEU's `CHRF.sentence_score` (Popović 2015, 2017), over 100.
    """

    def __init__(
        self,
        *,
        char_order: int = 6,
        word_order: int = 0,
        beta: int = 2,
        lowercase: bool = False,
        whitespace: bool = False,
        part: Part = "after_think",
        several: Several = "best",
        name: str = "chrf",
    ) -> None:
        super().__init__(name, part, several)
        at_least(name, "char_order", char_order, 1, whole=True)
        at_least(name, "word_order", word_order, 0, whole=True)
        at_least(name, "beta", beta, 1, whole=True)
        self.libraries = (*self.libraries, needs(name, "sacrebleu", "text"))
        from sacrebleu.metrics.chrf import CHRF

        self.metric = CHRF(char_order, word_order, beta, lowercase=lowercase, whitespace=whitespace)
        self.inline_limit = 4_000

    def compare(self, answer: str, reference: str) -> float:
        return float(self.metric.sentence_score(answer, [reference]).score) / 100


class Rouge(Compared):
    """Scores the answer's ROUGE, 0 to 1.

    *variant*: "rouge1" … "rouge9" (n-grams) or "rougeL" (longest common subsequence), "rougeLsum" (by line).
    *of*: "f1", "precision" or "recall". *stem*: Porter stemming. Only a-z and 0-9 are tokens, as in the
    package: for other scripts use `TokenF1` or `ChrF`; a reference without such a token abstains. Of several
    references the best counts.

    Source: Google's rouge-score (`RougeScorer`; Lin 2004). rougeL's subsequence is found by rapidfuzz, which
    gives the same length in less time.
    """

    abstains = "there is no reference text, or none with a-z or 0-9 in it"

    def __init__(
        self,
        *,
        variant: str = "rougeL",
        of: Literal["f1", "precision", "recall"] = "f1",
        stem: bool = False,
        part: Part = "after_think",
        several: Several = "best",
        name: str = "rouge",
    ) -> None:
        super().__init__(name, part, several)
        one_of(name, "variant", variant, (*(f"rouge{n}" for n in range(1, 10)), "rougeL", "rougeLsum"))
        one_of(name, "of", of, ("f1", "precision", "recall"))
        self.libraries = (*self.libraries, needs(name, "rouge_score.rouge_scorer", "text"))
        self.libraries = (*self.libraries, needs(name, "rapidfuzz.distance", "text"))
        from rouge_score.rouge_scorer import RougeScorer
        from rouge_score.tokenizers import DefaultTokenizer

        self.variant = variant
        self.of = of
        self.scorer = RougeScorer([variant], use_stemmer=stem)
        self.tokenizer = DefaultTokenizer(stem)
        self.inline_limit = 8_000 if stem else 50_000
        if variant == "rougeLsum":  # every line with every line
            self.where: Where = "process"

    def grade(self, rollout: Rollout, /) -> Grade:
        grade = super().grade(rollout)
        if isinstance(grade, Graded) and not any(
            re.search("[a-z0-9]", str(r).lower()) for r in _listed(rollout.ground_truth)
        ):
            return Abstained("the reference has no token for ROUGE (a-z, 0-9)")
        return grade

    def compare(self, answer: str, reference: str) -> float:
        if self.variant != "rougeL":
            score = self.scorer.score(reference, answer)[self.variant]
            return float(
                {"f1": score.fmeasure, "precision": score.precision, "recall": score.recall}[self.of]
            )
        from rapidfuzz.distance import LCSseq

        given, wanted = self.tokenizer.tokenize(answer), self.tokenizer.tokenize(reference)
        common = LCSseq.similarity(given, wanted) if given and wanted else 0
        if not common:
            return 0.0
        precision, recall = common / len(given), common / len(wanted)
        if self.of == "precision":
            return precision
        return recall if self.of == "recall" else 2 * precision * recall / (precision + recall)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]
