"""Settings of the server: limits that the parser of flags does not reach, and values that appear twice."""

from typing import get_args

import pytest

from common.errors import UsageError
from common.web.sockets import LARGEST_PORT
from serving.config import FASTEST, LOUDEST, RATES, SLOWEST, ServingConfig
from serving.encoding import CODECS
from serving.schemas import BatchBody, Format, Rate, SpeechBody
from serving.stream import LARGEST_SIGMA, LARGEST_STRENGTH


def test_all_problems_are_one_error() -> None:
    counts = ("max_batch", "max_queue", "max_characters", "max_body", "max_inputs", "max_sockets")
    wrong = {"port": -1, "wyoming_port": LARGEST_PORT + 1, "speed": 4.1, "volume": -0.1, "sentence_pause": -1.0}
    wrong |= dict.fromkeys(counts, 0) | {"timeout": float("nan"), "idle_timeout": 0.0, "grace": -1.0, "api_key": " "}
    with pytest.raises(UsageError) as error:
        ServingConfig(**wrong, embedded=False)
    lines = str(error.value).splitlines()
    flags = {f"--{name.replace('_', '-')}: {value}, expected" for name, value in wrong.items()}
    assert {line[: line.index("expected") + 8] for line in lines[:-1]} == flags and len(lines) == len(wrong) + 1
    assert lines[-1].startswith("--no-embedded: no voice is left") and "--port: -1, expected 0 to 65535" in lines
    ServingConfig(**dict.fromkeys(counts, 1), port=LARGEST_PORT, speed=4.0, volume=0.0, sentence_pause=0.0, grace=0.0)


def test_requests_may_choose_all_formats() -> None:
    assert set(get_args(Format)) == set(CODECS) and get_args(Rate) == RATES


def test_the_ends_of_each_range_are_allowed() -> None:
    ranges = {"speed": (SLOWEST, FASTEST), "volume": (0, LOUDEST), "seed": (0, 2**32 - 1)}
    ranges |= {"sigma": (0.0, LARGEST_SIGMA), "denoising_strength": (0.0, LARGEST_STRENGTH)}
    for name, (least, most) in ranges.items():
        for value in (least, most):
            assert getattr(SpeechBody.model_validate({"input": "Two.", name: value}), name) == value
        for value in (least - 1, most + 1):
            with pytest.raises(ValueError, match=name):
                SpeechBody.model_validate({"input": "Two.", name: value})


def test_a_batch_of_numbers_has_one_error() -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        BatchBody.model_validate({"input": [7] * 1000})
