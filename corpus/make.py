"""Make the embedded corpus: texts, recordings and filelists.

    bash scripts/corpus.sh              # once: the teacher, which speaks the recordings
    python -m corpus.make               # writes corpus/, filelists/ and phrases/clock.txt; keeps recordings that are there

The teacher says the same on every run of one machine; elsewhere samples differ by rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

from common.audio.audio_processing import resample
from common.audio.silence import sound_bounds
from common.errors import DataError, exit_on_user_error
from common.files import atomic_write, make_folder
from common.parser import Parser
from common.reading.reader import read_english
from corpus.teacher import SAMPLING_RATE as TEACHER_RATE
from corpus.teacher import Teacher
from tacotron2.text.cleaners import english_cleaners

ROOT = Path(__file__).resolve().parent.parent
TEXT_DIR = ROOT / "corpus" / "text"
SPEAKER = "af_heart"

SAMPLING_RATE = 22050  # Hz, of the corpus
LEVEL = 0.08  # RMS between the first and the last sound of every clip
MAX_PEAK = 0.9  # before encoding, which may raise it a little
MARGIN = 0.06  # seconds of silence left at either end
COMPRESSION = 0.8  # of Ogg Vorbis: quality 2 of 10


@dataclass(frozen=True)
class CorpusClip:
    """One recording: `written` is the text of the filelist, `spoken` what inference makes of it, for the teacher."""

    part: str  # clock or sentences
    split: str  # train or val
    name: str
    written: str
    spoken: str

    @property
    def file(self) -> str:
        return f"{self.part}/{self.name}.ogg"


# ---- clock: times of day as words ------------------------------------------------------------------------------------

TEENS = ("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", *TEENS)
TENS = {20: "twenty", 30: "thirty", 40: "forty", 50: "fifty"}
TEMPLATES = (
    "It is {relative} {daypart}.",
    "The time is now {relative}.",
    "It is {digital} {half}.",
    "Good {greeting}, it is {relative}.",
    "The clock says {digital}.",
    "At the moment, it is {digital} {half}.",
    "It is now exactly {digital}.",
    "Is it already {relative}?",
    "Your alarm is set for {digital}.",
    "The next show begins at {digital} {half}.",
    "Wake up, it is {relative}!",
)
NAMING_TEMPLATES = tuple(template for template in TEMPLATES if "{relative}" in template)
TRAIN_USES = 3  # of each minute
# more where a word would be rare: o'clock, quarter, half, minute, thirteen … nineteen
EXTRA_USES = {0: 14, 15: 12, 30: 10, 45: 6} | dict.fromkeys((1, 59), 4) | dict.fromkeys((13, 14, 16, 17, 18, 19), 3)
VAL_MINUTES = (0, 15, 30, 45, 3, 11, 19, 24, 37, 42, 51, 56)
UNSEEN_MINUTES = (30, 45, 6, 40, 52, 26, 15, 8, 18, 29, 33, 47)  # the first five are phrases/clock.txt
UNSEEN_PHRASES = 5
MIN_CHARACTERS = 19  # about 1.4 s


def number_words(number: int) -> str:
    """Spell 0 <= number < 60."""
    if number < 20:
        return ONES[number]
    tens, ones = divmod(number, 10)
    return f"{TENS[tens * 10]} {ONES[ones]}" if ones else TENS[tens * 10]


def hour_name(hour: int) -> str:
    """Name the hour 0 <= hour <= 24 as in `ten past …`."""
    return {0: "midnight", 12: "noon"}.get(hour % 24) or ONES[hour % 12]


def relative_time(hour: int, minute: int) -> str:
    """Format a time as `a quarter past seven`, `twelve minutes to ten`, `noon`; hour in 0..23."""
    if minute == 0:
        return hour_name(hour) if hour % 12 == 0 else f"{hour_name(hour)} o'clock"
    if minute == 30:
        return f"half past {ONES[hour % 12 or 12]}"
    side, count, name = ("past", minute, hour_name(hour)) if minute < 30 else ("to", 60 - minute, hour_name(hour + 1))
    if count == 15:
        return f"a quarter {side} {name}"
    return f"{number_words(count)} minute{'s' if count > 1 else ''} {side} {name}"


def digital_time(hour: int, minute: int) -> str:
    """Format a time as `six forty five`, `six oh five`, `six`; hour in 0..23."""
    spoken_hour = ONES[hour % 12 or 12]
    if minute == 0:
        return spoken_hour
    return f"{spoken_hour} {'oh ' if minute < 10 else ''}{number_words(minute)}"


def day_part(hour: int) -> str:
    """Name the part of the day that hour 0..23 lies in."""
    if 4 <= hour < 12:
        return "in the morning"
    if 12 <= hour < 18:
        return "in the afternoon"
    return "in the evening" if 18 <= hour < 20 else "at night"


def clock_sentence(template: str, hour: int, minute: int) -> str:
    """Fill a template with the time hour:minute of a 24-hour day."""
    relative, digital = relative_time(hour, minute), digital_time(hour, minute)
    says_day_part = relative.endswith(("noon", "midnight"))
    text = template.format(
        relative=relative,
        digital=digital if minute or "{half}" in template else f"{digital} o'clock",
        daypart="" if says_day_part else day_part(hour),
        half="a m" if hour < 12 else "p m",
        greeting="morning" if 4 <= hour < 12 else "afternoon" if 12 <= hour < 18 else "evening",
    )
    return text.replace(" .", ".")


def clock_slot(minute: int, use: int) -> tuple[str, int, int]:
    """Give the template, the hour and the minute of a minute's n-th use.

    Hours step by 7 of 12, so that uses 0..11 of a minute fall on twelve different places of the dial; templates step
    by 2 of 11, so that the two do not run in step. Every other use of o'clock, quarter and half is by name.
    """
    half = (minute + use // 2 + use // 12) % 2  # not in step with even and odd hours either
    hour = (minute * 5 + use * 7) % 12 + 12 * half
    templates = NAMING_TEMPLATES if minute % 15 == 0 and use % 2 else TEMPLATES
    return templates[(minute + 2 * use) % len(templates)], hour, minute


def clock_slots(split: str) -> list[tuple[str, int, int]]:
    """List (template, hour, minute) of `train`, `val` or `unseen`; no place of the dial is in two of them."""
    if split == "train":
        uses = {minute: TRAIN_USES + EXTRA_USES.get(minute, 0) for minute in range(60)}
        slots = [clock_slot(minute, use) for minute, count in uses.items() for use in range(count)]
        reserved = {(hour % 12, minute) for other in ("val", "unseen") for _, hour, minute in clock_slots(other)}
        return [slot for slot in slots if (slot[1] % 12, slot[2]) not in reserved]
    minutes, use = (VAL_MINUTES, 5) if split == "val" else (UNSEEN_MINUTES, 8)
    return [clock_slot(minute, use) for minute in minutes]


def clock_texts(split: str) -> list[str]:
    """List the sentences of `train`, `val` or `unseen`, each once; leave out short ones, such as `It is noon.`"""
    texts = dict.fromkeys(clock_sentence(*slot) for slot in clock_slots(split))
    return [text for text in texts if len(text) >= MIN_CHARACTERS]


# ---- both parts ------------------------------------------------------------------------------------------------------


def read_sentences(path: Path) -> Iterator[str]:
    """Yield each line of a file of sentences; raise DataError for one with a bar or spaces at its ends."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip() != line or not line or "|" in line:
            raise DataError(f"{path}:{number}: got {line!r}, expected a sentence without bars and outer spaces")
        yield line


