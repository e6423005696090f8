#!/usr/bin/env bash
# Train the embedded voice again: bash voice/train.sh Tacotron2 | WaveGlow, each in a terminal of its own. Safe to stop and to run again.
# First, once: the corpus and its mels, as scripts/make_voice_corpus.py says.
set -euo pipefail
cd "$(dirname "$0")/.."
corpus=output/voice_corpus
# two models share two cores: a thread each, and memory that is kept for the next step
export OMP_NUM_THREADS=1 MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=4294967296
shared="--seed 1 -d $corpus --n-mel-channels 48 --lr-schedule cosine --ema-decay 0.999
  --checkpoint-every-minutes 5 --keep-checkpoints 2 --resume-from-last"
case ${1:-} in
  Tacotron2) flags="--epochs 28 -bs 8 -lr 1.5e-3 --warmup-steps 200 --load-mel-from-disk --bucket-batches 16
    --training-files $corpus/mel_train.txt --validation-files $corpus/mel_val.txt
    --n-frames-per-step 5 --p-attention-dropout 0 --p-decoder-dropout 0 --p-convolution-dropout 0.1 --disable-uniform-initialize-bn-weight
    --guided-attention-weight 100 --guided-attention-sigma 0.2 --guided-attention-decay 0.9995
    --symbols-embedding-dim 256 --encoder-embedding-dim 384 --encoder-n-convolutions 3 --prenet-dim 256
    --attention-rnn-dim 384 --attention-dim 96 --attention-location-kernel-size 15 --decoder-rnn-dim 448
    --postnet-embedding-dim 128 --postnet-n-convolutions 3" ;;
  WaveGlow) flags="--epochs 12 -bs 2 -lr 1e-3 --warmup-steps 50 --segment-length 4000
    --training-files $corpus/audio_train.txt --validation-files $corpus/audio_val.txt
    --flows 6 --early-every 3 --wn-channels 64 --wn-layers 6" ;;
  *) echo "usage: bash voice/train.sh Tacotron2 | WaveGlow" >&2; exit 2 ;;
esac
# shellcheck disable=SC2086
exec .venv/bin/python train.py -m "$1" -o "output/voice/$1" $shared $flags "${@:2}"
