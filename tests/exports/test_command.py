"""python -m exports: the files it writes, the manifest and its checks, the runner, and one clear error for each mistake."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

from common.errors import DataError, UsageError
from common.inference.config import SynthesisConfig
from common.inference.voice_folder import read_voice_folder
from exports.__main__ import main
from exports.manifest import ExportWriter, read_manifest
from exports.targets import load_source, vocoders_for
from exports.voice import load_voice
from models import REGISTRY
from synthesizer import EMBEDDED
from tests.exports.conftest import GROUPS, SETTINGS, skip_without_packages
from tests.recipe import run, succeed, train_tiny_model

PHRASES = "Two.\nTen past nine.\n"


@pytest.fixture
def copy(export_of, tmp_path):
    """copy(target) -> a copy of an export that a test may damage."""
    return lambda target: Path(shutil.copytree(export_of(target), tmp_path / target))


@pytest.mark.slow
def test_checkpoints_to_audio_and_the_same_audio_as_inference(tmp_path) -> None:
    """inference.py speaks the same with exported checkpoints as with plain ones, to a few steps of 16 bits."""
    models = ["--tacotron2", train_tiny_model("Tacotron2"), "--waveglow", train_tiny_model("WaveGlow")]
    (tmp_path / "phrases.txt").write_text(PHRASES)
    words = ["-i", tmp_path / "phrases.txt", "--seed", 5]
    folder = tmp_path / "export"
    assert "waveglow.ts" in succeed("exports/__main__.py", "torchscript", *models, "-o", folder, "-d", 0.02)
    spoken, plain = tmp_path / "spoken", tmp_path / "plain"
    assert "for torchscript" in succeed("inference.py", *words, "--export", folder, "-o", spoken, "--cpu")
    succeed("inference.py", *words, *models, "-o", plain, "--plain", "--cpu", "-d", 0.02)
    for i in range(2):
        (_, ours), (_, theirs) = (wavfile.read(place / f"audio_{i}.wav") for place in (spoken, plain))
        assert len(ours) == len(theirs) > 0
        assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 4
        assert (spoken / f"alignment_{i}.png").exists()
    again = succeed("inference.py", *words, "--export", folder, "-o", spoken, "--cpu", "--resume")
    assert "2 of 2 lines are there" in again


@pytest.mark.slow
@pytest.mark.parametrize("target", [group[0] for group in GROUPS])
def test_exports_and_their_runs_print_only_lines_of_their_own(output_of, shared_exports, target: str) -> None:
    """No warning of PyTorch or of another package reaches the terminal."""
    out, err = output_of(target)
    assert err == ""
    starts = (
        "voice: small, exported to",
        "engines: ",
        "serve the directory: ",
        f"{shared_exports}/",
        "DLL ",
        "to hear it",
    )
    assert [line for line in out.splitlines() if not line.startswith(starts)] == []
    assert f"speech-{target}/audio_0.wav" in out


@pytest.mark.slow
def test_the_manifest_describes_every_file(export_of, source) -> None:
    """Names, sizes and sums, and inputs and outputs as ONNX Runtime reads them."""
    skip_without_packages()
    import onnxruntime

    directory = export_of("onnx")
    manifest = json.loads((directory / "export.json").read_text())
    names = {path.name for path in directory.iterdir()} - {"export.json"}
    assert names == set(manifest["files"]) == {f"{part.name}.onnx" for part in source.parts()} | {"tts.onnx"}
    assert manifest["files"]["waveglow.onnx"]["inputs"]["mels"] == {"type": "float32", "shape": ["batch", 9, "frames"]}
    assert manifest["options"].items() >= {"sampling_rate": 22050, "text_cleaners": ["english_cleaners"]}.items()
    assert {"torch", "onnx", "onnxruntime"} <= set(manifest["versions"])
    for name, record in manifest["files"].items():
        contents = (directory / name).read_bytes()
        assert (record["bytes"], record["sha256"]) == (len(contents), hashlib.sha256(contents).hexdigest())
        session = onnxruntime.InferenceSession(contents)
        inputs = [*session.get_inputs(), *session.get_overridable_initializers()]
        for values, described in ((inputs, record["inputs"]), (session.get_outputs(), record["outputs"])):
            assert {value.name for value in values} == set(described)
            for value in values:
                shapes = (value.shape, described[value.name]["shape"])
                ours, theirs = ([size for size in shape if isinstance(size, int)] for shape in shapes)
                assert ours == theirs, (name, value.name)


@pytest.mark.slow
def test_a_missing_vocoder_and_changed_and_missing_files_are_named(copy) -> None:
    directory = copy("torchscript")
    contents, manifest = bytearray((directory / "waveglow.ts").read_bytes()), directory / "export.json"
    manifest.write_text(manifest.read_text().replace('"WaveGlow"', '"WaveGlue"'))
    with pytest.raises(DataError, match=f"^{manifest}: models: Tacotron2, WaveGlue; expected WaveGlow or PulseNoise; "):
        load_voice(directory)
    contents[100] ^= 1
    (directory / "waveglow.ts").write_bytes(contents)
    (directory / "denoiser.ts").unlink()
    with pytest.raises(DataError) as error:
        load_voice(directory)
    assert "waveglow.ts: SHA-256" in str(error.value) and "denoiser.ts: cannot be read" in str(error.value)
    assert "export again" in str(error.value)


GOOD = SETTINGS | {"format": 1, "files": {}}
RECORD = {"bytes": 1, "sha256": hashlib.sha256(b"1").hexdigest(), "inputs": {}, "outputs": {}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file; expected a dir"),
        ("{", "no JSON"),
        (json.dumps(GOOD | {"files": []}), "`files` is not a table of files"),
        (json.dumps(GOOD | {"sigma_infer": "x"}), "sigma_infer: 'x', expected a number"),
        *(
            (json.dumps(GOOD | {"files": {name: RECORD}}), "expected a path inside")
            for name in ("/dev/zero", "../secret", "a/../../secret", "nul\0")
        ),
    ],
)
def test_a_directory_without_a_good_manifest_is_refused(tmp_path, text: str | None, message: str) -> None:
    (tmp_path / "secret").write_bytes(b"1")
    (tmp_path / "export").mkdir()
    if text is not None:
        (tmp_path / "export" / "export.json").write_text(text)
    with pytest.raises(DataError, match=message):
        read_manifest(tmp_path / "export")


def exported(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_older_export_stays_until_the_new_one_is_whole(tmp_path) -> None:
    """And other people's files stay; what an interrupted writer leaves is removed by the next."""
    folder = tmp_path / "export"
    interrupted = ExportWriter(folder)
    interrupted.add("half.bin", b"0", {}, {})
    writer = ExportWriter(folder)
    writer.add("old.bin", b"1", {}, {})
    writer.add("tts/1/old.py", b"1", {}, {})
    writer.finish(**SETTINGS)
    assert set(exported(folder)) == {"export.json", "old.bin", "tts/1/old.py"}
    (folder / "tts" / "notes.txt").write_text("mine")
    before = exported(folder)
    ExportWriter(folder).add("old.bin", b"half", {}, {})
    assert {name: data for name, data in exported(folder).items() if name in before} == before
    assert list(read_manifest(folder).files) == ["old.bin", "tts/1/old.py"]
    writer = ExportWriter(folder)
    writer.add("tts/1/new.py", b"22", {}, {})
    writer.finish(**SETTINGS)
    assert {path.name for path in folder.rglob("*")} == {"export.json", "notes.txt", "tts", "1", "new.py"}
    assert list(read_manifest(folder).files) == ["tts/1/new.py"]
    (folder / "export.json").unlink()
    with pytest.raises(UsageError, match="has files but no export"):
        ExportWriter(folder)


