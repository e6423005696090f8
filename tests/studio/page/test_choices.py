"""The voice that the fields of the page choose first."""

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
def test_a_finished_voice_is_chosen_once_it_is_there(keys, before, chosen, expected) -> None:
    assert choose_key(keys, before, chosen, [FINISHED, EMBEDDED_KEY]) == expected


def test_the_embedded_voice_comes_before_one_that_is_worse(tmp_path) -> None:
    project = Project(name="mine", projects=tmp_path)
    project.voice.mkdir(parents=True)
    worse = '{"verdict": {"lines": [], "prefers_embedded": true}}'
    for config in (worse, worse.replace("true", "1"), '{"verdict": 3}', "{}", "["):
        (project.voice / "config.json").write_text(config)
        assert default_voices(project)[0] == (EMBEDDED_KEY if config == worse else FINISHED)
