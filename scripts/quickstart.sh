#!/usr/bin/env bash
# Hear a voice, train another and compare them: bash scripts/quickstart.sh. Needs no GPU and downloads only Python packages.
#
# Creates .venv, speaks with the included voice, and prepares the included corpus, a talking clock. Then trains a small Tacotron 2 and
# a small vocoder, pulse-noise, from random weights, for QUICKSTART_MINUTES (10) altogether. Speaks five times of day that are in no
# training clip, and measures how much of both voices is understood. --waveglow trains a small WaveGlow, too, which in so little time
# only buzzes; --install-only stops before it speaks. Every command is printed as you would type it. Safe to run again: finished steps
# are not repeated, and more minutes continue the training. All output goes to output/quickstart.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/environment.sh
. scripts/environment.sh

minutes=${QUICKSTART_MINUTES:-10} waveglow='' stop=''
for word in "$@"; do
  case $word in
    --install-only) stop=yes ;;
    --waveglow) waveglow=' --waveglow' ;;
    *) usage >&2 && exit 2 ;;
  esac
done
# calculate EXPRESSION: of awk, since the shell has no fractions
calculate() { LC_ALL=C awk "BEGIN { print ($1) }"; }
case $minutes in
  *[!0-9.]* | *.*.* | .) minutes=0 ;;
esac
[ "$(calculate "$minutes > 0")" = 1 ] || {
  echo "error: QUICKSTART_MINUTES=${QUICKSTART_MINUTES-}, expected a number of minutes above 0" >&2
  exit 2
}
prepare_environment requirements.txt
[ -z "$stop" ] || exit 0

output=output/quickstart
mkdir -p "$output"
epochs=12000 # of which train.py trains as many as fit the time
rounds=6     # validations, and checkpoints, in all of them
enough=1100  # steps of Tacotron 2; with fewer, more than a third of the words are wrong
lists=(filelists/clock_audio_text_train_filelist.txt filelists/clock_audio_text_val_filelist.txt)
mel_lists=("$output/mel_text_train.txt" "$output/mel_text_val.txt") # of mels of its own; those in corpus/mels may have other settings
voice=(--tacotron2 voice/tacotron2.safetensors --pulse-noise voice/pitch.safetensors --vocoder pulse-noise)
small_tacotron2="-bs 16 -lr 3e-3 --bucket-batches 14 --n-frames-per-step 5 --p-attention-dropout 0 --p-decoder-dropout 0
  --guided-attention-weight 100 --guided-attention-sigma 0.2 --disable-uniform-initialize-bn-weight
  --symbols-embedding-dim 256 --encoder-embedding-dim 384 --encoder-n-convolutions 1 --prenet-dim 256
  --attention-rnn-dim 384 --attention-dim 64 --attention-location-kernel-size 15 --decoder-rnn-dim 512
  --postnet-embedding-dim 64 --postnet-n-convolutions 2 --p-convolution-dropout 0.1"
small_waveglow="-bs 8 -lr 2e-3 --warmup-steps 50 --segment-length 4096
  --flows 8 --groups 32 --early-size 8 --upsample-channels 8 --wn-channels 64 --wn-layers 5"
# Small models do small operations: many threads would wait for each other, and fresh memory would cost page faults each time.
[ "$(getconf _NPROCESSORS_ONLN)" -le 4 ] || export OMP_NUM_THREADS="${OMP_NUM_THREADS:-4}"
export MALLOC_MMAP_THRESHOLD_="${MALLOC_MMAP_THRESHOLD_:-4294967296}" MALLOC_TRIM_THRESHOLD_="${MALLOC_TRIM_THRESHOLD_:-4294967296}"

step=0
say() { step=$((step + 1)) && printf '\n== %s. %s\n' "$step" "$*"; }

# run LOG ARGUMENT …: Python with these arguments; its stdout goes to the log
run() {
  local log=$1
  shift
  echo "\$ python $* > $log"
  .venv/bin/python "$@" >"$log" || {
    local code=$?
    [ "$code" = 130 ] || echo "error: this command failed with exit code $code; its output is in $log" >&2 # 130: Ctrl-C
    exit "$code"
  }
}

last() { echo "$output/$1/checkpoint_$1_last.pt"; }

# train MODEL SHARE FLAGS …: train for a share of the minutes, those of earlier runs included, and print what train.py says
train() {
  local words=(train.py -m "$1" -o "$output/$1" --amp --seed 1 --epochs "$epochs" --max-minutes "$(calculate "$minutes * $2")")
  words+=(--epochs-per-validation $((epochs / rounds)) --epochs-per-checkpoint $((epochs / rounds)) --resume-from-last "${@:3}")
  say "$1: $(calculate "$minutes * $2") minutes of training"
  echo "\$ python ${words[*]}"
  # At Ctrl-C train.py saves and then ends: until then its sentences have a reader. Lines of DLL repeat its log.
  .venv/bin/python "${words[@]}" | (
    trap '' INT
    while IFS= read -r line; do
      case $line in "DLL "*) ;; *) echo "   $line" ;; esac
    done
  )
}

