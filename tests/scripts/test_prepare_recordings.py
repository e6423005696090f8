"""scripts/prepare_dataset.sh --dataset: recordings of any speaker, from their check to training."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from common.data.filelist import read_filelist
from common.errors import DataError
from common.training.arguments import parse_training_arguments
from data_functions import get_dataset
from models import REGISTRY
from scripts import prepare_recordings
from tests.recipe import MODELS, ROOT, run, succeed
from tests.scripts.shell import bash
from tests.sounds import RATE, save, tone

TEXTS = {"one": "The first.", "two": "The second one.", "three": "The third.", "four": "The fourth."}


@pytest.fixture
def voice(tmp_path: Path) -> Path:
    """A folder in LJSpeech's layout: four valid tones of 0.2 to 0.5 seconds."""
    folder = tmp_path / "voice"
    for number, name in enumerate(TEXTS):
        save(folder / "wavs" / f"{name}.wav", tone(0.2 + 0.1 * number))
    (folder / "metadata.csv").write_text("".join(f"{name}|{text}\n" for name, text in TEXTS.items()))
    return folder


def prepare(folder: Path, *words: object) -> None:
    """Run the command in this process, its paths and lists in `folder`."""
    flags = ["--relative-to", folder, "--filelists", "lists", "--num-workers", 1]
    prepare_recordings.main([str(word) for word in [*flags, *words]])


def listed(folder: Path, name: str, kind: str = "audio") -> dict[str, str]:
    """Read both lists of a corpus: path → text."""
    lists = [folder / "lists" / f"{name}_{kind}_text_{part}_filelist.txt" for part in ("train", "val")]
    return {path: text for content in lists for path, text in read_filelist(content)}


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_valid_clips_are_listed_without_a_copy(tmp_path: Path, voice: Path, capsys) -> None:
    table = "".join(f"{name};anna;{text}\n" for name, text in TEXTS.items())
    (voice / "metadata.csv").write_text(f"ID;Speaker;Text\n{table}")
    before = files(tmp_path)
    prepare(tmp_path, "--dataset", "voice", ".")
    assert listed(tmp_path, "voice") == {f"voice/wavs/{name}.wav": text for name, text in TEXTS.items()}
    assert listed(tmp_path, "voice", "mel") == {f"voice/mels/{name}.pt": text for name, text in TEXTS.items()}
    lists = {f"lists/voice_{kind}_text_{part}_filelist.txt" for kind in ("audio", "mel") for part in ("train", "val")}
    assert files(tmp_path) - before == lists
    out = capsys.readouterr().out
    assert f"{voice}/metadata.csv: columns 'ID' and 'Text'\n" in out
    assert "all clips can be used as they are: no copies" in out
    assert "voice: 4 clips, 0.0 minutes, 0.20 to 0.50 s; 1 of them for validation" in out
    trained = parse_training_arguments(printed_commands(out)[1][2:], REGISTRY, "")[0].flat
    wanted = REGISTRY["Tacotron2"].advise(1.4 / 60, 0, False).options  # as studio.plan has it for random weights
    assert {name: trained[name] for name in wanted} == wanted | {"batch_size": 3}  # all clips for training
    # seen from another data set's folder, paths are absolute
    prepare(tmp_path, "--dataset", "voice", "--name", "far", "elsewhere")
    assert set(listed(tmp_path, "far")) == {f"{voice}/wavs/{name}.wav" for name in TEXTS}
    assert not (tmp_path / "elsewhere").exists()


def test_one_error_reports_all_bad_rows_and_no_file_is_written(tmp_path: Path, voice: Path) -> None:
    save(voice / "wavs" / "one.wav", np.stack([tone(0.2), tone(0.2)], axis=1))
    (voice / "metadata.csv").write_text("one|\ntwo|The second.\nfive|The fifth.\nx")
    before = files(tmp_path)
    result = run("scripts/prepare_recordings.py", "--dataset", voice, tmp_path, "--filelists", tmp_path)
    lines = ["1: no text; .*one.wav: 2 channels, expected mono.*", "3: no recording five in .*"]
    lines += [r"4: 'x', expected rows id\|text.*"]
    rows = "\n".join(f"{voice}/metadata.csv:{line}" for line in lines)
    advice = (
        "3 rows cannot be used; fix or remove them; --resample converts other rates and formats, and stereo to mono"
    )
    assert result.code == 1 and re.fullmatch(f"error: {rows}\n{advice}\n", result.err)
    assert files(tmp_path) == before


