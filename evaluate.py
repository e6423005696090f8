"""Measure the quality of speech on held-out lines, next to the recordings and Griffin-Lim: python evaluate.py.

Synthesises the lines of a filelist (audio|text) or a text file with one phrase per line, free running. The audio is measured by a
speech recogniser, a predictor of opinion scores and a comparison with the recordings. Prints a table, and writes report.html, with
players, and report.json to --output. `bash scripts/evaluation.sh` installs the evaluators.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import json
import math
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from common import precision
from common.arguments import positive
from common.data.filelist import Utterance, check_files, lines_of, read_filelist, read_phrases
from common.errors import DataError, UsageError, exit_on_user_error, explain_refusal, printable
from common.files import make_folder, write_text
from common.inference.arguments import (
    SpeakingOptions,
    add_speaking_arguments,
    speaking_options,
    vocoder_flags,
    vocoder_names,
)
from common.inference.evaluation import (
    Evaluators,
    HeldOutLine,
    Rendition,
    evaluate_system,
    recordings,
    renditions_from_texts,
    renditions_from_true_mels,
)
from common.inference.vocoders import Vocoder, griffin_lim_of
from common.inference.voice_folder import about_voice
from common.options import add_fields, option, section
from common.parser import Parser
from common.progress import counted
from common.quality import MEASURED
from common.quality.evaluators import INSTALL
from common.quality.recogniser import RecogniserConfig
from common.quality.report import System, as_json, legend, page, table
from common.training.checkup import is_mel, make_held_out_line, spread
from exports.voice import named_voice
from models import REGISTRY
from synthesizer import GRIFFIN_LIM, Synthesizer, choose_checkpoints

SPECS = REGISTRY.values()
HELD_OUT = Path("filelists/sentences_audio_text_val_filelist.txt")


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(SpeakingOptions):
    """Options of evaluate.py; `other_…` are the voice to compare with."""

    input: Path = option(
        HELD_OUT,
        "filelist audio|text, or text file with one phrase per line; each line is synthesised in one piece",
        "-i",
    )
    dataset_path: str = option("./", "folder that the filelist's paths are relative to")
    output: Path = option(Path("output/evaluation"), "folder of the report", "-o")
    lines: int | None = option(None, "evaluate only N lines, evenly spaced (default: all)", type=positive)
    without: list[str] = option(
        [],
        "measures to leave out: asr (word errors), mos (opinion score), likeness (to the recording)",
        nargs="+",
        choices=MEASURED,
    )
    hearing: RecogniserConfig = section(RecogniserConfig)
    other_named: dict[str, Path] = field(default_factory=dict)  # checkpoints by the flags of their models
    other_vocoder: str | None = None


# By the system's name: its renditions, and how much faster than real time they were made.
Renditions = dict[str, tuple[list[Rendition], float]]


def main(argv: list[str] | None = None) -> None:
    """Read lines, load voices and evaluators, synthesise, measure, and write the report."""
    options = parse_args(sys.argv[1:] if argv is None else argv)
    device = precision.pick_device(cpu=options.cpu)
    precision.configure(cudnn_enabled=True, cudnn_benchmark=False)
    precision.keep_freed_memory(device)
    if options.config.int8 and (note := precision.int8_note(device)):
        print(printable(note))
    voices = load_voices(options, device)
    main_voice, rate = voices[""], voices[""].audio.sampling_rate
    items = read_items(options, main_voice)
    with explain_refusal(f"{options.output}: cannot be a folder", "choose another --output"):
        make_folder(options.output)
    measures = [name for name in MEASURED if name not in [*options.without, *not_built()]]
    evaluators = Evaluators(measures, recogniser_for(options))
    outputs = anchors(items, main_voice)
    for prefix, voice in voices.items():
        print(printable(f"{prefix}{voice_line(voice)}"), flush=True)
        outputs |= synthesise(items, voice, prefix)
    systems = [
        evaluate_system(name, items, renditions, speed, evaluators, rate)
        for name, (renditions, speed) in outputs.items()
    ]
    settings = {f"{prefix}{voice_line(voice)}": options.flags | voice.settings() for prefix, voice in voices.items()}
    write(systems, settings, main_voice, options)


def recogniser_for(options: EvaluationOptions) -> RecogniserConfig:
    """Return the recogniser for --language, else for the language that the voice's folder names."""
    if options.hearing.language or options.voice is None:
        return options.hearing
    return replace(options.hearing, language=about_voice(options.voice).language)


def not_built() -> list[str]:
    """Name the measure that is left out where no compiler built its package, and print why."""
    if find_spec("pyworld") is not None:
        return []
    print(
        f"no pyworld, which a C++ compiler builds (apt install g++): the comparison with recordings is left out; {INSTALL}"
    )
    return ["likeness"]


def load_voices(options: EvaluationOptions, device: torch.device) -> dict[str, Synthesizer]:
    """Load the main voice, chosen as in inference.py, and as "other " the voice of --other-….

    Raises DataError if their sampling rates differ.
    """
    voice, other_named = named_voice(options, options.config, device), options.other_named
    if not other_named and not options.other_vocoder:
        return {"": voice}
    if options.export:
        raise UsageError("--export: has models of its own; leave --other-… out")
    config = replace(options.config, vocoder=other_vocoder(options, voice))
    choice = choose_checkpoints(options.checkpoints(SPECS) | other_named, config.vocoder)
    other = Synthesizer.from_choice(choice, config=config, device=device)
    rate, other_rate = voice.audio.sampling_rate, other.audio.sampling_rate
    if rate != other_rate:
        raise DataError(f"{voice_line(other)}: {other_rate} Hz, expected {rate} Hz as {voice_line(voice)}")
    return {"": voice, "other ": other}