# clock VOCODER: print the flags for the clock that was trained, through a vocoder
clock() {
  echo "--tacotron2 $(last Tacotron2) --vocoder $1"
  case $1 in
    waveglow) echo "--waveglow $(last WaveGlow)" ;;
    pulse-noise) echo "--pulse-noise $(last PulseNoise)" ;;
  esac
}

# understood NAME: print how many of 100 words the report counts as understood; NAME is the beginning of a system's name
understood() {
  .venv/bin/python -c '
import json, sys
systems = json.load(open(sys.argv[1], encoding="utf-8"))["systems"]
wer = next(system["summary"]["wer"][0] for system in systems if system["name"].startswith(sys.argv[2]))
print(round(100 * max(0.0, 1 - wer)))' "$output/report/report.json" "$1"
}

say "the included voice (voice/README.md)"
run "$output/voice.log" inference.py -i phrases/phrase.txt -o "$output/voice" "${voice[@]}"
echo "$output/voice/audio_0.wav  $(cat phrases/phrase.txt)"

say "what measures speech, and pitch"
echo "\$ bash scripts/evaluation.sh"
measures=yes
bash scripts/evaluation.sh || {
  measures=''
  echo "   the speech recogniser could not be installed (see above); \`bash scripts/evaluation.sh\` tries again"
}
vocoders=(griffin-lim) share=1 # the best vocoder comes last
if [ -n "$waveglow" ]; then vocoders+=(waveglow) share=$(calculate "$share - 0.15"); fi
has_pitch='import importlib.util, sys; sys.exit(importlib.util.find_spec("pyworld") is None)'
if .venv/bin/python -c "$has_pitch"; then vocoders+=(pulse-noise) share=$(calculate "$share - 0.05"); fi
best=${vocoders[${#vocoders[@]} - 1]}

say "mels of the included corpus, a talking clock (corpus/README.md)"
for part in 0 1; do
  sed "s:^[^|]*/\([^/|]*\)\.[^.|]*|:$output/mels/\1.pt|:" "${lists[part]}" >"${mel_lists[part]}"
done
mels=(-m common.data.mels --audio-filelist "${lists[@]}" --mel-filelist "${mel_lists[@]}")
echo "\$ python ${mels[*]}"
.venv/bin/python "${mels[@]}"

# shellcheck disable=SC2086 # several flags
train Tacotron2 "$share" --training-files "${mel_lists[0]}" --validation-files "${mel_lists[1]}" --load-mel-from-disk $small_tacotron2 \
  --anneal-steps $((epochs * 70 / 100)) $((epochs * 88 / 100))
steps=$(.venv/bin/python -m common.checkpoint inspect "$(last Tacotron2)" | awk '$1 == "iteration" { print $2 }')
# the minutes of all trainings that give Tacotron 2 enough steps
needed=$(calculate "int($minutes * $enough / ($steps > 0 ? $steps : 1) + 0.999)")
if [ "$steps" -lt "$enough" ]; then
  echo "   $steps steps; with fewer than $enough, more than a third of the words are wrong"
  echo "   QUICKSTART_MINUTES=$needed bash scripts/quickstart.sh$waveglow goes on for long enough"
fi
for vocoder in "${vocoders[@]}"; do
  sounds=(--training-files "${lists[0]}" --validation-files "${lists[1]}")
  # shellcheck disable=SC2086
  case $vocoder in
    waveglow) train WaveGlow 0.15 "${sounds[@]}" $small_waveglow --anneal-steps $((epochs * 80 / 100)) ;;
    pulse-noise) train PulseNoise 0.05 "${sounds[@]}" --lr-schedule cosine ;;
  esac
done

say "five times of day that appear in no training clip (phrases/clock.txt)"
for vocoder in "${vocoders[@]}"; do
  # shellcheck disable=SC2046
  run "$output/$vocoder.log" inference.py -i phrases/clock.txt -o "$output/$vocoder" --seed 0 --max-decoder-steps 400 $(clock "$vocoder")
done

say "how much is understood of the held-out clips (${lists[1]}); takes some minutes"
heard="not measured, since there is no recogniser: run this again when it can be installed"
if [ -n "$measures" ]; then
  # Opinion scores take most of a report's minutes, and are no part of the conclusion.
  # shellcheck disable=SC2046
  run "$output/report.log" evaluate.py -i "${lists[1]}" -o "$output/report" --max-decoder-steps 400 --without mos likeness \
    $(clock "$best") "${voice[@]/#--/--other-}"
  heard="$(understood "Tacotron2, ") of 100 words, of the recordings $(understood recordings) ($output/report/report.html)"
fi
echo
echo "Play it:     $output/$best/audio_0.wav says \"$(head -n 1 phrases/clock.txt)\""
echo "Understood:  $heard"
echo "Train on:    QUICKSTART_MINUTES=$(calculate "$needed > 3 * $minutes ? $needed : 3 * $minutes") bash scripts/quickstart.sh$waveglow"
