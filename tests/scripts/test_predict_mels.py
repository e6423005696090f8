"""The mel that Tacotron 2 predicts for each recorded clip, a vocoder trained on these mels, and a postnet that sharpens them."""

import os
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from common.checkpoint.files import load_checkpoint
from common.data import mels as prepare_mels
from common.data.filelist import read_filelist
from common.data.mels import load_mel
from common.errors import DataError, UsageError
from common.training.adversarial import TRAINING, Limit, unfinished_path
from models import load_model
from scripts import predict_mels, sharpen_mels
from scripts.sharpen_mels import MelPair, Sharpening, movement
from tacotron2.decoder import Prenet
from tacotron2.model import Postnet, Tacotron2Config
from tacotron2.text import text_to_sequence
from tests.recipe import ROOT, flags, run, succeed, train_tiny_model

MELS = 10  # channels of the tiny models


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A dataset of four short clips: wavs, mels, audio.txt and mel.txt."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "wavs").mkdir()
    words = flags("Tacotron2", tmp_path_factory.mktemp("unused"))  # for the rows that it writes
    rows = read_filelist(words[words.index("--training-files") + 1])[:4]
    for row in rows:
        shutil.copy(ROOT / row.path, folder / "wavs")
    (folder / "audio.txt").write_text("".join(f"wavs/{Path(row.path).name}|{row.text}\n" for row in rows))
    (folder / "mel.txt").write_text("".join(f"mels/{Path(row.path).stem}.pt|{row.text}\n" for row in rows))
    lists = ["--audio-filelist", folder / "audio.txt", "--mel-filelist", folder / "mel.txt"]
    words = [*lists, "--dataset-path", folder, "--n-mel-channels", MELS, "--num-workers", 1]
    prepare_mels.main([str(word) for word in words])
    return folder


@pytest.fixture
def dataset(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "voice"))


def predict(dataset: Path, output: Path, *words: object) -> None:
    start = [train_tiny_model("Tacotron2"), dataset / "mel.txt", "-d", dataset, "-o", output, "--cpu", *words]
    predict_mels.main([str(word) for word in start])


def keep_everything(prenet: Prenet, steps: int, batch: int, device: torch.device) -> torch.Tensor:
    return torch.full((steps, 2, batch, prenet.dim), 1 - prenet.p_dropout, device=device)


@pytest.fixture
def no_dropout(monkeypatch) -> None:
    """Disable the prenet's dropout, which is always on, so that predictions do not depend on the batch."""
    monkeypatch.setattr("tacotron2.decoder.Prenet.draw_keep_masks", keep_everything)


@pytest.mark.parametrize("batch", [1, 3])
def test_each_mel_is_the_prediction_for_its_clip_alone(dataset, tmp_path, no_dropout, batch):
    predict(dataset, tmp_path / "out", "-bs", batch)
    model = load_model("Tacotron2", train_tiny_model("Tacotron2"))
    for row in read_filelist(dataset / "mel.txt"):
        prediction, mel = load_mel(tmp_path / "out" / row.path, MELS), load_mel(dataset / row.path, MELS)
        ids = torch.tensor([text_to_sequence(row.text, ["english_cleaners"])])
        with torch.no_grad():
            expected = model(ids, torch.tensor([ids.shape[1]]), mel[None], torch.tensor([mel.shape[1]]))
        assert prediction.shape == mel.shape
        torch.testing.assert_close(prediction, expected.mel_outputs_postnet[0], atol=1e-4, rtol=0)
        assert (prediction - mel).abs().mean() > 0.1  # not a copy of the input


@pytest.mark.slow
def test_a_vocoder_trains_on_them(dataset, tmp_path):
    predict(dataset, tmp_path / "out")
    words = flags("WaveGlow", tmp_path / "run")
    for name in ("--training-files", "--validation-files"):
        words[words.index(name) + 1] = str(dataset / "audio.txt")
    words[words.index("--dataset-path") + 1] = str(tmp_path / "out")
    succeed("train.py", *words, "--epochs", 1, "--load-mel-from-disk")
    assert (tmp_path / "run" / "checkpoint_WaveGlow_0.pt").is_file()
    first = {path.name: path.read_bytes() for path in (tmp_path / "out" / "mels").iterdir()}
    predict(dataset, tmp_path / "out")  # a second run gives the same files
    assert {path.name: path.read_bytes() for path in (tmp_path / "out" / "mels").iterdir()} == first
    assert (tmp_path / "out" / "wavs").resolve() == (dataset / "wavs").resolve()


