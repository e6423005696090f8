"""The quickstart's steps as the commands anyone would type: the voice that is here, mels, two small models, five phrases, a report.

Called by scripts/quickstart.sh, which makes the environment. Every step prints its command; finished steps are not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import soundfile
from tqdm import tqdm

from common.errors import exit_on_user_error
from common.files import read_lines
from common.training.nvlog import read_log

OUTPUT = Path("output/quickstart")
VOICE = Path("voice/tacotron2.safetensors")
FIRST_PHRASE = Path("phrases/phrase.txt")
PHRASES = Path("phrases/clock.txt")
HELD_OUT = Path("filelists/clock_audio_text_val_filelist.txt")
SAID_EVERY = 20.0  # seconds between lines about training where there is no terminal
MOST_THREADS = 4
# Small models do small operations: many threads would wait for each other, and fresh memory for each would cost page faults.
ENVIRONMENT = {
    **({"OMP_NUM_THREADS": str(MOST_THREADS)} if (os.cpu_count() or 1) > MOST_THREADS else {}),
    "MALLOC_MMAP_THRESHOLD_": str(2**32),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
}


class Part(NamedTuple):
    """One model's training: its flags, its share of the minutes, and where its rate falls, as shares of the epochs."""

    name: str
    share: float
    milestones: tuple[float, ...]
    flags: str


TACOTRON2 = Part(
    "Tacotron2",
    0.85,
    (0.7, 0.88),
    "--load-mel-from-disk --training-files filelists/clock_mel_text_train_filelist.txt"
    " --validation-files filelists/clock_mel_text_val_filelist.txt"
    " -bs 16 -lr 3e-3 --bucket-batches 14 --n-frames-per-step 3 --p-attention-dropout 0 --p-decoder-dropout 0"
    " --guided-attention-weight 100 --guided-attention-sigma 0.2 --disable-uniform-initialize-bn-weight"
    " --symbols-embedding-dim 256 --encoder-embedding-dim 384 --encoder-n-convolutions 1 --prenet-dim 256"
    " --attention-rnn-dim 384 --attention-dim 64 --attention-location-kernel-size 15 --decoder-rnn-dim 512"
    " --postnet-embedding-dim 64 --postnet-n-convolutions 2",
)
WAVEGLOW = Part(
    "WaveGlow",
    0.15,
    (0.8,),
    "--training-files filelists/clock_audio_text_train_filelist.txt"
    " --validation-files filelists/clock_audio_text_val_filelist.txt"
    " -bs 8 -lr 2e-3 --warmup-steps 50 --segment-length 4096 --flows 8 --groups 32 --early-size 8 --upsample-channels 8"
    " --wn-channels 64 --wn-layers 5",
)


