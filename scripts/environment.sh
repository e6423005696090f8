# shellcheck shell=bash
# Functions for other scripts to source: a virtual environment in .venv with PyTorch and the given requirement files. Safe to run
# again: nothing is installed twice. PYTHON selects the interpreter, VENV another folder, and TORCH, in the words of pip install, another
# PyTorch than the tested one: TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cu126" bash scripts/quickstart.sh.
venv=${VENV:-.venv}

# usage: print the comment at the head of the script. A script that sources this file answers --help before it installs anything.
usage() {
  local script=$0
  [ -e "$script" ] || script=$OLDPWD/$0 # scripts go to the project's folder first
  sed -n '2,/^set/ s/^# \{0,1\}//p' "$script"
}
case ${1:-} in -h | --help) usage && exit 0 ;; esac

# answers URL: whether a server answers within seconds. pip would ask an unreachable index once for every package.
answers() {
  "${PYTHON:-python3}" -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=10).close()' "$1" 2>/dev/null
}

# PyTorch's own index has a build for CPUs, a tenth of the default one for Linux, which brings CUDA's libraries.
choose_torch() {
  local index=https://download.pytorch.org/whl/cpu
  torch=(torch==2.13.0)
  if [ -n "${TORCH:-}" ]; then
    read -ra torch <<<"$TORCH"
  elif [ "$(uname)" = Linux ] && ! [ -e /proc/driver/nvidia/version ] && ! [ -e /usr/lib/wsl/lib/nvidia-smi ]; then
    if answers "$index/torch/"; then
      torch+=(--extra-index-url "$index")
      echo "environment: no NVIDIA GPU here: PyTorch's build for CPUs; TORCH chooses another"
    else
      echo "environment: no answer from $index, which has PyTorch's build for CPUs: pip takes what its own index has"
    fi
  fi
}

prepare_environment() {
  local python=${PYTHON:-python3} torch stamp wanted
  "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' || {
    echo "error: $("$python" --version 2>&1), expected Python 3.10 to 3.13; choose one with PYTHON=/path/to/python3" >&2
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
    choose_torch
    echo "environment: installing ${torch[0]}"
    "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check "${torch[@]}"
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
  echo "error: no Python here, neither $venv/bin/python nor python on PATH; bash scripts/speak.sh --install-only makes $venv" >&2
  return 1
}
