"""The fast ways of Tacotron 2: the first row of a phase that applies is used."""

from __future__ import annotations

from common.edits import Origin
from common.fast import FastWay, Request
from tacotron2.fast import prepared, training

# Training has the decoder's step and its attention again. All else, its free run too, is the plain code.
STEPS = Origin(
    ("tacotron2.decoder", "common.layers"),
    free=(
        *("Prenet*", "DecoderOutput", "Decoder.forward", "Decoder.infer", "Decoder.project", "Decoder.previous_frames"),
        *("Decoder.stop_rule", "Decoder.frame_limits", "length_mask", "at_least_float32", "MaskedBatchNorm1d*"),
        *("ConvStack*", "flatten_lstms", "bidirectional_lstm", "_run_lstm", "model", "model.embedding*"),
        *("model.encoder*", "model.postnet*", "model.decoder.prenet*", "model.decoder.linear_projection*"),
        "model.decoder.gate_layer*",
    ),
)
# Inference runs the encoder and the postnet item by item, which is the same only as long as padding has no effect in them.
FREE_RUN = Origin(
    ("tacotron2.model", "tacotron2.decoder", "tacotron2.guard", "common.layers", "common.draws"),
    free=("Tacotron2.forward", "Tacotron2Output", "Decoder.forward", "Decoder.run", "Decoder.previous_frames"),
)

WAYS = (
    FastWay(
        name="compiled",
        phase="training",
        applies=lambda model, request: bool(request.compile),
        convert=training.convert_compiled,
        tolerance=1e-4,
    ),
    FastWay(
        name="all steps together",
        phase="training",
        applies=lambda model, request: True,
        convert=training.convert,
        tolerance=1e-4,
        origin=STEPS,
        cost="3 to 4 times as long on a CPU",
    ),
    FastWay(
        name="prepared in float16",
        phase="inference",
        applies=prepared.rounds,
        convert=prepared.convert,
        tolerance=2e-2,
        origin=FREE_RUN,
        cost="1.3 to 7 times as long on a CPU",
    ),
    # On Intel in float32 this way runs at 0.72 to 0.87 of the speed of the plain model as TorchScript, which cannot take its place:
    # a scripted model has no guards, and Intel's BLAS gives an item other bits in a batch than alone.
    FastWay(
        name="prepared",
        phase="inference",
        applies=lambda model, request: True,
        convert=lambda model, request: prepared.convert(model, Request()),
        tolerance=1e-4,
        origin=FREE_RUN,
        cost="up to 3 times as long on a CPU",
    ),
)
