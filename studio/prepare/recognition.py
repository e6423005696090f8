"""The words of clips, from the built-in recogniser on every core or from a transcription endpoint."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common.audio.audio_processing import read_audio
from common.data.parallel import stream_parallel
from common.data.text_files import plain_text
from common.errors import DataError, UsageError
from common.progress import show_progress
from common.quality.evaluators import INSTALL
from common.quality.recogniser import Recogniser
from studio.prepare.arguments import KEY_VARIABLE, TextConfig
from studio.prepare.ledger import ClipSound, Ledger

ENDPOINT = "/audio/transcriptions"  # of OpenAI's API, below the base URL
TIMEOUT = 120.0  # seconds, of one request
TRIES, FIRST_WAIT = 4, 1.0  # requests to a busy endpoint; seconds before the second, doubling each time
BUSY = frozenset({408, 429, 500, 502, 503, 504})


def check_packages(config: TextConfig, is_needed: bool, compares_voices: bool) -> None:
    """Raise DataError, before hours of work, if packages are missing.

    Args:
        config: of the recogniser.
        is_needed: recordings without a text are recognised even if `config.verify` is off.
        compares_voices: speakers are told apart.
    """
    recognises = (is_needed or config.verify) and bool(config.recogniser)
    if recognises and config.transcriber:
        _import_httpx()
    packages = ["resemblyzer"] if compares_voices else []
    packages += ["jiwer", "rapidfuzz"] if recognises else []
    packages += ["moonshine_onnx"] if recognises and not config.transcriber else []
    if missing := [name for name in packages if find_spec(name) is None]:
        raise DataError(f"not installed: {', '.join(missing)}; {INSTALL}")


def recognise(sounds: Sequence[ClipSound], config: TextConfig, ledger: Ledger, workers: int) -> dict[str, str]:
    """Return the words of clips by digest; those in the ledger are not recognised again.

    Raises DataError if packages are missing, or the endpoint refuses.
    """

    def compute(paths: Sequence[Path]) -> Iterator[str]:
        return map(plain_text, _recognise_all(paths, config, workers))

    return ledger.complete(sounds, compute, f"{config.recogniser} ")


def _recognise_all(paths: Sequence[Path], config: TextConfig, workers: int) -> Iterator[str]:
    if not paths:
        return
    if config.transcriber is None:
        yield from stream_parallel(transcribe, paths, workers, "recognising")
        return
    with _client() as client, ThreadPoolExecutor(config.transcriber_requests) as pool:
        results = pool.map(partial(request_words, client=client, config=config), paths)
        yield from show_progress(results, len(paths), "transcribing", "clip")


@cache
def _recogniser() -> Recogniser:
    """Load the recogniser once a worker; on one thread, so that its results do not depend on the number of cores."""
    return Recogniser(threads=1)


def transcribe(path: Path) -> str:
    """Return the words of a clip."""
    audio = read_audio(path, None)
    return _recogniser()(audio.samples.numpy(), audio.rate)


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
    data = {"model": config.transcriber_model, "response_format": "json", "language": config.language}
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
