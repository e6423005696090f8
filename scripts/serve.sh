#!/usr/bin/env bash
# Serve the embedded voice on 127.0.0.1:8000: bash scripts/serve.sh [flags of python -m serving]. Installs its packages first.
#
# Creates .venv if it is missing and installs requirements/serving.txt into it, about 1.9 GB with PyTorch. --install-only stops after
# that. Safe to run again: nothing is installed twice.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt requirements/serving.txt
[ "${1:-}" != --install-only ] || exit 0
exec .venv/bin/python -m serving "$@"