def aloud(written: str) -> str:
    """Return what inference makes of a written text, for the teacher: words in lower case and punctuation."""
    return english_cleaners(read_english(written))


def all_clips() -> list[CorpusClip]:
    """List every clip of the corpus: clock before sentences, training before validation."""
    clips = []
    for part, name in (("clock", "clock"), ("sentences", "sentence")):
        count = 0
        for split in ("train", "val"):
            rows = clock_texts(split) if part == "clock" else read_sentences(TEXT_DIR / f"sentences_{split}.txt")
            for written in rows:
                count += 1
                clips.append(CorpusClip(part, split, f"{name}_{count:04d}", written, aloud(written)))
    return clips


# ---- sound -----------------------------------------------------------------------------------------------------------


def finish(audio: np.ndarray) -> np.ndarray:
    """Make a clip (N,) at SAMPLING_RATE of the teacher's audio: silence at its ends and level are alike in all clips."""
    audio = resample(audio, TEACHER_RATE, SAMPLING_RATE)
    start, end = sound_bounds(audio, SAMPLING_RATE)
    if end == 0:
        raise DataError("the teacher was silent")
    margin = round(MARGIN * SAMPLING_RATE)
    gain = min(LEVEL / np.sqrt(np.mean(np.square(audio[start:end]))), MAX_PEAK / np.abs(audio).max())
    before, after = audio[max(0, start - margin) : start], audio[end : end + margin]
    clip = np.concatenate((before, audio[start:end], after)) * gain
    return np.pad(clip, (margin - len(before), margin - len(after)))


