"""A quality report as one HTML page that needs nothing beside it: players, mels and alignments, the worst lines first."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence

import numpy as np

from common.quality.report import MEASURES, Array, Line, System, legend, shown, summary, worst_first

# M mels, T frames, S symbols, K decoder steps, N samples

OGG_BLOCK = 65536  # samples; libsndfile's encoder runs out of stack over a minute and a half at once
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1200px; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #ddd; padding: .35em .7em; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
section { border-top: 2px solid #888; margin-top: 2em; }
.systems { display: grid; grid-template-columns: repeat(auto-fill, minmax(340px, 1fr)); gap: 1em; }
.system { background: #f6f6f6; border-radius: 6px; padding: .7em; }
.system h4 { margin: 0 0 .4em; }
.heard { color: #555; min-height: 1.4em; }
.numbers { color: #555; font-size: 12px; }
audio, img { width: 100%; margin: .25em 0; }
img { height: 90px; image-rendering: auto; }
@media (prefers-color-scheme: dark) {
  body { background: #181818; color: #ddd; } .system { background: #242424; } .heard, .numbers { color: #aaa; }
  th, td { border-color: #444; }
}
"""


def page(title: str, systems: Sequence[System], judged: System, rate: int) -> str:
    """The page: a table of all systems, then each line with all of them, ordered by how badly `judged` said it."""
    sections = "\n".join(
        _section(place, number, systems, rate) for place, number in enumerate(worst_first(judged), start=1)
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>
<style>{STYLE}</style></head><body>
<h1>{html.escape(title)}</h1>
{_table(systems)}
<details><summary>What the columns are</summary><pre>{html.escape(legend())}</pre></details>
<p>Lines in order of what went wrong in <b>{html.escape(judged.name)}</b>:
most wrong words first, then the lowest opinion score.</p>
{sections}
</body></html>
"""


def _table(systems: Sequence[System]) -> str:
    summaries = [summary(system) for system in systems]
    keys = [key for key in MEASURES if any(key in one for one in summaries)]
    head = "".join(f'<th title="{html.escape(MEASURES[key].meaning)}">{MEASURES[key].title}</th>' for key in keys)
    rows = "".join(
        f"<tr><td>{html.escape(system.name)}</td>"
        + "".join(f"<td>{shown(one.get(key), MEASURES[key])}</td>" for key in keys)
        + f"<td>{_speed(system)}</td></tr>"
        for system, one in zip(systems, summaries, strict=True)
    )
    return f"<table><tr><th>system</th>{head}<th>x real time</th></tr>{rows}</table>"


def _speed(system: System) -> str:
    return "-" if np.isnan(system.real_time_factor) else f"{system.real_time_factor:.2f}"


def _section(place: int, number: int, systems: Sequence[System], rate: int) -> str:
    boxes = "".join(_box(system.name, system.lines[number], rate) for system in systems)
    text = html.escape(systems[0].lines[number].text)
    return f'<section><h3>{place}. line {number + 1}: {text}</h3><div class="systems">{boxes}</div></section>'


def _box(name: str, line: Line, rate: int) -> str:
    numbers = [
        f"{measure.title} {measure.factor * value:.{measure.decimals}f}"
        for key, measure in MEASURES.items()
        if (value := line.counts[key].rate if key in line.counts else line.values.get(key)) is not None
    ]
    pictures = "".join(
        f'<img alt="{what}" title="{what}" src="data:image/png;base64,{_png(picture)}">'
        for what, picture in line.pictures.items()
        if picture.size  # a model that stops at once made no frames
    )
    return (
        f'<div class="system"><h4>{html.escape(name)}</h4>'
        f'<audio controls preload="none" src="data:audio/ogg;base64,{_ogg(line.sound, rate)}"></audio>'
        f'<div class="heard">{html.escape(line.heard)}</div>{pictures}'
        f'<div class="numbers">{" · ".join(numbers)}</div></div>'
    )


def _ogg(sound: Array, rate: int) -> str:
    """Sound (N,) in [-1, 1] as Ogg Vorbis in base64: a fifth of a wav's size."""
    import soundfile

    file = io.BytesIO()
    heard = np.clip(sound, -1, 1) if len(sound) else np.zeros(1)  # no sound is no file
    with soundfile.SoundFile(file, "w", rate, 1, format="OGG", subtype="VORBIS") as ogg:
        for start in range(0, len(heard), OGG_BLOCK):
            ogg.write(heard[start : start + OGG_BLOCK])
    return base64.b64encode(file.getvalue()).decode()


def _png(picture: Array) -> str:
    """A picture (rows, columns), first row at the bottom, as PNG in base64; without axes, which take a hundred times longer."""
    from matplotlib.image import imsave

    file = io.BytesIO()
    imsave(file, picture, origin="lower", cmap="magma", format="png")
    return base64.b64encode(file.getvalue()).decode()
