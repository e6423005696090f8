"""Compare every fast way with its plain model, after an edit of either: python -m scripts.verify_fast_ways.

A fast way is not taken while its plain model is edited (docs/architecture.md, "Change a model"). This command runs the tests that
compare both, and where they pass it writes common/fast.json anew, so that the fast ways are taken again. It needs the packages of
tests/requirements.txt and half a minute, or none for edits of comments alone.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from common.checkpoint.files import load_checkpoint
from common.edits import DIGESTS, find_edits, take_digests
from common.errors import DataError, exit_on_user_error
from common.files import display_path, write_text
from common.inference.voice_folder import find_checkpoint
from common.parser import Parser
from common.spec import ModelSpec
from models import REGISTRY
from synthesizer import EMBEDDED

ROOT = Path(__file__).resolve().parent.parent
TESTS = ("tests/test_fast_ways.py", "tests/tacotron2/fast", "tests/waveglow/fast")


def plain_models() -> list[tuple[ModelSpec, nn.Module]]:
    """Models that have fast ways, in the embedded voice's sizes."""
    specs = [spec for spec in REGISTRY.values() if spec.fast_ways]
    files = [find_checkpoint(EMBEDDED, spec) for spec in specs]
    return [(spec, spec.build(**(load_checkpoint(path)["config"] if path else {}))) for spec, path in zip(specs, files)]


def digests_now(models: Sequence[tuple[ModelSpec, nn.Module]]) -> dict[str, Any]:
    """Digests of the plain models as they are now."""
    origins = [way.origin for spec, _ in models for way in spec.fast_ways if way.origin]
    return take_digests({name for origin in origins for name in origin.modules}, [model for _, model in models])


def main(argv: Sequence[str] | None = None) -> None:
    """Compare if there are edits, and write the digests. Raises DataError for a fast way that differs."""
    Parser(prog="python -m scripts.verify_fast_ways", description=__doc__).parse_args(argv)
    models, name = plain_models(), display_path(DIGESTS)
    origins = [(way.origin, model) for spec, model in models for way in spec.fast_ways if way.origin]
    if edits := dict.fromkeys(edit for origin, model in origins for edit in find_edits(origin, model)):
        print(f"edited: {', '.join(edits)}", flush=True)
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "not slow", *TESTS], cwd=ROOT, check=False)
        if done.returncode:
            raise DataError(
                f"{name}: left as it is, since a fast way differs from its plain model, which goes on running"
            )
    write_text(DIGESTS, json.dumps(digests_now(models), indent=1) + "\n")
    print(f"{name}: the fast ways compute what the plain models do, and are taken")


if __name__ == "__main__":
    with exit_on_user_error():
        main()
