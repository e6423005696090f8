"""Measure the word and character error rates of a speech recogniser on audio, against the text.

`bash scripts/evaluation.sh` installs the recogniser and the package that counts the errors; then

    .venv/bin/python -m benchmarks.studio.wer --filelist filelists/clock_audio_text_val_filelist.txt --dataset-path ./
    .venv/bin/python -m benchmarks.studio.wer --audio output/ --text phrases/clock.txt      # output of inference.py
    .venv/bin/python -m benchmarks.studio.wer --audio one.wav two.wav --text two_lines.txt

The recogniser is Moonshine (common/quality/recogniser.py). Its package includes the size `tiny`; for `base`:

    npm pack @usefulsensors/moonshine-js@0.1.14 && tar xzf usefulsensors-moonshine-js-0.1.14.tgz
    .venv/bin/python -m benchmarks.studio.wer --model base --model-dir package/dist/model/base/quantized …

Both sides are normalised before they are compared (common/quality/words.py): lower case, no punctuation, titles, amounts and
numbers as words, so that `6:45 p.m.` is `six forty five p m` and `Dr.` is `doctor`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from common.audio.audio_processing import read_audio
from common.errors import DataError, exit_on_user_error
from common.files import read_lines
from common.parser import Parser
from common.quality.recogniser import SIZES, Recogniser
from common.quality.words import Edits, character_edits, normalise, word_edits


class Pair(NamedTuple):
    """A recording and its text."""

    audio: Path
    text: str


def pairs_of_filelist(filelist: Path, dataset: Path) -> Iterator[Pair]:
    """Yield the rows `path|text` of a filelist."""
    for number, line in enumerate(read_lines(filelist), start=1):
        path, separator, text = line.partition("|")
        if not separator:
            raise DataError(f"{filelist}:{number}: got {line!r}, expected `path|text`")
        yield Pair(dataset / path, text)


def pairs_of_text(audio: list[Path], text_file: Path, suffix: str) -> Iterator[Pair]:
    """Yield the lines of a text file, each with its audio: a folder's audio_I{suffix}.wav or the I-th file."""
    lines = read_lines(text_file)
    if len(audio) == 1 and audio[0].is_dir():
        audio = [audio[0] / f"audio_{index}{suffix}.wav" for index in range(len(lines))]
    if len(audio) != len(lines):
        raise DataError(f"{text_file}: got {len(lines)} lines for {len(audio)} audio files, expected as many")
    yield from (Pair(*pair) for pair in zip(audio, lines, strict=True) if pair[1].strip())


def transcribe(recogniser: Recogniser, path: Path) -> str:
    """Return the recognised words of an audio file of any rate."""
    audio = read_audio(path, None)
    return recogniser(audio.samples.numpy(), audio.rate)


def report(pairs: list[Pair], transcripts: list[str]) -> None:
    """Print each line's reference and hypothesis, then the totals."""
    texts = [pair.text for pair in pairs]
    references = [normalise(text) for text in texts]
    hypotheses = [normalise(text) for text in transcripts]
    for pair, reference, hypothesis, raw in zip(pairs, references, hypotheses, transcripts, strict=True):
        mark = " " if reference == hypothesis else "*"
        print(f"{mark} {pair.audio.name}\n    ref  {reference}\n    hyp  {hypothesis}    [{raw}]")
    for unit, edits_of in (("word", word_edits), ("character", character_edits)):
        edits = Edits(*map(sum, zip(*map(edits_of, texts, transcripts), strict=True)))
        print(
            f"{unit} error rate {100 * edits.errors.rate:.2f} %: {edits.errors.errors} errors in {edits.errors.count} {unit}s "
            f"({edits.substituted} substituted, {edits.deleted} deleted, {edits.inserted} inserted)"
        )
    exact = sum(map(str.__eq__, references, hypotheses))
    print(f"{exact} of {len(pairs)} lines without an error")


def parse_args(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--audio", type=Path, nargs="+", help="folder with audio_0.wav, audio_1.wav, …, or files in order"
    )
    parser.add_argument("--text", type=Path, help="file with the reference texts, one per line")
    parser.add_argument("--suffix", default="", help="suffix of the files in the folder: audio_I{suffix}.wav")
    parser.add_argument("--filelist", type=Path, help="rows `path|text`, instead of --audio and --text")
    parser.add_argument(
        "--dataset-path", type=Path, default=Path("./"), help="folder that the filelist's paths are relative to"
    )
    parser.add_argument("--model", choices=SIZES, default="tiny", help="size of the recogniser")
    parser.add_argument("--model-dir", type=Path, help="folder with encoder_model and decoder_model_merged")
    args = parser.parse_args(arguments)
    if (args.filelist is None) == (args.audio is None) or (args.audio is None) != (args.text is None):
        parser.error("give either --filelist, or --audio and --text")
    if args.model != "tiny" and args.model_dir is None:
        parser.error(f"--model {args.model}: its weights are not in the package; give --model-dir (see --help)")
    return args


def main(arguments: list[str] | None = None) -> None:
    args = parse_args(arguments)
    with exit_on_user_error():
        if args.filelist:
            pairs = list(pairs_of_filelist(args.filelist, args.dataset_path))
        else:
            pairs = list(pairs_of_text(args.audio, args.text, args.suffix))
        if not pairs:
            raise DataError(f"{args.filelist or args.text}: no line, expected at least one")
        missing = [str(pair.audio) for pair in pairs if not pair.audio.is_file()]
        if missing:
            raise DataError("no such audio file: " + ", ".join(missing))
        recogniser = Recogniser(args.model, args.model_dir)
        report(pairs, [transcribe(recogniser, pair.audio) for pair in pairs])


if __name__ == "__main__":
    main()
