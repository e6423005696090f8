#!/usr/bin/env bash
exec bash "$(dirname "$0")/launch.sh" WaveGlow 4 -bs 4 --grad-clip-thresh 3.4028234663852886e+38 "$@"
