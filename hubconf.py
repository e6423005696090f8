"""Entry points of torch.hub: torch.hub.load("PATH_OF_THIS_FOLDER", "nvidia_tacotron2", source="local").

The names are those of NVIDIA's published hub entries. Nothing is downloaded: weights come from the embedded voice, or from a
checkpoint that you name. A program's own models.py or common is not in the way.
"""

from tacotron2_waveglow.hub import embedded_voice, nvidia_tacotron2, nvidia_tts_utils, nvidia_waveglow

__all__ = ["embedded_voice", "nvidia_tacotron2", "nvidia_tts_utils", "nvidia_waveglow"]

dependencies = [
    *("torch", "numpy", "scipy", "soundfile", "librosa", "inflect", "unidecode", "matplotlib", "tqdm"),
    *("num2words", "psutil", "safetensors"),
]
