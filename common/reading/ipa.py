"""Pronunciations in the International Phonetic Alphabet, /həˈloʊ/, as ARPAbet in braces."""

from __future__ import annotations

import re

from common.reading.tables import any_of, readings

IPA_VOWELS, IPA_CONSONANTS = readings("IPA vowel"), readings("IPA consonant")  # as ARPAbet

# The sounds are those of English; the letters of a word with any other stay, and are reported as left out.
_IPA_SOUND = re.compile(f"[ˈˌ.ˑ ʰ-]|{any_of({**IPA_VOWELS, **IPA_CONSONANTS})}")
_IPA_STRESS = {"ˈ": "1", "ˌ": "2"}
_IPA_LETTERS = "".join(sorted({letter for sound in {**IPA_VOWELS, **IPA_CONSONANTS} for letter in sound}))
_IPA_SIGN = rf"[{_IPA_LETTERS}ˈˌ.ˑʰ-]"
_IPA_MARKED = f"(?={_IPA_SIGN}{{0,40}}[ɪɛæɑɒɔʊʌəɜɝɚɡʃʒθðŋɹɾˈˌː])"  # at least one is no English letter
IPA = rf"(?:(?<!\w)/{_IPA_MARKED}{_IPA_SIGN}{{1,60}}/(?!\w)|\[{_IPA_MARKED}{_IPA_SIGN}{{1,60}}\])"


def to_arpabet(written: str) -> str:
    """ARPAbet in braces for IPA between two signs, with the first vowel stressed where no mark says otherwise.

    A word with sounds that English lacks stays.
    """
    word = written[1:-1]
    sounds = _IPA_SOUND.findall(word)
    if "".join(sounds) != word:
        return written
    phones, stress, is_marked = [], "0", "ˈ" in word
    for sound in sounds:
        if sound in IPA_VOWELS:
            phones.append(IPA_VOWELS[sound] + (stress if is_marked else "1"))
            stress, is_marked = "0", True
        elif IPA_CONSONANTS.get(sound):
            phones.append(IPA_CONSONANTS[sound])
        stress = _IPA_STRESS.get(sound, stress)
    return f"{{{' '.join(phones)}}}"
