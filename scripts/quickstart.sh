#!/usr/bin/env bash
# Play a voice, train another one, and compare them: bash scripts/quickstart.sh. No GPU, no download but Python packages.
#
# Makes .venv, speaks with the voice that is in this repository, prepares the embedded talking clock, trains a tiny Tacotron 2 from
# nothing and tunes the voice's WaveGlow, which has the same speaker, for QUICKSTART_MINUTES (10) in all, speaks five times of day
# that were not in the training clips, and measures how well both voices speak. With --from-scratch WaveGlow begins from nothing
# too. Safe to run again: finished steps are not repeated, and more minutes go on where the last run ended. Everything lands in
# output/quickstart, with --from-scratch in output/quickstart_from_scratch.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt
exec .venv/bin/python -m scripts.quickstart --minutes "${QUICKSTART_MINUTES:-10}" "$@"
