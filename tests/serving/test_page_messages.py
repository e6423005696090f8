"""Messages of the page: those of the API, without the flags of the server."""

from __future__ import annotations

import pytest

from serving.errors import overload_error, timeout_error

pytest.importorskip("gradio", reason="gradio, of requirements/serving.txt, is not installed")

from serving.page.speaking import visitor_message


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "input: 1010 characters, expected at most 1000 (--max-characters)",
            "text: 1010 characters, expected at most 1000",
        ),
        ("input: text: '{' at character 1", "text: '{' at character 1"),
        ("denoising_strength: nan, expected 0 to 10", "denoiser strength: nan, expected 0 to 10"),
        (str(overload_error(3)), "the server has 3 requests in its queue; try again later"),
        (str(timeout_error(20)), "the audio was not ready within 20 seconds"),
        ("seed: -1, expected 0 to 4294967295", "seed: -1, expected 0 to 4294967295"),
    ],
)
def test_a_visitor_reads_no_flag_of_the_server(message: str, expected: str) -> None:
    assert visitor_message(message) == expected
