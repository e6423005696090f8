"""Tacotron 2's entry in the registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from torch import Tensor

from common.audio.stft import TacotronSTFT
from common.errors import DataError, UsageError
from common.options import from_options, given_fields
from common.spec import AcousticInference, Advice, ModelSpec, Options, Preview, TrainingDefaults, WarmStart
from tacotron2 import data_function
from tacotron2.arg_parser import add_tacotron2_arguments, add_tacotron2_training_arguments
from tacotron2.config import Tacotron2Config, Tacotron2TrainingConfig
from tacotron2.fast.table import WAYS
from tacotron2.guard import DecodingGuard
from tacotron2.loss_function import Tacotron2Loss, Tacotron2LossConfig
from tacotron2.model import Tacotron2, Tacotron2Output
from tacotron2.text import alphabet_of
from tacotron2.text.markup import ended_sentences


def config_from_options(options: Options) -> dict[str, Any]:
    """The config keys that are among the options; an alphabet among them sets n_symbols.

    Raises UsageError where --n-symbols is too small for the alphabet, or not the size of one from a file.
    """
    config = given_fields(Tacotron2Config, options)
    if "symbols" not in options:  # only some flags are known, and the alphabet is not among them
        return config
    symbols, default = options["symbols"], Tacotron2Config.n_symbols
    rows, size = config.get("n_symbols", default), len(alphabet_of(symbols).symbols)
    if symbols is None:
        if rows < size:
            raise UsageError(
                f"--n-symbols: {rows}, expected at least {size}, the size of the built-in alphabet; "
                "a smaller one needs --symbols-file"
            )
        return config
    if rows not in (size, default):
        raise UsageError(f"--n-symbols: {rows}, expected {size}, the symbols in --symbols-file; it can be left out")
    return config | {"n_symbols": size}


def make_loss(options: Options) -> Tacotron2Loss:
    """The criterion that the options describe."""
    return Tacotron2Loss(from_options(Tacotron2LossConfig, options))


def use_guard(model: Tacotron2, options: Options) -> None:
    """Set the rules of free running. Raises UsageError for values that cannot work."""
    model.decoder.guard = from_options(DecodingGuard, options)


def show(
    model: Tacotron2, batch: data_function.Tacotron2Batch, outputs: Tacotron2Output, stft: TacotronSTFT
) -> Preview:
    """Pictures, sounds and numbers of a validation."""
    from tacotron2.preview import preview  # a step needs no pictures

    return preview(model, batch, outputs, stft)


def prepare_training(model: Tacotron2, options: Options) -> None:
    """Set a model's options of training, and the rules of free running for validations. Raises UsageError for wrong values."""
    use_guard(model, options)
    training = from_options(Tacotron2TrainingConfig, options)
    model.decoder.drop_frame_rate = training.drop_frame_rate
    model.encoder.p_dropout = model.postnet.p_dropout = training.p_convolution_dropout


FEW_MINUTES = 20  # below, a warm start trains the decoder alone
FEW_WEIGHTS = 15_000_000  # the paper's model has 28 million, the embedded voice's 8
GUIDED = {"guided_attention_weight": 100.0, "guided_attention_decay": 0.9995}
LIGHT_DROPOUT = {"p_convolution_dropout": 0.1}  # docs/own-voice.md measures it against the published 0.5
# A small model, as in the quickstart, since the paper's has 28 million weights.
SMALL = {
    "symbols_embedding_dim": 256,
    "encoder_embedding_dim": 256,
    "encoder_n_convolutions": 3,
    "prenet_dim": 128,
    "attention_rnn_dim": 256,
    "attention_dim": 64,
    "decoder_rnn_dim": 256,
    "postnet_embedding_dim": 128,
    "p_attention_dropout": 0.0,
    "p_decoder_dropout": 0.0,
    **LIGHT_DROPOUT,
}
# Limits free runs in reports: a model that does not stop by itself yet would run for minutes.
LIMIT = {"max_frames_per_symbol": 20.0}


def advise(minutes: float, weights: int, gpu: bool) -> Advice:
    """Choose settings for an amount of data: to fine-tune a model with that many weights, or to train from scratch for 0."""
    advice = _fine_tuning(minutes, weights) if weights else _from_nothing(minutes, gpu)
    return advice._replace(options=advice.options | LIMIT)


def _from_nothing(minutes: float, gpu: bool) -> Advice:
    if minutes < 60:
        options = {"batch_size": 16, "epochs": 300, "learning_rate": 2e-3, "n_frames_per_step": 3, **GUIDED, **SMALL}
        return Advice(
            options,
            f"{minutes:.0f} min of speech are too few for a large model: a small one, guided attention, 3 frames a step",
        )
    frames = {"n_frames_per_step": 2} if minutes < 600 or not gpu else {}
    options = {
        "batch_size": 48 if gpu else 16,
        "epochs": 250 if minutes < 600 else 500,
        "learning_rate": 1e-3,
        **frames,
        **GUIDED,
    }
    return Advice(
        options | ({} if gpu else SMALL), "enough data for a model of its own; guided attention aligns it sooner"
    )


