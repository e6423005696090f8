"""Alignment of a transcript without times: which of its words each clip has, by the words a recogniser finds there."""

# W words of the transcript, S spoken words of it (1984 is two), R recognised words, K clips

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from common.data.text_files import CLOSING, ends_sentence
from common.quality.evaluators import optional_import
from common.quality.words import normalise

NOT_SPOKEN = 6  # words; a longer stretch of a transcript without a recognised word is left out
REACH = 6  # words that a boundary may move
ROUNDS = 2  # over all boundaries
SENTENCE_END, CLAUSE_END = 1.5, 0.75  # discount for a boundary there, in characters
# Longest pauses within a sentence, in seconds. A longer one after a comma is an interruption; after no mark, a headline.
CLAUSE_PAUSE, UNMARKED_PAUSE, NO_PAUSE = 3.0, 0.8, 0.0


def assign_words(transcript: str, recognised: Sequence[str], language: str = "en") -> list[str]:
    """Divide a transcript, the words of a whole recording, among clips (K,) by the words that a recogniser found in each.

    Returns the text of each clip (K,), "" if the transcript has none for it. First, the fewest edits of words (Levenshtein, 1966)
    place the clips. Then each boundary moves to the nearby place where the clips on both sides differ least from their recognised
    words, in characters. Raises DataError if RapidFuzz is not installed.
    """
    words = transcript.split()
    spoken = [normalise(word, language).split() for word in words]
    clips = [normalise(text, language).split() for text in recognised]
    limits = _fill_gaps(_place_clips(spoken, clips), [len(clip) for clip in clips], len(words))
    _move_boundaries(limits, words, ["".join(parts) for parts in spoken], ["".join(clip) for clip in clips])
    return [" ".join(words[first:last]) for first, last in limits]


def find_longest_pauses(transcript: str, recognised: Sequence[str], language: str = "en") -> list[float]:
    """Find the sentence ends of a recording with this transcript by the words recognised in each part (K,) between two pauses.

    Returns, for each part (K,), the longest pause in seconds after which its sentence may still continue: NO_PAUSE at the end of
    a sentence and around speech that the transcript lacks.
    """
    texts = assign_words(transcript, recognised, language)
    is_foreign = [not text and bool(normalise(words, language)) for text, words in zip(texts, recognised, strict=True)]
    after = [*is_foreign[1:], False]
    pauses = []
    for text, here, there in zip(texts, is_foreign, after, strict=True):
        if here or there or ends_sentence(text):
            pauses.append(NO_PAUSE)
        else:
            pauses.append(CLAUSE_PAUSE if _ends_clause(text) else UNMARKED_PAUSE)
    return pauses


def _place_clips(spoken: Sequence[Sequence[str]], clips: Sequence[Sequence[str]]) -> list[list[int]]:
    """Return the first word and the last + 1 that match each clip's recognised words; both are equal without a match."""
    with optional_import():
        from rapidfuzz.distance import Levenshtein
    owners = [index for index, parts in enumerate(spoken) for _ in parts]  # spoken word -> word
    ends = list(accumulate((len(clip) for clip in clips), initial=0))
    matches: list[list[int]] = [[] for _ in clips]
    words = [part for parts in spoken for part in parts]
    clip = 0
    for edit in Levenshtein.opcodes(words, [word for clip in clips for word in clip]):
        if edit.tag not in ("equal", "replace"):
            continue
        for offset in range(edit.dest_end - edit.dest_start):
            while edit.dest_start + offset >= ends[clip + 1]:
                clip += 1
            matches[clip].append(owners[edit.src_start + offset])
    return [_densest_part(places) for places in matches]


def _densest_part(places: Sequence[int]) -> list[int]:
    """Return the limits of the largest group of matches; a single word far from the others matches by chance."""
    if not places:
        return [0, 0]
    cuts = [i + 1 for i, (one, other) in enumerate(pairwise(places)) if other - one > NOT_SPOKEN + 1]
    parts = [places[first:last] for first, last in pairwise([0, *cuts, len(places)])]
    largest = max(parts, key=len)
    return [largest[0], largest[-1] + 1]


def _fill_gaps(limits: list[list[int]], lengths: Sequence[int], n_words: int) -> list[list[int]]:
    """Assign the words between the clips that have some.

    Clips without a match share the words between their neighbours if about as many were recognised. A short gap goes to its
    neighbours, a long one to no clip.
    """
    edges = [-1, *(clip for clip, (first, last) in enumerate(limits) if first < last), len(limits)]
    for one, other in pairwise(edges):
        start = limits[one][1] if one >= 0 else 0
        end = limits[other][0] if other < len(limits) else n_words
        between = [clip for clip in range(one + 1, other) if lengths[clip]]
        wanted = sum(lengths[clip] for clip in between)
        if between and 0 < wanted / 2 <= end - start <= 2 * wanted:
            shares = accumulate((lengths[clip] for clip in between), initial=0)
            places = [start + round((end - start) * share / wanted) for share in shares]
            for clip, (first, last) in zip(between, pairwise(places), strict=True):
                limits[clip] = [first, last]
        elif end - start <= NOT_SPOKEN:
            # Words that nobody was heard to say go to both neighbours by halves, at either end of the text to the only one.
            middle = (start + end) // 2
            if one < 0:
                middle = start
            elif other >= len(limits):
                middle = end
            if one >= 0:
                limits[one][1] = middle
            if other < len(limits):
                limits[other][0] = middle
    return limits


def _move_boundaries(
    limits: list[list[int]], words: Sequence[str], spoken: Sequence[str], clips: Sequence[str]
) -> None:
    """Move the boundaries between adjacent clips, `limits` of first word and last + 1 (K,), in place.

    `words` of the transcript (W,) are as written; `spoken`, and the recognised words of `clips` (K,), lack spaces and marks.
    """
    with optional_import():
        from rapidfuzz.distance import Levenshtein

    def cost(one: int, other: int, place: int) -> float:
        before, after = "".join(spoken[limits[one][0] : place]), "".join(spoken[place : limits[other][1]])
        differences = Levenshtein.distance(before, clips[one]) + Levenshtein.distance(after, clips[other])
        return float(differences) - _advantage(words[place - 1])

    owners = [clip for clip, (first, last) in enumerate(limits) if first < last]
    for one, other in list(pairwise(owners)) * ROUNDS:
        (start, middle), (following, end) = limits[one], limits[other]
        if middle == following:
            places = range(max(start + 1, middle - REACH), min(end - 1, middle + REACH) + 1)
            costs = [(cost(one, other, place), abs(place - middle), place) for place in places]
            limits[one][1] = limits[other][0] = min(costs)[2] if costs else middle


def _advantage(word: str) -> float:
    if ends_sentence(word):
        return SENTENCE_END
    return CLAUSE_END if _ends_clause(word) else 0.0


def _ends_clause(text: str) -> bool:
    return text.rstrip(CLOSING)[-1:] in (",", ";", ":", "—", "–")
