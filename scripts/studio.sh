#!/usr/bin/env bash
# The studio's page on 127.0.0.1:8010: bash scripts/studio.sh [flags of python -m studio]. The first run downloads about 200 MB, and PyTorch.
#
# Creates .venv if it is missing, and installs requirements/studio.txt and, as scripts/evaluation.sh does, requirements/eval.txt (a
# speech recogniser with its weights). --install-only stops there; python -m studio.prepare, studio.plan and studio.train
# then do the same in a terminal. Safe to run again: nothing is installed twice.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt requirements/studio.txt
bash scripts/evaluation.sh || echo "studio: without the recogniser, recordings need transcripts, or --transcriber with an endpoint"
if [ "${1:-}" = --install-only ]; then
  echo "next: . .venv/bin/activate && python -m studio.prepare FOLDER --name NAME"
  exit 0
fi
echo "studio: starting the page"
exec .venv/bin/python -m studio "$@"
