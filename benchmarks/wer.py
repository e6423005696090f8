"""Measure how well a speech recogniser understands audio: word and character error rates against the text.

Runs in an environment of its own, so that the recogniser's packages never meet the recipe's:

    python3 -m venv /tmp/wer
    /tmp/wer/bin/pip install --no-deps moonshine-voice==0.0.73 useful-moonshine-onnx==20251121
    /tmp/wer/bin/pip install -r benchmarks/requirements-wer.txt

    /tmp/wer/bin/python benchmarks/wer.py --filelist filelists/clock_audio_text_val_filelist.txt --dataset-path ./
    /tmp/wer/bin/python benchmarks/wer.py --audio output/ --text phrases/clock.txt      # what inference.py wrote
    /tmp/wer/bin/python benchmarks/wer.py --audio one.wav two.wav --text two_lines.txt

The recogniser is Moonshine (Jeffries et al. 2024, arXiv:2410.15608). The size `tiny` comes with the package; `base`:

    npm pack @usefulsensors/moonshine-js@0.1.14 && tar xzf usefulsensors-moonshine-js-0.1.14.tgz
    /tmp/wer/bin/python benchmarks/wer.py --model base --model-dir package/dist/model/base/quantized …

Both sides are normalised before they are compared: lower case, no punctuation, titles, amounts and numbers as words, so
that `6:45 p.m.` is `six forty five p m` and `Dr.` is `doctor`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple

import inflect

# N samples
RECOGNISER_RATE = 16000  # Hz
PAD_BEFORE, PAD_AFTER = 0.1, 0.3  # seconds; without silence around it the recogniser drops words at the ends
TOKENS_PER_SECOND = 10  # no one speaks faster; stops the recogniser from looping on noise

TITLES = {
    "mr": "mister",
    "dr": "doctor",
    "lt": "lieutenant",
    "capt": "captain",
    "sgt": "sergeant",
    "rev": "reverend",
    "gen": "general",
}
NUMBERS = inflect.engine()


class Pair(NamedTuple):
    """One recording and what it should say."""

    audio: Path
    text: str


def cardinal(number: str) -> str:
    """Spell a number without `and`: `118` is `one hundred eighteen`, `3.5` is `three point five`."""
    words = NUMBERS.number_to_words(number, andword="")
    assert isinstance(words, str)
    return words


def year_or_number(digits: str) -> str:
    """Spell `1984` as a year, any other number plainly; `2,000` keeps its comma until here and so is not a year."""
    number = int(digits.replace(",", ""))
    if "," in digits or not 1000 < number < 3000 or 1999 < number < 2010:
        return cardinal(str(number))
    high, low = divmod(number, 100)
    ending = "hundred" if low == 0 else f"oh {cardinal(str(low))}" if low < 10 else cardinal(str(low))
    return f"{cardinal(str(high))} {ending}"


def clock_time(match: re.Match[str]) -> str:
    """Spell `6:45`, `6:05` and `6:00` as they are said: six forty five, six oh five, six."""
    minute = int(match[2])
    spoken = "" if minute == 0 else f"oh {cardinal(match[2][1])}" if minute < 10 else cardinal(match[2])
    return f" {cardinal(match[1])} {spoken} "


def money(match: re.Match[str]) -> str:
    """Spell `$3.50` as three dollars fifty cents."""
    dollars, cents = int(match[1].replace(",", "")), int(match[2] or 0)
    parts = [(dollars, "dollar"), (cents, "cent")]
    return " ".join(f"{cardinal(str(n))} {NUMBERS.plural_noun(unit, n)}" for n, unit in parts if n)


def normalise(text: str) -> str:
    """Reduce a sentence to lower-case words, with every number spelled out."""
    text = text.lower().replace("\u2019", "'")
    text = re.sub(rf"\b({'|'.join(TITLES)})\b\.?(?= )", lambda m: TITLES[m[1]], text)
    text = re.sub(r"(?<![a-z'])(?<!i )([ap])\.?\s?m\b\.?", r" \1 m ", text)
    text = re.sub(r"\b(\d{1,2}):(\d\d)\b", clock_time, text)
    text = re.sub(r"\$(\d[\d,]*)(?:\.(\d\d))?", money, text)
    text = re.sub(r"\b(\d+)(st|nd|rd|th)\b", lambda m: str(NUMBERS.number_to_words(m[0], andword="")), text)
    text = re.sub(r"\b\d+\.\d+\b", lambda m: cardinal(m[0]), text)
    text = re.sub(r"\b\d{1,3}(?:,\d{3})+\b|\d+", lambda m: f" {year_or_number(m[0])} ", text)
    words = re.findall(r"[a-z]+", text.replace("%", " percent ").replace("'", ""))
    return " ".join("oh" if word == "o" else word for word in words)


def pairs_of_filelist(filelist: Path, dataset: Path) -> Iterator[Pair]:
    """Yield the rows `path|text` of a filelist."""
    for number, line in enumerate(filelist.read_text(encoding="utf-8").splitlines(), start=1):
        path, separator, text = line.partition("|")
        if not separator:
            raise ValueError(f"{filelist}:{number}: got {line!r}, expected `path|text`")
        yield Pair(dataset / path, text)


def pairs_of_text(audio: list[Path], text_file: Path, suffix: str) -> Iterator[Pair]:
    """Yield the lines of a text file, each with its audio: a folder's audio_I{suffix}.wav or the I-th file."""
    lines = text_file.read_text(encoding="utf-8").splitlines()
    if len(audio) == 1 and audio[0].is_dir():
        audio = [audio[0] / f"audio_{index}{suffix}.wav" for index in range(len(lines))]
    if len(audio) != len(lines):
        raise ValueError(f"{text_file}: got {len(lines)} lines for {len(audio)} audio files, expected as many")
    yield from (Pair(*pair) for pair in zip(audio, lines, strict=True) if pair[1].strip())


