"""The library behind the commands: chooses and loads the checkpoints of a voice, and turns texts into speech.

    voice = Synthesizer.embedded()                            # or Synthesizer.from_checkpoints("tacotron2.pt", "waveglow.pt")
    (speech,) = voice.speak(["Good morning."])                # speech.audio (N,) in [-1, 1], speech.sampling_rate in Hz
    for audio in voice.stream("A long text, part by part."):  # (n,), each as soon as it is ready
        ...

Nothing here changes the process: threads, number formats, memory, warnings and random generators stay as they are. Models keep
buffers between calls, so use a Synthesizer from one thread at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common import precision
from common.audio.audio_processing import normalize
from common.audio.stft import AudioConfig
from common.checkpoint.files import load_checkpoint
from common.data.lexicon import lexicon_of
from common.draws import Draws
from common.errors import DataError, UsageError
from common.inference import stages
from common.inference.checkpoints import Checkpoint, Checkpoints, Choice
from common.inference.config import BYTES_PER_LINE, DENOISING_STRENGTH, GRIFFIN_LIM, MOST_LINES, SIGMA, SynthesisConfig
from common.inference.stages import AudioSteps, Batch, Line, MelBatch, PieceStream, Speech
from common.inference.vocoders import LoadedModel, Numbers, Vocoder, common_audio, griffin_lim_of
from common.inference.words import Timetable, Word
from common.run.memory import available_memory
from common.spec import ModelSpec, Piece, config_of
from models import REGISTRY, recognise

__all__ = [
    "GRIFFIN_LIM",
    "Batch",
    "Checkpoint",
    "Choice",
    "Line",
    "Speech",
    "SynthesisConfig",
    "Synthesizer",
    "choose_checkpoints",
]

# N samples, n samples of a part

EMBEDDED = Path(__file__).resolve().parent / "voice"  # the embedded voice
SILENT = "no sound, since the voice stopped before its first frame: add words or a full stop"


class Synthesizer:
    """A voice: an acoustic model with a vocoder model or Griffin-Lim.

    Build one with the classmethods, which load the models. With a seed in the config, equal calls give equal audio.

    Raises:
        DataError: checkpoints with different audio settings; a lexicon with ARPAbet that the acoustic model lacks.
    """

    def __init__(
        self,
        acoustic: LoadedModel,
        vocoding: LoadedModel | None,
        config: SynthesisConfig | None = None,
        device: torch.device | None = None,
        description: str = "",
    ) -> None:
        self.config, self.device = config or SynthesisConfig(), device or precision.default_device()
        self.acoustic = acoustic
        self.vocoding = vocoding or griffin_lim_of(acoustic, self.device)
        self.description = "; ".join(filter(None, (description, acoustic.assumed)))
        if lexicon := lexicon_of(self.config.lexicon):
            self.acoustic = stages.use_lexicon(acoustic, lexicon)
        self.audio = common_audio(acoustic, self.vocoding)
        settings = self.config.half, self.sigma_infer, self.denoising_strength
        self.vocoder = Vocoder(self.vocoding, self.audio, self.device, *settings)

    @classmethod
    def from_checkpoints(
        cls,
        acoustic: str | PathLike[str] | Checkpoint,
        vocoder: str | PathLike[str] | Checkpoint | None = None,
        *,
        config: SynthesisConfig | None = None,
        device: torch.device | str | None = None,
        description: str = "",
    ) -> Synthesizer:
        """Load a voice from files; without a vocoder, Griffin-Lim computes the audio.

        Args:
            acoustic, vocoder: files, whose stored configs tell their models, or Checkpoints.
            device: where the models run; by default the current GPU, or the CPU if there is none.

        Raises:
            UsageError: options that contradict a checkpoint's stored settings.
            DataError: files that cannot be read or do not fit together.
        """
        config = config or SynthesisConfig()
        device = torch.device(device) if device is not None else precision.default_device()
        if config.vocoder == GRIFFIN_LIM and vocoder is not None:
            raise UsageError(f"vocoder: {GRIFFIN_LIM} needs no checkpoint; leave one of them out")
        acoustic = _as_checkpoint("acoustic", acoustic, config)
        vocoder = None if vocoder is None else _as_checkpoint("vocoder", vocoder, config)
        loaded = load(acoustic, config, device)
        return cls(loaded, load(vocoder, config, device) if vocoder else None, config, device, description)

    @classmethod
    def embedded(
        cls, *, config: SynthesisConfig | None = None, device: torch.device | str | None = None
    ) -> Synthesizer:
        """Load the embedded voice with the vocoder that `config.vocoder` names, by default the one in its config.json.

        Raises:
            DataError: if its files are missing.
        """
        config = config or SynthesisConfig()
        choice = _checkpoints().choose_embedded(config.vocoder)
        if choice is None:
            raise DataError(f"{EMBEDDED}: no such voice here, expected a .safetensors file for each of its models")
        return cls.from_choice(choice, config=config, device=device)

    @classmethod
    def from_choice(
        cls, choice: Choice, *, config: SynthesisConfig | None = None, device: torch.device | str | None = None
    ) -> Synthesizer:
        """Load the checkpoints that `choose_checkpoints` returned. Raises what from_checkpoints raises."""
        description = choice.description
        return cls.from_checkpoints(*choice[:2], config=config, device=device, description=description)

    def speak(self, texts: str | Sequence[str]) -> list[Speech]:
        """Turn texts into speech, long ones in pieces; among others, a text without words, as "***", gives one without sound.

        Raises:
            DataError: texts that cannot be read, all in one message; only texts without words; a text that does not fit into
                memory, or whose voice stops before its first frame.
        """
        lines = self.lines([texts] if isinstance(texts, str) else texts)
        speeches: dict[int, Speech | None] = {}
        for positions, batch in self.speak_batches(lines):
            speeches |= zip(positions, batch.speeches, strict=True)
        spoken = [speech for _, speech in sorted(speeches.items()) if speech is not None]
        if unfit := [line.number + 1 for line in lines if speeches[line.number] is None]:
            raise DataError(f"items {', '.join(map(str, unfit))}: not enough memory, even for one at a time")
        if silent := [item for item, speech in enumerate(spoken, 1) if speech.pieces and not speech.mel.shape[1]]:
            raise DataError(f"items {', '.join(map(str, silent))}: {SILENT}")
        return spoken

    def lines(self, texts: Sequence[str]) -> list[Line]:
        """Number texts from 0 and give them the config's seed, or one drawn from PyTorch's generator."""
        seed = self.config.seed
        if seed is None:
            seed = int(torch.randint(2**31, ()))
        return [Line(text, seed, number) for number, text in enumerate(texts)]

    def speak_batches(self, lines: Sequence[Line], batch_size: int | None = None) -> Iterator[tuple[list[int], Batch]]:
        """Turn lines into speech batch by batch, longest lines first: yields positions in `lines` and their outputs.

        A line's audio depends on its text, seed and number and on the settings of this voice, not on its batch.

        Args:
            lines: texts, with the seeds and numbers that determine their random numbers.
            batch_size: lines of a batch; 0: all; None: `default_batch_size`.

        Raises:
            DataError: texts that cannot be read, all in one message.
        """
        self.check(lines)
        size = self.default_batch_size() if batch_size is None else batch_size
        for positions in stages.plan_batches(lines, size):
            yield positions, self.speak_batch([lines[position] for position in positions], size)

    def speak_batch(self, lines: Sequence[Line], most_pieces: int = 0) -> Batch:
        """Turn lines into speech, at most `most_pieces` pieces at once (0: all), in halves if memory is short.

        Raises DataError for texts that cannot be read.
        """
        stages.check_texts([line.text for line in lines], self.acoustic)
        cuts = [self._cut(line) for line in lines]
        batch = self._speak_pieces([piece for cut in cuts for piece in cut], most_pieces)
        in_order = iter(batch.speeches)
        joined = [stages.join_pieces(list(islice(in_order, len(cut))), cut, self.audio) for cut in cuts]
        return batch._replace(speeches=[speech and self._finish(speech) for speech in joined])

    def default_batch_size(self) -> int:
        """Return the batch size that the device's memory allows: a line per BYTES_PER_LINE, at most MOST_LINES."""
        return max(1, min(MOST_LINES, available_memory(self.device) // BYTES_PER_LINE))

    def check(self, lines: Sequence[Line]) -> None:
        """Raise one DataError for all texts that cannot be read, or if none has words."""
        stages.require_words([line.text for line in lines], self.acoustic)

    def has_words(self, text: str) -> bool:
        """True if a text has something to say; "***" has nothing. Raises DataError for a text that cannot be read."""
        return stages.check_texts([text], self.acoustic)[0]

    def stream(self, text: str) -> Iterator[Tensor]:
        """Yield the audio (n,) of a text in parts, each as soon as it is ready: float32, in [-1, 1], on the CPU.

        Joined, the parts equal the audio of `speak`, up to differences at the edges of a vocoder's parts.

        Raises:
            DataError: a text that cannot be read.
            UsageError: a config that normalizes the level, for which the whole audio is needed.
        """
        return (audio for audio in self.stream_line(self.lines([text])[0]) if len(audio))

    def stream_line(self, line: Line, last_pause: float = 0.0) -> AudioSteps:
        """Yield a line's audio as `stream` does, then `last_pause` seconds of silence; return its speech and numbers for the log.

        Raises what `stream` raises.
        """
        if (mode := self.config.normalize) != "none":
            message = "needs the whole audio, and a stream has none yet; leave one of them out"
            raise UsageError(f"--normalize {mode}: {message}")
        return self._at_speed(self._stream(line, last_pause))

    def cut_line(self, line: Line) -> list[Piece]:
        """Split a line into the pieces that `stream_line` synthesises in turn. Raises DataError for a text that cannot be read."""
        self.check([line])
        return self._cut(line)

    def stream_pieces(self, pieces: Sequence[Piece], voices: Sequence[Synthesizer] | None = None) -> list[PieceStream]:
        """Compute the mels of pieces, of any lines, as one batch; return a stream for each, which yields its audio in parts.

        Each stream yields and returns the same values as `stream_line` does for its piece, without the pause. Streams can be
        advanced in turn. If memory is short, the mels are computed in halves.

        Args:
            pieces: pieces from `cut_line`.
            voices: a voice for each piece, made by `with_settings`, whose vocoder is used; by default this one.
        """
        own = voices or [self] * len(pieces)
        found = self._mels(pieces) if len(pieces) == 1 else stages.in_memory(partial(self._mels, pieces))
        if found is None:
            precision.free_cached_memory(self.device)
            middle = len(pieces) // 2
            halves = (slice(None, middle), slice(middle, None))
            return [stream for half in halves for stream in self.stream_pieces(pieces[half], own[half])]
        mels, numbers = found
        items = zip(pieces, own, strict=True)
        return [voice._begin_piece(piece, mels.item(number), numbers) for number, (piece, voice) in enumerate(items)]

    def _cut(self, line: Line) -> list[Piece]:
        return stages.cut_line(line, self.acoustic, self.config.longest_piece)

    def _mels(self, pieces: Sequence[Piece]) -> tuple[MelBatch, Numbers]:
        draws = Draws.of([piece.key for piece in pieces], "acoustic", self.device)
        texts = [piece.text for piece in pieces]
        mels, numbers = stages.mels_from_texts(texts, self.acoustic, self.device, self.config.half, draws)
        stages.check_finite(mels.mels, pieces, "mels", self.acoustic.path)
        return mels, numbers

    def _speak_pieces(self, pieces: Sequence[Piece], batch_size: int = 0) -> Batch:
        """Pieces -> a speech each, in order, at most `batch_size` (0: all) at once, or in halves if memory is short."""
        queue = stages.plan_batches(pieces, batch_size)
        speeches: dict[int, Speech | None] = {}
        numbers, halved = [], False
        while queue:
            batch = queue.pop(0)
            outputs = stages.in_memory(partial(self._speak_at_once, [pieces[number] for number in batch]))
            if outputs is None:
                precision.free_cached_memory(self.device)
            if outputs:
                speeches |= zip(batch, outputs[0], strict=True)
                numbers.append((len(batch), outputs[1]))
            elif len(batch) == 1:
                speeches[batch[0]] = None
            else:
                halved = True
                middle = len(batch) // 2
                queue[:0] = [batch[:middle], batch[middle:]]
        return Batch([speeches[number] for number in range(len(pieces))], stages.combine_numbers(numbers), halved)

    def _speak_at_once(self, pieces: Sequence[Piece]) -> tuple[list[Speech], Numbers]:
        mels, numbers = self._mels(pieces)
        draws = Draws.of([piece.key for piece in pieces], "vocoder", self.device)
        audio, vocoder_numbers = self.vocoder(mels.mels, mels.lengths, draws)
        stages.check_finite(audio, pieces, "audio", self.vocoding.path)
        return stages.make_speeches(mels, audio, pieces, self.audio), numbers | vocoder_numbers

    def _stream(self, line: Line, last_pause: float) -> AudioSteps:
        """Yield the audio of a line piece by piece, with all pauses; return its speech and numbers."""
        pieces, rate = self.cut_line(line), self.audio.sampling_rate
        speeches, numbers = [], []
        for piece in pieces:
            if piece.lead:
                yield torch.zeros(round(piece.lead * rate))
            mels, of_mels = self._mels([piece])
            speech, of_piece = yield from self._vocode(piece, mels.item(0), of_mels)
            speeches.append(speech)
            numbers.append((1, of_piece))
            pause = piece.pause + (last_pause if piece is pieces[-1] else 0.0)
            yield torch.zeros(round(pause * rate))
        joined = stages.join_pieces(speeches, pieces, self.audio)
        assert joined is not None
        return joined, stages.combine_numbers(numbers)

    def _begin_piece(self, piece: Piece, mels: MelBatch, numbers: Numbers) -> PieceStream:
        (draft,) = stages.make_speeches(mels, torch.zeros(1, 0), [piece], self.audio)
        return PieceStream(self._timed(draft), self._at_speed(self._vocode(piece, mels, numbers)))

    def _vocode(self, piece: Piece, mels: MelBatch, numbers: Numbers) -> AudioSteps:
        """Yield the audio of one piece's mels in parts, clamped to [-1, 1], on the CPU; return its speech and numbers."""

        def finish(audio: Tensor) -> Tensor:
            stages.check_finite(audio[None], [piece], "audio", self.vocoding.path)
            return audio.cpu().clamp(-1, 1)

        draws = Draws.of([piece.key], "vocoder", self.device)
        steps = self.vocoder.stream(mels.mels, mels.lengths, draws)
        audio, vocoder_numbers = yield from stages.map_parts(steps, finish)
        (speech,) = stages.make_speeches(mels, audio.clamp(-1, 1), [piece], self.audio)
        return speech, numbers | vocoder_numbers

    def _at_speed(self, steps: AudioSteps) -> AudioSteps:
        """Yield and return the audio of some steps at the config's speed."""
        if self.config.speed == 1.0:
            return (yield from steps)
        from common.audio.tempo import Filter  # loaded only for another speed

        rate = self.audio.sampling_rate
        tempo = Filter(rate, self.config.speed, rate)
        speech, numbers = yield from stages.map_parts(steps, lambda audio: tempo.process(audio).clamp(-1, 1))
        yield tempo.finish().clamp(-1, 1)
        return self._finish(speech), numbers

    def _finish(self, speech: Speech) -> Speech:
        """Return a speech at the speed and the level of the config."""
        if (speed := self.config.speed) != 1.0:
            from common.audio.tempo import change_speed

            audio = change_speed(speech.audio, speech.sampling_rate, speed)
            speech = self._timed(speech)._replace(audio=audio)
        return speech._replace(audio=normalize(speech.audio, self.config.normalize).clamp(-1, 1))

    def _timed(self, speech: Speech) -> Speech:
        """Return a speech whose parts have the times of the config's speed."""
        speed = self.config.speed
        parts = [part._replace(start=part.start / speed, seconds=part.seconds / speed) for part in speech.parts]
        return speech._replace(parts=tuple(parts))

    def with_settings(
        self, seed: int, sigma_infer: float | None = None, denoising_strength: float | None = None
    ) -> Synthesizer:
        """Return a voice with the same models and other vocoder settings; None keeps a setting.

        The voices share their models: use them from one thread at a time. Raises UsageError for values out of range.
        """
        voice, old = copy.copy(self), self.config
        sigma = self.sigma_infer if sigma_infer is None else sigma_infer
        strength = old.denoising_strength if denoising_strength is None else denoising_strength
        voice.config = replace(old, seed=seed, sigma_infer=sigma, denoising_strength=strength)
        voice.vocoder = self.vocoder.with_settings(sigma, voice.denoising_strength)
        return voice

    def symbols(self, text: str) -> list[str]:
        """List the symbols that a text is read as, one per id."""
        return stages.acoustic_stages(self.acoustic).spell(text, self.acoustic.options)

    def words(self, text: str, speech: Speech) -> list[Word]:
        """List the words of a text with the seconds in which this voice's `speech` of it speaks them. Marks alone are no words."""
        written = stages.acoustic_stages(self.acoustic).written(text, self.acoustic.options)
        table = Timetable(written, [part.text for part in speech.parts], self.symbols)
        return [word for part, alignment in speech.in_parts() for word in table.add(part, alignment)]

    def notes(self, text: str, language: str | None = None) -> list[str]:
        """List what this voice reads in vain: what has no effect, characters without a sound, and what is not in its `language`."""
        return stages.notes_on(self.acoustic, text, language)

    def settings(self) -> dict[str, Any]:
        """Return the settings of this voice, both those stored in its checkpoints and those of decoding."""
        settings = {field.name: getattr(self.audio, field.name) for field in fields(AudioConfig)}
        settings |= {"sigma_infer": self.sigma_infer, "denoising_strength": self.denoising_strength}
        for loaded in (self.acoustic, self.vocoding):
            names = [*loaded.spec.stored_options, *loaded.spec.run_options]
            settings |= {name: loaded.options[name] for name in names}
            if isinstance(loaded.spec, ModelSpec):
                settings[f"{loaded.spec.flag}_config"] = config_of(loaded.model)
        return settings

    @property
    def denoising_strength(self) -> float:
        """How much of the vocoder's own noise is subtracted: as configured, otherwise this voice's default."""
        return self._setting("denoising_strength", DENOISING_STRENGTH)

    @property
    def sigma_infer(self) -> float:
        """The standard deviation of the vocoder's input noise: as configured, otherwise this voice's default."""
        return self._setting("sigma_infer", SIGMA)

    def _setting(self, name: str, default: float) -> float:
        chosen = getattr(self.config, name)
        return float(self.vocoding.options.get(name, default) if chosen is None else chosen)


def choose_checkpoints(named: Mapping[str, Path] | None = None, vocoder: str | None = None) -> Choice:
    """Choose the checkpoints of a voice: the named ones, otherwise those in output/, otherwise the embedded voice.

    Args:
        named: checkpoints by the flags of their models.
        vocoder: "griffin-lim", or the flag of a vocoder model, which the voice must then have.

    Raises:
        DataError: if there is none; the message names the missing file.
    """
    return _checkpoints().choose(named or {}, vocoder)


def _checkpoints() -> Checkpoints:
    return Checkpoints(REGISTRY.values(), EMBEDDED)


def _as_checkpoint(role: str, source: str | PathLike[str] | Checkpoint, config: SynthesisConfig) -> Checkpoint:
    if isinstance(source, Checkpoint):
        return source
    path, candidates = Path(source), _checkpoints().candidates(role, config.vocoder)
    if len(candidates) == 1:
        return Checkpoint(candidates[0], path)
    contents = load_checkpoint(path)
    return Checkpoint(recognise(contents, candidates), path, contents)


def load(checkpoint: Checkpoint, config: SynthesisConfig, device: torch.device) -> LoadedModel:
    """Load a model as Checkpoints.load does."""
    return _checkpoints().load(checkpoint, config, device)