def other_vocoder(options: EvaluationOptions, voice: Synthesizer) -> str | None:
    """Choose the other voice's vocoder: --other-vocoder, the one given as --other-FLAG, or the main voice's."""
    vocoders = [flag for flag in vocoder_flags(SPECS) if flag in options.other_named]
    if options.other_vocoder == GRIFFIN_LIM and vocoders:
        raise UsageError(f"--other-vocoder {GRIFFIN_LIM}: needs no --other-{vocoders[0]}, give one of them")
    own = GRIFFIN_LIM if voice.vocoding.spec.flag == GRIFFIN_LIM else options.flags["vocoder"]
    return options.other_vocoder or next(iter(vocoders), own)


def voice_line(voice: Synthesizer) -> str:
    """Return the line that names a voice's files."""
    return f"voice: {voice.description}"


def vocoders_of(voice: Synthesizer) -> dict[str, Vocoder]:
    """Return Griffin-Lim and the voice's own vocoder, if that is another."""
    plain = Vocoder(griffin_lim_of(voice.acoustic, voice.device), voice.audio, voice.device)
    return {GRIFFIN_LIM: plain, voice.vocoding.spec.name: voice.vocoder}


def synthesise(items: list[HeldOutLine], voice: Synthesizer, prefix: str) -> Renditions:
    """Synthesise all lines with each vocoder of a voice."""
    half, seed = voice.config.half, voice.config.seed or 0
    outputs = renditions_from_texts(items, voice.acoustic, vocoders_of(voice), voice.audio, voice.device, half, seed)
    return {f"{prefix}{voice.acoustic.spec.name}, {name}": renditions for name, renditions in outputs.items()}


def read_items(options: EvaluationOptions, voice: Synthesizer) -> list[HeldOutLine]:
    """Read the lines, with their recordings if the file is a filelist. Raises DataError for all lines that cannot be read."""
    try:
        with options.input.open("rb") as file:
            has_recordings = b"|" in file.readline()
    except OSError:
        has_recordings = True  # then read_filelist raises the error
    if has_recordings:
        rows = read_filelist(options.input)
        check_files(rows, options.input, options.dataset_path)
    else:
        rows = [Utterance("", text) for text in read_phrases(options.input)]
    if mels := [row.path for row in rows if is_mel(row)]:
        raise DataError(f"{options.input}: names cached mels, such as {mels[0]}, expected audio to compare with")
    with lines_of(options.input):
        voice.check(voice.lines([row.text for row in rows]))
    with_words = [row for row in rows if voice.has_words(row.text)]
    if len(with_words) < len(rows):
        print(
            printable(
                f"{options.input}: {len(rows) - len(with_words)} of {counted(len(rows), 'line')} without words: left out"
            )
        )
    items = []
    for row in spread(with_words, options.lines or len(with_words)):
        item = HeldOutLine(row.text, None)
        if has_recordings:
            item = make_held_out_line(row, options.dataset_path, voice.audio)
        items.append(item._replace(spoken_form="".join(voice.symbols(row.text))))
    return items


def anchors(items: list[HeldOutLine], voice: Synthesizer) -> Renditions:
    """Return the anchors of the comparison: the recordings, and their true mels vocoded by each vocoder."""
    if any(item.recording is None for item in items):
        return {}
    outputs: Renditions = {"recordings": (recordings(items), math.nan)}
    for name, vocoder in vocoders_of(voice).items():
        renditions = renditions_from_true_mels(items, vocoder, voice.audio, voice.device, voice.config.seed or 0)
        outputs[f"true mels, {name}"] = renditions
    return outputs


def write(
    systems: list[System], settings: Mapping[str, Mapping[str, Any]], voice: Synthesizer, options: EvaluationOptions
) -> None:
    """Print the table; write all numbers, and the page, which lists the main system's worst lines first."""
    main_system = next(one for one in reversed(systems) if one.name.startswith(voice.acoustic.spec.name))
    texts = {name: {key: str(value) for key, value in values.items()} for name, values in settings.items()}
    report, numbers = options.output / "report.html", options.output / "report.json"
    title = f"Quality of speech: {options.input.name}"
    with explain_refusal(f"{options.output}: cannot write the report", "choose another --output"):
        write_text(numbers, json.dumps(as_json(systems, texts), indent=1, ensure_ascii=False))
        write_text(report, page(title, systems, main_system, voice.audio.sampling_rate))
    print(printable(f"{table(systems, shutil.get_terminal_size().columns)}\n\n{legend()}\n\n{report}\n{numbers}"))


def parse_args(argv: list[str]) -> EvaluationOptions:
    """Parse all flags. Raises UsageError for values out of range."""
    parser = Parser(prog="evaluate.py", usage="%(prog)s [-i FILELIST] [flags]  (-h lists them)", description=__doc__)
    add_fields(parser, EvaluationOptions, "export", *EvaluationOptions.__annotations__)
    for spec in SPECS:
        text = f"{spec.role} model to compare with"
        parser.add_argument(
            f"--other-{spec.flag}", dest=f"other_{spec.flag}", type=Path, metavar="CHECKPOINT", help=text
        )
    text = "vocoder of the other voice (default: --vocoder)"
    parser.add_argument("--other-vocoder", choices=vocoder_names(SPECS), help=text)
    add_speaking_arguments(parser, SPECS)
    options = speaking_options(EvaluationOptions, parser, argv, SPECS)
    others = {spec.flag: path for spec in SPECS if (path := options.flags[f"other_{spec.flag}"])}
    return replace(options, other_named=others, other_vocoder=options.flags["other_vocoder"])


if __name__ == "__main__":
    with exit_on_user_error():
        main()
