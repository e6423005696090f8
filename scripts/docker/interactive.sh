#!/usr/bin/env bash
# A shell in the image of build.sh, or a command: bash scripts/docker/interactive.sh [COMMAND …]. Code and output are this folder's.
#
# CUDA_VISIBLE_DEVICES, or NV_GPU, chooses the GPUs (all of them unless set; 0,1; none where empty). DATASET_PATH, where LJSpeech-1.1
# lies in another folder, is /data inside: train with --dataset-path /data.
set -euo pipefail
case ${DATASET_PATH:-} in '' | /*) dataset=${DATASET_PATH:-} ;; *) dataset=$PWD/$DATASET_PATH ;; esac
cd "$(dirname "$0")/../.."

# PyTorch's loader processes share memory with the trainer, and its copies to the GPU lock pages: Docker's own limits are too small.
options=(--rm -it --ipc=host --ulimit memlock=-1 --ulimit stack=67108864 -v "$PWD:/workspace/tacotron2")
case ${CUDA_VISIBLE_DEVICES-${NV_GPU-all}} in
  '' | none | -1) ;;
  all) options+=(--gpus all) ;;
  *) options+=(--gpus "\"device=${CUDA_VISIBLE_DEVICES-${NV_GPU-}}\"") ;; # in quotes, as Docker splits the option at commas
esac
[ ! -d .venv ] || options+=(-v /workspace/tacotron2/.venv) # hidden: its packages are those of the machine outside
if [ -n "$dataset" ]; then
  [ -d "$dataset" ] || { echo "error: DATASET_PATH: $dataset, expected a folder" >&2 && exit 2; }
  options+=(-v "$dataset:/data")
fi
[ $# -gt 0 ] || set -- bash
exec docker run "${options[@]}" tacotron2 "$@"
