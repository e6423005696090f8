"""Evaluation during training: a few held-out lines, synthesised every few epochs and scored as in the quality report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import torch

from common import precision
from common.audio.audio_processing import load_audio
from common.audio.stft import AudioConfig, TacotronSTFT
from common.data.filelist import Utterance, read_filelist
from common.errors import DataError, UsageError
from common.inference.config import DENOISING_STRENGTH
from common.inference.evaluation import (
    Evaluators,
    HeldOutLine,
    Rendition,
    evaluate_system,
    renditions_from_texts,
    renditions_from_true_mels,
)
from common.inference.vocoders import LoadedModel, Vocoder, griffin_lim_of
from common.quality import MEASURED
from common.quality.report import System, capped_error_rate, summary
from common.run import distributed
from common.run.interrupt import Stopped, StopRequest
from common.run.nvlog import Log
from common.training.loop import any_process
from common.training.options import BEST_BY, DataConfig, EvaluationConfig
from common.training.state import TrainState

Row = TypeVar("Row")
LOGGED_AS = {"wer": "wer_capped"}  # a measure of BEST_BY: its name in the log, where another measure has its own name
# The package-free measure that takes the place of words, by the role of the model.
WITHOUT_PACKAGES = {"acoustic": "coverage", "vocoder": "mel_distance"}
SEED = 0  # of dropout and noise; constant, so that checkups compare


class Checkup:
    """Synthesises and scores some validation lines on the main process, and sends the scores to the others."""

    def __init__(self, config: EvaluationConfig, data: DataConfig, audio: AudioConfig, is_main: bool) -> None:
        assert config.evaluate_every is not None
        self.every, self.audio = config.evaluate_every, audio
        self.items: list[HeldOutLine] = []
        self.evaluators: Evaluators | None = None
        rows = spread(read_filelist(data.validation_files), config.evaluate_lines)
        if config.best_by == "mcd" and any(is_mel(row) for row in rows):
            raise UsageError(
                f"--best-by mcd: compares with recordings, and {data.validation_files} names cached mels, such as "
                f"{next(row.path for row in rows if is_mel(row))}: name audio there, or choose --best-by wer or mos"
            )
        if is_main:
            self.items = [make_held_out_line(row, data.dataset_path, self.audio) for row in rows]
            measures = [name for name in MEASURED if name not in config.evaluate_without]
            # An evaluator draws random weights before it loads its own. A missing package is an error here, not after an epoch.
            with precision.separate_rng(torch.device("cpu"), SEED):
                self.evaluators = Evaluators(measures, config.hearing)

    def due(self, epoch: int, last: bool) -> bool:
        """Return True if a checkup follows the validation after this epoch."""
        return last or epoch % self.every == 0

    def __call__(self, state: TrainState, log: Log, stop: StopRequest) -> dict[str, float]:
        """Synthesise, score and log. Returns the measures by name, the same on every process; {} after a request to stop."""
        found, dist = dict.fromkeys(BEST_BY, math.nan), state.setup.dist
        work = f"checkup of step {state.progress.iteration}"
        if self.evaluators is not None:
            with distributed.main_alone(dist, work), suppress(Stopped):
                found |= selecting_measures(self._measure(state, log, stop))
        else:
            distributed.wait_for_main(dist, work, lambda: stop.is_requested)
        values = torch.tensor([found[name] if self.evaluators else 0.0 for name in BEST_BY], dtype=torch.float64)
        # Only the main process adds values other than 0.
        sums = distributed.all_sum(values.to(dist.device), dist).tolist()
        return {} if any_process(stop.is_requested, dist) else dict(zip(BEST_BY, sums, strict=True))

    @torch.no_grad()
    def _measure(self, state: TrainState, log: Log, stop: StopRequest) -> dict[str, float]:
        """Synthesise, score and log on the main process. Raises Stopped on a request, at any moment."""
        assert self.evaluators is not None
        state.eval_model.eval()
        try:
            loaded = LoadedModel(state.setup.spec, state.eval_model, dict(state.setup.options.model))
            # Random numbers return to their state when a request cannot interrupt that any more.
            with precision.separate_rng(state.setup.dist.device, SEED), stop.at_once():
                outputs, speed = self._speak(loaded, state.setup.dist.device)
                system = evaluate_system(
                    "checkup", self.items, outputs, speed, self.evaluators, self.audio.sampling_rate
                )
        except DataError as error:  # mels of an untrained model may overflow a transform
            log.say(f"no evaluation this time: {error}")
            return {}
        found = measures_of(system)
        if state.setup.spec.role == "vocoder":
            found["mel_distance"] = mel_distance(outputs, self.audio)
        log.log((state.progress.epoch,), {f"evaluation_{name}": value for name, value in found.items()})
        log.scalars("evaluation", found, state.progress.iteration)
        for number, line in enumerate(system.lines):
            sound = torch.from_numpy(line.sound)
            log.audio(f"evaluation/{number}", sound, state.progress.iteration, self.audio.sampling_rate)
        return found

    def _speak(self, loaded: LoadedModel, device: torch.device) -> tuple[list[Rendition], float]:
        """Synthesise an acoustic model's texts through Griffin-Lim, or a vocoder's audio from the recordings' mels."""
        if loaded.spec.role == "vocoder":
            vocoder = Vocoder(loaded, self.audio, device, strength=DENOISING_STRENGTH)
            return renditions_from_true_mels(self.items, vocoder, self.audio, device, SEED)
        vocoders = {"sound": Vocoder(griffin_lim_of(loaded, device), self.audio, device)}
        return renditions_from_texts(self.items, loaded, vocoders, self.audio, device, False, SEED)["sound"]


def measures_of(system: System) -> dict[str, float]:
    """Return the measures of a system that are numbers: those of a report, and the capped word error rate."""
    found = {name: interval.value for name, interval in summary(system).items()}
    found[LOGGED_AS["wer"]] = capped_error_rate(system)
    return {name: value for name, value in found.items() if not math.isnan(value)}


def selecting_measures(found: Mapping[str, float]) -> dict[str, float]:
    """Return measures by the names of BEST_BY; words count by the capped rate."""
    return {**found, **{name: found[logged] for name, logged in LOGGED_AS.items() if logged in found}}


def mel_distance(renditions: Sequence[Rendition], audio: AudioConfig) -> float:
    """Return the mean absolute difference, in nats, between the log-mels of vocoded audio and the mels (M, T) it comes from."""
    stft, total, count = TacotronSTFT.from_config(audio), 0.0, 0
    for rendition in renditions:
        wanted = rendition.pictures["mel"]
        mel = stft.mel_spectrogram(rendition.audio[None].clamp(-1, 1))[0][:, : wanted.shape[1]]
        difference = (mel - wanted[:, : mel.shape[1]]).abs()
        total, count = total + float(difference.sum()), count + difference.numel()
    return total / count


def spread(rows: Sequence[Row], count: int) -> list[Row]:
    """Select at most `count` rows, evenly spaced over all."""
    count = min(count, len(rows))
    return [rows[number * len(rows) // count] for number in range(count)]


def make_held_out_line(row: Utterance, dataset_path: str, audio: AudioConfig) -> HeldOutLine:
    """Return a row's text, with its recording unless the row names a cached mel."""
    return HeldOutLine(row.text, None if is_mel(row) else load_audio(Path(dataset_path, row.path), audio.sampling_rate))


def is_mel(row: Utterance) -> bool:
    """Return True if a row names a cached mel, not a recording."""
    return row.path.endswith(".pt")
