"""The rows of the review as `studio.prepare` proposes them: each clip with its text and its faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from studio.prepare import review
from studio.prepare.arguments import PrepareOptions
from studio.prepare.clips import CutClip, CutRecordings
from studio.prepare.faults import Candidate, find_faults, is_usable
from studio.prepare.lists import Options, select_usable, training_problems
from studio.prepare.speakers import ComparedVoices, find_copies
from studio.prepare.texts import RECOGNISED, ClipText
from studio.project import Project


def propose(
    cut: CutRecordings, texts: Mapping[str, Sequence[ClipText]], voices: ComparedVoices, options: PrepareOptions
) -> list[review.ClipRow]:
    """Return a row for every clip, with its faults."""
    clips = [(recording.name, clip) for recording in cut.recordings for clip in recording.clips]
    of_clips = [text for recording in cut.recordings for text in texts[recording.name]]
    doubles = _find_doubles([clip for _, clip in clips], of_clips, voices.embeddings)
    candidates = [
        Candidate(
            clip.seconds,
            text.text,
            clip.in_speech,
            clip.measures,
            text.words_wrong,
            text.letters_wrong,
            clip.name in voices.others,
            doubles.get(clip.name, ""),
            clip.silence,
        )
        for (_, clip), text in zip(clips, of_clips, strict=True)
    ]
    faults = find_faults(candidates, options.cutting, options.limits)
    return [
        review.ClipRow(
            review.YES if is_usable(found) else review.NO,
            clip.name,
            recording,
            f"{clip.start:.3f}",
            f"{clip.end:.3f}",
            text.text,
            text.source,
            text.recognised,
            review.share(text.words_wrong),
            "; ".join(found),
        )
        for (recording, clip), text, found in zip(clips, of_clips, faults, strict=True)
    ]


def _find_doubles(clips: Sequence[CutClip], texts: Sequence[ClipText], embeddings: np.ndarray | None) -> dict[str, str]:
    """Return the original of each clip that repeats another one; it has a text by people if one has, and the wider bandwidth."""
    worth = [(text.source == RECOGNISED, -clip.measures.bandwidth) for clip, text in zip(clips, texts, strict=True)]
    order = sorted(range(len(clips)), key=worth.__getitem__)
    if embeddings is None:  # only the same samples are known to repeat
        first: dict[str, int] = {}
        copies = {i: first[clips[i].digest] for i in order if first.setdefault(clips[i].digest, i) != i}
    else:
        copies = find_copies(embeddings, [clip.seconds for clip in clips], order)
    return {clips[copy].name: clips[original].name for copy, original in copies.items()}


def refuse_untrainable(project: Project, rows: Sequence[review.ClipRow], options: Options) -> list[review.ClipRow]:
    """Add a fault to the rows that training would refuse."""
    problems = training_problems(project, select_usable(rows), options)

    def refuse(row: review.ClipRow) -> review.ClipRow:
        faults = filter(None, [row.faults, f"text ({problems[row.clip]})"])
        return row._replace(use=review.NO, faults="; ".join(faults))

    return [refuse(row) if row.clip in problems else row for row in rows]
