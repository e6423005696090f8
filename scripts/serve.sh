#!/usr/bin/env bash
# Serve the embedded voice on 127.0.0.1:8000: bash scripts/serve.sh [flags of python -m serving]. The first run needs about 1.9 GB.
#
# Creates .venv if needed and installs requirements/serving.txt into it; --install-only stops there. Safe to run again: nothing is
# installed twice.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt requirements/serving.txt
[ "${1:-}" != --install-only ] || exit 0
exec .venv/bin/python -m serving "$@"
