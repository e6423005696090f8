"""Settings for an amount of data; voice/README.md has the measurements of the small model."""

from __future__ import annotations

from common.spec import Advice

# The embedded voice's sizes, which train on two cores of a CPU.
SMALL = {"flows": 8, "groups": 32, "early_size": 8, "upsample_channels": 8, "wn_channels": 64, "wn_layers": 5}
FEW_WEIGHTS = 15_000_000  # the published model has 268 million, the embedded voice's 3; small models take higher rates


def advise(minutes: float, weights: int, gpu: bool) -> Advice:
    """Choose settings for fine-tuning or for training from nothing; the minutes matter little to a vocoder."""
    if weights:
        options = {
            "batch_size": 8 if gpu else 4,
            "epochs": 100,
            "learning_rate": 1e-3 if weights < FEW_WEIGHTS else 2e-4,
            "warmup_steps": 100,
            "dither": 0.0005,
        }
        return Advice(options, "a vocoder of other speech needs little to follow a new speaker")
    if gpu:
        options = {"batch_size": 10, "epochs": 1000, "learning_rate": 1e-4, "wn_channels": 256}
        return Advice(options, "the published recipe, with the 256 channels of its checkpoints")
    options = {"batch_size": 4, "epochs": 200, "learning_rate": 1.5e-3, "warmup_steps": 300, "dither": 0.0005, **SMALL}
    return Advice(options, "a CPU trains the small model several times faster")
