#!/usr/bin/env bash
# Install the packages for the quality report: bash scripts/evaluation.sh. Needs a C++ compiler and about 110 MB of downloads.
#
# Creates .venv if it is missing and installs a speech recogniser, a predictor of opinion scores and a pitch tracker, weights
# included (requirements/eval.txt lists them with their licences). Safe to run again: nothing is installed twice.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt
stamp=.venv/installed-evaluation-$(cksum <requirements/eval.txt | cut -d ' ' -f 1)
if [ ! -e "$stamp" ]; then
  echo "evaluation: installing requirements/eval.txt"
  .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check --no-deps -r requirements/eval.txt
  touch "$stamp"
fi
echo "evaluation: .venv is ready to measure quality"
