"""Tacotron 2's entry in the registry."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from common.spec import AcousticInference, ModelSpec, Options, TrainingDefaults, from_options
from tacotron2.arg_parser import add_tacotron2_arguments, add_tacotron2_training_arguments
from tacotron2.config import Tacotron2Config
from tacotron2.data_function import TextMelDataset, encode, spell
from tacotron2.loss_function import Tacotron2Loss, Tacotron2LossConfig
from tacotron2.model import Tacotron2
from tacotron2.preview import preview


def config_from_options(options: Options) -> dict[str, Any]:
    """The config keys that are among the options."""
    return {field.name: options[field.name] for field in fields(Tacotron2Config) if field.name in options}


def make_loss(options: Options) -> Tacotron2Loss:
    """The criterion that the options describe."""
    return Tacotron2Loss(from_options(Tacotron2LossConfig, options))


SPEC = ModelSpec(
    name="Tacotron2",
    build=Tacotron2,
    add_arguments=add_tacotron2_arguments,
    add_training_arguments=add_tacotron2_training_arguments,
    config_from_options=config_from_options,
    training=TrainingDefaults(
        epochs=1501,
        learning_rate=1e-3,
        batch_size=48,
        batch_size_amp=104,
        weight_decay=1e-6,
        grad_clip_thresh=1.0,
        anneal_steps=(500, 1000, 1500),
    ),
    make_dataset=TextMelDataset,
    make_loss=make_loss,
    preview=preview,
    stored_options=("text_cleaners",),
    free_at_inference=frozenset({"max_decoder_steps", "gate_threshold", "decoder_no_early_stopping"}),
    inference=AcousticInference(encode=encode, spell=spell),
)
