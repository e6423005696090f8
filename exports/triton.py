"""Model repositories for Triton Inference Server: the voice in the Python backend, and tts.onnx in the ONNX Runtime backend.

NVIDIA's "Model Repository" and "Model Configuration" pages of the server's user guide define the layout and config.pbtxt.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from common.checkpoint.weights import data_to_store
from common.inference.vocoders import LoadedModel
from common.spec import config_of
from synthesizer import Synthesizer

TTS, STREAM, ONNX = "tts", "tts_stream", "tts_onnx"  # names of models
CHECKPOINTS = ("tacotron2.pt", "vocoder.pt")  # in a version folder of TTS
MOST_ROWS = 16  # per batch that the server forms
QUEUE_DELAY = 10_000  # microseconds that a request waits for others
DYNAMIC_BATCHING = f"dynamic_batching {{ max_queue_delay_microseconds: {QUEUE_DELAY} }}"
WARM_UP = "Good morning."
# Its text comes from a file, as the server's own warm-up text would be empty.
WARM_UP_REQUEST = """model_warmup {
  name: "sentence"
  batch_size: 1
  inputs { key: "text" value { data_type: TYPE_STRING dims: [ 1 ] input_data_file: "text" } }
  inputs { key: "seed" value { data_type: TYPE_INT64 dims: [ 1 ] zero_data: true } }
}"""
MODEL = '''"""The voice in Triton's Python backend. The server's PYTHONPATH must contain the folder of the project's sources."""

try:
    from exports.triton_model import TritonPythonModel
except ModuleNotFoundError as error:
    message = "the server's PYTHONPATH must contain the project's sources, and its Python must have their packages"
    raise ImportError(f"{error}: {message}") from error

__all__ = ["TritonPythonModel"]
'''


class Value(NamedTuple):
    """An input or output of a model, without the batch; `scalar` if the model itself takes one number per row."""

    name: str
    kind: str
    dims: str = "1"
    scalar: bool = False

    def __str__(self) -> str:
        reshape = " reshape { shape: [ ] }" if self.scalar else ""
        return f'{{ name: "{self.name}" data_type: TYPE_{self.kind} dims: [ {self.dims} ]{reshape} }}'


INPUTS = (Value("text", "STRING"), Value("seed", "INT64"))
OUTPUTS = (Value("audio", "FP32", "-1"), Value("samples", "INT64"), Value("sampling_rate", "INT32"))


def python_files(voice: Synthesizer) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files of TTS and STREAM, which both read the checkpoints of TTS."""
    assert voice.vocoding is not None
    for name, loaded in zip(CHECKPOINTS, (voice.acoustic, voice.vocoding), strict=True):
        yield f"{TTS}/1/{name}", _checkpoint(loaded)
    strings = {"vocoder": voice.vocoding.spec.flag}
    strings |= {"sigma_infer": str(voice.config.sigma_infer), "denoising_strength": str(voice.denoising_strength)}
    batching = f"max_batch_size: {MOST_ROWS}\n{DYNAMIC_BATCHING}"
    streaming = "max_batch_size: 0\nmodel_transaction_policy { decoupled: true }"
    for name, policy in ((TTS, batching), (STREAM, streaming)):
        yield f"{name}/1/model.py", MODEL.encode()
        yield f"{name}/warmup/text", len(WARM_UP).to_bytes(4, "little") + WARM_UP.encode()
        outputs = [value for value in OUTPUTS if name == TTS or value.name != "samples"]
        parts = (
            _head(name, "python", INPUTS, outputs),
            policy,
            WARM_UP_REQUEST,
            _parameters(strings | {"voice_of": TTS}),
        )
        yield f"{name}/config.pbtxt", "\n".join(parts).encode()


def onnx_files(single_file: bytes, n_mels: int) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files of ONNX, which takes symbol ids."""
    inputs = (Value("ids", "INT64", "-1"), Value("lengths", "INT64", scalar=True), Value("seeds", "INT64", scalar=True))
    outputs = (
        Value("audio", "FP32", "-1"),
        Value("audio_lengths", "INT64", scalar=True),
        Value("mels", "FP32", f"{n_mels}, -1"),
        Value("mel_lengths", "INT64", scalar=True),
    )
    yield f"{ONNX}/1/model.onnx", single_file
    parts = _head(ONNX, "onnxruntime", inputs, outputs), f"max_batch_size: {MOST_ROWS}", DYNAMIC_BATCHING, ""
    yield f"{ONNX}/config.pbtxt", "\n".join(parts).encode()


def _head(name: str, backend: str, inputs: Sequence[Value], outputs: Sequence[Value]) -> str:
    lines = [f'name: "{name}"', f'backend: "{backend}"']
    for title, values in (("input", inputs), ("output", outputs)):
        lines += [f"{title} [", ",\n".join(f"  {value}" for value in values), "]"]
    return "\n".join(lines)


def _parameters(values: Mapping[str, Any]) -> str:
    return "".join(
        f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n' for name, value in values.items()
    )


def _checkpoint(loaded: LoadedModel) -> bytes:
    """A checkpoint of weights and settings, as `Synthesizer.from_checkpoints` reads it."""
    contents = {"state_dict": loaded.model.state_dict(), "config": config_of(loaded.model)}
    contents["data"] = data_to_store(loaded.options, loaded.spec)
    torch.save(contents, buffer := io.BytesIO())
    return buffer.getvalue()
