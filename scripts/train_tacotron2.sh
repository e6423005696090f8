#!/usr/bin/env bash
# Train Tacotron 2 on every GPU, or on the CPU: bash scripts/train_tacotron2.sh [train.py flags]. Checkpoints and logs land in output/.
# Settings that are not named here are train.py's defaults: batch size and annealing follow --amp.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
project_python
exec "$python" -m multiproc train.py -m Tacotron2 -o output --cudnn-enabled "$@"
