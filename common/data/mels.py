"""Clips as training takes them: length limits, checked before it starts, and cached log-mels, one .pt tensor per clip.

Mels are written once by this module's command and read by training:

    python -m common.data.mels --audio-filelist filelists/clock_audio_text_train_filelist.txt \\
        --mel-filelist filelists/clock_mel_text_train_filelist.txt --dataset-path ./
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import glob
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common.arguments import positive
from common.audio.audio_processing import count_samples, load_audio
from common.audio.stft import SILENCE, AudioConfig, TacotronSTFT
from common.checkpoint.tensors import DamagedFileError, load_tensors, save_tensors
from common.data.filelist import BadRows, Utterance, check_files, read_filelist
from common.errors import DataError, UsageError, changes, exit_on_user_error, join_problems
from common.files import atomic_write, is_current, read_object, remove_leftovers, write_text, writing
from common.options import by_flag, from_options, option, parse_options, section
from common.progress import counted
from common.spec import ModelSpec, Options

# M mels, T frames

MEL_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SAME_MEL = 0.05  # nats: two implementations of one transform differ by less on average, two settings by more
LOOKED_AT = 8  # mels of a list
# Natural log-mels of speech in [-1, 1] stay within these limits, and somewhere come below QUIETEST: log10's floor is -5.
LOWEST, HIGHEST, QUIETEST = -16.0, 6.0, -5.05
FASTEST = 27  # symbols a second of all clips together: fast speech has 25, usual speech of twice the hop 30
SETTINGS = "audio_settings.json"  # in a folder of mels: the audio settings they were made with
SMALL_MEL = 2**14  # bytes; smaller files are read, since little of them is the mel itself
NO_EFFECT = {"max_wav_value"}  # on a mel
SOUND = (b"RIFF", b"fLaC", b"OggS")  # first bytes of sound files


@dataclass(frozen=True, kw_only=True)
class MelOptions:
    """Options of the command."""

    audio_filelist: list[Path] = option(None, "filelists with rows audio|text", "--wav-files", nargs="+", required=True)
    mel_filelist: list[Path] = option(
        None, "filelists with rows mel|text, in the same order", "--mel-files", nargs="+", required=True
    )
    dataset_path: Path = option(Path("./"), "folder that the rows' paths are relative to", "-d")
    num_workers: int = option(os.cpu_count() or 1, "number of processes (default: one per core)", type=positive)
    audio: AudioConfig = section(AudioConfig, "audio")

    def __post_init__(self) -> None:
        if len(self.audio_filelist) != len(self.mel_filelist):
            raise UsageError("--mel-filelist: as many lists as --audio-filelist are expected")


def load_mel(path: Path, n_mel_channels: int) -> Tensor:
    """Read a cached log-mel (M, T), float32. Raises DataError if the file is missing, damaged, or of another shape."""
    try:
        mel = load_tensors(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such mel; `bash scripts/prepare_mels.sh` makes them") from None
    except DamagedFileError as error:
        _refuse_recording(path)
        raise DataError(f"{path}: {error}; delete it and prepare mels again") from None
    except Exception as error:  # torch.load raises whatever the damage leads to
        _refuse_recording(path)
        raise DataError(
            f"{path}: not a mel, or damaged ({type(error).__name__}); delete it and prepare mels again"
        ) from None
    if not isinstance(mel, Tensor) or mel.dim() != 2 or mel.shape[0] != n_mel_channels or mel.shape[1] == 0:
        found = tuple(mel.shape) if isinstance(mel, Tensor) else type(mel).__name__
        raise DataError(f"{path}: {found}, expected a mel of shape ({n_mel_channels}, frames)")
    if mel.dtype not in MEL_DTYPES:
        raise DataError(
            f"{path}: values of {str(mel.dtype).removeprefix('torch.')}, expected float32; prepare mels again"
        )
    if not torch.isfinite(mel).all():
        raise DataError(f"{path}: values that are NaN or infinite; delete it and prepare mels again")
    return mel.float()


def _refuse_recording(path: Path) -> None:
    """Raise DataError for a file that begins as sound files do."""
    with path.open("rb") as file:
        start = file.read(4)
    if start in SOUND or path.suffix.lower() in (".wav", ".flac", ".ogg", ".mp3"):
        raise DataError(
            f"{path}: a recording, expected a mel: --load-mel-from-disk reads filelists of mels; leave it out for recordings"
        )


def save_mel(path: Path, mel: Tensor) -> None:
    """Write a log-mel (M, T), whole or not at all."""
    with writing(path), atomic_write(path) as file:
        save_tensors(mel.float().cpu().contiguous(), file)


def mel_path_of(audio_path: Path) -> Path:
    """Return the path of a clip's mel: LJSpeech-1.1/wavs/ID.wav -> LJSpeech-1.1/mels/ID.pt."""
    return audio_path.parent.parent / "mels" / f"{audio_path.stem}.pt"


