"""Training, validation and inference on a pretended GPU: no rule of GPUs is broken, and every wait of the host is expected.

Only a GPU shows whether cuDNN, cuBLAS and NCCL accept a call, and how fast they are: see the tests marked gpu.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from benchmarks.cases import clips, segments
from common import precision
from common.audio.audio_processing import griffin_lim
from common.audio.stft import AudioConfig, TacotronSTFT
from common.draws import Draws
from common.fast import Request, accelerate
from common.inference.vocoders import LoadedModel, Vocoder
from common.run.distributed import Dist
from common.run.nvlog import Log
from common.training import snapshot
from common.training.arguments import parse_training_arguments
from common.training.forecast import describe_plan
from common.training.loop import to_device, train_step
from common.training.optimization import Pace
from common.training.state import TrainState
from common.training.validation import validate
from data_functions import get_loaders
from models import REGISTRY
from synthesizer import SynthesisConfig, Synthesizer
from tacotron2.fast.prepared import PreparedDecoder
from tacotron2.model import Tacotron2
from tests.gpu_rules import Rules
from tests.pretend_gpu import CPU, GPU, PretendGpu, requires_pretence
from tests.recipe import MODELS, flags
from train import make_state
from waveglow.denoiser import Denoiser
from waveglow.fast.prepared import convert_to_prepared
from waveglow.model import WaveGlow
from waveglow.spec import stream

pytestmark = [requires_pretence, pytest.mark.slow]

PRECISIONS = ("", "--amp", "--amp --amp-dtype bfloat16")
WAYS = {"Tacotron2": ("", "--plain"), "WaveGlow": ("", "--plain", "--recompute")}
STEP = "common/training/loop.py"
REPORT, LENGTHS = f"{STEP}:_reduce", "tacotron2/model.py:forward"
OPTIONS = {  # flags: waits and uploads of a step beside the expected ones
    "--optimizer adam --grad-accumulation-steps 3": ({}, {}),
    # Adam's loop over the weights needs to know whether to skip the step.
    "--amp --optimizer adam": ({f"{STEP}:train_step": 1}, {}),
    # PyTorch keeps the count of the average's updates on the CPU.
    "--amp --grad-accumulation-steps 2 --ema-decay 0.9 --grad-clip-thresh 1 --lr-schedule cosine --warmup-steps 3": (
        {},
        {f"{STEP}:train_step": 1},
    ),
}
# Each number format in the default way; the other ways in float16, whose products have to be cast; the options.
SETTINGS = [(model, number) for model in WAYS for number in PRECISIONS]
SETTINGS += [(model, f"--amp {way}") for model, ways in WAYS.items() for way in ways[1:]]
SETTINGS += [*(("WaveGlow", words) for words in OPTIONS), ("Tacotron2", list(OPTIONS)[-1])]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No warning of this build of PyTorch."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PyTorch was compiled without cuDNN")
        yield


def make_batch(model: str) -> Any:
    return clips(2, 10, 9) if model == "Tacotron2" else segments(1, 512)


def make(model: str, words: str, device: torch.device) -> TrainState:
    """A small model's state at the start of training, the same on both devices, whose WN is not at its zero start."""
    sizes = MODELS[model].replace("--n-frames-per-step 5", "--n-frames-per-step 2").replace("--flows 4", "--flows 3")
    args, spec = parse_training_arguments(["-m", model, *sizes.split(), *words.split()], REGISTRY, "")
    torch.manual_seed(5)
    pace = Pace(1, 2, 2)
    cpu_state, _ = make_state(spec, args, Dist(0, 0, 1, CPU), pace, warm=False)
    weights = {name: weight.clone() for name, weight in cpu_state.model.state_dict().items()}
    for name, weight in weights.items():
        if ".end." in name:
            nn.init.normal_(weight, std=0.05)
    state, _ = make_state(spec, args, Dist(0, 0, 1, device), pace, warm=False)
    state.model.load_state_dict(weights)
    state.trained.train()
    state.model.train()
    return state


def expected_waits(model: str, batches: int = 1) -> dict[str, int]:
    """One for the report of a step, and one for the lengths of a batch's texts, which PyTorch's LSTM takes on the CPU."""
    return {REPORT: 1} | ({LENGTHS: batches} if model == "Tacotron2" else {})