def save(path: Path, clip: np.ndarray) -> None:
    """Write a clip (N,) as Ogg Vorbis."""
    with atomic_write(path) as file:
        soundfile.write(file, clip, SAMPLING_RATE, format="OGG", subtype="VORBIS", compression_level=COMPRESSION)


# ---- files -----------------------------------------------------------------------------------------------------------


def text_files(clips: list[CorpusClip], output: Path, filelists: Path, phrases: Path) -> dict[Path, list[str]]:
    """Return the lines of every text file to write, by path."""
    files: dict[Path, list[str]] = {}
    for part in ("clock", "sentences"):
        for split in ("train", "val"):
            chosen = [clip for clip in clips if (clip.part, clip.split) == (part, split)]
            files[filelists / f"{part}_audio_text_{split}_filelist.txt"] = [
                f"{output.name}/{clip.file}|{clip.written}" for clip in chosen
            ]
            files[filelists / f"{part}_mel_text_{split}_filelist.txt"] = [
                f"{output.name}/mels/{clip.name}.pt|{clip.written}" for clip in chosen
            ]
    unseen = clock_texts("unseen")
    files[phrases / "clock.txt"] = unseen[:UNSEEN_PHRASES]
    files[output / "text" / "clock_unseen.txt"] = unseen[UNSEEN_PHRASES:]
    return files


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines, LF and UTF-8, in one step."""
    make_folder(path.parent)
    with atomic_write(path) as file:
        file.write("".join(f"{line}\n" for line in lines).encode("utf-8"))


def make(output: Path, filelists: Path, phrases: Path, speaker: str) -> None:
    """Write the filelists, and speak the clips that are missing."""
    clips = all_clips()
    for path, lines in text_files(clips, output, filelists, phrases).items():
        write_lines(path, lines)
    missing = [clip for clip in clips if not (output / clip.file).exists()]
    teacher = Teacher(speaker) if missing else None
    for clip in tqdm(missing, unit="clip", desc="make corpus"):
        assert teacher is not None
        make_folder((output / clip.file).parent)
        save(output / clip.file, finish(teacher(clip.spoken)))


def main() -> None:
    parser = Parser(prog="python -m corpus.make", description=__doc__)
    parser.add_argument("--output-dir", type=Path, default=ROOT / "corpus", help="folder of the recordings")
    parser.add_argument("--filelists-dir", type=Path, default=ROOT / "filelists", help="folder of the filelists")
    parser.add_argument("--phrases-dir", type=Path, default=ROOT / "phrases", help="folder of clock.txt")
    parser.add_argument("--speaker", default=SPEAKER, help="speaker of the teacher")
    args = parser.parse_args()
    make(args.output_dir.resolve(), args.filelists_dir.resolve(), args.phrases_dir.resolve(), args.speaker)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
