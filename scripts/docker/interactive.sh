#!/usr/bin/env bash
# Open a shell in the image of build.sh, or run a command: bash scripts/docker/interactive.sh [COMMAND …]. It works in this folder.
#
# CUDA_VISIBLE_DEVICES or NV_GPU selects the GPUs (unset: all; empty: none; or a list such as 0,1). If LJSpeech-1.1 is in another
# folder, set DATASET_PATH to it: it appears as /data, so train with --dataset-path /data.
set -euo pipefail
case ${DATASET_PATH:-} in '' | /*) dataset=${DATASET_PATH:-} ;; *) dataset=$PWD/$DATASET_PATH ;; esac
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/environment.sh
. scripts/environment.sh

# PyTorch's loader processes share memory with the trainer, and its copies to the GPU lock pages: Docker's own limits are too small.
options=(--rm -it --ipc=host --ulimit memlock=-1 --ulimit stack=67108864 -v "$PWD:/workspace/tacotron2")
case ${CUDA_VISIBLE_DEVICES-${NV_GPU-all}} in
  '' | none | -1) ;;
  all) options+=(--gpus all) ;;
  *) options+=(--gpus "\"device=${CUDA_VISIBLE_DEVICES-${NV_GPU-}}\"") ;; # in quotes, as Docker splits the option at commas
esac
[ ! -d .venv ] || options+=(-v /workspace/tacotron2/.venv) # hidden, as its packages belong to the host
if [ -n "$dataset" ]; then
  [ -d "$dataset" ] || { echo "error: DATASET_PATH: $dataset, expected a folder" >&2 && exit 2; }
  options+=(-v "$dataset:/data")
fi
[ $# -gt 0 ] || set -- bash
exec docker run "${options[@]}" tacotron2 "$@"
