"""scripts/prepare_dataset.sh and .py, on a stand-in archive over loopback, and on LJSpeech's transcripts if available."""

import hashlib
import io
import shutil
import tarfile
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import DataError
from scripts import prepare_dataset
from tests.recipe import ROOT, folder_of_tools
from tests.scripts.loopback import Server, run_script, serve

NAME = "LJSpeech-1.1.tar.bz2"
SIZES = {"val": 100, "test": 500} | {f"train_subset_{n}": n for n in (64, 300, 625, 1250, 2500)}
# First 16 digits of the SHA-256 of each list's ids, one a line, taken from the published recipe's split.
SPLIT_HASHES = ["1fab635800cdf945", "bc6c75253c7c8bc3", "82c9b18fc89d5a79", "41e47ebbcc7ea374", "3ce1bf8ec9e46fdb"]
SPLIT_HASHES = dict(zip(SIZES, [*SPLIT_HASHES, "26b7848db5f8241b", "7950172a5ac7a6cb"], strict=True))
# The stand-in: clip → raw and normalised text. The comment says where the published split has the clip, and at which place.
CLIPS = {
    "LJ001-0001": ("Printing, in 1455,", "Printing, in fourteen fifty-five,"),  # training only
    "LJ001-0002": ('the "42-line Bible"', 'the "forty-two line Bible"'),  # training only; quotation marks stay
    "LJ007-0179": ("one", "one, as said"),  # subsets up to 1250 and 2500
    "LJ011-0248": ("two", "two, as said"),  # subsets up to 1250, place 2
    "LJ012-0101": ("three", "three, as said"),  # subset 2500, place 2
    "LJ022-0023": ("four", "four, as said"),  # val, place 1
    "LJ026-0104": ("five", "five, as said"),  # subset 2500, place 1
    "LJ028-0489": ("six", "six, as said"),  # subset 1250
    "LJ038-0228": ("seven", "seven, as said"),  # subsets 625 and 1250
    "LJ040-0100": ("eight", ""),  # subsets up to 1250, place 1; no normalised text
    "LJ043-0030": ("nine", "nine, “as” said"),  # val, place 2
    "LJ045-0096": ("ten", "ten, as said"),  # test, place 1
    "LJ049-0046": ("eleven", "eleven, as said"),  # subsets 300 to 1250
}
SUBSET_64 = ["LJ040-0100", "LJ011-0248"]
LISTS = {"val": ["LJ022-0023", "LJ043-0030"], "test": ["LJ045-0096"]}
LISTS["train"] = [clip for clip in CLIPS if clip not in LISTS["val"] + LISTS["test"]]


def metadata() -> str:
    return "".join(f"{clip}|{raw}|{normalised}\n" for clip, (raw, normalised) in CLIPS.items())


