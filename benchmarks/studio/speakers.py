"""Measure the threshold of several speakers in studio.prepare: false alarms and detections on voices of Debian's packages.

    python -m benchmarks.studio.speakers          # needs ffmpeg and, to fetch the prompts, apt
    apt-get install espeak-ng flite festival festvox-kdlpc16k festvox-us-slt-hts    # the synthetic voices, before it

Real voices are Asterisk's prompts in five languages, without those whose transcripts name tones. Synthetic ones speak the
sentences of studio/reading_script.txt. Voices that are not installed are left out and named. From the embeddings of a voice's
clips, sets are drawn at random: of one voice, or of two. Two languages or two synthesisers of one speaker are never a pair.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile

from benchmarks.machine import command_of, stamp
from benchmarks.studio import asterisk
from common.arguments import LineHelpFormatter, positive, seed
from common.data.sources import file_digest
from common.errors import DataError, exit_on_user_error
from common.files import make_folder, read_lines
from common.parser import Parser
from common.tables import markdown_table
from studio.prepare.arguments import CuttingConfig
from studio.prepare.ledger import Ledger
from studio.prepare.recognition import ClipSound
from studio.prepare.speakers import ALIKE, SEVERAL, describe_voices, find_voices

SCRIPT = Path("studio/reading_script.txt")
CLIPS = 40  # of a set
SHARES = (0.2, 0.5)  # of a set's clips, of its second voice
MOST = 100  # clips of a voice


class VoiceSource(NamedTuple):
    """A voice: its name, its speaker, and `write(folder)`, which returns its clips; raises DataError if it is not installed."""

    name: str
    speaker: str
    write: Callable[[Path], list[Path]]


class Voice(NamedTuple):
    """A voice with the embeddings (K, D) of its clips."""

    name: str
    speaker: str
    clips: np.ndarray


class SetOutcome(NamedTuple):
    """A set: its voices, the second one's share; the likeness of the groups found, and the share of clips in the smaller one."""

    voices: tuple[str, ...]
    share: float
    likeness: float
    others: float

    @property
    def is_refused(self) -> bool:
        """True where studio.prepare stops and asks for --allow-several-speakers."""
        return self.others >= SEVERAL


def main(argv: list[str] | None = None) -> None:
    """Speak or fetch the voices, draw the sets, and print the tables."""
    words = sys.argv[1:] if argv is None else argv
    args = parse_args(words)
    voices, missing = [], []
    with Ledger(args.output / "voices.jsonl") as ledger:
        for source in sources(args.asterisk):
            try:
                voices.append(describe(source, args.output / source.name, ledger, args.num_workers))
            except DataError as error:
                missing.append(f"{source.name} ({error})")
    if len(voices) < 2:
        raise DataError(f"{len(voices)} voices are available, expected 2 or more; left out: {', '.join(missing)}")
    outcomes = list(measure(voices, args.sets, np.random.default_rng(args.seed)))
    print(report(voices, missing, outcomes, words))


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command's flags."""
    parser = Parser(
        prog="python -m benchmarks.studio.speakers",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=LineHelpFormatter,
    )
    add = parser.add_argument
    add("-o", "--output", type=Path, default=Path("output/speakers_benchmark"), help="folder of the clips")
    add("--asterisk", type=Path, default=Path("asterisk"), help="folder of the prompts; missing ones are fetched")
    add("--sets", type=positive, default=30, metavar="N", help="single-voice sets per voice")
    add("--seed", type=seed, default=1, help="seed of the sets")
    add("--num-workers", type=positive, default=os.cpu_count() or 1, help="processes")
    return parser.parse_args(argv)


# ---- voices ----------------------------------------------------------------------------------------------------------


def sources(prompts: Path) -> list[VoiceSource]:
    """List all voices. The English prompts lie in the folder itself, where other commands look for them."""
    listed = []
    for language, folder in asterisk.FOLDERS.items():
        place = prompts if language == asterisk.ENGLISH else prompts / language

        def decode(_: Path, place: Path = place, language: str = language) -> list[Path]:
            return [row.path for row in asterisk.prepare(place, os.environ, language).recordings]

        listed.append(VoiceSource(f"asterisk-{language}", folder.rpartition("_")[2], decode))
    listed.append(VoiceSource("espeak-ng", "espeak-ng", lambda folder: speak_each("espeak-ng", espeak, folder)))
    for name in ("kal16", "awb", "rms", "slt"):

        def flite(text: str, path: Path, name: str = name) -> list[str]:
            return ["flite", "-voice", name, "-t", text, "-o", str(path)]

        listed.append(
            VoiceSource(f"flite-{name}", name, lambda folder, flite=flite: speak_each("flite", flite, folder))
        )
    for name, speaker in (("ked_diphone", "ked"), ("cmu_us_slt_arctic_hts", "slt")):
        listed.append(
            VoiceSource(f"festival-{speaker}", speaker, lambda folder, name=name: speak_with_festival(name, folder))
        )
    return listed


def espeak(text: str, path: Path) -> list[str]:
    """Return the command of espeak-ng."""
    return ["espeak-ng", "-v", "en-us", "-w", str(path), text]


def speak_each(tool: str, command: Callable[[str, Path], list[str]], folder: Path) -> list[Path]:
    """Speak the sentences with a process each. Raises DataError where the tool is not installed or fails."""
    paths = []
    for path, text in sentences(tool, folder):
        if not path.is_file():
            _run(command(text, path.with_suffix(".part")))
            path.with_suffix(".part").replace(path)
        paths.append(path)
    return paths


