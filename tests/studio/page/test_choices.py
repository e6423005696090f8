"""The voice that the fields of the page choose first."""

from __future__ import annotations

import pytest

from studio.page.choices import EMBEDDED_KEY, FINISHED, choose_key, default_voices
from studio.project import Project

RUN = "Tacotron2 last"


@pytest.mark.parametrize(
    ("keys", "before", "chosen", "expected"),
    [
        ([EMBEDDED_KEY], [], None, EMBEDDED_KEY),
        ([FINISHED, EMBEDDED_KEY], [], None, FINISHED),
        # The page went on with the embedded voice after a training.
        ([FINISHED, RUN, EMBEDDED_KEY], [EMBEDDED_KEY], EMBEDDED_KEY, FINISHED),
        ([RUN, EMBEDDED_KEY], [EMBEDDED_KEY], EMBEDDED_KEY, EMBEDDED_KEY),
        ([FINISHED, RUN, EMBEDDED_KEY], [FINISHED, EMBEDDED_KEY], EMBEDDED_KEY, EMBEDDED_KEY),
        ([FINISHED, EMBEDDED_KEY], [FINISHED, RUN, EMBEDDED_KEY], RUN, FINISHED),
        ([], [EMBEDDED_KEY], EMBEDDED_KEY, None),
    ],
)
def test_a_finished_voice_is_chosen_once_it_is_there(
    keys: list[str], before: list[str], chosen: str | None, expected: str | None
) -> None:
    assert choose_key(keys, before, chosen, [FINISHED, EMBEDDED_KEY]) == expected


@pytest.mark.parametrize(
    ("config", "first"),
    [
        ("{}", FINISHED),
        ('{"verdict": {"lines": [], "prefers_embedded": true}}', EMBEDDED_KEY),
        ('{"verdict": {"lines": [], "prefers_embedded": 1}}', FINISHED),
        ('{"verdict": 3}', FINISHED),
        ("[", FINISHED),
    ],
)
def test_the_embedded_voice_comes_before_one_that_is_worse(tmp_path, config: str, first: str) -> None:
    project = Project(name="mine", projects=tmp_path)
    project.voice.mkdir(parents=True)
    (project.voice / "config.json").write_text(config)
    assert default_voices(project)[0] == first
