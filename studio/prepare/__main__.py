"""Make training data from a folder of recordings: python -m studio.prepare FOLDER --name NAME. docs/own-voice.md describes it."""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import json
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.data.parallel import stream_parallel
from common.data.sources import SourceFile, drop_copies, find_sources
from common.errors import DataError, exit_on_user_error, join_problems, listed
from common.files import parse_json, write_text
from studio.prepare import report, review
from studio.prepare.arguments import VALIDATION, PrepareOptions, parse_args
from studio.prepare.clips import CutClip, CutRecording, CuttingJob, cut_recording
from studio.prepare.faults import Candidate, find_faults, is_usable
from studio.prepare.ledger import Ledger
from studio.prepare.lists import AlphabetChoice, Options, choose_alphabet, select_usable, training_problems, write_lists
from studio.prepare.matching import find_transcripts
from studio.prepare.speakers import ALIKE, SEVERAL, Sound, describe_voices, find_copies, find_voices, is_sound_only
from studio.prepare.texts import (
    PARTS,
    RECOGNISED,
    WORDS,
    ClipText,
    check_packages,
    has_words,
    needs_words,
    recognise,
    recognise_parts,
    texts_of,
)
from studio.prepare.transcripts import Transcript
from studio.project import Project, lock_project, read_settings


class CutRecordings(NamedTuple):
    """Recordings with their clips, transcripts by recording, and the problems of recordings left out."""

    recordings: list[CutRecording]
    transcripts: Mapping[str, Transcript]
    problems: list[str]


def main(argv: list[str] | None = None) -> None:
    """Prepare a project, or apply the edits in its review."""
    options = parse_args(argv)
    with lock_project(options.project):
        if options.apply:
            apply_edits(options)
        else:
            prepare(options)


def prepare(options: PrepareOptions) -> None:
    """Cut, transcribe and check the recordings; write the review and the filelists."""
    project = options.project
    cut = cut_all(options)
    voices = compare_voices(cut, options)
    rows = propose(cut, transcribe_all(cut, options), voices, options)
    alphabet = choose_alphabet([row.text for row in rows if row.text], options.texts.language)
    rows = _refuse_untrainable(project, rows, _training_options(alphabet, options.cutting.sampling_rate))
    edits = review.carry_edits(rows, *_earlier(project))
    _write_settings(options, alphabet)
    review.write_review(project.review, review.sort_worst_first(edits.rows))
    review.store_proposals(project.proposals, rows)
    _remove_stale(project, cut.recordings)
    problems = [*cut.problems, *report.describe_short(cut.recordings, cut.transcripts)]
    report.store_lines(project.left_out, problems)
    for line in [*report.describe_problems(problems), *report.describe_recordings(cut.recordings, edits.rows)]:
        print(line, flush=True)
    try:
        training, validation = write_lists(project, edits.rows, options.validation or VALIDATION)
    except DataError as error:
        raise DataError("\n".join([str(error), *report.causes(project, edits.rows, options.texts.language)])) from None
    print("\n".join(report.summary(project, edits, training, validation, alphabet)))


def settings_of(project: Project) -> dict[str, Any]:
    """Return the settings of the last run. Raises DataError if they are missing, damaged, or lack the entries that edits need."""
    path, settings = project.settings, read_settings(project)
    again = project.command("studio.prepare", "FOLDER", "--name")
    try:
        language, rate = settings["texts"]["language"], settings["cutting"]["sampling_rate"]
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: cannot be used (no entry {error}); run {again} again") from None
    if not isinstance(language, str) or type(rate) is not int or rate < 1:
        found = f"texts.language {language!r} and cutting.sampling_rate {rate!r}"
        raise DataError(f"{path}: {found}, expected a string and a rate in Hz; run {again} again")
    validation = settings.setdefault("validation", VALIDATION)
    if not isinstance(validation, (int, float)) or not validation > 0:
        raise DataError(f"{path}: validation {validation!r}, expected a number of clips or a share; run {again} again")
    return settings


def apply_edits(options: PrepareOptions) -> None:
    """Read the edited clips.tsv, and write the filelists again."""
    project = options.project
    project.require(project.review, "studio.prepare FOLDER --name")
    by_line = review.read_review(project.review, review.read_proposals(project.proposals))
    lines, rows = {row.clip: line for line, row in by_line.items()}, list(by_line.values())
    if problems := edit_problems(project, rows):
        raise DataError(join_problems([f"{project.review}:{lines[clip]}: {text}" for clip, text in problems.items()]))
    print("\n".join(apply_rows(project, rows, options.validation)))


def edit_problems(project: Project, rows: Sequence[review.ClipRow]) -> dict[str, str]:
    """Return why training would refuse rows in use, by clip."""
    settings = settings_of(project)
    alphabet = choose_alphabet([row.text for row in select_usable(rows)], settings["texts"]["language"])
    options = _training_options(alphabet, settings["cutting"]["sampling_rate"])
    return {clip: f"text: {text}" for clip, text in training_problems(project, select_usable(rows), options).items()}


