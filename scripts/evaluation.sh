#!/usr/bin/env bash
# Install the packages for the quality report: bash scripts/evaluation.sh. About 110 MB of downloads.
#
# Creates .venv if it is missing and installs a speech recogniser, predictors of opinion scores and a pitch tracker, weights included
# (requirements/eval.txt lists them with their licences). What cannot be installed on a machine is left out: pesq and pyworld without
# a C++ compiler, moonshine-voice on an old or rare system. Safe to run again: nothing is installed twice.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt
stamp=.venv/installed-evaluation-$(cksum <requirements/eval.txt | cut -d ' ' -f 1)
if [ ! -e "$stamp" ]; then
  echo "evaluation: installing requirements/eval.txt"
  compiler="a C++ compiler: apt install g++ python3-dev, or xcode-select --install"
  while IFS=: read -r package measures needs; do
    wanted=$(grep -E "$package" requirements/eval.txt)
    printf '%s\n' "$wanted" >"$stamp.list"
    .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check --no-deps -r "$stamp.list" 2>"$stamp.log" && continue
    [ -n "$measures" ] || { cat "$stamp.log" >&2 && exit 1; }
    echo "evaluation: without ${wanted%%=*}, hence $measures; it needs $needs ($stamp.log)" >&2
    left_out=yes
  done <<END
^[^#]*(onnx|tokenizers|jiwer|RapidFuzz|distillmos|xls-r|speechmos|pystoi|resemblyzer)::
^moonshine-voice:no transcripts and counts of wrong words:Linux with glibc 2.34, macOS 15 on ARM, or Windows
^pesq:no PESQ:$compiler
^pyworld:no pitch and MCD:$compiler
END
  [ -n "${left_out:-}" ] || touch "$stamp"
fi
echo "evaluation: .venv is ready to measure quality"