def test_rows_that_training_refuses_are_refused_before(tmp_path: Path, voice: Path, capsys) -> None:
    texts = {"one": "An open {brace", "two": "☺—", "three": "Fine.", "four": "A hundred words. " * 100, "five": "Fine."}
    save(voice / "wavs" / "five.wav", tone(50 / RATE))
    (voice / "metadata.csv").write_text("".join(f"{name}|{text}\n" for name, text in texts.items()))
    (tmp_path / "list.txt").write_text("".join(f"voice/wavs/{name}.wav|{text}\n" for name, text in texts.items()))
    with pytest.raises(DataError) as early:
        prepare(tmp_path, "--dataset", "voice", ".")
    with pytest.raises(DataError) as late:
        get_dataset(REGISTRY["Tacotron2"], {"dataset_path": str(tmp_path)}, tmp_path / "list.txt")
    ours, theirs = ([line.partition(": ")[2] for line in str(one.value).splitlines()] for one in (early, late))
    assert ours[:-1] == theirs  # the last line is advice
    words = ("{", "nothing to speak", "symbols for 0.50 s", "50 samples, expected at least 513")
    assert all(word in line for word, line in zip(words, theirs, strict=True))
    # what is left out anyway may be short, and flags of training reach its command
    rows = [f"{name}|{texts[name] if name == 'five' else 'Fine.'}\n" for name in texts]
    (voice / "metadata.csv").write_text("".join(rows))
    words = ["--min-duration", "0.1", "--text-cleaners", "basic_cleaners"]
    prepare(tmp_path, "--dataset", "voice", "--name", "mine", *words)
    assert "--text-cleaners basic_cleaners" in shlex.join(printed_commands(capsys.readouterr().out)[1])


def test_other_rates_and_stereo_are_converted_once(tmp_path: Path, voice: Path, capsys) -> None:
    save(voice / "wavs" / "two.wav", tone(0.3, 16000), 16000)
    save(voice / "wavs" / "four.wav", np.stack([tone(0.5, 48000)] * 2, axis=1), 48000)
    words = ["--dataset", "voice", "data", "--name", "mine", "--resample"]
    prepare(tmp_path, *words)
    out = capsys.readouterr().out
    copies = tmp_path / "data" / "mine" / "wavs"
    changes = "1 resampled from 16000 Hz, 1 resampled from 48000 Hz, 1 mixed down to mono"
    assert f"copies in {copies}: {changes}; 4 made, 0 up to date" in out
    assert listed(tmp_path, "mine") == {f"mine/wavs/{name}.wav": text for name, text in TEXTS.items()}
    assert listed(tmp_path, "mine", "mel") == {f"mine/mels/{name}.pt": text for name, text in TEXTS.items()}
    for number, name in enumerate(TEXTS):
        samples, rate = soundfile.read(copies / f"{name}.wav")
        assert (rate, samples.shape) == (RATE, (round((0.2 + 0.1 * number) * RATE),))
    times = {path: path.stat().st_mtime_ns for path in copies.iterdir()}
    prepare(tmp_path, *words)
    out = capsys.readouterr().out
    assert "0 made, 4 up to date" in out
    assert out.count(", unchanged\n") == 4
    assert {path: path.stat().st_mtime_ns for path in copies.iterdir()} == times
    prepare(tmp_path, *words[:3], "--name", "low", "--resample", "-sr", 8000)
    assert soundfile.info(tmp_path / "data/low/wavs/one.wav").samplerate == 8000
    assert capsys.readouterr().out.count("--sampling-rate 8000 --mel-fmax 4000.0") == 2  # in the commands


def test_clips_outside_the_limits_after_trimming_are_left_out_and_named(tmp_path: Path, voice: Path, capsys) -> None:
    quiet = np.zeros(RATE)
    save(voice / "wavs" / "one.wav", np.concatenate([quiet, tone(0.25), quiet]))
    words = ["--dataset", "voice", "data", "--trim-silence", "--min-duration", 0.31, "--max-duration", 0.45]
    prepare(tmp_path, *words, "--validation", 1)
    out = capsys.readouterr().out
    assert ": silent ends cut; 2 made" in out
    assert "left out, shorter than 0.31 s: 1 clip: two (0.30 s)\n" in out
    assert "left out, longer than 0.45 s: 1 clip: four (0.50 s)\n" in out
    assert set(listed(tmp_path, "voice")) == {"voice/wavs/one.wav", "voice/wavs/three.wav"}
    length = soundfile.info(tmp_path / "data/voice/wavs/one.wav").duration
    assert length == pytest.approx(0.35, abs=0.024)  # the tone and 50 ms at either end, in steps of a frame


