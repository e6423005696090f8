"""The checkpoints of a voice: which to take, named ones, those of a training or the embedded voice; and their models."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from common import precision
from common.arguments import model_flags, model_options
from common.checkpoint.files import find_last, load_checkpoint
from common.checkpoint.weights import data_of, restore_model
from common.errors import DataError, UsageError
from common.fast import Request
from common.files import display_path
from common.inference.config import (
    EMBEDDED_DENOISING_STRENGTH,
    GRIFFIN_LIM,
    TRAINED,
    SynthesisConfig,
    check_data_options,
    contradictions,
)
from common.inference.stages import prepare_model
from common.inference.vocoders import LoadedModel
from common.inference.voice_folder import default_vocoder, find_checkpoint
from common.spec import ModelSpec, config_of

Found = Mapping[str, Path | None]  # checkpoints in some place, by the flags of their models


class Checkpoint(NamedTuple):
    """A checkpoint file and the spec of the model in it; its contents, where they told which model it is."""

    spec: ModelSpec
    path: Path
    contents: dict[str, Any] | None = None


class Choice(NamedTuple):
    """The checkpoints of a voice (no vocoder means Griffin-Lim), and a phrase that describes them."""

    acoustic: Checkpoint
    vocoder: Checkpoint | None
    description: str


class Checkpoints(NamedTuple):
    """Chooses and loads the checkpoints of some models; `embedded` is the folder of the embedded voice."""

    specs: Collection[ModelSpec]
    embedded: Path

    def choose(self, named: Mapping[str, Path], vocoder: str | None) -> Choice:
        """Choose the named checkpoints, otherwise those in output/, otherwise the embedded voice.

        - If only one role is named, the other one's checkpoint comes from output/.
        - output/ is enough if it has both roles, or an acoustic model alone, which then speaks through Griffin-Lim.
        - A vocoder alone is not enough, because it may not fit the mels of models from elsewhere.

        Raises DataError if there is none; the message names the missing file.
        """
        places = (named, {spec.flag: find_last(TRAINED, spec.name) for spec in self.specs})
        acoustic = self._find("acoustic", vocoder, *places)
        model = None if vocoder == GRIFFIN_LIM else self._find("vocoder", vocoder, *places)
        if acoustic and (model or vocoder == GRIFFIN_LIM):
            return Choice(acoustic, model, _describe(acoustic, model))
        if acoustic and not named and vocoder is None:
            return Choice(acoustic, None, f"{_describe(acoustic, None)}, as {TRAINED}/ has no vocoder model")
        own = None if named else self.choose_embedded(vocoder)
        if own is None:
            is_vocoder = acoustic or (not named and self.choose_embedded(None))
            raise self._missing("vocoder" if is_vocoder else "acoustic", vocoder)
        alone = acoustic or model
        unused = f"; not {alone.path}, which is alone in {TRAINED}/" if alone else ""
        return own._replace(description=own.description + unused)

    def choose_embedded(self, vocoder: str | None) -> Choice | None:
        """Return the embedded voice with a vocoder, by default the one in its config.json; None if a file is missing."""
        wanted = vocoder or default_vocoder(self.embedded, self.specs)
        files = {spec.flag: find_checkpoint(self.embedded, spec) for spec in self.specs}
        acoustic = self._find("acoustic", None, files)
        model = None if wanted == GRIFFIN_LIM else self._find("vocoder", wanted, files)
        if acoustic is None or (model is None and wanted != GRIFFIN_LIM):
            return None
        return Choice(acoustic, model, f"the embedded one, {_describe(acoustic, model)}")

    def candidates(self, role: str, vocoder: str | None = None) -> list[ModelSpec]:
        """List the models of a role; `vocoder`, a model's flag, chooses between several."""
        specs = [spec for spec in self.specs if spec.role == role]
        return [spec for spec in specs if spec.flag == vocoder] or specs

    def load(self, checkpoint: Checkpoint, config: SynthesisConfig, device: torch.device) -> LoadedModel:
        """Load a model as its checkpoint's stored config describes it, along with the data options of its training.

        Raises:
            UsageError: options that contradict the stored settings, or unknown ones.
            DataError: a file that cannot be read or does not contain this model.
        """
        spec, path = checkpoint.spec, checkpoint.path
        contents = checkpoint.contents or load_checkpoint(path)
        data, options, stored = data_of(contents), self._options(config), contents.get("config", {})
        check_data_options(spec, data, stored, path)
        own = {"denoising_strength": EMBEDDED_DENOISING_STRENGTH} if path.resolve().parent == self.embedded else {}
        requested = spec.config_from_options(config.options)
        # keys that a file leaves out are at their defaults
        complete = spec.config_from_options(model_options(self.specs)) | stored if stored else {}
        clashes, flags = [], model_flags(self.specs)
        for name, value in config.options.items():
            wanted = {name: value} if name in data else spec.config_from_options({name: value})
            differences = contradictions(wanted, complete | data, spec.free_at_inference)
            clashes += [f"{flags[name]} {difference.partition(' ')[2]}" for difference in differences]
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
            return prepare_model(loaded, Request(config.half, config.int8), config.plain)

    def _options(self, config: SynthesisConfig) -> dict[str, Any]:
        """Return the flags of audio and of the models, from the config or by default. Raises UsageError for unknown names."""
        defaults = model_options(self.specs)
        if unknown := [name for name in config.options if name not in defaults]:
            raise UsageError(f"options: {', '.join(unknown)}: no such option, expected some of {', '.join(defaults)}")
        return defaults | dict(config.options)

    def _find(self, role: str, vocoder: str | None, *places: Found) -> Checkpoint | None:
        """Return the first checkpoint of a role in the first place that has one."""
        pairs = ((spec, place.get(spec.flag)) for place in places for spec in self.candidates(role, vocoder))
        return next((Checkpoint(spec, path) for spec, path in pairs if path), None)

    def _missing(self, role: str, vocoder: str | None) -> DataError:
        """Build the error that names a role's missing checkpoint and the ways to get one."""
        specs = self.candidates(role, vocoder)
        names = " or ".join(f"{TRAINED}/checkpoint_{spec.name}_last.pt" for spec in specs)
        flags = " or ".join(f"--{spec.flag} CHECKPOINT" for spec in specs)
        instead = f", or speak without one: --vocoder {GRIFFIN_LIM}" if role == "vocoder" else ""
        embedded = "speaks where no checkpoint is named" if self.choose_embedded(None) else "is not here"
        return DataError(
            f"no {role} model: there is no {names}; name one with {flags}, train one with "
            f"`bash scripts/quickstart.sh` (minutes) or `{specs[0].train_command}`{instead}; "
            f"the embedded voice, {self.embedded.name}/, {embedded}"
        )


def _describe(acoustic: Checkpoint, vocoder: Checkpoint | None) -> str:
    """Name the files, relative to the current folder if they are inside it."""
    files = " and ".join(display_path(checkpoint.path) for checkpoint in (acoustic, vocoder) if checkpoint)
    return files if vocoder else f"{files} through {GRIFFIN_LIM}"
