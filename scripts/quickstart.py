"""The quickstart, as the commands you would type yourself: the included voice, mels, small models, five phrases, a report.

Called by scripts/quickstart.sh, which sets up the environment. Every step prints its command; finished steps are not repeated.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import importlib.util
import json
import math
import os
import shlex
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from common.checkpoint.files import load_checkpoint
from common.errors import exit_on_user_error
from common.files import make_folder, read_lines
from common.options import ABOVE_ZERO, check_fields, option, parse_options
from common.run.nvlog import RECORD
from models import REGISTRY

VOICE = Path("voice/tacotron2.safetensors")
VOICE_PITCH = Path("voice/pitch.safetensors")
FIRST_PHRASE = Path("phrases/phrase.txt")
PHRASES = Path("phrases/clock.txt")
LISTS = {split: Path(f"filelists/clock_audio_text_{split}_filelist.txt") for split in ("train", "val")}
HELD_OUT = LISTS["val"]
OUTPUT = Path("output/quickstart")
MOST_EPOCHS = 12_000  # of which train.py trains as many as fit the time
ROUNDS = 6  # validations, and checkpoints, in all of them
MOST_THREADS = 4
# Small models do small operations: many threads would wait for each other, and fresh memory would cost page faults each time.
ENVIRONMENT = {
    **({"OMP_NUM_THREADS": str(MOST_THREADS)} if (os.cpu_count() or 1) > MOST_THREADS else {}),
    "MALLOC_MMAP_THRESHOLD_": str(2**32),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
}


class Training(NamedTuple):
    """The training of one model: its flags, its share of the minutes, and its learning rate schedule.

    `milestones` are the epochs at which the rate drops, as shares of all epochs; none means a cosine to zero. With fewer than
    `enough` steps, more than a third of the words are wrong.
    """

    name: str
    share: float
    milestones: tuple[float, ...]
    flags: str
    stored_mels: bool = False
    enough: int = 0


class QuickstartPlan(NamedTuple):
    """One way through the quickstart: its command, output folder, trainings, and vocoders, the best last."""

    command: str
    output: Path
    trainings: tuple[Training, ...]
    vocoders: tuple[str, ...]

    def list_of(self, split: str) -> Path:
        """The filelist of the plan's own mels; those in corpus/mels may have other settings."""
        return self.output / f"mel_text_{split}.txt"


TACOTRON2 = Training(
    "Tacotron2",
    0.95,
    (0.7, 0.88),
    "-bs 16 -lr 3e-3 --bucket-batches 14 --n-frames-per-step 5 --p-attention-dropout 0 --p-decoder-dropout 0"
    " --guided-attention-weight 100 --guided-attention-sigma 0.2 --disable-uniform-initialize-bn-weight"
    " --symbols-embedding-dim 256 --encoder-embedding-dim 384 --encoder-n-convolutions 1 --prenet-dim 256"
    " --attention-rnn-dim 384 --attention-dim 64 --attention-location-kernel-size 15 --decoder-rnn-dim 512"
    " --postnet-embedding-dim 64 --postnet-n-convolutions 2 --p-convolution-dropout 0.1",
    stored_mels=True,
    enough=1100,
)
PULSE_NOISE = Training("PulseNoise", 0.05, (), "")
WAVEGLOW = Training(
    "WaveGlow",
    0.15,
    (0.8,),
    "-bs 8 -lr 2e-3 --warmup-steps 50 --segment-length 4096"
    " --flows 8 --groups 32 --early-size 8 --upsample-channels 8 --wn-channels 64 --wn-layers 5",
)


def make_plan(waveglow: bool, pulse_noise: bool) -> QuickstartPlan:
    """The plan: Tacotron 2 and pulse-noise, where its training can run here, and a WaveGlow if asked for."""
    others = [part for part, wanted in ((WAVEGLOW, waveglow), (PULSE_NOISE, pulse_noise)) if wanted]
    first = TACOTRON2._replace(share=1 - sum(part.share for part in others))
    vocoders = ["griffin-lim", *(REGISTRY[part.name].flag for part in others)]
    command = "bash scripts/quickstart.sh" + (" --waveglow" if waveglow else "")
    return QuickstartPlan(command, OUTPUT, (first, *others), tuple(vocoders))


