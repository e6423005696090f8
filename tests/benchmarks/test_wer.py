"""The normaliser of the error-rate script: both ways to write a thing must come out as the same words."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import wer


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("It is 6:45 p.m.", "It is six forty five p m."),
        ("It is 6:45pm.", "it is six forty-five P M"),
        ("At 7:01 am, I am up.", "at seven oh one a m I am up"),
        ("I am late.", "i am late"),
        ("The clock says 4:00.", "the clock says four"),
        ("ten o two", "ten oh two"),
        ("Six o'clock", "six o\u2019clock"),
        ("Dr. Evans moved here in 1995.", "Doctor Evans moved here in nineteen ninety-five."),
        ("In 2003, 1907, 1900 and 2015", "in two thousand three nineteen oh seven nineteen hundred and twenty fifteen"),
        (
            "It cost $48.50, not $1 or $0.55!",
            "it cost forty-eight dollars, fifty cents not one dollar or fifty five cents",
        ),
        ("the 21st, the 3rd and the 80th", "the twenty-first, the third and the eightieth"),
        (
            "350 or 2,000 or 118 or 3.5",
            "three hundred fifty or two thousand or one hundred eighteen or three point five",
        ),
        ("Mr Baker", "mister baker"),
    ],
)
def test_written_and_spoken_forms_meet(written: str, spoken: str) -> None:
    assert wer.normalise(written) == wer.normalise(spoken)
    assert wer.normalise(spoken) == spoken.lower().translate(str.maketrans("-", " ", "',.!\u2019")).replace(
        " o ", " oh "
    )


def test_audio_of_a_folder_goes_by_the_line_number(tmp_path: Path) -> None:
    text = tmp_path / "phrases.txt"
    text.write_text("one\n\nthree\n")
    assert list(wer.pairs_of_text([tmp_path], text, "_x")) == [
        (tmp_path / "audio_0_x.wav", "one"),
        (tmp_path / "audio_2_x.wav", "three"),
    ]
    with pytest.raises(ValueError, match="got 3 lines for 2 audio files"):
        list(wer.pairs_of_text([tmp_path / "a.wav", tmp_path / "b.wav"], text, ""))


def test_filelist_rows_are_relative_to_the_dataset(tmp_path: Path) -> None:
    filelist = tmp_path / "list.txt"
    filelist.write_text("a/b.ogg|Hello.\nbroken\n")
    pairs = wer.pairs_of_filelist(filelist, Path("/data"))
    assert next(pairs) == (Path("/data/a/b.ogg"), "Hello.")
    with pytest.raises(ValueError, match=r"list\.txt:2: got 'broken'"):
        next(pairs)