def _fine_tuning(minutes: float, weights: int) -> Advice:
    is_small = weights < FEW_WEIGHTS
    scale, light = (5, LIGHT_DROPOUT) if is_small else (1, {})  # a small model takes, and needs, a higher rate
    if minutes < FEW_MINUTES:
        frozen = {"freeze": ["^embedding", "^encoder"]}
        options = {"batch_size": 8, "epochs": 200, "learning_rate": scale * 1e-4, "warmup_steps": 50, **frozen, **light}
        return Advice(
            options, f"few words in {minutes:.0f} min of speech: the reading of the text stays, the voice is trained"
        )
    options = {"batch_size": 16, "epochs": 150, "learning_rate": scale * 2e-4, "warmup_steps": 100, **light}
    return Advice(options, f"{minutes:.0f} minutes suffice to train all weights of the warm start")


# S symbols of the old alphabet, N of the new one, E channels of an embedded symbol

EMBEDDING = "embedding.weight"
LISTED_SYMBOLS = 8  # new symbols listed in the message


def transfer(start: WarmStart) -> tuple[dict[str, Tensor], str]:
    """Adapt the weights to this run's alphabet; also return a message about the embedding's rows, "" if nothing changed.

    Rows (S, E) become rows (N, E). A symbol in both alphabets keeps its row, and a letter that the old alphabet has only in the
    other case takes that row. All other rows start as in this run's model. Raises DataError if the old alphabet and its rows differ
    in number.
    """
    old, new = (alphabet_of(options.get("symbols")).symbols for options in (start.stored, start.options))
    if old == new or EMBEDDING not in start.weights:
        return start.weights, ""
    rows, fresh = start.weights[EMBEDDING], start.model.state_dict()[EMBEDDING]
    if rows.shape[1:] != fresh.shape[1:]:
        return start.weights, ""  # other layers differ in size too; loading will name them all
    if start.stored.get("symbols") is None:
        rows = rows[: len(old)]  # of a file that has more symbols and no alphabet; the note of assumed_alphabet says so
    if len(rows) != len(old):
        raise DataError(
            f"{EMBEDDING}: {len(rows)} rows, expected {len(old)}, one for each symbol of the checkpoint's alphabet; "
            "leave it out with --ignore-layers embedding"
        )
    places = {symbol: i for i, symbol in enumerate(old)}
    same_case = {i: places[symbol] for i, symbol in enumerate(new) if symbol in places}
    # swapcase() leaves letters without case as they are; for "ß" it gives "SS", which is not a symbol
    other_case = {i: places[symbol.swapcase()] for i, symbol in enumerate(new) if symbol.swapcase() in places}
    sources = other_case | same_case
    table = fresh.detach().clone()
    table[list(sources)] = rows[list(sources.values())].to(table)
    added = [symbol for i, symbol in enumerate(new) if i not in sources]
    return start.weights | {EMBEDDING: table}, _message(len(new), len(same_case), len(sources) - len(same_case), added)


def assumed_alphabet(data: Options, config: Options) -> str:
    """Return a note on a model with more symbols than the built-in alphabet, whose file has no other; "" for other models."""
    size, rows = len(alphabet_of(None).symbols), config.get("n_symbols", 0)
    if data.get("symbols") is not None or rows <= size:
        return ""
    return f"{rows} symbols without an alphabet in the file: the first {size} are taken for the built-in ones"


def _message(symbols: int, same_case: int, from_other_case: int, added: Sequence[str]) -> str:
    parts = [f"embedding: {same_case} of {symbols} symbols copied"]
    if from_other_case:
        parts.append(f"{from_other_case} from their other case")
    if added:
        more = " …" if len(added) > LISTED_SYMBOLS else ""
        parts.append(f"{len(added)} new ({', '.join(added[:LISTED_SYMBOLS])}{more})")
    return ", ".join(parts)


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
    make_dataset=data_function.TextMelDataset,
    row_options=("text_cleaners", "symbols", "longest_clip", "symbols_per_second"),
    make_loss=make_loss,
    preview=show,
    prepare_training=prepare_training,
    fast_ways=WAYS,
    advise=advise,
    transfer=transfer,
    assumed=assumed_alphabet,
    stored_options=("text_cleaners", "symbols"),
    free_at_inference=frozenset({"max_decoder_steps", "gate_threshold", "decoder_no_early_stopping"}),
    published=data_function.PUBLISHED,
    run_options=("text_reading", *(field.name for field in fields(DecodingGuard))),
    inference=AcousticInference(
        infer=lambda model, ids, lengths, draws: model.infer(ids, lengths, draws=draws),
        encode=data_function.encode,
        spell=data_function.spell,
        pieces=data_function.pieces,
        unspoken=data_function.unspoken,
        sentence_ends=ended_sentences,
        written=data_function.written,
        notes=data_function.notes,
        dropped=data_function.find_dropped,
        guard=use_guard,
        frame_limits=lambda model, text_lengths: model.frame_limits(text_lengths),
    ),
)
