#!/usr/bin/env bash
# Get LJSpeech-1.1 ready for training: bash scripts/prepare_dataset.sh [DATASET_PATH]. 2.7 GB to download, 7 GB of disk in all.
#
# Downloads the archive to DATASET_PATH (the project's folder unless given), checks it, unpacks it to DATASET_PATH/LJSpeech-1.1 and
# writes filelists/ljs_*_filelist.txt. Safe to stop and to run again at any moment: a download goes on where it ended, and what is
# done is not done twice. LJSPEECH_URL names a mirror; an archive other than the published one has its LJSPEECH_SHA256,
# LJSPEECH_BYTES and LJSPEECH_CLIPS.
#
# Other recordings: bash scripts/prepare_dataset.sh --dataset FOLDER|LIST|asterisk [flags] [DATASET_PATH], which checks them, converts
# what needs it and writes their filelists; --dataset FOLDER --help lists the flags. asterisk is 24 minutes of telephone prompts,
# CC-BY-SA 3.0, which are fetched as Debian packages (or found in the folder ASTERISK_SOUNDS) and need ffmpeg.
set -euo pipefail

url=${LJSPEECH_URL:-https://data.keithito.com/data/speech/LJSpeech-1.1.tar.bz2}
sha256=${LJSPEECH_SHA256:-be1a30453f28eb8dd26af4101ae40cbf2c50413b1bb21936cbcdc6fae3de8aa5}
bytes=${LJSPEECH_BYTES:-2748572632}
clips=${LJSPEECH_CLIPS:-13100}

say() { echo "dataset: $*"; }

fail() {
  echo "error: $*" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

size_of() { if [ -e "$1" ]; then wc -c <"$1" | tr -d ' '; else echo 0; fi; }

clips_in() { if [ -d "$1/wavs" ]; then find -L "$1/wavs" -type f -name 'LJ*.wav' | wc -l | tr -d ' '; else echo 0; fi; }

check_tools() {
  local missing=()
  have curl || have wget || missing+=("curl or wget")
  have sha256sum || have shasum || missing+=("sha256sum or shasum")
  have tar || missing+=("tar")
  have bzip2 || missing+=("bzip2")
  [ ${#missing[@]} -eq 0 ] || fail "not installed: $(printf '%s, ' "${missing[@]}" | sed 's/, $//'); install them and run again"
}

check_space() {
  local unpacked=$((bytes * 3 / 2)) needed free # the recordings take a good 1.4 times the archive
  needed=$(((bytes - $(size_of "$archive") + unpacked) / 1000000))
  free=$(($(df -Pk "$dataset" | awk 'NR == 2 { print $4 }') * 1024 / 1000000))
  [ "$free" -ge "$needed" ] || fail "$dataset: $free MB free, $needed MB needed;" \
    "make room, or choose another folder: bash scripts/prepare_dataset.sh DATASET_PATH"
}

fetch() {
  if have curl; then
    local progress=(--silent --show-error)
    [ -t 2 ] && progress=(--progress-bar)
    curl "${progress[@]}" --fail --location --retry 5 --speed-limit 1000 --speed-time 60 \
      --continue-at - --output "$archive" "$url"
  else
    wget --no-verbose --tries=5 --timeout=60 --continue --output-document="$archive" "$url"
  fi
}

download() {
  local size status=1
  size=$(size_of "$archive")
  [ "$size" -lt "$bytes" ] || say "$archive is there"
  while [ "$size" -lt "$bytes" ] && [ "$status" -ne 0 ]; do
    say "downloading $url, $size of $bytes bytes are there"
    status=0
    fetch || status=$?
    # 33 is curl's word for a server that cannot send the rest alone
    [ "$status" -ne 33 ] || fail "$url: cannot go on with a download that was stopped; delete $archive and run again"
    [ "$status" -eq 0 ] || [ "$(size_of "$archive")" -gt "$size" ] ||
      fail "$url: nothing comes from there; what has come before stays, and the next run goes on from it"
    size=$(size_of "$archive")
  done
}

verify() {
  local size found
  size=$(size_of "$archive")
  [ "$size" = "$bytes" ] || fail "$archive: $size bytes, expected $bytes; delete this file and run again"
  say "checking the archive's SHA-256"
  if have sha256sum; then found=$(sha256sum <"$archive"); else found=$(shasum -a 256 <"$archive"); fi
  found=${found%% *}
  [ "$found" = "$sha256" ] || fail "$archive: SHA-256 $found, expected $sha256; delete this file and run again"
}

unpack() {
  local found
  say "unpacking, which takes some minutes"
  staging=$archive.unpacking
  trap 'rm -rf "$staging"' EXIT
  rm -rf "$staging" # of a run that was killed
  mkdir "$staging"
  tar -xjf "$archive" --no-same-owner -C "$staging" || fail "$archive: cannot be unpacked into $dataset, see above"
  found=$(clips_in "$staging/LJSpeech-1.1")
  [ "$found" = "$clips" ] || fail "$archive: $found clips in it, expected $clips; this is not the archive that was asked for"
  mv "$staging/LJSpeech-1.1" "$corpus"
  say "$corpus is there, $found clips; $archive is not needed any more"
}

usage() { sed -n '2,/^set/ s/^# \{0,1\}//p' "$0"; }

case ${1:-} in -h | --help) usage && exit 0 ;; esac
for word in "$@"; do
  case $word in --dataset | --dataset=*)
    here=$PWD
    cd "$(dirname "$0")/.."
    # shellcheck source=scripts/environment.sh
    . scripts/environment.sh
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
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
project_python
archive=$dataset/LJSpeech-1.1.tar.bz2
corpus=$dataset/LJSpeech-1.1

if [ -e "$corpus" ]; then
  found=$(clips_in "$corpus")
  [ "$found" = "$clips" ] || fail "$corpus: $found clips in wavs/, expected $clips; move this folder away or delete it, and run again"
  say "$corpus is there, $found clips"
else
  check_tools
  mkdir -p "$dataset"
  check_space
  download
  verify
  unpack
fi
"$python" -m scripts.prepare_dataset "$corpus" --clips "$clips"
say "ready; Tacotron 2 trains faster on stored mels: bash scripts/prepare_mels.sh ljs $dataset"
