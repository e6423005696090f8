"""What a validation of Tacotron 2 shows: target and predicted mel, alignment, gate, and the prediction through Griffin-Lim."""

from __future__ import annotations

import torch

from common.data.reports import attention_focus, plot_alignment, plot_gate, plot_mel_pair
from common.sound.audio_processing import griffin_lim
from common.sound.stft import TacotronSTFT
from common.spec import Preview
from tacotron2.data_function import Tacotron2Batch
from tacotron2.model import Tacotron2, Tacotron2Output

SOUND_ITERATIONS = 30  # half of what inference takes: enough to hear how training goes


def preview(model: Tacotron2, batch: Tacotron2Batch, outputs: Tacotron2Output, stft: TacotronSTFT) -> Preview:
    """Pictures and sound of the batch's first clip, teacher-forced, and the attention focus of all its clips."""
    frames, symbols = int(batch.mel_lengths[0]), int(batch.text_lengths[0])
    r = model.config.n_frames_per_step
    steps = (batch.mel_lengths + r - 1) // r
    mel = outputs.mel_outputs_postnet[:1, :, :frames].float()
    audio = stft.config
    return Preview(
        figures={
            "mel": plot_mel_pair(
                batch.mels[0, :, :frames].cpu(),
                mel[0].cpu(),
                hop_length=audio.hop_length,
                sampling_rate=audio.sampling_rate,
            ),
            "alignment": plot_alignment(outputs.alignments[0, : int(steps[0]), :symbols].float().cpu()),
            "gate": plot_gate(batch.gates[0, :frames].cpu(), torch.sigmoid(outputs.gate_outputs[0, :frames]).cpu()),
        },
        sounds={"griffin_lim": griffin_lim(mel, stft.to(mel.device), n_iters=SOUND_ITERATIONS)[0]},
        scalars={"attention_focus": attention_focus(outputs.alignments.float(), steps).mean().item()},
    )
