"""ONNX models in other number formats, converted by ONNX Runtime's own tools: 8-bit weights, and float16 for GPUs.

In 8 bits, Tacotron 2's activations are quantised as they are computed, WaveGlow's with ranges from calibration. Weights use 7 of
the 8 bits: on CPUs with AVX2 but without VNNI, sums of two products saturate otherwise, and the result is off by 15 %. In float16,
the inputs and outputs of each file stay in float32. The denoiser and pulse-noise always do: they are small, and their transforms
must stay their own inverse.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16
from torch import Tensor

from exports.onnx_files import quiet

DYNAMIC, EXACT = ("encoder", "decoder_step", "postnet"), ("denoiser", "pulse_noise")


class CalibrationInputs(CalibrationDataReader):
    """The inputs of a calibration, one after the other."""

    def __init__(self, inputs: Sequence[Mapping[str, Tensor]]) -> None:
        self.remaining: Iterator[dict[str, Any]] = iter(
            [{name: tensor.numpy() for name, tensor in one.items()} for one in inputs]
        )

    def get_next(self) -> dict[str, Any] | None:
        """The next inputs, or None at the end."""
        return next(self.remaining, None)


def to_half(models: Mapping[str, onnx.ModelProto]) -> dict[str, onnx.ModelProto]:
    """The models of an export in float16, except those in EXACT, whose magnitudes exceed its range."""
    with quiet(logging.root):
        return {name: model if name in EXACT else _to_half(model) for name, model in models.items()}


def _to_half(model: onnx.ModelProto) -> onnx.ModelProto:
    contents = onnx.ModelProto()
    contents.CopyFrom(model)  # the converter changes its argument
    return convert_float_to_float16(contents, keep_io_types=True)


def quantize(
    models: Mapping[str, onnx.ModelProto], calibration: Sequence[Mapping[str, Tensor]]
) -> dict[str, onnx.ModelProto]:
    """The models of an export with 8-bit weights; `calibration` has inputs of WaveGlow."""
    with quiet(logging.root):
        return {name: model if name in EXACT else _quantize(name, model, calibration) for name, model in models.items()}


def _exact_nodes(model: onnx.ModelProto) -> list[str]:
    """Names of the convolutions that stay in float32: those on the flow itself, and those of the condition.

    The condition's inputs have a wide range, most of it silence: quantised, they caused four fifths of the audio's error.
    """
    exact = ("convinv", ".start.", ".end.", ".cond_layers.")
    return [
        node.name
        for node in model.graph.node
        if node.op_type == "Conv" and any(part in node.input[1] for part in exact)
    ]


def _quantize(name: str, model: onnx.ModelProto, calibration: Sequence[Mapping[str, Tensor]]) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        plain, ready, result = (Path(folder) / f"{step}.onnx" for step in ("plain", "ready", "result"))
        onnx.save(model, plain)
        if name in DYNAMIC:
            quantize_dynamic(
                plain,
                result,
                op_types_to_quantize=["MatMul", "Gemm"],
                weight_type=QuantType.QInt8,
                per_channel=True,
                reduce_range=True,
                extra_options={"EnableSubgraph": True},
            )
        else:
            quant_pre_process(plain, ready, skip_symbolic_shape=True)
            quantize_static(
                ready,
                result,
                CalibrationInputs(calibration),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=["Conv"],
                nodes_to_exclude=_exact_nodes(onnx.load(ready)),
                per_channel=True,
                reduce_range=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                calibrate_method=CalibrationMethod.MinMax,
            )
        return onnx.load(result)
