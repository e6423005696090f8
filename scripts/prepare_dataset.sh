#!/usr/bin/env bash
# Prepare LJSpeech-1.1 for training: bash scripts/prepare_dataset.sh [DATASET_PATH]. Downloads 2.7 GB, needs 7 GB of disk.
#
# Downloads the archive to DATASET_PATH (default: the project's folder), checks it, unpacks it to DATASET_PATH/LJSpeech-1.1 and writes
# filelists/ljs_*_filelist.txt. Safe to interrupt and run again: downloads resume, and finished steps are not repeated. LJSPEECH_URL
# names a mirror; LJSPEECH_SHA256, LJSPEECH_BYTES and LJSPEECH_CLIPS describe an archive other than the published one.
#
# Other recordings: bash scripts/prepare_dataset.sh --dataset FOLDER|LIST|asterisk [flags] [DATASET_PATH] checks them, converts them if
# needed and writes their filelists; --dataset FOLDER --help lists the flags. asterisk is 24 minutes of telephone prompts, CC-BY-SA
# 3.0, fetched as Debian packages (or read from the folder ASTERISK_SOUNDS); it needs the package av.
set -euo pipefail

url=${LJSPEECH_URL:-https://data.keithito.com/data/speech/LJSpeech-1.1.tar.bz2}
sha256=${LJSPEECH_SHA256:-be1a30453f28eb8dd26af4101ae40cbf2c50413b1bb21936cbcdc6fae3de8aa5}
bytes=${LJSPEECH_BYTES:-2748572632}
clips=${LJSPEECH_CLIPS:-13100}

label=dataset
# shellcheck source=scripts/environment.sh
. "$(dirname "$0")/environment.sh"
# shellcheck source=scripts/download.sh
. "$(dirname "$0")/download.sh"

clips_in() { if [ -d "$1/wavs" ]; then find -L "$1/wavs" -type f -name 'LJ*.wav' | wc -l | tr -d ' '; else echo 0; fi; }

check_space() {
  local unpacked=$((bytes * 3 / 2)) needed free # the recordings take a little over 1.4 times the archive
  needed=$(((bytes - $(size_of "$archive") + unpacked) / 1000000))
  free=$(($(df -Pk "$dataset" | awk 'NR == 2 { print $4 }') * 1024 / 1000000))
  [ "$free" -ge "$needed" ] || fail "$dataset: $free MB free, $needed MB needed;" \
    "make room, or choose another folder: bash scripts/prepare_dataset.sh DATASET_PATH"
}

download() {
  local size status=1
  size=$(size_of "$archive")
  [ "$size" -lt "$bytes" ] || say "$archive is complete"
  while [ "$size" -lt "$bytes" ] && [ "$status" -ne 0 ]; do
    say "downloading $url, $size of $bytes bytes already here"
    status=0
    fetch "$url" "$archive" || status=$?
    check_fetched "$status" "$url" "$archive" "$size"
    size=$(size_of "$archive")
  done
  check_size "$archive" "$bytes"
  say "checking the archive's SHA-256"
  check_sum "$archive" "$sha256"
}

unpack() {
  local found
  say "unpacking, which takes a few minutes"
  staging=$archive.unpacking
  trap 'rm -rf "$staging"' EXIT
  rm -rf "$staging" # left over from a killed run
  mkdir "$staging"
  tar -xjf "$archive" --no-same-owner -C "$staging" || fail "$archive: cannot be unpacked into $dataset, see above"
  found=$(clips_in "$staging/LJSpeech-1.1")
  [ "$found" = "$clips" ] || fail "$archive: $found clips in it, expected $clips; this is not the expected archive"
  mv "$staging/LJSpeech-1.1" "$corpus"
  say "$corpus is complete, $found clips; $archive is no longer needed"
}

for word in "$@"; do
  case $word in --dataset | --dataset=*)
    here=$PWD
    cd "$(dirname "$0")/.."
    project_python
    exec "$python" -m scripts.prepare_recordings --relative-to "$here" "$@"
    ;;
  esac
done
case ${1:-} in -*) usage >&2 && exit 2 ;; esac
[ $# -le 1 ] || { usage >&2 && exit 2; }
dataset=.
case ${1:-} in '') ;; /*) dataset=${1%/} ;; *) dataset=$PWD/${1%/} ;; esac
cd "$(dirname "$0")/.."
project_python
archive=$dataset/LJSpeech-1.1.tar.bz2
corpus=$dataset/LJSpeech-1.1

if [ -e "$corpus" ]; then
  found=$(clips_in "$corpus")
  [ "$found" = "$clips" ] || fail "$corpus: $found clips in wavs/, expected $clips; move this folder away or delete it, and run again"
  say "$corpus is complete, $found clips"
else
  check_tools "curl or wget" "sha256sum or shasum" tar bzip2
  mkdir -p "$dataset"
  check_space
  download
  unpack
fi
"$python" -m scripts.prepare_dataset "$corpus" --clips "$clips"
say "ready; to compute the mels for scripts/train_tacotron2.sh: bash scripts/prepare_mels.sh ljs $dataset"