def settings_of(config: AudioConfig) -> dict[str, Any]:
    """Return the audio settings that affect mels."""
    return {name: value for name, value in asdict(config).items() if name not in NO_EFFECT}


def write_settings(folder: Path, config: AudioConfig) -> None:
    """Label a folder of mels with their settings. Call it before the first mel is written, so that none is ever unlabelled."""
    with writing(folder / SETTINGS):
        write_text(folder / SETTINGS, f"{json.dumps(settings_of(config), indent=1)}\n")


def is_labelled(folder: Path) -> bool:
    """Return True if a folder records the settings of its mels; folders made by the published recipe do not."""
    return (folder / SETTINGS).exists()


def check_settings(folders: Iterable[Path], config: AudioConfig) -> None:
    """Raise DataError if the mels of a labelled folder have settings other than these."""
    problems = []
    for folder in sorted(folder for folder in set(folders) if is_labelled(folder)):
        wanted, found = settings_of(config), _read_settings(folder / SETTINGS)
        if differing := changes(by_flag(found), by_flag(wanted)):
            problems.append(f"{folder}: its mels were made with other audio settings: {'; '.join(differing)}")
    if problems:
        advice = "set the flags as they were, or delete the folder and prepare its mels again"
        raise DataError("\n".join(problems) + f"\n{advice}")


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); delete its folder and prepare mels again") from None


def audio_seconds(path: Path, audio: AudioConfig, shortest: int, samples: int | None = None) -> float:
    """Return the seconds of a sound file. Raises DataError for a file that training cannot use.

    Args:
        path: the file.
        audio: the settings it must have.
        shortest: the smallest allowed number of samples.
        samples: their number, where it is known; otherwise the file's header states it.
    """
    if path.suffix == ".pt":
        raise DataError(f"{path}: a stored mel, expected a recording")
    if samples is None:
        samples = count_samples(path, audio.sampling_rate)
    if samples < shortest:
        raise DataError(
            f"{path}: {samples} samples, expected at least {shortest}: drop the clip or lengthen it with silence"
        )
    return samples / audio.sampling_rate


def mel_seconds(path: Path, audio: AudioConfig) -> float:
    """Return the seconds of a stored mel; for a large file, the most its size allows. Raises what load_mel raises."""
    size = path.stat().st_size
    frames = load_mel(path, audio.n_mel_channels).shape[1] if size < SMALL_MEL else size / (4 * audio.n_mel_channels)
    return frames * audio.hop_length / audio.sampling_rate


def unusable_rows(
    spec: ModelSpec, options: Options, utterances: Sequence[Utterance], samples: Sequence[int | None] | None = None
) -> dict[int, str]:
    """Return the problems of the rows that training refuses, by index: of their text, otherwise of the clip's length.

    Args:
        spec: the model to train.
        options: its flags of training by name; others have their defaults.
        utterances: the rows.
        samples: of each clip, None for one whose length does not matter; by default those that the files' headers state.
    """
    problems: dict[int, str] = {}
    for check in ("texts", "lengths"):
        good = [index for index in range(len(utterances)) if index not in problems]
        try:
            dataset = spec.make_dataset(options, [utterances[index] for index in good])
            if check == "lengths":
                dataset.check_clips(None if samples is None else [samples[index] for index in good])
        except BadRows as error:
            problems |= {good[index]: problem for index, problem in error.problems.items()}
    return problems