def test_the_dataset_as_output_and_another_model_are_errors(dataset, tmp_path):
    before = {path: path.read_bytes() for path in (dataset / "mels").iterdir()}
    with pytest.raises(UsageError, match=r"--output .*: is the dataset's own folder"):
        predict(dataset, dataset / "wavs" / "..")
    assert {path: path.read_bytes() for path in (dataset / "mels").iterdir()} == before
    words = [train_tiny_model("WaveGlow"), dataset / "mel.txt", "-d", dataset, "-o", tmp_path / "out"]
    result = run("scripts/predict_mels.py", *words)
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "is it a checkpoint of Tacotron2?" in result.err


def edit(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


def name_other_mels(folder: Path, out: Path) -> None:
    (folder / "mels").rename(folder / "other")
    edit(folder / "mel.txt", "mels/", "other/")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda made, out: edit(made / "mel.txt", "mels/", "mels/absent"), "4 of 4 files are missing"),
        (lambda made, out: shutil.rmtree(made / "wavs"), r"wavs: no such folder, expected the recordings"),
        (name_other_mels, "other: expected rows FOLDER/mels/ID.pt"),
        (lambda made, out: edit(made / "mel.txt", "|", "|{QQ} "), r"(?s)mel.txt:1: .*mel.txt:4: "),
        (lambda made, out: (out / "wavs").mkdir(parents=True), "wavs: in the way of a link to the recordings"),
    ],
)
def test_bad_input_is_one_error_and_no_file(dataset, tmp_path, spoil, message):
    spoil(dataset, tmp_path / "out")
    with pytest.raises(DataError, match=message):
        predict(dataset, tmp_path / "out")
    assert not (tmp_path / "out" / "mels").exists()


def sharpen(dataset: Path, output: Path, *words: object) -> int:
    start = [train_tiny_model("Tacotron2"), dataset / "mel.txt", "-d", dataset, "-o", output, "--cpu", "--steps", 3]
    return sharpen_mels.main([str(word) for word in (*start, *words)])


@pytest.mark.slow
def test_sharpening_changes_the_postnet_alone_and_the_same_way_for_a_seed(dataset, tmp_path, capsys):
    outputs = [tmp_path / "a.pt", tmp_path / "new" / "b.safetensors", tmp_path / "c.pt"]
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file/new/1\.pt: cannot be written \(.*\); choose another --output"):
        sharpen(dataset, tmp_path / "file" / "new" / "1.pt", "--steps", 10**6)  # before the training
    for output, seed in zip(outputs, (1, 1, 2), strict=True):
        assert sharpen(dataset, output, "--seed", seed) == 0
    said = capsys.readouterr().out
    predict(dataset, tmp_path / "out")  # the postnet's mels before
    rows = read_filelist(dataset / "mel.txt")
    moves = [
        sum(float(load_mel(folder / row.path, MELS).diff(dim=1).abs().sum()) for row in rows)
        for folder in (tmp_path / "out", dataset)
    ]
    assert f"movement from frame to frame {moves[0] / moves[1]:.0%} of the recordings' before" in said
    before = load_checkpoint(train_tiny_model("Tacotron2"))["state_dict"]
    first, again, other = (load_checkpoint(output)["state_dict"] for output in outputs)
    changed = {name for name in before if not torch.equal(before[name], first[name])}
    assert changed and all(name.startswith("postnet.") for name in changed)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in changed)
    assert load_model("Tacotron2", outputs[0]).config.n_mel_channels == MELS
    with pytest.raises(UsageError, match=r"a\.pt: exists; delete it"):
        sharpen(dataset, outputs[0])


@pytest.mark.slow
def test_a_stopped_sharpening_goes_on_bit_for_bit(dataset, tmp_path, monkeypatch, capsys):
    step, unfinished = Sharpening.step, tmp_path / "a.unfinished.pt"

    def step_and_stop(task: Sharpening, number: int, share: float) -> dict[str, float]:
        losses = step(task, number, share)
        if number == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return losses

    with monkeypatch.context() as patch:
        patch.setattr(Sharpening, "step", step_and_stop)
        assert sharpen(dataset, tmp_path / "a.pt", "--steps", 4) == 0
    assert f"saved {unfinished}; the same command goes on" in capsys.readouterr().out
    assert not (tmp_path / "a.pt").exists() and load_checkpoint(unfinished)[TRAINING]["step"] == 2
    assert load_model("Tacotron2", unfinished)  # for inference as it is
    with pytest.raises(DataError, match="began with seed 1, now 2; repeat its command, or delete"):
        sharpen(dataset, tmp_path / "a.pt", "--steps", 4, "--seed", 2)
    for name in ("a.pt", "whole.pt"):
        assert sharpen(dataset, tmp_path / name, "--steps", 4) == 0
    resumed, whole = (load_checkpoint(tmp_path / name)["state_dict"] for name in ("a.pt", "whole.pt"))
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())
    assert not unfinished.exists()


