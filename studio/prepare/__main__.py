"""Make training data from a folder of recordings: python -m studio.prepare FOLDER --name NAME. docs/own-voice.md describes it."""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import shutil

from common.data.parallel import stream_parallel
from common.data.sources import Listing, drop_copies, find_sources
from common.errors import DataError, exit_on_user_error, join_problems, listed
from studio.prepare import report, review
from studio.prepare.arguments import PrepareOptions, parse_args
from studio.prepare.clips import CutRecording, CutRecordings, CuttingJob, cut_recording, remove_stale
from studio.prepare.edits import apply_edits
from studio.prepare.faults import propose
from studio.prepare.language import check_texts, refuse_gibberish, with_language
from studio.prepare.lists import settings_of, write_corpus
from studio.prepare.matching import find_transcripts
from studio.prepare.speakers import compare_voices
from studio.prepare.texts import (
    PARTS,
    add_recognised,
    check_recogniser,
    needs_words,
    transcribe_all,
    without_recogniser,
)
from studio.project import lock_project


def main(argv: list[str] | None = None) -> None:
    """Prepare a project, or apply the edits in its review."""
    options = parse_args(argv)
    with lock_project(options.project):
        if options.apply:
            print("\n".join(apply_edits(options.project, validation=options.validation)))
        else:
            prepare(options)


def prepare(options: PrepareOptions) -> None:
    """Cut, transcribe and check the recordings; write the review and the filelists."""
    project = options.project
    listing = list_recordings(options)
    options = with_language(listing.sources, options)
    cut = cut_all(listing, options)
    voices = compare_voices(cut, options)
    texts = transcribe_all(cut, options)
    refuse_gibberish(texts.values(), options)
    edits = review.renew(project, propose(cut, texts, voices, options))
    remove_stale(project.state, project.clips, cut.recordings)
    for line in report.describe_cut(project, cut, edits.rows):
        print(line, flush=True)
    try:
        corpus = write_corpus(project, edits.rows, settings_of(options))
    except DataError as error:
        raise DataError("\n".join([str(error), *report.causes(project, edits.rows)])) from None
    print("\n".join(report.summary(project, edits, corpus)))


def list_recordings(options: PrepareOptions) -> Listing:
    """List the folder's files. Raises DataError if no recording is among them."""
    folder = options.folder
    assert folder is not None
    listing = find_sources(folder)
    unread = listing.describe_others()
    if not listing.sources:
        found = listed([file.name for file in listing.others], 5) or "nothing"
        problem = f"{folder}: no recordings, only {found}; expected wav, flac, mp3, m4a …"
        raise DataError(join_problems([*listing.problems, problem]))
    if unread:
        print(f"not read, since their endings are those of neither recordings nor transcripts: {unread}")
    return listing


def cut_all(listing: Listing, options: PrepareOptions) -> CutRecordings:
    """Cut all recordings. Raises DataError if none can be read, or their texts are in another language."""
    project, folder, config = options.project, options.folder, options.texts
    assert folder is not None
    matches = find_transcripts(listing, config.language or "")
    for line in report.describe_fates(project, matches.fates):
        print(line, flush=True)
    transcripts = dict(matches.transcripts)
    check_texts(transcripts, options)
    sources, copies = drop_copies(listing.sources, transcripts)
    check_recogniser(sources, transcripts, options)
    places = options.cutting, project.state, project.clips, config.code
    jobs = [CuttingJob(source, transcripts.get(source.name), *places) for source in sources]
    jobs = add_recognised(jobs, options)
    transcripts |= {job.source.name: job.transcript for job in jobs if job.transcript}
    results = list(stream_parallel(cut_recording, jobs, options.num_workers, "cutting", "recording", 1))
    shutil.rmtree(project.state / PARTS, ignore_errors=True)
    recordings = [result for result in results if isinstance(result, CutRecording)]
    wordless = [] if config.source else [r for r in recordings if needs_words(r, transcripts.get(r.name))]
    recordings = [recording for recording in recordings if recording not in wordless]
    unused = [str(fate) for fate in matches.fates if not fate.is_used]
    problems = [*listing.problems, *copies, *unused, *(result for result in results if isinstance(result, str))]
    problems += [without_recogniser(folder / recording.name, config.code) for recording in wordless]
    if not recordings:
        raise DataError(join_problems([*problems, f"{folder}: none of its recordings can be used"]))
    return CutRecordings(recordings, transcripts, problems)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
