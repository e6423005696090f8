"""Pronunciations in the International Phonetic Alphabet, /həˈloʊ/, as ARPAbet in braces.

The sounds are those of English; the letters of a word with any other stay, and are reported as left out.
"""

from __future__ import annotations

import re

from tacotron2.text.reading.patterns import any_of

_VOWELS = dict(
    pair.split("=")
    for pair in [
        "iː=IY",
        "i=IY",
        "ɪ=IH",
        "eɪ=EY",
        "ɛ=EH",
        "e=EH",
        "æ=AE",
        "ɑː=AA",
        "ɑ=AA",
        "ɒ=AA",
        "ɔː=AO",
        "ɔ=AO",
        "oʊ=OW",
        "əʊ=OW",
        "o=OW",
        "ʊ=UH",
        "uː=UW",
        "u=UW",
        "ʌ=AH",
        "ə=AH",
        "aɪ=AY",
        "aʊ=AW",
        "ɔɪ=OY",
        "ɜːr=ER",
        "ɜː=ER",
        "ɝ=ER",
        "ɚ=ER",
        "ər=ER",
        "ɜ=ER",
        "aː=AA",
        "a=AA",
        "ɐ=AH",
        "ɨ=IH",
    ]
)
_CONSONANTS = dict(
    pair.split("=")
    for pair in [
        "p=P",
        "b=B",
        "t=T",
        "d=D",
        "k=K",
        "ɡ=G",
        "g=G",
        "tʃ=CH",
        "t͡ʃ=CH",
        "dʒ=JH",
        "d͡ʒ=JH",
        "f=F",
        "v=V",
        "θ=TH",
        "ð=DH",
        "s=S",
        "z=Z",
        "ʃ=SH",
        "ʒ=ZH",
        "h=HH",
        "m=M",
        "n=N",
        "ŋ=NG",
        "l=L",
        "ɫ=L",
        "r=R",
        "ɹ=R",
        "ɾ=T",
        "j=Y",
        "w=W",
        "ʔ=",
    ]
)
_SOUND = re.compile(f"[ˈˌ.ˑ ʰ-]|{any_of({**_VOWELS, **_CONSONANTS})}")
_STRESS = {"ˈ": "1", "ˌ": "2"}
_LETTERS = "".join(sorted({letter for sound in {**_VOWELS, **_CONSONANTS} for letter in sound}))


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
        if sound in _VOWELS:
            phones.append(_VOWELS[sound] + (stress if is_marked else "1"))
            stress, is_marked = "0", True
        elif _CONSONANTS.get(sound):
            phones.append(_CONSONANTS[sound])
        stress = _STRESS.get(sound, stress)
    return f"{{{' '.join(phones)}}}"
