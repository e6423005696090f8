"""Properties of every reader of foreign input, on random and mutated input by hypothesis: a result or one clear error, in time.

HYPOTHESIS_PROFILE=long runs 600 times as many examples.
"""

from __future__ import annotations

import io
import json
import math
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis, of tests/requirements.txt, is not installed")
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from common.audio.audio_processing import read_audio  # noqa: E402
from common.checkpoint.files import load_checkpoint, save_checkpoint  # noqa: E402
from common.data.filelist import BadRows, read_filelist, read_phrases  # noqa: E402
from common.data.mels import load_mel, save_mel  # noqa: E402
from common.errors import DataError, UsageError  # noqa: E402
from common.training.arguments import parse_training_arguments  # noqa: E402
from models import REGISTRY, default_options  # noqa: E402
from serving.sentences import SentenceCutter  # noqa: E402
from tacotron2.data_function import TEXT_READINGS, encode  # noqa: E402
from tacotron2.spec import SPEC  # noqa: E402
from tacotron2.text import CLEANERS  # noqa: E402

pytestmark = pytest.mark.slow
SECONDS = 5  # of the processor for one example of a few hundred bytes: a hang, not a measurement
EXAMPLES = 50
OPTIONS = default_options()
SETTINGS = settings(
    max_examples=EXAMPLES * (600 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 1),
    deadline=None,
    database=None,
    derandomize=os.environ.get("HYPOTHESIS_PROFILE") != "long",
    suppress_health_check=list(HealthCheck),
)
STAGES = SPEC.inference
N_SYMBOLS = 148  # of the published alphabet
# Characters that the front end gives a meaning, beside all others.
MARKS = st.sampled_from(
    [*"0123456789.,:;-–/$€£%°{}[]()!?'\"&+*=#@ \t\nIVXLCdhrsmkgAaEtT", "Dr. ", "No. ", "a.m.", "{HH AH0"]
)
TEXTS = st.lists(st.one_of(MARKS, MARKS, st.characters(exclude_categories=["Cs"])), max_size=80).map("".join)

# Words whose reading depends on a neighbour, and marks between which a text is cut.
WORDS = (
    "No. |0|5 |Dr. |St. |st|co|Smith |$5 |million |May |5th |10 |a.m. |3 |1/2 |km |FBI |XIV |Chapter |a |A |Sun |Mon. |in |1998 |"
    "2 ft |v. |- |,|, |; |: |. |.| |\x85|—| — |–|。|：|、|Σ|ß|é|e\u0301|½|²|{HH AH0}|(|) |'s |\" |$|999|\u3000|İ"
)
NEIGHBOURS = st.lists(st.sampled_from([*WORDS.split("|"), "b" * 990, "9" * 990]), max_size=30).map("".join)
CLEANER_LISTS = [[name] for name in CLEANERS] + [["basic_cleaners", "english_cleaners"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("properties")


def in_time(start: float) -> None:
    assert time.process_time() - start < SECONDS


def mutate(contents: bytes, changes: list[tuple[int, int]], length: float) -> bytes:
    """Bytes with some replaced, each at a place modulo the length, and cut to a share of their length."""
    result = bytearray(contents)
    for place, value in changes:
        result[place % len(result)] = value
    return bytes(result[: math.ceil(length * len(result))])


CHANGES = st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), max_size=20)
LENGTH = st.one_of(st.just(1.0), st.floats(0, 1))


@SETTINGS
@given(text=TEXTS)
def test_a_text_has_ids_of_the_alphabet_or_is_a_bad_row(text: str) -> None:
    start = time.process_time()
    try:
        ids, lengths = encode([text], OPTIONS)
    except BadRows as error:
        assert list(error.problems) == [0] and str(error)
    else:
        symbols = STAGES.spell(text, OPTIONS)  # type: ignore[union-attr]
        assert ids.shape == (1, int(lengths[0])) and len(symbols) == int(lengths[0])
        assert int(ids.min()) >= 0 and int(ids.max()) < N_SYMBOLS
    in_time(start)


@SETTINGS
@given(
    text=st.one_of(TEXTS, NEIGHBOURS),
    limit=st.one_of(st.just(150), st.integers(0, 60)),
    cleaners=st.sampled_from(CLEANER_LISTS),
    reading=st.sampled_from(TEXT_READINGS),
)
def test_a_cut_text_is_read_as_the_whole(text: str, limit: int, cleaners: list[str], reading: str) -> None:
    """The letters, digits and ARPAbet of the pieces are those of the text, with every list of cleaners."""
    options = OPTIONS | {"text_cleaners": cleaners, "text_reading": reading}

    def words(text: str) -> list[str]:
        symbols = STAGES.spell(text, options)  # type: ignore[union-attr]
        return [symbol for symbol in symbols if symbol[-1].isalnum()]

    start = time.process_time()
    pieces = STAGES.pieces(text, limit, options)  # type: ignore[union-attr]
    assert all(piece.pause >= 0 for piece in pieces)
    try:
        whole = words(text)
    except DataError:
        assert [piece.text for piece in pieces] == [text]
    else:
        assert [symbol for piece in pieces for symbol in words(piece.text)] == whole
    in_time(start)