def test_minutes_limit_a_sharpening():
    limit = Limit(None, 2.0)
    assert [limit.share(10**6, seconds) for seconds in (0, 30, 120, 500)] == [0, 0.25, 1, 1]
    assert [Limit(8, None).share(step, 10**6) for step in (0, 2, 8)] == [0, 0.25, 1]


@pytest.mark.slow
def test_the_average_of_finite_weights_is_saved(dataset, tmp_path, monkeypatch):
    made: list[Sharpening] = []
    monkeypatch.setattr(sharpen_mels, "Sharpening", lambda *words: made.append(Sharpening(*words)) or made[-1])
    assert sharpen(dataset, tmp_path / "average.pt", "--clips", 2) == 0
    assert len(made[0].pairs) == 2
    saved = load_checkpoint(tmp_path / "average.pt")["state_dict"]
    for name, value in made[0].networks.average.module.state_dict().items():
        assert torch.equal(saved[f"postnet.{name}"], value)
    monkeypatch.setattr(sharpen_mels, "DISTANCE", float("nan"))
    with pytest.raises(DataError, match="3 steps in a row are NaN or infinite: nothing is written"):
        sharpen(dataset, tmp_path / "broken.pt")
    assert not (tmp_path / "broken.pt").exists() and not unfinished_path(tmp_path / "broken.pt").exists()


@pytest.mark.slow
def test_sharpened_mels_move_as_recorded_ones_do(monkeypatch):
    """Recordings have noise that nothing predicts: the distance alone leaves it out, and the discriminator asks for it."""
    monkeypatch.setattr(sharpen_mels, "LEARNING_RATE", 4e-3)
    generator = torch.Generator().manual_seed(0)
    pairs = []
    for number in range(6):
        noises = torch.randn(3, MELS, 150 + 10 * number, generator=generator)
        mean = torch.nn.functional.avg_pool1d(noises[0], 9, 1, 4, count_include_pad=False)
        pairs.append(MelPair(mean + 0.1 * noises[1], mean + 0.5 * noises[2]))
    postnet = Postnet(Tacotron2Config(n_mel_channels=MELS, postnet_embedding_dim=32, postnet_n_convolutions=2)).eval()
    torch.nn.init.zeros_(postnet.convolutions[-1][0].conv.weight)  # the mels as they are
    cpu = torch.device("cpu")
    before = movement(postnet, pairs, cpu)
    moves = [sum(float(mel.diff(dim=1).abs().sum()) for mel in mels) for mels in zip(*pairs, strict=True)]
    assert before == pytest.approx(moves[0] / moves[1], rel=1e-4) and before < 0.5
    sharpening = Sharpening(SimpleNamespace(postnet=postnet), {}, pairs, 1, cpu, 4)
    for number in range(150):
        sharpening.step(number, 0.0)
    assert 0.7 < movement(sharpening.networks.average.module, pairs, cpu) < 1.3


def test_crops_are_of_one_place():
    recorded = torch.arange(200.0).expand(MELS, -1)
    pairs = [MelPair(recorded + 1000 * number, recorded) for number in (1, 2)]
    postnet = Postnet(Tacotron2Config(n_mel_channels=MELS, postnet_n_convolutions=3, postnet_kernel_size=7))
    model, cpu = SimpleNamespace(postnet=postnet), torch.device("cpu")
    sharpening = Sharpening(model, {}, pairs, 1, cpu, 5)
    decoded, recorded = sharpening.crops(0)
    assert (decoded.shape, recorded.shape) == ((5, MELS, 98), (5, MELS, 80))  # nine frames on both sides
    offsets = decoded[..., 9:-9] - recorded
    assert set(offsets.flatten().tolist()) == {1000.0, 2000.0}
    with pytest.raises(DataError, match="no clip has 98 frames, which a crop of 80 needs; the longest has 97"):
        Sharpening(model, {}, [MelPair(torch.zeros(MELS, 97), torch.zeros(MELS, 97))], 1, cpu)
