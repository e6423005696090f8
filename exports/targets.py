"""The targets of an export; each writes its files from a voice's plain models."""

from __future__ import annotations

import functools
import io
import json
import platform
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from common import precision
from common.errors import DataError, UsageError
from common.inference.config import SynthesisConfig
from common.inference.stages import mels_from_texts
from common.inference.voice_folder import default_vocoder
from common.options import from_options
from exports import parts, torchscript, triton
from exports.engines import build_script, compile_package, missing_compiler
from exports.manifest import ExportManifest, ExportWriter
from exports.models import VOCODERS, VocoderExport
from exports.parts import Axes, ExportPart, program
from synthesizer import Synthesizer, choose_checkpoints
from tacotron2.data_function import Tacotron2DataConfig
from tacotron2.model import Tacotron2

CALIBRATION = (
    "The trains leave at ten past nine every day, and the last one comes back at midnight.",
    "Where did you put the keys? I have looked in every room of the house!",
    "Seven small boats lay in the harbour, white and blue under a heavy sky.",
)
CALIBRATION_FRAMES = 256  # of each phrase
EXTRA_PACKAGES = ("onnx", "onnxruntime", "onnxscript")
# Of the target web, a demo page that runs tts.onnx in a browser with ONNX Runtime Web; `scripts/web.sh` installs that from npm.
PAGE = Path(__file__).resolve().parent / "page"  # index.html and its style and scripts
RUNTIME = PAGE.parents[1] / "node_modules" / "onnxruntime-web" / "dist"
RUNTIME_FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
CLEANERS = ["english_cleaners"]  # those that page/text.js translates
REQUIRED, FIXED = ("seeds", "max_steps"), ("sigma", "strength")  # inputs with a default in the single file


class ExportSource(NamedTuple):
    """A voice to export: its plain models on the CPU, and its settings."""

    voice: Synthesizer
    acoustic: Tacotron2
    vocoder: Any

    def parts(self) -> Iterator[ExportPart]:
        """All parts of both models."""
        yield from parts.acoustic_parts(self.acoustic)
        yield from self.kind.parts(self.vocoder, self.voice.audio)

    @property
    def kind(self) -> VocoderExport:
        """What the vocoder brings to an export."""
        return VOCODERS[self.voice.vocoding.spec.name]


class Target(NamedTuple):
    """What writes a target's files, what must be installed for that, and whether it can hold a voice."""

    write: Callable[[ExportSource, ExportWriter], None]
    packages: tuple[str, ...] = EXTRA_PACKAGES
    missing: Callable[[], str] = str  # the programs that this machine lacks; "" if it has all
    check: Callable[[ExportSource], object] = bool  # raises UsageError for a voice that it cannot hold


def export(target: str, source: ExportSource, directory: Path) -> ExportManifest:
    """Write an export directory, and print a line about each file.

    Raises:
        UsageError: the directory holds something else, or the target has no front end or no vocoder for the voice.
        DataError: a package of requirements/exports.txt or of npm is missing, or the directory cannot be written.
    """
    check_packages(target)
    check_vocoder(target, source.kind.spec.flag)
    TARGETS[target].check(source)
    writer = ExportWriter(directory)
    with warnings.catch_warnings():
        # PyTorch itself uses a function that it calls deprecated.
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
        TARGETS[target].write(source, writer)
    return writer.finish(target=target, **settings_of(source))


def check_packages(target: str) -> None:
    """Raise DataError if a target's packages or programs are missing."""
    if missing := missing_parts(target):
        raise DataError(f"{target}: {missing}")


def missing_parts(target: str) -> str:
    """The packages or programs a target lacks, and the command that installs them; "" if nothing is missing."""
    missing = ", ".join(name for name in TARGETS[target].packages if not _version(name))
    return (
        f"{missing}: not installed; `bash scripts/exports.sh` installs them" if missing else TARGETS[target].missing()
    )


def vocoders_for(target: str) -> list[str]:
    """The flags of the vocoders that a target can hold."""
    return [kind.spec.flag for kind in VOCODERS.values() if not kind.targets or target in kind.targets]


def check_vocoder(target: str, flag: str) -> None:
    """Raise UsageError if a target cannot hold a vocoder."""
    if flag not in (flags := vocoders_for(target)):
        raise UsageError(f"{target}: cannot hold {flag}, expected --vocoder {' or '.join(flags)}")


