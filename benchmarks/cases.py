"""What the speed benchmark measures: pairs of calls, of a reference and of ours, that do the same work.

    for make in ROWS["waveglow-training"](Setting(CPU, device, amp=False)):
        case = make()
        case.reference(), case.ours()

A case is made where it is measured, in a process of its own: what another has left in memory costs it up to a third of its speed.
Training is train.py's own step, and inference is inference.py's own stages, on random weights and random clips.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks import latency, torchscript
from benchmarks.machine import Work, count_flops
from benchmarks.sizes import Setting
from common import precision
from common.audio.stft import AudioConfig
from common.fast import Request
from common.inference.stages import mels_from_texts
from common.inference.vocoders import LoadedModel, NeuralVocoder, Vocoder
from common.kernels.int8 import can_multiply
from common.spec import config_of
from common.training.checkpoint import save_checkpoint
from common.training.distributed import Dist
from common.training.loop import to_device, train_step
from common.training.optimization import Pace
from common.training_arguments import parse_training_arguments
from models import REGISTRY
from tacotron2.data_function import Tacotron2Batch
from train import make_state
from waveglow.data_function import WaveGlowBatch

# B clips, S symbols, T frames, N samples

ROOT = Path(__file__).resolve().parent.parent
AUDIO = AudioConfig()
SECONDS_PER_FRAME = AUDIO.hop_length / AUDIO.sampling_rate
SYMBOLS = 148  # ids to draw from
MEDIAN_FRAMES, SPREAD, SHORTEST, LONGEST = 545, 0.4, 100, 870  # LJSpeech's clips, roughly: 566 frames on average
FRAMES_PER_SYMBOL = 5.66
HUM = 0.02  # standard deviation of what takes the place of weights that are all zeros
IN_INT8 = "int8 (reference: float32)"
POLL = 0.002  # seconds between two looks for a file


class Case(NamedTuple):
    """A row of the table: two calls of the same work, and how much of its unit a call is; None where seconds are the figure."""

    name: str
    unit: str
    amount: float | None
    reference: Callable[[], Any]
    ours: Callable[[], Any]
    work: Callable[[], list[Work]] | None  # counts while the reference runs once
    half: bool = False  # whether products may be in half precision
    ms_each: bool = False  # whether milliseconds of one unit are worth showing
    int8: bool = False  # whether products may be in 8 bits


MakeCase = Callable[[], Case]


def training_case(name: str, make: Callable[[bool], TrainingStep], setting: Setting, unit: str) -> Case:
    """Training with plain layers against the fast ones, of the same weights; `make` takes whether it is in mixed precision."""
    reference = ours = make(setting.amp)
    if setting.amp != setting.reference_amp:
        reference = make(setting.reference_amp)

    def work() -> list[Work]:
        return [Work(count_flops(lambda: reference(plain=True)), weight_bytes(reference.state.model))]

    items = ours.batch.num_items.item()
    half = ours.state.half is not None
    calls = (lambda: reference(plain=True)), (lambda: ours(plain=False))
    return Case(f"{name}, {setting.numbers}", unit, items, *calls, work, half)


class TrainingStep:
    """train.py's step of a model with random weights, always on the same batch: called, it takes one."""

    def __init__(self, model: str, flags: str, batch: Any, dist: Dist, amp: bool = False) -> None:
        args, spec = parse_training_arguments(["-m", model, *flags.split(), *["--amp"] * amp], REGISTRY, "")
        clips = len(batch.names) * dist.world_size
        self.state, _ = make_state(spec, args, dist, Pace(1, clips, clips), warm=False)
        self.fast = self.state.trained.train()
        self.state.model.train()
        self.batch = to_device(batch, dist.device)

    def __call__(self, plain: bool) -> None:
        self.state.trained = self.state.model if plain else self.fast
        train_step(self.state, [self.batch])


