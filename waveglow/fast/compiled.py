"""Training by torch.compile, the row "compiled": the plain model's equations, fused by PyTorch's compiler."""

from __future__ import annotations

from common.fast import Request, shallow_copy
from waveglow.model import WaveGlow


def convert_to_compiled(model: WaveGlow, request: Request) -> WaveGlow:
    """Return a model of the same parameters whose forward and backward are compiled at their first call, once for each shape."""
    compiled = shallow_copy(model, WaveGlow).train(model.training)
    compiled.compile()
    return compiled
