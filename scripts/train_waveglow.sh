#!/usr/bin/env bash
# Train WaveGlow on every GPU, or on the CPU: bash scripts/train_waveglow.sh [train.py flags]. Checkpoints and logs land in output/.
# Settings that are not named here are train.py's defaults: the batch size follows --amp.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
project_python
exec "$python" -m multiproc train.py -m WaveGlow -o output --grad-clip-thresh 65504.0 --cudnn-enabled --cudnn-benchmark "$@"
