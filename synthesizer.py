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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from common import precision
from common.audio.audio_processing import normalize
from common.audio.stft import AudioConfig
from common.checkpoint.files import find_last, load_checkpoint
from common.checkpoint.weights import data_of, restore_model
from common.data.lexicon import lexicon_of
from common.errors import DataError, UsageError
from common.fast import Request
from common.files import display_path
from common.inference import stages
from common.inference.config import (
    BYTES_PER_LINE,
    DENOISING_STRENGTH,
    EMBEDDED_DENOISING_STRENGTH,
    GRIFFIN_LIM,
    MOST_LINES,
    TRAINED,
    SynthesisConfig,
    check_data_options,
    contradictions,
)
from common.inference.stages import AudioSteps, Batch, Line, PieceStream, Speech, acoustic_stages
from common.inference.vocoders import GriffinLimVocoder, LoadedModel, NeuralVocoder, Vocoder, common_audio
from common.inference.voice_folder import default_vocoder, find_checkpoint
from common.inference.words import Word, list_words
from common.run.memory import available_memory
from common.spec import ModelSpec, Piece, config_of
from models import REGISTRY, default_options, recognise

__all__ = ["GRIFFIN_LIM", "Batch", "Choice", "Line", "Speech", "SynthesisConfig", "Synthesizer", "choose_checkpoints"]

# N samples, n samples of a part

EMBEDDED = Path(__file__).resolve().parent / "voice"  # the embedded voice
SILENT = "no sound, since the voice stopped before its first frame: add words or a full stop"

Find = Callable[[ModelSpec], Path | None]  # finds a model's checkpoint in some place


class Checkpoint(NamedTuple):
    """A checkpoint file and the spec of the model in it."""

    spec: ModelSpec
    path: Path


class Choice(NamedTuple):
    """The checkpoints of a voice (no vocoder means Griffin-Lim), and a phrase that describes them."""

    acoustic: Checkpoint
    vocoder: Checkpoint | None
    description: str


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
        self.acoustic, self.vocoding = acoustic, vocoding
        self.description = "; ".join(filter(None, (description, acoustic.assumed)))
        if lexicon := lexicon_of(self.config.lexicon):
            self.acoustic = stages.use_lexicon(acoustic, lexicon)
        self.audio = common_audio(acoustic, vocoding)
        with precision.separate_rng(self.device, 0):  # a denoiser runs its model
            self.vocoder = self._make_vocoder()

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
        choice = _embedded_choice(config.vocoder)
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
        """Turn lines into speech, at most `most_pieces` pieces at once (0: all). Raises DataError for texts that cannot be read."""
        batch = stages.synthesise(lines, self._pipeline(), self.config.longest_piece, most_pieces)
        return batch._replace(speeches=[speech and self._finish(speech) for speech in batch.speeches])

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
        return stages.bounded(
            stages.stream(line, self._pipeline(), self.config.longest_piece, last_pause), self._finish
        )

    def cut_line(self, line: Line) -> list[Piece]:
        """Split a line into the pieces that `stream_line` synthesises in turn. Raises DataError for a text that cannot be read."""
        self.check([line])
        return stages.cut_line(line, self.acoustic, self.config.longest_piece)

    def speak_pieces(self, pieces: Sequence[Piece]) -> list[Speech | None]:
        """Turn pieces from `cut_line` into speech, without pauses; None for those that do not fit into memory."""
        speeches = stages.synthesise_pieces(pieces, self._pipeline()).speeches
        return [speech and self._finish(speech) for speech in speeches]

    def stream_pieces(self, pieces: Sequence[Piece], voices: Sequence[Synthesizer] | None = None) -> list[PieceStream]:
        """Compute the mels of pieces, of any lines, as one batch; return a stream for each, which yields its audio in parts.

        Each stream yields and returns the same values as `stream_line` does for its piece, without the pause. Streams can be
        advanced in turn.

        Args:
            pieces: pieces from `cut_line`.
            voices: a voice for each piece, made by `with_settings`, whose vocoder is used; by default this one.
        """
        own = voices or [self] * len(pieces)
        streams = stages.stream_pieces(pieces, self._pipeline(), [voice.vocoder for voice in own])
        return [
            stream._replace(steps=stages.bounded(stream.steps, voice._finish))
            for voice, stream in zip(own, streams, strict=True)
        ]

    def with_settings(
        self, seed: int, sigma_infer: float | None = None, denoising_strength: float | None = None
    ) -> Synthesizer:
        """Return a voice with the same models and other vocoder settings; None keeps a setting.

        The voices share their models: use them from one thread at a time. Raises UsageError for values out of range.
        """
        voice, old = copy.copy(self), self.config
        sigma = old.sigma_infer if sigma_infer is None else sigma_infer
        strength = old.denoising_strength if denoising_strength is None else denoising_strength
        voice.config = replace(old, seed=seed, sigma_infer=sigma, denoising_strength=strength)
        voice.vocoder = self.vocoder.with_settings(seed, sigma, voice.denoising_strength)
        return voice

    def symbols(self, text: str) -> list[str]:
        """List the symbols that a text is read as, one per id."""
        return acoustic_stages(self.acoustic).spell(text, self.acoustic.options)

    def words(self, text: str, speech: Speech) -> list[Word]:
        """List the words of a text with the seconds in which this voice's `speech` of it speaks them. Marks alone are no words."""
        return list_words(acoustic_stages(self.acoustic).written(text, self.acoustic.options), speech, self.symbols)

    def unspoken(self, text: str) -> list[str]:
        """List the characters of a text that the model has no symbol for."""
        return acoustic_stages(self.acoustic).unspoken(text, self.acoustic.options)

    def settings(self) -> dict[str, Any]:
        """Return the settings of this voice, both those stored in its checkpoints and those of decoding."""
        settings = {field.name: getattr(self.audio, field.name) for field in fields(AudioConfig)}
        settings |= {"sigma_infer": self.config.sigma_infer, "denoising_strength": self.denoising_strength}
        for loaded in filter(None, (self.acoustic, self.vocoding)):
            names = [*loaded.spec.stored_options, *loaded.spec.run_options]
            settings |= {name: loaded.options[name] for name in names}
            settings[f"{loaded.spec.flag}_config"] = config_of(loaded.model)
        return settings

    @property
    def denoising_strength(self) -> float:
        """How much of the vocoder's own noise is subtracted: as configured, otherwise this voice's default."""
        chosen = self.config.denoising_strength
        own = self.vocoding.options.get("denoising_strength") if self.vocoding else None
        return next(value for value in (chosen, own, DENOISING_STRENGTH) if value is not None)

    def _make_vocoder(self) -> Vocoder:
        config = self.config
        if self.vocoding is None:
            return GriffinLimVocoder(self.audio, self.device, config.seed or 0)
        strength = self.denoising_strength
        return NeuralVocoder(self.vocoding, self.audio, self.device, config.half, config.sigma_infer, strength)

    def _pipeline(self) -> stages.Pipeline:
        file = self.vocoding.path if self.vocoding else None
        return stages.Pipeline(self.acoustic, self.vocoder, self.audio, self.device, self.config.half, file)

    def _finish(self, speech: Speech) -> Speech:
        return speech._replace(audio=normalize(speech.audio, self.config.normalize).clamp(-1, 1))


