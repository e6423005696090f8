"""What a validation of Tacotron 2 shows: one clip as teacher forcing makes it, and some as the model makes them by itself.

Teacher forcing hides failures: attention that is led by the true frames can look right in a model that cannot speak. So the same
clips, the first of the validation list, are also spoken free running at each validation.
"""

from __future__ import annotations

import torch

from common.audio.audio_processing import griffin_lim
from common.audio.stft import TacotronSTFT
from common.data.reports import attention_focus, plot_alignment, plot_gate, plot_mel_pair
from common.spec import Preview
from tacotron2.data_function import Tacotron2Batch
from tacotron2.model import Tacotron2, Tacotron2Inference, Tacotron2Output

SOUND_ITERATIONS = 30  # half of what inference takes: enough to hear how training goes
FREE_CLIPS, SHOWN_CLIPS = 8, 2  # spoken free running; shown and heard of these
PATIENCE = 2  # times the longest true clip until free running is cut off


def preview(model: Tacotron2, batch: Tacotron2Batch, outputs: Tacotron2Output, stft: TacotronSTFT) -> Preview:
    """Pictures, sounds and numbers of the batch's first clip, teacher-forced, and of the first few, free running."""
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
    """The first clips as the model speaks them: how focused it reads, how long against the truth, how many it ends by itself."""
    text, text_lengths = batch.text[:FREE_CLIPS], batch.text_lengths[:FREE_CLIPS]
    wanted = batch.mel_lengths[:FREE_CLIPS]
    r = model.config.n_frames_per_step
    limit = min(model.config.max_decoder_steps, PATIENCE * -(-int(wanted.max()) // r))
    spoken, limits = model.infer(text, text_lengths, limit), model.frame_limits(text_lengths, limit)
    focus = attention_focus(spoken.alignments.float(), spoken.mel_lengths // r)
    shown = Preview({}, {}, {})
    for item in range(min(SHOWN_CLIPS, len(text))):
        _show_clip(shown, spoken, item, batch, r, stft)
    shown.scalars["free_running_attention_focus"] = focus.mean().item()
    shown.scalars["free_running_length_ratio"] = (spoken.mel_lengths / wanted).mean().item()
    shown.scalars["free_running_stopped"] = (spoken.mel_lengths < limits).float().mean().item()
    return shown


def _show_clip(
    shown: Preview, spoken: Tacotron2Inference, item: int, batch: Tacotron2Batch, r: int, stft: TacotronSTFT
) -> None:
    frames, symbols = int(spoken.mel_lengths[item]), int(batch.text_lengths[item])
    audio = stft.config
    shortest = audio.filter_length // 2 // audio.hop_length + 2  # what Griffin-Lim can invert
    mel = spoken.mels[item : item + 1, :, : max(frames, shortest)].float()
    if mel.shape[2] < shortest:
        return  # the decoder's limit is shorter than a window: nothing to hear or see
    alignment = spoken.alignments[item, : max(1, frames // r), :symbols]
    target = batch.mels[item, :, : int(batch.mel_lengths[item])]
    shown.figures[f"free_running_alignment_{item}"] = plot_alignment(alignment.float().cpu())
    shown.figures[f"free_running_mel_{item}"] = plot_mel_pair(
        target.cpu(), mel[0].cpu(), hop_length=audio.hop_length, sampling_rate=audio.sampling_rate
    )
    shown.sounds[f"free_running_{item}"] = griffin_lim(mel, stft.to(mel.device), n_iters=SOUND_ITERATIONS)[0]