def load_source(
    vocoders: Sequence[str], checkpoints: Mapping[str, Path], config: SynthesisConfig, folder: Path | None = None
) -> ExportSource:
    """Load the plain models of a voice on the CPU.

    Args:
        vocoders: flags of those that the target can hold. The voice's default is taken if it is among them, unless `config`
            names another.
        checkpoints: by the models' flags.
        config: of the Synthesizer.
        folder: the voice's, whose config.json has its default vocoder.

    Raises:
        DataError: the voice has none of the vocoders.
    """
    flag = config.vocoder
    if flag is None:
        if folder:
            usual: str | None = default_vocoder(folder, [kind.spec for kind in VOCODERS.values()])
        else:
            own = choose_checkpoints(checkpoints).vocoder  # None: Griffin-Lim
            usual = own.spec.flag if own else None
        flags = sorted(vocoders, key=lambda flag: flag != usual)
        if folder and not checkpoints.keys() & set(flags):
            raise DataError(f"{folder}: no {' or '.join(flags)} in it, which the export needs")
        flag = next((flag for flag in flags if flag in checkpoints), flags[0])
    voice = Synthesizer.from_choice(choose_checkpoints(checkpoints, flag), config=config, device="cpu")
    return ExportSource(voice, voice.acoustic.model, voice.vocoding.model)


