"""The fast ways of Tacotron 2: the first row of a phase that applies is used."""

from __future__ import annotations

from common.fast import FastWay, Request
from tacotron2.fast import graphs, prepared, training

WAYS = (
    FastWay(
        name="compiled",
        phase="training",
        applies=lambda model, request: bool(request.compile),
        convert=training.convert_compiled,
        tolerance=1e-4,
    ),
    FastWay(
        name="graphs",
        phase="training",
        applies=lambda model, request: request.graphs,
        convert=graphs.convert,
        tolerance=1e-4,
    ),
    FastWay(
        name="all steps together",
        phase="training",
        applies=lambda model, request: True,
        convert=training.convert,
        tolerance=1e-4,
    ),
    FastWay(
        name="prepared in float16", phase="inference", applies=prepared.rounds, convert=prepared.convert, tolerance=2e-2
    ),
    # On Intel in float32 this way runs at 0.72 to 0.87 of the speed of the plain model as TorchScript, which cannot take its place:
    # a scripted model has no guards, and Intel's BLAS gives an item other bits in a batch than alone.
    FastWay(
        name="prepared",
        phase="inference",
        applies=lambda model, request: True,
        convert=lambda model, request: prepared.convert(model, Request()),
        tolerance=1e-4,
    ),
)
