"""Audio settings of a folder of cached mels, in a JSON file beside them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common.audio.stft import AudioConfig
from common.errors import DataError
from common.files import atomic_write, parse_json

SETTINGS = "audio_settings.json"
NO_EFFECT = {"max_wav_value"}  # on a mel


def settings_of(config: AudioConfig) -> dict[str, Any]:
    """Return the settings that affect a mel."""
    return {name: value for name, value in asdict(config).items() if name not in NO_EFFECT}


def write_settings(folder: Path, config: AudioConfig) -> None:
    """Label a folder of mels, before the first of them is written, so that no mel is ever without its settings."""
    try:
        with atomic_write(folder / SETTINGS) as file:
            file.write(f"{json.dumps(settings_of(config), indent=1)}\n".encode())
    except OSError as error:
        raise DataError(f"{folder / SETTINGS}: cannot be written ({error.strerror})") from error


def is_labelled(folder: Path) -> bool:
    """Return True if a folder has the settings of its mels; folders of the published recipe have none."""
    return (folder / SETTINGS).exists()


def check_settings(folders: Iterable[Path], config: AudioConfig) -> None:
    """Raise DataError where the mels of a labelled folder have other settings than these."""
    problems = []
    for folder in sorted(folder for folder in set(folders) if is_labelled(folder)):
        wanted, found = settings_of(config), _read(folder / SETTINGS)
        differing = [
            f"{name} {found.get(name)}, now {value}" for name, value in wanted.items() if found.get(name) != value
        ]
        if differing:
            problems.append(f"{folder}: its mels were made with other audio settings: {'; '.join(differing)}")
    if problems:
        advice = "set the flags as they were, or delete the folder and prepare its mels again"
        raise DataError("\n".join(problems) + f"\n{advice}")


def _read(path: Path) -> dict[str, Any]:
    try:
        settings = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); delete its folder and prepare mels again") from None
    if not isinstance(settings, dict):
        raise DataError(f"{path}: holds a {type(settings).__name__}, expected audio settings by name")
    return settings
