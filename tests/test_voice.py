"""Choice of checkpoints for inference: from flags, from output/, or the embedded voice; and its precision."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

import synthesizer
from common.checkpoint import __main__ as checkpoint
from common.errors import DataError
from common.inference.config import SynthesisConfig
from common.inference.voice_folder import default_vocoder, read_voice_folder
from models import REGISTRY
from tests.recipe import MODELS, ROOT, Result, read_log, run, succeed, train_tiny_model

pytestmark = pytest.mark.slow

pytest.importorskip("safetensors")
WITH_ITS_OWN = ("--vocoder", "waveglow")
EMBEDDED = [f"voice/{model.lower()}.safetensors" for model in MODELS]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch) -> Path:
    """A folder with inference.py and a tiny embedded voice, without trained checkpoints."""
    folder = tmp_path / "clone"
    (folder / "voice").mkdir(parents=True)
    shutil.copy(ROOT / "inference.py", folder)
    (folder / "phrases.txt").write_text("Two.\n")
    for model, path in zip(MODELS, EMBEDDED, strict=True):
        checkpoint.convert(train_tiny_model(model), folder / path, half=True)
    (folder / "voice" / "config.json").write_text('{"vocoder": "griffin-lim"}')
    monkeypatch.setattr(synthesizer, "EMBEDDED", folder / "voice")
    monkeypatch.chdir(folder)
    return folder


def train(folder: Path, *chosen: str) -> None:
    for model in chosen:
        (folder / "output").mkdir(exist_ok=True)
        (folder / "output" / f"checkpoint_{model}_last.pt").write_bytes(train_tiny_model(model).read_bytes())


def speak(folder: Path, *words: object) -> Result:
    script = str(folder / "inference.py")
    return run(script, "-i", "phrases.txt", "-o", "spoken", "--cpu", "--seed", 0, *words, cwd=folder)


def voice(folder: Path, *words: object) -> str:
    """Run inference.py and return its line on the chosen files."""
    result = speak(folder, *words)
    assert result.code == 0, result.err
    (line,) = re.findall("^.*voice: (.*)$", result.out, re.M)
    assert (folder / "spoken" / "audio_0.wav").stat().st_size > 44
    return str(line)


def chosen(vocoder: str | None = None, **named: Path) -> str:
    return synthesizer.choose_checkpoints(named, vocoder).description


def test_the_command_speaks_with_the_voice_that_was_chosen(clone: Path, tmp_path: Path) -> None:
    """From any folder, and by default through the vocoder in the voice's config.json."""
    assert voice(clone) == f"the embedded one, {EMBEDDED[0]} through griffin-lim"
    words = ["-i", clone / "phrases.txt", "-o", tmp_path / "elsewhere", "--cpu", *WITH_ITS_OWN]
    out = succeed(str(clone / "inference.py"), *words, cwd=tmp_path)
    assert "the embedded one, clone/voice/tacotron2.safetensors and clone/voice/waveglow.safetensors" in out
    train(clone, *MODELS)
    assert voice(clone) == "output/checkpoint_Tacotron2_last.pt and output/checkpoint_WaveGlow_last.pt"
    error = speak(clone, "--tacotron2", "none.pt").err
    assert error.startswith("error: none.pt: no such checkpoint")


def test_the_embedded_voice(clone: Path) -> None:
    through_griffin_lim = f"the embedded one, {EMBEDDED[0]} through griffin-lim"
    assert chosen() == chosen("griffin-lim") == through_griffin_lim
    assert chosen("waveglow") == f"the embedded one, {EMBEDDED[0]} and {EMBEDDED[1]}"
    config = clone / "voice" / "config.json"
    config.write_text('{"vocoder": "waveglow"}')
    assert chosen() == chosen("waveglow")
    config.write_text('{"vocoder": "griffin-lim"}')
    (clone / EMBEDDED[1]).unlink()
    assert chosen() == through_griffin_lim
    with pytest.raises(DataError, match="no vocoder model"):
        chosen("waveglow")
    (clone / EMBEDDED[0]).unlink()
    with pytest.raises(DataError, match=r"^no acoustic model: .* the embedded voice, voice/, is not here$"):
        chosen()


