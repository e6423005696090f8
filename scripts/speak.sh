#!/usr/bin/env bash
# Speak a sentence: bash scripts/speak.sh "Good morning." [flags of inference.py]. Writes output/spoken/audio_0.wav.
#
# The first run creates .venv and downloads Python packages, 380 MB without an NVIDIA GPU; with one, PyTorch's default build
# adds 2.7 GB. The voice is in this repository. --install-only stops before it speaks. Safe to run again: nothing is installed twice.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt
if [ "${1:-}" = --install-only ]; then
  echo "next: . .venv/bin/activate && python inference.py --text \"Good morning.\" -o output/spoken"
  exit 0
fi
text="Good morning."
case ${1:--} in -*) ;; *) text=$1 && shift ;; esac
exec .venv/bin/python inference.py --text "$text" -o output/spoken "$@"
