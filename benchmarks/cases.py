"""What the speed benchmark measures: pairs of calls, of a reference and of ours, that do the same work.

    for case in ROWS["waveglow-training"](Setting(CPU, device, amp=False)):
        case.reference(), case.ours()

Training is train.py's own step, and inference is inference.py's own stages, on random weights and random clips.
"""

from __future__ import annotations

import argparse
import copy
import functools
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks import latency
from benchmarks.machine import Work, count_flops
from benchmarks.torchscript import ScriptedDecoder
from common.engine import precision
from common.engine.checkpoint import save_checkpoint
from common.engine.distributed import Dist
from common.engine.optimization import Pace
from common.engine.synthesis import Loaded, Vocoder, neural_vocoder, speak
from common.engine.training import to_device, train_step
from common.sound.int8 import can_multiply
from common.sound.packed import can_round
from common.sound.stft import AudioConfig
from common.spec import Preparation, config_of
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


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured."""

    tacotron2: str = ""  # flags of the model
    waveglow: str = ""
    training_channels: tuple[int, ...] = (256, 512)
    inference_channels: int = 256
    shared_channels: int = 128  # of what several processes train
    batches: tuple[int, ...] = (8,)  # of Tacotron 2's training
    symbols: int = 100
    frames: int | None = 400  # None: of each clip, as LJSpeech has them
    segments: int = 1  # of WaveGlow's training
    segment_length: int = 8000
    input_length: int = 128  # symbols to speak
    decoder_frames: int = 600
    vocoder_frames: int = 400
    first_frames: int = 60


CPU = Sizes()
GPU = Sizes(batches=(104, 128), frames=None, segments=10)
QUICK = Sizes(
    tacotron2="--symbols-embedding-dim 16 --encoder-embedding-dim 16 --prenet-dim 16 --attention-rnn-dim 24"
    " --attention-dim 8 --decoder-rnn-dim 24 --postnet-embedding-dim 16",
    waveglow="--flows 4 --early-every 2 --wn-layers 2",
    training_channels=(8, 16),
    inference_channels=8,
    shared_channels=8,
    batches=(2,),
    symbols=10,
    frames=20,
    segment_length=2048,
    input_length=12,
    decoder_frames=20,
    vocoder_frames=20,
    first_frames=10,
)


class Setting(NamedTuple):
    """Where, how much, and in which precision training and whole sentences are computed."""

    sizes: Sizes
    device: torch.device
    amp: bool

    @property
    def reference_amp(self) -> bool:
        """Whether references are in half precision too: on a GPU alone, as the published recipe has none on a CPU."""
        return self.amp and self.device.type != "cpu"

    @property
    def numbers(self) -> str:
        """What a row says of its precision."""
        ours, reference = (type_name(self.device, half) for half in (self.amp, self.reference_amp))
        return ours if ours == reference else f"{ours} (reference: {reference})"


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
        self.state.trained.train()
        self.batch = to_device(batch, dist.device)

    def __call__(self, plain: bool) -> None:
        self.state.model.use_plain(plain)
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


def tacotron2_training(setting: Setting) -> Iterator[Case]:
    """Batches of equal clips, or of LJSpeech's lengths."""
    sizes, dist = setting.sizes, alone(setting.device)
    lengths = "LJSpeech's lengths" if sizes.frames is None else f"{sizes.symbols} symbols, {sizes.frames} frames"
    for batch in sizes.batches:
        noise = clips(batch, sizes.symbols, sizes.frames)
        make = functools.partial(TrainingStep, "Tacotron2", sizes.tacotron2, noise, dist)
        yield training_case(f"Tacotron 2 training, {batch} clips of {lengths}", make, setting, "frames/s")


def waveglow_training(setting: Setting) -> Iterator[Case]:
    """Segments of equal length, for each number of channels."""
    sizes, dist = setting.sizes, alone(setting.device)
    precision.configure(cudnn_enabled=True, cudnn_benchmark=True)
    for channels in sizes.training_channels:
        flags = f"{sizes.waveglow} --wn-channels {channels}"
        noise = segments(sizes.segments, sizes.segment_length)
        make = functools.partial(TrainingStep, "WaveGlow", flags, noise, dist)
        shape = f"{sizes.segments} x {sizes.segment_length} samples"
        yield training_case(f"WaveGlow-{channels} training, {shape}", make, setting, "samples/s")


