"""Model repositories for Triton Inference Server: the voice in the Python backend, and tts.onnx in the ONNX Runtime backend.

NVIDIA's "Model Repository" and "Model Configuration" pages of the server's user guide define the layout and config.pbtxt, of which
exports/triton_config has the templates.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

import torch

from common.checkpoint.weights import data_to_store
from common.inference.vocoders import LoadedModel
from common.spec import config_of
from synthesizer import Synthesizer

TTS, STREAM, ONNX = "tts", "tts_stream", "tts_onnx"  # names of models
CHECKPOINTS = ("tacotron2.pt", "vocoder.pt")  # in a version folder of TTS
MOST_ROWS = 16  # per batch that the server forms
QUEUE_DELAY = 10_000  # microseconds that a request waits for others
WARM_UP = "Good morning."
TEMPLATES = Path(__file__).with_name("triton_config")


def python_files(voice: Synthesizer) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files of TTS and STREAM, which both read the checkpoints of TTS."""
    for name, loaded in zip(CHECKPOINTS, (voice.acoustic, voice.vocoding), strict=True):
        yield f"{TTS}/1/{name}", _checkpoint(loaded)
    settings = {"sigma_infer": voice.sigma_infer, "denoising_strength": voice.denoising_strength}
    for name in (TTS, STREAM):
        yield f"{name}/1/model.py", (TEMPLATES / "model.txt").read_bytes()
        yield f"{name}/warmup/text", len(WARM_UP).to_bytes(4, "little") + WARM_UP.encode()
        yield f"{name}/config.pbtxt", _config(name, "python", vocoder=voice.vocoding.spec.flag, **settings)


def onnx_files(single_file: bytes, n_mels: int) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files of ONNX, which takes symbol ids."""
    yield f"{ONNX}/1/model.onnx", single_file
    yield f"{ONNX}/config.pbtxt", _config(ONNX, n_mels=n_mels)


def _config(*templates: str, **values: Any) -> bytes:
    """A model's config.pbtxt from the templates with these names, joined."""
    text = "".join((TEMPLATES / f"{name}.pbtxt").read_text(encoding="utf-8") for name in templates)
    return Template(text).substitute(values, most_rows=MOST_ROWS, queue_delay=QUEUE_DELAY).encode()


def _checkpoint(loaded: LoadedModel) -> bytes:
    """A checkpoint of weights and settings, as `Synthesizer.from_checkpoints` reads it."""
    contents = {"state_dict": loaded.model.state_dict(), "config": config_of(loaded.model)}
    contents["data"] = data_to_store(loaded.options, loaded.spec)
    torch.save(contents, buffer := io.BytesIO())
    return buffer.getvalue()
