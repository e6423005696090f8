"""Words for the measures of reports, on the page and in the card."""

import math

from common.training.options import BEST_BY
from studio.voice.card import cell_of, choice_of, column_of, describe_measures


def test_measures_are_described_in_words_not_in_names_of_the_log() -> None:
    values = {"wer": 0.5, "wer_capped": 0.25, "cer": 0.125, "coverage": 0.5, "focus": 0.7, "mel_distance": math.nan}
    assert describe_measures(values) == "wrong words 25 %, wrong letters 12.5 %, text that attention reads 50 %"
    assert describe_measures({"focus": 0.7}) == ""
    names = ["wer_capped", "val_loss", "mel_distance", *BEST_BY]
    headings = [column_of(name) for name in names if name != "loss"] + [choice_of(name) for name in BEST_BY]
    assert not [heading for heading in headings if "_" in heading or heading in ("wer", "mcd", "mos")]
    assert (cell_of("wer", 0.25), cell_of("val_loss", 1.5), cell_of("wer", None)) == ("25", "1.5", "-")