@pytest.fixture(scope="session")
def archive() -> bytes:
    """LJSpeech-1.1.tar.bz2 with thirteen clips of a hundred samples each, of noise, which compresses badly."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:bz2") as tar:
        for index, clip in enumerate(CLIPS):
            sound = io.BytesIO()
            with wave.open(sound, "wb") as writer:
                writer.setparams((1, 2, 22050, 0, "NONE", ""))
                writer.writeframes(hashlib.shake_256(bytes([index])).digest(200))
            add(tar, f"LJSpeech-1.1/wavs/{clip}.wav", sound.getvalue())
        add(tar, "LJSpeech-1.1/metadata.csv", metadata().encode())
    return packed.getvalue()


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


@pytest.fixture
def server(archive: bytes) -> Iterator[Server]:
    with serve({NAME: archive}) as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Copy the parts of the project that the script needs, so that the real filelists stay untouched."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "common", folder / "common", ignore=shutil.ignore_patterns("__pycache__"))
    names = ["prepare_dataset.sh", "prepare_dataset.py", "environment.sh", "download.sh"]
    for name in (*(f"scripts/{name}" for name in names), "filelists/ljs_split.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def prepare(project: Path, server: Server, *arguments: str, path: Path | None = None, **changes: str):
    archive = server.contents[NAME]
    expected = {"SHA256": hashlib.sha256(archive).hexdigest(), "BYTES": str(len(archive)), "CLIPS": str(len(CLIPS))}
    environment = {f"LJSPEECH_{name}": value for name, value in (expected | {"URL": server.url(NAME)}).items()}
    return run_script(project, "prepare_dataset.sh", *arguments, path=path, **environment | changes)


def filelist(project: Path, kind: str, name: str) -> list[tuple[str, str]]:
    content = (project / f"filelists/ljs_{kind}_text_{name}_filelist.txt").read_bytes().decode()
    assert content.endswith("\n")
    return [(path, text) for path, text in (row.split("|") for row in content.removesuffix("\n").split("\n"))]


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    files = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


@pytest.mark.slow
@pytest.mark.parametrize("absent", ["wget", "curl"])
def test_it_downloads_unpacks_and_lists_and_later_runs_check_what_is_there(project, server, archive, tmp_path, absent):
    path = folder_of_tools(tmp_path / "bin", absent)
    done = prepare(project, server, path=path)
    assert done.returncode == 0, done.stderr
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for entry in tar:
            assert (project / entry.name).read_bytes() == tar.extractfile(entry).read()
    assert "no normalised text for LJ040-0100" in done.stdout
    for name, clips in LISTS.items():
        texts = [CLIPS[clip][1] or CLIPS[clip][0] for clip in clips]
        for kind, form in (("audio", "LJSpeech-1.1/wavs/{}.wav"), ("mel", "LJSpeech-1.1/mels/{}.pt")):
            assert filelist(project, kind, name) == list(zip(map(form.format, clips), texts, strict=True))
    whole = (project / "filelists/ljs_mel_text_filelist.txt").read_text().splitlines()  # without a twin for audio
    assert [row.split("|")[0] for row in whole] == [f"LJSpeech-1.1/mels/{clip}.pt" for clip in CLIPS]
    rows = {size: filelist(project, "audio", f"train_subset_{size}") for size in (64, 300, 1250, 2500)}
    subset = {size: [path[18:28] for path, _ in found] for size, found in rows.items()}
    assert subset[64][:2] == SUBSET_64
    assert set(subset[64]) == {*SUBSET_64, "LJ007-0179"}
    assert set(subset[300]) == set(subset[64]) | {"LJ049-0046"}
    assert set(subset[1250]) == set(subset[300]) | {"LJ038-0228", "LJ028-0489"}
    assert subset[2500][:2] == ["LJ026-0104", "LJ012-0101"]
    assert set(subset[2500]) == {"LJ026-0104", "LJ012-0101", "LJ007-0179"}

    before = snapshot(project)
    again = prepare(project, server, path=path)
    assert again.returncode == 0, again.stderr
    assert len(server.asked) == 1
    assert snapshot(project) == before
    assert again.stdout.count("unchanged") == 17
    (project / "LJSpeech-1.1/wavs/LJ026-0104.wav").unlink()
    third = prepare(project, server, path=path)
    assert third.returncode == 1
    assert "12 clips in wavs/, expected 13; move this folder away or delete it" in third.stderr


def test_it_resumes_an_interrupted_download(project, server, archive, tmp_path):
    """test_download_checkpoints.py has the same download by each of its tools, and of damaged files."""
    dataset = tmp_path / "data set"
    (dataset / "LJSpeech-1.1.tar.bz2.unpacking/LJSpeech-1.1/wavs").mkdir(parents=True)  # of a run that was killed
    (dataset / "LJSpeech-1.1.tar.bz2").write_bytes(archive[:1000])
    server.cut = 1700  # and the connection breaks once
    done = prepare(project, server, str(dataset))
    assert done.returncode == 0, done.stderr
    assert server.asked == [(NAME, "bytes=1000-"), (NAME, "bytes=1700-")]
    assert (dataset / "LJSpeech-1.1.tar.bz2").read_bytes() == archive
    assert len(list((dataset / "LJSpeech-1.1/wavs").iterdir())) == len(CLIPS)
    assert {path.name for path in dataset.iterdir()} == {"LJSpeech-1.1", "LJSpeech-1.1.tar.bz2"}


@pytest.mark.slow
def test_what_cannot_succeed_is_an_error(project, server, archive, tmp_path):
    def error(*arguments: str, **changes: object) -> str:
        done = prepare(project, server, *arguments, **changes)
        assert done.returncode == 1
        return done.stderr

    assert "MB free, 2500000000000 MB needed" in error(LJSPEECH_BYTES=str(10**18))
    path = folder_of_tools(tmp_path / "bin", "curl", "wget", "bzip2")
    assert "not installed: curl or wget, bzip2;" in error(path=path)
    assert "the server sent nothing" in error(LJSPEECH_URL="http://127.0.0.1:9/none")
    (project / NAME).write_bytes(archive + b"and more")
    assert f"{len(archive) + 8} bytes, expected {len(archive)}; delete this file" in error()
    (project / NAME).write_bytes(archive)
    assert "13 clips in it, expected 14" in error(LJSPEECH_CLIPS="14")
    assert f"expected {'0' * 64}" in error(LJSPEECH_SHA256="0" * 64)
    assert server.asked == []  # a complete archive is not downloaded again
    assert [path.name for path in project.glob("LJSpeech*")] == [NAME]
    if shutil.which("curl"):
        server.ranges = False
        (project / NAME).write_bytes(archive[:1000])
        assert "cannot resume the interrupted download; delete" in error()


def test_one_error_names_all_bad_rows_of_the_metadata(tmp_path):
    rows = ["LJ001-0001|a|a", "LJ001-0002|a|b|c", "", "LJ001-0001|b|b", "LJ001-0003||", "LJ1-3|a|a"]
    rows += ['LJ001-0004|"|"', "x"]
    (tmp_path / "metadata.csv").write_text("\n".join(rows))
    with pytest.raises(DataError) as error:
        prepare_dataset.read_transcripts(tmp_path / "metadata.csv")
    lines = [line.split(": ")[0].rsplit(":")[-1] for line in str(error.value).split("\n")]
    assert lines == ["2", "3", "4", "5", "6", "8"]


def test_the_split_is_the_published_one_and_needs_the_whole_corpus():
    transcripts = {f"LJ{n // 9999:03}-{n % 9999:04}": "words" for n in range(prepare_dataset.CLIPS)}
    with pytest.raises(DataError, match=r"no row for LJ022-0023, LJ043-0030, .* more, which the split names"):
        prepare_dataset.choose_clips(transcripts, prepare_dataset.read_split(ROOT / "filelists/ljs_split.txt"), 13100)
    split = prepare_dataset.read_split(ROOT / "filelists/ljs_split.txt")
    assert {name: len(set(clips)) for name, clips in split.items()} == SIZES
    assert {n: hashlib.sha256("\n".join(clips).encode()).hexdigest()[:16] for n, clips in split.items()} == SPLIT_HASHES
