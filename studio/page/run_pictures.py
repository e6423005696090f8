"""The newest pictures and sounds of a model's training, from its TensorBoard folder."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import soundfile

from common.data.filelist import read_filelist
from common.data.pictures import read_png
from common.errors import DataError
from common.training.checkup import spread
from studio.project import Project

SIZES = {"images": 1, "audio": 1, "scalars": 1, "histograms": 1, "tensors": 1, "compressedHistograms": 1}
MEL, ALIGNMENT = ("free_running_mel_0", "mel"), ("free_running_alignment_0", "alignment")  # the first that there is
EVALUATION = "evaluation/"


class Picture(NamedTuple):
    """Pixels (height, width, 3) of a validation at an optimizer step."""

    pixels: npt.NDArray[np.uint8]
    step: int


class Speech(NamedTuple):
    """A line that an evaluation synthesised, at an optimizer step: rate in Hz, samples (N,) and the text."""

    rate: int
    samples: npt.NDArray[np.int16]
    text: str
    step: int


class RunPictures:
    """The event files of a model's run. `update` reads the events that came since the last call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._events: Any = None
        self._inode = 0

    def update(self) -> bool:
        """Read new events. Returns False where there are no event files yet."""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # takes a second

        try:
            inode = self.folder.stat().st_ino
        except OSError:
            self._events = None
            return False
        if self._events is None or inode != self._inode:
            self._events, self._inode = EventAccumulator(str(self.folder), size_guidance=SIZES), inode
        self._events.Reload()
        return True

    def picture(self, names: tuple[str, ...]) -> Picture | None:
        """Return the newest picture of the first name that the validations have; None without one."""
        tags = self._events.Tags()["images"] if self._events else []
        for name in names:
            if (tag := f"validation/{name}") in tags:
                event = self._events.Images(tag)[-1]
                return Picture(read_png(event.encoded_image_string), event.step)
        return None

    def speeches(self, texts: list[str]) -> list[Speech]:
        """Return the newest sounds of an evaluation's lines, in their order; `texts` are those of the lines."""
        tags = [tag for tag in (self._events.Tags()["audio"] if self._events else []) if tag.startswith(EVALUATION)]
        found = []
        for tag in sorted(tags, key=lambda tag: int(tag.removeprefix(EVALUATION))):
            event, index = self._events.Audio(tag)[-1], int(tag.removeprefix(EVALUATION))
            samples, rate = soundfile.read(io.BytesIO(event.encoded_audio_string), dtype="int16")
            found.append(Speech(rate, samples, texts[index] if index < len(texts) else "", event.step))
        return found


def evaluation_texts(project: Project, lines: int) -> list[str]:
    """Return the texts of an evaluation's lines; [] where the filelist cannot be read."""
    try:
        return [row.text for row in spread(read_filelist(project.validation_list), lines)]
    except DataError:
        return []
