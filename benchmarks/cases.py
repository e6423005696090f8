"""Cases of the speed benchmark: pairs of calls, a reference and ours, that do the same work.

    for make in ROWS["waveglow-training"](Setting(CPU, device, amp=False)):
        case = make()
        case.reference(), case.ours()

Each case is built and measured in its own process, as memory fragmented by another case would slow it down. Training runs the step
of train.py, inference the stages of inference.py, with random weights and random clips.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from benchmarks import latency
from common import precision
from common.audio.stft import AudioConfig
from common.fast import Request
from common.inference.config import SynthesisConfig
from common.inference.stages import mels_from_texts
from common.inference.vocoders import LoadedModel, Vocoder
from common.kernels.int8 import can_multiply
from common.run.distributed import Dist
from common.spec import Options
from common.training.arguments import parse_training_arguments
from common.training.loop import to_device, train_step
from common.training.optimization import Pace
from exports.models import ScriptedTacotron2
from exports.torchscript import ScriptedFreeRun, script
from models import REGISTRY
from tacotron2.data_function import Tacotron2Batch
from train import make_state
from waveglow.data_function import WaveGlowBatch

# B clips, S symbols, T frames, N samples

AUDIO = AudioConfig()
SECONDS_PER_FRAME = AUDIO.hop_length / AUDIO.sampling_rate
SYMBOLS = 148  # number of symbol ids
# Roughly the lengths of LJSpeech's clips, with a mean of 566 frames.
MEDIAN_FRAMES, SPREAD, SHORTEST, LONGEST = 545, 0.4, 100, 870
FRAMES_PER_SYMBOL = 5.66
IN_INT8 = "int8 (reference: float32)"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of the models and of their inputs."""

    tacotron2: str = ""  # flags of the model
    waveglow: str = ""
    training_channels: tuple[int, ...] = (256, 512)
    inference_channels: int = 256
    batches: tuple[int, ...] = (8,)  # batch sizes of Tacotron 2's training
    symbols: int = 100
    frames: int | None = 400  # of each clip; None: lengths as in LJSpeech
    segments: int = 1  # batch size of WaveGlow's training
    segment_length: int = 8000
    input_length: int = 128  # symbols to speak
    decoder_frames: int = 600
    vocoder_frames: int = 400


CPU = Sizes()
GPU = Sizes(batches=(104, 128), frames=None, segments=10)
QUICK = Sizes(
    tacotron2="--symbols-embedding-dim 16 --encoder-embedding-dim 16 --prenet-dim 16 --attention-rnn-dim 24"
    " --attention-dim 8 --decoder-rnn-dim 24 --postnet-embedding-dim 16",
    waveglow="--flows 4 --early-every 2 --wn-layers 2",
    training_channels=(8, 16),
    inference_channels=8,
    batches=(2,),
    symbols=10,
    frames=20,
    segment_length=2048,
    input_length=12,
    decoder_frames=20,
    vocoder_frames=20,
)


class Setting(NamedTuple):
    """Sizes, device and precision of a measurement; `amp` applies to training and to whole sentences."""

    sizes: Sizes
    device: torch.device
    amp: bool
    train_flags: str = ""  # further flags of train.py, for our way alone

    @property
    def reference_amp(self) -> bool:
        """True if references use half precision too: only on a GPU, as the published recipe has none on a CPU."""
        return self.amp and self.device.type != "cpu"

    @property
    def numbers(self) -> str:
        """Name of the precision in a row's title."""
        ours, reference = (type_name(self.device, half) for half in (self.amp, self.reference_amp))
        return ours if ours == reference else f"{ours} (reference: {reference})"


def type_name(device: torch.device, half: bool) -> str:
    """Name of float32 (TF32 on a GPU that has it), or of the half precision that is faster on the device."""
    return str(precision.half_dtype(device, half) or torch.float32).removeprefix("torch.")


class Case(NamedTuple):
    """A row of the table: two calls that do the same work, and its amount in units."""

    name: str
    unit: str
    amount: float
    reference: Callable[[], Any]
    ours: Callable[[], Any]
    ms_each: bool = False  # True to print milliseconds per unit too


MakeCase = Callable[[], Case]