def main() -> None:
    """Do every step that is not done yet, then show the table."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=10.0, help="of training, both models together")
    minutes = parser.parse_args().minutes
    if not minutes > 0:
        parser.error(f"--minutes: {minutes}, expected more than 0 (QUICKSTART_MINUTES)")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    os.environ.update({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()})
    say("1. the voice that comes with it (voice/README.md)")
    if VOICE.exists():
        speak_with_voice()
    else:
        print(f"there is no {VOICE} yet; the model trained below is the first voice")
    say("2. mels of the embedded talking clock, a synthetic voice (corpus/README.md)")
    run(["bash", "scripts/prepare_mels.sh", "clock"])
    for number, part in enumerate((TACOTRON2, WAVEGLOW), 3):
        say(f"{number}. {part.name}: {part.share * minutes:.1f} minutes of training")
        train(part, part.share * minutes)
    say(f"5. five times of day that are in no training clip ({PHRASES})")
    spoken = {vocoder: speak(vocoder, PHRASES, OUTPUT / vocoder) for vocoder in ("waveglow", "griffin-lim")}
    ratio = length_ratio()
    say("6. results")
    print(table(spoken, ratio, minutes))
    say(f"7. how well they speak the held-out clips: the clock just trained, and the voice of step 1 ({HELD_OUT})")
    compare()


def say(heading: str) -> None:
    """Print a heading."""
    print(f"\n== {heading}", flush=True)


def run(command: list[str], log: Path | None = None) -> None:
    """Run a command after showing it; its stdout goes to the log where there is one."""
    shown = shlex.join(["python" if word == sys.executable else word for word in command])
    print(f"$ {shown}" + (f" > {log}" if log else ""), flush=True)
    with log.open("w") if log else nullcontext() as file:
        ended = subprocess.run(command, stdout=file)
    if ended.returncode:
        raise SystemExit(
            f"error: this command ended with exit code {ended.returncode}"
            + (f"; its output is in {log}" if log else "")
        )


def train(part: Part, minutes: float) -> None:
    """Train for about so many minutes: a pilot of one epoch tells how many that is on this machine."""
    output = OUTPUT / part.name
    plan = output / "plan.json"
    seconds = json.loads(plan.read_text())["epoch_seconds"] if plan.exists() else pilot(part)
    epochs = max(2, round(minutes * 60 / seconds))
    plan.write_text(json.dumps({"epoch_seconds": seconds}))
    rounds = max(1, round(epochs / 6))  # validations and checkpoints: about six
    milestones = [str(round(share * epochs)) for share in part.milestones]
    command = [*train_command(part, output), "--epochs", str(epochs), "--anneal-steps", *milestones]
    command += ["--epochs-per-validation", str(rounds), "--epochs-per-checkpoint", str(rounds), "--resume-from-last"]
    print(f"{seconds:.2f} s an epoch: {epochs} epochs", flush=True)
    watch(command, output / "stdout.log", output / "nvlog.json", epochs)


def pilot(part: Part) -> float:
    """Seconds an epoch takes on this machine."""
    output = OUTPUT / part.name / "pilot"
    log = output / "nvlog.json"
    log.unlink(missing_ok=True)
    output.mkdir(parents=True, exist_ok=True)
    run([*train_command(part, output), "--epochs", "1", "--bench-class", "perf-train"], output / "stdout.log")
    times = [data["train_iter_time"] for data in records(log) if "train_iter_time" in data]
    return statistics.median(times) * len(times)  # not the mean: first steps, and a machine's hiccups, take longer


def train_command(part: Part, output: Path) -> list[str]:
    """train.py with the part's flags."""
    return [sys.executable, "train.py", "-m", part.name, "-o", str(output), "--amp", "--seed", "1", *part.flags.split()]


def watch(command: list[str], stdout: Path, log: Path, epochs: int) -> None:
    """Run a training command with its stdout in a file, and show how far it is: a bar on a terminal, else a line now and then."""
    print(f"$ {shlex.join(['python', *command[1:]])} > {stdout}", flush=True)
    with stdout.open("w") as file, tqdm(total=epochs, unit="epoch", disable=not sys.stderr.isatty()) as bar:
        process = subprocess.Popen(command, stdout=file)
        try:
            show(process, log, bar)
        except BaseException:  # Ctrl-C for one, which the child receives as well
            process.terminate()  # it saves first
            process.wait()
            raise
    if process.returncode:
        raise SystemExit(f"error: training ended with exit code {process.returncode}; its output is in {stdout}")


def show(process: subprocess.Popen[bytes], log: Path, bar: tqdm) -> None:
    """Show a training's progress, as its log tells it, until it ends."""
    printed, reported = time.monotonic(), 0
    while process.poll() is None:
        time.sleep(1.0)
        done, loss = progress_of(log)
        bar.update(done - bar.n)
        bar.set_postfix_str(f"loss {loss:.3f}" if done else "")
        if bar.disable and done > reported and time.monotonic() - printed > SAID_EVERY:
            printed, reported = time.monotonic(), done
            print(f"   epoch {done} of {bar.total}, loss {loss:.3f}", flush=True)


def progress_of(log: Path) -> tuple[int, float]:
    """Epochs done and the last one's loss."""
    epochs = [data["train_loss"] for data in records(log) if "train_epoch_time" in data]
    return len(epochs), epochs[-1] if epochs else float("nan")


def records(log: Path) -> list[dict[str, Any]]:
    """The data of every record of a log, which may not be there yet."""
    return [record["data"] for record in read_log(log) if "data" in record] if log.exists() else []