def clips(size: int, symbols: int, frames: int | None) -> Tacotron2Batch:
    """Clips of noise, all of that many symbols and frames; or, without frames, of lengths as in LJSpeech."""
    mel_lengths = torch.full((size,), frames or 0)
    text_lengths = torch.full((size,), symbols)
    if frames is None:
        drawn = (MEDIAN_FRAMES * (SPREAD * torch.randn(size)).exp()).clamp(SHORTEST, LONGEST)
        mel_lengths = drawn.long().sort(descending=True).values
        text_lengths = (mel_lengths / FRAMES_PER_SYMBOL).long()
    places = torch.arange(int(mel_lengths.max()))
    inside = places < mel_lengths[:, None]
    return Tacotron2Batch(
        text=torch.randint(1, SYMBOLS, (size, int(text_lengths.max()))),
        text_lengths=text_lengths,
        mels=torch.randn(size, AUDIO.n_mel_channels, len(places)) * inside[:, None],
        gates=(places >= mel_lengths[:, None] - 1).float(),
        mel_lengths=mel_lengths,
        names=("noise",) * size,
    )


def segments(size: int, samples: int) -> WaveGlowBatch:
    """Segments of noise."""
    mels = torch.randn(size, AUDIO.n_mel_channels, math.ceil(samples / AUDIO.hop_length))
    audio = 0.1 * torch.randn(size, samples)
    return WaveGlowBatch(mels, audio, torch.full((size,), samples), ("noise",) * size)


def tacotron2_training(setting: Setting) -> Iterator[MakeCase]:
    """Batches of equal clips, or of LJSpeech's lengths."""
    for batch in setting.sizes.batches:
        yield functools.partial(tacotron2_step, setting, batch)


def tacotron2_step(setting: Setting, batch: int) -> Case:
    """A step of so many clips."""
    sizes = setting.sizes
    lengths = "LJSpeech's lengths" if sizes.frames is None else f"{sizes.symbols} symbols, {sizes.frames} frames"
    noise = clips(batch, sizes.symbols, sizes.frames)
    make = functools.partial(TrainingStep, "Tacotron2", sizes.tacotron2, noise, alone(setting.device))
    return training_case(f"Tacotron 2 training, {batch} clips of {lengths}", make, setting, "frames/s")


def waveglow_training(setting: Setting) -> Iterator[MakeCase]:
    """Segments of equal length, for each number of channels."""
    for channels in setting.sizes.training_channels:
        yield functools.partial(waveglow_step, setting, channels)


def waveglow_step(setting: Setting, channels: int) -> Case:
    """A step of a model of so many channels."""
    sizes = setting.sizes
    precision.configure(cudnn_enabled=True, cudnn_benchmark=True)
    flags = f"{sizes.waveglow} --wn-channels {channels}"
    noise = segments(sizes.segments, sizes.segment_length)
    make = functools.partial(TrainingStep, "WaveGlow", flags, noise, alone(setting.device))
    shape = f"{sizes.segments} x {sizes.segment_length} samples"
    return training_case(f"WaveGlow-{channels} training, {shape}", make, setting, "samples/s")


def tacotron2_inference(setting: Setting) -> Iterator[MakeCase]:
    """One text with a gate that never fires, in each precision."""
    yield functools.partial(decoding, setting, Request(), "float32")
    yield functools.partial(decoding, setting, Request(half=True), "half-precision weights")


def decoding(setting: Setting, wanted: Request, numbers: str) -> Case:
    """A scripted plain decoder against the prepared one."""
    sizes, device = setting.sizes, setting.device
    args, texts = synthesis_arguments(setting, sizes.decoder_frames), [latency.sentence(sizes.input_length)]
    plain, model = (make_ready("acoustic", args, device, how) for how in (None, wanted))
    scripted = plain._replace(model=torchscript.scripted(plain.model))
    ids, lengths = torch.randint(1, SYMBOLS, (1, sizes.input_length)), torch.tensor([sizes.input_length])
    for _ in range(2):  # TorchScript looks at a first run and rewrites itself in a second
        scripted.model.infer(ids.to(device), lengths.to(device), 2)

    def work() -> list[Work]:
        flops = count_flops(lambda: mels_from_texts(texts, plain, device, False))
        return [Work(flops, step_bytes(plain.model, wanted.half), latency.decoder_steps(args))]

    return Case(
        f"Tacotron 2 inference, {len(texts[0])} symbols, {numbers} (reference: TorchScript)",
        "frames/s",
        sizes.decoder_frames,
        lambda: mels_from_texts(texts, scripted, device, False),
        lambda: mels_from_texts(texts, model, device, wanted.half),
        work,
        wanted.half,
        ms_each=True,
    )


def waveglow_inference(setting: Setting) -> Iterator[MakeCase]:
    """One clip's mels to sound, in each precision."""
    device = setting.device
    halves = (False, True) if precision.half_dtype(device, True) else (False,)
    kinds = [Request(half) for half in halves] + [Request(int8=True)] * can_multiply(device)
    for wanted in kinds:
        yield functools.partial(vocoding, setting._replace(amp=wanted.half), wanted)


