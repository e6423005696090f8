"""The card of a voice, README.md: its data, its training and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.quality.report import MEASURES, System, columns_of, format_row
from common.tables import markdown_table
from common.training.checkup import LOGGED_AS
from models import REGISTRY
from studio.plan.file import Plan
from studio.plan.inputs import Material
from studio.project import Project
from studio.train.progress import CAPPED, PERCENT, WORDS, RunLog, reason_of
from studio.voice.verdict import CLOSE_WORDS

WORDS_IN_CARD = {**WORDS, "wer": WORDS[CAPPED], **dict.fromkeys(("loss", "val_loss"), ("validation loss", 1))}
RIGHTS = """## Rights

Fill in: the speaker, their consent to this voice, the licence of the recordings, and the permitted uses."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a card states; checkpoints and logs of training by model."""

    project: Project
    plan: Plan
    material: Material
    checkpoints: Mapping[str, Mapping[str, Any]]
    logs: Mapping[str, RunLog]
    systems: list[System]
    verdict: list[str]  # in words
    vocoder: str
    samples: list[str]


def card(facts: Facts) -> str:
    """Write the card as Markdown."""
    parts = [_head(facts), _data(facts.material), _training(facts), _quality(facts), _reports(facts), _use(facts)]
    return "\n\n".join([*parts, RIGHTS]) + "\n"


def _head(facts: Facts) -> str:
    return (
        f"# Voice {facts.project.name}\n\n"
        f"Text to speech with {', '.join(facts.checkpoints)}. Its default vocoder is {facts.vocoder}. "
        "This card was written by `python -m studio.train`; the figures are from its last run.\n\n## Verdict\n\n"
        + "\n".join(f"- {line}" for line in facts.verdict)
    )


def _data(material: Material) -> str:
    rows = {
        "minutes for training": f"{material.minutes:.1f}",
        "clips for training": f"{material.clips}",
        "clips for validation": f"{material.validation_clips}",
        "longest clip, seconds": f"{material.longest_seconds:.1f}",
        "distinct characters": f"{material.characters}",
        "sampling rate, Hz": f"{material.sampling_rate}",
    }
    return "## Data\n\n" + _table(["", ""], [[name, value] for name, value in rows.items()])


def _training(facts: Facts) -> str:
    rows = []
    for name, stored in facts.checkpoints.items():
        options, log = facts.plan.models[name], facts.logs[name]
        data, rates = options.data, options.optimization
        row = {
            "model": name,
            "start": str(options.start.warm_start or "random weights"),
            "steps": str(stored["iteration"]),
            "epoch": str(stored["epoch"]),
            "clips a step": str(data.batch_size * data.grad_accumulation_steps),
            "learning rate": f"{rates.learning_rate:g}, {rates.lr_schedule}",
            "minutes of training": f"{log.seconds / 60:.1f}",
            "end": reason_of(log, options) if log.finished else "not finished",
        }
        rows.append(row)
    note = "Steps and epochs are those of the weights in this folder. Epochs count from 0, as in checkpoint names."
    return f"## Training\n\n{note}\n\n{_table(list(rows[0]), [list(row.values()) for row in rows])}"


def _quality(facts: Facts) -> str:
    keys = columns_of(facts.systems)
    header = ["", *(MEASURES[key].title for key in keys), "x real time"]
    count = len(facts.systems[0].lines)
    lines = "1 validation line" if count == 1 else f"{count} validation lines"
    note = (
        f"{lines}, free-running, seed 0: the voice through each of its vocoders, and what it is judged beside. "
        f"The default vocoder is the one most like the speaker among those within {100 * CLOSE_WORDS:.0f} points of the fewest "
        "wrong words. docs/evaluation.md explains the measures."
    )
    return f"## Quality\n\n{note}\n\n" + _table(header, [format_row(system, keys) for system in facts.systems])


def _reports(facts: Facts) -> str:
    parts = ["## Reports during training"]
    for name, log in facts.logs.items():
        evaluation = facts.plan.models[name].evaluation
        measure = evaluation.best_by
        selecting = [] if measure == "loss" else [LOGGED_AS.get(measure, measure), measure]
        keys = list(dict.fromkeys([*selecting, "val_loss"]))
        rows = [
            [str(epoch), *(cell_of(key, values.get(key)) for key in keys)]
            for epoch, values in sorted(log.reports.items())
        ]
        slack = evaluation.best_slack
        near = "" if slack is None else f" among epochs whose validation loss is at most {slack:g} above the lowest"
        header = ["epoch", *map(column_of, keys)]
        parts.append(f"{name}, selected by {words_for(measure)[0]}{near}:\n\n" + _table(header, rows))
    return "\n\n".join(parts)


def _use(facts: Facts) -> str:
    samples = "\n".join(f"- `samples/sample_{place}.wav`: {text}" for place, text in enumerate(facts.samples, 1))
    specs = [REGISTRY[name] for name in facts.checkpoints]
    flags = " ".join(f"--{spec.flag} {spec.file_stem}.safetensors" for spec in specs)
    return (
        "## Use\n\n    python inference.py --voice DIR -i DIR/samples/phrases.txt\n    python -m serving --voices DIR\n"
        f"    python -m exports onnx --voice DIR -o EXPORT\n\nDIR is this folder. "
        f"The checkpoints also work on their own: `{flags}`.\n\n"
        f"Samples of validation texts:\n\n{samples}"
    )


def _table(header: list[str], rows: list[list[str]]) -> str:
    return markdown_table("<" * len(header), header, rows)


def column_of(name: str) -> str:
    """Return the column heading of a measure."""
    words, factor = words_for(name)
    return f"{words}{' %' * (factor == PERCENT)}{', at most 100 a line' * (name == CAPPED)}"


def cell_of(name: str, value: float | None) -> str:
    """Format a measure; `-` if there is none."""
    return "-" if value is None else f"{words_for(name)[1] * value:.4g}"


def words_for(name: str) -> tuple[str, float]:
    """Return words for a measure, and the factor of its number."""
    return WORDS_IN_CARD.get(name) or (MEASURES[name].title if name in MEASURES else name, 1)
