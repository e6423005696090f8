#!/usr/bin/env bash
# run_latency_tests.sh on the CPU, even where there is a GPU: ./run_latency_tests_cpu.sh [benchmarks.latency flags]
# Single precision, a batch of 1, few iterations; its settings are those of run_latency_tests.sh.
set -euo pipefail
exec bash "$(dirname "$0")/run_latency_tests.sh" --cpu "$@"
