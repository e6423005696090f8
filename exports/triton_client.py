"""Speak through a Triton server: python -m exports.triton_client --url localhost:8001 "Good morning." -o morning.wav

The server has loaded what an export to triton wrote. Needs the packages of requirements/triton.txt.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import queue
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import arguments
from common.audio.audio_processing import save_audio
from common.errors import DataError, exit_on_user_error
from common.options import argument, option, parse_options
from exports.triton import STREAM, TTS

PORTS = {"http": 8000, "grpc": 8001}


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """The command's flags."""

    text: str = argument("the text to speak", metavar="TEXT")
    output: Path = option(None, "sound file: .wav, .flac or .ogg", "-o", required=True)
    url: str | None = option(None, "host:port of the server (default: localhost with the port of the protocol)")
    protocol: str = option("http", "protocol of the request; --stream always uses grpc", choices=list(PORTS))
    stream: bool = option(False, "receive the audio in parts")
    seed: int = option(0, "seed of dropout and noise; the same seed gives the same sound", type=arguments.seed)


def parse_args(argv: list[str]) -> ClientOptions:
    return parse_options(ClientOptions, "python -m exports.triton_client", __doc__, argv)


def main(argv: list[str] | None = None) -> None:
    """Request the speech of a text and write it."""
    args = parse_args(sys.argv[1:] if argv is None else argv)
    protocol = "grpc" if args.stream else args.protocol
    url = args.url or f"localhost:{PORTS[protocol]}"
    try:
        if args.stream:
            parts, rates = zip(*stream(url, args.text, args.seed), strict=True)
            audio, rate = np.concatenate(parts), rates[0]
            print(f"{len(parts)} parts")
        else:
            audio, rate = speak(protocol, url, args.text, args.seed)
    except ImportError as error:
        raise DataError(f"{error.name}: not installed; `pip install -r requirements/triton.txt`") from None
    save_audio(args.output, torch.from_numpy(audio.copy()), rate)
    print(f"{args.output}  {len(audio) / rate:.2f} s")


def speak(protocol: str, url: str, text: str, seed: int) -> tuple[np.ndarray, int]:
    """Return audio (N,) and its sampling rate from the model that batches requests, over "http" or "grpc".

    Raises DataError with the server's message, or if no server answers.
    """
    package, errors = _package(protocol)
    try:
        with package.InferenceServerClient(url) as client:
            answer = client.infer(TTS, _inputs(package, text, seed, [1, 1]))
    except errors as error:
        raise DataError(f"{protocol}://{url}: {error}") from None
    samples, rate = (int(answer.as_numpy(name)[0, 0]) for name in ("samples", "sampling_rate"))
    return answer.as_numpy("audio")[0, :samples], rate


def stream(url: str, text: str, seed: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield parts (n,) of the audio and their sampling rate as the server sends them, over gRPC.

    Raises DataError with the server's message, or if no server answers.
    """
    package, errors = _package("grpc")
    answers: queue.Queue[tuple[Any, Exception | None]] = queue.Queue()
    try:
        with package.InferenceServerClient(url) as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            client.async_stream_infer(STREAM, _inputs(package, text, seed, [1]), enable_empty_final_response=True)
            try:
                yield from _parts(answers)
            finally:  # a caller that stops early cancels the request
                client.stop_stream(cancel_requests=True)
    except errors as error:
        raise DataError(f"grpc://{url}: {error}") from None


def _parts(answers: queue.Queue[tuple[Any, Exception | None]]) -> Iterator[tuple[np.ndarray, int]]:
    """The parts of a stream's answers, until the empty one that ends it."""
    while True:
        answer, error = answers.get()
        if error:
            raise error
        if answer.get_response().parameters["triton_final_response"].bool_param:
            return
        yield answer.as_numpy("audio"), int(answer.as_numpy("sampling_rate")[0])


def _package(protocol: str) -> tuple[Any, tuple[type[Exception], ...]]:
    """The client of a protocol, and the errors it raises if a server does not answer."""
    from tritonclient.utils import InferenceServerException

    if protocol == "grpc":
        import tritonclient.grpc as package
    else:
        import tritonclient.http as package
    return package, (InferenceServerException, OSError)


def _inputs(package: Any, text: str, seed: int, shape: list[int]) -> list[Any]:
    values = {"text": ("BYTES", np.array([text.encode()], object)), "seed": ("INT64", np.array([seed]))}
    inputs = []
    for name, (kind, array) in values.items():
        inputs.append(package.InferInput(name, shape, kind))
        inputs[-1].set_data_from_numpy(array.reshape(shape))
    return inputs


if __name__ == "__main__":
    with exit_on_user_error():
        main()
