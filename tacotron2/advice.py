"""Settings for an amount of data; docs/training.md separates measured ones from rules of thumb."""

from __future__ import annotations

from common.spec import Advice

FEW_MINUTES = 20  # below, a warm start trains the decoder alone
FEW_WEIGHTS = 15_000_000  # the paper's model has 28 million, the embedded voice's 7
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


# Limits the texts of reports: a young model does not stop by itself, and would run for minutes.
LIMIT = {"max_frames_per_symbol": 20.0}


def advise(minutes: float, weights: int, gpu: bool) -> Advice:
    """Choose settings by the minutes of data, for fine-tuning a model of that many weights, or from nothing for 0."""
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
