"""Train a WaveGlow on through its inverse: on spectra, then against discriminators, until it speaks clearly.

    python -m scripts.sharpen_vocoder voice/waveglow.safetensors filelists/sentences_audio_text_train_filelist.txt \\
        -o output/sharp.pt --minutes 60
    python inference.py --waveglow output/sharp.pt --denoising-strength 0.03 -i phrases/phrase.txt

Likelihood, by which train.py trains WaveGlow, takes GPU-weeks. Its inverse, which makes audio from noise and mels, learns from
the difference of spectra in minutes on a CPU, also from the checkpoint of another speaker. The tensors and their names stay those
of an ordinary WaveGlow; only the likelihood is spent, and train.py refuses to continue it. A third of the time, 2,000 steps at
most, is spectra alone. Speech of half an hour is enough to begin with. Safe to stop: the same command goes on.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import argparse
from pathlib import Path
from typing import Any, cast

from common.checkpoint.fields import SHARPENED
from common.checkpoint.files import load_checkpoint
from common.checkpoint.weights import data_of, restore_model
from common.data.filelist import check_files, lines_of, read_filelist
from common.errors import exit_on_user_error
from common.fast import Request, accelerate
from common.parser import Parser
from common.precision import half_dtype, has_fast_half, pick_device
from common.run.interrupt import StopRequest
from common.spec import Options
from common.training.adversarial import add_training_arguments, kept_entries, prepare_output, train
from waveglow.data_function import MelAudioDataset
from waveglow.model import WaveGlow
from waveglow.sharpening import SIGMA, TRAINED_SIGMA, Sharpening, crop_length, fold_sigma
from waveglow.spec import SPEC

SETTINGS = ("checkpoint", "filelists", "dataset_path", "load_mel_from_disk", "batch_size", "seed")


def read_clips(filelists: list[Path], options: Options) -> MelAudioDataset:
    """Read the recordings of all filelists. Raises DataError that names every unusable row."""
    utterances = []
    for filelist in filelists:
        rows = read_filelist(filelist)
        check_files(rows, filelist, options["dataset_path"])
        with lines_of(filelist):
            MelAudioDataset(options, rows).check_clips()
        utterances += rows
    return MelAudioDataset(options, utterances)


def options_of(args: argparse.Namespace, checkpoint: dict[str, Any], model: WaveGlow) -> Options:
    """The options of the clips: the checkpoint's settings of audio, and segments of a crop."""
    own = {"dataset_path": str(args.dataset_path), "load_mel_from_disk": args.load_mel_from_disk, "seed": args.seed}
    return data_of(checkpoint) | {**own, "groups": model.n_group, "segment_length": crop_length(model)}


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(prog="python -m scripts.sharpen_vocoder", description=__doc__)
    speed = "a core takes two or three a second with the small WaveGlow"
    add_training_arguments(parser, "WaveGlow, of any speaker", steps=10_000, speed=speed, batch=4)
    parser.add_argument(
        "--load-mel-from-disk",
        action="store_true",
        help="cut mels from FOLDER/mels/ID.pt for FOLDER/wavs/ID.wav, such as those of scripts.predict_mels",
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Train, and write the checkpoint. Returns the exit code."""
    args = parse_args(argv)
    prepare_output(args.output)
    device = pick_device(cpu=args.cpu)
    checkpoint = load_checkpoint(args.checkpoint)
    model = cast(WaveGlow, restore_model(SPEC, checkpoint, args.checkpoint).train().requires_grad_(True))
    if SHARPENED not in checkpoint:
        fold_sigma(model, TRAINED_SIGMA / SIGMA)
    dataset = read_clips(args.filelists, options_of(args, checkpoint, model))
    half = half_dtype(device, has_fast_half(device), "bfloat16")  # whose range needs no scaling of losses
    generator, note = accelerate(model.to(device), SPEC.fast_ways, "training", Request(half=half is not None))
    if note:
        print(f"note: {note}", flush=True)
    task = Sharpening(model, generator, kept_entries(checkpoint), dataset, args.batch_size, args.seed, device, half)
    with StopRequest() as stop:
        if train(task, args, SETTINGS, stop):
            print(f"{args.output}: speak with --waveglow {args.output} --denoising-strength 0.03")
    return stop.exit_code


if __name__ == "__main__":
    with exit_on_user_error():
        raise SystemExit(main())
