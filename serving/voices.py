"""The voices of a server: the embedded ones, and the subfolders of a folder, each with the checkpoints of its models."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from common.errors import DataError
from common.inference.config import GRIFFIN_LIM
from common.inference.stages import acoustic_stages
from common.inference.voice_folder import (
    CONFIG,
    About,
    about_voice,
    default_vocoder,
    find_checkpoint,
    read_voice_folder,
    voice_name,
)
from common.spec import VocoderInference
from models import REGISTRY
from serving.config import ServingConfig
from serving.errors import RequestError, quote_value
from serving.stream import SpeechRequest
from synthesizer import EMBEDDED, Checkpoint, SynthesisConfig, Synthesizer, load

EMBEDDED_NAME = "embedded"
# Voices of OpenAI's API, which stand for the default voice, so that clients written for that API work unchanged.
OPENAI_VOICES = frozenset(
    {"alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse"}
)


class VoiceFiles(NamedTuple):
    """A voice before it is loaded: its acoustic model, its vocoders by flag, the default one's flag, what its folder says."""

    acoustic: Checkpoint
    vocoders: dict[str, Checkpoint]
    default_vocoder: str
    about: About = About()


class Voices:
    """All voices of a server. The constructor finds their files, `load` reads them. One thread at a time may run the models.

    Raises DataError for a folder without voices and for an incomplete voice.
    """

    def __init__(self, config: ServingConfig) -> None:
        self._files = find_voices(config)
        if config.default_voice is not None and config.default_voice not in self._files:
            raise DataError(f"--default-voice {config.default_voice}: no such voice, expected {self._listing()}")
        self._default_voice, self._default_vocoder = config.default_voice, config.vocoder
        self._loaded: dict[tuple[str, str], Synthesizer] = {}
        self._settings = SynthesisConfig(half=config.fp16, int8=config.int8, plain=config.plain, lexicon=config.lexicon)

    def load(self, device: torch.device | str | None = None) -> None:
        """Load the models of all voices. Raises DataError for a checkpoint that cannot be read or does not fit the others."""
        settings = self._settings
        for name, files in self._files.items():
            base = Synthesizer.from_checkpoints(files.acoustic, config=settings, device=device, description=name)
            self._loaded[name, GRIFFIN_LIM] = base
            for flag, checkpoint in files.vocoders.items():
                own = base.acoustic, load(checkpoint, settings, base.device), settings, base.device
                self._loaded[name, flag] = Synthesizer(*own, f"{name} through {flag}")

    def all_loaded(self) -> list[Synthesizer]:
        """Return a Synthesizer for each voice and vocoder."""
        return list(self._loaded.values())

    @property
    def names(self) -> list[str]:
        """The names of all voices, starting with the default."""
        return sorted(self._files, key=lambda name: (name != self.default, name != EMBEDDED_NAME, name))

    @property
    def default(self) -> str:
        """The voice of requests that name none."""
        embedded = EMBEDDED_NAME if EMBEDDED_NAME in self._files else min(self._files)
        return self._default_voice or embedded

    def vocoders(self, name: str) -> list[str]:
        """Return the vocoders of a voice, starting with its default. Raises RequestError for an unknown voice."""
        files = self._files[self.resolve(name)]
        own = [*files.vocoders, GRIFFIN_LIM]
        first = self._default_vocoder if self._default_vocoder in own else files.default_vocoder
        return sorted(own, key=lambda vocoder: vocoder != first)

    def has_noise(self, name: str, vocoder: str | None) -> bool:
        """True if a voice's vocoder has noise and hum of its own, so that sigma and the denoiser have an effect."""
        checkpoint = self._files[self.resolve(name)].vocoders.get(vocoder or "")
        stages = checkpoint.spec.inference if checkpoint else None
        return isinstance(stages, VocoderInference) and stages.has_noise

    def sampling_rate(self, name: str) -> int:
        """Return the rate of a loaded voice in Hz. Raises RequestError for an unknown voice."""
        name = self.resolve(name)
        return self._loaded[name, self.vocoders(name)[0]].audio.sampling_rate

    def sentence_ends(self, name: str, text: str, column: int, is_whole: bool) -> list[int]:
        """Return the ends of the sentences in what has arrived of a text, as a loaded voice reads it."""
        return acoustic_stages(self._loaded[name, GRIFFIN_LIM].acoustic).sentence_ends(text, column, is_whole)

    def notes(self, name: str, text: str) -> list[str]:
        """List what a loaded voice reads in vain. Takes a second for a long text, so threads call it."""
        return self._loaded[name, GRIFFIN_LIM].notes(text, self.about(name).language)

    def about(self, name: str) -> About:
        """Return what the folder of a voice says of it. Raises RequestError for an unknown voice."""
        return self._files[self.resolve(name)].about

    def resolve(self, name: str | None) -> str:
        """Return the name of a voice, found in any case: the default for None, "" and OpenAI's voices.

        Raises RequestError 400 for unknown names, as OpenAI does; after a 404, routers of models drop the whole server for a time.
        """
        if not name or name in self._files:
            return name or self.default
        found = [own for own in self.names if own.casefold() == name.casefold()]
        if not found and name.lower() not in OPENAI_VOICES:
            message = f"voice: {quote_value(name)} is not one of {self._listing()}"
            raise RequestError(400, message, param="voice", code="voice_not_found")
        return found[0] if found else self.default

    def get(self, request: SpeechRequest, seed: int = 0) -> Synthesizer:
        """Return the voice of a request, with its settings; voices with the same name and vocoder share their models.

        Raises RequestError for an unknown voice or a vocoder that it lacks.
        """
        name = self.resolve(request.voice)
        vocoder = self.vocoder_of(name, request.vocoder)
        return self._loaded[name, vocoder].with_settings(seed, request.sigma, request.denoising_strength)

    def vocoder_of(self, name: str, vocoder: str | None) -> str:
        """Return the vocoder for a request. Raises RequestError 400 if the voice lacks it."""
        own = self.vocoders(name)
        if vocoder and vocoder not in own:
            message = f"vocoder: {quote_value(vocoder)} is not one of this voice's, {', '.join(own)}"
            raise RequestError(400, message, param="vocoder", code="vocoder_not_found")
        return vocoder or own[0]

    def _listing(self) -> str:
        return ", ".join(sorted(self._files))


