# shellcheck shell=bash
# Functions for other scripts to source: a virtual environment in .venv with PyTorch and the given requirement files. Safe to run
# again: nothing is installed twice. PYTHON selects the interpreter, TORCH another PyTorch than the tested one, VENV another folder.
venv=${VENV:-.venv}

prepare_environment() {
  local python=${PYTHON:-python3} torch=${TORCH:-torch==2.13.0} stamp wanted
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "error: $("$python" --version 2>&1), expected Python 3.10 or later; choose one with PYTHON=/path/to/python3" >&2
    return 2
  }
  if [ ! -x "$venv/bin/python" ]; then
    echo "environment: creating $venv"
    if "$python" -c 'import torch' 2>/dev/null; then
      "$python" -m venv --system-site-packages "$venv" # use a container's own PyTorch
    else
      "$python" -m venv "$venv"
    fi
  fi
  if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
    echo "environment: installing $torch"
    "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check "$torch"
  fi
  stamp=$venv/installed-$(cat "$@" | cksum | cut -d ' ' -f 1)
  if [ ! -e "$stamp" ]; then
    echo "environment: installing $*"
    for wanted in "$@"; do
      "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check -r "$wanted"
    done
    touch "$stamp"
  fi
  echo "environment: $venv is ready ($("$venv/bin/python" -c 'import platform, torch; print("Python", platform.python_version() + ", PyTorch", torch.__version__)'))"
}

# project_python: set $python to .venv's interpreter if there is one, else to the one on PATH, such as a container's.
project_python() {
  for python in "$venv/bin/python" python python3; do
    if command -v "$python" >/dev/null 2>&1; then return; fi
  done
  echo "error: no Python here, neither $venv/bin/python nor python on PATH; bash scripts/test.sh makes $venv" >&2
  return 1
}
