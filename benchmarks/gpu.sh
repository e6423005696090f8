#!/usr/bin/env bash
# Measure everything on one GPU and write output/gpu/report.md: bash benchmarks/gpu.sh [minutes] [flags of benchmarks.gpu].
# Needs no network: uses the PyTorch in .venv if it exists, or the machine's own.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=../scripts/environment.sh
. scripts/environment.sh
project_python
exec "$python" -m benchmarks.gpu "$@"