def main() -> None:
    """Run every step that is not done yet, then show the results."""
    args = parse_args()
    minutes = args.minutes
    make_folder(OUTPUT)
    os.environ.update({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()})
    say("1. the included voice (voice/README.md)")
    speak_with_voice(OUTPUT)
    say("2. what measures speech, and pitch")
    measures = install_evaluators()
    plan = make_plan(args.waveglow, bool(importlib.util.find_spec("pyworld")))
    say("3. mels of the included corpus, a talking clock (corpus/README.md)")
    prepare_mels(plan)
    longer = 3 * minutes
    for number, part in enumerate(plan.trainings, 4):
        say(f"{number}. {part.name}: {part.share * minutes:.1f} minutes of training")
        longer = max(longer, train(plan, part, part.share * minutes))
    say(f"{number + 1}. five times of day that appear in no training clip ({PHRASES})")
    for name in plan.vocoders:
        speak(plan, name)
    say(f"{number + 2}. how much is understood of the held-out clips ({HELD_OUT}); takes some minutes")
    understood = compare(plan) if measures else None
    print(conclusion(plan, understood, longer))


@dataclass(frozen=True, kw_only=True)
class QuickstartOptions:
    """The command's flags. Raises UsageError for no time at all."""

    minutes: float = option(
        10.0, "minutes of training, for all models together (QUICKSTART_MINUTES sets it, too)", check=ABOVE_ZERO
    )
    waveglow: bool = option(False, "train a small WaveGlow, too, which in so little time only buzzes")

    def __post_init__(self) -> None:
        check_fields(self)


def parse_args(arguments: list[str] | None = None) -> QuickstartOptions:
    return parse_options(QuickstartOptions, "bash scripts/quickstart.sh", __doc__, arguments)


def say(heading: str) -> None:
    print(f"\n== {heading}", flush=True)


def run(command: list[str], log: Path | None = None) -> None:
    """Print and run a command; its stdout goes to the log, if given."""
    shown = shlex.join(["python" if word == sys.executable else word for word in command])
    print(f"$ {shown}" + (f" > {log}" if log else ""), flush=True)
    with log.open("w") if log else nullcontext() as file:
        ended = subprocess.run(command, stdout=file)
    if ended.returncode:
        place = f"; its output is in {log}" if log else ""
        raise SystemExit(f"error: this command failed with exit code {ended.returncode}{place}")


def prepare_mels(plan: QuickstartPlan) -> None:
    """Write the plan's mel filelists and any missing mels."""
    for split, path in LISTS.items():
        rows = [line.split("|") for line in read_lines(path)]
        lines = (f"{plan.output}/mels/{Path(audio).stem}.pt|{text}\n" for audio, text in rows)
        plan.list_of(split).write_text("".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "common.data.mels", "--audio-filelist", *map(str, LISTS.values())]
    run([*command, "--mel-filelist", *(str(plan.list_of(split)) for split in LISTS)])


