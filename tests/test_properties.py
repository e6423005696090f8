"""Every reader of foreign input, on kept, changed and random input: a result or one clear error, in time and memory.

HYPOTHESIS_PROFILE=long runs 600 times as many examples, each time others.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis, of tests/requirements.txt, is not installed")
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from common.data.filelist import BadRows  # noqa: E402
from models import default_options  # noqa: E402
from serving.sentences import SentenceCutter  # noqa: E402
from tacotron2.data_function import encode  # noqa: E402
from tacotron2.spec import SPEC  # noqa: E402
from tests.fuzz import readers  # noqa: E402
from tests.fuzz.readers import CORPUS, LONGEST, TARGETS, check, warm_up  # noqa: E402

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
# What begins and ends sentences.
ENDS = (
    "One. |Dr. |Two|!\n|\n|\n\n|<b>|</b>|<br>|<p>|<img alt='a. b'>|<|{|}|{AH0}| |  |[pause:1s]|[|]|- |# |1. |> |Then"
    f"|{'word ' * 8}|\r\n|\v|…|。|?|a|I|x<y|- item\n|e.g. |no mark here but long enough to run on and on\n"
)
BLOCKS = st.lists(st.sampled_from(ENDS.split("|")), max_size=25).map("".join)


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    warm_up()


KEPT = {target: [path.read_bytes() for path in sorted((CORPUS / target).iterdir())] for target in TARGETS}
PLACES = st.integers(0, LONGEST)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["flip", "cut", "repeat", "splice"]), PLACES, PLACES), min_size=1, max_size=3
)


@pytest.mark.parametrize("target", TARGETS)
def test_kept_and_changed_inputs(target: str) -> None:
    for content in KEPT[target]:
        check(target, content)
    kept = st.sampled_from(KEPT[target])

    @SETTINGS
    @given(content=kept, other=kept, changes=CHANGES)
    def check_changed(content: bytes, other: bytes, changes: list[tuple[str, int, int]]) -> None:
        check(target, changed(content, other, changes))

    check_changed()


def changed(content: bytes, other: bytes, changes: list[tuple[str, int, int]]) -> bytes:
    """Flip bits, and cut parts out, repeat them, or take them from another input."""
    for kind, one, two in changes:
        start, end = sorted(place % (len(content) + 1) for place in (one, two))
        part = content[start:end]
        if kind == "flip":
            part = bytes([part[0] ^ 1 << one % 8]) + part[1:] if part else part
        else:
            part = {"cut": b"", "repeat": part * 2, "splice": other[start : start + two % 60]}[kind]
        content = content[:start] + part + content[end:]
    return content[:LONGEST]


def take_memory(megabytes: int) -> None:
    """Use new pages: a list or bytes may come from memory that earlier tests have freed and malloc has kept."""
    with mmap.mmap(-1, megabytes * 2**20) as area:
        area[:: mmap.PAGESIZE] = bytes(len(area) // mmap.PAGESIZE)


def fail(content: bytes, folder: Path) -> None:
    raise KeyError(content)


@pytest.mark.parametrize(
    ("reader", "error", "message"),
    [
        (fail, KeyError, "b'x'"),
        (lambda content, folder: take_memory(400), AssertionError, "MB of memory"),
        (lambda content, folder: sum(range(10**7)), AssertionError, "s of the processor"),
    ],
    ids=["exception", "memory", "time"],
)
def test_a_finding_is_reported(monkeypatch, reader, error: type[Exception], message: str) -> None:
    monkeypatch.setitem(readers.TARGETS, "plan", reader)
    monkeypatch.setattr(readers, "SECONDS", 0.01 if "processor" in message else 2.0)
    with pytest.raises(error, match=message):
        check("plan", b"x")


@pytest.mark.slow
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
    assert time.process_time() - start < SECONDS


@pytest.mark.slow
@SETTINGS
@given(text=st.one_of(TEXTS, NEIGHBOURS), limit=st.one_of(st.just(150), st.integers(0, 60)), choice=st.integers(0, 7))
def test_a_cut_text_is_read_as_the_whole(text: str, limit: int, choice: int) -> None:
    """With every list of cleaners and each reading."""
    check("text", bytes((limit, choice)) + text.encode())


@pytest.mark.slow
@SETTINGS
@given(text=st.one_of(TEXTS, BLOCKS), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_sentences_do_not_depend_on_how_a_text_is_cut(text: str, sizes: list[int]) -> None:
    def sentences(pieces: list[str]) -> list[str]:
        cutter = SentenceCutter(STAGES.sentence_ends)  # type: ignore[union-attr]
        return [sentence for piece in pieces for sentence in cutter.add(piece)] + cutter.finish()

    places = np.cumsum([0, *sizes, len(text)])
    assert sentences([text]) == sentences([text[start:end] for start, end in pairwise(places)])


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


@pytest.mark.slow
@SETTINGS
@given(config=CONFIGS)
def test_a_config_of_any_json(config: Any) -> None:
    check("config", json.dumps(config).encode())