def vocoding(setting: Setting, wanted: Request) -> Case:
    """A plain model against one made fast, without the denoiser."""
    sizes, device = setting.sizes, setting.device
    args = synthesis_arguments(setting, sizes.decoder_frames)
    mels = torch.randn(1, AUDIO.n_mel_channels, sizes.vocoder_frames, device=device)
    lengths = torch.tensor([sizes.vocoder_frames])
    plain, fast = (make_ready("vocoder", args, device, how) for how in (None, wanted))
    reference = NeuralVocoder(plain, AUDIO, device, setting.reference_amp, 0.9, 0.0)
    ours = NeuralVocoder(fast, AUDIO, device, wanted.half, 0.9, 0.0)
    name = f"WaveGlow-{sizes.inference_channels} inference, {sizes.vocoder_frames} frames"
    return Case(
        f"{name}, {numbers_of(setting, wanted)}",
        "x real time",
        sizes.vocoder_frames * SECONDS_PER_FRAME,
        lambda: reference(mels, lengths),
        lambda: ours(mels, lengths),
        lambda: counted(reference, mels, lengths, weight_bytes(plain.model, wanted.half, wanted.int8)),
        wanted.half,
        int8=wanted.int8,
    )


def numbers_of(setting: Setting, wanted: Request) -> str:
    """The precision of ours, and of the reference if it is another."""
    return IN_INT8 if wanted.int8 else setting.numbers


def counted(vocode: Vocoder, mels: Tensor, lengths: Tensor, n_bytes: int) -> list[Work]:
    """A vocoder's work on mels."""
    return [Work(count_flops(lambda: vocode(mels, lengths)), n_bytes)]


def text_to_wav(setting: Setting) -> Iterator[MakeCase]:
    """A sentence of the latency benchmark: text, mels, sound, denoised sound."""
    kinds = [Request(setting.amp)]
    if can_multiply(setting.device) and not setting.amp:
        kinds.append(Request(int8=True))
    for wanted in kinds:
        yield functools.partial(whole_sentence, setting, wanted)


def whole_sentence(setting: Setting, wanted: Request) -> Case:
    """Both models plain against both made fast, in 8 bits or the setting's precision."""
    sizes, device = setting.sizes, setting.device
    args, texts = synthesis_arguments(setting), [latency.sentence(sizes.input_length)]
    halves = {True: setting.reference_amp, False: setting.amp}  # by whether it is plain
    models = {
        plain: [make_ready(role, args, device, None if plain else wanted) for role in ("acoustic", "vocoder")]
        for plain in halves
    }
    vocoders = {
        plain: NeuralVocoder(vocoding, AUDIO, device, halves[plain], args.sigma_infer, args.denoising_strength)
        for plain, (_, vocoding) in models.items()
    }
    steps = latency.decoder_steps(args)

    def say(plain: bool) -> None:
        latency.synthesise(texts, models[plain][0], vocoders[plain], device, halves[plain])

    def work() -> list[Work]:
        acoustic, vocoding = models[True]
        spoken: list[Any] = []
        flops = count_flops(lambda: spoken.extend(mels_from_texts(texts, acoustic, device, setting.reference_amp)))
        n_bytes = weight_bytes(vocoding.model, wanted.half, wanted.int8)
        sounding = counted(vocoders[True], spoken[0].mels, spoken[0].lengths, n_bytes)
        return [Work(flops, step_bytes(acoustic.model, wanted.half, wanted.int8), steps), *sounding]

    seconds = steps * args.n_frames_per_step * SECONDS_PER_FRAME
    name = f"Text to wav, {sizes.input_length} characters, WaveGlow-{sizes.inference_channels}"
    calls = (lambda: say(True)), (lambda: say(False))
    what = f"{name}, {numbers_of(setting, wanted)}"
    return Case(what, "x real time", seconds, *calls, work, wanted.half, int8=wanted.int8)


def first_sound(setting: Setting) -> Iterator[MakeCase]:
    """inference.py as a user starts it: a short text to all of its sound, and a long one to the first sound of --stream."""
    sizes, live = setting.sizes, "Start to first sound (reference: to all of it)"
    yield functools.partial(starting, setting, "Start to sound", sizes.first_frames, "audio_0.wav")
    yield functools.partial(starting, setting, live, sizes.decoder_frames, "live", "--stream")