def speak(vocoder: str, phrases: Path, output: Path) -> dict[str, Any]:
    """Synthesise a file of phrases; returns what inference logged."""
    command = [
        sys.executable,
        "inference.py",
        "-i",
        str(phrases),
        "-o",
        str(output),
        "--vocoder",
        vocoder,
        "--seed",
        "0",
    ]
    command += ["--tacotron2", str(last_checkpoint(TACOTRON2)), "--max-decoder-steps", "400"]
    if vocoder == "waveglow":
        command += ["--waveglow", str(last_checkpoint(WAVEGLOW))]
    run(command, output.with_suffix(".log"))
    return next(data for data in reversed(records(output / "nvlog.json")) if "latency" in data)


def speak_with_voice() -> None:
    """Speak a first phrase with the models that are in this repository."""
    output = OUTPUT / "voice"
    run(
        [sys.executable, "inference.py", "-i", str(FIRST_PHRASE), "-o", str(output), *voice_flags("--")],
        output.with_suffix(".log"),
    )
    print(f"{output}/audio_0.wav  {FIRST_PHRASE.read_text(encoding='utf-8').strip()}")


def compare() -> None:
    """The quality report on the held-out clips: the models just trained, and beside them the voice that was here."""
    print("$ bash scripts/evaluation.sh", flush=True)
    if subprocess.run(["bash", "scripts/evaluation.sh"]).returncode:
        print(
            "no report: its recogniser could not be installed, as said above; `bash scripts/evaluation.sh` tries again"
        )
        return
    command = [sys.executable, "evaluate.py", "-i", str(HELD_OUT), "-o", str(OUTPUT / "report")]
    command += ["--max-decoder-steps", "400"]
    for part in (TACOTRON2, WAVEGLOW):
        command += [f"--{part.name.lower()}", str(last_checkpoint(part))]
    run([*command, *voice_flags("--other-")])


def voice_flags(prefix: str) -> list[str]:
    """The flags that name the voice that is in this repository, through Griffin-Lim; none where it is not."""
    return [f"{prefix}tacotron2", str(VOICE), f"{prefix}vocoder", "griffin-lim"] if VOICE.exists() else []


def last_checkpoint(part: Part) -> Path:
    """Return the path of a part's last checkpoint."""
    return OUTPUT / part.name / f"checkpoint_{part.name}_last.pt"


def length_ratio() -> float:
    """Synthesised over recorded duration of the held-out clips."""
    rows = [line.split("|") for line in read_lines(HELD_OUT)]
    phrases = OUTPUT / "held_out_phrases.txt"
    phrases.write_text("".join(f"{text}\n" for _, text in rows), encoding="utf-8")
    speak("griffin-lim", phrases, OUTPUT / "held_out")
    seconds = sum(soundfile.info(str(OUTPUT / "held_out" / f"audio_{i}.wav")).duration for i in range(len(rows)))
    return seconds / sum(soundfile.info(path).duration for path, _ in rows)


def table(spoken: dict[str, dict[str, Any]], ratio: float, minutes: float) -> str:
    """Everything worth knowing of the run, and what to do next."""
    rows = []
    for part in (TACOTRON2, WAVEGLOW):
        data = records(OUTPUT / part.name / "nvlog.json")
        steps = sum("train_iter_time" in record for record in data)
        losses = [[record[key] for record in data if key in record][-1] for key in ("train_loss", "val_loss")]
        rows.append(
            (f"{part.name}: steps, loss in training, on held-out clips", f"{steps}, {losses[0]:.3f}, {losses[1]:.3f}")
        )
    rows += [
        ("attention focus: mean largest weight a frame (1 is best)", f"{spoken['waveglow']['attention_focus']:.2f}"),
        ("length ratio: synthesised / recorded, held-out clips", f"{ratio:.2f}"),
        ("sounds with WaveGlow", f"{OUTPUT}/waveglow/audio_*.wav"),
        ("sounds with Griffin-Lim (clearer after so little training)", f"{OUTPUT}/griffin-lim/audio_*.wav"),
        ("pictures of the attention", f"{OUTPUT}/griffin-lim/alignment_*.png"),
        ("curves, mels and sounds of the training", f"tensorboard --logdir {OUTPUT}"),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    return "\n".join(
        [
            *lines,
            "",
            f"Next: QUICKSTART_MINUTES={2 * minutes:g} bash scripts/quickstart.sh goes on from here;",
            f"  rm -r {OUTPUT} makes it start anew; your own phrases: the inference command above with another -i;",
            "  LJSpeech or your own voice: docs/training.md",
        ]
    )


if __name__ == "__main__":
    with exit_on_user_error():
        main()
