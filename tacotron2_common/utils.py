"""The functions of common.utils."""

from common.utils import ParseFromConfigFile as ParseFromConfigFile
from common.utils import get_mask_from_lengths as get_mask_from_lengths
from common.utils import load_filepaths_and_text as load_filepaths_and_text
from common.utils import load_wav_to_torch as load_wav_to_torch
from common.utils import to_gpu as to_gpu
