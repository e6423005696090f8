"""Write mels that Tacotron 2 predicts for recorded clips, aligned with their frames, to train a vocoder on.

Predicted mels are smoother than recorded ones. A vocoder fine-tuned on them sees the same kind of input in training and in use:

    python -m scripts.predict_mels output/checkpoint_Tacotron2_last.pt filelists/ljs_mel_text_{train,val}_filelist.txt
    python train.py -m WaveGlow -o output/tuned -d output/predicted --load-mel-from-disk \\
        --warm-start output/checkpoint_WaveGlow_last.pt -lr 1e-5

Each clip is teacher-forced (Shen et al. 2018, section 3.3). Reads filelists of mels, as scripts/prepare_mels.sh makes them.
For each DATASET_PATH/FOLDER/mels/ID.pt writes OUTPUT/FOLDER/mels/ID.pt; OUTPUT/FOLDER/wavs is a link to the recordings.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from common.arguments import positive
from common.audio.stft import AudioConfig
from common.checkpoint.files import load_checkpoint
from common.checkpoint.weights import restore_model
from common.data.filelist import check_files, lines_of, read_filelist
from common.data.mels import save_mel, write_settings
from common.errors import DataError, UsageError, exit_on_user_error
from common.files import remove_leftovers
from common.options import argument, from_options, option, parse_options
from common.precision import pick_device, separate_rng
from common.spec import Key, Options
from common.training.loop import to_device
from tacotron2.data_function import TextMelDataset
from tacotron2.spec import SPEC


def read_clips(filelists: Iterable[Path], options: Options) -> list[TextMelDataset]:
    """Read the clips of each filelist, mels or recordings. Raises DataError that names every unusable row."""
    datasets = []
    for filelist in filelists:
        utterances = read_filelist(filelist)
        are_mels = all(Path(row.path).suffix == ".pt" for row in utterances)
        check_files(utterances, filelist, options["dataset_path"])
        with lines_of(filelist):
            datasets.append(TextMelDataset({**options, "load_mel_from_disk": are_mels}, utterances))
    return datasets


def make_folders(datasets: Iterable[TextMelDataset], dataset_path: Path, output: Path, audio: AudioConfig) -> None:
    """Create a folder below output for every folder of mels, with its settings and a link to the recordings."""
    folders = sorted({Path(row.path).parent for dataset in datasets for row in dataset.utterances})
    if wrong := [str(folder) for folder in folders if folder.name != "mels"]:
        raise DataError(f"{', '.join(wrong)}: expected rows FOLDER/mels/ID.pt|text, with the recordings in FOLDER/wavs")
    recordings = {folder.parent / "wavs": dataset_path / folder.parent / "wavs" for folder in folders}
    if absent := [str(wavs) for wavs in recordings.values() if not wavs.is_dir()]:
        raise DataError(f"{', '.join(absent)}: no such folder, expected the recordings that the mels were made from")
    links = {output / name: wavs.resolve() for name, wavs in recordings.items()}
    if taken := [str(link) for link, wavs in links.items() if os.path.lexists(link) and link.resolve() != wavs]:
        raise DataError(
            f"{', '.join(taken)}: in the way of a link to the recordings; delete it, or name another --output"
        )
    for folder in folders:
        remove_leftovers(output / folder)
        write_settings(output / folder, audio)
    for link, wavs in links.items():
        if not link.exists():
            link.symlink_to(wavs, target_is_directory=True)


def teacher_forced(
    model: Any, dataset: TextMelDataset, items: Sequence[int], batch_size: int, device: torch.device
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield each of the items, and log-mels (M, T) of the recording's length: the decoder's, and the postnet's of them."""
    numbers = {str(dataset.path(item)): item for item in items}
    order = sorted(items, key=lambda item: dataset.lengths[item])  # sorted, which reduces padding
    for start in tqdm(range(0, len(order), batch_size), desc="predict mels", unit="batch", disable=None):
        batch = dataset.collate([dataset[Key(0, item)] for item in order[start : start + batch_size]])
        batch = to_device(batch, device)
        with torch.inference_mode(), separate_rng(device, start):  # the prenet's dropout is active
            outputs = model(*batch.inputs)
        both = outputs.mel_outputs.float().cpu(), outputs.mel_outputs_postnet.float().cpu()
        for name, decoded, refined, frames in zip(batch.names, *both, batch.mel_lengths.tolist(), strict=True):
            yield numbers[name], decoded[:, :frames], refined[:, :frames]


def read_model(checkpoint: dict[str, Any], path: Path, dataset_path: Path, device: torch.device) -> tuple[Any, Options]:
    """Return Tacotron 2 from a checkpoint, ready for teacher forcing, and the options of its data in dataset_path."""
    model: Any = restore_model(SPEC, checkpoint, path).to(device).eval()
    model.mask_padding = True  # padding has no effect on a clip, as in inference
    options = checkpoint.get("config", {}) | checkpoint.get("data", {})
    return model, options | {"dataset_path": str(dataset_path)}


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """The command's arguments and flags."""

    checkpoint: Path = argument("of Tacotron 2")
    filelists: list[Path] = argument("rows mel|text", nargs="+")
    output: Path = option(Path("output/predicted"), "the new dataset's folder", "-o")
    dataset_path: Path = option(Path("./"), "the folder the rows' paths start at", "-d")
    batch_size: int = option(16, "clips at once", "-bs", type=positive)
    cpu: bool = option(False, "use the CPU even if there is a GPU")


def parse_args(argv: list[str] | None = None) -> PredictOptions:
    return parse_options(PredictOptions, "python -m scripts.predict_mels", __doc__, argv)


def main(argv: list[str] | None = None) -> None:
    """Predict every mel of the filelists; existing ones are replaced, since they may come from another checkpoint."""
    args = parse_args(argv)
    if args.output.resolve() == args.dataset_path.resolve():
        raise UsageError(
            f"--output {args.output}: is the dataset's own folder, and its mels would be lost; choose another"
        )
    device = pick_device(cpu=args.cpu)
    model, options = read_model(load_checkpoint(args.checkpoint), args.checkpoint, args.dataset_path, device)
    datasets = read_clips(args.filelists, options)
    make_folders(datasets, args.dataset_path, args.output, from_options(AudioConfig, options))
    for dataset in datasets:
        for item, _, mel in teacher_forced(model, dataset, range(len(dataset)), args.batch_size, device):
            save_mel(args.output / dataset.utterances[item].path, mel)
    print(f"{sum(map(len, datasets))} mels; train.py -m WaveGlow reads them with -d {args.output} --load-mel-from-disk")


if __name__ == "__main__":
    with exit_on_user_error():
        main()
