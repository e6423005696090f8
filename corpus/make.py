"""Make the embedded corpus: texts, recordings and filelists, with the same bytes on every run.

    python corpus/make.py            # writes corpus/, filelists/ and phrases/clock.txt
    python corpus/make.py --check    # makes all files in a temporary folder and compares them; exit code 1 on any difference

The voice is cmu_us_slt_arctic_hts of the Festival Speech Synthesis System. Debian packages: festival festvox-us-slt-hts
vorbis-tools. Made with festival 2.5.0, festvox-us-slt-hts 0.2010.10.25, oggenc 1.4.2 over libvorbis 1.3.7, scipy 1.17;
other versions may round differently.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from scipy import signal
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
TEXT_DIR = ROOT / "corpus" / "text"
VOICE = "cmu_us_slt_arctic_hts"
# The lexicon has a flap in thirty but a hard t in forty, which sounds like `four g` with this voice.
FLAPPED_FORTY = '(lex.add.entry \'("forty" nil (((f ao r) 1) ((d iy) 0))))'
APT_PACKAGES = "festival festvox-us-slt-hts vorbis-tools"

SAMPLING_RATE = 22050  # Hz, of the corpus
VOICE_RATE = 32000  # Hz, of the voice
GAIN = 1.1  # the same for all clips, to keep their relative levels
MAX_PEAK = 0.9  # before encoding, which may raise it a little
MARGIN = 0.06  # seconds of silence left at either end
ACTIVE_DB = -45.0  # a frame is speech when its level is above the loudest frame's by this much
VORBIS_QUALITY = "2"


class CorpusError(Exception):
    """The corpus cannot be made here, or a source text is malformed."""


@dataclass(frozen=True)
class Clip:
    """One recording: `written` is the text of the filelist, `spoken` the same words as input of the voice."""

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


def read_sentences(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (written, spoken) of each line `written` or `written|spoken`; raise CorpusError for any other."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        written, *spoken = line.split("|")
        if len(spoken) > 1 or not all(text.strip() == text != "" and '"' not in text for text in (written, *spoken)):
            raise CorpusError(f"{path}:{number}: got {line!r}, expected `written` or `written|spoken` without quotes")
        yield written, spoken[0] if spoken else written


def all_clips() -> list[Clip]:
    """List every clip of the corpus: clock before sentences, training before validation."""
    clips = []
    for part, name in (("clock", "clock"), ("sentences", "sentence")):
        count = 0
        for split in ("train", "val"):
            if part == "clock":
                # in lower case the voice may read the letter as the article
                rows = [(text, text.replace(" a m", " A M")) for text in clock_texts(split)]
            else:
                rows = list(read_sentences(TEXT_DIR / f"sentences_{split}.txt"))
            for written, spoken in rows:
                count += 1
                clips.append(Clip(part, split, f"{name}_{count:04d}", written, spoken))
    return clips


# ---- sound -----------------------------------------------------------------------------------------------------------


def require_tools() -> None:
    """Raise CorpusError unless festival, its voice and oggenc are installed."""
    missing = [tool for tool in ("festival", "oggenc") if shutil.which(tool) is None]
    if not missing:
        query = ["festival", "-b", "(print (voice.list))"]
        voices = subprocess.run(query, check=True, capture_output=True, text=True).stdout
        missing = [] if VOICE in voices else [f"festival's voice {VOICE}"]
    if missing:
        raise CorpusError(f"{' and '.join(missing)} not found: run `apt-get install {APT_PACKAGES}` first")


def speak(clips: list[Clip], folder: Path) -> Iterator[tuple[Clip, Path]]:
    """Speak all clips in one festival process; yield each with its wave file (VOICE_RATE, mono) once written."""
    lines = [f"(voice_{VOICE})", FLAPPED_FORTY]
    for clip in clips:
        wave = folder / f"{clip.name}.wav"
        lines.append(f'(utt.save.wave (utt.synth (Utterance Text "{clip.spoken}")) "{wave}" \'riff)')
        lines.append(f'(format t "{clip.name}\\n") (fflush nil)')
    script = folder / "speak.scm"
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with subprocess.Popen(["festival", "-b", str(script)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for clip, name in zip(clips, process.stdout, strict=False):
            if name.strip() != clip.name:
                raise CorpusError(f"festival said {name.strip()!r} instead of speaking {clip.name}: {clip.spoken!r}")
            yield clip, folder / f"{clip.name}.wav"
    if process.returncode != 0:
        raise CorpusError(f"festival failed with exit code {process.returncode}")


def trim(audio: np.ndarray, rate: int) -> np.ndarray:
    """Cut silence (N,) at both ends to MARGIN seconds."""
    size = rate // 200  # 5 ms
    margin, ramp = int(MARGIN * rate), 4 * size
    # The voice may stop within the decay of a last s: fade it out, and append the noise of the clip's beginning.
    faded = audio[-ramp:] * np.linspace(1, 0, ramp)
    audio = np.concatenate([audio[:-ramp], faded, audio[ramp : ramp + margin]])
    frames = audio[: len(audio) // size * size].reshape(-1, size)
    level = 10 * np.log10(np.mean(np.square(frames), axis=1) + 1e-12)
    active = np.flatnonzero(level > level.max() + ACTIVE_DB)
    return audio[max(0, active[0] * size - margin) : (active[-1] + 1) * size + margin]


def resample(audio: np.ndarray) -> np.ndarray:
    """Bring (N,) from VOICE_RATE to SAMPLING_RATE; linear phase, flat to 10.2 kHz, 80 dB down from 11.1 kHz on."""
    up, down = SAMPLING_RATE // 50, VOICE_RATE // 50
    # scipy's own filter for this ratio starts to fall at 8 kHz, within the mel range
    taps = signal.firwin(2 * 64 * down + 1, 10650, window=("kaiser", 8.0), fs=VOICE_RATE * up)
    return signal.resample_poly(audio, up, down, window=taps)


def finish(wave: Path) -> np.ndarray:
    """Convert festival's wave file for a corpus: (N,) at SAMPLING_RATE, trimmed, scaled by GAIN."""
    audio, rate = soundfile.read(wave)
    if rate != VOICE_RATE or audio.ndim != 1:
        raise CorpusError(f"{wave}: got {rate} Hz, shape {audio.shape}, expected {VOICE_RATE} Hz mono")
    return resample(trim(audio * GAIN, rate))


