"""Settings of the server: limits that the parser of flags does not reach, and values that appear twice."""

from __future__ import annotations

from typing import get_args

import pytest

from common.errors import UsageError
from common.web.sockets import LARGEST_PORT
from serving.config import FASTEST, LOUDEST, RATES, SLOWEST, ServingConfig
from serving.encoding import CODECS
from serving.schemas import BatchBody, Format, Rate, SpeechBody
from serving.stream import LARGEST_SIGMA, LARGEST_STRENGTH


@pytest.mark.parametrize("name", ["max_batch", "max_queue", "max_characters", "max_body", "max_inputs", "max_sockets"])
def test_a_limit_of_zero_is_refused(name: str) -> None:
    assert getattr(ServingConfig(**{name: 1}), name) == 1
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')}: 0, expected at least 1"):
        ServingConfig(**{name: 0})


def test_all_problems_are_one_error() -> None:
    with pytest.raises(UsageError) as error:
        ServingConfig(port=LARGEST_PORT + 1, grace=-1.0, timeout=float("nan"), api_key=" ", embedded=False)
    flags = [line.split(": ")[0] for line in str(error.value).splitlines()]
    assert flags == ["--port", "--timeout", "--grace", "--api-key", "--no-embedded"]


def test_requests_may_choose_all_formats() -> None:
    assert set(get_args(Format)) == set(CODECS) and get_args(Rate) == RATES


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("speed", (SLOWEST, FASTEST)),
        ("volume", (0, LOUDEST)),
        ("seed", (0, 2**32 - 1)),
        ("sigma", (0.0, LARGEST_SIGMA)),
        ("denoising_strength", (0.0, LARGEST_STRENGTH)),
    ],
)
def test_the_ends_of_each_range_are_allowed(name: str, values: tuple[float, float]) -> None:
    for value in values:
        assert getattr(SpeechBody.model_validate({"input": "Two.", name: value}), name) == value
    for value in (values[0] - 1, values[1] + 1):
        with pytest.raises(ValueError, match=name):
            SpeechBody.model_validate({"input": "Two.", name: value})


def test_a_batch_of_numbers_has_one_error() -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        BatchBody.model_validate({"input": [7] * 1000})