def settings_of(source: ExportSource) -> dict[str, Any]:
    """The manifest's entries about the voice."""
    voice, settings = source.voice, source.voice.settings()
    loaded = (voice.acoustic, voice.vocoding)
    return {
        "voice": voice.description,
        "versions": {"python": platform.python_version()}
        | {name: found for name in ("torch", *EXTRA_PACKAGES) if (found := _version(name))},
        "models": {one.spec.name: settings.pop(f"{one.spec.flag}_config") for one in loaded},
        "sigma_infer": settings.pop("sigma_infer"),
        "denoising_strength": settings.pop("denoising_strength"),
        "options": settings,  # the others
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except ImportError:
        return None


def describe(part: ExportPart) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and outputs of a part for the manifest."""
    with torch.no_grad():
        outputs = part.module(*part.inputs.values())
    tensors = dict(zip(part.outputs, (outputs,) if isinstance(outputs, Tensor) else outputs, strict=True))
    return _describe(part.inputs, part.input_axes), _describe(tensors, part.outputs)


def _describe(tensors: Mapping[str, Tensor], axes: Mapping[str, Axes]) -> dict[str, Any]:
    return {
        name: {
            "type": str(tensor.dtype).removeprefix("torch."),
            "shape": [
                parts.axis_name(axes[name][axis]) if axis in axes[name] else size
                for axis, size in enumerate(tensor.shape)
            ],
        }
        for name, tensor in tensors.items()
    }


def _write_torchscript(source: ExportSource, writer: ExportWriter) -> None:
    """Scripted models and denoiser."""
    acoustic = torchscript.script(torchscript.ScriptedFreeRun(source.acoustic))
    vocoder = torchscript.script_vocoder(source.vocoder, source.voice.audio)
    for name, script in zip(torchscript.NAMES, (acoustic, *vocoder), strict=True):
        torch.jit.save(script, buffer := io.BytesIO())
        writer.add(f"{name}.ts", buffer.getvalue())


def _write_programs(source: ExportSource, writer: ExportWriter) -> None:
    """The torch.export programs of the parts."""
    for part in source.parts():
        torch.export.save(program(part), buffer := io.BytesIO())
        writer.add(f"{part.name}.pt2", buffer.getvalue(), *describe(part))


def _write_aotinductor(source: ExportSource, writer: ExportWriter) -> None:
    for part in source.parts():
        writer.add(f"{part.name}.pt2", compile_package(part), *describe(part))


Graphs = Mapping[str, Any]  # ONNX models by the names of their parts and steps


def _write_onnx(source: ExportSource, writer: ExportWriter, number_format: str = "") -> None:
    """The parts, perhaps converted to another number format, and the single file assembled from them."""
    from exports.single_file import describe_single_file

    described = list(source.parts())
    graphs = {**onnx_graphs(source)}
    if number_format:  # not of the steps in between
        from exports import number_formats

        own = {part.name: graphs[part.name] for part in described}
        if number_format == "int8":
            graphs |= number_formats.quantize(own, calibration_inputs(source))
        else:
            graphs |= number_formats.to_half(own)
    for part in described:
        writer.add(f"{part.name}.onnx", graphs[part.name].SerializeToString(), *describe(part))
    writer.add("tts.onnx", single_file(source, graphs).SerializeToString(), *describe_single_file(source.kind))


def single_file(source: ExportSource, graphs: Graphs) -> Any:
    """The model from ids to audio, assembled in ONNX from the parts and the steps between them."""
    from exports.single_file import assemble

    voice = source.voice
    values = {"sigma": voice.sigma_infer, "strength": voice.denoising_strength}
    defaults = {name: values[name] for name in source.kind.settings}
    defaults |= {"max_steps": source.acoustic.config.max_decoder_steps}
    return assemble(graphs, source.kind, voice.audio.hop_length, defaults)


def onnx_graphs(source: ExportSource) -> Graphs:
    """The parts, and the steps between them in the single file, in ONNX."""
    return {**_acoustic_graphs(source.acoustic), **_vocoder_graphs(source)}


# Several targets of a voice, and voices with the same acoustic model, share the conversions, which take up to a minute.
@functools.lru_cache(maxsize=1)
def _acoustic_graphs(acoustic: Tacotron2) -> Graphs:
    from exports.onnx_files import to_onnx
    from exports.single_file import acoustic_steps

    return {step.name: to_onnx(step) for step in (*parts.acoustic_parts(acoustic), *acoustic_steps(acoustic))}


@functools.lru_cache(maxsize=1)
def _vocoder_graphs(source: ExportSource) -> Graphs:
    from exports.onnx_files import to_onnx
    from exports.single_file import vocoder_steps

    audio, kind = source.voice.audio, source.kind
    steps = vocoder_steps(kind, source.vocoder.config, audio)
    return {step.name: to_onnx(step) for step in (*kind.parts(source.vocoder, audio), *steps)}


@torch.inference_mode()
def calibration_inputs(source: ExportSource) -> list[dict[str, Tensor]]:
    """The vocoder's inputs for the phrases of CALIBRATION, with the voice's own mels, so that activations have typical ranges."""
    voice, noise = source.voice, source.kind.noise(source.vocoder.config)
    inputs = []
    with precision.separate_rng(voice.device, 0):
        for number, phrase in enumerate(CALIBRATION):
            batch, _ = mels_from_texts([phrase], voice.acoustic, voice.device, half=False)
            mels = batch.mels[:, :, :CALIBRATION_FRAMES]
            z = noise(mels, torch.tensor([number]))
            inputs.append({"mels": mels, "z": z, "sigma": torch.tensor(voice.sigma_infer)})
    return inputs


def _write_tensorrt(source: ExportSource, writer: ExportWriter) -> None:
    """The ONNX files, and a script that builds engines from them with trtexec."""
    _write_onnx(source, writer)
    writer.add("build_engines.sh", build_script(source.parts(), source.vocoder.config).encode())
    print("engines: build_engines.sh builds them, on a machine with a GPU and trtexec (not yet tested)")


def _write_triton(source: ExportSource, writer: ExportWriter) -> None:
    writer.add_all(triton.python_files(source.voice))


def _write_triton_onnx(source: ExportSource, writer: ExportWriter) -> None:
    """A model repository with tts.onnx for the ONNX Runtime backend of Triton."""
    single = single_file(source, onnx_graphs(source)).SerializeToString()
    writer.add_all(triton.onnx_files(single, source.voice.audio.n_mel_channels))


def check_page(options: Mapping[str, Any]) -> None:
    """Raise UsageError if a voice's texts need another front end than the page has."""
    if (found := list(options["text_cleaners"])) != CLEANERS:
        raise UsageError(
            f"web: the voice's text cleaners are {', '.join(found) or 'none'}; expected english_cleaners, "
            "as the page's front end reads English"
        )


def missing_runtime() -> str:
    """The missing files of ONNX Runtime Web and how to install them; "" if none is missing."""
    missing = [name for name in RUNTIME_FILES if not (RUNTIME / name).is_file()]
    return f"{', '.join(missing)}: not in {RUNTIME}; `bash scripts/web.sh` installs them with npm" if missing else ""


def page_files(options: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of all files except tts.onnx: the page, the voice's alphabet and the runtime."""
    for path in [*sorted(PAGE.iterdir()), *(RUNTIME / name for name in RUNTIME_FILES)]:
        yield path.name, path.read_bytes()
    symbols = from_options(Tacotron2DataConfig, options).alphabet.symbols
    yield "alphabet.json", json.dumps(symbols, ensure_ascii=False).encode()


def without_defaults(model: Any) -> Any:
    """Make the inputs in REQUIRED mandatory and those in FIXED constant, as ONNX Runtime Web does not support default values."""
    for value in [value for value in model.graph.initializer if value.name in REQUIRED]:
        model.graph.initializer.remove(value)
    for value in [value for value in model.graph.input if value.name in FIXED]:
        model.graph.input.remove(value)
    return model


def _write_web(source: ExportSource, writer: ExportWriter) -> None:
    """A page that speaks in a browser, and everything it loads."""
    from exports.single_file import describe_single_file

    model = without_defaults(single_file(source, onnx_graphs(source)))
    inputs, outputs = describe_single_file(source.kind)
    inputs = {name: value for name, value in inputs.items() if name not in FIXED}
    writer.add("tts.onnx", model.SerializeToString(), inputs, outputs)
    writer.add_all(page_files(source.voice.acoustic.options))
    print("serve the directory: python -m http.server --bind 127.0.0.1 -d DIR, then open http://127.0.0.1:8000")


TARGETS = {
    "torchscript": Target(_write_torchscript, ()),
    "programs": Target(_write_programs, ()),
    "aotinductor": Target(_write_aotinductor, (), missing_compiler),
    "onnx": Target(_write_onnx),
    "onnx-int8": Target(functools.partial(_write_onnx, number_format="int8")),
    "onnx-float16": Target(functools.partial(_write_onnx, number_format="float16")),
    "tensorrt": Target(_write_tensorrt),
    "triton": Target(_write_triton, ()),
    "triton-onnx": Target(_write_triton_onnx),
    "web": Target(_write_web, missing=missing_runtime, check=lambda source: check_page(source.voice.acoustic.options)),
}
