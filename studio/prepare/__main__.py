"""Make training data from a folder of recordings: python -m studio.prepare FOLDER --name NAME. docs/own-voice.md describes it."""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import shutil

from common.data.parallel import stream_parallel
from common.data.sources import drop_copies, find_sources
from common.errors import DataError, exit_on_user_error, join_problems, listed
from studio.prepare import report, review
from studio.prepare.arguments import VALIDATION, PrepareOptions, parse_args
from studio.prepare.clips import CutRecording, CutRecordings, CuttingJob, cut_recording, remove_stale
from studio.prepare.edits import apply_edits
from studio.prepare.lists import choose_alphabet, training_options, write_lists, write_settings
from studio.prepare.matching import find_transcripts
from studio.prepare.proposals import propose, refuse_untrainable
from studio.prepare.speakers import compare_voices
from studio.prepare.texts import (
    PARTS,
    check_recogniser,
    needs_words,
    recognise_parts,
    transcribe_all,
    without_recogniser,
)
from studio.project import lock_project


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
    rows = refuse_untrainable(project, rows, training_options(alphabet, options.cutting.sampling_rate))
    edits = review.carry_edits(rows, *review.read_earlier(project))
    write_settings(options, alphabet)
    review.write_all(project, edits.rows, rows)
    remove_stale(project, cut.recordings)
    problems = [*cut.problems, *report.describe_short(cut.recordings, cut.transcripts)]
    report.store_lines(project.left_out, problems)
    for line in [*report.describe_problems(problems), *report.describe_recordings(cut.recordings, edits.rows)]:
        print(line, flush=True)
    try:
        training, validation = write_lists(project, edits.rows, options.validation or VALIDATION)
    except DataError as error:
        raise DataError("\n".join([str(error), *report.causes(project, edits.rows, options.texts.language)])) from None
    print("\n".join(report.summary(project, edits, training, validation, alphabet)))


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
    problems += [without_recogniser(folder / recording.name, options.texts.language) for recording in wordless]
    if not recordings:
        raise DataError(join_problems([*problems, f"{folder}: none of its recordings can be used"]))
    return CutRecordings(recordings, transcripts, problems)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
