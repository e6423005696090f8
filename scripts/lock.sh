#!/usr/bin/env bash
# Renew the lock files in requirements/locks: bash scripts/lock.sh [flags of uv pip compile]. Needs a package index.
#
# A lock lists the exact version and SHA-256 of every package that a requirements file pulls in, for Python 3.10 and later on every
# system. All locks agree on versions, so any of them install together. Without flags, versions that still fit are kept; --upgrade
# takes the newest, --upgrade-package NAME the newest of one package. PyTorch is in none of them: which build to use, for CPUs or a
# CUDA version, is up to the user.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt tests/requirements.txt
locks=requirements/locks
common=$(mktemp)
trap 'rm -f "$common"' EXIT

# compile OUT REQUIREMENTS... [flags]
compile() {
  local out=$1
  shift
  UV_CUSTOM_COMPILE_COMMAND="bash scripts/lock.sh" "$venv/bin/uv" pip compile --quiet --universal --python-version 3.10 \
    --no-emit-index-url --no-emit-find-links --no-emit-package torch --output-file "$out" "$@"
}

# lock NAME REQUIREMENTS [flags]
lock() {
  echo "lock: $locks/$1"
  compile "$locks/$1" "$2" --generate-hashes --no-annotate "${@:3}"
}

cat $locks/*.txt >"$common" 2>/dev/null || true # versions to keep
compile "$common" requirements.txt requirements/{corpus,exports,serving,studio,triton,whisper}.txt tests/requirements.txt "$@"
lock eval.txt requirements/eval.txt --no-deps # as it is installed
lock tests.txt tests/requirements.txt --constraints "$common"
lock requirements.txt requirements.txt --constraints "$common"
for name in corpus exports serving studio triton whisper; do
  lock $name.txt requirements/$name.txt --constraints "$common"
done
