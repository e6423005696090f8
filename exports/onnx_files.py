"""ONNX files of a voice's parts, with dynamic batch, text and mel axes."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import onnx
import torch

from exports.parts import Axes, ExportPart, axis_name, program

OPSET = 20


def to_onnx(part: ExportPart) -> onnx.ModelProto:
    """Convert a part's torch.export program to ONNX."""
    with quiet(logging.getLogger("torch.onnx")):
        converted = torch.onnx.export(
            program(part),
            dynamo=True,
            opset_version=OPSET,
            input_names=list(part.inputs),
            output_names=list(part.outputs),
            verbose=False,
        )
    assert converted is not None
    model = converted.model_proto
    del model.graph.value_info[:]  # intermediate shapes; their axes have names that are replaced here
    for values, axes in ((model.graph.input, part.input_axes), (model.graph.output, part.outputs)):
        for value in values:
            _name_axes(value, axes[value.name])
    return model


def _name_axes(value: onnx.ValueInfoProto, axes: Axes) -> None:
    """Replace the exporter's names of the dynamic axes of an input or output by ours."""
    for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
        if axis in axes:
            dimension.dim_param = axis_name(axes[axis])


@contextmanager
def quiet(logger: logging.Logger) -> Iterator[None]:
    """Silence what a logger says about packages that are not needed, and advice that is not for this use."""
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
