"""A small voice with random weights, each of which matters, and its exports, made once for all tests and test processes."""

import functools
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from torch import nn

import inference
from common.inference.config import SynthesisConfig
from common.inference.vocoders import LoadedModel
from common.spec import ModelSpec
from exports.targets import TARGETS, ExportSource, export, missing_parts
from exports.voice import RUNTIMES
from models import default_options
from pulse_noise.model import PulseNoise
from pulse_noise.spec import SPEC as PULSE_NOISE
from synthesizer import Synthesizer
from tacotron2.model import Tacotron2
from tacotron2.spec import SPEC as ACOUSTIC
from tests.outside_hosts import IN_NAMESPACE, no_namespace
from tests.recipe import ROOT
from waveglow.model import WaveGlow
from waveglow.spec import SPEC as VOCODER

TACOTRON2 = {
    "n_mel_channels": 9, "symbols_embedding_dim": 6, "encoder_kernel_size": 3, "encoder_n_convolutions": 2,
    "encoder_embedding_dim": 8, "attention_rnn_dim": 7, "attention_dim": 4, "attention_location_n_filters": 3,
    "attention_location_kernel_size": 5, "decoder_rnn_dim": 9, "prenet_dim": 6, "max_decoder_steps": 40,
    "postnet_embedding_dim": 7, "postnet_n_convolutions": 3, "n_frames_per_step": 2,
}  # fmt: skip
WAVEGLOW = {
    "n_mel_channels": 9, "n_flows": 2, "n_early_every": 1, "hop_length": 64, "upsample_kernel_size": 256,
    "WN_config": {"n_layers": 2, "kernel_size": 3, "n_channels": 8},
}  # fmt: skip
AUDIO = {"n_mel_channels": 9, "filter_length": 256, "hop_length": 64, "win_length": 256}
# Of a manifest without files.
SETTINGS = {"target": "onnx", "voice": "", "versions": {}, "models": {}, "options": {}, "sigma_infer": 0.9}
SETTINGS["denoising_strength"] = 0.1
PACKAGES = ("onnx", "onnxruntime", "onnxscript")
# Targets exported in one process: those of ONNX share the conversion of the parts.
ONNX = ("onnx", "onnx-int8", "onnx-float16", "tensorrt", "triton-onnx", "web")
GROUPS = (ONNX, ("torchscript", "programs", "triton"), ("aotinductor",))
# Writes the hosts that the process looks up into the file that the first word names.
PROGRAM = """
import gc, sys
from pathlib import Path
from tests.outside_hosts import watch, write_to
watch(write_to(sys.argv[1]))
from tests.exports.conftest import make_exports
gc.freeze()  # a sixth of the time went into collections among all that is imported
make_exports(Path(sys.argv[2]), *sys.argv[3:])
"""


def skip_without_packages() -> None:
    for name in PACKAGES:
        if find_spec(name) is None:
            pytest.skip(f"{name}, of requirements/exports.txt, is not installed")


@functools.cache
def acoustic_model() -> Tacotron2:
    torch.manual_seed(2)
    model = Tacotron2(**TACOTRON2).eval()
    with torch.no_grad():
        for name, parameter in model.decoder.named_parameters():
            if name.startswith(("prenet", "attention")):
                parameter.mul_(1.5)  # far from uniform attention
        model.decoder.gate_layer.linear_layer.weight.mul_(8)
        model.decoder.gate_layer.linear_layer.bias.fill_(1.03)
        for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm1d)):
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.normal_(std=0.3)
            norm.running_mean.normal_(std=0.3)
            norm.running_var.uniform_(0.5, 1.5)
    return model


def vocoder_model(**config) -> WaveGlow:
    """A WaveGlow in which no weight is zero and no mixing matrix a rotation."""
    torch.manual_seed(1)
    model = WaveGlow(**WAVEGLOW | config).eval()
    with torch.no_grad():
        for wn, convinv in zip(model.WN, model.convinv):
            wn.end.weight.normal_(std=0.1)
            wn.end.bias.normal_(std=0.05)
            convinv.conv.weight.add_(0.1 * torch.randn_like(convinv.conv.weight))
    return model


def pulse_noise_model(**config) -> PulseNoise:
    """A PulseNoise whose pitch moves, with voiced and unvoiced frames."""
    torch.manual_seed(4)
    model = PulseNoise(channels=8, pitches=16, **config).eval()
    with torch.no_grad():
        model.layers[-1].weight.mul_(20)
    return model


@functools.cache
def small_source() -> ExportSource:
    return source_with(VOCODER, vocoder_model())


@functools.cache
def pulse_noise_source() -> ExportSource:
    return source_with(PULSE_NOISE, pulse_noise_model(**AUDIO))


def source_with(spec: ModelSpec, vocoder: nn.Module) -> ExportSource:
    options, acoustic = default_options() | AUDIO, acoustic_model()
    config = SynthesisConfig(plain=True, denoising_strength=0.05, sigma_infer=0.7)
    loaded = LoadedModel(ACOUSTIC, acoustic, options), LoadedModel(spec, vocoder, options)
    return ExportSource(Synthesizer(*loaded, config, torch.device("cpu"), "small"), acoustic, vocoder)


def make_exports(folder: Path, *targets: str) -> None:
    """Export the small voice to `targets`, where their packages are installed, and speak with every export that runs here."""
    (folder / "phrase.txt").write_text("Two.\n")
    there = [target for target in targets if not missing_parts(target)]
    for target in there:
        export(target, small_source(), folder / target)
    if "onnx" in there:
        for target in {"onnx", "web"} & set(there):
            export(target, pulse_noise_source(), folder / f"{target}-pulse-noise")
    for target in there:
        if target in RUNTIMES and target != "tensorrt":
            words = ["--export", folder / target, "-i", folder / "phrase.txt", "-o", folder / f"speech-{target}"]
            inference.main(list(map(str, words)))


@pytest.fixture(scope="session")
def shared_exports(tmp_path_factory) -> Path:
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "exports"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def output_of(shared_exports):
    """output_of(target) -> stdout and stderr of the process that exports the target's group; the first call runs it.

    The process has no network, where the kernel allows that, and looks up no host.
    """

    @functools.cache
    def run(target: str) -> tuple[str, str]:
        if TARGETS[target].packages:
            skip_without_packages()
        if missing := missing_parts(target):
            pytest.skip(missing)
        group = next(targets for targets in GROUPS if target in targets)
        out, err = (shared_exports / f"{group[0]}.{name}" for name in ("out", "err"))
        with FileLock(shared_exports / f"{group[0]}.lock"):
            if not out.exists():
                alone, hosts = [] if no_namespace() else IN_NAMESPACE, shared_exports / f"{group[0]}.hosts"
                command = [*alone, sys.executable, "-c", PROGRAM, str(hosts), str(shared_exports), *group]
                environment = os.environ | {
                    "OMP_NUM_THREADS": "1",
                    "AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL": "O0",
                    "AOT_INDUCTOR_ENABLE_LINE_TABLES": "0",
                    "TORCHINDUCTOR_VEC_ISA_OK": "1",
                }
                done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
                assert not hosts.exists(), hosts.read_text()
                err.write_text(done.stderr)
                out.write_text(done.stdout)
        return out.read_text(), err.read_text()

    return run


@pytest.fixture(scope="session")
def export_of(shared_exports, output_of):
    """export_of(target) -> the directory of the small voice's export, which no test may change."""

    def find(target: str) -> Path:
        output_of(target)
        return shared_exports / target

    return find


@pytest.fixture
def source() -> ExportSource:
    return small_source()