def test_the_embedded_voice_has_its_own_default_denoising_strength(clone: Path) -> None:
    def strength(*words: object) -> tuple[float, bytes]:
        voice(clone, *words)
        records = [record.get("data", {}) for record in read_log(clone / "spoken" / "nvlog.json")]
        used = [data["denoising_strength"] for data in records if "denoising_strength" in data]
        return used[-1], (clone / "spoken" / "audio_0.wav").read_bytes()

    own, (usual, other_sound) = strength(*WITH_ITS_OWN), strength("-d", 0.01, *WITH_ITS_OWN)
    assert own == strength("-d", own[0], *WITH_ITS_OWN) and own[0] > usual == 0.01 and own[1] != other_sound
    assert strength("--waveglow", clone / EMBEDDED[1], "--tacotron2", clone / EMBEDDED[0]) == own
    train(clone, *MODELS)
    assert strength()[0] == usual


def test_an_acoustic_model_alone_in_output_goes_through_griffin_lim(clone: Path) -> None:
    train(clone, "Tacotron2")
    alone = "output/checkpoint_Tacotron2_last.pt"
    assert chosen() == f"{alone} through griffin-lim, as output/ has no vocoder model"
    assert chosen("griffin-lim") == f"{alone} through griffin-lim"
    # models of one place do not fit the mels of another
    unused = f"; not {alone}, which is alone in output/"
    assert chosen("waveglow") == f"the embedded one, {EMBEDDED[0]} and {EMBEDDED[1]}{unused}"
    assert chosen(waveglow=Path("own.pt")) == f"{alone} and own.pt"  # a flag makes it a pair
    (clone / EMBEDDED[1]).unlink()
    with pytest.raises(DataError, match=r"no vocoder model: there is no output/checkpoint_WaveGlow_last\.pt"):
        chosen("waveglow")


def test_a_vocoder_alone_in_output_is_not_used(clone: Path) -> None:
    train(clone, "WaveGlow")
    alone = "output/checkpoint_WaveGlow_last.pt"
    unused = f"; not {alone}, which is alone in output/"
    assert chosen() == f"the embedded one, {EMBEDDED[0]} through griffin-lim{unused}"
    assert chosen("waveglow") == f"the embedded one, {EMBEDDED[0]} and {EMBEDDED[1]}{unused}"
    assert chosen(tacotron2=Path("own.pt")) == f"own.pt and {alone}"
    (clone / EMBEDDED[0]).unlink()
    with pytest.raises(DataError, match=r"^no acoustic model: there is no output/checkpoint_Tacotron2_last\.pt"):
        chosen()


def test_a_synthesis_loads_neither_pytorchs_compiler_nor_pictures() -> None:
    """The compiler takes seconds to load, and several operations on meta tensors would load it; pictures need matplotlib."""
    files = ", ".join(repr(str(train_tiny_model(model))) for model in MODELS)
    speak = f"Synthesizer.from_checkpoints({files}, device='cpu').speak('Two.')"
    avoided = ["torch._dynamo", "matplotlib", "common.data.pictures"]
    code = f"import sys; from synthesizer import Synthesizer; {speak}; sys.exit(bool(sys.modules.keys() & {avoided}))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_the_voice_of_this_repository_reads_a_new_sentence(tmp_path: Path) -> None:
    """A new sentence comes out complete and at the pace of speech, also in half precision and through WaveGlow."""
    assert sum((ROOT / path).stat().st_size for path in EMBEDDED) < 25e6
    text = "The ferry waits at the far side of the bay until noon."
    (tmp_path / "phrases.txt").write_text(f"{text}\n")
    lengths = []
    for name, more in (("full", []), ("half", ["--fp16"]), ("flow", WITH_ITS_OWN)):
        words = ["-i", tmp_path / "phrases.txt", "-o", tmp_path / name, "--seed", 1, *more]
        words += [] if "--fp16" in more else ["--cpu"]
        assert "voice: the embedded one, " in succeed(str(ROOT / "inference.py"), *words, cwd=tmp_path)
        clip = soundfile.info(tmp_path / name / "audio_0.wav")
        assert 0.03 < clip.duration / len(text) < 0.09
        lengths.append(clip.duration)
    assert lengths[0] == pytest.approx(lengths[1], rel=0.1) and lengths[0] == lengths[2]


def test_the_spanish_voice_reads_numbers_and_accents_in_spanish() -> None:
    folder = ROOT / "voice" / "spanish"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 17_500_000
    files = read_voice_folder(folder, REGISTRY.values())
    choice = synthesizer.choose_checkpoints(files, default_vocoder(folder, REGISTRY.values()))
    voice = synthesizer.Synthesizer.from_choice(choice, config=SynthesisConfig(seed=0), device="cpu")
    written, spoken, other = (voice.speak(f"La niña llegó el {day}.")[0].audio for day in ("21", "veintiuno", "veinte"))
    assert 1 < len(written) / 22050 < 4 and written.equal(spoken) and not spoken.equal(other)