def tacotron2_inference(setting: Setting) -> Iterator[Case]:
    """One text with a gate that never fires: a scripted plain decoder against the prepared one."""
    sizes, device = setting.sizes, setting.device
    args, texts = synthesis_arguments(setting, sizes.decoder_frames), [latency.sentence(sizes.input_length)]
    plain = make_ready("acoustic", args, device)
    scripted = plain._replace(model=copy.deepcopy(plain.model))
    scripted.model.decoder.prepared = ScriptedDecoder(scripted.model.decoder)
    ids, lengths = torch.randint(1, SYMBOLS, (1, sizes.input_length)), torch.tensor([sizes.input_length])
    for _ in range(2):  # TorchScript looks at a first run and rewrites itself in a second
        scripted.model.infer(ids.to(device), lengths.to(device), 2)
    steps = latency.decoder_steps(args)
    flops = functools.cache(lambda: count_flops(lambda: speak(texts, plain, device, False)))
    kinds = [(False, False, "float32"), (True, False, "half-precision weights"), (False, True, "LSTMs in int8")]
    for half, int8, numbers in kinds[: 3 if can_round(device) else 2]:
        model = make_ready("acoustic", args, device, Preparation(half, int8))
        yield Case(
            f"Tacotron 2 inference, {len(texts[0])} symbols, {numbers} (reference: TorchScript)",
            "frames/s",
            sizes.decoder_frames,
            lambda: speak(texts, scripted, device, False),
            lambda model=model, half=half: speak(texts, model, device, half),
            lambda half=half, int8=int8: [Work(flops(), step_bytes(plain.model, half, int8), steps)],
            half,
            ms_each=True,
        )


def waveglow_inference(setting: Setting) -> Iterator[Case]:
    """One clip's mels to sound, without the denoiser."""
    sizes, device = setting.sizes, setting.device
    args = synthesis_arguments(setting, sizes.decoder_frames)
    mels = torch.randn(1, AUDIO.n_mel_channels, sizes.vocoder_frames, device=device)
    lengths = torch.tensor([sizes.vocoder_frames])
    name = f"WaveGlow-{sizes.inference_channels} inference, {sizes.vocoder_frames} frames"
    halves = (False, True) if precision.half_dtype(device, True) else (False,)
    kinds = [Preparation(half) for half in halves] + [Preparation(int8=True)] * can_multiply(device)
    for wanted in [*kinds, *(kind._replace(precompute=True) for kind in kinds[1:])]:
        chosen = setting._replace(amp=wanted.half)
        plain = make_ready("vocoder", args, device)
        reference = neural_vocoder(plain, AUDIO, device, chosen.reference_amp, 0.9, 0.0)
        fast = neural_vocoder(make_ready("vocoder", args, device, wanted), AUDIO, device, wanted.half, 0.9, 0.0)
        yield Case(
            f"{name}, {numbers_of(chosen, wanted)}",
            "x real time",
            sizes.vocoder_frames * SECONDS_PER_FRAME,
            lambda call=reference: call(mels, lengths),
            lambda call=fast: call(mels, lengths),
            functools.partial(counted, reference, mels, lengths, weight_bytes(plain.model, wanted.half, wanted.int8)),
            wanted.half,
            int8=wanted.int8,
        )


def numbers_of(setting: Setting, wanted: Preparation) -> str:
    """What ours computes in, the reference if it is another, and whether weights were multiplied ahead, which is not timed."""
    return (IN_INT8 if wanted.int8 else setting.numbers) + (", precomputed" if wanted.precompute else "")


def counted(vocode: Vocoder, mels: Tensor, lengths: Tensor, n_bytes: int) -> list[Work]:
    """A vocoder's work on mels."""
    return [Work(count_flops(lambda: vocode(mels, lengths)), n_bytes)]


def text_to_wav(setting: Setting) -> Iterator[Case]:
    """A sentence of the latency benchmark: text, mels, sound, denoised sound."""
    kinds = [Preparation(setting.amp)]
    if can_multiply(setting.device) and not setting.amp:
        kinds.append(Preparation(int8=True))
    for wanted in (*kinds, kinds[-1]._replace(precompute=True)):
        yield whole_sentence(setting, wanted)


def whole_sentence(setting: Setting, wanted: Preparation) -> Case:
    """Both models plain against both made fast, in 8 bits or the setting's precision."""
    sizes, device = setting.sizes, setting.device
    args, texts = synthesis_arguments(setting), [latency.sentence(sizes.input_length)]
    halves = {True: setting.reference_amp, False: setting.amp}  # by whether it is plain
    models = {
        plain: [make_ready(role, args, device, None if plain else wanted) for role in ("acoustic", "vocoder")]
        for plain in halves
    }
    vocoders = {
        plain: neural_vocoder(vocoding, AUDIO, device, halves[plain], args.sigma_infer, args.denoising_strength)
        for plain, (_, vocoding) in models.items()
    }
    steps = latency.decoder_steps(args)

    def say(plain: bool) -> None:
        latency.synthesise(texts, models[plain][0], vocoders[plain], device, halves[plain])

    def work() -> list[Work]:
        acoustic, vocoding = models[True]
        spoken: list[Any] = []
        flops = count_flops(lambda: spoken.extend(speak(texts, acoustic, device, setting.reference_amp)))
        n_bytes = weight_bytes(vocoding.model, wanted.half, wanted.int8)
        sounding = counted(vocoders[True], spoken[0].mels, spoken[0].lengths, n_bytes)
        return [Work(flops, step_bytes(acoustic.model, wanted.half, wanted.int8), steps), *sounding]

    seconds = steps * args.n_frames_per_step * SECONDS_PER_FRAME
    name = f"Text to wav, {sizes.input_length} characters, WaveGlow-{sizes.inference_channels}"
    calls = (lambda: say(True)), (lambda: say(False))
    what = f"{name}, {numbers_of(setting, wanted)}"
    return Case(what, "x real time", seconds, *calls, work, wanted.half, int8=wanted.int8)


