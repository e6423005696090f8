"""The built-in symbols where the published recipe has them."""

from tacotron2.text.alphabet import PAD as PAD
from tacotron2.text.alphabet import symbols as symbols
