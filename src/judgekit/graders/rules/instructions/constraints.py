"""The verifiable constraints of IFEval, one function each, and their parameters.

Ids, parameters and meanings are those of `instruction_following_eval` (Zhou et al. 2023, arXiv:2311.07911).
Differences: keywords are words, not patterns; our own rules split sentences and tokens (see
`judgekit.graders.rules.english`), where IFEval uses NLTK's models; every check takes time proportional to the text.
IFBench's constraints are in `judgekit.graders.rules.instructions.ifbench`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping

from judgekit.errors import reads_rollout
from judgekit.graders.rules.english import sentences, words

Check = Callable[..., bool]

RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "less than": lambda count, number: count < number,
    "at least": lambda count, number: count >= number,
    "at most": lambda count, number: count <= number,
    "more than": lambda count, number: count > number,
    "exactly": lambda count, number: count == number,
}
"""IFEval has the first two."""

CONSTRAINTS: dict[str, tuple[Check, Mapping[str, str]]] = {}
"""By id: the check, and its parameters with their kinds (int, text, texts, letter, relation)."""


def constraint(id_: str, **parameters: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        CONSTRAINTS[id_] = (check, parameters)
        return check

    return register


# ---- keywords


@constraint("keywords:existence", keywords="texts")
def existence(text: str, keywords: list[str]) -> bool:
    return all(re.search(re.escape(word), text, re.IGNORECASE) for word in keywords)


@constraint("keywords:frequency", keyword="text", frequency="int", relation="relation")
def frequency(text: str, keyword: str, frequency: int, relation: str) -> bool:
    found = re.findall(re.escape(keyword.strip()), text, re.IGNORECASE)
    return RELATIONS[relation](len(found), frequency)


@constraint("keywords:forbidden_words", forbidden_words="texts")
def forbidden_words(text: str, forbidden_words: list[str]) -> bool:
    return not any(
        re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) for word in forbidden_words
    )


@constraint("keywords:letter_frequency", letter="letter", let_frequency="int", let_relation="relation")
def letter_frequency(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    return RELATIONS[let_relation](text.lower().count(letter.lower()), let_frequency)


@constraint("keywords:key_sentences", key_sentences="texts", num_sentences="int")
def key_sentences(text: str, key_sentences: list[str], num_sentences: int) -> bool:
    found = set(sentences(text))
    return sum(sentence.strip() in found for sentence in key_sentences) == num_sentences


# ---- language and case


@constraint("language:response_language", language="language")
def response_language(text: str, language: str) -> bool:
    found = language_of(text)
    return found in (None, language) or (language == "zh" and str(found).startswith("zh"))


LANGUAGES: Mapping[str, str] = {
    "afrikaans": "af", "arabic": "ar", "bulgarian": "bg", "bengali": "bn", "bangla": "bn", "catalan": "ca", "czech": "cs", "welsh": "cy", "danish": "da",
    "german": "de", "greek": "el", "english": "en", "spanish": "es", "estonian": "et", "persian": "fa", "farsi": "fa", "finnish": "fi", "french": "fr",
    "gujarati": "gu", "hebrew": "he", "iw": "he", "hindi": "hi", "croatian": "hr", "hungarian": "hu", "indonesian": "id", "italian": "it", "japanese": "ja",
    "kannada": "kn", "korean": "ko", "lithuanian": "lt", "latvian": "lv", "macedonian": "mk", "malayalam": "ml", "marathi": "mr", "nepali": "ne",
    "dutch": "nl", "norwegian": "no", "nb": "no", "punjabi": "pa", "polish": "pl", "portuguese": "pt", "romanian": "ro", "russian": "ru", "slovak": "sk",
    "slovenian": "sl", "somali": "so", "albanian": "sq", "swedish": "sv", "swahili": "sw", "tamil": "ta", "telugu": "te", "thai": "th", "tagalog": "tl",
    "turkish": "tr", "ukrainian": "uk", "urdu": "ur", "vietnamese": "vi", "chinese": "zh", "simplified chinese": "zh-cn", "traditional chinese": "zh-tw",
}  # fmt: skip
"""langdetect's codes of the languages that it knows, by name; "zh" stands for either script of Chinese."""


@constraint("change_case:english_capital")
def english_capital(text: str) -> bool:
    return text.isupper() and language_of(text) in (None, "en")


@constraint("change_case:english_lowercase")
def english_lowercase(text: str) -> bool:
    return text.islower() and language_of(text) in (None, "en")


@constraint("change_case:capital_word_frequency", capital_frequency="int", capital_relation="relation")
def capital_word_frequency(text: str, capital_frequency: int, capital_relation: str) -> bool:
    # a contraction is two tokens, as in the Penn Treebank: I'm has one in capitals, DON'T two
    tokens = re.findall(r"['’]?\w+(?:[-./&]\w+)*", text)
    return RELATIONS[capital_relation](sum(token.isupper() for token in tokens), capital_frequency)


def language_of(text: str) -> str | None:
    """Detect the language with langdetect; None if it cannot tell (which passes, as in IFEval)."""
    from langdetect import DetectorFactory, LangDetectException, detect

    DetectorFactory.seed = 0  # langdetect is random
    try:
        return str(detect(text))
    except LangDetectException:
        return None


