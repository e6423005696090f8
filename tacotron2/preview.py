"""Plots, sounds and numbers from validating Tacotron 2: one clip with teacher forcing, and a few free running.

Teacher forcing hides failures: with true frames as input, attention can look right although free running fails. So each validation
also lets the first clips of the validation list run freely.
"""

from __future__ import annotations

import torch

from common.audio.audio_processing import griffin_lim
from common.audio.stft import TacotronSTFT
from common.data.pictures import plot_alignment, plot_gate, plot_mel_pair
from common.quality.attention import attention_focus
from common.spec import Preview
from tacotron2.data_function import Tacotron2Batch
from tacotron2.model import Tacotron2, Tacotron2Inference, Tacotron2Output

SOUND_ITERATIONS = 30  # half as many as in inference, enough to follow the training
FREE_CLIPS, PLOTTED_CLIPS = 8, 2  # clips that run freely, and how many of them get plots and sounds
PATIENCE = 2  # longest free run, as a multiple of the longest true clip


def preview(model: Tacotron2, batch: Tacotron2Batch, outputs: Tacotron2Output, stft: TacotronSTFT) -> Preview:
    """Preview the batch's first clip with teacher forcing and its first few clips free running."""
    forced, free = _teacher_forced(model, batch, outputs, stft), _free_running(model, batch, stft)
    return Preview(forced.figures | free.figures, forced.sounds | free.sounds, forced.scalars | free.scalars)


def _teacher_forced(model: Tacotron2, batch: Tacotron2Batch, outputs: Tacotron2Output, stft: TacotronSTFT) -> Preview:
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


def _free_running(model: Tacotron2, batch: Tacotron2Batch, stft: TacotronSTFT) -> Preview:
    """Let the first clips run freely: attention focus, length relative to the true one, share of clips that stop by themselves."""
    text, text_lengths = batch.text[:FREE_CLIPS], batch.text_lengths[:FREE_CLIPS]
    true_lengths = batch.mel_lengths[:FREE_CLIPS]
    r = model.config.n_frames_per_step
    limit = min(model.config.max_decoder_steps, PATIENCE * -(-int(true_lengths.max()) // r))
    output, limits = model.infer(text, text_lengths, limit), model.frame_limits(text_lengths, limit)
    focus = attention_focus(output.alignments.float(), output.mel_lengths // r)
    result = Preview({}, {}, {})
    for item in range(min(PLOTTED_CLIPS, len(text))):
        _add_clip(result, output, item, batch, r, stft)
    result.scalars["free_running_attention_focus"] = focus.mean().item()
    result.scalars["free_running_length_ratio"] = (output.mel_lengths / true_lengths).mean().item()
    result.scalars["free_running_stopped"] = (output.mel_lengths < limits).float().mean().item()
    return result


def _add_clip(
    result: Preview, output: Tacotron2Inference, item: int, batch: Tacotron2Batch, r: int, stft: TacotronSTFT
) -> None:
    frames, symbols = int(output.mel_lengths[item]), int(batch.text_lengths[item])
    audio = stft.config
    shortest = audio.filter_length // 2 // audio.hop_length + 2  # the shortest input of Griffin-Lim
    mel = output.mels[item : item + 1, :, : max(frames, shortest)].float()
    if mel.shape[2] < shortest:
        return  # the decoder's limit is shorter than a window, so there is no sound
    alignment = output.alignments[item, : max(1, frames // r), :symbols]
    target = batch.mels[item, :, : int(batch.mel_lengths[item])]
    result.figures[f"free_running_alignment_{item}"] = plot_alignment(alignment.float().cpu())
    result.figures[f"free_running_mel_{item}"] = plot_mel_pair(
        target.cpu(), mel[0].cpu(), hop_length=audio.hop_length, sampling_rate=audio.sampling_rate
    )
    result.sounds[f"free_running_{item}"] = griffin_lim(mel, stft.to(mel.device), n_iters=SOUND_ITERATIONS)[0]
