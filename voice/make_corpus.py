"""Speak the sentences that the embedded voice was trained on: wav files, and filelists for train.py.

    apt-get install festival festvox-us-slt-hts vorbis-tools
    python -m voice.make_corpus                     # about ten minutes, 1.2 GB with the mels, below output/voice_corpus
    python -m common.data.mels --n-mel-channels 48 --dataset-path output/voice_corpus \\
        --audio-filelist output/voice_corpus/audio_{,everyday_}{train,val,test}.txt \\
        --mel-filelist output/voice_corpus/mel_{,everyday_}{train,val,test}.txt

Reads voice/text/{train,val,test}.txt and voice/text/everyday_{train,val,test}.txt, with rows `id|written` or `id|written|spoken`.
Numbers and abbreviations are spelled out for the filelists and for the voice, as in inference; `spoken` replaces the text that the
voice speaks. Speaker, trimming and resampling are the same as in corpus/make.py. Safe to run again: existing clips are kept.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

from common.errors import DataError, exit_on_user_error
from common.files import atomic_write, read_lines
from common.parser import Parser
from common.reading.reader import read_english
from corpus.make import (
    MAX_PEAK,
    ROOT,
    SAMPLING_RATE,
    Clip,
    CorpusError,
    finish,
    require_tools,
    speak,
    write_lines,
)

SPLITS = ("train", "val", "test", "everyday_train", "everyday_val", "everyday_test")
CHUNK = 50  # clips of one festival process


def read_clips(path: Path, split: str) -> list[Clip]:
    """Read rows `id|written` or `id|written|spoken` of a text file. Raises CorpusError for any other."""
    clips = []
    for number, line in enumerate(read_lines(path), start=1):
        name, *texts = line.split("|")
        if not name or len(texts) not in (1, 2) or any(not text.strip() or '"' in text for text in texts):
            raise CorpusError(
                f"{path}:{number}: got {line!r}, expected `id|written` or `id|written|spoken` without quotes"
            )
        words = read_english(texts[0])
        clips.append(Clip("voice", split, name, words, texts[1] if len(texts) > 1 else words))
    return clips


def speak_chunk(clips: Sequence[Clip], wavs: Path) -> int:
    """Synthesise clips to WAVS/ID.wav, 16 bits. Returns their number."""
    with tempfile.TemporaryDirectory() as folder:
        for clip, wave in speak(list(clips), Path(folder)):
            audio = finish(wave)
            audio *= min(1.0, MAX_PEAK / np.abs(audio).max())  # scale down the few clips that would clip
            with atomic_write(wavs / f"{clip.name}.wav") as file:
                soundfile.write(file, audio, SAMPLING_RATE, subtype="PCM_16", format="WAV")
    return len(clips)


def make(clips: list[Clip], output: Path, workers: int) -> None:
    """Synthesise the missing clips and write the filelists."""
    wavs = output / "wavs"
    wavs.mkdir(parents=True, exist_ok=True)
    missing = [clip for clip in clips if not (wavs / f"{clip.name}.wav").exists()]
    chunks = [missing[start : start + CHUNK] for start in range(0, len(missing), CHUNK)]
    with ProcessPoolExecutor(workers) as pool, tqdm(total=len(missing), unit="clip", desc="speak") as bar:
        for count in pool.map(speak_chunk, chunks, [wavs] * len(chunks)):
            bar.update(count)
    for split in SPLITS:
        chosen = [clip for clip in clips if clip.split == split]
        write_lines(output / f"audio_{split}.txt", (f"wavs/{clip.name}.wav|{clip.written}" for clip in chosen))
        write_lines(output / f"mel_{split}.txt", (f"mels/{clip.name}.pt|{clip.written}" for clip in chosen))


def main() -> None:
    parser = Parser(allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--text", type=Path, default=ROOT / "voice" / "text", help="folder of train.txt, everyday_train.txt and so on"
    )
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "output" / "voice_corpus", help="folder to write")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="festival processes")
    args = parser.parse_args()
    try:
        clips = list(chain.from_iterable(read_clips(args.text / f"{split}.txt", split) for split in SPLITS))
        require_tools()
        make(clips, args.output, args.workers)
    except (CorpusError, OSError) as error:
        raise DataError(str(error)) from None
    seconds = sum(soundfile.info(str(args.output / "wavs" / f"{clip.name}.wav")).duration for clip in clips)
    print(f"{len(clips)} clips, {seconds / 3600:.1f} hours, in {args.output}", file=sys.stderr)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
