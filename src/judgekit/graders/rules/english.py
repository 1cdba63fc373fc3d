"""English words by what they do in a sentence, and how texts are cut into words and sentences.

The lists are our own; where a data set's reference uses a corpus or a trained tagger, single words may differ.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator

PUNCTUATION = string.punctuation + "“”‘’«»…–—、。！？「」"
_NO_PUNCTUATION = str.maketrans("", "", PUNCTUATION)


def listed(words: str) -> list[str]:
    """Return the words of a list that is written as one text."""
    return words.split()


PRONOUNS = frozenset(
    listed(
        "i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers "
        "herself it its itself they them their theirs themselves"
    )
)
"""Personal, possessive and reflexive pronouns."""
CONJUNCTIONS = frozenset(listed("and but for nor or so yet"))
"""Coordinating conjunctions."""
MINOR_WORDS = frozenset(
    listed(
        "a an the and but for nor or so yet as at by in of off on per to up via from into onto over with than if vs"
    )
)
"""Words that titles may leave in lower case: articles, conjunctions, short prepositions."""
_AUXILIARIES = listed(
    "am is are was were be been being have has had having do does did doing can could will would shall should may "
    "might must"
)
STOP_WORDS = PRONOUNS | frozenset(
    listed(
        "a an the this that these those who whom which what whose and but if or because as until while than so nor "
        "am is are was were be been being have has had having do does did doing will can should "
        "of at by for with about against between into through during before after above below to from up down in out on "
        "off over under again further then once here there when where why how all any both each few more most other "
        "some such no not only own same too very just now "
        # what is left of contractions after cutting at the apostrophe
        "s t d m o y ll re ve ma don ain aren couldn didn doesn hadn hasn haven isn mightn mustn needn shan shouldn wasn "
        "weren won wouldn"
    )
)
"""Function words, and the parts that contractions fall into."""

_VERBS = frozenset(
    listed(
        "accept access achieve acknowledge act adapt add address adhere adjust admit adopt advance advise agree aim align "
        "allow analyze answer anticipate appear apply appreciate approach argue arrange arrive ask aspire assemble assess "
        "assign assist assume assure attach attempt attend avoid awaken bake balance bask be beat become beg begin behold "
        "believe belong bend bless blend blush boil boost borrow bounce box break breathe bring brush build burn buy calculate call capture care "
        "carry catch celebrate challenge change check cherish choose circle claim clarify clean clear click climb close "
        "collaborate collect combine come commit communicate compare compile complete compose compute conclude conduct "
        "confirm connect consider consist construct consult consume contact contain continue contribute convert convey "
        "convince cook copy correct count cover craft create cross crush cultivate cut dance dare decide declare decrease define "
        "delegate delete deliver delve demonstrate depend derive describe deserve design despise destroy detect determine "
        "develop devise die differ dig discard discover discuss dive divide do download draft draw dream dress drink drive drop "
        "earn eat edit educate elevate eliminate embark embrace emerge emphasize employ empower enable encounter encourage "
        "engage enhance enjoy ensure enter envision escape establish estimate evaluate examine exceed exchange excuse "
        "execute exercise exist expand expect experience experiment explain explore express extend extract face fail fall "
        "feed feel fetch fight fill find finish fix flee fly focus fold follow forget forgive form foster gain gather generate "
        "get give glance go grab grant grasp greet grow guess guide handle hang happen harness hate hear heat help "
        "hesitate hide highlight hire hold hope identify ignore illustrate imagine implement imply improve include "
        "incorporate increase indicate indulge influence inform initiate innovate insert inspect inspire install integrate "
        "introduce invent invest investigate invite involve iterate join journey judge jump justify keep kiss know launch laugh "
        "lead lean leap learn leave lend let leverage lie lift like limit listen live locate look lose love maintain make "
        "manage mark master match maximize mean measure meet mention minimize miss mix modify monitor move multiply navigate need "
        "negotiate note notice nourish nurture obey observe obtain occur offer open operate optimize organize outline "
        "overcome own paint pardon participate pass pay perform permit persist persuade pick picture place plan play "
        "please point ponder pour practice praise pray prefer prepare present preserve press pretend prevent prioritize "
        "proceed process produce promise promote propose protect prove provide publish pull purchase pursue push put quit raise "
        "reach read realize reason recall receive recognize recommend reconsider record recycle reduce refer refine "
        "reflect regard register relate relax release rely remain remember remind remove rent repair repeat replace reply "
        "report represent request require research resolve respect respond rest restore retain return reveal review "
        "revise ride rise roll run save savor say scan search secure see seek seem select sell send separate serve set "
        "settle shape share shift shine show simplify sing sit sketch skip sleep slice slide solve sort speak specify "
        "spend split spread stand start state stay steer step stick stir stop store strengthen stretch strive structure "
        "struggle study submit succeed suggest summarize support suppose surround survive sustain swim switch take talk "
        "target taste tax teach tell tend test thank think throw thrive tie toss touch track train transfer transform travel "
        "traverse treat trust try turn uncover understand undertake unearth unleash unlock unravel unveil update upgrade "
        "use utilize validate value verify view visit visualize voice wait wake walk want warm warn wash watch wear weave "
        "welcome win wish witness wonder work worry wrap write yield "
        "abandon absorb accelerate accompany accomplish activate advertise advocate affirm alter amend amplify announce "
        "apologize assert audit automate await baste bind bite blow brainstorm braise brew broaden browse carve categorize "
        "cease chase chew chill chop cite classify commence commend commute comply conceal concentrate condense configure "
        "conquer conserve consolidate contemplate contend convene cope crawl criticize crumble debug decode decorate dedicate "
        "deepen defeat defend deflate defrost delay deny deploy deposit detach dice differentiate dip disable disagree "
        "disassemble disconnect dismiss dispose dissolve distinguish distribute ditch dominate donate drain drape drizzle "
        "elaborate elicit emulate enact encode encrypt endure energize enforce enlarge enlist enrich enroll entertain entice "
        "equip erase evade evoke evolve exclaim exclude exhale expel export expose facilitate fasten finalize flatten flip "
        "float flush forge formulate freeze fry fuse garnish gaze glaze glow glue grate grill grind halt haul heal heed hover "
        "hydrate ignite impose inhale inject inquire insist insulate interpret invert isolate jot juggle knead kneel knit knock "
        "lather lick marinate marry mash mend merge migrate mimic mince mingle mitigate motivate mourn mow narrate nominate "
        "normalize omit oppose orient outsource overlook oversee pack parse pause peel pierce pile pinch poke polish preheat "
        "prescribe presume proclaim pronounce proofread prune punish quantify reassemble reassure rebuild recite reclaim "
        "reconnect recover recruit rectify redeem redesign refactor refill refresh refrigerate refuse regain regulate rehearse "
        "reheat reinforce reject rejoice render reorganize rephrase reset reshape resist resize restart restrict resume rethink "
        "retreat retrieve reunite revisit revive rewrite rinse roam roast rotate rub sauté scatter scold scoop scour scrape "
        "scream scroll scrub sculpt seize shake sharpen shave shred shrink shuffle shut sift sigh simmer sip skim slather "
        "smash smile smooth snap soak soar soften solicit spawn spin splash spray sprinkle squeeze stack stitch strain stroll "
        "stuff subscribe substitute subtract supervise surrender swap sweep swing swirl synchronize tackle tailor tear tempt "
        "terminate thaw theorize thicken tighten tilt tolerate translate transport trim troubleshoot truncate tuck tune tweak "
        "twist undo unfold unify uninstall unite unload unpack unplug unwind unwrap unzip urge vary venture volunteer wander "
        "weigh whip whir whisk whisper widen wield wipe wrestle yell zip zoom"
    )
)
_IRREGULAR = frozenset(
    listed(
        "ate began been began brought built bought came caught chose did done drew drank drove fell fed felt fought found "
        "forgot gave given gone got grew had heard held hid kept knew known laid led left lent lost made meant met paid "
        "ran read rode rose said sang sat saw seen sent shown slept sold spent spoke stood swam taken taught thought threw "
        "told took understood went were was woke won wore wrote written"
    )
)
_VERB_ENDINGS = ("ize", "ise", "ify")
_NO_VERBS = frozenset(
    listed("otherwise likewise size prize paradise exercise concise precise wise noise rise")
)


def is_verb(word: str) -> bool:
    """Return whether an English word is likely a verb at the start of a sentence: by our list and its inflections."""
    word = word.lower()
    if word in _AUXILIARIES or word in _IRREGULAR or word in _VERBS:
        return True
    stems: list[str] = []
    if word.endswith("ing") and len(word) > 4:
        stems = [word[:-3], word[:-3] + "e"]
    elif word.endswith("ed") and len(word) > 3:
        stems = [word[:-2], word[:-1]]
    elif word.endswith("s") and len(word) > 3:
        stems = [word[:-1], word[:-2]]
    if word.endswith(("ies", "ied")):
        stems.append(word[:-3] + "y")
    # a doubled consonant: running, stopped
    stems += [stem[:-1] for stem in stems if len(stem) > 3 and stem[-1] == stem[-2]]
    if any(stem in _VERBS for stem in stems):
        return True
    return len(word) > 5 and word.endswith(_VERB_ENDINGS) and word not in _NO_VERBS


_VOWELS = re.compile(r"[aeiouy]+")
_SILENT_END = re.compile(r"(?:[^laeiouysxzcgh]es|[^laeiouytd]ed|[^laeiouy]e|[aeiouy]les?)$")
_LE_END = re.compile(r"[^aeiouy]le$")
_APART = re.compile(r"i[ao](?!n\b|us)|eo|ua|uou|[^q]ui[nt]|y[aio]|io[ld]|creat|reali")
_SYLLABLES = {
    "area": 3, "being": 2, "business": 2, "chocolate": 2, "colonel": 2, "create": 2, "every": 2, "everything": 3,
    "evening": 2, "family": 3, "idea": 3, "interest": 2, "maybe": 2, "people": 2, "poem": 2, "poet": 2, "quiet": 2,
    "recipe": 3, "science": 2, "something": 2, "sometimes": 2, "the": 1, "they": 1, "therefore": 2, "wednesday": 2,
    "diet": 2, "lion": 2, "fire": 1, "hour": 1, "our": 1, "one": 1, "once": 1, "two": 1, "eye": 1, "someone": 2,
    "anyone": 3, "everyone": 3, "somewhere": 2, "whereas": 2, "does": 1, "goes": 1, "shoes": 1,
}  # fmt: skip


def syllables(word: str) -> int:
    """Return about how many syllables an English word has: groups of vowels, less a silent e; at least 1."""
    word = "".join(c for c in word.lower() if c.isalpha())
    if word in _SYLLABLES:
        return _SYLLABLES[word]
    count = len(_VOWELS.findall(word)) + len(_APART.findall(word))
    if count > 1 and _SILENT_END.search(word) and not _LE_END.search(word):
        count -= 1
    return max(count, 1)


# ---- words

_MARKS = "".join(c for c in map(chr, range(0x300, 0x1F000)) if unicodedata.category(c)[0] == "M")
_WORD = re.compile(rf"\w(?:[\w{_MARKS}]|[\u200c\u200d](?=\w))*")


def words(text: str) -> list[str]:
    """Return runs of letters, digits and underscores; vowel signs and joiners belong to the letter before them."""
    if text.isascii():
        return re.findall(r"\w+", text)
    return _WORD.findall(text)


def bare_words(text: str) -> list[str]:
    """Return the words between spaces in lower case, without any punctuation, inside or around them."""
    return text.lower().translate(_NO_PUNCTUATION).split()


def stripped(word: str) -> str:
    """Return a word in lower case without the punctuation around it."""
    return word.strip(PUNCTUATION).lower()


# ---- sentences

_TITLES = "mr|mrs|ms|mx|dr|prof|st|rev|hon|gen|col|capt|lt|sgt|sen|rep|gov|pres"
_ABBREVIATION = re.compile(
    rf"(?:\b(?:{_TITLES}|vs|e\.g|i\.e|cf|fig|vol|approx|est|ph\.d|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|"
    rf"(?P<may_end>jr|sr|etc|al|inc|ltd|co|corp|dept|a\.m|p\.m|u\.s|u\.k))|(?P<initial>\b(?-i:[A-HJ-Z])))$",
    re.IGNORECASE,
)
_STARTER = re.compile(
    r"(?:The|This|That|These|Those|There|It|He|She|They|We|I|You|In|But|And|So|If|When|As|At|On|For|However|My|Our)\b"
)
_NEVER_ENDS = re.compile(rf"\b(?i:{_TITLES}|mt|ft|messrs)$")
_SHORT = re.compile(
    r"\b(?:vs|cf|approx|etc|al|[ap]\.m|e\.g|i\.e|(?:[A-Z]\.)+[A-Z]|Ph\.D|[JS]r|Inc|Ltd|Co|Corp|Dept|Est|Fig|Vol"
    r"|Jan|Feb|Mar|Apr|Aug|Sept?|Oct|Nov|Dec)$"
)
_INITIAL = re.compile(r"(?:^|\b[A-Z][\w'’-]*\.?\s)[A-Z]$")
_SURNAME = re.compile(
    r"\.(?:\s[A-Z]\.){0,4}\s(?P<word>[A-Z][\w'’-]{1,30})(?:\s[A-Z][\w'’-]{0,30}){0,6}(?:[\W_]*$|[^\w\s]|\s(?:is|was|who|and|or|of|in|from|at|by)\b)"
)
"""What follows an initial within a name: "W. Bush was"."""
_NUMBER = re.compile(r"(?<!\w)\d[\d.,]*$")
_END = re.compile(r"(?<![.!?])[.!?]++[\"'”’)\]*_]*+(?=\s|$)|[。！？]+[」』”’）]*|…(?=\s|$)")
_NEXT = re.compile(r"\s*+(\S)")
_WORD_CHARACTER = re.compile(r"\w")


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the sentences of a text start and end, spaces around them included.

    A sentence ends at `.`, `!` or `?` before a space, as Punkt has it (Kiss and Strunk 2006): also before a word in
    lower case, but not after abbreviations and initials, and after numbers and "..." only before another word. It
    also ends at the CJK forms of these. A remainder with a word in it is a sentence, too.
    """
    start = looked_at = 0
    has_word = False
    for match in _END.finditer(text):
        following = _NEXT.match(text, match.end())
        if following:
            before = text[max(start, match.start() - 12) : match.start()]
            lower = following[1].islower()
            if match[0].startswith(("..", "…")):
                if lower:
                    continue
            elif match[0] == ".":
                if lower and _NUMBER.search(before):
                    continue
                short = _ABBREVIATION.search(before)
                if short and not (short["may_end"] and _STARTER.match(text, following.start(1))):
                    continue
        has_word = has_word or _WORD_CHARACTER.search(text, looked_at, match.end()) is not None
        looked_at = match.end()
        if has_word:
            yield start, match.end()
            start, has_word = match.end(), False
    if _WORD_CHARACTER.search(text, start):
        yield start, len(text)


