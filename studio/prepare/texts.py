"""The text of every clip: from subtitles, from a transcript with or without alignment, or from recognised words.

These are a recogniser's, on every core, or a transcription endpoint's. Where they have times, as Whisper's do, the sentences of a
recording without a text become its subtitles.

A recording whose transcript has no times is first cut at every pause, and each part is recognised: a pause at a comma may be
longer than one at the end of a sentence, so it takes the words to find where sentences end.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from common.audio.audio_processing import read_audio
from common.data.languages import name_of
from common.data.parallel import stream_parallel
from common.data.sources import SourceFile
from common.data.text_files import ends_sentence, plain_text
from common.errors import DataError, UsageError
from common.progress import show_progress
from common.quality.moonshine import Moonshine
from common.quality.recogniser import COUNTING, ENGLISH, installers
from common.quality.whisper import INSTALL, TimedWord, Whisper, find_weights
from common.quality.words import Errors, character_errors, comparable, word_errors
from studio.prepare.alignment import assign_words, find_longest_pauses
from studio.prepare.arguments import KEY_VARIABLE, PrepareOptions, TextConfig
from studio.prepare.clips import CutRecording, CutRecordings, CuttingJob, cut_parts
from studio.prepare.ledger import ClipSound, remembered
from studio.prepare.transcripts import GAP, Cue, Transcript

ENDPOINT = "/audio/transcriptions"  # of OpenAI's API, below the base URL
TIMEOUT = 120.0  # seconds, of one request
TRIES, FIRST_WAIT = 4, 1.0  # requests to a busy endpoint; seconds before the second, doubling each time
BUSY = frozenset({408, 429, 500, 502, 503, 504})
RECOGNISED = "recognised"
NOT_COMPARED = math.nan, math.nan  # shares of words and letters
LONGEST_GAP = 1.5  # seconds; words further apart are of two sentences
WORDS = "words.jsonl"  # in the project's state: words by recogniser and digest
PARTS = "parts"  # in the project's state: a folder that is removed once all clips are cut


def add_recognised(jobs: Sequence[CuttingJob], options: PrepareOptions) -> list[CuttingJob]:
    """Add what recognised words say of recordings longer than a clip: a text, or where to divide the one they have.

    Raises DataError if packages are missing, or the endpoint refuses.
    """
    jobs = _hear_sentences(jobs, options) if options.texts.has_times else jobs
    return _recognise_parts(jobs, options)


def _cut_parts(jobs: Sequence[CuttingJob], options: PrepareOptions) -> tuple[list[CutRecording], list[ClipSound]]:
    """Cut the recordings whose words are needed at their pauses, and return them, and the sounds of all parts."""
    folder = options.project.state / PARTS
    work = partial(cut_parts, folder=folder)
    found = stream_parallel(work, jobs, options.num_workers, "cutting at pauses", "recording", 1)
    recordings = [recording for recording in found if recording]
    return recordings, [part.sound(folder) for recording in recordings for part in recording.clips]


def _hear_sentences(jobs: Sequence[CuttingJob], options: PrepareOptions) -> list[CuttingJob]:
    """Add the recognised sentences, with their times, to jobs without a text whose recordings are longer than a clip."""
    config, workers = options.texts, options.num_workers
    wanting = [job._replace(recogniser=config.source) for job in jobs if job.transcript is None]
    recordings, sounds = _cut_parts(wanting, options)
    hear = partial(stream_parallel, partial(_timed_words, config=config), workers=workers, title="recognising", chunk=1)
    words = remembered(options.project.state / WORDS, sounds, hear, f"{config.source} times ")
    heard = {r.name: sentences(r, [words[part.digest] for part in r.clips]) for r in recordings}
    return [job._replace(transcript=heard.get(job.source.name, job.transcript)) for job in jobs]


def sentences(recording: CutRecording, words: Sequence[Sequence[Sequence[Any]]]) -> Transcript | None:
    """Return the sentences of the words (start, end, text) recognised in each stretch of a recording; None without a word."""
    cues: list[Cue] = []
    for part, found in zip(recording.clips, words, strict=True):
        is_open = False  # nothing is known of a sentence that goes on in the next stretch
        for start, end, text in found:
            begins, ends, text = part.start + start, part.start + end, plain_text(text)
            if is_open and begins - cues[-1].end < LONGEST_GAP:
                cues[-1] = Cue(cues[-1].start, ends, f"{cues[-1].text} {text}")
            else:
                cues.append(Cue(begins, max(ends, begins + GAP), text))
            is_open = not ends_sentence(text)
    return Transcript(RECOGNISED, " ".join(cue.text for cue in cues), tuple(cues)) if cues else None


def _recognise_parts(jobs: Sequence[CuttingJob], options: PrepareOptions) -> list[CuttingJob]:
    """Add the words of their parts to jobs whose text has sentence ends or times, unless their clips exist already."""
    config = options.texts
    jobs = [job._replace(recogniser=config.source) if _is_divided_by_words(job) else job for job in jobs]
    recordings, sounds = _cut_parts([job for job in jobs if job.recogniser], options)
    words = recognise(sounds, options)
    of_parts = {recording.name: [words[part.digest] for part in recording.clips] for recording in recordings}
    named = [(job, of_parts.get(job.source.name)) for job in jobs]
    return [job if words is None else _with_words(job, words, config.code) for job, words in named]


def _with_words(job: CuttingJob, words: Sequence[str], language: str) -> CuttingJob:
    assert job.transcript is not None
    pauses = () if job.transcript.cues else find_longest_pauses(job.transcript.text, words, language)
    return job._replace(words=tuple(words), longest_pauses=tuple(pauses))


def _is_divided_by_words(job: CuttingJob) -> bool:
    """Return True for a text with times, or one without in which a sentence ends before the last word."""
    if job.transcript is None:
        return False
    return bool(job.transcript.cues) or any(map(ends_sentence, job.transcript.text.split()[:-1]))


class ClipText(NamedTuple):
    """The text of a clip, where it comes from, and the recognised words; shares are nan if nothing was compared."""

    text: str
    source: str
    recognised: str
    words_wrong: float  # share of the text's words that differ from the recognised ones
    letters_wrong: float  # likewise, without spaces: "under score" has no errors


def needs_words(recording: CutRecording, transcript: Transcript | None) -> bool:
    """Return True if a recording's clips need recognised words to have a text."""
    return transcript is None or (not transcript.cues and len(recording.clips) > 1)


