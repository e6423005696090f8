"""The files of a demo page that runs tts.onnx in a browser with ONNX Runtime Web; `scripts/web.sh` installs that from npm."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from common.errors import UsageError
from common.options import from_options
from tacotron2.data_function import Tacotron2DataConfig

PAGE = Path(__file__).resolve().parent / "page"  # index.html and its style and scripts
RUNTIME = PAGE.parents[1] / "node_modules" / "onnxruntime-web" / "dist"
RUNTIME_FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
CLEANERS = ["english_cleaners"]  # those that page/text.js translates
REQUIRED, FIXED = ("seeds", "max_steps"), ("sigma", "strength")  # inputs with a default in the single file


def check_page(options: Mapping[str, Any]) -> None:
    """Raise UsageError if a voice's texts need another front end than the page has."""
    if (found := list(options["text_cleaners"])) != CLEANERS:
        raise UsageError(
            f"web: the voice's text cleaners are {', '.join(found) or 'none'}; expected english_cleaners, "
            "as the page's front end reads English"
        )


def missing_runtime() -> str:
    """The missing files of ONNX Runtime Web and how to install them; "" if none is missing."""
    missing = [name for name in RUNTIME_FILES if not (RUNTIME / name).is_file()]
    return f"{', '.join(missing)}: not in {RUNTIME}; `bash scripts/web.sh` installs them with npm" if missing else ""


def page_files(options: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of all files except tts.onnx: the page, the voice's alphabet and the runtime."""
    for path in [*sorted(PAGE.iterdir()), *(RUNTIME / name for name in RUNTIME_FILES)]:
        yield path.name, path.read_bytes()
    symbols = from_options(Tacotron2DataConfig, options).alphabet.symbols
    yield "alphabet.json", json.dumps(symbols, ensure_ascii=False).encode()


def without_defaults(model: Any) -> Any:
    """Make the inputs in REQUIRED mandatory and those in FIXED constant, as ONNX Runtime Web does not support default values."""
    for value in [value for value in model.graph.initializer if value.name in REQUIRED]:
        model.graph.initializer.remove(value)
    for value in [value for value in model.graph.input if value.name in FIXED]:
        model.graph.input.remove(value)
    return model