def test_an_existing_different_list_stays(tmp_path: Path, voice: Path, capsys) -> None:
    prepare(tmp_path, "--dataset", "voice", ".", "--validation", 1)
    assert "note:" not in capsys.readouterr().out
    prepare(tmp_path, "--dataset", "voice", ".", "--validation", 0.5)
    out = capsys.readouterr().out
    assert out.count("differs from the output of these flags and is kept; delete it") == 4
    assert "note: training will read the existing filelists" in out
    assert len(read_filelist(tmp_path / "lists/voice_audio_text_val_filelist.txt")) == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("", 2, "required: --dataset"),
        ("--dataset voice --name ljs", 2, "--name: ljs is the name of another corpus"),
        ("--dataset voice --name ../x", 2, "--name: '../x', expected letters"),
        ("--dataset voice --min-duration 3 --max-duration 2", 2, "--min-duration 3: more than --max-duration 2"),
        ("--dataset voice --validation 1.5", 2, "--validation: 1.5, expected a share between 0 and 1, or a number"),
        ("--dataset voice . --trim-silence", 2, "where the recordings are; choose another name"),
        ("--dataset short.txt . --resample", 1, "{}/short.txt:1: {}/short.wav: 441 samples, expected at least 513"),
        ("--dataset voice . --min-duration 0.45 --max-duration 0.46", 1, "no clip is within --min-duration and"),
    ],
)
def test_flags_that_cannot_work_are_one_error_and_nothing_changes(tmp_path: Path, voice: Path, words, code, message):
    """Those that no clip can fulfil among them; a clip may be too short after its conversion."""
    (tmp_path / "short.txt").write_text("short.wav|The first.\n")
    save(tmp_path / "short.wav", tone(0.02, 48000), 48000)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    result = run("scripts/prepare_recordings.py", "--relative-to", tmp_path, "--filelists", "lists", *words.split())
    assert result.code == code and message.replace("{}", str(tmp_path)) in result.err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def printed_commands(out: str) -> list[list[str]]:
    """The commands that the last lines print: mels, training, inference."""
    return [shlex.split(line) for line in out.splitlines() if line.startswith("    ")]


@pytest.mark.slow
def test_the_commands_from_recordings_to_mels(tmp_path: Path, voice: Path) -> None:
    """In a copy of the parts of the project that the scripts need, so that the real filelists stay untouched."""
    project = tmp_path / "project"
    shutil.copytree(ROOT / "scripts", project / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("common", "studio", "models.py", "tacotron2", "waveglow", "pulse_noise"):
        (project / name).symlink_to(ROOT / name)
    (project / "filelists").mkdir()
    done = bash("scripts/prepare_dataset.sh", "--resample", cwd=project)
    assert done.returncode == 2 and "--dataset FOLDER|LIST|asterisk" in done.stderr
    done = bash("project/scripts/prepare_dataset.sh", ".", "--dataset=voice", "--num-workers=1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "filelists: filelists/voice_audio_text_train_filelist.txt: 3 clips, written" in done.stdout
    command = printed_commands(done.stdout)[0]
    assert command == ["bash", "scripts/prepare_mels.sh", "voice", str(tmp_path)]
    mels = bash(*command[1:], "--num-workers=1", cwd=project)  # extra flags reach the computation of mels
    assert mels.returncode == 0, mels.stderr
    lists = [f"filelists/voice_mel_text_{part}_filelist.txt" for part in ("train", "val")]
    listed = [row.path for mel_list in lists for row in read_filelist(project / mel_list)]
    assert sorted(listed) == sorted(f"voice/mels/{name}.pt" for name in TEXTS)
    assert all((tmp_path / path).is_file() for path in listed)


@pytest.mark.slow
def test_the_printed_commands_train_and_speak(tmp_path: Path, voice: Path, capsys) -> None:
    """A tiny model, as the last flags win; nothing is written outside of the voice's own output folder."""
    prepare(tmp_path, "--dataset", "voice", ".")
    mels, train, speak = printed_commands(capsys.readouterr().out)
    assert mels[:3] == ["python", "-m", "common.data.mels"]
    succeed("common/data/mels.py", *mels[3:], "--num-workers", 1, cwd=tmp_path)
    (tmp_path / "phrases").mkdir()
    (tmp_path / "phrases/phrase.txt").write_text("The fifth.\n")
    before = files(tmp_path)
    succeed("train.py", *train[2:], *MODELS["Tacotron2"].split(), "--cpu", "--epochs", 1, cwd=tmp_path)
    words = [*speak[2:], "--cpu", "--gate-threshold", 1]  # an untrained gate may fire at once
    succeed("inference.py", *words, cwd=tmp_path)
    new = files(tmp_path) - before
    assert "output/voice/spoken/audio_0.wav" in new
    assert all(path.startswith("output/voice/") for path in new)