@pytest.mark.slow
def test_flags_that_the_files_fix_are_refused(export_of) -> None:
    for settings, message in (
        ({"options": {"decoder_rnn_dim": 8}}, "--decoder-rnn-dim: fixed by the export"),
        ({"int8": True}, "leave --fp16 and --int8 out"),
        ({"options": {"attention_window": 3}}, "TorchScript has no --attention-window"),
    ):
        with pytest.raises(UsageError, match=message):
            load_voice(export_of("torchscript"), SynthesisConfig(**settings))


@pytest.mark.slow
def test_an_export_has_noise_and_hum_of_its_own_unless_flags_name_others(export_of) -> None:
    for settings, numbers in (({}, (0.7, 0.05)), ({"sigma_infer": 0.4, "denoising_strength": 0.03}, (0.4, 0.03))):
        voice = load_voice(export_of("torchscript"), SynthesisConfig(**settings))
        assert (voice.sigma_infer, voice.denoising_strength) == numbers
        assert (voice.vocoder.sigma, voice.vocoder.strength) == numbers


@pytest.mark.slow
def test_tensorrt_gets_a_script_and_needs_its_provider(export_of) -> None:
    """Each file has a profile of its own inputs, as the onnx package reads them."""
    onnx, directory = pytest.importorskip("onnx", reason="of requirements/exports.txt"), export_of("tensorrt")
    script = (directory / "build_engines.sh").read_text()
    assert "--minShapes=mels:1x9x8,z:1x8x64 --optShapes=mels:1x9x600,z:1x8x4800" in script
    commands = re.findall(r'^trtexec --onnx=(\w+)\.onnx --saveEngine=\1\.plan (.*) "\$@"$', script, re.MULTILINE)
    parts = {path.stem for path in directory.glob("*.onnx")} - {"tts"}  # which ONNX Runtime runs
    assert {name for name, _ in commands} == parts and len(commands) == len(parts)
    for name, words in commands:
        profile = [dict(one.split(":") for one in shapes.split(",")) for shapes in re.findall(r"Shapes=(\S+)", words)]
        for tensor in onnx.load(directory / f"{name}.onnx", load_external_data=False).graph.input:
            for axis, dim in enumerate(tensor.type.tensor_type.shape.dim):
                ends = [int(shapes[tensor.name].split("x")[axis]) for shapes in profile]
                assert ends == [dim.dim_value] * 3 if dim.dim_value else ends[0] < ends[2] and ends == sorted(ends)
    with pytest.raises(DataError, match="needs ONNX Runtime with TensorrtExecutionProvider"):
        load_voice(directory)