def starting(setting: Setting, what: str, frames: int, heard: str, flag: str = "") -> Case:
    """From the start of a process to sound in a file, which a flag may name.

    Both models are on the disk; what is all zeros at first is not, so that there is a hum to listen for.
    """
    args, place = synthesis_arguments(setting), TemporaryDirectory()  # removed when the calls of the case are forgotten
    folder = Path(place.name)
    words = ["-i", folder / "phrase.txt", "-o", folder, "--gate-threshold", 1, "--longest-piece", 0]
    words += ["--cpu"] * (setting.device.type == "cpu")
    words += ["--fp16"] * (setting.amp and "--cpu" not in words)
    words += ["--max-decoder-steps", frames]
    (folder / "phrase.txt").write_text(latency.sentence(setting.sizes.input_length) + "\n", encoding="utf-8")
    for role in ("acoustic", "vocoder"):
        spec, model = (loaded := make_ready(role, args, torch.device("cpu"))).spec, loaded.model
        for weight in model.parameters():
            if not weight.any():
                nn.init.normal_(weight, std=HUM)
        path = folder / f"{spec.flag}.pt"
        save_checkpoint(path, {"config": config_of(model), "state_dict": model.state_dict()})
        words += [f"--{spec.flag}", path]
    more = [flag, folder / heard] if flag else []
    return Case(
        f"{what}, {frames} frames, WaveGlow-{setting.sizes.inference_channels}",
        "s",
        None,
        lambda: wait_for(Path(place.name) / "audio_0.wav", *words, "--plain"),
        lambda: wait_for(Path(place.name) / heard, *words, *more),
        None,
    )


def wait_for(sound: Path, *words: object) -> None:
    """Run inference.py until a file has sound in it. RuntimeError, with what it said, where there is none."""
    sound.unlink(missing_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "inference.py", *map(str, words)]
    pipe = subprocess.PIPE

    def is_there() -> bool:
        return sound.exists() and sound.stat().st_size > 0

    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=subprocess.STDOUT) as process:
        try:
            while not is_there() and process.poll() is None:
                time.sleep(POLL)
        finally:
            process.kill()  # what follows is not waited for
        said, _ = process.communicate()
    if not is_there():
        raise RuntimeError(f"{' '.join(command)}: {said.decode()}")


def synthesis_arguments(setting: Setting, frames: int | None = None) -> argparse.Namespace:
    """The latency benchmark's flags for a text of the setting's length, and so many frames where its own number is not wanted."""
    sizes = setting.sizes
    flags = f"{sizes.tacotron2} {sizes.waveglow} --wn-channels {sizes.inference_channels} -il {sizes.input_length}"
    return latency.parse_args([*flags.split(), *([f"--mel-frames={frames}"] if frames else [])])[0]


def make_ready(role: str, args: argparse.Namespace, device: torch.device, wanted: Request | None = None) -> LoadedModel:
    """A role's model with random weights, the same at each call, plain or made fast as wanted."""
    precision.seed_everything(args.seed)
    half, int8, _ = wanted or Request()
    flags = {"plain": wanted is None, "fp16": half, "int8": int8}
    chosen = argparse.Namespace(**vars(args) | flags)
    return latency.get_ready(role, chosen, {}, device)


def alone(device: torch.device) -> Dist:
    """A process by itself."""
    return Dist(0, 0, 1, device)


def weight_bytes(model: nn.Module, half: bool = False, int8: bool = False) -> int:
    """Bytes of a model's weights, each read once."""
    return sum(weight.numel() for weight in model.parameters()) * (1 if int8 else 2 if half else 4)


def step_bytes(model: Any, half: bool) -> int:
    """Bytes of the weights that Tacotron 2's decoder reads at each step; the memory's keys are computed before the first."""
    decoder = model.decoder
    return weight_bytes(decoder, half) - weight_bytes(decoder.attention_layer.memory_layer, half)


ROWS: dict[str, Callable[[Setting], Iterator[MakeCase]]] = {
    "tacotron2-training": tacotron2_training,
    "waveglow-training": waveglow_training,
    "tacotron2-inference": tacotron2_inference,
    "waveglow-inference": waveglow_inference,
    "text-to-wav": text_to_wav,
    "first-sound": first_sound,
}
