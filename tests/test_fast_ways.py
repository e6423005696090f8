"""Every row of both tables of fast ways against the plain model, forward and gradient, at small, odd and large sizes."""

import copy
import functools
import shutil
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch._inductor import config as inductor

from common.fast import FastWay, Request
from common.kernels.private_ops import Processor
from models import REGISTRY, get_model

REQUESTS = {  # the flags that switch each row on
    "compiled": Request(compile="default"),
    "recomputed": Request(recompute=True),
    "int8": Request(int8=True),
    "half": Request(half=True),
    "prepared in float16": Request(half=True),
}
TACOTRON2 = {
    "n_mel_channels": 6, "n_symbols": 148, "symbols_embedding_dim": 16, "encoder_embedding_dim": 16,
    "attention_rnn_dim": 24, "attention_dim": 12, "attention_location_n_filters": 4,
    "attention_location_kernel_size": 7, "decoder_rnn_dim": 20, "prenet_dim": 12, "postnet_embedding_dim": 16,
    "p_attention_dropout": 0.0, "p_decoder_dropout": 0.0, "gate_threshold": 1.0, "max_decoder_steps": 11,
}  # fmt: skip
WAVEGLOW = {"n_mel_channels": 6, "n_flows": 4, "n_group": 8, "n_early_every": 2, "n_early_size": 2}
WAVEGLOW |= {"WN_config": {"n_layers": 3, "kernel_size": 3, "n_channels": 16}}


class Size(NamedTuple):
    """A config's changes, clips in a batch, frames of the longest one."""

    config: dict[str, Any]
    batch: int
    frames: int


SIZES = {  # the last one of each is above every threshold: chunks of 16 steps; tiles from 256 channels, blocks of 4096 groups
    "Tacotron2": [
        Size({}, 1, 1),
        Size({}, 3, 7),
        Size({"n_frames_per_step": 3}, 3, 17),
        Size({"attention_rnn_dim": 256, "decoder_rnn_dim": 256}, 9, 37),
    ],
    "WaveGlow": [
        Size({}, 1, 1),
        Size({}, 3, 7),
        Size({}, 1, 131),
        Size({"n_flows": 1, "WN_config": {"n_layers": 4, "kernel_size": 3, "n_channels": 256}}, 1, 21),
    ],
}
ROWS = [(name, way) for name, spec in REGISTRY.items() for way in spec.fast_ways]
CASES = [
    pytest.param(name, way, size, id=f"{name}-{way.name}-{number}")
    for name, way in ROWS
    if not way.name.startswith("compiled")
    for number, size in enumerate(SIZES[name])
]
WAVEGLOW_TRAINING = [
    way for name, way in ROWS if (name, way.phase) == ("WaveGlow", "training") and not way.name.startswith("compiled")
]
# A compiler takes many seconds for each case and has no thresholds of ours: one size, in float64, which shows any difference.
FOR_COMPILER = {
    "Tacotron2": Size({"encoder_n_convolutions": 1, "postnet_n_convolutions": 2}, 2, 1),
    "WaveGlow": Size({"n_flows": 1, "WN_config": {"n_layers": 2, "kernel_size": 3, "n_channels": 16}}, 2, 3),
}
COMPILED = [
    pytest.param(name, way, FOR_COMPILER[name], torch.float64, id=f"{name}-{way.name}", marks=pytest.mark.slow)
    for name, way in ROWS
    if way.name == "compiled"  # tests/waveglow/fast/test_compiled.py has the other one, without the compiler
]
TRAINING = [  # in float64, which shows any difference, and the largest size of each in float32
    pytest.param(*case.values, dtype, id=f"{case.id}-{str(dtype).removeprefix('torch.')}")
    for case in CASES
    if case.values[1].phase == "training"
    for dtype in (torch.float64, torch.float32)
    if dtype == torch.float64 or case.values[2] is SIZES[case.values[0]][-1]
]


