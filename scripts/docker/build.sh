#!/usr/bin/env bash
# Build the image `tacotron2`: bash scripts/docker/build.sh [docker build options], such as --build-arg FROM_IMAGE_NAME=IMAGE.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
exec docker build . --rm -t tacotron2 "$@"
