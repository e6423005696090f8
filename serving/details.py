"""What the page draws of a speech: its mel and its alignment, in a size that a screen shows."""

from __future__ import annotations

import base64
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d

from serving.stream import SpeechStream

WIDEST, HIGHEST = 800, 240  # points

# M mels, T frames, K decoder steps, S symbols


def details_of(stream: SpeechStream, speed: float) -> dict[str, Any]:
    """Describe a finished stream: seconds to its first sound, whether the text is complete, both pictures and their seconds."""
    speech = stream.speech
    mel = (speech.mel - speech.mel.min()) / (speech.mel.max() - speech.mel.min()).clamp(min=1e-5)
    return {
        "first": stream.first or 0.0,
        "finished": speech.finished,
        "seconds": sum(part.seconds for part in speech.parts) / speed,  # without pauses
        "mel": picture(mel),  # (M, T)
        "alignment": picture(speech.alignment.T),  # (S, K)
    }


def picture(values: Tensor) -> dict[str, Any]:
    """Shrink values (rows, columns) from 0 to 1 to the size of a screen; return bytes in base64, the first row at the bottom."""
    size = (min(HIGHEST, values.shape[0]), min(WIDEST, values.shape[1]))
    small = adaptive_max_pool2d(values[None].float(), size)[0]  # the maximum keeps a thin line of attention
    data = (255 * small).round().clamp(0, 255).to(torch.uint8).numpy().tobytes()
    return {"rows": size[0], "columns": size[1], "values": base64.b64encode(data).decode()}
