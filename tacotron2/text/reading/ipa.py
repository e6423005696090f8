"""Pronunciations in the International Phonetic Alphabet, /həˈloʊ/, as ARPAbet in braces.

The sounds are those of English; the letters of a word with any other stay, and are reported as left out.
"""

from __future__ import annotations

import re

from tacotron2.text.reading.patterns import any_of
from tacotron2.text.reading.tables import IPA_CONSONANTS, IPA_VOWELS

_SOUND = re.compile(f"[ˈˌ.ˑ ʰ-]|{any_of({**IPA_VOWELS, **IPA_CONSONANTS})}")
_STRESS = {"ˈ": "1", "ˌ": "2"}
_LETTERS = "".join(sorted({letter for sound in {**IPA_VOWELS, **IPA_CONSONANTS} for letter in sound}))


_SIGN = rf"[{_LETTERS}ˈˌ.ˑʰ-]"
_MARKED = f"(?={_SIGN}{{0,40}}[ɪɛæɑɒɔʊʌəɜɝɚɡʃʒθðŋɹɾˈˌː])"  # at least one is no English letter
IPA = rf"(?:(?<!\w)/{_MARKED}{_SIGN}{{1,60}}/(?!\w)|\[{_MARKED}{_SIGN}{{1,60}}\])"


def to_arpabet(written: str) -> str:
    """Pronunciation in braces, with the first vowel stressed where no mark says otherwise."""
    word = written[1:-1]
    sounds = _SOUND.findall(word)
    if "".join(sounds) != word:
        return written
    phones, stress, is_marked = [], "0", "ˈ" in word
    for sound in sounds:
        if sound in IPA_VOWELS:
            phones.append(IPA_VOWELS[sound] + (stress if is_marked else "1"))
            stress, is_marked = "0", True
        elif IPA_CONSONANTS.get(sound):
            phones.append(IPA_CONSONANTS[sound])
        stress = _STRESS.get(sound, stress)
    return f"{{{' '.join(phones)}}}"
