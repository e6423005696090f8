"""Speak the sentences that the embedded voice was trained on: wav files, and filelists for train.py.

    bash scripts/corpus.sh                          # once: the teacher, and the recogniser
    python -m voice.make_corpus                     # hours: a core speaks about as fast as a person; output/voice_corpus
    python -m common.data.mels --dataset-path output/voice_corpus \\
        --audio-filelist output/voice_corpus/audio_{,everyday_}{train,val,test}.txt \\
        --mel-filelist output/voice_corpus/mel_{,everyday_}{train,val,test}.txt

    bash scripts/whisper.sh                         # once, for speakers of a language other than English
    python -m voice.make_corpus --text voice/text/spanish --speaker em_alex -o output/spanish

Reads voice/text/{train,val,test}.txt and voice/text/everyday_{train,val,test}.txt, with rows `id|text`; a file may be missing, or
empty. The teacher speaks what inference makes of a text. A recogniser checks each training clip; those with too many wrong words
are not in the filelists. Clips are spoken in the order of their worth: those of reports, everyday sentences, whole sentences, parts
of sentences. Safe to stop and to run again at any time: clips in heard.tsv are kept, and the filelists have what there is.
Trimming, level and rate are those of corpus/make.py.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import soundfile

from common.arguments import positive
from common.data.parallel import stream_parallel
from common.errors import DataError, exit_on_user_error, listed
from common.files import atomic_write, make_folder, read_lines, remove_leftovers, write_text
from common.options import option, parse_options
from common.quality.recogniser import ENGLISH, RecogniserConfig
from common.quality.words import character_errors, word_errors
from common.reading.multilingual import LanguageReader
from common.reading.reader import read_english
from corpus.make import ROOT, SAMPLING_RATE, aloud, finish
from corpus.teacher import Teacher, language_of

SPLITS = ("test", "everyday_test", "val", "everyday_val", "everyday_train", "train")  # in the order of speaking
# Share of a clip's characters: names that the recogniser spells in another way are below, words left out above.
MOST_WRONG = 0.1


class CorpusClip(NamedTuple):
    """A sentence to speak: `written` is the text of the filelist, `spoken` what inference makes of it, for the teacher."""

    split: str
    name: str
    written: str
    spoken: str


class Heard(NamedTuple):
    """A spoken clip: its duration and what the recogniser understood."""

    name: str
    seconds: float
    wrong_words: int
    words: int
    wrong_characters: float  # share
    text: str


def read_clips(path: Path, split: str, language: str = ENGLISH) -> list[CorpusClip]:
    """Read rows `id|text` of a text file, whole sentences first. Raises DataError for any other row."""
    clips = []
    read = read_english if language == ENGLISH else LanguageReader(language)
    for number, line in enumerate(read_lines(path), start=1):
        name, _, text = line.partition("|")
        written = read(text)
        if not name or "/" in name or not any(map(str.isalnum, written)) or "|" in text:
            raise DataError(f"{path}:{number}: got {line!r}, expected `id|text`, an id without / and words")
        clips.append(CorpusClip(split, name, written, aloud(text) if language == ENGLISH else written))
    return sorted(clips, key=lambda clip: not is_whole(clip.written))


def read_splits(folder: Path, language: str = ENGLISH) -> list[CorpusClip]:
    """Read the text files of a folder in the order of SPLITS. Raises DataError for none, and for an id of several rows."""
    paths = {split: folder / f"{split}.txt" for split in SPLITS}
    there = {split: path for split, path in paths.items() if path.is_file() and path.read_bytes().strip()}
    clips = [clip for split, path in there.items() for clip in read_clips(path, split, language)]
    if not clips:
        raise DataError(f"--text {folder}: no text, expected some of {', '.join(path.name for path in paths.values())}")
    if twice := [name for name, count in Counter(clip.name for clip in clips).items() if count > 1]:
        raise DataError(f"--text {folder}: several rows have the id {listed(twice)}; expected one")
    return clips


def is_whole(text: str) -> bool:
    """Return True if a text begins and ends as a sentence does."""
    return not text[0].islower() and text.rstrip("\"'")[-1:] in (".", "?", "!")


class Speaker:
    """A process's teacher and recogniser."""

    def __init__(self, name: str, wavs: Path) -> None:
        self.teacher, self.wavs = Teacher(name), wavs
        self.language = language_of(name)
        self.recogniser = RecogniserConfig(language=self.language).load(threads=1)

    def __call__(self, clip: CorpusClip) -> Heard:
        """Write a clip to WAVS/ID.wav, 16 bits, and listen to it."""
        audio = finish(self.teacher(clip.spoken))
        with atomic_write(self.wavs / f"{clip.name}.wav") as file:
            soundfile.write(file, audio, SAMPLING_RATE, subtype="PCM_16", format="WAV")
        text = self.recogniser(audio, SAMPLING_RATE)
        words = word_errors(clip.spoken, text, self.language)
        rate = character_errors(clip.spoken, text, self.language).rate
        return Heard(clip.name, len(audio) / SAMPLING_RATE, words.errors, words.count, round(rate, 3), text)