def train(plan: QuickstartPlan, part: Training, minutes: float) -> float:
    """Train for this many minutes, those of earlier runs included, and print what train.py says; return what `advise` does."""
    output = plan.output / part.name
    milestones = [str(round(share * MOST_EPOCHS)) for share in part.milestones]
    schedule = ["--anneal-steps", *milestones] if milestones else ["--lr-schedule", "cosine"]
    length = ["--epochs", str(MOST_EPOCHS), "--max-minutes", f"{minutes:g}"]
    command = [*train_command(plan, part, output), *length, *schedule]
    for interval in ("validation", "checkpoint"):
        command += [f"--epochs-per-{interval}", str(MOST_EPOCHS // ROUNDS)]
    follow([*command, "--resume-from-last"])
    steps = load_checkpoint(last_checkpoint(plan, part))["iteration"]
    return advise(plan, part, steps, minutes)


def advise(plan: QuickstartPlan, part: Training, steps: int, minutes: float) -> float:
    """Return the minutes of all trainings that give this one enough steps; say so if it had fewer in these minutes of its own."""
    needed = math.ceil(minutes / part.share * part.enough / steps)
    if steps < part.enough:
        print(f"   {steps} steps; with fewer than {part.enough:,}, more than a third of the words are wrong")
        print(f"   QUICKSTART_MINUTES={needed} {plan.command} goes on for long enough", flush=True)
    return needed


def train_command(plan: QuickstartPlan, part: Training, output: Path) -> list[str]:
    lists = {split: plan.list_of(split) for split in LISTS} if part.stored_mels else LISTS
    command = [sys.executable, "train.py", "-m", part.name, "-o", str(output), "--amp", "--seed", "1"]
    command += ["--training-files", str(lists["train"]), "--validation-files", str(lists["val"])]
    return [*command, *(["--load-mel-from-disk"] if part.stored_mels else []), *part.flags.split()]


def follow(command: list[str]) -> None:
    """Run a training and print its sentences; the record of each step is in its log."""
    print(f"$ {shlex.join(['python', *command[1:]])}", flush=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if not line.startswith(RECORD):
                    print(f"   {line}", end="", flush=True)
        except BaseException:  # such as Ctrl-C, which the child receives as well
            process.terminate()  # it saves first
            process.wait()
            raise
    if process.returncode:
        raise SystemExit(f"error: training failed with exit code {process.returncode}, for the reason above")


def speak(plan: QuickstartPlan, vocoder: str) -> None:
    """Speak the phrases through a vocoder, into a folder of its name."""
    output = plan.output / vocoder
    command = [sys.executable, "inference.py", "-i", str(PHRASES), "-o", str(output)]
    run(
        [*command, "--seed", "0", "--max-decoder-steps", "400", *clock_flags(plan, vocoder)], output.with_suffix(".log")
    )


def clock_flags(plan: QuickstartPlan, vocoder: str) -> list[str]:
    """The flags for the clock that was trained, through a vocoder."""
    checkpoints = {REGISTRY[part.name].flag: str(last_checkpoint(plan, part)) for part in plan.trainings}
    acoustic = REGISTRY[TACOTRON2.name].flag
    own = [f"--{vocoder}", checkpoints[vocoder]] if vocoder in checkpoints else []
    return [f"--{acoustic}", checkpoints[acoustic], "--vocoder", vocoder, *own]


def speak_with_voice(folder: Path) -> None:
    output = folder / "voice"
    command = [sys.executable, "inference.py", "-i", str(FIRST_PHRASE), "-o", str(output), *voice_flags("--")]
    run(command, output.with_suffix(".log"))
    print(f"{output}/audio_0.wav  {FIRST_PHRASE.read_text(encoding='utf-8').strip()}")


def install_evaluators() -> bool:
    """Install the speech recogniser and what finds the pitch; return whether the recogniser is there."""
    print("$ bash scripts/evaluation.sh", flush=True)
    if subprocess.run(["bash", "scripts/evaluation.sh"]).returncode == 0:
        return True
    print("   the speech recogniser could not be installed (see above); `bash scripts/evaluation.sh` tries again")
    return False


def compare(plan: QuickstartPlan) -> dict[str, float]:
    """Write the quality report on the held-out clips; return the share of words understood by system."""
    report = plan.output / "report"
    command = [sys.executable, "evaluate.py", "-i", str(HELD_OUT), "-o", str(report), "--max-decoder-steps", "400"]
    # Opinion scores take most of a report's minutes, and are no part of the conclusion.
    command += ["--without", "mos", "likeness"]
    command += [*clock_flags(plan, plan.vocoders[-1]), *voice_flags("--other-")]
    run(command, report.with_suffix(".log"))
    systems = json.loads((report / "report.json").read_text(encoding="utf-8"))["systems"]
    return {system["name"]: max(0.0, 1 - system["summary"]["wer"][0]) for system in systems}


def voice_flags(prefix: str) -> list[str]:
    """The flags for the included voice through its best vocoder."""
    return f"{prefix}tacotron2 {VOICE} {prefix}pulse-noise {VOICE_PITCH} {prefix}vocoder pulse-noise".split()


def last_checkpoint(plan: QuickstartPlan, part: Training) -> Path:
    return plan.output / part.name / f"checkpoint_{part.name}_last.pt"


def conclusion(plan: QuickstartPlan, understood: dict[str, float] | None, longer: float) -> str:
    """Three lines for a newcomer: what to play, how much of it is understood, and how to train for more minutes."""
    best = plan.vocoders[-1]
    first = PHRASES.read_text(encoding="utf-8").splitlines()[0]
    measured = "not measured, since there is no recogniser: run this again when it can be installed"
    if understood is not None:
        vocoder = next((part.name for part in plan.trainings if REGISTRY[part.name].flag == best), best)
        clock, recorded = (100 * understood[name] for name in (f"{TACOTRON2.name}, {vocoder}", "recordings"))
        measured = f"{clock:.0f} of 100 words, of the recordings {recorded:.0f} ({plan.output}/report/report.html)"
    rows = {
        "Play it": f'{plan.output}/{best}/audio_0.wav says "{first}"',
        "Understood": measured,
        "Train on": f"QUICKSTART_MINUTES={longer:g} {plan.command}",
    }
    return "\n" + "\n".join(f"{name + ':':<13}{text}" for name, text in rows.items())


if __name__ == "__main__":
    with exit_on_user_error():
        main()
