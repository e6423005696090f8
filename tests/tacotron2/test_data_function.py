"""Clips from the embedded corpus, and batches of them by hand."""

from pathlib import Path

import pytest
import soundfile
import torch

from common.audio.stft import AudioConfig
from common.data import mels
from common.data.filelist import BadRows, Utterance, read_filelist
from common.data.mels import save_mel, write_settings
from common.errors import DataError
from common.spec import Key
from tacotron2.data_function import TextMelDataset, TextMelItem, encode, pieces, spell, unspoken
from tacotron2.text import symbols

ROOT = Path(__file__).resolve().parents[2]
ROWS = read_filelist(ROOT / "filelists/clock_audio_text_val_filelist.txt")[:3]
CORPUS = {"dataset_path": str(ROOT)}


def item(n_symbols, n_frames):
    """A recognisable clip: its symbols count from 1, its mel from its number of frames."""
    return TextMelItem(torch.arange(1, n_symbols + 1), torch.full((5, n_frames), float(n_frames)), f"clip{n_symbols}")


def collate(items, **options):
    return TextMelDataset({"load_mel_from_disk": True, **options}, []).collate(items)


def test_clips_of_the_corpus():
    dataset = TextMelDataset(CORPUS, ROWS)
    assert len(dataset) == 3
    for i, row in enumerate(ROWS):
        ids, mel, name = dataset[Key(7, i)]
        assert name == str(ROOT / row.path)
        assert "".join(symbols[k] for k in ids) == row.text.lower()
        assert dataset.lengths[i] == len(ids) == len(row.text)
        assert mel.shape == (80, soundfile.info(ROOT / row.path).frames // 256 + 1)
        assert mel.dtype == torch.float32
        assert torch.log(torch.tensor(1e-5)) <= mel.min() < mel.max() < 2  # log-mels of speech at full scale


BASIC = {"load_mel_from_disk": True, "text_cleaners": ["basic_cleaners"]}
ENGLISH = {"text_cleaners": ["english_cleaners"]}


@pytest.mark.parametrize(
    ("options", "spoken", "trained"),
    [
        ({}, "doctor a and b.", "doctor ab."),
        (ENGLISH | {"symbols": symbols}, "doctor a and b.", "doctor ab."),
        ({"text_cleaners": ["basic_cleaners", "english_cleaners"]}, "doctor a and b.", "doctor ab."),
        (ENGLISH | {"symbols": ["_", *" abdort."]}, "dotor ab.", "dotor ab."),
        (BASIC, "dr. ab.", "dr. ab."),
        (BASIC | {"symbols": None}, "dr. ab.", "dr. ab."),
    ],
)
def test_english_is_read_aloud_in_its_own_alphabet_and_texts_of_training_are_not(options, spoken, trained):
    """Its clips were read with the published cleaners; only inference spells what these leave."""
    text, alphabet = "Dr. A&B.", options.get("symbols") or symbols
    assert "".join(spell(text, options)) == spoken
    ids, lengths = encode([text], options)
    assert ("".join(alphabet[k] for k in ids[0]), lengths.tolist()) == (spoken, [len(spoken)])
    dataset = TextMelDataset(options, [Utterance("a.pt", text)])
    assert ("".join(alphabet[k] for k in dataset.ids[0]), dataset.lengths) == (trained, [len(trained)])


def test_a_text_may_have_all_the_symbols_of_its_seconds(tmp_path):
    soundfile.write(tmp_path / "a.wav", 0.5 * torch.ones(22050).numpy(), 22050)
    options = {"dataset_path": str(tmp_path), "symbols_per_second": 40.0}
    TextMelDataset(options, [Utterance("a.wav", "a" * 40)]).check_clips()
    with pytest.raises(BadRows, match=r"a text of 41 symbols for 1\.00 s, expected at most 40 \(40 a second"):
        TextMelDataset(options, [Utterance("a.wav", "a" * 41)]).check_clips()


def test_stored_mels_of_twice_the_hop_are_known_by_their_pace(tmp_path):
    """Without a label or a recording; a hop of 300 in place of 256 is within what speakers differ by."""
    options = {"dataset_path": str(tmp_path), "load_mel_from_disk": True, "sampling_rate": 10240, "mel_fmax": 5000.0}
    rows = [Utterance("a.pt", "a" * 26), Utterance("b.pt", "a" * 28)]
    for name in ("a.pt", "b.pt"):
        save_mel(tmp_path / name, torch.full((80, 40), -11.5))  # a second
    TextMelDataset(options, rows).check_clips()  # 27 a second
    with pytest.raises(DataError, match=r"mels of 28 symbols a second, expected at most 27 in a whole list: their hop"):
        TextMelDataset(options, [rows[1], rows[1]]).check_clips()
    write_settings(tmp_path, AudioConfig(sampling_rate=10240, mel_fmax=5000.0))
    TextMelDataset(options, [rows[1], rows[1]]).check_clips()


def test_mels_follow_the_audio_options_and_stored_ones_of_others_are_refused(tmp_path):
    own = {"hop_length": 512, "n_mel_channels": 40}
    dataset = TextMelDataset(CORPUS | own, ROWS)
    assert dataset[Key(0, 0)].mel.shape == (40, soundfile.info(ROOT / ROWS[0].path).frames // 512 + 1)
    write_settings(tmp_path, AudioConfig(**own))
    save_mel(tmp_path / "a.pt", torch.zeros(40, 3))
    options, rows = {"dataset_path": str(tmp_path), "load_mel_from_disk": True}, [Utterance("a.pt", "hello")]
    with pytest.raises(DataError, match="made with other audio settings: --hop-length 512, now 256"):
        TextMelDataset(options, rows)
    assert TextMelDataset(options | own, rows)[Key(0, 0)].mel.shape == (40, 3)
    (tmp_path / "audio_settings.json").unlink()
    assert TextMelDataset(options | own, rows)[Key(0, 0)].mel.shape == (40, 3)


def test_a_mel_that_the_command_has_stored_equals_the_mel_of_the_audio(tmp_path):
    audio = TextMelDataset(CORPUS, ROWS)
    rows = [Utterance(str(tmp_path / f"mels/{i}.pt"), row.text) for i, row in enumerate(ROWS)]
    for name, listed in (("audio", ROWS), ("mel", rows)):
        (tmp_path / name).write_text("".join(f"{row.path}|{row.text}\n" for row in listed))
    lists = ["--audio-filelist", str(tmp_path / "audio"), "--mel-filelist", str(tmp_path / "mel")]
    mels.main([*lists, "-d", str(ROOT), "--num-workers", "1"])
    cached = TextMelDataset({"load_mel_from_disk": True}, rows)
    for i in range(3):
        assert torch.equal(cached[Key(0, i)].mel, audio[Key(0, i)].mel)
        assert torch.equal(cached[Key(0, i)].ids, audio[Key(0, i)].ids)
        assert cached[Key(0, i)].name == rows[i].path


def test_a_text_reduced_to_punctuation_by_wrong_cleaners_is_an_error():
    """Otherwise the model would train on spaces and points alone."""
    options = {"load_mel_from_disk": True, "symbols": ["_", *" .,абвг"]}
    with pytest.raises(BadRows) as error:
        encode(["Аб, ва.", "abc.", "а"], options)
    silent = "holds nothing to speak, expected letters of --symbols-file"
    hint = "; --text-cleaners basic_cleaners would keep some"
    assert error.value.problems == {0: f"'Аб, ва.' {silent}{hint}", 1: f"'abc.' {silent}", 2: f"'а' {silent}{hint}"}
    ids, _ = encode(["Аб, ва."], options | {"text_cleaners": ["basic_cleaners"]})
    assert ids.tolist() == [[4, 5, 3, 1, 6, 4, 2]]
    as_published = BASIC | {"text_reading": "as-published"}
    assert encode(["?!"], as_published)[1].tolist() == [2]  # with the built-in one it is what it was


@pytest.mark.parametrize("is_training", [True, False])
def test_one_error_lists_all_invalid_texts(is_training):
    texts = ["{HH AH", "fine", "中", "}"]
    with pytest.raises(BadRows) as error:
        TextMelDataset(BASIC, [Utterance("a.pt", text) for text in texts]) if is_training else encode(texts, BASIC)
    problems = error.value.problems
    assert list(problems) == [0, 2, 3]
    assert problems[2] == "'中' holds nothing to speak, expected letters or {ARPAbet}"
    assert [line.split(": ")[0] for line in str(error.value).split("\n")] == ["item 1", "item 3", "item 4"]


@pytest.mark.parametrize("text", ["😀" * 20_000, "{HH AH" * 10_000, "{" + "HH XX " * 10_000 + "}"], ids=range(3))
@pytest.mark.parametrize("options", [{}, {"symbols": ["_", *"abc"]}], ids=["built-in", "other"])
def test_an_error_of_a_long_text_is_short(text, options):
    """It had the whole text."""
    with pytest.raises(BadRows) as error:
        encode([text], options)
    assert len(str(error.value)) < 5000


def without_keys(found):
    """Texts and pauses; keys come later, with the line."""
    return [(piece.text, piece.pause) for piece in found]


def test_the_limit_of_pieces_counts_spoken_characters_and_no_piece_is_without_words():
    text = "She paid $5 million. He did not."  # 32 characters, of which 42 are spoken
    assert without_keys(pieces(text, 42, ENGLISH)) == [(text, 0.0)]
    assert without_keys(pieces(text, 41, ENGLISH)) == [("She paid five million dollars.", 0.35), ("He did not.", 0.0)]
    text = "One and two. ☃☃☃. ... Three!"
    assert without_keys(pieces(text, 12, ENGLISH)) == [("One and two.", 0.35), ("☃☃☃. ... Three!", 0.0)]


def test_a_piece_of_phonemes_alone_is_spoken_and_a_text_with_a_mistake_stays_whole():
    found = pieces("A word of some length. {HH AH0 L OW1}.", 25, ENGLISH)
    assert [piece.text for piece in found] == ["A word of some length.", "{HH AH0 L OW1}."]
    text = "It is $5.25. {XX} and three. And four."
    assert without_keys(pieces(text, 12, ENGLISH)) == [(text, 0.0)]
    with pytest.raises(BadRows, match="at character 14: no ARPAbet symbol 'XX'"):  # before it was read aloud
        encode([text], ENGLISH)


@pytest.mark.parametrize(
    ("options", "text", "lost"),
    [
        (ENGLISH, "“Dr.” Smith’s café — e\u0301tude № 5 in 日本, ½ for $3 & 100 % {AA1}…", []),
        (ENGLISH, "I ☃ it 🙂 ☃ ¡so!", ["☃", "🙂", "¡"]),
        (ENGLISH, "\u4e2d is \u0950", []),
        (ENGLISH, "Acme® <x ™ 🙂 5 kΩ ♥ π < 6", ["®", "<", "™", "🙂"]),
        (BASIC, "日本 is Japan, é", ["日", "本", "é"]),
        (BASIC, "e\u0301 5", ["é", "5"]),
        (BASIC | {"symbols": ["_", *" абв"]}, "Аба, wба", [",", "w"]),
    ],
)
def test_unspoken_lists_characters_without_sound(options, text, lost):
    assert unspoken(text, options) == lost


def test_a_batch_is_in_order_of_decreasing_text_length_then_of_its_items():
    batch = collate([item(2, 4), item(5, 3), item(1, 6), item(3, 1)])
    assert batch.text.tolist() == [[1, 2, 3, 4, 5], [1, 2, 3, 0, 0], [1, 2, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert batch.text.dtype == torch.int64
    assert batch.text_lengths.tolist() == [5, 3, 2, 1]
    assert batch.mel_lengths.tolist() == [3, 1, 4, 6]
    assert batch.names == ("clip5", "clip3", "clip2", "clip1")
    rows = [[3, 3, 3, 0, 0, 0], [1, 0, 0, 0, 0, 0], [4, 4, 4, 4, 0, 0], [6, 6, 6, 6, 6, 6]]
    assert batch.mels.tolist() == [[row] * 5 for row in rows]
    assert batch.num_items == 14
    wanted = (batch.text, batch.text_lengths, batch.mels, batch.mel_lengths)
    assert all(given is part for given, part in zip(batch.inputs, wanted, strict=True))
    assert batch.targets == (batch.mels, batch.gates, batch.mel_lengths, batch.text_lengths)
    items = [item(2, frames)._replace(name=str(frames)) for frames in (3, 1, 2)] + [item(3, 4)]
    assert collate(items).names == ("clip3", "3", "1", "2")
    assert [clip.name for clip in items] == ["3", "1", "2", "clip3"]


@pytest.mark.parametrize(("r", "first_ones"), [(1, range(7)), (2, [0, 0, 2, 2, 4, 4, 6]), (3, [0, 0, 0, 3, 3, 3, 6])])
def test_gate_targets(r, first_ones):
    """Of clips of 1 to 7 frames: from the frame at which the step with the last frame starts."""
    batch = collate([item(1, n) for n in range(1, 8)], n_frames_per_step=r)
    assert batch.gates.tolist() == [[0.0] * first + [1.0] * (7 - first) for first in first_ones]


def test_encode_keeps_the_order_of_texts_and_spell_lists_a_symbol_for_each_id():
    ids, lengths = encode(["Hi.", "Hello, you!", "A"], BASIC)
    assert lengths.tolist() == [3, 11, 1]
    assert ["".join(symbols[k] for k in row[:n]) for row, n in zip(ids, lengths)] == ["hi.", "hello, you!", "a"]
    assert not ids[0, 3:].any()
    assert ids.shape == (3, 11)
    assert spell("Go {AH0 N} §", BASIC) == ["g", "o", " ", "@AH0", "@N", " "]
