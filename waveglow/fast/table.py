"""The fast ways of WaveGlow: the first row of a phase that applies is used."""

from __future__ import annotations

from common.edits import Origin
from common.fast import FastWay
from common.kernels.private_ops import processor
from common.precision import half_dtype
from waveglow.fast.int8 import can_convert, convert_to_int8
from waveglow.fast.prepared import convert_to_prepared
from waveglow.fast.training import convert_for_training, convert_to_compiled, gains

# Training has WN and the product of a 1x1 convolution again.
NETWORKS = Origin(
    ("waveglow.model",),
    free=(
        "WaveGlow*",
        "Upsample*",
        "Invertible1x1Conv.forward",
        "Invertible1x1Conv.inverse",
        "model",
        "model.upsample*",
    ),
)
# Inference calls the plain infer too, but with parts that lack what they do not need, and with a condition in 8 bits.
INFERENCE = Origin(
    ("waveglow.model",),
    free=("WaveGlow.forward", "WaveGlow._count_groups", "WaveGlowOutput", "Invertible1x1Conv.forward"),
)

WAYS = (
    FastWay(
        name="compiled",
        phase="training",
        applies=lambda model, request: bool(request.compile),
        convert=convert_to_compiled,
        tolerance=1e-4,
    ),
    FastWay(
        name="recomputed",
        phase="training",
        applies=lambda model, request: request.recompute,
        convert=convert_for_training,
        tolerance=1e-4,
        origin=NETWORKS,
        cost="more memory",
    ),
    FastWay(
        name="training",
        phase="training",
        applies=lambda model, request: gains(processor(), model.upsample.weight.device, request.half),
        convert=convert_for_training,
        tolerance=1e-4,
        origin=NETWORKS,
        cost="up to 1.6 times as long on a CPU",
    ),
    FastWay(
        name="int8",
        phase="inference",
        applies=lambda model, request: request.int8 and can_convert(model),
        convert=convert_to_int8,
        tolerance=0.1,
        origin=INFERENCE,
        cost="4 times as long on a CPU",
    ),
    FastWay(
        name="half",
        phase="inference",
        applies=lambda model, request: half_dtype(model.upsample.weight.device, request.half) is not None,
        convert=convert_to_prepared,
        tolerance=0.03,
        origin=INFERENCE,
        cost="up to 2.4 times as long on a CPU",
    ),
    FastWay(
        name="prepared",
        phase="inference",
        applies=lambda model, request: True,
        convert=convert_to_prepared,
        tolerance=1e-4,
        origin=INFERENCE,
        cost="up to 1.2 times as long on a CPU",
    ),
)