def abbreviated(text: str, at: int) -> bool:
    """Return whether the full stop at *at* belongs to an abbreviation, or to an initial of a name.

    Unlike `sentence_spans`, which counts as Punkt does, it reads single letters by what stands around them: "George W.
    Bush" is a name, "Plan B. It costs less" is not.
    """
    before = text[max(0, at - 30) : at]
    if _NEVER_ENDS.search(before):
        return True
    following = _NEXT.match(text, at + 1)
    if following is None or _STARTER.match(text, following.start(1)):
        return False
    if _SHORT.search(before):
        return True
    surname = _SURNAME.match(text, at) if _INITIAL.search(before) else None
    return surname is not None and surname["word"].lower() not in STOP_WORDS


def sentences(text: str) -> list[str]:
    """Return the sentences of a text; see `sentence_spans`."""
    return [text[start:end].strip() for start, end in sentence_spans(text)]


def end_of(sentence: str) -> str:
    """Return the mark with which a sentence ends, before what closes it: a quote, a bracket, bold."""
    return sentence.rstrip("\"'”’»)]*_` ")[-1:]


# ---- emoji

_EMOJI = re.compile(
    "[\U0001f000-\U0001faff\u2600-\u27bf\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u2300-\u23ff\u203c\u2049\u2122\u2139"
    "\u2194-\u21aa\u25aa-\u25fe\u2934\u2935\u3030\u303d\u3297\u3299\u00a9\u00ae]"
)
_JOINING = "\ufe0f\u200d\u20e3"


def ends_with_emoji(text: str) -> bool:
    """Return whether the last character of *text* but punctuation and space is an emoji."""
    text = text.rstrip(PUNCTUATION + string.whitespace + _JOINING)
    return bool(text) and _EMOJI.match(text[-1]) is not None


def starts_with_emoji(text: str) -> bool:
    """Return whether the first character of *text* but punctuation and space is an emoji."""
    text = text.lstrip(PUNCTUATION + string.whitespace)
    return _EMOJI.match(text) is not None
