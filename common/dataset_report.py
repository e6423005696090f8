"""Earlier name of scripts.dataset_report: python -m common.dataset_report still runs it."""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("scripts.dataset_report", run_name="__main__")