@pytest.mark.parametrize(("model", "words"), SETTINGS)
def test_a_step_of_training_waits_for_its_report_alone(model: str, words: str) -> None:
    rules, batches = Rules(), int(words.partition("accumulation-steps ")[2][:1] or 1)
    with PretendGpu(rules):
        state = make(model, words, GPU)
        moved = [to_device(make_batch(model), GPU)] * batches
        before = [weight.clone() for weight in state.model.parameters()]
        for _ in range(2):  # the second finds Adam's averages in place
            rules.waits.clear()
            rules.uploads.clear()
            result = train_step(state, moved)
        moved_weights = [bool((a != b).any()) for a, b in zip(before, state.model.parameters(), strict=True)]
    assert rules.waits.pop("outside", 0) == len(before)  # the comparisons above
    waits, uploads = OPTIONS.get(words, ({}, {}))
    assert (rules.waits, rules.uploads) == (expected_waits(model, batches) | waits, uploads)
    assert torch.isfinite(torch.tensor([result.loss, result.grad_norm])).all()
    assert all(moved_weights)


@pytest.mark.parametrize(
    ("model", "way"),
    [("Tacotron2", "--mask-padding --guided-attention-weight 1"), *((m, w) for m, ways in WAYS.items() for w in ways)],
)
def test_the_code_for_gpus_gives_the_numbers_of_the_cpu(model: str, way: str) -> None:
    """Branches on the device differ: LSTM cells, tanh, products, dropout's masks, convolutions. Without dropout all agree."""
    batch, results = make_batch(model), []
    for device in (CPU, GPU):
        with PretendGpu(Rules()):
            state = make(model, way, device)
            for module in {*state.model.modules(), *state.trained.modules()}:
                for name in ("p_dropout", "p_attention_dropout", "p_decoder_dropout"):
                    if hasattr(module, name):
                        setattr(module, name, 0.0)
            moved = to_device(batch, device)
            state.setup.criterion(state.trained(*moved.inputs), moved.targets).backward()
            gradients = [weight.grad.cpu() for weight in state.model.parameters() if weight.grad is not None]
            state.optimizer.zero_grad()
            results.append((gradients, [train_step(state, [moved]).loss for _ in range(3)]))
    (cpu_gradients, cpu_losses), (gpu_gradients, gpu_losses) = results
    assert gpu_losses == pytest.approx(cpu_losses, rel=1e-3)
    largest = max(float(gradient.abs().max()) for gradient in cpu_gradients)
    for got, wanted in zip(gpu_gradients, cpu_gradients, strict=True):
        assert (got - wanted).abs().max() <= 1e-4 * max(float(wanted.abs().max()), 1e-2 * largest)


def test_a_step_whose_gradient_overflows_is_skipped_with_its_average() -> None:
    """Adam, its averages and the moving average stay as they were; the scale halves."""
    with PretendGpu(Rules()):
        state = make("WaveGlow", "--amp --ema-decay 0.9 --grad-accumulation-steps 2", GPU)
        moved = to_device(make_batch("WaveGlow"), GPU)
        train_step(state, [moved, moved])
        state.scaler = precision.grad_scaler(GPU, torch.float16)
        state.scaler.load_state_dict(state.scaler.state_dict() | {"scale": 2.0**60})
        assert state.average is not None
        before = [t.detach().cpu().clone() for t in (*state.model.parameters(), *state.average.parameters())]
        result = train_step(state, [moved, moved])
        after = [t.detach().cpu() for t in (*state.model.parameters(), *state.average.parameters())]
        assert not torch.isfinite(torch.tensor(result.grad_norm))
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
        assert state.scaler.get_scale() == 2.0**59


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """run(model, words) -> loaders of a few clips in unpinned memory, and the state of a run on the GPU."""

    def build(model: str, words: str = "") -> tuple[Any, TrainState]:
        every = [*flags(model, tmp_path / model), *words.split()]
        args, spec = parse_training_arguments([word for word in every if word != "--cpu"], REGISTRY, "")
        loaders = get_loaders(spec, args, Dist(0, 0, 1, CPU))
        torch.manual_seed(5)
        state, _ = make_state(spec, args, Dist(0, 0, 1, GPU), Pace(2, 2, 2), warm=False)
        state.loaders = loaders
        return loaders, state

    return build


@pytest.mark.parametrize("model", WAYS)
def test_the_forecast_of_a_run_and_validation_with_its_pictures_and_sounds(model: str, run: Any) -> None:
    rules = Rules()
    with PretendGpu(rules):
        loaders, state = run(model, "--amp")
        lines = describe_plan(state)
        result = validate(state, loaders.validation, TacotronSTFT.from_config(state.setup.options.audio), Log())
    assert lines[-1].startswith("measured peak")
    assert torch.isfinite(torch.tensor(list(result.values()))).all()
    assert rules.waits["common/training/validation.py:_evaluate"] == 1  # a batch


