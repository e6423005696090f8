"""The spec of Tacotron 2 for training and inference."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import inference
from common.audio.stft import TacotronSTFT
from common.checkpoint.files import load_checkpoint
from common.errors import DataError, UsageError
from common.inference.stages import acoustic_stages
from common.spec import WarmStart
from loss_functions import get_loss_function
from synthesizer import Synthesizer
from tacotron2.data_function import Tacotron2Batch
from tacotron2.guard import DecodingGuard
from tacotron2.model import Tacotron2, Tacotron2Inference, Tacotron2Output
from tacotron2.preview import preview
from tacotron2.spec import SPEC, config_from_options, transfer
from tacotron2.text import symbols as built_in
from tests.recipe import SHORT_CLIPS, flags, read_parameters, run, succeed
from tests.tacotron2.test_model import SMALL


def test_an_alphabet_sets_the_number_of_symbols_and_a_table_too_small_is_an_error():
    own = ["_", *"абв"]
    assert config_from_options({"symbols": own}) == {"n_symbols": 4}
    for given in (148, 4):  # the default, which nobody may have typed, and the right one
        assert config_from_options({"symbols": own, "n_symbols": given}) == {"n_symbols": 4}
    with pytest.raises(UsageError, match=r"^--n-symbols: 5, expected 4, the symbols in --symbols-file; it can be left"):
        config_from_options({"symbols": own, "n_symbols": 5})
    assert config_from_options({"symbols": None}) == {}
    for given in (148, 150):
        assert config_from_options({"symbols": None, "n_symbols": given}) == {"n_symbols": given}
    with pytest.raises(UsageError, match=r"^--n-symbols: 147, expected at least 148, .* needs --symbols-file$"):
        config_from_options({"symbols": None, "n_symbols": 147})
    assert config_from_options({"n_symbols": 11}) == {"n_symbols": 11}  # the alphabet is the checkpoint's to say


def test_criterion_follows_the_options():
    options = {"mask_padding": True, "n_frames_per_step": 2, "guided_attention_weight": 1.0, "learning_rate": 1.0}
    criterion = get_loss_function("Tacotron2", options=options)
    outputs = Tacotron2Output(torch.ones(1, 5, 4), torch.ones(1, 5, 4), torch.zeros(1, 4), torch.ones(1, 2, 2))
    lengths = torch.tensor([3])
    targets = (torch.full((1, 5, 4), 1.0), torch.zeros(1, 4), lengths, torch.tensor([2]))
    targets[0][:, :, 3] = 9.0  # past the end, where masking does not look
    terms = criterion.terms(outputs, targets)
    off_diagonal = 2 * (1 - np.exp(-0.25 / (2 * 0.4**2))) / 4  # two steps of two frames, two symbols
    expected = {"mel": 0.0, "mel_postnet": 0.0, "gate": np.log(2), "guided_attention": off_diagonal}
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(expected, rel=1e-6)
    plain = get_loss_function("Tacotron2").terms(outputs, targets[:2])
    assert plain["mel"].item() == pytest.approx(64 / 4)
    assert "guided_attention" not in plain


def batch_of(mels, mel_lengths, text_lengths) -> Tacotron2Batch:
    text, gates = torch.ones(len(mels), 5, dtype=torch.int64), torch.zeros(len(mels), mels.shape[2])
    lengths, names = (torch.tensor(text_lengths), torch.tensor(mel_lengths)), tuple("abc"[: len(mels)])
    return Tacotron2Batch(text, lengths[0], mels, gates, lengths[1], names)


class FixedOutput(Tacotron2):
    """Fake model: for any input, item i is i + 4 frames long and attends to one symbol a step."""

    def infer(self, text, text_lengths, max_steps=None):
        items, self.limit = len(text), max_steps
        lengths = torch.arange(items) + 4
        lengths[-1] = self.frame_limits(text_lengths, max_steps)[-1]  # the last one does not stop
        alignments = torch.nn.functional.one_hot(torch.arange(max_steps) % text.shape[1], text.shape[1]).float()
        ended = torch.arange(max_steps) >= lengths[:, None]
        alignments = alignments * torch.where(ended, 0.25, 1.0)[:, :, None]  # even past the end, where nothing counts
        return Tacotron2Inference(torch.full((items, 80, max_steps), -5.0), lengths, alignments)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mel_lengths", "limit", "guard", "ratio"),
    [
        ([8, 10, 10], 20, DecodingGuard(), (4 / 8 + 5 / 10 + 20 / 10) / 3),
        # a limit of its own, far below twice the longest clip: 5 symbols x 0.8 frames + 50
        ([40, 40, 40], 80, DecodingGuard(max_frames_per_symbol=0.8), (4 + 5 + 54) / 120),
    ],
)
def test_free_running_is_previewed_beside_teacher_forcing(mel_lengths, limit, guard, ratio):
    """Of three clips of five symbols, whose teacher-forced attention is even; the last one does not stop by itself."""
    model, frames = FixedOutput(decoder_rnn_dim=4, attention_rnn_dim=4), max(mel_lengths)
    model.decoder.guard = guard
    batch = batch_of(torch.randn(3, 80, frames), mel_lengths, [5] * 3)
    outputs = Tacotron2Output(batch.mels, batch.mels, batch.gates, torch.full((3, frames, 5), 0.2))
    shown = preview(model, batch, outputs, TacotronSTFT())
    assert model.limit == limit
    assert shown.scalars["attention_focus"] == pytest.approx(0.2)
    assert shown.scalars["free_running_attention_focus"] == pytest.approx(1.0)
    assert shown.scalars["free_running_length_ratio"] == pytest.approx(ratio)
    assert shown.scalars["free_running_stopped"] == pytest.approx(2 / 3)
    for item in range(2):
        image = shown.figures[f"free_running_alignment_{item}"].axes[0].images[0].get_array()
        np.testing.assert_array_equal(image, np.eye(5)[: item + 4].T)
        assert shown.sounds[f"free_running_{item}"].shape == ((item + 3) * 256,)


def test_dropout_rates_of_training_are_set_and_invalid_ones_are_errors() -> None:
    model = Tacotron2(decoder_rnn_dim=4, attention_rnn_dim=4)
    assert (model.decoder.drop_frame_rate, model.encoder.p_dropout, model.postnet.p_dropout) == (0.0, 0.5, 0.5)
    SPEC.prepare_training(model, {"drop_frame_rate": 0.25, "p_convolution_dropout": 0.125})
    assert (model.decoder.drop_frame_rate, model.encoder.p_dropout, model.postnet.p_dropout) == (0.25, 0.125, 0.125)
    for flag in ("drop_frame_rate", "p_convolution_dropout"):
        for share in (1.0, -0.1, math.nan):
            with pytest.raises(UsageError, match="--" + flag.replace("_", "-")):
                SPEC.prepare_training(model, {flag: share})


NAME = "embedding.weight"


def start(old, new, rows=None, **config) -> WarmStart:
    """Warm start from a table whose row i contains i + 1 to a new model; None selects the built-in alphabet."""
    n_old, n_new = (148 if table is None else len(table) for table in (old, new))
    model = Tacotron2(**{**SMALL, "n_symbols": n_new, **config})
    rows = n_old if rows is None else rows
    weights = {name: value + 0.1 for name, value in model.state_dict().items()}
    weights[NAME] = torch.arange(1.0, rows + 1)[:, None].expand(rows, 6).clone()
    stored, options = ({} if table is None else {"symbols": table} for table in (old, new))
    return WarmStart(weights, stored, options, model)


def test_rows_move_with_their_symbols():
    given = start(["_", "a", "b", "C", "@AA1", "@B"], ["_", "@B", "ä", "b", "B", "c", "@AA1", "Ä", "ß"])
    before = {name: value.clone() for name, value in given.weights.items()}
    fresh = given.model.embedding.weight.detach().clone()
    weights, phrase = transfer(given)
    table = weights[NAME]
    assert table.shape == (9, 6)
    # _ and @B, b, B as b, c as C, @AA1
    assert table[[0, 1, 3, 4, 5, 6]].tolist() == [[row] * 6 for row in (1.0, 6.0, 3.0, 3.0, 4.0, 5.0)]
    assert torch.equal(table[[2, 7, 8]], fresh[[2, 7, 8]])
    assert phrase == "embedding: 4 of 9 symbols copied, 2 from their other case, 3 new (ä, Ä, ß)"
    # nothing else is touched: neither the checkpoint's weights nor the model's
    assert torch.equal(given.model.embedding.weight, fresh)
    assert all(torch.equal(given.weights[name], value) for name, value in before.items())
    assert weights.keys() == before.keys()
    assert all(weights[name] is given.weights[name] for name in weights if name != NAME)


def test_from_the_built_in_alphabet_and_back():
    german = ["_", *" ,.-?!'", *"abcdefghijklmnopqrstuvwxyzäöüß"]
    weights, phrase = transfer(start(None, german))
    assert weights[NAME][:34, 0].tolist() == [built_in.index(symbol) + 1 for symbol in german[:34]]
    assert phrase == "embedding: 34 of 38 symbols copied, 4 new (ä, ö, ü, ß)"
    weights, phrase = transfer(start(german, None))
    assert phrase.startswith("embedding: 34 of 148 symbols copied, 26 from their other case, 88 new ((, ), :, ;, @AA")
    assert phrase.endswith(" …)")
    assert weights[NAME][built_in.index("Q"), 0] == german.index("q") + 1
    weights, phrase = transfer(start(["_", "a", "A"], ["A", "a", "_"]))
    assert weights[NAME][:, 0].tolist() == [3.0, 2.0, 1.0]
    assert phrase == "embedding: 3 of 3 symbols copied"


@pytest.mark.parametrize("stored", [{}, {"symbols": None}, {"symbols": built_in}], ids=["old", "none", "written out"])
@pytest.mark.parametrize("options", [{}, {"symbols": None}, {"symbols": tuple(built_in)}], ids=["old", "none", "all"])
def test_the_same_alphabet_changes_nothing(stored, options):
    given = start(None, None)._replace(stored=stored, options=options)
    weights, phrase = transfer(given)
    assert weights is given.weights and phrase == ""


def test_what_is_no_table_of_these_symbols_stays_or_is_an_error():
    given = start(None, ["_", "a"])
    del given.weights[NAME]
    weights, phrase = transfer(given)
    assert (weights, phrase) == (given.weights, "") and NAME not in weights
    for rows in (2, 4):
        with pytest.raises(DataError, match=rf"^embedding\.weight: {rows} rows, expected 3, one for each symbol"):
            transfer(start(["_", "a", "b"], ["_", "b"], rows=rows))
    given = start(["_", "a", "b"], ["_", "b"], symbols_embedding_dim=8)  # for the error of loading
    assert transfer(given) == (given.weights, "")


ALPHABET = ["_", *" ,.?!-", *"abcdefghijklmnopqrstuvwxyzäöüß", "@AH0"]
TEXTS = ("Grüß Gott!", "Zwölf Äpfel, schöne Öfen.", "Über die Straße.", "Süße Mädchen", "{AH0} Ja?", "Nö.", "Bücher")
PHRASE = "Fünf größere Öfen, {AH0}!"
SPELLED = [*"fünf größere öfen, ", "@AH0", "!"]


def train_words(folder: Path, symbols: Path) -> list[object]:
    """Flags of the tiny model on the corpus's clips, as if they were German."""
    words = flags("Tacotron2", folder)
    rows = [f"corpus/clock/clock_{number:04}.ogg|{text}\n" for number, text in zip(SHORT_CLIPS, TEXTS, strict=False)]
    for part, chosen in (("training", rows[:5]), ("validation", rows[5:])):
        (folder / f"{part}.txt").write_text("".join(chosen), encoding="utf-8")
    return [*words, "--symbols-file", symbols, "--text-cleaners", "basic_cleaners"]


