#!/usr/bin/env bash
# Run the tests: bash scripts/test.sh [pytest arguments]. Creates .venv if it is missing; --install-only ends there. Needs no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt tests/requirements.txt
[ "${1:-}" != --install-only ] || exit 0
# One thread a process and one process a core: more threads wait for each other in small operations.
export OMP_NUM_THREADS=1
# Whole files go to the processes, in the order of tests/conftest.py: the longest first.
exec "$venv/bin/python" -m pytest -n auto --dist loadfile --no-loadscope-reorder "$@"
