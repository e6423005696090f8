"""Measure training or inference, under the published name: python main.py --bench-class perf-train | perf-infer [flags].

The flags are those of train.py, or of benchmarks.latency.
"""

import runpy
import sys

FLAG, INFERENCE = "--bench-class", "perf-infer"

if __name__ == "__main__":
    if FLAG in sys.argv and INFERENCE in sys.argv:
        sys.argv.remove(FLAG)
        sys.argv.remove(INFERENCE)
        runpy.run_module("benchmarks.latency", run_name="__main__", alter_sys=True)
    else:
        runpy.run_module("train", run_name="__main__", alter_sys=True)