@pytest.mark.slow
def test_a_voice_of_another_alphabet_from_training_to_speech(tmp_path: Path) -> None:
    """A resumed run and inference take the alphabet of the checkpoint, and its own file again; another is an error."""
    symbols, swapped = tmp_path / "symbols.txt", tmp_path / "swapped.txt"
    symbols.write_bytes("\r\n".join(ALPHABET).encode())
    swapped.write_text("\n".join(["_", *reversed(ALPHABET[1:])]), encoding="utf-8")  # as many: only the table tells
    path = tmp_path / "first" / "checkpoint_Tacotron2_last.pt"
    succeed("train.py", *train_words(path.parent, symbols), "--epochs", 1)
    again = succeed("train.py", *train_words(tmp_path / "second", symbols), "--epochs", 2, "--checkpoint-path", path)
    assert "resuming at epoch 1" in again
    for name in ("first", "second"):
        checkpoint = load_checkpoint(tmp_path / name / path.name)
        assert checkpoint["data"]["symbols"] == ALPHABET
        assert checkpoint["config"]["n_symbols"] == len(ALPHABET) == 38
        assert checkpoint["state_dict"]["embedding.weight"].shape == (38, 16)
    (tmp_path / "phrases.txt").write_text(f"{PHRASE}\n", encoding="utf-8")
    words = ["-i", tmp_path / "phrases.txt", "--vocoder", "griffin-lim", "--cpu", "--seed", 0, "--tacotron2", path]
    words += ["--gate-threshold", 1, "--max-decoder-steps", 20]  # else the untrained gate may fire at once
    succeed("inference.py", *words, "-o", tmp_path / "quiet")
    succeed("inference.py", *words, "-o", tmp_path / "named", "--symbols-file", symbols)
    quiet, named = ((tmp_path / name / "audio_0.wav").read_bytes() for name in ("quiet", "named"))
    assert quiet == named
    assert read_parameters(tmp_path / "quiet" / "nvlog.json")["symbols"] == ALPHABET
    result = run("inference.py", *words, "-o", tmp_path / "other", "--symbols-file", swapped)
    assert result.code == 2 and f"{path}: --symbols-file has 38 " in result.err and "Traceback" not in result.err
    config = inference.parse_args([str(word) for word in words]).config
    voice = Synthesizer.from_checkpoints(path, config=config, device="cpu")
    assert voice.symbols(PHRASE) == SPELLED
    ids, lengths = acoustic_stages(voice.acoustic).encode([PHRASE], voice.acoustic.options)
    assert ids.tolist() == [[ALPHABET.index(symbol) for symbol in SPELLED]]
    assert lengths.tolist() == [len(SPELLED)]
