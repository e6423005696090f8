"""Weights of 8 bits: Tacotron 2's with activations quantised as they come, WaveGlow's with ranges from calibration.

Both by ONNX Runtime's own tools. The denoiser stays in float32: it is small, and its transform must stay its own inverse.
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
from torch import Tensor

DYNAMIC, STATIC = ("encoder", "decoder_step", "postnet"), ("waveglow",)


class Inputs(CalibrationDataReader):
    """Inputs of a calibration, one after the other."""

    def __init__(self, inputs: Sequence[Mapping[str, Tensor]]) -> None:
        self.remaining: Iterator[dict[str, Any]] = iter(
            [{name: tensor.numpy() for name, tensor in one.items()} for one in inputs]
        )

    def get_next(self) -> dict[str, Any] | None:
        """The next inputs; None at the end."""
        return next(self.remaining, None)


def quantize(
    models: Mapping[str, onnx.ModelProto], calibration: Sequence[Mapping[str, Tensor]]
) -> dict[str, onnx.ModelProto]:
    """The models of an export with weights of 8 bits; `calibration` has inputs of WaveGlow."""
    level = logging.root.level
    logging.root.setLevel(logging.ERROR)  # the tools recommend preprocessing, which is done here
    try:
        return {name: _quantize(name, model, calibration) for name, model in models.items()}
    finally:
        logging.root.setLevel(level)


def _exact_nodes(model: onnx.ModelProto) -> list[str]:
    """Names of the convolutions that stay in float32: those on the flow itself, and those of the condition.

    The condition's inputs have a wide range, most of it silence: in 8 bits they caused four fifths of the audio's error.
    """
    exact = ("convinv", ".start.", ".end.", ".cond_layers.")
    return [
        node.name
        for node in model.graph.node
        if node.op_type == "Conv" and any(part in node.input[1] for part in exact)
    ]


def _quantize(name: str, model: onnx.ModelProto, calibration: Sequence[Mapping[str, Tensor]]) -> onnx.ModelProto:
    if name not in (*DYNAMIC, *STATIC):
        return model
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
                extra_options={"EnableSubgraph": True},
            )
        else:
            quant_pre_process(plain, ready, skip_symbolic_shape=True)
            quantize_static(
                ready,
                result,
                Inputs(calibration),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=["Conv"],
                nodes_to_exclude=_exact_nodes(onnx.load(ready)),
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                calibrate_method=CalibrationMethod.MinMax,
            )
        return onnx.load(result)
