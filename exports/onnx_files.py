"""ONNX files of a voice's parts, with dynamic batch, text and mel axes."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import onnx
import torch
from onnxscript import FLOAT, opset18, script

from exports.parts import Axes, ExportPart, axis_name, program
from exports.pulse_noise import BLOCK

OPSET = 20
op: Any = opset18  # its types are stricter than the language of `script`


@script()
def eliminate(matrix: FLOAT, right: FLOAT) -> FLOAT:
    """exports.pulse_noise.solve by Gauss-Jordan elimination, BLOCK unknowns at once; positive definite systems need no pivoting.

    An unknown's row is divided by its pivot and subtracted from the others, times their factors.
    """
    zero = op.Constant(value_ints=[0])
    two = op.Constant(value_ints=[2])
    size = op.Constant(value_int=BLOCK)
    hot = op.Constant(value_floats=[0.0, 1.0])
    order = op.Range(op.Constant(value_int=0), size, op.Constant(value_int=1))
    unknowns = op.Shape(matrix, start=1, end=2)
    both = op.Concat(matrix, op.Unsqueeze(right, two), axis=2)
    blocks = op.Squeeze(op.Div(unknowns, size))
    for i in range(blocks):
        places = op.Add(op.Mul(i, size), order)
        rows = op.Gather(both, places, axis=1)
        corner = op.Gather(rows, places, axis=2)
        for k in range(BLOCK):
            place = op.Unsqueeze(k, zero)
            row = op.Gather(rows, place, axis=1)
            pivots = op.Gather(corner, place, axis=1)
            unit = op.Unsqueeze(op.OneHot(place, size, hot), two)
            factors = op.Div(op.Sub(op.Gather(corner, place, axis=2), unit), op.Gather(pivots, place, axis=2))
            rows = op.Sub(rows, op.MatMul(factors, row))
            corner = op.Sub(corner, op.MatMul(factors, pivots))
        units = op.Transpose(op.OneHot(places, unknowns, hot), perm=[1, 0])
        both = op.Sub(both, op.MatMul(op.Sub(op.Gather(both, places, axis=2), units), rows))
    return op.Squeeze(op.Gather(both, unknowns, axis=2), two)


OPERATORS: dict[Callable[..., Any], Callable[..., Any]] = {torch.ops.pulse_noise.solve.default: eliminate}


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
            custom_translation_table=OPERATORS,
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