@pytest.mark.parametrize("model", WAYS)
def test_a_checkpoint_continues_a_run_exactly(model: str, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps against two, a checkpoint, and one step of a new process; random numbers of the GPU are in it."""
    checkpoint: dict[str, Any] = {}

    def keep(path: Path, content: dict[str, Any], *_: Any) -> None:  # torch.save takes no wrapper
        checkpoint.update(tree_map_only(Tensor, lambda tensor: tensor.detach().cpu().clone(), content))

    monkeypatch.setattr(snapshot.files, "save_checkpoint", keep)
    with PretendGpu(Rules()):
        loaders, state = run(model, "--amp --ema-decay 0.9 --seed 3")
        moved = [to_device(batch, GPU) for batch in loaders.training]
        state.trained.train()
        for batch in (moved[0], moved[1]):
            train_step(state, [batch])
        path = snapshot.save(state)
        wanted = train_step(state, [moved[0]])
        torch.manual_seed(77)
        _, later = run(model, "--amp --ema-decay 0.9 --seed 3")
        assert len(checkpoint["cuda_rng_state_all"]) == 1
        snapshot.restore(later, checkpoint, path)
        later.trained.train()
        later.progress.epoch, later.progress.totals = state.progress.epoch, state.progress.totals
        assert train_step(later, [moved[0]]) == wanted
        for a, b in zip(state.model.parameters(), later.model.parameters(), strict=True):
            assert torch.equal(a.cpu(), b.cpu())


@torch.no_grad()
def tacotron2(window: int = 0) -> Tacotron2:
    torch.manual_seed(1)
    model = Tacotron2(
        n_mel_channels=8, symbols_embedding_dim=16, encoder_embedding_dim=16, attention_rnn_dim=24, attention_dim=8,
        decoder_rnn_dim=24, prenet_dim=16, postnet_embedding_dim=16, gate_threshold=1.0, max_decoder_steps=45,
    ).eval()  # fmt: skip
    model.decoder.guard = type(model.decoder.guard)(attention_window=window)
    model.decoder.prenet.p_dropout = 0.0
    return model


def texts(*lengths: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(len(lengths))
    return torch.randint(1, 148, (len(lengths), max(lengths))), torch.tensor(lengths)


@pytest.mark.parametrize(("half", "window"), [(False, 0), (True, 3)])
def test_prepared_decoding_replays_its_graph(half: bool, window: int) -> None:
    """Several sizes in turn, each recorded once and replayed: the plain model's mels, on the same buffers at each call."""
    plain, rules = tacotron2(window), Rules()
    batches = [texts(9, 4), texts(40), texts(9, 4), texts(7, 3), texts(40)]
    wanted = [plain.infer(*batch) for batch in batches]
    with PretendGpu(rules):
        model = tacotron2(window).to(GPU)
        fast: Any = accelerate(model, REGISTRY["Tacotron2"].fast_ways, "inference", Request(half)).model
        assert isinstance(fast.decoder, PreparedDecoder)
        buffers: dict[Any, list[int]] = {}
        for batch, expected in zip(batches, wanted, strict=True):
            rules.waits.clear()
            with precision.autocast(GPU, torch.float16 if half else None):
                got = fast.infer(*(tensor.to(GPU) for tensor in batch))
            for result, want in zip(got, expected, strict=True):
                error = (result.cpu().float() - want).abs().max() / want.float().abs().max()
                assert error < (3e-2 if half else 1e-4)
            for size, steps in fast.decoder.sizes.items():
                places = [value.data_ptr() for value in vars(steps).values() if isinstance(value, Tensor)]
                assert buffers.setdefault(size, places) == places
            guard = "tacotron2/guard.py"  # the looks at the gates: one a chunk of 20 steps
            assert {k: n for k, n in rules.waits.items() if k.startswith(guard)} == {
                f"{guard}:__init__": 1, f"{guard}:update": 3, f"{guard}:total_steps": 1
            }  # fmt: skip
    assert list(buffers) == [(2, 32), (1, 64)]  # texts of 9 and 7 symbols share a graph


def test_a_graph_draws_new_dropout_at_each_replay_and_repeats_by_its_seed() -> None:
    with PretendGpu(Rules()):
        model = tacotron2().to(GPU)
        model.decoder.prenet.p_dropout = 0.5
        decoder = PreparedDecoder.of(model.decoder, half=False)
        memory, lengths = torch.randn(1, 6, 16, device=GPU), torch.tensor([6], device=GPU)
        mels = []
        for seed in (3, 3, None):
            if seed is not None:
                precision.seed_everything(seed)
            mels.append(decoder.infer(memory, lengths).mels.cpu())
    assert torch.equal(mels[0], mels[1])  # recording drew none of the numbers
    assert not torch.allclose(mels[1], mels[2])
    assert not torch.allclose(mels[0][:, :, :20], mels[0][:, :, 20:40])  # nor do chunks repeat each other


def waveglow() -> WaveGlow:
    torch.manual_seed(2)
    model = WaveGlow(
        n_mel_channels=8, n_flows=4, n_early_every=2, WN_config={"n_layers": 3, "n_channels": 16, "kernel_size": 3}
    )
    for wn in model.WN:
        nn.init.normal_(wn.end.weight, std=0.02)  # type: ignore[union-attr, arg-type]
    return model.eval()


@pytest.mark.parametrize("half", [False, True])
@torch.no_grad()
def test_vocoding_and_the_denoiser(half: bool) -> None:
    mels, noise, rules = torch.randn(2, 8, 30), torch.randn(2, 8, 30 * 32), Rules()
    plain = waveglow()
    wanted = Denoiser(plain)(plain.infer(mels, 0.7, noise), 0.1)
    with PretendGpu(rules):
        fast = convert_to_prepared(waveglow().to(GPU), Request(half))
        with precision.autocast(GPU, torch.float16 if half else None):
            denoiser = Denoiser(fast)
            audio = fast.infer(mels.to(GPU), 0.7, noise.to(GPU))
            with precision.autocast(GPU, None):
                audio = denoiser(audio.float(), 0.1)
        parts = list(stream(fast, mels[:1].to(GPU), 0.7, lambda part: part))
        assert sum(part.shape[1] for part in parts) == 30 * 256
    assert rules.waits == {"waveglow/fast/prepared.py:__init__": 4}  # PyTorch's checks, once a flow as it is prepared
    assert (audio.on_cpu - wanted).abs().max() / wanted.abs().max() < (3e-2 if half else 1e-4)


@torch.no_grad()
def test_items_of_unlike_lengths_keep_their_order() -> None:
    """Clips of 34 and 21 frames run in other batches than the two between them, since lengths are rounded up to 32."""
    lengths, mels = torch.tensor([34, 9, 12, 40]), torch.randn(4, 8, 40)
    keys = [(3, item) for item in range(4)]
    device_audio = {}
    for device in (CPU, GPU):
        with PretendGpu(Rules()):
            loaded = LoadedModel(REGISTRY["WaveGlow"], waveglow().to(device), {})
            vocode = Vocoder(loaded, AudioConfig(n_mel_channels=8), device, False, 0.7, 0.0)
            audio, _ = vocode(mels.to(device), lengths.to(device), Draws.of(keys, "vocoder", device))
            device_audio[device] = audio.cpu()
    for item, frames in enumerate(lengths.tolist()):
        samples = slice((frames - 8) * 256)  # its end depends on the silence after it
        got, want = (device_audio[device][item, samples] for device in (GPU, CPU))
        torch.testing.assert_close(got, want, rtol=0, atol=1e-3)


def test_griffin_lim() -> None:
    """Phases come from a generator of the CPU, and are the same on both devices."""
    stft, mels = TacotronSTFT(), torch.randn(1, 80, 12) - 4
    wanted = griffin_lim(mels, stft, 3, generator=torch.Generator().manual_seed(0))
    with PretendGpu(Rules()):
        got = griffin_lim(mels.to(GPU), stft.to(GPU), 3, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(got.cpu(), wanted, rtol=1e-3, atol=1e-4)


def test_the_embedded_voice_speaks() -> None:
    with PretendGpu(Rules()):
        config = SynthesisConfig(seed=1, half=True, vocoder="waveglow")
        voice = Synthesizer.embedded(config=config, device=GPU)
        (speech,) = voice.speak(["Yes."])
        again = torch.cat(list(voice.stream("Yes.")))
    assert speech.finished and torch.isfinite(speech.audio).all() and len(speech.audio) > 5000
    assert abs(len(again) - len(speech.audio)) <= 256
