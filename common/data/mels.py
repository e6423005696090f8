"""Cached log-mels: one .pt tensor a clip, written once by this module's command and read by training.

    python -m common.data.mels --audio-filelist filelists/clock_audio_text_train_filelist.txt \
        --mel-filelist filelists/clock_mel_text_train_filelist.txt --dataset-path ./
"""

from __future__ import annotations

import argparse
import os
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor

from common.arguments import HelpFormatter, add_audio_arguments, positive
from common.audio.audio_processing import load_audio
from common.audio.stft import AudioConfig, TacotronSTFT
from common.checkpoint.tensors import DamagedFileError, load_tensors, save_tensors
from common.data.filelist import check_files, read_filelist
from common.data.mel_settings import check_settings, is_labelled, write_settings
from common.data.parallel import run_parallel
from common.errors import DataError, UsageError, exit_on_user_error
from common.files import atomic_write
from common.options import from_options
from common.parser import Parser

# M mels, T frames

MEL_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SAME_MEL = 0.05  # nats: two implementations of one transform differ by less in the mean, two settings by more


def load_mel(path: Path, n_mel_channels: int) -> Tensor:
    """Read a cached log-mel (M, T), float32. Raises DataError if the file is missing, damaged, or of another shape."""
    try:
        mel = load_tensors(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such mel; `bash scripts/prepare_mels.sh` makes them") from None
    except DamagedFileError as error:
        raise DataError(f"{path}: {error}; delete it and prepare mels again") from None
    except Exception as error:  # torch.load raises whatever the damage leads to
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


def save_mel(path: Path, mel: Tensor) -> None:
    """Write a log-mel (M, T), whole or not at all."""
    try:
        with atomic_write(path) as file:
            save_tensors(mel.float().cpu().contiguous(), file)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror})") from error


def mel_path_of(audio_path: Path) -> Path:
    """Return the path of a clip's mel: LJSpeech-1.1/wavs/ID.wav -> LJSpeech-1.1/mels/ID.pt."""
    return audio_path.parent.parent / "mels" / f"{audio_path.stem}.pt"


@cache
def _transform(config: AudioConfig) -> TacotronSTFT:
    return TacotronSTFT.from_config(config)


def prepare_mel(paths: tuple[Path, Path], config: AudioConfig) -> str | None:
    """Make one mel from one audio file. Returns the problem with the audio, or None."""
    audio_path, mel_path = paths
    try:
        save_mel(mel_path, _compute(audio_path, config))
    except DataError as error:
        return str(error) if str(audio_path) in str(error) else f"{audio_path}: {error}"
    return None


def _compute(audio_path: Path, config: AudioConfig) -> Tensor:
    return _transform(config).mel_spectrogram(load_audio(audio_path, config.sampling_rate)[None])[0]


def _is_current(audio: Path, mel: Path) -> bool:
    return mel.exists() and mel.stat().st_mtime_ns >= audio.stat().st_mtime_ns


def _label(pairs: list[tuple[Path, Path]], config: AudioConfig) -> None:
    """Compare the settings of the mels that are there with these, and write the settings into each folder.

    In a folder without settings, as the published recipe makes it, one mel is computed again and compared.
    """
    first_there = {mel.parent: (audio, mel) for audio, mel in reversed(pairs) if _is_current(audio, mel)}
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
    """Make the mels that are not there or older than their audio, in parallel. Returns every problem.

    Raises:
        DataError: mels that are there were made with other audio settings.
    """
    _label(pairs, config)
    todo = [(audio, mel) for audio, mel in pairs if not _is_current(audio, mel)]
    print(f"mels: {len(pairs) - len(todo)} of {len(pairs)} are there, making {len(todo)}", flush=True)
    make = partial(prepare_mel, config=config)
    return [problem for problem in run_parallel(make, todo, workers, "mels") if problem]


def read_pairs(audio_filelist: Path, mel_filelist: Path, dataset_path: Path) -> list[tuple[Path, Path]]:
    """Return the audio and mel paths of two filelists whose rows correspond. Raises DataError where they do not."""
    audio, mels = read_filelist(audio_filelist), read_filelist(mel_filelist)
    check_files(audio, audio_filelist, dataset_path)
    if [row.text for row in audio] != [row.text for row in mels]:
        raise DataError(f"{mel_filelist}: its texts are not those of {audio_filelist}, row by row")
    return [(dataset_path / a.path, dataset_path / m.path) for a, m in zip(audio, mels, strict=True)]


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command's flags."""
    parser = Parser(
        prog="python -m common.data.mels", description=__doc__, allow_abbrev=False, formatter_class=HelpFormatter
    )
    parser.add_argument("--audio-filelist", type=Path, nargs="+", required=True, help="rows audio|text")
    parser.add_argument("--mel-filelist", type=Path, nargs="+", required=True, help="rows mel|text, in the same order")
    parser.add_argument(
        "-d", "--dataset-path", type=Path, default=Path("./"), help="the folder the rows' paths start at"
    )
    parser.add_argument("--num-workers", type=positive, default=os.cpu_count() or 1, help="processes")
    add_audio_arguments(parser)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Make every mel of the filelists that is not there yet, or older than its audio."""
    args = parse_args(argv)
    if len(args.audio_filelist) != len(args.mel_filelist):
        raise UsageError("--mel-filelist: as many lists as --audio-filelist are expected")
    config = from_options(AudioConfig, vars(args))
    pairs = []
    for audio, mels in zip(args.audio_filelist, args.mel_filelist, strict=True):
        pairs += read_pairs(audio, mels, args.dataset_path)
    problems = prepare_mels(pairs, config, args.num_workers)
    if problems:
        raise DataError("\n".join(problems) + f"\n{len(problems)} clips have no mel; mend or drop them and run again")


if __name__ == "__main__":
    with exit_on_user_error():
        main()
