"""The process of the fuzzer: `python -m tests.fuzz.fuzzer TARGET` with the options of libFuzzer. Use `python -m tests.fuzz`."""

from __future__ import annotations

import sys

import atheris
import inflect  # noqa: F401
import numpy  # noqa: F401
import safetensors.torch  # noqa: F401
import scipy.signal  # noqa: F401
import soundfile  # noqa: F401
import torch  # noqa: F401  # these packages are imported before instrumentation begins

OWN = ["common", "tacotron2", "waveglow", "models", "synthesizer", "exports", "serving", "studio"]

with atheris.instrument_imports(include=OWN):
    from tests.fuzz.targets import check, warm_up


def main() -> None:
    """Fuzz a target without end, as libFuzzer's options say."""
    target, *options = sys.argv[1:]
    warm_up()
    atheris.Setup([sys.argv[0], *options], lambda content: check(target, bytes(content)))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
