"""German from end to end: train.py with --symbols-file, and inference.py with the alphabet of the checkpoint."""

from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import inference
from common.checkpoint.files import load_checkpoint
from common.inference.stages import acoustic_stages
from common.run.nvlog import read_log
from synthesizer import Synthesizer
from tacotron2.text import symbols as BUILT_IN
from tests.recipe import ROOT, SHORT_CLIPS, flags, run, succeed, train_tiny_model

pytestmark = pytest.mark.slow

ALPHABET = ["_", *" ,.?!-", *"abcdefghijklmnopqrstuvwxyzäöüß", "@AH0"]
TEXTS = ("Grüß Gott!", "Zwölf Äpfel, schöne Öfen.", "Über die Straße.", "Süße Mädchen", "{AH0} Ja?", "Nö.", "Bücher")
KNOWN = [symbol for symbol in ALPHABET if symbol not in "äöüß"]
PHRASE = "Fünf größere Öfen, {AH0}!"
SPELLED = [*"fünf größere öfen, ", "@AH0", "!"]


class German(NamedTuple):
    """Folder of a tiny German model, and its training command."""

    folder: Path
    symbols: Path
    checkpoint: Path


@pytest.fixture(scope="module")
def german(tmp_path_factory) -> German:
    """The tiny model after an epoch on the corpus's clips, as if they were German."""
    folder = tmp_path_factory.mktemp("german")
    symbols = folder / "symbols.txt"
    symbols.write_bytes("\r\n".join(ALPHABET).encode())
    words = train_words(folder, symbols)
    succeed("train.py", *words, "--epochs", 1)
    return German(folder, symbols, folder / "checkpoint_Tacotron2_last.pt")


def train_words(folder: Path, symbols: Path, cleaners: str = "basic_cleaners") -> list[object]:
    words = flags("Tacotron2", folder)
    rows = [f"corpus/clock/clock_{number:04}.ogg|{text}" for number, text in zip(SHORT_CLIPS, TEXTS, strict=False)]
    for part, chosen in (("training", rows[:5]), ("validation", rows[5:])):
        (folder / f"{part}.txt").write_text("\n".join(chosen) + "\n", encoding="utf-8")
    assert all((ROOT / row.split("|")[0]).exists() for row in rows)
    return [*words, "--symbols-file", symbols, "--text-cleaners", cleaners]


def speak_words(german: German, folder: Path, *more: object) -> list[object]:
    (folder / "phrases.txt").write_text(f"{PHRASE}\n", encoding="utf-8")
    words = ["-i", folder / "phrases.txt", "-o", folder, "--vocoder", "griffin-lim", "--cpu", "--seed", 0]
    ends_late = ["--gate-threshold", 1, "--max-decoder-steps", 20]  # else the untrained gate may fire at once
    return [*words, *ends_late, "--tacotron2", german.checkpoint, *more]


def test_inference_uses_the_alphabet_that_the_checkpoint_contains(german: German, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(german.checkpoint)
    assert checkpoint["data"]["symbols"] == ALPHABET
    assert checkpoint["config"]["n_symbols"] == len(ALPHABET) == 38
    assert checkpoint["state_dict"]["embedding.weight"].shape == (38, 16)
    words = speak_words(german, tmp_path)
    succeed("inference.py", *words)
    logged = [record["data"] for record in read_log(tmp_path / "nvlog.json") if record.get("step") == "PARAMETER"]
    assert {"symbols": ALPHABET} in logged
    config = inference.parse_args([str(word) for word in words]).config
    voice = Synthesizer.from_checkpoints(german.checkpoint, config=config, device="cpu")
    assert voice.symbols(PHRASE) == SPELLED
    ids, lengths = acoustic_stages(voice.acoustic).encode([PHRASE], voice.acoustic.options)
    assert ids.tolist() == [[ALPHABET.index(symbol) for symbol in SPELLED]]
    assert lengths.tolist() == [len(SPELLED)]


def test_the_same_symbols_file_is_accepted_again_and_another_is_an_error(german: German, tmp_path: Path) -> None:
    quiet, named, other = (tmp_path / name for name in ("quiet", "named", "other"))
    for folder in (quiet, named, other):
        folder.mkdir()
    succeed("inference.py", *speak_words(german, quiet))
    succeed("inference.py", *speak_words(german, named, "--symbols-file", german.symbols))
    assert (quiet / "audio_0.wav").read_bytes() == (named / "audio_0.wav").read_bytes()
    swapped = tmp_path / "swapped.txt"  # as many symbols: only the table itself tells
    swapped.write_text("\n".join(["_", *reversed(ALPHABET[1:])]), encoding="utf-8")
    result = run("inference.py", *speak_words(german, other, "--symbols-file", swapped))
    assert result.code == 2
    assert f"{german.checkpoint}: symbols " in result.err
    assert "Traceback" not in result.err


def test_a_resumed_run_uses_its_alphabet(german: German, tmp_path: Path) -> None:
    words = train_words(tmp_path, german.symbols)
    out = succeed("train.py", *words, "--epochs", 2, "--checkpoint-path", german.checkpoint)
    assert "resuming at epoch 1" in out
    assert load_checkpoint(tmp_path / "checkpoint_Tacotron2_last.pt")["data"]["symbols"] == ALPHABET


def test_a_warm_start_copies_the_letters_of_an_english_model(german: German, tmp_path: Path) -> None:
    """With a tiny learning rate the rows of the first checkpoint are nearly the initial ones."""
    english = load_checkpoint(train_tiny_model("Tacotron2"))["state_dict"]
    words = [*train_words(tmp_path, german.symbols), "--warm-start", train_tiny_model("Tacotron2")]
    out = succeed("train.py", *words, "--epochs", 1, "-lr", 1e-12)
    assert "embedding: 34 of 38 symbols copied, 4 new (ä, ö, ü, ß)" in out
    weights = load_checkpoint(tmp_path / "checkpoint_Tacotron2_last.pt")["state_dict"]
    expected = english["embedding.weight"][[BUILT_IN.index(symbol) for symbol in KNOWN]]
    rows = weights["embedding.weight"][[ALPHABET.index(symbol) for symbol in KNOWN]]
    torch.testing.assert_close(rows, expected, rtol=0, atol=1e-6)
    for name in ("encoder.lstm.weight_hh_l0", "decoder.decoder_rnn.weight_ih"):
        torch.testing.assert_close(weights[name], english[name], rtol=0, atol=1e-6)


def test_cyrillic_with_the_default_cleaners_is_an_error_for_each_line(tmp_path: Path) -> None:
    symbols = tmp_path / "symbols.txt"
    symbols.write_text("\n".join(["_", *" .абвгдеёжзийклмнопрстуфхцчшщъыьэюя"]), encoding="utf-8")
    words = train_words(tmp_path, symbols, "english_cleaners")
    (tmp_path / "training.txt").write_text("corpus/clock/clock_0022.ogg|Съешь ещё булок.\n" * 2, encoding="utf-8")
    result = run("train.py", *words, "--epochs", 1)
    assert result.code == 1
    problem = "'Съешь ещё булок.' holds nothing to speak, expected letters of --symbols-file"
    problem += "; --text-cleaners basic_cleaners would keep some"
    rows = [f"{tmp_path}/training.txt:{line}: {problem}" for line in (1, 2)]
    assert result.err == "error: " + "\n".join(rows) + "\n"
    assert not list(tmp_path.glob("*.pt"))
