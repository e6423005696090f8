#!/usr/bin/env bash
# Install the packages that exports/ needs for ONNX: bash scripts/exports.sh. About 60 MB of downloads.
#
# Creates .venv if it is missing and installs requirements/exports.txt into it. Safe to run again: nothing is installed twice.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt
stamp=.venv/installed-exports-$(cksum <requirements/exports.txt | cut -d ' ' -f 1)
if [ ! -e "$stamp" ]; then
  echo "exports: installing requirements/exports.txt"
  .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check --no-deps -r requirements/exports.txt
  touch "$stamp"
fi
echo "exports: .venv is ready to export"