# ---- length


@constraint("length_constraints:number_sentences", num_sentences="int", relation="relation")
def number_sentences(text: str, num_sentences: int, relation: str) -> bool:
    return RELATIONS[relation](len(sentences(text)), num_sentences)


@constraint("length_constraints:number_words", num_words="int", relation="relation")
def number_words(text: str, num_words: int, relation: str) -> bool:
    return RELATIONS[relation](len(words(text)), num_words)


@constraint("length_constraints:number_characters", num_characters="int", relation="relation")
def number_characters(text: str, num_characters: int, relation: str) -> bool:
    return RELATIONS[relation](len(text), num_characters)


@constraint("length_constraints:number_paragraphs", num_paragraphs="int")
def number_paragraphs(text: str, num_paragraphs: int) -> bool:
    parts = text.split("***")
    if any(not part.strip() for part in parts[1:-1]):
        return False
    return sum(bool(part.strip()) for part in parts) == num_paragraphs


@constraint(
    "length_constraints:nth_paragraph_first_word",
    num_paragraphs="int",
    nth_paragraph="int",
    first_word="text",
)
def nth_paragraph_first_word(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    parts = text.split("\n\n")
    count = sum(bool(part.strip()) for part in parts)
    if not 1 <= nth_paragraph <= count or count != num_paragraphs:
        return False
    words = parts[nth_paragraph - 1].split()
    if not words:
        return False
    word = re.split(r"[.,?!'\"]", words[0].lstrip("'").lstrip('"'), maxsplit=1)[0]
    return word.lower() == first_word.lower()


# ---- content and form


@constraint("detectable_content:number_placeholders", num_placeholders="int")
def number_placeholders(text: str, num_placeholders: int) -> bool:
    count = 0
    for line in text.split("\n"):
        at = line.find("[")
        while at >= 0 and (end := line.find("]", at)) >= 0:
            count += 1
            at = line.find("[", end)
    return count >= num_placeholders


@constraint("detectable_content:postscript", postscript_marker="text")
def postscript(text: str, postscript_marker: str) -> bool:
    marker = postscript_marker.strip()
    pattern = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}.get(marker, re.escape(marker.lower()))
    return re.search(pattern, text.lower()) is not None


@constraint("detectable_content:rephrase_paragraph", original_paragraph="text", low="int", high="int")
def rephrase_paragraph(text: str, original_paragraph: str, low: int, high: int) -> bool:
    mine, theirs = (Counter(words(t.lower())) for t in (text, original_paragraph))
    return low <= sum((mine & theirs).values()) <= high


@constraint("detectable_format:number_bullet_lists", num_bullets="int")
def number_bullet_lists(text: str, num_bullets: int) -> bool:
    lines = [line.lstrip() for line in text.split("\n")]
    stars = sum(line.startswith("*") and len(line) > 1 and line[1] != "*" for line in lines)
    return stars + sum(line.startswith("-") for line in lines) == num_bullets


@constraint("detectable_format:constrained_response")
def constrained_response(text: str) -> bool:
    return any(f"My answer is {word}." in text for word in ("yes", "no", "maybe"))


@constraint("detectable_format:number_highlighted_sections", num_highlights="int")
def number_highlighted_sections(text: str, num_highlights: int) -> bool:
    single = [h for h in re.findall(r"\*[^\n*]*\*", text) if h.strip("*").strip()]
    double = [h for h in re.findall(r"\*\*[^\n*]*\*\*", text) if h[2:-2].strip()]
    return len(single) + len(double) >= num_highlights


@constraint("detectable_format:multiple_sections", section_spliter="text", num_sections="int")
def multiple_sections(text: str, section_spliter: str, num_sections: int) -> bool:
    return len(re.findall(re.escape(section_spliter.strip()) + r"\s?\d+", text)) >= num_sections


_loads = reads_rollout(json.loads)


@constraint("detectable_format:json_format")
def json_format(text: str) -> bool:
    text = text.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(fence)
    try:
        _loads(text.removesuffix("```").strip())
    except ValueError:
        return False
    return True


@constraint("detectable_format:title")
def title(text: str) -> bool:
    for line in text.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start < end - 2 and line[start : end + 2].lstrip("<").rstrip(">").strip():
            return True
    return False


@constraint("punctuation:no_comma")
def no_comma(text: str) -> bool:
    return "," not in text


# ---- combinations, start and end


@constraint("combination:two_responses")
def two_responses(text: str) -> bool:
    parts = text.split("******")
    if any(not part.strip() for part in parts[1:-1]):
        return False
    given = [part.strip() for part in parts if part.strip()]
    return len(given) == 2 and given[0] != given[1]


@constraint("combination:repeat_prompt", prompt_to_repeat="text")
def repeat_prompt(text: str, prompt_to_repeat: str) -> bool:
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


@constraint("startend:end_checker", end_phrase="text")
def end_checker(text: str, end_phrase: str) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


@constraint("startend:quotation")
def quotation(text: str) -> bool:
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


@constraint("multi-turn:constrained_start", starter="text")
def constrained_start(text: str, starter: str) -> bool:
    return any(line.lstrip().startswith(starter.strip()) for line in text.split("\n"))