def apply_rows(project: Project, rows: Sequence[review.ClipRow], validation: float | None = None) -> list[str]:
    """Write the filelists and the alphabet of rows without problems. Returns the lines of a summary.

    `validation` is a number of clips or a share; None means as in the last run.
    """
    settings = settings_of(project)
    settings["validation"] = validation or settings["validation"]
    alphabet = choose_alphabet([row.text for row in select_usable(rows)], settings["texts"]["language"])
    _write_alphabet(project, settings, alphabet)
    parts = write_lists(project, rows, settings["validation"])
    proposals = review.read_proposals(project.proposals)
    edits = review.carry_edits(proposals, rows, proposals)
    return report.summary(project, review.CarriedEdits(list(rows), edits.n_edited, []), *parts, alphabet)


def cut_all(options: PrepareOptions) -> CutRecordings:
    """Cut all recordings of the folder. Raises DataError if it has none that can be read."""
    project, folder = options.project, options.folder
    assert folder is not None
    listing = find_sources(folder)
    if not listing.sources:
        found = listed([path.name for path in listing.others], 5) or "nothing"
        problem = f"{folder}: no recordings, only {found}; expected wav, flac, mp3, m4a …"
        raise DataError(join_problems([*listing.problems, problem]))
    if others := listing.describe_others(folder):
        print(f"not read, since their endings are those of neither recordings nor transcripts: {others}")
    matches = find_transcripts(folder, listing.sources, listing.others, options.texts.language)
    for line in report.describe_fates(matches.fates):
        print(line, flush=True)
    report.store_lines(project.transcripts, matches.fates)
    transcripts = matches.transcripts
    sources, copies = drop_copies(listing.sources, transcripts)
    check_recogniser(sources, transcripts, options)
    jobs = [CuttingJob(s, transcripts.get(s.name), options.cutting, project.state, project.clips) for s in sources]
    jobs = recognise_parts(jobs, project, options.texts, options.num_workers)
    results = list(stream_parallel(cut_recording, jobs, options.num_workers, "cutting", "recording", 1))
    shutil.rmtree(project.state / PARTS, ignore_errors=True)
    recordings = [result for result in results if isinstance(result, CutRecording)]
    wordless = [] if options.texts.recogniser else [r for r in recordings if needs_words(r, transcripts.get(r.name))]
    recordings = [recording for recording in recordings if recording not in wordless]
    unused = [str(fate) for fate in matches.fates if not fate.is_used]
    problems = [*listing.problems, *copies, *unused, *(result for result in results if isinstance(result, str))]
    problems += [_without_recogniser(folder / recording.name, options.texts.language) for recording in wordless]
    if not recordings:
        raise DataError(join_problems([*problems, f"{folder}: none of its recordings can be used"]))
    return CutRecordings(recordings, transcripts, problems)


def check_recogniser(
    sources: Sequence[SourceFile], transcripts: Mapping[str, Transcript], options: PrepareOptions
) -> None:
    """Raise DataError for what would end the run later: missing packages, or no text at all in an unknown language."""
    config = options.texts
    wanting = [source for source in sources if source.name not in transcripts]
    if len(wanting) == len(sources) and not config.recogniser:
        raise DataError(_without_recogniser(wanting[0].path, config.language))
    check_packages(config, bool(wanting), not options.allow_several_speakers)


def _without_recogniser(path: Path, language: str) -> str:
    """Say that a recording has no transcript, or is longer than a clip, and nothing recognises its words."""
    return (
        f"{path}: no text with times, and the built-in recogniser reads English alone (--language {language}): "
        f"write {path.stem}.srt, divide it into clips with a text each, or use --transcriber URL"
    )


def transcribe_all(cut: CutRecordings, options: PrepareOptions) -> dict[str, list[ClipText]]:
    """Return the texts of all clips by recording."""
    config = options.texts
    wanting = [r for r in cut.recordings if needs_words(r, cut.transcripts.get(r.name))]
    chosen = cut.recordings if config.verify and config.recogniser else wanting
    words = {clip.digest: clip.text for r in chosen if has_words(r, cut.transcripts.get(r.name)) for clip in r.clips}
    clips = [clip for r in chosen for clip in r.clips if clip.digest not in words]
    sounds = [clip.sound(options.project.clips) for clip in clips]
    with Ledger(options.project.state / WORDS) as ledger:
        words |= recognise(sounds, config, ledger, options.num_workers)
        ledger.keep_only(sorted(ledger.values))
    words_of = {recording.name: words for recording in chosen}
    return {r.name: texts_of(r, cut.transcripts.get(r.name), words_of.get(r.name)) for r in cut.recordings}


class ComparedVoices(NamedTuple):
    """The clips in another voice than most, and the embedding (K, D) of each clip, or without one None."""

    others: set[str]
    embeddings: np.ndarray | None


