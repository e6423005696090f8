#!/usr/bin/env bash
# Serve a model repository with Triton on a CPU: bash scripts/triton.sh [DIR [flags of tritonserver]].
#
# Creates .venv-triton if it is missing: PyTorch, the packages of the recipe and of its tests, and server 2.51 with its Python backend
# from the package nvidia-pytriton, for Linux on x86 with glibc 2.35. Without DIR it only installs. Safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
venv=.venv-triton
# numpy 2 corrupts the tensors of this server. One call, so that pip finds versions that fit each other.
choose_torch
packages=(nvidia-pytriton==0.7.0 "numpy<2" "${torch[@]}" pytest nbclient ipykernel)
lists=(requirements.txt requirements/triton.txt)
packages+=("${lists[@]/#/--requirement=}")
stamp=$venv/installed-$(cat "${lists[@]}" scripts/triton.sh | cksum | cut -d ' ' -f 1)
if [ ! -e "$stamp" ]; then
  [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
  echo "triton: installing ${packages[*]}"
  "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check "${packages[@]}"
  touch "$stamp"
fi
if [ $# -eq 0 ]; then
  echo "triton: $venv is ready"
  exit
fi
paths=$("$venv/bin/python" -c 'import sys, sysconfig; print(sysconfig.get_path("purelib"), sys.base_prefix, *sys.version_info[:2])')
read -r site base major minor <<<"$paths"
server=$site/pytriton/tritonserver
cp "$site/pytriton/tritonserver/python_backend_stubs/$major.$minor/triton_python_backend_stub" "$server/backends/python/"
export PATH=$PWD/$venv/bin:$PATH VIRTUAL_ENV=$PWD/$venv PYTHONPATH=$PWD
export LD_LIBRARY_PATH=$base/lib:$site/nvidia_pytriton.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
repository=$1
shift
exec "$server/bin/tritonserver" --model-repository "$repository" --backend-directory "$server/backends" "$@"
