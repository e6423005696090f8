#!/usr/bin/env bash
# Download the published checkpoints, Tacotron 2 and the 256-channel WaveGlow: bash scripts/download_checkpoints.sh [FOLDER].
#
# They go to FOLDER (default: checkpoints/ in the project's folder). Prints the contents of each file, then the command that speaks
# with them. Safe to interrupt and run again: downloads resume, and finished steps are not repeated.
#
# NGC's addresses have not been tried yet. TACOTRON2_URL and WAVEGLOW_URL override them; TACOTRON2_BYTES, TACOTRON2_SHA256,
# WAVEGLOW_BYTES and WAVEGLOW_SHA256 are checked if set. Otherwise the size must match the server's.
set -euo pipefail

ngc=https://api.ngc.nvidia.com/v2/models/nvidia
tacotron2_url=${TACOTRON2_URL:-$ngc/tacotron2_pyt_ckpt_amp_v2/versions/19.09.0/files/nvidia_tacotron2pyt_fp16.pt}
waveglow_url=${WAVEGLOW_URL:-$ngc/waveglow_ckpt_amp_256/versions/20.01.0/files/nvidia_waveglow256pyt_fp16.pt}

label=checkpoints
# shellcheck source=scripts/environment.sh
. "$(dirname "$0")/environment.sh"
# shellcheck source=scripts/download.sh
. "$(dirname "$0")/download.sh"

# size_on_server HEADERS: print the size of the whole file from the last response that has it; empty without one.
size_on_server() {
  tr -d '\r' <"$1" | awk '
    { sub(/^ +/, "") }
    /^HTTP\// { status = $2 }
    tolower($1) == "content-range:" { sub(/.*\//, ""); if ($0 != "*") total = $0 }
    tolower($1) == "content-length:" && status == 200 { total = $2 }
    END { print total }'
}

# download URL FILE: append to FILE.part, over several runs if needed, until it has the server's size.
download() {
  local url=$1 part=$2.part size total status=1
  while [ "$status" -ne 0 ]; do
    size=$(size_of "$part")
    say "downloading $url, $size bytes already here"
    status=0
    fetch "$url" "$part" "$part.headers" || status=$?
    total=$(size_on_server "$part.headers" || true)
    # the server refuses a range past the end of a complete file
    if [ "$size" -gt 0 ] && [ -n "$total" ] && [ "$(size_of "$part")" -ge "$total" ]; then status=0; fi
    check_fetched "$status" "$url" "$part" "$size"
  done
  rm -f "$part.headers"
  [ -z "${total:-}" ] || check_size "$part" "$total" "$url"
}

# get URL FILE BYTES SHA256: download FILE unless it exists, and check it; BYTES and SHA256 may be empty.
get() {
  local file=$2
  if [ -e "$2" ]; then
    say "$2 exists"
  else
    download "$1" "$2"
    file=$2.part
  fi
  [ -z "$3" ] || check_size "$file" "$3" "as requested"
  [ -z "$4" ] || check_sum "$file" "$4"
  [ "$file" = "$2" ] || mv "$file" "$2"
}

[ $# -le 1 ] || { usage >&2 && exit 2; }
folder=checkpoints
case ${1:-} in '') ;; /*) folder=${1%/} ;; *) folder=$PWD/${1%/} ;; esac
cd "$(dirname "$0")/.."
project_python
tacotron2=$folder/nvidia_tacotron2pyt_fp16.pt
waveglow=$folder/nvidia_waveglow256pyt_fp16.pt

needed=("curl or wget")
[ -z "${TACOTRON2_SHA256:-}${WAVEGLOW_SHA256:-}" ] || needed+=("sha256sum or shasum")
check_tools "${needed[@]}"
mkdir -p "$folder"
get "$tacotron2_url" "$tacotron2" "${TACOTRON2_BYTES:-}" "${TACOTRON2_SHA256:-}"
get "$waveglow_url" "$waveglow" "${WAVEGLOW_BYTES:-}" "${WAVEGLOW_SHA256:-}"
"$python" -m common.checkpoint inspect "$tacotron2" "$waveglow" || fail "delete the unusable files, see above, and run again"
say "ready; to speak with them:"
printf '  python inference.py --tacotron2 %q --waveglow %q --wn-channels 256 -i phrases/phrase.txt --fp16\n' "$tacotron2" "$waveglow"
