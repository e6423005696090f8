"""Edits of the plain models' files: each is in the losses of a training and in the sound of a voice, as with --plain.

A process that has imported the libraries alone is forked for each edit, and imports the recipe from a tree of links to its files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.slow


class Edit(NamedTuple):
    """A file, what it has in place of a text, the results that differ (losses of a model, or speech), and those with a note."""

    file: str
    old: str
    new: str
    changes: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()


T, W, S = "Tacotron2", "WaveGlow", "speech"
DECODER, LAYERS, WAVEGLOW = "tacotron2/decoder.py", "common/layers.py", "waveglow/model.py"
END_OF_LAYER = (
    "x = F.dropout(x, self.p_dropout, self.training)\n            if mask is not None:\n                x = x * mask"
)
EDITS = {
    "no edit": Edit(DECODER, "", ""),
    "a comment": Edit(DECODER, "    def step(", "    # as in the paper\n    def step("),
    "attention": Edit(DECODER, "softmax(energies.", "softmax((0 * energies).", (T, S), (T, S)),
    "dropout": Edit(DECODER, "dropout(h, self.p_attention_dropout", "dropout(h, 0.3", (T,), (T, S)),
    "prenet": Edit(DECODER, "torch.relu(layer(x))", "torch.tanh(layer(x))", (T, S), (S,)),
    "residual": Edit("tacotron2/model.py", "mels + self.conv", "mels + 0.5 * self.conv", (T, S), (S,)),
    "activation": Edit(LAYERS, "x = torch.tanh(x)", "x = torch.sin(x)", (T, S), (S,)),
    "padding": Edit(LAYERS, END_OF_LAYER, END_OF_LAYER.partition("\n")[0], (T, S), (S,)),
    "stop": Edit("tacotron2/guard.py", "_n_steps += len(gates)", "_n_steps += 2 * len(gates)", (S,), (S,)),
    "loss": Edit("tacotron2/loss_function.py", ".square().mean(dim=1)", ".abs().mean(dim=1)", (T,)),
    "likelihood": Edit("waveglow/loss_function.py", '"log_s": -log_s', '"log_s": -2 * log_s', (W,)),
    "gate": Edit(WAVEGLOW, "torch.tanh(signal)", "torch.sin(signal)", (W, S), (W, S)),
    "dilation": Edit(WAVEGLOW, "dilation=2**i", "dilation=2 * i + 1", (W, S), (W, S)),
    "upsampling": Edit(WAVEGLOW, "stride=self.hop_length)", "stride=self.hop_length).relu()", (W, S), (S,)),
    "mixing": Edit(WAVEGLOW, ".sum(dim=2)", ".sum(dim=2) * 1.01", (W, S), (W, S)),
    "vocoding": Edit(WAVEGLOW, "z = sigma * z.to", "z = 0.5 * sigma * z.to", (S,), (S,)),
    "denoiser": Edit("waveglow/denoiser.py", "strength * self.bias", "2 * strength * self.bias", (S,)),
}


def tiny_batches() -> dict[str, Any]:
    """A batch of two clips of unlike lengths for each model."""
    import torch

    from tacotron2.data_function import Tacotron2Batch
    from waveglow.data_function import WaveGlowBatch

    generator, names = torch.Generator().manual_seed(1), ("a", "b")
    text, lengths = torch.randint(1, 60, (2, 9), generator=generator), torch.tensor([9, 4])
    mels, frames = torch.randn(2, 10, 17, generator=generator), torch.tensor([17, 11])
    gates = (torch.arange(17) >= frames[:, None] - 1).float()
    audio = 0.3 * torch.randn(2, 17 * 256, generator=generator)
    return {
        T: Tacotron2Batch(text, lengths, mels, gates, frames, names),
        W: WaveGlowBatch(mels, audio, torch.tensor(2 * 17 * 256), names),
    }


def measure() -> dict[str, Any]:
    """Losses of three steps of tiny models, sums of speech, each also with plain models, and the notes."""
    import torch

    from common import precision
    from common.training.loop import train_step
    from synthesizer import SynthesisConfig, Synthesizer
    from tests.recipe import fresh_state

    results, notes, said = dict[str, Any](), dict[str, str](), list[str]()
    precision.print_once = said.append
    same_draws = ["--p-attention-dropout", 0, "--p-decoder-dropout", 0, "--mask-padding"]
    for name, batch in tiny_batches().items():
        flags = same_draws if name == T else []
        fast = [] if name == T else ["--recompute"]  # a row that no CPU leaves out
        for ending, way in (("", fast), (" plain", ["--plain"])):
            precision.seed_everything(1)
            state = fresh_state(name, Path("output"), *flags, *way)
            state.trained.train()
            for wn in getattr(state.model, "WN", ()):
                torch.nn.init.normal_(wn.end.weight, std=0.1)  # zeros would hide every other weight of WN
            results[name + ending] = [train_step(state, [batch]).loss for _ in range(3)]
            notes[name] = notes.get(name) or state.note
    for plain in (False, True):
        config = SynthesisConfig(vocoder="waveglow", plain=plain, options={"max_decoder_steps": 40})
        speeches = Synthesizer.embedded(config=config, device="cpu").speak(["A long clock.", "Two."])
        means = [float(part.abs().mean()) for speech in speeches for part in (speech.mel, speech.audio)]
        results["speech plain" if plain else "speech"] = means
    return {"results": results, "notes": notes | {"speech": "; ".join(said)}}


def write_tree(edit: Edit, folder: Path) -> None:
    """Fill a folder with links to the recipe's files, and the edited one in place of its own."""
    room, name = edit.file.split("/")
    (folder / room).mkdir(parents=True)
    for source, place in ((ROOT, folder), (ROOT / room, folder / room)):
        for path in source.iterdir():
            if path.name[0] != "." and path.name not in (room, name, "output", "__pycache__"):
                (place / path.name).symlink_to(path)
    text = (ROOT / edit.file).read_text()
    assert not edit.old or text.count(edit.old) == 1, f"{edit.file}: {edit.old}"
    (folder / edit.file).write_text(text.replace(edit.old, edit.new) if edit.old else text)


def main(folder: str) -> None:
    """Measure in each tree of a folder, each in a fork."""
    import torch

    torch.set_num_threads(1)
    for tree in sorted(Path(folder).iterdir()):
        if os.fork() == 0:
            os.chdir(tree)
            sys.path[0] = str(tree)
            Path("result.json").write_text(json.dumps(measure()))
            os._exit(0)
        assert os.wait()[1] == 0, tree


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("edits")
    for name, edit in EDITS.items():
        write_tree(edit, folder / name)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    subprocess.run([sys.executable, __file__, str(folder)], env=environment, check=True)
    return {name: json.loads((folder / name / "result.json").read_text()) for name in EDITS}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_in_losses_and_sound(measured: dict[str, Any], name: str) -> None:
    edit, found, usual = EDITS[name], measured[name], measured["no edit"]["results"]
    for result in (T, W, S):
        got, note = found["results"][result], found["notes"][result]
        assert got == pytest.approx(found["results"][f"{result} plain"], rel=1e-4)
        assert (got != pytest.approx(usual[result], rel=1e-5)) == (result in edit.changes)
        assert (edit.file in note) == bool(note) == (result in edit.noted)


if __name__ == "__main__":
    main(sys.argv[1])
