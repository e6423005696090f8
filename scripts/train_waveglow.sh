#!/usr/bin/env bash
# Train WaveGlow on every GPU, or on the CPU: bash scripts/train_waveglow.sh [train.py flags]. Checkpoints and logs go to output/.
# Mixed precision. Flags at the end take precedence: --no-amp trains in float32. The batch size follows the precision.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
project_python
exec "$python" -m multiproc train.py -m WaveGlow -o output --amp --grad-clip-thresh 65504.0 --cudnn-enabled --cudnn-benchmark "$@"
