"""The filelists of a project, usable clips divided into training and validation; and the alphabet of their texts."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from common.data.filelist import Utterance, choose_held_out
from common.data.languages import alphabet_of
from common.data.mels import unusable_rows
from common.data.number_words import find_language
from common.data.transliteration import compose
from common.files import write_text
from common.progress import counted
from common.quality.recogniser import ENGLISH as ENGLISH_CODE
from common.reading.multilingual import PREFIX, find_left, numbers_cleaner
from models import acoustic_spec
from studio.prepare.arguments import PrepareOptions
from studio.prepare.review import YES, ClipRow
from studio.project import VALIDATION, Project

Settings = dict[str, Any]  # of settings_of, or those of the last run
PAD = "_"  # the first symbol of every alphabet
LARGEST = 200  # symbols; a script with more has signs for syllables or words
FOREIGN = 0.01  # share of letters beyond ASCII; English texts with names such as José stay below
RARE = 3  # occurrences; rarer letters are listed for a check
ENGLISH, BASIC, TRANSLITERATION = "english_cleaners", "basic_cleaners", "transliteration_cleaners"


class AlphabetChoice(NamedTuple):
    """The cleaners for the texts, the symbols for --symbols-file (None: the built-in ones), and notes for people."""

    cleaners: list[str]
    symbols: list[str] | None
    notes: list[str]


class Corpus(NamedTuple):
    """What training gets: its clips, those for validation, and their alphabet."""

    training: list[ClipRow]
    validation: list[ClipRow]
    alphabet: AlphabetChoice


def select_usable(rows: Sequence[ClipRow]) -> list[ClipRow]:
    """Select the rows in use, in the order of recordings and of time."""
    return sorted((row for row in rows if row.use == YES), key=lambda row: (row.recording, float(row.start)))


def write_corpus(project: Project, rows: Sequence[ClipRow], settings: Settings) -> Corpus:
    """Write project.json, the alphabet and both filelists, rows path|text with paths relative to the project.

    Raises DataError if no clip is left for training.
    """
    chosen = select_usable(rows)
    alphabet = alphabet_for(chosen, settings)
    _write_settings(project, settings, alphabet)
    by_recording: dict[str, list[str]] = {}
    for row in chosen:
        by_recording.setdefault(row.recording, []).append(row.clip)
    apart = choose_held_out(by_recording, settings["validation"])
    parts = [row for row in chosen if row.clip not in apart], [row for row in chosen if row.clip in apart]
    for path, part in zip((project.training_list, project.validation_list), parts, strict=True):
        write_text(path, "".join(f"{clip_path(project, row.clip)}|{row.text}\n" for row in part))
    return Corpus(*parts, alphabet)


def clip_path(project: Project, clip: str) -> str:
    """Return the path of a clip relative to the project."""
    return (project.clips / f"{clip}.wav").relative_to(project.root).as_posix()


def training_problems(project: Project, rows: Sequence[ClipRow], settings: Settings) -> dict[str, str]:
    """Return why training would refuse rows with texts, by clip: for the text, or for the length with that text."""
    utterances = [Utterance(clip_path(project, row.clip), row.text) for row in rows]
    alphabet = alphabet_for(rows, settings)
    options = {
        "text_cleaners": alphabet.cleaners,
        "symbols": alphabet.symbols,
        "sampling_rate": settings["cutting"]["sampling_rate"],
        "dataset_path": str(project.root),
    }
    found = unusable_rows(acoustic_spec(), options, utterances)
    return {rows[index].clip: problem for index, problem in found.items()}


def alphabet_for(rows: Sequence[ClipRow], settings: Settings) -> AlphabetChoice:
    """Choose the alphabet of the texts of rows."""
    return choose_alphabet([row.text for row in rows], settings["texts"]["language"])


def choose_alphabet(texts: Sequence[str], language: str) -> AlphabetChoice:
    """Choose the cleaners and the alphabet for texts in a language: numbers are spelled where num2words knows the language."""
    letters = Counter(c for text in texts for c in text if unicodedata.category(c)[0] in "LM")
    n_foreign = sum(count for letter, count in letters.items() if not letter.isascii())
    share = n_foreign / max(1, letters.total())
    if share <= FOREIGN and language == "en":
        return AlphabetChoice([ENGLISH], None, [])
    numbers = find_language(language) if language != "en" else None
    spell = numbers_cleaner(f"{PREFIX}{numbers}") if numbers else None
    first = [f"{PREFIX}{numbers}"] if numbers else []
    spelled = list(map(spell, texts)) if spell else texts
    left = find_left(spelled)
    expected = alphabet_of(language)
    symbols = symbols_of([*spelled, expected])
    if len(symbols) > LARGEST:
        note = (
            f"the texts have {len(symbols)} distinct symbols, too many to learn: {TRANSLITERATION} writes them in Latin"
            " letters, without tones; texts in pinyin, romaji or another phonetic spelling work better"
        )
        return AlphabetChoice([*first, TRANSLITERATION], None, [note])
    notes = [
        f"the texts are not English: their alphabet has {counted(len(symbols), 'symbol')}; {BASIC} keeps their letters"
    ]
    if left:
        cause = "" if numbers else f" (num2words has no numbers for --language {language})"
        notes.append(f"write these as words, which nothing spells{cause}: {', '.join(left)}")
    counts = Counter("".join(spelled).lower())
    if rare := [symbol for symbol in symbols if symbol.isalpha() and 0 < counts[symbol] < RARE]:
        notes.append(f"letters too rare to be learned: {' '.join(rare)}")
    if absent := [symbol for symbol in symbols if symbol.isalpha() and not counts[symbol]]:
        notes.append(
            f"letters of the language without an example, whose sound the voice will guess: {' '.join(absent)}"
        )
    return AlphabetChoice([*first, BASIC], symbols, notes)


def symbols_of(texts: Sequence[str]) -> list[str]:
    """Return the padding, the space, and all other characters of lower-cased texts; braces enclose ARPAbet."""
    characters = set(compose(" ".join(texts).lower())) - {PAD, " ", "{", "}"}
    return [PAD, " ", *sorted(characters)]


def settings_of(options: PrepareOptions) -> Settings:
    """Return the settings of a run, for project.json."""
    return {
        "recordings": str(options.folder.resolve()) if options.folder else "",
        "sampling_rate": options.cutting.sampling_rate,
        "cutting": asdict(options.cutting),
        "texts": asdict(options.texts) | {"language": options.texts.language or ENGLISH_CODE},
        "validation": options.validation or VALIDATION,
    }


def _write_settings(project: Project, settings: Settings, alphabet: AlphabetChoice) -> None:
    """Write project.json with the flags of train.py that suit the texts, and symbols.txt if they need it."""
    settings["text_cleaners"] = alphabet.cleaners
    settings["symbols_file"] = project.symbols.name if alphabet.symbols else None
    if alphabet.symbols:
        write_text(project.symbols, "".join(f"{symbol}\n" for symbol in alphabet.symbols))  # for --symbols-file
    else:
        project.symbols.unlink(missing_ok=True)
    write_text(project.settings, f"{json.dumps(settings, indent=1, ensure_ascii=False)}\n")
