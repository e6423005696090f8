"""A voice in TorchScript: Tacotron 2's free run, WaveGlow and the denoiser.

PyTorch has deprecated TorchScript in favour of torch.export (exports/parts.py). It is kept for C++ programs that load these files.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

import torch
from torch import Tensor, nn

from common.audio.stft import AudioConfig
from common.errors import UsageError
from common.inference.vocoders import LoadedModel
from common.layers import length_mask
from exports.models import exported_waveglow
from exports.parts import ConvDenoiser
from tacotron2.guard import DecodingGuard
from tacotron2.model import Tacotron2
from waveglow.denoiser import Denoiser
from waveglow.model import WaveGlow

# B batch, S symbols, K decoder steps, r frames a step, M mels, T frames

NAMES = ("tacotron2", "waveglow", "denoiser")  # of the modules of a voice


class ScriptedFreeRun(nn.Module):
    """Tacotron2.infer for TorchScript: the plain modules, and the plain step in a loop. Only gates stop it."""

    def __init__(self, model: Tacotron2) -> None:
        super().__init__()
        self.embedding, self.encoder = model.embedding, model.encoder
        self.decoder, self.postnet = model.decoder, model.postnet
        self.threshold, self.early_stopping = model.decoder.gate_threshold, model.decoder.early_stopping
        self.max_steps, self.n_frames_per_step = model.decoder.max_decoder_steps, model.decoder.n_frames_per_step

    def forward(
        self, text: Tensor, text_lengths: Tensor, max_steps: int | None = None, keep: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Ids (B, S), lengths (B,) -> frames (B, M, T), their lengths (B,), alignments (B, K, S).

        The prenet's keep masks (K, 2, B, P) are for max_steps steps; without them PyTorch's generator draws.
        """
        limit = self.max_steps if max_steps is None else max_steps
        values = self.encoder(self.embedding(text), text_lengths, True)
        memory = self.decoder.attention_layer.memory(values, text_lengths)
        state = self.decoder.start(memory)
        frame = torch.zeros(1, len(values), self.decoder.linear_projection.linear_layer.out_features).to(values)
        running = torch.ones(len(values), dtype=torch.bool, device=values.device)
        steps = torch.zeros(len(values), dtype=torch.int64, device=values.device)
        outputs: list[Tensor] = []
        alignments: list[Tensor] = []
        for i in range(limit):
            masks = None if keep is None else keep[i : i + 1]
            state = self.decoder.step(self.decoder.prenet(frame, masks)[0], state, memory)
            outputs.append(torch.cat((state.decoder_hidden, state.context), dim=1))
            alignments.append(state.weights)
            frame = self.decoder.linear_projection(outputs[-1])[None]
            running = running & (torch.sigmoid(self.decoder.gate_layer(outputs[-1])[:, 0]) <= self.threshold)
            steps += running
            if self.early_stopping and not bool(running.any()):
                break
        mels, _ = self.decoder.project(torch.stack(outputs))
        lengths = torch.clamp(steps + 1, max=limit) * self.n_frames_per_step  # as in Tacotron2.infer
        mask = length_mask(lengths, mels.shape[2])[:, None]
        return self.postnet(mels * mask, mask), steps * self.n_frames_per_step, torch.stack(alignments, dim=1)

    @torch.jit.export
    def infer(
        self, text: Tensor, text_lengths: Tensor, max_steps: int | None = None, keep: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tacotron2.infer's name for forward."""
        return self.forward(text, text_lengths, max_steps, keep)


def script(module: nn.Module) -> torch.jit.ScriptModule:
    """Compile a module, without PyTorch's warning that TorchScript is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        return cast(Any, torch.jit.script(module.eval()))


def check_guard(guard: DecodingGuard) -> None:
    """Raise UsageError if a guard is on, as TorchScript's loop has none."""
    if flags := ["--" + field.name.replace("_", "-") for field in fields(guard) if getattr(guard, field.name)]:
        raise UsageError(f"TorchScript has no {', '.join(flags)}: leave these flags out")


def script_vocoder(model: WaveGlow, audio: AudioConfig) -> tuple[torch.jit.ScriptModule, torch.jit.ScriptModule]:
    """A plain WaveGlow as TorchScript, and its denoiser."""
    denoiser = ConvDenoiser(
        Denoiser(model, audio.filter_length, win_length=audio.win_length, hop_length=audio.hop_length)
    )
    return script(model), script(denoiser.to(next(model.parameters()).device))


def load_vocoder(model: Any, denoiser: Any, config: Mapping[str, Any], options: dict[str, Any]) -> LoadedModel:
    """The modules of `script_vocoder` for a Synthesizer."""

    def vocode(mels: Tensor, z: Tensor, sigma: Tensor) -> Tensor:
        return model.infer(mels, float(sigma), z)

    return exported_waveglow({"waveglow": vocode, "denoiser": denoiser}, config, options)
