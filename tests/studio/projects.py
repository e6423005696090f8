"""Projects for tests: as studio.prepare writes them, of a few clips of the embedded corpus."""

from __future__ import annotations

import soundfile

from studio.project import Project
from tests.recipe import ROOT, SHORT_CLIPS


def make_project(project: Project, training: int = 5, validation: int = 2) -> Project:
    """Write the clips and the filelists of a project."""
    rows = (ROOT / "filelists" / "clock_audio_text_train_filelist.txt").read_text().splitlines()
    project.clips.mkdir(parents=True)
    project.training_list.parent.mkdir()
    lines = []
    for number in SHORT_CLIPS[: training + validation]:
        path, text = rows[number - 1].split("|")
        audio, rate = soundfile.read(ROOT / path)
        soundfile.write(project.clips / f"{number}.wav", audio, rate, subtype="PCM_16")
        lines.append(f"clips/{number}.wav|{text}\n")
    project.training_list.write_text("".join(lines[:training]))
    project.validation_list.write_text("".join(lines[training:]))
    return project
