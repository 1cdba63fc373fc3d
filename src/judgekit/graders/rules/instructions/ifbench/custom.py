"""IFBench's constraints that belong to one prompt each."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from datetime import date
from itertools import pairwise

from judgekit.graders.rules.english import PUNCTUATION, bare_words, listed, sentences
from judgekit.graders.rules.instructions.constraints import constraint

CAPITALS = listed(
    "Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin Amsterdam Warsaw "
    "London Brussels Kyiv Prague Luxembourg Paris Vienna Bratislava Budapest Vaduz Chisinau Bern Ljubljana Zagreb"
)
"""Europe's capitals north of 45 degrees, from north to south."""
AFRICA = 52
"""At least so many countries are in a list of Africa's."""


@constraint("custom:multiples")
def multiples(text: str) -> bool:
    """The multiples of 7 from 10 to 50, and no other number."""
    return [int(number) for number in re.findall(r"\d{1,9}", text)] == [14, 21, 28, 35, 42, 49]


@constraint("custom:mcq_count_length")
def mcq_count_length(text: str) -> bool:
    """Four questions, each labelled "Question", each longer than the one before, each with five options."""
    text = text.strip()
    before, *questions = re.split(r"^[ \t]*Question\b[ \t]*\d*[ \t]*[.):;|]?", text, flags=re.MULTILINE)
    if before.strip() or len(questions) != 4:
        return False
    lengths: list[int] = []
    for question in questions:
        lines = [line.strip() for line in question.split("\n")]
        options = [i for i, line in enumerate(lines) if re.match(r"[A-Ea-e][.)|]\s*\w", line)]
        if len(options) != 5:
            return False
        lengths.append(len(" ".join(lines[: options[0]]).strip()))
    return all(shorter < longer for shorter, longer in pairwise(lengths))


@constraint("custom:reverse_newline")
def reverse_newline(text: str) -> bool:
    """Africa's countries from Zimbabwe on, a line each, in reverse alphabetical order."""
    lines = [name for line in text.split("\n") if (name := _ascii(line.strip(PUNCTUATION + " \t\r")))]
    start = next((i for i, line in enumerate(lines) if "Zimbabwe" in line), len(lines))
    listed = lines[start:]
    return len(listed) >= AFRICA and all(before >= after for before, after in pairwise(listed))


@constraint("custom:word_reverse")
def word_reverse(text: str) -> bool:
    """The sentence about the bald eagle with its words in reverse."""
    return "bald eagle" in " ".join(reversed(bare_words(text)))


@constraint("custom:character_reverse")
def character_reverse(text: str) -> bool:
    """The sentence about the bald eagle with its letters in reverse."""
    return "elgae dlab" in text.lower()


@constraint("custom:sentence_alphabet")
def sentence_alphabet(text: str) -> bool:
    """26 sentences that start with the letters of the alphabet in order."""
    first = [sentence.strip(PUNCTUATION + " \n")[:1].lower() for sentence in sentences(text)]
    return first == [chr(ord("a") + i) for i in range(26)]


@constraint("custom:european_capitals_sort")
def european_capitals_sort(text: str) -> bool:
    """`CAPITALS`, with commas between them; Kyiv may be missing."""
    given = [_ascii(name).strip().removesuffix(" City") for name in text.rstrip(". \n").split(",")]
    given = [name for name in given if name]
    return given in (CAPITALS, [name for name in CAPITALS if name != "Kyiv"])


@constraint("custom:csv_city")
def csv_city(text: str) -> bool:
    return _table(text, ["ID", "Country", "City", "Year", "Count"], rows=7) is not None


@constraint("custom:csv_special_character")
def csv_special_character(text: str) -> bool:
    """14 rows, with a quoted field that has a character other than letters, digits and space."""
    if _table(text, ["ProductID", "Category", "Brand", "Price", "Stock"], rows=14) is None:
        return False
    data = text.strip().partition("\n")[2]
    return any(re.search(r"[^\w\s]", field) for field in re.findall(r'"([^"\n]*)"', data))


@constraint("custom:csv_quotes")
def csv_quotes(text: str) -> bool:
    """Three rows between tabs, each field in double quotes."""
    if _table(text, ["StudentID", "Subject", "Grade", "Semester", "Score"], rows=3, delimiter="\t") is None:
        return False
    fields = [field.strip() for line in text.strip().split("\n") for field in line.split("\t")]
    return all(len(field) > 1 and field[0] == field[-1] == '"' for field in fields)


@constraint("custom:date_format_list")
def date_format_list(text: str) -> bool:
    """Dates as YYYY-MM-DD in Napoleon's life, between commas, and nothing else."""
    for part in text.strip().split(","):
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", part.strip(), re.ASCII):
            return False
        try:
            when = date.fromisoformat(part.strip())
        except ValueError:  # there is no such day
            return False
        if not 1769 <= when.year <= 1821:
            return False
    return True


def _table(text: str, header: list[str], *, rows: int, delimiter: str = ",") -> list[list[str]] | None:
    """Return the rows of CSV with this header, this many rows and a field for each column; None if it is not that."""
    try:
        reader = csv.reader(io.StringIO(text.strip()), delimiter=delimiter, skipinitialspace=True)
        found = [row for row in reader if row]
    except csv.Error:
        return None
    if len(found) != rows + 1 or [name.strip() for name in found[0]] != header:
        return None
    return found[1:] if all(len(row) == len(header) for row in found) else None


def _ascii(text: str) -> str:
    """Without accents."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
