"""Pictures of data and of a model's outputs: spectrograms, alignments, gates, losses.

Pictures use matplotlib's objects and its Agg canvas, never pyplot: no display, no global state. matplotlib is imported only when
a picture is drawn, because most runs draw none and its import takes most of a second.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from common.errors import explain_refusal
from common.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

# S symbols, T frames (or decoder steps), M mels
Array = Tensor | npt.NDArray[Any]

DPI, WIDTH = 120, 9.0  # dots an inch, inches
MAX_LOSSES = 2000  # most points of a curve
MAX_SYMBOL_TICKS, SYMBOL_ROW = 80, 0.15  # most symbols along an axis, each in a row of so many inches


def plot_mel_pair(target: Array, predicted: Array, *, hop_length: int, sampling_rate: int) -> Figure:
    """Draw a target log-mel spectrogram (M, T) above a predicted one (M, T'), on one time axis and one colour scale."""
    figure = _new_figure(5.4)
    upper, lower = figure.subplots(2, 1, sharex=True)
    mels = [_mask_outside(target), _mask_outside(predicted)]
    limits = _limits(mels)
    seconds = hop_length / sampling_rate  # of a frame
    for axes, mel, name in zip((upper, lower), mels, ("target", "predicted"), strict=True):
        image = _draw(axes, mel, "magma", seconds, limits)
        axes.set_title(name, loc="left")
        axes.set_ylabel("mel channel")
    lower.set_xlim(0, max(mel.shape[1] for mel in mels) * seconds or 1)
    lower.set_xlabel("time (s)")
    figure.colorbar(image, ax=(upper, lower), label="log magnitude (nat)", pad=0.01)
    return figure


def plot_alignment(alignment: Array, symbols: Sequence[str] | None = None, title: str = "") -> Figure:
    """Draw attention weights (T, S): decoder steps across, input symbols upwards.

    `symbols` are the S symbols of the text, written along the axis if there are at most 80.
    """
    weights = _mask_outside(alignment).T
    count = weights.shape[0]
    spelled = symbols is not None and count == len(symbols) <= MAX_SYMBOL_TICKS
    figure = _new_figure(max(4.0, SYMBOL_ROW * count) if spelled else 5.0)
    axes = figure.add_subplot()
    image = _draw(axes, weights, "viridis", 1.0, (0.0, float(weights.max()) if weights.count() else 1.0))
    axes.set_title(title, parse_math=False)  # a phrase may contain $
    axes.set_xlabel("decoder step")
    axes.set_ylabel("input symbol")
    if spelled and symbols is not None:
        ticks = np.arange(count) + 0.3  # of the letters' baseline; centred individually, commas would float
        axes.set_yticks(ticks, [_spell(symbol) for symbol in symbols], fontsize=9.0, va="baseline")
        axes.tick_params(axis="y", length=0)
    figure.colorbar(image, ax=axes, label="attention weight", pad=0.01, aspect=40)
    return figure


def plot_gate(target: Array, predicted: Array) -> Figure:
    """Draw the stop gate over decoder steps: the target (T,), 0 then 1, and the predicted probability (T,)."""
    figure = _new_figure(3.0)
    axes = figure.add_subplot()
    axes.plot(_mask_outside(target), drawstyle="steps-mid", color="0.45", linewidth=2, label="target")
    axes.plot(_mask_outside(predicted), color="tab:orange", linewidth=1.5, label="predicted")
    axes.set(xlabel="decoder step", ylabel="probability of stopping", ylim=(-0.05, 1.05))
    axes.margins(x=0.01)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")
    return figure


def plot_losses(training: Mapping[int, float], validation: Mapping[int, float], title: str = "") -> Figure:
    """Draw losses by optimizer step: training losses as a line of at most 2,000 points, validation losses as points."""
    figure = _new_figure(3.4)
    axes = figure.add_subplot()
    steps = sorted(training)
    steps = steps[:: max(1, -(-len(steps) // MAX_LOSSES))]
    axes.plot(steps, [training[step] for step in steps], color="0.45", linewidth=1, label="training")
    measured = sorted(validation)
    if measured:
        axes.plot(measured, [validation[step] for step in measured], "o-", color="tab:orange", label="validation")
    axes.set(title=title, xlabel="optimizer step", ylabel="loss")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right")
    return figure


def read_png(content: bytes) -> npt.NDArray[np.uint8]:
    """Decode a PNG file into RGB pixels (height, width, 3)."""
    from matplotlib.image import imread

    pixels = imread(io.BytesIO(content), format="png")
    return np.asarray((255 * pixels[..., :3]).round(), np.uint8)


def figure_pixels(figure: Figure) -> npt.NDArray[np.uint8]:
    """Render a figure into RGB pixels (height, width, 3)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    with _without_glyph_warnings():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def save_figure(path: Path, figure: Figure) -> None:
    """Write a figure as PNG, atomically. Raises DataError if it cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    path = Path(path)
    with (
        explain_refusal(f"{path}: cannot write the picture", "free the disk or choose another --output"),
        atomic_write(path) as file,
        _without_glyph_warnings(),
    ):
        FigureCanvasAgg(figure).print_png(file)


@contextmanager
def _without_glyph_warnings() -> Iterator[None]:
    """Context in which matplotlib draws a box, without a warning, for each character its font lacks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from")
        yield


def _new_figure(height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")


def _draw(
    axes: Axes, values: np.ma.MaskedArray, colours: str, column_width: float, limits: tuple[float, float]
) -> AxesImage:
    """Draw a matrix with its first row at the bottom; cell (r, c) spans r to r + 1, and c to c + 1 column widths."""
    rows, columns = values.shape
    low, high = limits
    return axes.imshow(
        values,
        cmap=colours,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        extent=(0.0, max(columns, 1) * column_width, 0.0, max(rows, 1)),
        vmin=low,
        vmax=high,
    )


def _limits(mels: list[np.ma.MaskedArray]) -> tuple[float, float]:
    finite = np.concatenate([mel.compressed() for mel in mels])
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _mask_outside(values: Array) -> np.ma.MaskedArray:
    """Return the values as a float32 array with NaN and infinity, which a diverged run produces, masked out."""
    array = values.detach().float().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values, np.float32)
    return np.ma.masked_invalid(array)


def _spell(symbol: str) -> str:
    """Return a symbol's tick label: a dot for a space, ARPAbet without its leading @."""
    return "·" if symbol == " " else symbol.removeprefix("@") or symbol