def choose_checkpoints(named: Mapping[str, Path] | None = None, vocoder: str | None = None) -> Choice:
    """Choose the checkpoints of a voice: the named ones, otherwise those in output/, otherwise the embedded voice.

    - If only one role is named, the other one's checkpoint comes from output/.
    - output/ is enough if it has both roles, or an acoustic model alone, which then speaks through Griffin-Lim.
    - A vocoder alone is not enough, because it may not fit the mels of models from elsewhere.
    - The embedded voice speaks through the vocoder in its config.json.

    Args:
        named: checkpoints by the flags of their models.
        vocoder: "griffin-lim", or the flag of a vocoder model, which the voice must then have.

    Raises:
        DataError: if there is none; the message names the missing file.
    """
    named = named or {}

    def find(spec: ModelSpec) -> Path | None:
        return named.get(spec.flag)

    def choose(role: str) -> Checkpoint | None:
        return _find(role, find, vocoder) or _find(role, _trained_checkpoint, vocoder)

    acoustic, model = choose("acoustic"), None if vocoder == GRIFFIN_LIM else choose("vocoder")
    if acoustic and (model or vocoder == GRIFFIN_LIM):
        return Choice(acoustic, model, _describe(acoustic, model))
    if acoustic and not named and vocoder is None:
        return Choice(acoustic, None, f"{_describe(acoustic, None)}, as {TRAINED}/ has no vocoder model")
    own = None if named else _embedded_choice(vocoder)
    if own is None:
        raise _missing("vocoder" if acoustic or (not named and _embedded_choice(None)) else "acoustic", vocoder)
    alone = acoustic or model
    unused = f"; not {alone.path}, which is alone in {TRAINED}/" if alone else ""
    return own._replace(description=own.description + unused)


def _embedded_choice(vocoder: str | None) -> Choice | None:
    """Return the embedded voice with a vocoder, by default the one in its config.json; None if a file is missing."""
    wanted = vocoder or default_vocoder(EMBEDDED, REGISTRY.values())
    acoustic = _find("acoustic", _embedded, None)
    model = None if wanted == GRIFFIN_LIM else _find("vocoder", _embedded, wanted)
    if acoustic is None or (model is None and wanted != GRIFFIN_LIM):
        return None
    return Choice(acoustic, model, f"the embedded one, {_describe(acoustic, model)}")


