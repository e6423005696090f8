#!/usr/bin/env bash
# Install the packages of studio/: bash scripts/studio.sh. About 150 MB of downloads; needs a C++ compiler.
#
# Makes .venv first if it is not there, and adds requirements-eval.txt (a speech recogniser with its weights, a pitch tracker) and
# requirements-studio.txt. Safe to run again: nothing is installed twice.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt requirements-studio.txt
bash scripts/evaluation.sh
echo "studio: ready; .venv/bin/python -m studio.prepare --help"
