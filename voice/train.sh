#!/usr/bin/env bash
# Train the embedded voice on: bash voice/train.sh Tacotron2 | sharp | WaveGlow | PulseNoise. Safe to interrupt and run again.
# First make the corpus and its mels once, as described in voice/make_corpus.py. Tacotron2 and WaveGlow start from the weights in this
# folder, Tacotron2 with `--warm-start FILE` from others. "sharp" then sharpens the mels of that Tacotron 2's best checkpoint.
set -euo pipefail
cd "$(dirname "$0")/.."
corpus=output/voice_corpus
export OMP_NUM_THREADS=1
lists() {  # all clips, literary and everyday, as audio or as mel
  local part
  [ -e "$corpus/$1_train.txt" ] || { echo "error: no $corpus/$1_train.txt: see python -m voice.make_corpus -h" >&2; return 1; }
  for part in train val; do cat "$corpus/$1_"{,everyday_}$part.txt > "$corpus/$1_mixed_$part.txt" || return; done
  echo "-d $corpus --training-files $corpus/$1_mixed_train.txt --validation-files $corpus/$1_mixed_val.txt"
}
shared="--seed 1 --lr-schedule cosine --ema-decay 0.999
  --checkpoint-every-minutes 5 --keep-checkpoints 2 --resume-from-last"
case ${1:-} in
  Tacotron2) flags="$shared -m Tacotron2 $(lists mel) --warm-start voice/tacotron2.safetensors --load-mel-from-disk -bs 16 --amp --bucket-batches 16
    --epochs 16 -lr 6e-4 --warmup-steps 60 --p-attention-dropout 0.05 --p-decoder-dropout 0.05 --p-convolution-dropout 0.15
    --guided-attention-weight 1 --guided-attention-sigma 0.2 --guided-attention-decay 0.998" ;;
  sharp) exec .venv/bin/python -m scripts.sharpen_mels output/voice/Tacotron2/checkpoint_Tacotron2_best.pt \
    $corpus/mel_{,everyday_}train.txt -d $corpus -o output/voice/sharp.pt "${@:2}" ;;
  WaveGlow) exec .venv/bin/python -m scripts.sharpen_vocoder voice/waveglow.safetensors $corpus/audio_{,everyday_}train.txt \
    -d $corpus -o output/voice/waveglow.pt --minutes 120 "${@:2}" ;;
  PulseNoise) flags="-m PulseNoise $(lists audio) --seed 1 --lr-schedule cosine --epochs 6 --resume-from-last" ;;
  *) echo "usage: bash voice/train.sh Tacotron2 | sharp | WaveGlow | PulseNoise" >&2; exit 2 ;;
esac
# shellcheck disable=SC2086
exec .venv/bin/python -m multiproc --nproc "${PROCESSES:-1}" train.py -o "output/voice/$1" $flags "${@:2}"