def encode(wave: Path, serial: int, target: Path) -> None:
    """Turn festival's wave file into the corpus's Ogg Vorbis file; the same wave and serial give the same bytes."""
    audio = finish(wave)
    if np.abs(audio).max() > MAX_PEAK:
        raise CorpusError(f"{wave.stem}: peak {np.abs(audio).max():.2f}, expected at most {MAX_PEAK}: lower GAIN")
    soundfile.write(wave, audio, SAMPLING_RATE, subtype="PCM_16")
    settings = ["--quality", VORBIS_QUALITY, "--serial", str(serial)]  # a random serial would change every page
    with tempfile.TemporaryDirectory(dir=target.parent) as staging:  # a new folder, so that no link is followed
        partial = Path(staging, target.name)
        subprocess.run(["oggenc", "--quiet", *settings, "--output", str(partial), str(wave)], check=True)
        os.replace(partial, target)


# ---- files -----------------------------------------------------------------------------------------------------------


def text_files(clips: list[Clip], output: Path, filelists: Path, phrases: Path) -> dict[Path, list[str]]:
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
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as staging:
        partial = Path(staging, path.name)
        partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
        os.replace(partial, path)


def make(output: Path, filelists: Path, phrases: Path) -> list[Path]:
    """Make the whole corpus; return every file written."""
    require_tools()
    clips = all_clips()
    files = text_files(clips, output, filelists, phrases)
    written = []
    for part in ("clock", "sentences"):
        (output / part).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        spoken = tqdm(speak(clips, Path(folder)), total=len(clips), unit="clip", desc="make corpus")
        for serial, (clip, wave) in enumerate(spoken, start=1):
            encode(wave, serial, output / clip.file)
            wave.unlink()
            written.append(output / clip.file)
    if len(written) != len(clips):
        raise CorpusError(f"festival spoke {len(written)} of {len(clips)} clips")
    for path, lines in files.items():
        write_lines(path, lines)
    return written + list(files)


def check(output: Path, filelists: Path, phrases: Path) -> list[str]:
    """Make the corpus in a temporary folder; describe each file that differs, by a byte, from the given folders'."""
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        copies = Path(folder) / output.name, Path(folder) / "filelists", Path(folder) / "phrases"
        originals = dict(zip(copies, (output, filelists, phrases), strict=True))
        expected = set()
        for path in make(*copies):
            copy = next(copy for copy in copies if path.is_relative_to(copy))
            original = originals[copy] / path.relative_to(copy)
            expected.add(original)
            if not original.is_file():
                problems.append(f"{original}: missing")
            elif original.read_bytes() != path.read_bytes():
                problems.append(f"{original}: differs")
    shipped = {path for part in ("clock", "sentences") for path in (output / part).glob("*")}
    return problems + [f"{path}: not part of the corpus" for path in sorted(shipped - expected)]


def parse_args(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Make the embedded corpus, byte for byte.")
    parser.add_argument("--output-dir", type=Path, default=ROOT / "corpus", help="folder of the recordings")
    parser.add_argument("--filelists-dir", type=Path, default=ROOT / "filelists", help="folder of the filelists")
    parser.add_argument("--phrases-dir", type=Path, default=ROOT / "phrases", help="folder of clock.txt")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a rerun would change files")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    args = parse_args(arguments)
    folders = [path.resolve() for path in (args.output_dir, args.filelists_dir, args.phrases_dir)]
    try:
        if not args.check:
            print(f"{len(make(*folders))} files written")
            return 0
        problems = check(*folders)
    except CorpusError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(problems) or "identical, byte for byte", file=sys.stderr if problems else sys.stdout)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