def compare_voices(cut: CutRecordings, options: PrepareOptions) -> ComparedVoices:
    """Find the clips in another voice than most. Raises DataError if they are many and several speakers are not allowed."""
    if options.allow_several_speakers:
        return ComparedVoices(set(), None)
    clips = [clip for recording in cut.recordings for clip in recording.clips]
    sounds = [clip.sound(options.project.clips) for clip in clips]
    with Ledger(options.project.state / "voices.jsonl") as ledger:
        embeddings = describe_voices(sounds, ledger, options.num_workers)
        ledger.keep_only(sorted(sound.digest for sound in sounds))
    voices = find_voices(embeddings)
    ours = sorted(set(range(len(clips))) - set(voices.others))
    one, other = (_sound_of([clips[index] for index in group]) for group in (ours, voices.others))
    if voices.others and is_sound_only([sounds[index] for index in ours], one, embeddings[voices.others], other):
        return ComparedVoices(set(), embeddings)
    others = {clips[index].name for index in voices.others}
    if len(others) >= SEVERAL * len(clips):
        names = sorted({r.name for r in cut.recordings for clip in r.clips if clip.name in others})
        raise DataError(
            f"several speakers: {len(others)} of {len(clips)} clips have another voice than the others (similarity"
            f" {voices.likeness:.2f}, expected at least {ALIKE:g}): {', '.join(names[:10])}{' …' * (len(names) > 10)}\n"
            "A voice is learned from one speaker: move the others' recordings to another folder, or use all of them with"
            " --allow-several-speakers"
        )
    return ComparedVoices(others, embeddings)


def _sound_of(clips: Sequence[CutClip]) -> Sound:
    snrs, widths = [clip.measures.snr for clip in clips], [clip.measures.bandwidth for clip in clips]
    return Sound(statistics.median(snrs or [0.0]), statistics.median(widths or [0.0]))


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


def _training_options(alphabet: AlphabetChoice, sampling_rate: int) -> Options:
    return {"text_cleaners": alphabet.cleaners, "symbols": alphabet.symbols, "sampling_rate": sampling_rate}


def _refuse_untrainable(project: Project, rows: Sequence[review.ClipRow], options: Options) -> list[review.ClipRow]:
    """Add a fault to the rows that training would refuse."""
    problems = training_problems(project, select_usable(rows), options)

    def refuse(row: review.ClipRow) -> review.ClipRow:
        faults = filter(None, [row.faults, f"text ({problems[row.clip]})"])
        return row._replace(use=review.NO, faults="; ".join(faults))

    return [refuse(row) if row.clip in problems else row for row in rows]


def _earlier(project: Project) -> tuple[list[review.ClipRow], list[review.ClipRow]]:
    """Return the edited table of an earlier run, and its rows before the edits."""
    proposals = review.read_proposals(project.proposals)
    if not project.review.is_file() or not proposals:
        return [], []
    return list(review.read_review(project.review, proposals).values()), proposals


def _write_settings(options: PrepareOptions, alphabet: AlphabetChoice) -> None:
    settings = {
        "recordings": str(options.folder.resolve()) if options.folder else "",
        "sampling_rate": options.cutting.sampling_rate,
        "cutting": asdict(options.cutting),
        "texts": asdict(options.texts),
        "validation": options.validation or VALIDATION,
    }
    _write_alphabet(options.project, settings, alphabet)


def _write_alphabet(project: Project, settings: dict[str, object], alphabet: AlphabetChoice) -> None:
    """Write project.json with the flags of train.py that suit the texts, and symbols.txt if they need it."""
    settings["text_cleaners"] = alphabet.cleaners
    settings["symbols_file"] = project.symbols.name if alphabet.symbols else None
    if alphabet.symbols:
        write_text(project.symbols, "".join(f"{symbol}\n" for symbol in alphabet.symbols))  # for --symbols-file
    else:
        project.symbols.unlink(missing_ok=True)
    write_text(project.settings, f"{json.dumps(settings, indent=1, ensure_ascii=False)}\n")


def _remove_stale(project: Project, recordings: Sequence[CutRecording]) -> None:
    """Remove the records and the clips of recordings that are gone or were cut differently."""
    records = {f"{recording.key}.json" for recording in recordings}
    clips = {clip.name for recording in recordings for clip in recording.clips}
    for path in project.state.glob("*.json"):
        if path.name not in records:
            for clip in _clips_of(path) - clips:
                (project.clips / f"{clip}.wav").unlink(missing_ok=True)
            path.unlink()


def _clips_of(record: Path) -> set[str]:
    try:
        return {row[0] for row in parse_json(record.read_bytes())[-1] if "/" not in row[0]}
    except (OSError, ValueError, TypeError, IndexError):
        return set()


if __name__ == "__main__":
    with exit_on_user_error():
        main()
