#!/usr/bin/env bash
exec bash "$(dirname "$0")/launch.sh" Tacotron2 1 -bs 128 --anneal-factor 0.1 "$@"
