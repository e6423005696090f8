"""The report of a corpus by its earlier name: python -m common.dataset_report runs scripts.dataset_report."""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("scripts.dataset_report", run_name="__main__")
