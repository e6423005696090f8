#!/usr/bin/env bash
# Play a voice, train another one, and compare them: bash scripts/quickstart.sh. No GPU, no download but Python packages.
#
# Creates .venv, synthesises with the voice of this repository, and prepares the embedded talking clock. Trains a tiny Tacotron 2 from
# random weights and tunes the voice's WaveGlow, which has the same speaker, for QUICKSTART_MINUTES (10) in all. Synthesises five
# times of day that are not in the training clips, and measures the quality of both voices. With --from-scratch WaveGlow starts from
# random weights too. Safe to run again: finished steps are not repeated, and more minutes continue the training. All outputs are in
# output/quickstart, or with --from-scratch in output/quickstart_from_scratch.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt
exec .venv/bin/python -m scripts.quickstart --minutes "${QUICKSTART_MINUTES:-10}" "$@"
