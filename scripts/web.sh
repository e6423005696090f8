#!/usr/bin/env bash
# Install ONNX Runtime Web for the demo page of exports/: bash scripts/web.sh. About 35 MB of downloads; needs npm.
#
# The package goes to node_modules/, which git ignores. Safe to run again: nothing is installed twice.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
command -v npm >/dev/null || {
  echo "error: no npm on PATH; install Node.js with npm" >&2
  exit 1
}
npm install --prefix . --no-save --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel error onnxruntime-web@1.30.0
echo "web: node_modules/onnxruntime-web is ready"