def plain_model(name: str, size: Size) -> nn.Module:
    torch.manual_seed(2)
    model = get_model(name, {"Tacotron2": TACOTRON2, "WaveGlow": WAVEGLOW}[name] | size.config)
    for module in model.modules():
        if hasattr(module, "p_dropout"):
            module.p_dropout = 0.0  # type: ignore[assignment]
    if name == "WaveGlow":
        for wn in model.WN:  # type: ignore[union-attr]
            nn.init.normal_(wn.end.weight, std=0.02)  # zeros would hide every other weight of WN
    return model


def texts(size: Size) -> tuple[Tensor, Tensor]:
    lengths = torch.arange(9, 9 - size.batch, -1).clamp(min=1)
    return torch.randint(1, 148, (size.batch, 9)), lengths


def inputs(name: str, size: Size) -> tuple[Tensor, ...]:
    torch.manual_seed(3)
    mels = torch.randn(size.batch, 6, size.frames)
    if name == "WaveGlow":
        return mels, 0.3 * torch.randn(size.batch, size.frames * 256 - 3)
    lengths = torch.arange(size.frames, size.frames - size.batch, -1).clamp(min=1)
    return *texts(size), mels, lengths


def error(result: Tensor, expected: Tensor) -> float:
    return float((result.double() - expected.double()).abs().max() / expected.double().abs().max().clamp(min=1e-3))


def tensors(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    return [tensor for part in output for tensor in tensors(part)]


def step(model: nn.Module, weights: nn.Module, batch: tuple[Tensor, ...]) -> list[Tensor]:
    """A model's outputs, and the gradients of their fixed random combination by all weights."""
    outputs = [tensor for tensor in tensors(model(*batch)) if tensor.is_floating_point()]
    generator = torch.Generator().manual_seed(4)
    directions = [torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype) for tensor in outputs]
    loss = sum((tensor * direction).mean() for tensor, direction in zip(outputs, directions, strict=True))
    gradients = torch.autograd.grad(loss, list(weights.parameters()), allow_unused=True)  # type: ignore[arg-type]
    return [*outputs, *(gradient for gradient in gradients if gradient is not None)]


@pytest.fixture(autouse=True)
def unknown_processor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rows that one kind of CPU leaves out are tested everywhere, and compiled for any: vectors take g++ twice as long."""
    monkeypatch.setattr("waveglow.fast.table.processor", Processor)
    with inductor.patch({"cpp.simdlen": 0}):
        yield


def converter(way: FastWay, model: nn.Module) -> Callable[[], nn.Module]:
    """The converter of a row that applies here; skips where the machine lacks the row's instructions."""
    request = REQUESTS.get(way.name, Request())
    if not way.applies(model, request):
        pytest.skip(f"{way.name}: not for this machine")
    if way.name.startswith("compiled") and not any(map(shutil.which, ("g++", "clang++"))):
        pytest.skip("compiled: no C++ compiler")
    return lambda: way.convert(model, request)


@pytest.mark.parametrize(("name", "way", "size", "dtype"), [*COMPILED, *TRAINING])
def test_training_rows_keep_outputs_and_gradients(name: str, way: FastWay, size: Size, dtype: torch.dtype) -> None:
    """In float64 to 1e-9 and in float32 to the row's tolerance, each tensor relative to its largest number."""
    plain = plain_model(name, size).to(dtype)
    plain.train(size.batch * size.frames > 1)  # BatchNorm has no statistics of one frame
    batch = tuple(tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in inputs(name, size))
    buffers = copy.deepcopy(plain.state_dict())
    expected = step(plain, plain, batch)
    plain.load_state_dict(buffers)  # BatchNorm's statistics
    results = step(converter(way, plain)(), plain, batch)
    largest = max(float(tensor.detach().abs().max()) for tensor in expected)
    bound = 1e-9 if dtype == torch.float64 else way.tolerance
    for result, want in zip(results, expected, strict=True):
        assert result.shape == want.shape
        assert (result - want).abs().max() <= bound * max(float(want.abs().max()), 1e-2 * largest)