class ClipDataset:
    """The clips of a filelist: what the models' datasets share. Each says which clips it refuses, and makes items of the others."""

    symbols = 0  # of all texts, where a dataset reads them

    def __init__(self, options: Options, utterances: Sequence[Utterance]) -> None:
        self.folder, self.utterances = Path(options.get("dataset_path", "./")), utterances
        self.audio = from_options(AudioConfig, options)
        self.stft = TacotronSTFT.from_config(self.audio)

    def __len__(self) -> int:
        return len(self.utterances)

    def path(self, item: int) -> Path:
        """Return the file of a row."""
        return self.folder / self.utterances[item].path

    def problem_of(self, item: int, samples: int | None) -> str | None:
        """Return why training refuses a clip, or None; `samples` as in audio_seconds. May raise DataError instead."""
        return None

    def check_clips(self, samples: Sequence[int | None] | None = None) -> None:
        """Raise BadRows, which lists all clips that training refuses.

        `samples` are those of each clip, with None for one that is passed over; by default the files' headers state them.
        """
        problems: dict[int, str] = {}
        for item in range(len(self)):
            known = samples[item] if samples is not None else None
            if samples is not None and known is None:
                continue
            try:
                problem = self.problem_of(item, known)
            except DataError as error:
                problem = str(error)
            if problem:
                problems[item] = problem
        if problems:
            raise BadRows(problems)
        check_values(self.mel_paths(), self.audio)
        check_pace(self.mel_paths(), self.symbols, self.audio)

    def mel_paths(self) -> list[Path]:
        """List the stored mels that training reads; none where it computes them."""
        return []


