#!/usr/bin/env bash
# Install Whisper, which recognises a hundred languages: bash scripts/whisper.sh. About 260 MB of downloads.
#
# Creates .venv if it is missing, and installs requirements/whisper.txt with the weights of the size base. studio.prepare, studio.train,
# train.py and evaluate.py then use it for all languages but English, and for English with --recogniser whisper. Larger sizes, such as
# --recogniser whisper:small, are downloaded from huggingface.co on first use. Safe to run again: nothing is installed twice.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt requirements/whisper.txt
