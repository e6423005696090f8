"""Tacotron 2's entry in the registry."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from common.errors import UsageError
from common.options import from_options
from common.spec import AcousticInference, ModelSpec, Options, Preview, TrainingDefaults
from tacotron2.advice import advise
from tacotron2.arg_parser import add_tacotron2_arguments, add_tacotron2_training_arguments
from tacotron2.config import Tacotron2Config, Tacotron2TrainingConfig
from tacotron2.data_function import TextMelDataset, encode, find_dropped, pieces, spell, unspoken
from tacotron2.fast.table import WAYS
from tacotron2.guard import DecodingGuard
from tacotron2.loss_function import Tacotron2Loss, Tacotron2LossConfig
from tacotron2.model import Tacotron2
from tacotron2.text import alphabet_of
from tacotron2.text.sentences import sentence_ends
from tacotron2.transfer import transfer


def config_from_options(options: Options) -> dict[str, Any]:
    """The config keys that are among the options; an alphabet among them sets n_symbols.

    Raises UsageError where --n-symbols is too small for the alphabet, or not the size of one from a file.
    """
    config = {field.name: options[field.name] for field in fields(Tacotron2Config) if field.name in options}
    if "symbols" not in options:  # only some flags are known, and the alphabet is not among them
        return config
    symbols, default = options["symbols"], Tacotron2Config.n_symbols
    rows, size = config.get("n_symbols", default), len(alphabet_of(symbols).symbols)
    if symbols is None:
        if rows < size:
            raise UsageError(
                f"--n-symbols: {rows}, expected at least {size}, the size of the built-in alphabet; "
                "a smaller one comes with --symbols-file"
            )
        return config
    if rows not in (size, default):
        raise UsageError(f"--n-symbols: {rows}, expected {size}, the symbols in --symbols-file; it can be left out")
    return config | {"n_symbols": size}


def make_loss(options: Options) -> Tacotron2Loss:
    """The criterion that the options describe."""
    return Tacotron2Loss(from_options(Tacotron2LossConfig, options))


def use_guard(model: Tacotron2, options: Options) -> None:
    """Let a model run freely by the rules that the options describe. Raises UsageError where they cannot be followed."""
    model.decoder.guard = from_options(DecodingGuard, options)


def prepare_training(model: Tacotron2, options: Options) -> None:
    """Set on a model how it is to be trained; validations run freely too. Raises UsageError for what cannot be."""
    use_guard(model, options)
    training = from_options(Tacotron2TrainingConfig, options)
    model.decoder.drop_frame_rate = training.drop_frame_rate
    model.encoder.p_dropout = model.postnet.p_dropout = training.p_convolution_dropout


def preview(*outputs: Any) -> Preview:
    """Preview a validation batch. Imported only here, because inference needs no pictures."""
    from tacotron2 import preview

    return preview.preview(*outputs)


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
    check_clips=TextMelDataset.check_clips,
    make_loss=make_loss,
    preview=preview,
    prepare_training=prepare_training,
    fast_ways=WAYS,
    advise=advise,
    transfer=transfer,
    stored_options=("text_cleaners", "symbols"),
    free_at_inference=frozenset({"max_decoder_steps", "gate_threshold", "decoder_no_early_stopping"}),
    run_options=("text_reading", *(field.name for field in fields(DecodingGuard))),
    inference=AcousticInference(
        infer=lambda model, ids, lengths, draws: model.infer(ids, lengths, draws=draws),
        encode=encode,
        spell=spell,
        pieces=pieces,
        unspoken=unspoken,
        sentence_ends=sentence_ends,
        dropped=find_dropped,
        guard=use_guard,
        frame_limits=Tacotron2.frame_limits,
    ),
)