def speak_with_festival(voice: str, folder: Path) -> list[Path]:
    """Speak the sentences with one process. Raises DataError where festival or its voice is not installed."""
    pairs = list(sentences("festival", folder))
    if voice not in _run(["festival", "-b", "(print (voice.list))"]):
        raise DataError(f"festival has no voice {voice}")
    if not all(path.is_file() for path, _ in pairs):
        lines = [f'(utt.save.wave (utt.synth (Utterance Text "{text}")) "{path}" \'riff)' for path, text in pairs]
        script = folder / "speak.scm"
        script.write_text("\n".join([f"(voice_{voice})", *lines, ""]), encoding="utf-8")
        _run(["festival", "-b", str(script)])
    return [path for path, _ in pairs]


def sentences(tool: str, folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield a wav and the sentence to speak into it. Raises DataError where the tool is not installed."""
    if not shutil.which(tool):
        raise DataError(f"{tool} is not installed")
    make_folder(folder)
    for number, line in enumerate(line for line in read_lines(SCRIPT) if line.strip()):
        yield folder / f"{number:03}.wav", line.replace('"', "")


def _run(command: Sequence[str]) -> str:
    """Run a synthesiser and return its output. Raises DataError with its last line if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise DataError(f"{command[0]}: {(done.stderr.strip() or f'exit code {done.returncode}').splitlines()[-1]}")
    return done.stdout


def describe(source: VoiceSource, folder: Path, ledger: Ledger, workers: int) -> Voice:
    """Return the embeddings of at most MOST clips, spread over all of a length that studio.prepare cuts."""
    limits = CuttingConfig()
    paths = [
        p for p in source.write(folder) if limits.min_duration <= soundfile.info(p).duration <= limits.max_duration
    ]
    if len(paths) < CLIPS:
        raise DataError(f"{len(paths)} clips of 1 to 11 s, expected {CLIPS} or more")
    chosen = [paths[place] for place in np.linspace(0, len(paths) - 1, min(MOST, len(paths))).round().astype(int)]
    sounds = [ClipSound(path, file_digest(path)) for path in chosen]
    print(f"{source.name}: {len(sounds)} clips", file=sys.stderr, flush=True)
    return Voice(source.name, source.speaker, describe_voices(sounds, ledger, workers))


# ---- sets ------------------------------------------------------------------------------------------------------------


def measure(voices: Sequence[Voice], sets: int, generator: np.random.Generator) -> Iterator[SetOutcome]:
    """Yield the outcome of `sets` sets of each voice, and of a set of each ordered pair of speakers with each of SHARES."""
    for voice in voices:
        for _ in range(sets):
            yield draw_set((voice,), 0.0, generator)
    for first in voices:
        for second in voices:
            if first.speaker != second.speaker:
                for share in SHARES:
                    yield draw_set((first, second), share, generator)


def draw_set(voices: tuple[Voice, ...], share: float, generator: np.random.Generator) -> SetOutcome:
    """Draw a set of CLIPS clips, of which `share` are of the second voice, and divide it as studio.prepare does."""
    counts = (CLIPS - round(share * CLIPS), round(share * CLIPS))
    parts = [
        voice.clips[generator.permutation(len(voice.clips))[:count]]
        for voice, count in zip(voices, counts, strict=False)
    ]
    found = find_voices(np.concatenate(parts))
    return SetOutcome(tuple(voice.name for voice in voices), share, found.likeness, len(found.others) / CLIPS)


# ---- report ----------------------------------------------------------------------------------------------------------


def report(voices: Sequence[Voice], missing: Sequence[str], outcomes: Sequence[SetOutcome], argv: Sequence[str]) -> str:
    """The tables as Markdown, with the machine, the command, the date and the voices that are left out."""
    lines = [f"`{command_of('studio.speakers', argv)}`, {stamp()}: {len(voices)} voices, sets of {CLIPS} clips", ""]
    lines += [f"left out: {name}" for name in missing] + [""] * bool(missing)
    single = [outcome for outcome in outcomes if len(outcome.voices) == 1]
    rows = [
        [f"one voice: a likeness below {ALIKE:g}", _count([outcome.others > 0 for outcome in single])],
        ["one voice: refused", _count([outcome.is_refused for outcome in single])],
    ]
    for share in SHARES:
        pairs = [outcome for outcome in outcomes if outcome.share == share]
        rows.append([f"two voices, {100 * share:.0f} % of the second: refused", _count([o.is_refused for o in pairs])])
    lines += [markdown_table("<>", ["sets", "number"], rows), ""]
    lines += [f"false alarms: {_tally([outcome for outcome in single if outcome.others > 0])}"]
    lines += [f"missed: {_tally([o for o in outcomes if len(o.voices) == 2 and not o.is_refused])}"]
    return "\n".join(lines)


def _count(results: Sequence[bool]) -> str:
    return f"{sum(results)} of {len(results)}"


def _tally(outcomes: Sequence[SetOutcome]) -> str:
    """Count sets by their voices."""
    names = [" + ".join(outcome.voices) for outcome in outcomes]
    return ", ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names)) or "none"


if __name__ == "__main__":
    with exit_on_user_error():
        main()
