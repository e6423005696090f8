"""The language of recordings: as it is given, as Whisper finds it in them, or as their texts have it."""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from common.data.languages import name_of, other_language
from common.data.parallel import stream_parallel
from common.data.sources import SourceFile, file_digest
from common.errors import DataError, listed
from common.progress import counted
from common.quality.moonshine import Moonshine
from common.quality.recogniser import ENGLISH, MOONSHINE, WHISPER, RecogniserConfig
from common.quality.whisper import INSTALL, WINDOW, Whisper, find_weights
from common.quality.words import normalise
from studio.prepare.arguments import PrepareOptions, TextConfig
from studio.prepare.ledger import ClipSound, remembered
from studio.prepare.levels import open_sound
from studio.prepare.texts import ClipText
from studio.prepare.transcripts import Transcript
from studio.project import ROOT

HEARD = 16  # recordings at most in which the language is looked for, the largest ones
SURE = 0.7  # probability from which a recording counts
MIXED = 0.15, 2  # share of the sure recordings, and number, from which a second language counts
SAMPLE = 300  # texts that are looked at
# What a recogniser of English makes of another language: beyond this mean share of wrong words the texts are in one, and beyond
# this share of words that English prose lacks, the recordings (5 % in English, 48 % in Spanish); few clips or words tell nothing.
GIBBERISH, RARE = 0.6, 0.2
FEWEST_CLIPS, FEWEST_WORDS = 5, 100
PROSE = ROOT / "voice" / "text"  # 70,000 words of English


def with_language(sources: Sequence[SourceFile], options: PrepareOptions) -> PrepareOptions:
    """Return the options with the language that Whisper finds, and print it, unless one is given or Whisper is not installed.

    Raises DataError if the recordings are in several languages.
    """
    config, ledger = options.texts, options.project.state / "languages.jsonl"
    cannot = config.transcriber or config.recogniser == MOONSHINE or listener_of(config).missing
    if config.language is not None or cannot:
        return options
    code = spoken_language(sources, config, ledger, options.num_workers)
    print(f"language: {name_of(code)}, as Whisper finds it in the recordings; --language CODE says another", flush=True)
    return replace(options, texts=replace(config, language=code))


def check_texts(transcripts: Mapping[str, Transcript], options: PrepareOptions) -> None:
    """Raise DataError if the texts beside the recordings seem to be in another language."""
    taken = name_of(options.texts.code)
    texts = [transcript.text for transcript in transcripts.values()]
    if other := other_language(texts[:: max(1, len(texts) // SAMPLE)], options.texts.code):
        raise DataError(
            f"{options.folder}: the recordings are taken for {taken}, and their texts seem to be in {name_of(other)}:"
            f" add --language {other}, or put texts in {taken} beside them"
        )


def listener_of(config: TextConfig) -> RecogniserConfig:
    """Return the recogniser that finds the language."""
    return RecogniserConfig(recogniser=config.recogniser or WHISPER)


def spoken_language(sources: Sequence[SourceFile], config: TextConfig, ledger: Path, workers: int) -> str:
    """Return the language of the largest recordings. Raises DataError if there are two."""
    largest = sorted(sources, key=lambda source: (-source.path.stat().st_size, source.name))[:HEARD]
    sounds = [ClipSound(source.path, file_digest(source.path)) for source in largest]
    listener = listener_of(config)

    def listen(paths: list[Path]) -> Iterable[tuple[str, float]]:
        if paths:
            find_weights(listener.place)  # which may be downloaded, once and not by each process
        find = partial(_language_of, config=listener)
        return stream_parallel(find, paths, workers=workers, title="finding the language", unit="recording", chunk=1)

    found = remembered(ledger, sounds, listen, f"{listener.place} ")
    by_language: dict[str, list[str]] = defaultdict(list)
    for source, sound in zip(largest, sounds, strict=True):
        code, probability = found[sound.digest]
        if probability >= SURE:
            by_language[code].append(source.name)
    if not by_language:  # none is sure, so the surest decides
        return str(max(found.values(), key=lambda pair: pair[1])[0] or ENGLISH)
    codes = sorted(by_language, key=lambda code: -len(by_language[code]))
    share, least = MIXED
    total = sum(map(len, by_language.values()))
    if any(len(by_language[code]) >= max(least, share * total) for code in codes[1:]):
        lines = [f"several languages in {counted(total, 'recording')}, as Whisper hears them:"]
        lines += [f"  {name_of(code)}: {listed(sorted(by_language[code]), 3)}" for code in codes]
        lines.append("A voice speaks one: move the others to another folder, or say which it is with --language CODE")
        raise DataError("\n".join(lines))
    return codes[0]


@cache
def _whisper(config: RecogniserConfig) -> Whisper | Moonshine:
    return config.load(threads=1)


def _language_of(path: Path, config: RecogniserConfig) -> tuple[str, float]:
    """Return the language of a recording's first half minute, and its probability; "" for a file that cannot be read."""
    whisper = _whisper(config)
    assert isinstance(whisper, Whisper)
    try:
        with open_sound(path) as sound:
            samples, wanted = np.zeros((0, sound.channels), np.float32), WINDOW * sound.rate
            for block in sound.blocks:
                samples = np.concatenate([samples, block])
                if len(samples) >= wanted:
                    break
            return whisper.find_language(samples[:wanted].mean(axis=1), sound.rate)
    except DataError:
        return "", 0.0


@cache
def _usual_words() -> frozenset[str]:
    texts = (path.read_text(encoding="utf-8") for path in PROSE.glob("*train.txt"))
    return frozenset(re.findall(r"[a-z]+", " ".join(texts).lower().replace("'", "")))


def refuse_gibberish(recordings: Iterable[Sequence[ClipText]], options: PrepareOptions) -> None:
    """Raise DataError if recordings that were taken for English, since nothing said otherwise, do not sound like it."""
    if options.texts.language is not None or options.texts.transcriber:
        return
    texts = [text for texts in recordings for text in texts]
    compared = [text.words_wrong for text in texts if not math.isnan(text.words_wrong)]
    wrong = statistics.fmean(compared) if len(compared) >= FEWEST_CLIPS else 0.0
    words = [word for text in texts for word in normalise(text.recognised).split()]
    rare = sum(word not in _usual_words() for word in words) / len(words) if len(words) >= FEWEST_WORDS else 0.0
    if wrong > GIBBERISH or rare > RARE:
        problem = f"{100 * wrong:.0f} % of the words in their texts were not heard" if wrong > GIBBERISH else ""
        problem = problem or f"{100 * rare:.0f} % of the words heard in them are rare ones"
        raise DataError(
            f"{options.folder}: taken for English, but {problem}: add --language CODE, such as es ({INSTALL}: Whisper, which"
            " recognises other languages, and finds out which), or --language en if it is English"
        )
