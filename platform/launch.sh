#!/usr/bin/env bash
# Train with the published settings: bash platform/launch.sh Tacotron2|WaveGlow GPUS [train.py flags]. All scripts here call it.
#
# The settings come from NVIDIA's documentation of "Tacotron 2 And WaveGlow v1.10 For PyTorch". This file holds each model's recipe; the
# other scripts set the batch size per GPU, from the training performance tables for DGX-1 (V100 16 GB) and DGX A100 (40 GB). It does
# not depend on the number of GPUs. TF32 needs no flag: an A100 uses it for float32 products.
# Tacotron 2 reads the mels of scripts/prepare_mels.sh; with --no-load-mel-from-disk and other file lists it reads audio.
# Flags at the end of a command line take precedence: bash platform/DGX1_waveglow_AMP_1NGPU_train.sh -o output/waveglow --epochs 10
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
project_python

usage="usage: bash platform/launch.sh Tacotron2|WaveGlow GPUS [train.py flags]"
case ${1:-} in
  Tacotron2)
    recipe=(--epochs 1501 -lr 1e-3 --weight-decay 1e-6 --grad-clip-thresh 1.0 --anneal-steps 500 1000 1500 --cudnn-enabled
      --load-mel-from-disk --training-files filelists/ljs_mel_text_train_filelist.txt
      --validation-files filelists/ljs_mel_text_val_filelist.txt) ;;
  WaveGlow)
    recipe=(--epochs 1001 -lr 1e-4 --weight-decay 0 --grad-clip-thresh 65504.0 --segment-length 8000 --epochs-per-checkpoint 50
      --cudnn-enabled --cudnn-benchmark) ;;
  *) echo "$usage" >&2 && exit 2 ;;
esac
case ${2:-} in
  1) launcher=() ;;
  [1-9]*) launcher=(-m multiproc --nproc "$2") ;;
  *) echo "$usage" >&2 && exit 2 ;;
esac
exec "$python" ${launcher[@]+"${launcher[@]}"} train.py -m "$1" -o output "${recipe[@]}" "${@:3}"