@pytest.mark.parametrize("way", WAVEGLOW_TRAINING, ids=lambda way: way.name)
@pytest.mark.parametrize("samples", [8, 15, 1100, 7 * 256, 7 * 256 + 77, 6 * 256 + 1024])
def test_waveglow_trains_on_lengths_that_are_no_multiple_of_the_hop(way: FastWay, samples: int) -> None:
    """Outputs of the row are the plain model's, up to the last sample that seven frames reach."""
    plain = plain_model("WaveGlow", SIZES["WaveGlow"][0]).double()
    mels, audio = torch.randn(2, 6, 7, dtype=torch.float64), torch.randn(2, samples, dtype=torch.float64)
    expected, results = (tensors(model(mels, audio)) for model in (plain, converter(way, plain)()))
    for result, want in zip(results, expected, strict=True):
        assert result.shape == want.shape
        assert error(result, want) <= 1e-9
    assert expected[0].shape == (2, 8, samples // 8)


@pytest.mark.parametrize(("name", "way", "size"), [case for case in CASES if case.values[1].phase == "inference"])
@torch.no_grad()
def test_inference_rows_keep_outputs(name: str, way: FastWay, size: Size) -> None:
    """Relative to the largest number of each output; the plain model's weights stay as they were."""
    plain = plain_model(name, size).eval()
    before = copy.deepcopy(plain.state_dict())
    fast = converter(way, plain)()
    if name == "Tacotron2":
        arguments: tuple[Any, ...] = texts(size)
    else:
        mels = inputs(name, size)[0]
        arguments = mels, 0.7, torch.randn(size.batch, 8, size.frames * 32)
    expected, results = (tensors(model.infer(*arguments)) for model in (plain, fast))  # type: ignore[operator]
    for result, want in zip(results, expected, strict=True):
        assert result.shape == want.shape
        assert error(result, want) <= way.tolerance
    assert all(torch.equal(value, before[key]) for key, value in plain.state_dict().items())


def scale(output: Any) -> Any:
    """An output with its floating-point numbers a little larger, and its other tensors as they are."""
    if isinstance(output, Tensor):
        return 1.25 * output if output.is_floating_point() and output.numel() else output
    if isinstance(output, tuple):
        parts = map(scale, output)
        return type(output)(*parts) if hasattr(output, "_fields") else tuple(parts)
    return output


def free_names(way: FastWay) -> Iterator[tuple[Any, str]]:
    """The functions that may be edited without the row being left out, each with its class or module."""
    assert way.origin
    for module in map(sys.modules.get, way.origin.modules):
        own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
        for owner in (module, *(value for value in own if isinstance(value, type) and issubclass(value, nn.Module))):
            prefix = "" if owner is module else f"{owner.__name__}."
            for name, value in vars(owner).items():
                is_own = isinstance(value, FunctionType) and value.__module__ == module.__name__
                if is_own and name != "__init__" and not way.origin.covers(prefix + name):
                    yield owner, name


FREE = [
    pytest.param(model, way, owner, name, id=f"{model}-{way.name}-{owner.__name__.split('.')[-1]}.{name}")
    for model, way in ROWS
    if way.origin and way.phase == "training" and not way.name.startswith("compiled")
    for owner, name in free_names(way)
]


@pytest.mark.parametrize(("model", "way", "owner", "name"), FREE)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_may_be_edited_is_what_the_row_runs(
    model: str, way: FastWay, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change in each of these functions changes the row's outputs and gradients as it does the plain model's."""
    plain = plain_model(model, size := SIZES[model][1]).double().train()
    batch = tuple(tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs(model, size))
    buffers, function = copy.deepcopy(plain.state_dict()), getattr(owner, name)
    monkeypatch.setattr(
        owner, name, functools.wraps(function)(lambda *given, **named: scale(function(*given, **named)))
    )
    expected = step(plain, plain, batch)
    plain.load_state_dict(buffers)
    for result, want in zip(step(converter(way, plain)(), plain, batch), expected, strict=True):
        assert error(result, want) <= 1e-8
