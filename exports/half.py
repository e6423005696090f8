"""Weights and products in float16, for GPUs: by ONNX Runtime's own converter. Inputs and outputs of each file stay in float32."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import onnx
from onnxruntime.transformers.float16 import convert_float_to_float16

# The transform must stay its own inverse, and its magnitudes leave float16's range.
EXACT = ("denoiser",)


def to_half(models: Mapping[str, onnx.ModelProto]) -> dict[str, onnx.ModelProto]:
    """Convert the models of an export to float16, but for those in EXACT."""
    level = logging.root.level
    logging.root.setLevel(logging.ERROR)  # the converter warns of each weight that rounds to zero
    try:
        return {name: model if name in EXACT else _convert(model) for name, model in models.items()}
    finally:
        logging.root.setLevel(level)


def _convert(model: onnx.ModelProto) -> onnx.ModelProto:
    contents = onnx.ModelProto()
    contents.CopyFrom(model)  # the converter changes its argument
    return convert_float_to_float16(contents, keep_io_types=True)
