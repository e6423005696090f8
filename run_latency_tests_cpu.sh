#!/usr/bin/env bash
# Run run_latency_tests.sh on the CPU even if there is a GPU: ./run_latency_tests_cpu.sh [benchmarks.latency flags]
# Single precision, batches of 1 and 4, few iterations; the same variables and flags as run_latency_tests.sh.
set -euo pipefail
. "$(dirname "$0")/scripts/environment.sh"
exec bash "$(dirname "$0")/run_latency_tests.sh" --cpu "$@"