def test_a_target_gets_the_vocoder_of_the_voice_if_it_can_hold_it(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # where no model has been trained
    folder, plain = shutil.copytree(EMBEDDED, tmp_path / "voice"), SynthesisConfig(plain=True)
    named = SynthesisConfig(plain=True, vocoder="waveglow")

    def vocoder(target: str, config: SynthesisConfig = plain, folder: Path | None = None) -> str:
        checkpoints = read_voice_folder(folder, REGISTRY.values()) if folder else {}
        return load_source(vocoders_for(target), checkpoints, config, folder).kind.spec.flag

    assert [vocoder("web"), vocoder("torchscript"), vocoder("web", named)] == ["pulse-noise", "waveglow", "waveglow"]
    assert [vocoder("onnx", folder=folder), vocoder("torchscript", folder=folder)] == ["pulse-noise", "waveglow"]
    (folder / "config.json").write_text('{"vocoder": "waveglow"}')
    assert vocoder("triton", folder=folder) == "waveglow"
    (folder / "config.json").unlink()
    (folder / "waveglow.safetensors").unlink()
    with pytest.raises(DataError, match="voice: no waveglow in it, which the export needs"):
        vocoder("torchscript", folder=folder)
    with pytest.raises(UsageError, match="torchscript: cannot hold pulse-noise, expected --vocoder waveglow"):
        main(["torchscript", "--vocoder", "pulse-noise", "-o", str(tmp_path / "export")])


@pytest.mark.slow
def test_evaluate_takes_an_export(export_of, tmp_path) -> None:
    (tmp_path / "lines.txt").write_text(PHRASES)
    words = ["-i", tmp_path / "lines.txt", "-o", tmp_path / "report", "--without", "asr", "mos", "likeness"]
    out = succeed("evaluate.py", *words, "--export", export_of("torchscript"), "--cpu")
    assert f"exported to {export_of('torchscript')}" in out and (tmp_path / "report" / "report.html").exists()
    result = run("evaluate.py", *words, "--export", export_of("torchscript"), "--waveglow", "x.pt")
    assert result.code == 2 and "--export: has models of its own" in result.err