def check_values(mels: Sequence[Path], config: AudioConfig) -> None:
    """Raise DataError for stored mels that are no natural log-mels of these settings; a few of them are looked at.

    Where the recording of one is at hand, FOLDER/wavs/ID beside FOLDER/mels/ID.pt, its mel is computed anew. A folder with a label
    says its settings, and may have mels that a model has predicted: only their lengths are compared.
    """
    some = [mels[number * len(mels) // LOOKED_AT] for number in range(LOOKED_AT)] if mels else []
    tensors = {path: load_mel(path, config.n_mel_channels) for path in dict.fromkeys(some)}
    unlabelled = [mel for path, mel in tensors.items() if not is_labelled(path.parent)]
    advice = "prepare mels again with these settings, or give the flags of the settings that they have"
    if unlabelled:
        low, high = min(float(mel.min()) for mel in unlabelled), max(float(mel.max()) for mel in unlabelled)
        if not LOWEST <= low <= QUIETEST or high > HIGHEST:
            raise DataError(
                f"{some[0].parent}: mels with values from {low:.3g} to {high:.3g}, expected natural logarithms of amplitudes, from "
                f"about {SILENCE:.1f} to 2; those in dB, of log10, linear or normalised make another model: {advice}"
            )
    for path, mel in tensors.items():
        for recording in sorted((path.parent.parent / "wavs").glob(f"{glob.escape(path.stem)}.*")):
            wanted, is_known = _compute(recording, config), is_labelled(path.parent)
            if mel.shape != wanted.shape:
                difference = f"{mel.shape[1]} frames, expected {wanted.shape[1]}"
            elif is_known or (mel - wanted).abs().mean() <= SAME_MEL:
                return
            else:
                difference = f"{(mel - wanted).abs().mean():.2g} apart on average"
            raise DataError(f"{path}: not the mel of {recording} with these settings: {difference}; {advice}")


def check_pace(mels: Sequence[Path], symbols: int, config: AudioConfig) -> None:
    """Raise DataError for stored mels without a label that are far too short for their texts, as those of twice the hop are."""
    pace = symbols / max(sum(mel_seconds(mel, config) for mel in mels), 1e-9)
    if mels and pace > FASTEST and not any(is_labelled(mel.parent) for mel in mels):
        raise DataError(
            f"{mels[0].parent}: mels of {pace:.0f} symbols a second, expected at most {FASTEST} in a whole list: their hop is "
            f"longer than --hop-length {config.hop_length}, or the texts are of other clips"
        )


def length_problem(path: Path, seconds: float, longest: float) -> str | None:
    """Return the problem of a clip longer than `longest` seconds, otherwise None."""
    if seconds <= longest:
        return None
    return f"{path}: {seconds:.1f} s, expected at most {longest:g} s (--longest-clip): cut it, or raise the limit"


@cache
def _transform(config: AudioConfig) -> TacotronSTFT:
    return TacotronSTFT.from_config(config)


def prepare_mel(paths: tuple[Path, Path], config: AudioConfig) -> str | None:
    """Compute the mel of one audio file. Returns the problem with the audio, or None."""
    audio_path, mel_path = paths
    try:
        save_mel(mel_path, _compute(audio_path, config))
    except DataError as error:
        return str(error) if str(audio_path) in str(error) else f"{audio_path}: {error}"
    return None


def _compute(audio_path: Path, config: AudioConfig) -> Tensor:
    return _transform(config).mel_spectrogram(load_audio(audio_path, config.sampling_rate)[None])[0]


def _label(pairs: list[tuple[Path, Path]], config: AudioConfig) -> None:
    """Check the settings of existing mels against these, and write the settings into each folder.

    In a folder without settings, as the published recipe makes them, one mel is computed again and compared.
    """
    first_there = {mel.parent: (audio, mel) for audio, mel in reversed(pairs) if is_current(mel, audio)}
    folders = {mel.parent for _, mel in pairs}
    check_settings(folders, config)
    for folder in sorted(folder for folder in folders if not is_labelled(folder)):
        if folder in first_there:
            audio, mel = first_there[folder]
            found, wanted = load_mel(mel, config.n_mel_channels), _compute(audio, config)
            if found.shape != wanted.shape or (found - wanted).abs().mean() > SAME_MEL:
                raise DataError(f"{mel}: made with other audio settings; delete {folder} and prepare its mels again")
        write_settings(folder, config)


def prepare_mels(pairs: list[tuple[Path, Path]], config: AudioConfig, workers: int) -> list[str]:
    """Make the mels that are missing or older than their audio, in parallel. Returns all problems.

    Raises:
        DataError: existing mels made with other audio settings; recordings that would share a mel.
    """
    from common.data.parallel import run_parallel  # imported here because reading mels needs no processes

    check_distinct(pairs)
    for folder in {mel.parent for _, mel in pairs}:
        remove_leftovers(folder)
    _label(pairs, config)
    todo = [(audio, mel) for audio, mel in pairs if not is_current(mel, audio)]
    print(f"mels: {len(pairs) - len(todo)} of {len(pairs)} are there, making {len(todo)}", flush=True)
    make = partial(prepare_mel, config=config)
    return [problem for problem in run_parallel(make, todo, workers, "mels") if problem]


def read_pairs(audio_filelist: Path, mel_filelist: Path, dataset_path: Path) -> list[tuple[Path, Path]]:
    """Return the audio and mel paths of two filelists. Raises DataError if their rows do not correspond."""
    audio, mels = read_filelist(audio_filelist), read_filelist(mel_filelist)
    check_files(audio, audio_filelist, dataset_path)
    if [row.text for row in audio] != [row.text for row in mels]:
        raise DataError(f"{mel_filelist}: its texts are not those of {audio_filelist}, row by row")
    return [(dataset_path / a.path, dataset_path / m.path) for a, m in zip(audio, mels, strict=True)]


def check_distinct(pairs: Sequence[tuple[Path, Path]]) -> None:
    """Raise DataError for recordings that would share a mel, such as A.wav and A.flac."""
    first: dict[Path, Path] = {}
    problems = [
        f"{audio}: its mel {mel} is that of {earlier}, too; rename one of the two recordings"
        for audio, mel in dict.fromkeys(pairs)
        if (earlier := first.setdefault(mel, audio)) != audio
    ]
    if problems:
        raise DataError(join_problems(problems))


def parse_args(argv: list[str] | None = None) -> MelOptions:
    return parse_options(MelOptions, "python -m common.data.mels", __doc__, argv)


def main(argv: list[str] | None = None) -> None:
    """Make every mel of the filelists that is missing or older than its audio."""
    options = parse_args(argv)
    lists = zip(options.audio_filelist, options.mel_filelist, strict=True)
    pairs = [pair for audio, mels in lists for pair in read_pairs(audio, mels, options.dataset_path)]
    problems = prepare_mels(pairs, options.audio, options.num_workers)
    if problems:
        raise DataError(
            "\n".join(problems) + f"\nno mel of {counted(len(problems), 'clip')}; mend or drop them and run again"
        )


if __name__ == "__main__":
    with exit_on_user_error():
        main()