speaker_of = cache(Speaker)  # one in each process


def _speak(name: str, wavs: Path, clip: CorpusClip) -> Heard:
    return speaker_of(name, wavs)(clip)


def read_heard(path: Path) -> dict[str, Heard]:
    """Read heard.tsv, by name of clip; {} if there is none yet. Lines that were cut off are left out."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    rows = [row for line in lines if len(row := line.split("\t")) == len(Heard._fields)]
    return {row[0]: Heard(row[0], float(row[1]), int(row[2]), int(row[3]), float(row[4]), row[5]) for row in rows}


def speak(clips: list[CorpusClip], output: Path, speaker: str, workers: int) -> Iterator[Heard]:
    """Speak clips and append what was heard to heard.tsv."""
    make_folder(output / "wavs")
    remove_leftovers(output / "wavs")
    work = partial(_speak, speaker, output / "wavs")
    with (output / "heard.tsv").open("a", encoding="utf-8") as ledger:
        if ledger.tell():
            ledger.write("\n")  # ends a line that a killed run left unfinished
        for heard in stream_parallel(work, clips, workers, "speak", chunk=1):
            ledger.write("\t".join(str(value).replace("\t", " ") for value in heard) + "\n")
            ledger.flush()
            yield heard


def write_filelists(clips: list[CorpusClip], heard: dict[str, Heard], output: Path) -> None:
    """Write the filelists of the clips that were spoken, and for training understood."""
    for split in SPLITS:
        spoken = [clip for clip in clips if clip.split == split and clip.name in heard]
        if split.endswith("train"):
            spoken = [clip for clip in spoken if heard[clip.name].wrong_characters <= MOST_WRONG]
        for kind, file in (("audio", "wavs/{}.wav"), ("mel", "mels/{}.pt")):
            rows = "".join(f"{file.format(clip.name)}|{clip.written}\n" for clip in spoken)
            write_text(output / f"{kind}_{split}.txt", rows)


def summary(heard: dict[str, Heard]) -> str:
    """Say how much was spoken, and how much of it is left out."""
    left_out = [clip for clip in heard.values() if clip.wrong_characters > MOST_WRONG]
    words = sum(clip.words for clip in heard.values())
    wrong = sum(clip.wrong_words for clip in heard.values()) / max(1, words)
    hours = sum(clip.seconds for clip in heard.values()) / 3600
    return (
        f"{len(heard)} clips, {hours:.2f} hours, {wrong:.1%} of words wrong; {len(left_out)} too unclear for training"
    )


@dataclass(frozen=True, kw_only=True)
class VoiceCorpusOptions:
    """The command's flags."""

    text: Path = option(ROOT / "voice" / "text", "folder of train.txt, everyday_train.txt and so on")
    output: Path = option(ROOT / "output" / "voice_corpus", "folder to write", "-o")
    speaker: str = option("am_michael", "speaker of the teacher, who has a language")
    workers: int = option(
        os.cpu_count() or 1, "processes that speak, of one thread each (default: one per core)", type=positive
    )


def parse_args(argv: list[str] | None = None) -> VoiceCorpusOptions:
    return parse_options(VoiceCorpusOptions, "python -m voice.make_corpus", __doc__, argv)


def main() -> None:
    args = parse_args()
    clips = read_splits(args.text, language_of(args.speaker))
    heard = read_heard(args.output / "heard.tsv")
    missing = [clip for clip in clips if clip.name not in heard]
    try:
        for one in speak(missing, args.output, args.speaker, args.workers):
            heard[one.name] = one
    finally:
        write_filelists(clips, heard, args.output)
        print(f"{summary(heard)}, in {args.output}", file=sys.stderr)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
