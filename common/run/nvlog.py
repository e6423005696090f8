"""The run's log: DLLL lines in a file, readable lines on stdout, TensorBoard, and a progress bar on a terminal.

Each line is one record: `DLLL ` and strict JSON. JSON has no NaN or infinity, and other readers refuse Python's spelling of them,
so they are written as the strings "NaN", "Infinity" and "-Infinity", which float() in Python and Number() in JavaScript read. The
main rank has an NvLog and the others a Log, so that callers need not know the rank.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar

from tqdm import tqdm

from common.errors import DataError, explain_refusal, printable
from common.files import make_folder, open_to_append, parse_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor
    from torch.utils.tensorboard import SummaryWriter
    from typing_extensions import Self

# N samples
T = TypeVar("T")
Step = str | tuple[int, ...]  # "PARAMETER", or (), (epoch,), (epoch, iteration), (epoch, iteration, val_iteration)

PREFIX = "DLLL "
RECORD = "DLL "  # start of the lines on stdout that repeat a record
PARAMETER = "PARAMETER"
NON_FINITE = ("NaN", "Infinity", "-Infinity")
PLACE, COUNTS = "glob_iter/iters_per_epoch", re.compile(r"(\d+)/(\d+)")  # of a step of training


class Metric(NamedTuple):
    """Display of a number: its unit ("" for none) and the format spec of its value."""

    unit: str
    format: str


LOSS, RATE, SECONDS = Metric("", ".5f"), Metric("items/s", ".1f"), Metric("s", ".4f")

METRICS = {  # by the end of the name, so that numbers of a new model have units too
    "loss": LOSS,
    "items_per_sec": RATE,
    "items/sec": RATE,
    "latency": SECONDS,
    "iter_time": SECONDS,
    "epoch_time": Metric("s", ".2f"),
    "run_time": Metric("s", ".2f"),
    "time_left": Metric("s", ".0f"),
    "wait_share": Metric("", ".3f"),
    "samples_per_sec": Metric("samples/s", ".0f"),
    "audio_length": Metric("s", ".2f"),
}


class Log:
    """The log of all ranks but the main one, which writes nothing. NvLog overrides every method."""

    def log(self, step: Step, data: Mapping[str, float | int | str]) -> None:
        """Record `data` at `step`: (), (epoch,), (epoch, iteration) or (epoch, iteration, val_iteration)."""

    def parameters(self, flags: Mapping[str, Any]) -> None:
        """Record each flag under the step "PARAMETER"; a value that JSON cannot represent is written as its str()."""

    def scalars(self, tag_prefix: str, values: Mapping[str, float | int], step: int) -> None:
        """Add each value to TensorBoard as `tag_prefix/name`."""

    def figure(self, tag: str, figure: Figure, step: int) -> None:
        """Add a picture to TensorBoard."""

    def audio(self, tag: str, waveform: Tensor, step: int, sampling_rate: int) -> None:
        """Add a waveform (N,) in [-1, 1] (clipped to it) to TensorBoard."""

    def say(self, sentence: str) -> None:
        """Print a sentence for the user, above any bar; it is not recorded."""

    def progress(self, iterable: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
        """Iterate over `iterable` with a bar of `total` steps (None: its length), where bars are shown."""
        return iterable

    def close(self) -> None:
        """Flush and close the files; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class NvLog(Log):
    """The main rank's log. Appends to `path`, so that a resumed run continues its file.

    Args:
        path: the file of DLLL records; a missing folder is created.
        tensorboard_dir: folder of TensorBoard's event files; None for no TensorBoard.
        progress: show bars on stderr instead of a stdout line for each iteration (the file has them all). None shows bars only
            if stdout and stderr are both terminals, so that a piped or saved stdout is complete.
        prints_settings: print the records of `parameters`, too.
        purge_step: on resuming, the first step to repeat; TensorBoard hides values logged from this step on.

    Raises DataError, here and in `log`, if the file cannot be written or is not a regular file.
    """

    def __init__(
        self,
        path: Path,
        tensorboard_dir: Path | None = None,
        progress: bool | None = None,
        prints_settings: bool = True,
        purge_step: int | None = None,
    ) -> None:
        self.path = Path(path)
        self._tensorboard_dir = tensorboard_dir
        self._purge_step, self._prints_settings = purge_step, prints_settings
        self._show_bars = sys.stdout.isatty() and sys.stderr.isatty() if progress is None else progress
        self._bars: list[tqdm] = []
        self._metrics: dict[str, Metric] = {}
        self._start = time.monotonic()
        if tensorboard_dir and tensorboard_dir.is_symlink():  # as for the file: it may lead to another program's folder
            raise DataError(f"{tensorboard_dir}: is a symbolic link, expected a folder; remove it")
        with _explain(self.path):
            make_folder(self.path.parent)
            # Unbuffered: a killed run loses no record, and closing after a full disk does not write again.
            self._file = open_to_append(self.path)
            _end_last_line(self._file)

    def log(self, step: Step, data: Mapping[str, float | int | str]) -> None:
        _check_step(step)
        for name, value in data.items():
            if not isinstance(value, (Real, str)):
                raise TypeError(f"log: {name} is a {type(value).__name__}, wanted a number or a string")
        self._introduce(data)
        self._log(step, data)

    def parameters(self, flags: Mapping[str, Any]) -> None:
        for name, value in flags.items():
            self._log(PARAMETER, {name: value})

    def scalars(self, tag_prefix: str, values: Mapping[str, float | int], step: int) -> None:
        with self._tensorboard() as writer:
            if writer:
                for name, value in values.items():
                    writer.add_scalar(f"{tag_prefix}/{name}", value, step)

    def figure(self, tag: str, figure: Figure, step: int) -> None:
        with self._tensorboard() as writer:
            if writer:  # not add_figure: it uses pyplot, which needs a display
                from common.data.pictures import figure_pixels  # most logs have no figures

                writer.add_image(tag, figure_pixels(figure), step, dataformats="HWC")

    def audio(self, tag: str, waveform: Tensor, step: int, sampling_rate: int) -> None:
        with self._tensorboard() as writer:
            if writer and waveform.numel():  # TensorBoard cannot hold an empty one, of a model that stops at once
                clipped = waveform.detach().float().cpu().clamp(-1, 1)
                writer.add_audio(tag, clipped.unsqueeze(0), step, sample_rate=sampling_rate)

    def say(self, sentence: str) -> None:
        sentence = printable(sentence)
        with suppress(OSError):  # a closed terminal or pipe: the file has all records, and the run continues
            if self._bars:
                tqdm.write(sentence, file=sys.stdout)  # print would tear the bar
            else:
                print(sentence, flush=True)

    def progress(self, iterable: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
        if not self._show_bars:
            return iterable
        bar = tqdm(iterable, desc=description, total=total, file=sys.stderr, leave=False, dynamic_ncols=True)
        return self._with_bar(bar)

    def close(self) -> None:
        for bar in self._bars:  # those of loops that an exception ended
            bar.close()
        self._file.close()
        writer = self.__dict__.get("_writer")  # not the attribute, which would make a writer only to close it
        if writer is not None:
            threading.excepthook = self._hook
            with self._tensorboard():
                writer.close()

    @contextmanager
    def _tensorboard(self) -> Iterator[SummaryWriter | None]:
        """Context of calls of the writer, None where there is none. Raises DataError where the system refuses to write."""
        with _explain(self._tensorboard_dir or self.path):
            yield self._writer

    @cached_property
    def _writer(self) -> SummaryWriter | None:
        if self._tensorboard_dir is None:
            return None
        # Imported at the first use: it takes a second or more, and inference and every --help would wait for it.
        from torch.utils.tensorboard import SummaryWriter

        self._hook = threading.excepthook
        threading.excepthook = self._pass_over_refusals
        return SummaryWriter(str(self._tensorboard_dir), purge_step=self._purge_step)

    def _pass_over_refusals(self, end: threading.ExceptHookArgs) -> None:
        """Hide the traceback of TensorBoard's thread if the system refuses to write: the writer's next call raises the error."""
        if not (isinstance(end.exc_value, OSError) and type(end.thread).__module__.startswith("tensorboard.")):
            self._hook(end)

    def _with_bar(self, bar: tqdm) -> Iterable[Any]:
        self._bars.append(bar)
        try:
            yield from bar
        finally:
            bar.close()
            self._bars.remove(bar)

    def _introduce(self, names: Iterable[str]) -> None:
        """Write the metadata of metrics of a known kind before their first values."""
        for name in names:
            kind = next((kind for ending, kind in METRICS.items() if name.endswith(ending)), None)
            if kind and name not in self._metrics:
                self._metrics[name] = kind
                self._write({"type": "METADATA", "metric": name, "metadata": kind._asdict()})

    def _log(self, step: Step, data: Mapping[str, Any]) -> None:
        written = step if isinstance(step, str) else list(step)
        stamp = self._write({"type": "LOG", "step": written, "data": _json_safe(data)})
        if self._bars and step != PARAMETER and len(step) >= 2:
            shown = {name: self._value(name, value) for name, value in data.items() if name.endswith("loss")}
            self._bars[-1].set_postfix(shown)
            return
        if step == PARAMETER and not self._prints_settings:
            return
        self.say(f"{RECORD}{stamp} - {step} {' '.join(self._format(name, value) for name, value in data.items())}")

    def _write(self, record: dict[str, Any]) -> str:
        """Append one record with the current time. Returns its "datetime"."""
        now = time.time()
        stamp = datetime.fromtimestamp(now).isoformat(sep=" ", timespec="microseconds")
        elapsed = time.monotonic() - self._start
        times = {"timestamp": f"{now:.6f}", "datetime": stamp, "elapsedtime": f"{elapsed:.6f}"}
        rest = f"{PREFIX}{json.dumps({**times, **record}, allow_nan=False)}\n".encode()
        with _explain(self.path):
            while rest:  # a full disk may accept a part and fail at the next write
                rest = rest[self._file.write(rest) :]
        return stamp

    def _format(self, name: str, value: Any) -> str:
        unit = self._metrics[name].unit if name in self._metrics else ""
        return f"{name} : {self._value(name, value)} {unit}".rstrip()

    def _value(self, name: str, value: Any) -> str:
        if not isinstance(value, Real) or isinstance(value, bool):
            return str(value)
        spec = self._metrics[name].format if name in self._metrics else ""
        return format(value, spec or ("d" if isinstance(value, Integral) else ".6g"))


def records(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the records among the lines of a log; what is none is passed over."""
    for line in lines:
        with suppress(ValueError):
            record = parse_json(line[len(PREFIX) :]) if line.startswith(PREFIX) else None
            if isinstance(record, dict):
                yield record


def place_of(record: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the steps before that of a record, and the steps of an epoch; None where it is of no step of training."""
    data = record.get("data")
    found = COUNTS.fullmatch(str(data.get(PLACE, ""))) if isinstance(data, dict) else None
    return (int(found[1]), int(found[2])) if found else None


def _json_safe(value: Any) -> Any:
    """Convert a value to strict JSON: NumPy's numbers to Python's, NaN to "NaN", paths and other types to strings."""
    return json.loads(json.dumps(value, default=_plain), parse_constant=str)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def _check_step(step: Step) -> None:
    numbers = isinstance(step, tuple) and len(step) <= 3 and all(isinstance(part, int) for part in step)
    if step != PARAMETER and not numbers:
        raise TypeError(f"log: step {step!r}, wanted '{PARAMETER}' or a tuple of at most three ints")


def _explain(path: Path) -> AbstractContextManager[None]:
    """Context of writing to the log, in which a refusal of the system becomes a DataError."""
    return explain_refusal(f"{path}: cannot write the log", "free the disk or choose another --output")


def _end_last_line(file: BinaryIO) -> None:
    """Prepare a file for appending: remove an incomplete last record, or add a missing line feed."""
    file.seek(0)
    content = file.read()
    start = content.rfind(b"\n") + 1
    line = content[start:].decode(errors="replace")
    if (line.startswith(PREFIX) or PREFIX.startswith(line)) and not [*records([line])]:  # of a killed run
        file.truncate(start)
    elif line:
        file.write(b"\n")