def has_words(recording: CutRecording, transcript: Transcript | None) -> bool:
    """Return True if a recording's clips have the recognised words of their parts."""
    return transcript is not None and not transcript.cues and any(clip.text for clip in recording.clips)


def texts_of(
    recording: CutRecording, transcript: Transcript | None, words: Mapping[str, str] | None, language: str
) -> list[ClipText]:
    """Return the texts of a recording's clips, in order; `words` are those recognised by the clips' digests, if any were."""
    recognised = [words[clip.digest] if words else "" for clip in recording.clips]
    if transcript is None:
        return [ClipText(text, RECOGNISED, text, *NOT_COMPARED) for text in recognised]
    texts = _texts_of_transcript(recording, transcript, recognised, language)
    return [
        ClipText(text, transcript.origin, found, *(shares_wrong(text, found, language) if words else NOT_COMPARED))
        for text, found in zip(texts, recognised, strict=True)
    ]


def _texts_of_transcript(
    recording: CutRecording, transcript: Transcript, recognised: Sequence[str], language: str
) -> list[str]:
    if transcript.cues:
        return [clip.text for clip in recording.clips]
    if len(recording.clips) == 1:
        return [transcript.text]
    return assign_words(transcript.text, recognised, language)


def shares_wrong(text: str, recognised: str, language: str) -> tuple[float, float]:
    """Return the shares of a text's words and letters that differ, at most 1; nan for a text without words."""
    wanted, found = ("".join(words.split()) for words in comparable(text, recognised, language))
    words, letters = word_errors(text, recognised, language), character_errors(wanted, found, language)
    return _share(words), _share(letters)


def _share(errors: Errors) -> float:
    return min(1.0, errors.rate) if errors.count else math.nan


def transcribe_all(cut: CutRecordings, options: PrepareOptions) -> dict[str, list[ClipText]]:
    """Return the texts of all clips by recording."""
    config = options.texts
    wanting = [r for r in cut.recordings if needs_words(r, cut.transcripts.get(r.name))]
    chosen = cut.recordings if config.verify and config.source else wanting
    words = {clip.digest: clip.text for r in chosen if has_words(r, cut.transcripts.get(r.name)) for clip in r.clips}
    clips = [clip for r in chosen for clip in r.clips if clip.digest not in words]
    sounds = [clip.sound(options.project.clips) for clip in clips]
    words |= recognise(sounds, options, is_last=True)
    words_of = {recording.name: words for recording in chosen}
    named = [(r, cut.transcripts.get(r.name), words_of.get(r.name)) for r in cut.recordings]
    return {r.name: texts_of(r, transcript, found, config.code) for r, transcript, found in named}