def load_audio(path: Path) -> Any:
    """Read mono audio as float32 (1, N) at RECOGNISER_RATE, in silence of PAD_BEFORE and PAD_AFTER."""
    import numpy as np
    import soundfile
    import soxr

    audio, rate = soundfile.read(path, dtype="float32", always_2d=True)
    audio = soxr.resample(audio.mean(axis=1), rate, RECOGNISER_RATE)
    pads = int(PAD_BEFORE * RECOGNISER_RATE), int(PAD_AFTER * RECOGNISER_RATE)
    return np.pad(audio, pads).astype(np.float32)[None]


class Recogniser:
    """Moonshine with its tokenizer: audio file in, text out."""

    def __init__(self, name: str, folder: Path | None) -> None:
        import moonshine_onnx

        if folder is None:
            if name != "tiny":
                raise ValueError("--model base: its weights are not in the package, give --model-dir (see --help)")
            # found and not imported, which would want a microphone library
            folder = Path(str(distribution("moonshine-voice").locate_file("moonshine_voice/assets/tiny-en")))
        kind = "ort" if (folder / "encoder_model.ort").exists() else "onnx"
        self.model = moonshine_onnx.MoonshineOnnxModel(models_dir=str(folder), model_name=name, model_format=kind)
        self.tokenizer = moonshine_onnx.load_tokenizer()

    def __call__(self, path: Path) -> str:
        audio = load_audio(path)
        tokens = self.model.generate(audio, max_len=int(TOKENS_PER_SECOND * audio.size / RECOGNISER_RATE))
        return self.tokenizer.decode_batch(tokens)[0].strip()


def report(pairs: list[Pair], heard: list[str]) -> None:
    """Print each line's reference and hypothesis, then the totals."""
    import jiwer

    references = [normalise(pair.text) for pair in pairs]
    hypotheses = [normalise(text) for text in heard]
    for pair, reference, hypothesis, raw in zip(pairs, references, hypotheses, heard, strict=True):
        mark = " " if reference == hypothesis else "*"
        print(f"{mark} {pair.audio.name}\n    ref  {reference}\n    hyp  {hypothesis}    [{raw}]")
    for unit, result in (
        ("word", jiwer.process_words(references, hypotheses)),
        ("character", jiwer.process_characters(references, hypotheses)),
    ):
        wrong = result.substitutions + result.deletions + result.insertions
        count = result.hits + result.substitutions + result.deletions
        print(
            f"{unit} error rate {100 * wrong / count:.2f} %: {wrong} errors in {count} {unit}s "
            f"({result.substitutions} substituted, {result.deletions} deleted, {result.insertions} inserted)"
        )
    exact = sum(map(str.__eq__, references, hypotheses))
    print(f"{exact} of {len(pairs)} lines without an error")


def parse_args(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--audio", type=Path, nargs="+", help="a folder with audio_0.wav, audio_1.wav …, or files in order"
    )
    parser.add_argument("--text", type=Path, help="what they should say, one line each")
    parser.add_argument("--suffix", default="", help="of the files in the folder: audio_I{suffix}.wav")
    parser.add_argument("--filelist", type=Path, help="rows `path|text`, instead of --audio and --text")
    parser.add_argument(
        "--dataset-path", type=Path, default=Path("./"), help="what the filelist's paths are relative to"
    )
    parser.add_argument("--model", choices=("tiny", "base"), default="tiny", help="size of the recogniser")
    parser.add_argument("--model-dir", type=Path, help="folder with encoder_model and decoder_model_merged")
    args = parser.parse_args(arguments)
    if (args.filelist is None) == (args.audio is None) or (args.audio is None) != (args.text is None):
        parser.error("give either --filelist, or --audio and --text")
    return args


def main(arguments: list[str] | None = None) -> int:
    args = parse_args(arguments)
    try:
        if args.filelist:
            pairs = list(pairs_of_filelist(args.filelist, args.dataset_path))
        else:
            pairs = list(pairs_of_text(args.audio, args.text, args.suffix))
        missing = [str(pair.audio) for pair in pairs if not pair.audio.is_file()]
        if missing:
            raise ValueError("no such audio file: " + ", ".join(missing))
        recogniser = Recogniser(args.model, args.model_dir)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    report(pairs, [recogniser(pair.audio) for pair in pairs])
    return 0


if __name__ == "__main__":
    sys.exit(main())