def _trained_checkpoint(spec: ModelSpec) -> Path | None:
    """Find a model's newest checkpoint in output/."""
    return find_last(TRAINED, spec.name)


def _embedded(spec: ModelSpec) -> Path | None:
    """Find a model's file in the embedded voice."""
    return find_checkpoint(EMBEDDED, spec)


def candidates(role: str, vocoder: str | None = None) -> list[ModelSpec]:
    """List the models of a role; `vocoder`, a model's flag, chooses between several."""
    specs = [spec for spec in REGISTRY.values() if spec.role == role]
    return [spec for spec in specs if spec.flag == vocoder] or specs


def _find(role: str, find: Find, vocoder: str | None) -> Checkpoint | None:
    """Return the first checkpoint of a role that `find` finds."""
    pairs = ((spec, find(spec)) for spec in candidates(role, vocoder))
    return next((Checkpoint(spec, path) for spec, path in pairs if path), None)


def _describe(acoustic: Checkpoint, vocoder: Checkpoint | None) -> str:
    """Name the files, relative to the current folder if they are inside it."""
    files = " and ".join(display_path(checkpoint.path) for checkpoint in (acoustic, vocoder) if checkpoint)
    return files if vocoder else f"{files} through {GRIFFIN_LIM}"


def _missing(role: str, vocoder: str | None) -> DataError:
    """Build the error that names a role's missing checkpoint and the ways to get one."""
    specs = candidates(role, vocoder)
    names = " or ".join(f"{TRAINED}/checkpoint_{spec.name}_last.pt" for spec in specs)
    flags = " or ".join(f"--{spec.flag} CHECKPOINT" for spec in specs)
    instead = f", or speak without one: --vocoder {GRIFFIN_LIM}" if role == "vocoder" else ""
    embedded = "speaks where no checkpoint is named" if _embedded_choice(None) else "is not here"
    return DataError(
        f"no {role} model: there is no {names}; name one with {flags}, train one with "
        f"`bash scripts/quickstart.sh` (minutes) or `{specs[0].train_command}`{instead}; "
        f"the embedded voice, {EMBEDDED.name}/, {embedded}"
    )


def _as_checkpoint(role: str, source: str | PathLike[str] | Checkpoint, config: SynthesisConfig) -> Checkpoint:
    if isinstance(source, Checkpoint):
        return source
    return Checkpoint(recognise(Path(source), candidates(role, config.vocoder)), Path(source))


def load(checkpoint: Checkpoint, config: SynthesisConfig, device: torch.device) -> LoadedModel:
    """Load a model as its checkpoint's stored config describes it, along with the data options of its training.

    Raises UsageError for options that contradict the stored settings, or unknown ones, and DataError for a file that cannot be
    read or does not contain this model.
    """
    spec, path = checkpoint
    contents = load_checkpoint(path)
    data, options, stored = data_of(contents), _options(config), contents.get("config", {})
    check_data_options(spec, data, stored, path)
    own = {"denoising_strength": EMBEDDED_DENOISING_STRENGTH} if path.resolve().parent == EMBEDDED else {}
    requested = spec.config_from_options(config.options)
    requested_data = {name: config.options[name] for name in data if name in config.options}
    clashes = contradictions(requested, stored, spec.free_at_inference) + contradictions(requested_data, data)
    if clashes:
        raise UsageError(f"{path}: {'; '.join(clashes)}: leave these flags out, the checkpoint stores its settings")
    free = {name: value for name, value in requested.items() if name in spec.free_at_inference}
    with precision.separate_rng(device, 0):  # building a model draws weights
        if free:
            with torch.device("meta"):
                spec.build(**free)  # so that an error in these values is blamed on the flags, not on the file
        # the oldest files have no config
        settings = free if "config" in contents else spec.config_from_options(options | data)
        model = restore_model(spec, contents, path, settings).to(device).eval()
        loaded = LoadedModel(spec, model, options | own | data, path, spec.assumed(data, config_of(model)))
        return stages.prepare_model(loaded, Request(config.half, config.int8), config.plain)


def _options(config: SynthesisConfig) -> dict[str, Any]:
    """Return the flags of audio and of the models, from the config or by default. Raises UsageError for unknown names."""
    defaults = default_options()
    if unknown := [name for name in config.options if name not in defaults]:
        raise UsageError(f"options: {', '.join(unknown)}: no such option, expected some of {', '.join(defaults)}")
    return defaults | dict(config.options)