def find_voices(config: ServingConfig) -> dict[str, VoiceFiles]:
    """Find the files of the voices in the settings, by name. Raises DataError for folders without voices and incomplete voices."""
    folders = find_folders(config.voices) if config.voices else {}
    if config.embedded and (taken := folders.get(EMBEDDED_NAME)):
        name = f"its name, {EMBEDDED_NAME}, belongs to the embedded voice"
        raise DataError(f"{taken}: {name}; rename the folder, or change `name` in its {CONFIG}")
    if config.embedded:
        others = (path for path in EMBEDDED.iterdir() if _has_checkpoint(path))
        folders = {EMBEDDED_NAME: EMBEDDED, **{path.name: path for path in others}, **folders}
    return {name: read_folder(folder) for name, folder in folders.items()}


def _has_checkpoint(folder: Path) -> bool:
    return any(find_checkpoint(folder, spec) for spec in REGISTRY.values())


def find_folders(place: Path) -> dict[str, Path]:
    """Return the folder of each voice of --voices, by name: its subfolders, or itself. Raises DataError if there is none."""
    if not place.is_dir():
        raise DataError(f"--voices {place}: no such folder, expected one with a subfolder for each voice")
    if _has_checkpoint(place):  # a voice itself
        return {voice_name(place): place}
    folders = sorted(path for path in place.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not folders:
        raise DataError(f"--voices {place}: no subfolder, expected one for each voice")
    return {folder.name: folder for folder in folders}


def read_folder(folder: Path) -> VoiceFiles:
    """Find the checkpoints of a voice in its folder. Raises DataError if there is no acoustic model."""
    specs = REGISTRY.values()
    paths = read_voice_folder(folder, specs)
    found = [Checkpoint(spec, paths[spec.flag]) for spec in specs if spec.flag in paths]
    (acoustic, *_), vocoders = ([one for one in found if one.spec.role == role] for role in ("acoustic", "vocoder"))
    return VoiceFiles(
        acoustic, {one.spec.flag: one for one in vocoders}, default_vocoder(folder, specs), about_voice(folder)
    )
