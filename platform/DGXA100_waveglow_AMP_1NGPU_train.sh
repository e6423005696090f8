#!/usr/bin/env bash
exec bash "$(dirname "$0")/launch.sh" WaveGlow 1 -bs 10 --amp "$@"
