#!/usr/bin/env bash
# Run the fast tests on each supported Python: bash scripts/versions.sh [VERSION...] [-- pytest arguments]. The default is 3.10 to 3.13.
#
# Creates an environment .venv-VERSION for each, with an interpreter of this machine (or of pyenv), or a downloaded one if none fits.
# TORCH selects another PyTorch than the tested one, as in scripts/test.sh. The last lines show the result of each version.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare_environment requirements.txt tests/requirements.txt
uv=$PWD/$venv/bin/uv
versions=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  versions+=("$1")
  shift
done
[ $# -eq 0 ] || shift # the --
[ ${#versions[@]} -gt 0 ] || versions=(3.10 3.11 3.12 3.13)
interpreters=$(printf '%s:' "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin)$PATH

# find_python VERSION: print its path.
find_python() {
  PATH=$interpreters "$uv" python find --no-project --system --no-python-downloads "$1" 2>/dev/null
}

# test_on PYTHON [pytest arguments], in the environment $venv
test_on() {
  PYTHON=$1 prepare_environment requirements.txt requirements/{exports,serving}.txt tests/requirements.txt &&
    OMP_NUM_THREADS=1 "$venv/bin/python" -m pytest -n auto --dist loadfile -m "not slow" "${@:2}"
}

results=() code=0
for version in "${versions[@]}"; do
  if ! python=$(find_python "$version" || { "$uv" python install --quiet "$version" && find_python "$version"; }); then
    results+=("Python $version: not available") code=1
  elif venv=.venv-$version test_on "$python" "$@"; then
    results+=("Python $version: passed")
  else
    results+=("Python $version: failed") code=1
  fi
done
printf '%s\n' "${results[@]}"
exit $code
