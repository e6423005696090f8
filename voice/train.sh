#!/usr/bin/env bash
# Retrain the embedded voice: bash voice/train.sh Tacotron2 | WaveGlow | PulseNoise | tuned | everyday. Safe to interrupt and run again.
# First make the corpus and its mels once, as described in voice/make_corpus.py. Tacotron2 and WaveGlow can train at the same time on
# two cores. "tuned" then trains the WaveGlow further, with two thirds of the mels predicted by the Tacotron 2; this did not improve
# the shipped voice (README.md). "everyday" trains the Tacotron 2 further, on all lines of the first corpus and the everyday sentences.
# WaveGlow by itself is faster in two processes of one thread and four clips each: PROCESSES=2.
set -euo pipefail
cd "$(dirname "$0")/.."
corpus=output/voice_corpus
predicted=output/voice_predicted
export OMP_NUM_THREADS=1
shared="--seed 1 --n-mel-channels 48 --lr-schedule cosine --ema-decay 0.999
  --checkpoint-every-minutes 5 --keep-checkpoints 2 --resume-from-last"
waveglow="-m WaveGlow -bs 4 --segment-length 8000 --dither 0.0005 --amp --load-mel-from-disk
  --flows 8 --groups 32 --early-size 8 --upsample-channels 8 --wn-channels 64 --wn-layers 5"
tacotron2="-m Tacotron2 -d $corpus -bs 8 --load-mel-from-disk --bucket-batches 16
  --n-frames-per-step 5 --p-attention-dropout 0 --p-decoder-dropout 0 --p-convolution-dropout 0.1 --disable-uniform-initialize-bn-weight
  --symbols-embedding-dim 256 --encoder-embedding-dim 384 --encoder-n-convolutions 3 --prenet-dim 256
  --attention-rnn-dim 384 --attention-dim 96 --attention-location-kernel-size 15 --decoder-rnn-dim 448
  --postnet-embedding-dim 128 --postnet-n-convolutions 3"
case ${1:-} in
  Tacotron2) flags="$tacotron2 --epochs 53 -lr 1.5e-3 --warmup-steps 200
    --guided-attention-weight 100 --guided-attention-sigma 0.2 --guided-attention-decay 0.9995
    --training-files $corpus/mel_train.txt --validation-files $corpus/mel_val.txt" ;;
  everyday) flags="$tacotron2 --amp --epochs 16 -lr 1e-3 --warmup-steps 100 --warm-start output/voice/Tacotron2/checkpoint_Tacotron2_best.pt
    --training-files $corpus/mel_mixed_train.txt --validation-files $corpus/mel_mixed_val.txt"
    for part in train val; do cat $corpus/mel_{,everyday_}$part.txt > $corpus/mel_mixed_$part.txt; done ;;
  WaveGlow) flags="$waveglow -d $corpus --training-files $corpus/audio_train.txt --validation-files $corpus/audio_val.txt
    --epochs 106 -lr 1.5e-3 --warmup-steps 300" ;;
  PulseNoise) flags="-m PulseNoise -d $corpus --training-files $corpus/audio_train.txt --validation-files $corpus/audio_val.txt
    --epochs 6" ;;
  tuned) flags="$waveglow -d output --training-files output/mixed_train.txt --validation-files output/mixed_val.txt
    --epochs 15 -lr 6e-4 --warmup-steps 100 --warm-start output/voice/WaveGlow/checkpoint_WaveGlow_last.pt"
    [ -e output/voice/tuned ] || .venv/bin/python -m scripts.predict_mels output/voice/Tacotron2/checkpoint_Tacotron2_last.pt \
      $corpus/mel_train.txt $corpus/mel_val.txt -d $corpus -o $predicted
    for part in train val; do
      awk '{ print (NR % 3 ? "voice_predicted/" : "voice_corpus/") $0 }' $corpus/audio_$part.txt > output/mixed_$part.txt
    done ;;
  *) echo "usage: bash voice/train.sh Tacotron2 | WaveGlow | PulseNoise | tuned | everyday" >&2; exit 2 ;;
esac
# shellcheck disable=SC2086
exec .venv/bin/python -m multiproc --nproc "${PROCESSES:-1}" train.py -o "output/voice/$1" $shared $flags "${@:2}"
