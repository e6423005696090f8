#!/usr/bin/env bash
# Time speech synthesis as the published latency tables do: ./run_latency_tests.sh [benchmarks.latency flags]
#
# Texts of 128 characters, batches of 1 and 4, WaveGlow with 256 channels. On a GPU: half and single precision, 1000 iterations each.
# With --cpu or without a GPU: single precision, 10 iterations. Every combination prints a table and logs to
# output/nvlog_latency_PRECISION_bsBATCH.json. Models have random weights unless --tacotron2 and --waveglow name checkpoints, which
# then set WaveGlow's size. Flags at the end of the command line take precedence. Other runs:
#
#     ITERATIONS=100 WARMUP=1 BATCH_SIZES="1 8" PRECISIONS=fp16 INPUT_LENGTH=64 ./run_latency_tests.sh
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
project_python

device=cpu
case " $* " in
  *" --cpu "*) ;;
  *)
    device=$("$python" -c 'from common.precision import pick_device; print(pick_device().type)')
    if [ "$device" = cpu ]; then echo "note: no GPU here: running on the CPU, with fewer iterations"; fi
    ;;
esac
if [ "$device" = cpu ]; then
  defaults=(10 1 "1 4" fp32)
else
  defaults=(1000 3 "1 4" "fp16 fp32")
fi
# The recipe's smaller WaveGlow, unless a checkpoint gives the size.
size=(--wn-channels 256)
case " $*" in *" --waveglow"*) size=() ;; esac

for precision in ${PRECISIONS:-${defaults[3]}}; do
  case $precision in
    fp16) half=(--fp16) ;;
    fp32) half=() ;;
    *) echo "error: PRECISIONS: $precision, expected fp16 or fp32" >&2 && exit 2 ;;
  esac
  for batch in ${BATCH_SIZES:-${defaults[2]}}; do
    "$python" -m benchmarks.latency -bs "$batch" -il "${INPUT_LENGTH:-128}" ${size[@]+"${size[@]}"} ${half[@]+"${half[@]}"} \
      --num-iters "${ITERATIONS:-${defaults[0]}}" --warmup "${WARMUP:-${defaults[1]}}" \
      -o output --log-file "nvlog_latency_${precision}_bs$batch.json" "$@"
  done
done
