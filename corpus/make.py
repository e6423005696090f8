"""Speak the embedded corpus: the recordings that its filelists name.

    bash scripts/corpus.sh              # once: the teacher, which speaks
    python -m corpus.make               # keeps recordings that are there

The teacher says the same on every run of one machine; elsewhere samples differ by rounding.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

from common.audio.audio_processing import resample
from common.audio.silence import sound_bounds
from common.data.filelist import list_path, read_filelist
from common.errors import DataError, exit_on_user_error
from common.files import atomic_write, make_folder
from common.options import argument, option, parse_options
from common.reading.reader import read_english
from corpus.teacher import SAMPLING_RATE as TEACHER_RATE
from corpus.teacher import Teacher
from tacotron2.text.cleaners import english_cleaners

ROOT = Path(__file__).resolve().parent.parent
FILELISTS = [
    list_path(ROOT / "filelists", part, "audio", split) for part in ("clock", "sentences") for split in ("train", "val")
]
SPEAKER = "af_heart"

SAMPLING_RATE = 22050  # Hz, of the corpus
LEVEL = 0.08  # RMS between the first and the last sound of every clip
MAX_PEAK = 0.9  # before encoding, which may raise it a little
MARGIN = 0.06  # seconds of silence left at either end
COMPRESSION = 0.8  # of Ogg Vorbis: quality 2 of 10


def aloud(written: str) -> str:
    """Return what inference makes of a written English text, for the teacher: words in lower case and punctuation."""
    return english_cleaners(read_english(written))


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


def make(filelists: Sequence[Path], dataset_path: Path, speaker: str) -> None:
    """Speak the clips that are missing, as Ogg Vorbis."""
    rows = [row for path in filelists for row in read_filelist(path)]
    missing = [row for row in rows if not (dataset_path / row.path).exists()]
    teacher = Teacher(speaker) if missing else None
    for row in tqdm(missing, unit="clip", desc="make corpus"):
        assert teacher is not None
        path, clip = dataset_path / row.path, finish(teacher(aloud(row.text)))
        make_folder(path.parent)
        with atomic_write(path) as file:
            soundfile.write(file, clip, SAMPLING_RATE, format="OGG", subtype="VORBIS", compression_level=COMPRESSION)


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """The command's arguments and flags."""

    filelists: list[Path] = argument("rows path|text (default: all)", FILELISTS, metavar="FILELIST", nargs="*")
    dataset_path: Path = option(ROOT, "folder that the paths start from", "-d")
    speaker: str = option(SPEAKER, "speaker of the teacher")


def main() -> None:
    args = parse_options(CorpusOptions, "python -m corpus.make", __doc__)
    make(args.filelists, args.dataset_path, args.speaker)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
