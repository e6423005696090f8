"""Time inference, under a published name: python test_infer.py -bs 4 --fp16; see benchmarks.latency."""

import runpy

if __name__ == "__main__":
    runpy.run_module("benchmarks.latency", run_name="__main__", alter_sys=True)
