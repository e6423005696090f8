"""A voice in Triton's Python backend; runs only inside the server, which provides triton_python_backend_utils."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as backend
from torch.nn.utils.rnn import pad_sequence

from common import precision
from common.errors import DataError
from exports.triton import CHECKPOINTS, MOST_ROWS
from synthesizer import Line, Speech, SynthesisConfig, Synthesizer

# b rows of a request, N samples


class TritonPythonModel:
    """Both models of the repository: whole speeches in batches or, if the config is decoupled, one speech in parts."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the voice from the version folder that the parameter `voice_of` names."""
        config = json.loads(args["model_config"])
        strings = {name: value["string_value"] for name, value in config["parameters"].items()}
        folder = Path(args["model_repository"]).parent / strings["voice_of"] / args["model_version"]
        on_gpu = args["model_instance_kind"] == "GPU"
        device = precision.pick_device(int(args["model_instance_device_id"]) if on_gpu else 0, cpu=not on_gpu)
        sigma, strength = (float(strings[name]) for name in ("sigma_infer", "denoising_strength"))
        settings = SynthesisConfig(vocoder=strings["vocoder"], sigma_infer=sigma, denoising_strength=strength)
        self.voice = Synthesizer.from_checkpoints(
            *(folder / name for name in CHECKPOINTS), config=settings, device=device
        )
        self.is_decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)

    def execute(self, requests: Sequence[Any]) -> list[Any] | None:
        """Answer requests. An unreadable text is an error of its own request only."""
        if not self.is_decoupled:
            return self._speak(requests)
        for request in requests:
            self._stream(request)
        return None

    def _speak(self, requests: Sequence[Any]) -> list[Any]:
        """The lines of all requests in one batch; a line's audio does not depend on the others."""
        lines = [self._read(request) for request in requests]
        batch = self.voice.speak_batch([line for some in lines if isinstance(some, list) for line in some], MOST_ROWS)
        speeches = iter(batch.speeches)
        return [_response([next(speeches) for _ in some]) if isinstance(some, list) else _error(some) for some in lines]

    def _stream(self, request: Any) -> None:
        """One response per part, until the audio ends or the client cancels the request."""
        sender, lines = request.get_response_sender(), self._read(request)
        if not isinstance(lines, list):
            sender.send(_error(lines))
        else:
            for audio in self.voice.stream_line(lines[0]):
                if sender.is_cancelled():
                    break
                if len(audio):
                    rate = np.array([self.voice.audio.sampling_rate], np.int32)
                    sender.send(_tensors(audio=audio.numpy(), sampling_rate=rate))
        sender.send(flags=backend.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _read(self, request: Any) -> list[Line] | DataError:
        """The lines of a request's rows, all numbered 0, or the error in it."""
        texts, seeds = (
            backend.get_input_tensor_by_name(request, name).as_numpy().reshape(-1) for name in ("text", "seed")
        )
        try:
            if (seeds < 0).any():
                raise DataError(f"seed: {seeds.min()}, expected 0 or more")
            lines = [Line(text.decode(), int(seed)) for text, seed in zip(texts, seeds, strict=True)]
            self.voice.check(lines)
        except UnicodeDecodeError as error:
            return DataError(f"text: not UTF-8 ({error.reason} at byte {error.start})")
        except DataError as error:
            return error
        return lines


def _response(speeches: Sequence[Speech | None]) -> Any:
    """Audio (b, N), zero past each row's samples (b, 1), and the sampling rate (b, 1) in Hz."""
    whole = [speech for speech in speeches if speech is not None]
    if len(whole) < len(speeches):
        return _error(DataError("text: not enough memory for its speech, even by itself"))
    return _tensors(
        audio=pad_sequence([speech.audio for speech in whole], batch_first=True).numpy(),
        samples=np.array([[len(speech.audio)] for speech in whole], np.int64),
        sampling_rate=np.array([[speech.sampling_rate] for speech in whole], np.int32),
    )


def _tensors(**arrays: np.ndarray) -> Any:
    return backend.InferenceResponse([backend.Tensor(name, array) for name, array in arrays.items()])


def _error(error: DataError) -> Any:
    return backend.InferenceResponse(error=backend.TritonError(str(error)))