@SETTINGS
@given(text=TEXTS, sizes=st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_sentences_do_not_depend_on_how_a_text_is_cut(text: str, sizes: list[int]) -> None:
    def sentences(pieces: list[str]) -> list[str]:
        cutter = SentenceCutter(STAGES.sentence_ends)  # type: ignore[union-attr]
        return [sentence for piece in pieces for sentence in cutter.add(piece)] + cutter.finish()

    places = np.cumsum([0, *sizes, len(text)])
    assert sentences([text]) == sentences([text[start:end] for start, end in pairwise(places)])


@SETTINGS
@given(contents=st.one_of(st.binary(max_size=300), TEXTS.map(lambda text: text.replace(" ", "|").encode())))
def test_a_list_of_any_bytes(folder: Path, contents: bytes) -> None:
    path = folder / "list.txt"
    path.write_bytes(contents)
    for read in (read_filelist, read_phrases):
        try:
            assert read(path)
        except DataError as error:
            assert str(path) in str(error)


@pytest.fixture(scope="module")
def sounds() -> dict[str, bytes]:
    """A short sound in each format."""
    import soundfile

    samples, files = 0.1 * np.random.default_rng(0).normal(size=3000).clip(-5, 5), {}
    for name, subtype in (
        ("WAV", "PCM_16"),
        ("WAV", "FLOAT"),
        ("FLAC", "PCM_16"),
        ("OGG", "VORBIS"),
        ("AIFF", "PCM_24"),
    ):
        contents = io.BytesIO()
        soundfile.write(contents, samples, 22050, subtype, format=name)
        files[f"{name} {subtype}"] = contents.getvalue()
    return files


@SETTINGS
@given(data=st.data(), changes=CHANGES, length=LENGTH, in_header=st.booleans())
def test_a_mutated_sound(
    folder: Path, sounds: dict[str, bytes], data: Any, changes: Any, length: float, in_header: bool
) -> None:
    start = time.process_time()
    path = folder / "sound"
    changes = [(place % 60 if in_header else place, value) for place, value in changes]
    path.write_bytes(mutate(sounds[data.draw(st.sampled_from(sorted(sounds)))], changes, length))
    for rate in (22050, None):
        try:
            sound = read_audio(path, rate)
        except DataError as error:
            assert str(path) in str(error)
        else:
            assert torch.isfinite(sound.samples).all() and sound.samples.abs().max() <= 1 and len(sound.samples) < 10**7
    in_time(start)


@SETTINGS
@given(changes=CHANGES, length=LENGTH)
def test_a_mutated_mel(folder: Path, changes: Any, length: float) -> None:
    path = folder / "mel.pt"
    mel = torch.linspace(-11, 2, 80 * 9).view(80, 9)
    save_mel(path, mel)
    path.write_bytes(mutate(path.read_bytes(), changes, length))
    try:
        assert torch.equal(load_mel(path, 80), mel)
    except DataError as error:
        assert str(path) in str(error)


@SETTINGS
@given(changes=CHANGES, length=LENGTH, ending=st.sampled_from([".pt", ".safetensors"]))
def test_a_mutated_checkpoint(folder: Path, changes: Any, length: float, ending: str) -> None:
    whole, path = folder / f"whole{ending}", folder / f"mutated{ending}"
    weights = {"a": torch.arange(50.0), "b": torch.ones(3, 4)}
    if not whole.exists():
        if ending == ".pt":
            save_checkpoint(whole, {"state_dict": weights, "epoch": 3})
        else:
            safetensors = pytest.importorskip("safetensors.torch")
            safetensors.save_file(weights, whole)
    path.write_bytes(mutate(whole.read_bytes(), changes, length))
    try:
        found = load_checkpoint(path)["state_dict"]
    except DataError as error:
        assert str(path) in str(error)
    else:
        assert ending == ".safetensors" or all(torch.equal(found[name], weights[name]) for name in weights)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=8,
)
FLAG_NAMES = st.sampled_from(
    ["epochs", "batch-size", "learning-rate", "amp", "anneal-steps", "model-name", "output", "seed", "x"]
)
CONFIGS = st.one_of(
    JSON, st.dictionaries(st.text(max_size=5), st.dictionaries(FLAG_NAMES, JSON, max_size=3), max_size=3)
)


@SETTINGS
@given(config=CONFIGS)
def test_a_config_of_any_json(folder: Path, config: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    try:
        args, _ = parse_training_arguments(["-m", SPEC.name, "-o", "x", "--config-file", str(path)], REGISTRY, "")
    except UsageError as error:
        assert str(error)
    except SystemExit as error:  # the parser's own message about a value
        assert error.code == 2
    else:
        assert args.data.batch_size >= 1
