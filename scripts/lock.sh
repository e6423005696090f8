#!/usr/bin/env bash
# Renew the lock files in requirements/locks: bash scripts/lock.sh [flags of uv pip compile]. Needs a package index.
#
# A lock lists the exact version and the SHA-256 of every package that a requirements file brings, for Python 3.10 and later on every
# system. All locks have the same versions, so that any of them install together. Without flags, versions that still fit stay;
# --upgrade takes the newest ones, --upgrade-package NAME those of one package. PyTorch is in none of them: its builds for CPUs and
# for each CUDA are the user's choice.
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
compile "$common" requirements.txt requirements/{exports,serving,studio,triton}.txt tests/requirements.txt "$@"
lock eval.txt requirements/eval.txt --no-deps # as it is installed
lock tests.txt tests/requirements.txt --constraints "$common"
lock requirements.txt requirements.txt --constraints "$common"
for name in exports serving studio triton; do
  lock $name.txt requirements/$name.txt --constraints "$common"
done
