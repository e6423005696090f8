#!/usr/bin/env bash
# Run the tests: bash scripts/test.sh [pytest arguments]. Creates .venv if it is missing. Needs no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt tests/requirements.txt
# One thread a process and one process a core: more threads wait for each other in small operations.
export OMP_NUM_THREADS=1
exec "$venv/bin/python" -m pytest -n auto --dist loadfile "$@"
