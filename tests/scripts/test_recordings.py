"""Recordings: the rows that name them, files that a check refuses, and copies against their sources."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from common.errors import DataError, UsageError
from scripts import recordings
from scripts.recordings import CheckedClip, Recording, Treatment
from tests.sounds import RATE, save, tone, truncate


def test_rows_of_a_folder_take_the_normalised_text_and_any_ending_and_bad_ones_are_all_found(tmp_path: Path) -> None:
    for name in ("a.wav", "b.flac", "c.ogg", "d.e.wav", "É.WAV"):
        save(tmp_path / "wavs" / name, tone(0.1))
    rows = ["a|In 1455|In fourteen fifty-five", "b|two|", "c| three ", "./d.e.wav|“four”", "C:\\wavs\\e\u0301.mp3|five"]
    (tmp_path / "metadata.csv").write_bytes(("\ufeff" + "\r\n".join(rows) + "\r\n\n").encode())
    found = recordings.read_rows(tmp_path, tmp_path)
    texts = {"a.wav": "In fourteen fifty-five", "b.flac": "two", "c.ogg": "three", "d.e.wav": "“four”", "É.WAV": "five"}
    assert found.problems == {} and {r.path.name: r.text for r in found.recordings} == texts
    assert [(r.row, r.name) for r in found.recordings] == list(enumerate(("a", "b", "c", "d.e", "É")))
    (tmp_path / "wavs" / "a.m4a").touch()  # beside a.wav, which training reads
    (tmp_path / "metadata.csv").write_text("a|one\na\n|x\ne|two\na|\n\na|1|2|3")
    rows = "expected rows id|text, or headings such as file and text"
    assert recordings.read_rows(tmp_path, tmp_path).problems == {
        **{row: f"'{text}', {rows}" for row, text in ((1, "a"), (2, "|x"), (6, "a|1|2|3"))},
        3: f"no recording e in {tmp_path}",
        4: "no text; a clip named a is in row 1, too",
    }


TEXTS = ("In 1455, they say.", "Dr. Smith came home.", "Well, 27 of them left.", "Yes.")
SPOKEN = ("In fourteen fifty-five, they say.", "doctor Smith came home.", "Well, twenty-seven of them left.", "Yes.")


@pytest.mark.parametrize(
    ("third", "texts", "refused"),
    [
        (["coqui"] * 4, TEXTS, []),
        (["en", "en", "de", "fr"], TEXTS, []),  # far shorter than the texts
        (["3.42", "2.8", "4", "0.7"], TEXTS, []),
        (SPOKEN, SPOKEN, []),
        ([*SPOKEN[:3], ""], SPOKEN, []),  # the raw text where there is no other
        ([SPOKEN[0], "coqui", "coqui", "Yes."], [SPOKEN[0], "Yes."], [1, 2]),
        ([*SPOKEN[:3], "0.7"], SPOKEN[:3], [3]),
    ],
)
def test_a_third_column_is_the_text_unless_it_is_none(tmp_path: Path, third, texts, refused) -> None:
    for name in "abcd":
        save(tmp_path / "wavs" / f"{name}.wav", tone(0.1))
    rows = zip("abcd", TEXTS, third, strict=True)
    (tmp_path / "metadata.csv").write_text("".join(f"{name}|{text}|{other}\n" for name, text, other in rows))
    found = recordings.read_rows(tmp_path, tmp_path)
    assert [recording.text for recording in found.recordings] == list(texts)
    assert sorted(found.problems) == refused
    assert all("in the third column, expected the normalised text of" in line for line in found.problems.values())
    assert found.source == f"texts from column {2 if list(texts) == list(TEXTS) else 3}"


def test_two_recordings_of_one_name_are_named(tmp_path: Path) -> None:
    """A.wav beside A.flac would share a copy and a mel; an id with its ending chooses one of them."""
    for name in ("a.wav", "a.flac", "b.ogg", "b.wav"):
        save(tmp_path / "wavs" / name, tone(0.1))
    save(tmp_path / "copies" / "b.ogg", tone(0.1))  # those in wavs/ come first
    (tmp_path / "metadata.csv").write_text("a|one\nb.ogg|two\nb.wav|three\n")
    found = recordings.read_rows(tmp_path, tmp_path)
    assert found.problems == {
        0: "a names wavs/a.flac and wavs/a.wav, expected one; write the id with its ending",
        2: "a clip named b is in row 2, too",
    }


def test_lists_that_cannot_be_read(tmp_path: Path) -> None:
    for content, message in ((None, r"no such file; .*studio.prepare FOLDER"), (" \n\n", "no rows"), ("a|x\0", "NUL")):
        if content:
            (tmp_path / "metadata.csv").write_text(content)
        with pytest.raises(DataError, match=rf"metadata\.csv: .*{message}"):
            recordings.read_rows(tmp_path, tmp_path)


def test_paths_of_a_list_start_beside_it_or_else_at_the_data_set(tmp_path: Path) -> None:
    path = tmp_path / "lists" / "mine.txt"
    path.parent.mkdir()
    path.write_text("clips/a.wav|one\nClips\\B.WAV|two\nx|y|z|w\n")
    save(tmp_path / "data" / "clips" / "a.wav", tone(0.1))
    found = recordings.read_rows(path, tmp_path / "data")
    assert found.recordings[0].path == tmp_path / "data" / "clips" / "a.wav"
    assert sorted(found.problems) == [1, 2] and found.problems[1] == f"no file {tmp_path}/data/Clips\\B.WAV"
    save(tmp_path / "lists" / "clips" / "b.wav", tone(0.1))
    found = recordings.read_rows(path, tmp_path / "data")
    assert found.recordings[1].path == tmp_path / "lists" / "clips" / "b.wav"
    assert found.problems[0] == f"no file {tmp_path}/lists/clips/a.wav"
    save(tmp_path / "lists" / "clips" / "B.wav", tone(0.1))  # now it may be either
    assert 1 in recordings.read_rows(path, tmp_path / "data").problems


def test_a_check_says_what_is_wrong_with_each_clip(tmp_path: Path) -> None:
    good = tone(0.2)
    both = np.stack([good, good], axis=1)
    nan = np.where(np.arange(len(good)) == 99, np.nan, good)
    save(tmp_path / "slow.wav", tone(0.2, 16000), 16000)
    save(tmp_path / "two.flac", both)
    save(tmp_path / "nan2.wav", np.stack([nan, good], 1), subtype="FLOAT")
    truncate(save(tmp_path / "cut2.ogg", both), 100)
    save(tmp_path / "other.aiff", good)
    save(tmp_path / "still.wav", 0 * good)
    save(tmp_path / "opposite.wav", both * [1, -1], subtype="FLOAT")
    for name, as_it_is, converted in (
        ("slow.wav", "16000 Hz, expected 22050 Hz", None),
        ("two.flac", "2 channels, expected mono", None),
        ("other.aiff", "training does not read .aiff files", None),
        ("nan2.wav", "NaN or infinite", "NaN or infinite"),
        ("cut2.ogg", "no samples in it", "no samples in it"),
        ("still.wav", "nothing but silence", "nothing but silence"),
        ("opposite.wav", "2 channels", "nothing but silence"),
    ):
        for resample, wanted in ((False, as_it_is), (True, converted)):
            found = recordings.check_clip(tmp_path / name, Treatment(RATE, resample=resample))
            assert isinstance(found, str if wanted else CheckedClip), name
            assert not wanted or (str(found).startswith(f"{tmp_path / name}: ") and wanted in str(found)), name


def place(sources: list[Path], folder: Path, treatment: Treatment) -> list[Path]:
    """Check recordings, and copy them to a folder."""
    found = {
        Recording(row, path, "A text."): recordings.check_clip(path, treatment) for row, path in enumerate(sources)
    }
    return list(recordings.place_clips(found, folder, treatment, workers=1).values())


def test_a_copy_has_the_mean_of_the_channels_at_the_other_rate_in_16_bits(tmp_path: Path) -> None:
    left, right = tone(1.0, 48000, 1000), tone(1.0, 48000, 3000)
    source = save(tmp_path / "a.wav", np.stack([left, right], axis=1), 48000, subtype="PCM_24")
    treatment = Treatment(RATE, resample=True)
    assert recordings.check_clip(source, treatment) == CheckedClip(48000, 2, 0.0, 1.0)
    (copy,) = place([source], tmp_path / "new" / "wavs", treatment)
    samples, rate = soundfile.read(copy)
    assert (rate, samples.shape) == (RATE, (RATE,))
    assert soundfile.info(copy).subtype == "PCM_16"
    wanted = (tone(1.0, RATE, 1000) + tone(1.0, RATE, 3000)) / 2
    inner = slice(500, -500)  # the filter sees the ends of the recording
    np.testing.assert_allclose(samples[inner], wanted[inner], atol=1e-4)


@pytest.mark.parametrize("rate", [8000, 22050, 44100])
def test_silent_ends_are_cut_but_for_50_ms(tmp_path: Path, rate: int) -> None:
    noise = np.random.default_rng(0).normal(size=3 * rate) * 1e-4  # 71 dB below the tone
    noise[rate : 2 * rate] += tone(1.0, rate)
    source, treatment = save(tmp_path / "a.wav", noise, rate), Treatment(rate, trim_silence=True)
    clip = recordings.check_clip(source, treatment)
    assert isinstance(clip, CheckedClip)
    assert (clip.start, clip.end) == pytest.approx((1 - 0.05, 2 + 0.05), abs=0.012)
    assert recordings.check_clip(source, Treatment(RATE, resample=True, trim_silence=True)) == clip
    (copy,) = place([source], tmp_path / "new" / "wavs", treatment)
    whole, cut = (soundfile.read(path)[0] for path in (source, copy))
    np.testing.assert_array_equal(cut, whole[round(clip.start * rate) : round(clip.end * rate)])
    # without silent ends there is nothing to cut
    source = save(tmp_path / "c.wav", tone(0.3, rate), rate)
    assert recordings.check_clip(source, treatment) == pytest.approx((rate, 1, 0.0, 0.3), abs=1e-9)


def test_copies_are_made_again_only_where_they_are_out_of_date(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "voice" / "wavs"
    sources = [save(tmp_path / "raw" / f"{name}.wav", tone(0.1, 16000), 16000) for name in "ab"]

    def made(rate: int = RATE, sources: list[Path] = sources) -> str:
        place(sources, folder, Treatment(rate, resample=True))
        return capsys.readouterr().out.rpartition("; ")[2]

    assert [made(), made()] == ["2 made, 0 up to date\n", "0 made, 2 up to date\n"]
    save(sources[0], tone(0.1, 16000, 880), 16000)  # recorded anew
    (folder / "b.wav").unlink()
    assert made() == "1 made, 1 up to date\n" and (folder / "b.wav").is_file()
    assert made(8000) == "2 made, 0 up to date\n" and soundfile.info(folder / "a.wav").samplerate == 8000
    assert made() == "2 made, 0 up to date\n" and soundfile.info(folder / "a.wav").samplerate == RATE
    other = [save(tmp_path / "other" / source.name, tone(0.1, 16000, 660), 16000) for source in sources]
    assert [made(sources=other), made(sources=other)] == ["2 made, 0 up to date\n", "0 made, 2 up to date\n"]
    assert sorted(path.name for path in folder.iterdir()) == ["a.wav", "b.wav"]


def test_files_that_are_no_copies_stay_and_a_recording_that_changed_since_its_check_is_named(tmp_path: Path) -> None:
    mine = save(tmp_path / "wavs" / "a.wav", tone(0.1))
    source, before = save(tmp_path / "raw" / "a.wav", tone(0.1, 16000), 16000), mine.read_bytes()
    with pytest.raises(DataError, match="not empty, and not made by this command"):
        place([source], tmp_path / "wavs", Treatment(resample=True))
    with pytest.raises(UsageError, match="where the recordings are"):
        place([source], tmp_path / "raw", Treatment(resample=True))
    assert mine.read_bytes() == before
    clips = {Recording(0, source, "A text."): CheckedClip(16000, 1, 0.0, 0.1)}
    source.write_text("no audio")
    with pytest.raises(DataError, match=r"a\.wav: "):
        recordings.place_clips(clips, tmp_path / "w" / "wavs", Treatment(resample=True), 1)
