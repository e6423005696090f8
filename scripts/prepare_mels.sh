#!/usr/bin/env bash
# Compute the mels that --load-mel-from-disk reads, for one corpus: bash scripts/prepare_mels.sh [NAME] [DATASET_PATH] [audio flags].
# NAME is ljs (the default), clock, sentences, or the name of another corpus, from scripts/prepare_dataset.sh --dataset.
# Safe to run again: mels newer than their audio are kept (delete them when audio settings change).
set -euo pipefail
dataset=.
case ${2:-} in '') ;; /*) dataset=$2 ;; *) dataset=$PWD/$2 ;; esac
cd "$(dirname "$0")/.."
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
project_python
corpus=${1:-ljs}
lists=()
mels=()
for part in train val test; do
  if [ -e "filelists/${corpus}_audio_text_${part}_filelist.txt" ]; then
    lists+=("filelists/${corpus}_audio_text_${part}_filelist.txt")
    mels+=("filelists/${corpus}_mel_text_${part}_filelist.txt")
  fi
done
if [ ${#lists[@]} -eq 0 ]; then
  echo "error: no filelists/${corpus}_audio_text_*_filelist.txt; known: ljs and others (after scripts/prepare_dataset.sh), clock, sentences" >&2
  exit 2
fi
exec "$python" -m common.data.mels --audio-filelist "${lists[@]}" --mel-filelist "${mels[@]}" --dataset-path "$dataset" "${@:3}"