def first_sound(setting: Setting) -> Iterator[Case]:
    """inference.py as a user starts it, from the start of its process to the wav being there, or the first sound of --stream.

    Both models are on the disk; what is all zeros at first is not, so that there is a hum to listen for.
    """
    sizes = setting.sizes
    args = synthesis_arguments(setting)
    with TemporaryDirectory() as name:
        folder = Path(name)
        words = ["-i", folder / "phrase.txt", "-o", folder, "--gate-threshold", 1, "--longest-piece", 0]
        words += ["--cpu"] * (setting.device.type == "cpu")
        words += ["--fp16"] * (setting.amp and "--cpu" not in words)
        (folder / "phrase.txt").write_text(latency.sentence(sizes.input_length) + "\n", encoding="utf-8")
        for role in ("acoustic", "vocoder"):
            spec, model = (loaded := make_ready(role, args, torch.device("cpu"))).spec, loaded.model
            for weight in model.parameters():
                if not weight.any():
                    nn.init.normal_(weight, std=HUM)
            path = folder / f"{spec.flag}.pt"
            save_checkpoint(path, {"config": config_of(model), "state_dict": model.state_dict()})
            words += [f"--{spec.flag}", path]
        made, live = folder / "audio_0.wav", folder / "live"
        for frames, what, heard, more in (
            (sizes.first_frames, "Start to sound", made, []),
            (sizes.decoder_frames, "Start to first sound (reference: to all of it)", live, ["--stream", live]),
        ):
            said = [*words, "--max-decoder-steps", frames]
            yield Case(
                f"{what}, {frames} frames, WaveGlow-{sizes.inference_channels}",
                "s",
                None,
                lambda said=said: wait_for(made, *said, "--plain"),
                lambda said=said, heard=heard, more=more: wait_for(heard, *said, *more),
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


def make_ready(role: str, args: argparse.Namespace, device: torch.device, wanted: Preparation | None = None) -> Loaded:
    """A role's model with random weights, the same at each call, plain or made fast as wanted."""
    precision.seed_everything(args.seed)
    half, int8, precompute = wanted or Preparation()
    flags = {"plain": wanted is None, "fp16": half, "int8": int8, "precompute": precompute}
    chosen = argparse.Namespace(**vars(args) | flags)
    return latency.get_ready(role, chosen, {}, device)


def alone(device: torch.device) -> Dist:
    """A process by itself."""
    return Dist(0, 0, 1, device)


def type_name(device: torch.device, half: bool) -> str:
    """float32, which is TF32 where the GPU has it, or the half precision that pays on the device."""
    return str(precision.half_dtype(device, half) or torch.float32).removeprefix("torch.")


def weight_bytes(model: nn.Module, half: bool = False, int8: bool = False) -> int:
    """Bytes of a model's weights, each read once."""
    return sum(weight.numel() for weight in model.parameters()) * (1 if int8 else 2 if half else 4)


def step_bytes(model: Any, half: bool, int8: bool = False) -> int:
    """Bytes of the weights that Tacotron 2's decoder reads at each step; the memory's keys are made before the first.

    With int8 the columns of LSTM states and context are in 8 bits, all else in float16.
    """
    decoder, listening, speaking = model.decoder, model.decoder.attention_rnn, model.decoder.decoder_rnn
    read = weight_bytes(decoder, half or int8) - weight_bytes(decoder.attention_layer.memory_layer, half or int8)
    of_states = [
        listening.weight_ih[:, decoder.prenet_dim :],
        listening.weight_hh,
        speaking.weight_ih,
        speaking.weight_hh,
    ]
    return read - int8 * sum(weight.numel() for weight in of_states)


ROWS: dict[str, Callable[[Setting], Iterator[Case]]] = {
    "tacotron2-training": tacotron2_training,
    "waveglow-training": waveglow_training,
    "tacotron2-inference": tacotron2_inference,
    "waveglow-inference": waveglow_inference,
    "text-to-wav": text_to_wav,
    "first-sound": first_sound,
}
