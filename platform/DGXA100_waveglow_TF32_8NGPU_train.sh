#!/usr/bin/env bash
exec bash "$(dirname "$0")/launch.sh" WaveGlow 8 -bs 4 "$@"