def check_recogniser(
    sources: Sequence[SourceFile], transcripts: Mapping[str, Transcript], options: PrepareOptions
) -> None:
    """Raise DataError for what would end the run after hours: missing packages, or no text at all in an unknown language."""
    config = options.texts
    wanting = [source for source in sources if source.name not in transcripts]
    if len(wanting) == len(sources) and not config.source:
        raise DataError(without_recogniser(wanting[0].path, config.code))
    recognises, own = bool(config.source and (wanting or config.verify)), not config.transcriber
    if recognises and not own:
        _import_httpx()
    missing = [name for name in config.missing if recognises and (own or name in COUNTING)]
    if not options.allow_several_speakers and find_spec("resemblyzer") is None:
        missing.append("resemblyzer")
    if missing:
        raise DataError(f"not installed: {', '.join(missing)}; {installers(missing)}")
    if recognises and own and config.is_whisper:
        find_weights(config.place)  # which may be downloaded


def without_recogniser(path: Path, language: str) -> str:
    """Say that a recording has no transcript, or is longer than a clip, and nothing recognises its words."""
    return (
        f"{path}: no text with times, and nothing installed recognises {name_of(language)}: {INSTALL}; or"
        f" write {path.stem}.srt, divide it into clips with a text each, or use --transcriber URL"
    )


def recognise(sounds: Sequence[ClipSound], options: PrepareOptions, is_last: bool = False) -> dict[str, str]:
    """Return the words of clips by digest; those in the project's ledger are not recognised again.

    The last call of a run sorts it. Raises DataError if packages are missing, or the endpoint refuses.
    """

    def compute(paths: Sequence[Path]) -> Iterator[str]:
        return map(plain_text, _recognise_all(paths, options.texts, options.num_workers))

    tidy = (lambda ledger: sorted(ledger.values)) if is_last else None
    return remembered(options.project.state / WORDS, sounds, compute, f"{options.texts.source} ", tidy)


def _recognise_all(paths: Sequence[Path], config: TextConfig, workers: int) -> Iterator[str]:
    if not paths:
        return
    if config.transcriber is None:
        yield from stream_parallel(partial(transcribe, config=config), paths, workers, "recognising")
        return
    with _client() as client, ThreadPoolExecutor(config.transcriber_requests) as pool:
        results = pool.map(partial(request_words, client=client, config=config), paths)
        yield from show_progress(results, len(paths), "transcribing", "clip")


@cache
def _recogniser(config: TextConfig) -> Whisper | Moonshine:
    """Load the recogniser once a worker; on one thread, so that its results do not depend on the number of cores."""
    return config.load(threads=1)


def transcribe(path: Path, config: TextConfig) -> str:
    """Return the words of a clip."""
    audio = read_audio(path, None)
    return _recogniser(config)(audio.samples.numpy(), audio.rate)


def _timed_words(path: Path, config: TextConfig) -> list[TimedWord]:
    """Return the words of a stretch of speech, with their times in it."""
    audio = read_audio(path, None)
    whisper = _recogniser(config)
    assert isinstance(whisper, Whisper)
    return whisper.timed_words(audio.samples.numpy(), audio.rate)


def _import_httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise UsageError("--transcriber: needs httpx; pip install -r requirements/studio.txt installs it") from None
    return httpx


def _client() -> Any:
    httpx = _import_httpx()
    key = os.environ.get(KEY_VARIABLE, "").strip()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(timeout=TIMEOUT, headers=headers)


def request_words(path: Path, client: Any, config: TextConfig) -> str:
    """Send a clip to the endpoint and return its words. Raises DataError with the endpoint's message."""
    import httpx

    assert config.transcriber is not None
    url = config.transcriber.rstrip("/")
    url = url if url.endswith(ENDPOINT) else url + ENDPOINT
    data = {"model": config.transcriber_model, "response_format": "json", "language": config.language or ENGLISH}
    problem = ""
    for number in range(TRIES):
        if number:
            time.sleep(FIRST_WAIT * 2 ** (number - 1))
        try:
            answer = client.post(url, data=data, files={"file": (path.name, path.read_bytes(), "audio/wav")})
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            problem = str(error) or type(error).__name__
            continue
        if answer.status_code == httpx.codes.OK:
            return _text_of(answer, url)
        problem = f"{answer.status_code} {answer.text[:200].strip()}"
        if answer.status_code not in BUSY:
            break
    key = "" if os.environ.get(KEY_VARIABLE) else f"; put a key into the environment variable {KEY_VARIABLE}"
    raise DataError(
        f"--transcriber {url}: {problem}{key}; the words so far are stored; run the command again to continue"
    )


def _text_of(answer: Any, url: str) -> str:
    try:
        text = answer.json()["text"]
    except (ValueError, KeyError, TypeError):
        text = None
    if not isinstance(text, str):
        raise DataError(f"--transcriber {url}: answered {answer.text[:100]!r}, expected JSON with the key text")
    return text
