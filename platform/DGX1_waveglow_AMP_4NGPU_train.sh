#!/usr/bin/env bash
exec bash "$(dirname "$0")/launch.sh" WaveGlow 4 -bs 10 --amp "$@"
