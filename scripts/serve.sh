#!/usr/bin/env bash
# Serve the embedded voice on 127.0.0.1:8000: bash scripts/serve.sh [flags of python -m serving]. About 150 MB of downloads at first.
#
# Makes .venv first if it is not there, and adds requirements/serving.txt to it. --install-only ends there. Safe to run again: nothing
# is installed twice.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt requirements/serving.txt
[ "${1:-}" != --install-only ] || exit 0
exec .venv/bin/python -m serving "$@"
