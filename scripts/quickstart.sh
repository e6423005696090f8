#!/usr/bin/env bash
# Hear a voice, train another and compare them: bash scripts/quickstart.sh. Needs no GPU and downloads only Python packages.
#
# Creates .venv, speaks with the included voice, and prepares the included corpus, a talking clock. Then trains a small Tacotron 2 and
# a small vocoder, pulse-noise, from random weights, for QUICKSTART_MINUTES (10) altogether. Speaks five times of day that are in no
# training clip, and measures how much of both voices is understood. --waveglow trains a small WaveGlow, too. Safe to run again:
# finished steps are not repeated, and more minutes continue the training. All output goes to output/quickstart.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt
[ "${1:-}" != --install-only ] || exit 0
exec .venv/bin/python -m scripts.quickstart --minutes "${QUICKSTART_MINUTES:-10}" "$@"
