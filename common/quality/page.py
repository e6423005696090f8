"""A quality report as one HTML page without other files: players, mels and alignments, the worst lines first."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.quality.report import MEASURES, Array, Line, System, columns_of, format_row, legend, rank_lines

# M mels, T frames, S symbols, K decoder steps, N samples

OGG_BLOCK = 65536  # samples; libsndfile's encoder runs out of stack over a minute and a half at once
TEMPLATE = "report.html"


class Box(NamedTuple):
    """One system's line on the page: its sound as Ogg and its pictures as PNG are in base64."""

    name: str
    ogg: str
    transcript: str
    pictures: dict[str, str]
    numbers: list[str]


class Section(NamedTuple):
    """One line with the boxes of all systems; lines count from 1."""

    line: int
    text: str
    boxes: list[Box]


def page(title: str, systems: Sequence[System], main_system: System, rate: int) -> str:
    """Write the page: a table of all systems, then each line with all of them, the worst of `main_system` first.

    Args:
        title: of the page.
        systems: all with the same lines.
        main_system: sets the order of the lines.
        rate: of the sounds, in Hz.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    keys = columns_of(systems)
    return environment.get_template(TEMPLATE).render(
        title=title,
        measures=[MEASURES[key] for key in keys],
        rows=[format_row(system, keys) for system in systems],
        legend=legend(),
        ranked_by=main_system.name,
        sections=[_section(number, systems, rate) for number in rank_lines(main_system)],
    )


def _section(number: int, systems: Sequence[System], rate: int) -> Section:
    boxes = [_box(system.name, system.lines[number], rate) for system in systems]
    return Section(number + 1, systems[0].lines[number].text, boxes)


def _box(name: str, line: Line, rate: int) -> Box:
    numbers = [
        f"{measure.title} {measure.factor * value:.{measure.decimals}f}"
        for key, measure in MEASURES.items()
        if (value := line.counts[key].rate if key in line.counts else line.values.get(key)) is not None
    ]
    # a model that stops at once has pictures without columns
    pictures = {title: _png(picture) for title, picture in line.pictures.items() if picture.size}
    return Box(name, _ogg(line.sound, rate), line.transcript, pictures, numbers)


def _ogg(sound: Array, rate: int) -> str:
    """Encode sound (N,) in [-1, 1] as Ogg Vorbis in base64, a fifth of a wav's size."""
    import soundfile

    file = io.BytesIO()
    samples = np.clip(sound, -1, 1) if len(sound) else np.zeros(1)  # a file needs a sample
    with soundfile.SoundFile(file, "w", rate, 1, format="OGG", subtype="VORBIS") as ogg:
        for start in range(0, len(samples), OGG_BLOCK):
            ogg.write(samples[start : start + OGG_BLOCK])
    return base64.b64encode(file.getvalue()).decode()


def _png(picture: Array) -> str:
    """Encode a picture (rows, columns), first row at the bottom, as PNG in base64; axes would take a hundred times longer."""
    from matplotlib.image import imsave

    file = io.BytesIO()
    imsave(file, picture, origin="lower", cmap="magma", format="png")
    return base64.b64encode(file.getvalue()).decode()