def training_case(name: str, make: Callable[[bool, str], TrainingStep], setting: Setting, unit: str) -> Case:
    """Compare plain and fast training with the same weights; `make` builds a step, from True for mixed precision and flags."""
    reference = ours = make(setting.amp, setting.train_flags)
    if setting.amp != setting.reference_amp or setting.train_flags:
        reference = make(setting.reference_amp, "")
    title = f"{name}, {setting.numbers} {setting.train_flags}".rstrip()
    items = ours.batch.num_items.item()
    return Case(title, unit, items, lambda: reference(plain=True), lambda: ours(plain=False))


class TrainingStep:
    """A training step of train.py, with random weights and always the same batch; a call runs one step."""

    def __init__(self, model: str, flags: str, batch: Any, device: torch.device, amp: bool, more: str) -> None:
        words = ["-m", model, *flags.split(), *more.split(), *["--amp"] * amp]
        options, spec = parse_training_arguments(words, REGISTRY, "")
        clips = len(batch.names)
        self.state, _ = make_state(spec, options, Dist(0, 0, 1, device), Pace(1, clips, clips), warm=False)
        self.fast = self.state.trained.train()
        self.state.model.train()
        self.batch = to_device(batch, device)

    def __call__(self, plain: bool) -> None:
        self.state.trained = self.state.model if plain else self.fast
        train_step(self.state, [self.batch])


def clips(size: int, symbols: int, frames: int | None) -> Tacotron2Batch:
    """Clips of noise with the given numbers of symbols and frames; if `frames` is None, with lengths as in LJSpeech."""
    mel_lengths = torch.full((size,), frames or 0)
    text_lengths = torch.full((size,), symbols)
    if frames is None:
        random_lengths = (MEDIAN_FRAMES * (SPREAD * torch.randn(size)).exp()).clamp(SHORTEST, LONGEST)
        mel_lengths = random_lengths.long().sort(descending=True).values
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
    mels = torch.randn(size, AUDIO.n_mel_channels, math.ceil(samples / AUDIO.hop_length))
    audio = 0.1 * torch.randn(size, samples)
    return WaveGlowBatch(mels, audio, torch.full((size,), samples), ("noise",) * size)


def tacotron2_step(setting: Setting, batch: int) -> Case:
    sizes = setting.sizes
    lengths = "LJSpeech's lengths" if sizes.frames is None else f"{sizes.symbols} symbols, {sizes.frames} frames"
    noise = clips(batch, sizes.symbols, sizes.frames)
    make = functools.partial(TrainingStep, "Tacotron2", sizes.tacotron2, noise, setting.device)
    return training_case(f"Tacotron 2 training, {batch} clips of {lengths}", make, setting, "frames/s")


def waveglow_step(setting: Setting, channels: int) -> Case:
    """Case of a training step of a model with `channels` channels."""
    sizes = setting.sizes
    precision.configure(cudnn_enabled=True, cudnn_benchmark=True)
    flags = f"{sizes.waveglow} --wn-channels {channels}"
    noise = segments(sizes.segments, sizes.segment_length)
    make = functools.partial(TrainingStep, "WaveGlow", flags, noise, setting.device)
    shape = f"{sizes.segments} x {sizes.segment_length} samples"
    return training_case(f"WaveGlow-{channels} training, {shape}", make, setting, "samples/s")


def decoding(setting: Setting, half: bool) -> Case:
    """Case of a scripted plain decoder, for one text and with a gate that never fires, against the prepared one."""
    sizes, device = setting.sizes, setting.device
    numbers = "half-precision weights" if half else "float32"
    options, texts = synthesis_options(setting, sizes.decoder_frames), [latency.sentence(sizes.input_length)]
    plain, model = (make_ready("acoustic", options, device, how) for how in (None, Request(half)))
    scripted = plain._replace(model=ScriptedTacotron2(script(ScriptedFreeRun(plain.model)), plain.model.config))
    ids, lengths = torch.randint(1, SYMBOLS, (1, sizes.input_length)), torch.tensor([sizes.input_length])
    for _ in range(2):  # TorchScript profiles the first run and optimises in the second
        scripted.model.infer(ids.to(device), lengths.to(device), 2)

    return Case(
        f"Tacotron 2 inference, {len(texts[0])} symbols, {numbers} (reference: TorchScript)",
        "frames/s",
        sizes.decoder_frames,
        lambda: mels_from_texts(texts, scripted, device, False),
        lambda: mels_from_texts(texts, model, device, half),
        ms_each=True,
    )


