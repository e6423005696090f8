"""torch.export programs of a voice's parts."""

from __future__ import annotations

import torch
from torch.export import Dim, ExportedProgram

from exports.parts import Part


def program(part: Part) -> ExportedProgram:
    """Export a part for any size of its dynamic axes."""
    shapes = tuple(
        {axis: Dim.AUTO if isinstance(dim, str) else dim for axis, dim in part.input_axes[name].items()}
        for name in part.inputs
    )
    with torch.no_grad():
        return torch.export.export(part.module, tuple(part.inputs.values()), dynamic_shapes=shapes)
