#!/usr/bin/env bash
# Run the tests: bash scripts/test.sh [pytest arguments]. Makes .venv first if it is not there. Needs no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt tests/requirements.txt
# One thread a process and a process a core: with more, small operations spend their time waiting for each other.
export OMP_NUM_THREADS=1
exec .venv/bin/python -m pytest -n auto --dist loadfile "$@"