def vocoding(setting: Setting, request: Request) -> Case:
    """Case of a plain vocoder against a fast one, without the denoiser."""
    sizes, device = setting.sizes, setting.device
    options = synthesis_options(setting, sizes.decoder_frames) | {"denoising_strength": 0.0}
    mels = torch.randn(1, AUDIO.n_mel_channels, sizes.vocoder_frames, device=device)
    lengths = torch.tensor([sizes.vocoder_frames])
    reference, ours = (make_vocoder(options, setting, how) for how in (None, request))
    name = f"WaveGlow-{sizes.inference_channels} inference, {sizes.vocoder_frames} frames"
    return Case(
        f"{name}, {IN_INT8 if request.int8 else setting.numbers}",
        "x real time",
        sizes.vocoder_frames * SECONDS_PER_FRAME,
        lambda: reference(mels, lengths),
        lambda: ours(mels, lengths),
    )


def whole_sentence(setting: Setting, request: Request) -> Case:
    """Case of a sentence of the latency benchmark, from text to denoised sound: both plain models against both fast ones."""
    sizes = setting.sizes
    options, texts = synthesis_options(setting), [latency.sentence(sizes.input_length)]

    def synthesise(how: Request | None) -> Callable[[], Any]:
        acoustic, vocoder = make_ready("acoustic", options, setting.device, how), make_vocoder(options, setting, how)
        half = setting.amp if how else setting.reference_amp
        return functools.partial(latency.synthesise, texts, acoustic, vocoder, setting.device, half)

    seconds = latency.decoder_steps(options) * options["n_frames_per_step"] * SECONDS_PER_FRAME
    name = f"Text to wav, {sizes.input_length} characters, WaveGlow-{sizes.inference_channels}"
    title = f"{name}, {IN_INT8 if request.int8 else setting.numbers}"
    return Case(title, "x real time", seconds, synthesise(None), synthesise(request))


def synthesis_options(setting: Setting, frames: int | None = None) -> dict[str, Any]:
    """Options of the latency benchmark for a text of the setting's length; `frames` overrides its number of frames."""
    sizes = setting.sizes
    flags = f"{sizes.tacotron2} {sizes.waveglow} --wn-channels {sizes.inference_channels} -il {sizes.input_length}"
    return vars(latency.parse_args([*flags.split(), *([f"--mel-frames={frames}"] if frames else [])])[0])


def make_ready(role: str, options: Options, device: torch.device, request: Request | None) -> LoadedModel:
    """Build the model of a role with the same random weights at each call: plain, or fast if there is a request."""
    precision.seed_everything(options["seed"])
    half, int8 = (request or Request())[:2]
    return latency.get_ready(role, options, SynthesisConfig(plain=request is None, half=half, int8=int8), device)


def make_vocoder(options: Options, setting: Setting, request: Request | None) -> Vocoder:
    """Build a vocoder as make_ready does, with its denoiser."""
    loaded = make_ready("vocoder", options, setting.device, request)
    numbers = options["sigma_infer"], options["denoising_strength"]
    return Vocoder(loaded, AUDIO, setting.device, setting.amp if request else setting.reference_amp, *numbers)


def requests(device: torch.device, *halves: bool) -> list[Request]:
    """List the number formats of a row: these, and 8 bits where the device multiplies in them."""
    return [Request(half) for half in halves] + [Request(int8=True)] * can_multiply(device)


def vocoding_cases(setting: Setting) -> list[MakeCase]:
    halves = (False, True) if precision.half_dtype(setting.device, True) else (False,)
    return [functools.partial(vocoding, setting._replace(amp=r.half), r) for r in requests(setting.device, *halves)]


def sentence_cases(setting: Setting) -> list[MakeCase]:
    found = requests(setting.device, setting.amp)
    return [functools.partial(whole_sentence, setting, request) for request in found[: 1 if setting.amp else None]]


# By a row's name, what lists its cases: by batch size, number of channels or number format.
ROWS: dict[str, Callable[[Setting], Iterable[MakeCase]]] = {
    "tacotron2-training": lambda one: [functools.partial(tacotron2_step, one, batch) for batch in one.sizes.batches],
    "waveglow-training": lambda one: [functools.partial(waveglow_step, one, n) for n in one.sizes.training_channels],
    "tacotron2-inference": lambda one: [functools.partial(decoding, one, half) for half in (False, True)],
    "waveglow-inference": vocoding_cases,
    "text-to-wav": sentence_cases,
}
