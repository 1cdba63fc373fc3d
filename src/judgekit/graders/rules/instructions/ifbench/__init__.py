"""The 58 verifiable constraints of IFBench, by family.

Ids and parameters are those of IFBench (Pyatkin et al. 2025, arXiv:2507.02833); what each one checks follows its
description there. Importing this package adds them to `judgekit.graders.rules.instructions.constraints.CONSTRAINTS`.

Differences from IFBench's own checks, which need NLTK's downloads: stop words, verbs, syllables and sentences are those
of `judgekit.graders.rules.english`. Where a check there accepts less or more than its description, the description
counts: `count:conjunctions` counts "And" and "and" once; `ratio:sentence_words` wants different words;
`sentence:alliteration_increment` compares the longest runs; `words:words_position` and
`words:keywords_specific_position` count words, not punctuation marks; `format:sub-bullets` wants bullets, at the start
of lines; `format:title_case` lets minor words be; `format:quotes` knows curly quotes and apostrophes;
`custom:european_capitals_sort` accepts Kyiv. Its versions differ, too: here `ratio:overlap` compares words,
`count:keywords_multiple` counts whole words, and `repeat:repeat_span` counts words and includes both ends.
"""

from judgekit.graders.rules.instructions.ifbench import count, custom, form, ratio, repeat, sentence, wording

__all__ = ["count", "custom", "form", "ratio", "repeat", "sentence", "wording"]
