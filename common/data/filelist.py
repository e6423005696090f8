"""Lists of utterances or phrases: text files with one item per line. Every mistake is reported as file:line."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from common.errors import DataError, join_problems
from common.files import decode_lines, locate_problems, write_text, writing
from common.progress import counted

Item = TypeVar("Item")
FEWEST_RECORDINGS = 10  # with these, whole recordings are held out
LARGEST_EXCESS = 2.0  # times the wanted clips; held-out recordings may have no more


class Utterance(NamedTuple):
    """A row of a filelist: an audio or mel file, relative to the dataset's folder, and its transcript."""

    path: str
    text: str


class _RowError(ValueError):
    """The problem of one row; its place is added later."""


class BadRows(DataError):
    """Problems of items of a list, by index from 0; `lines_of` turns them into lines of a file."""

    def __init__(self, problems: Mapping[int, str]) -> None:
        super().__init__(join_problems([f"item {index + 1}: {problem}" for index, problem in problems.items()]))
        self.problems = problems


class NothingToSay(BadRows):
    """Texts of which none has words. Beside others, such a text is left out."""


@contextmanager
def lines_of(path: str | os.PathLike[str]) -> Iterator[None]:
    """Context that turns BadRows about the items of a file into a DataError about its lines."""
    try:
        yield
    except BadRows as error:
        raise DataError(join_problems(locate_problems(path, error.problems))) from None


def read_filelist(path: str | os.PathLike[str]) -> list[Utterance]:
    """Read the rows `path|text` of a UTF-8 file in order: item i is line i + 1. Trailing blank lines do not count.

    Raises:
        DataError: if the file is missing or empty, or has bad rows, which are all listed in one message.
    """
    return _read_items(path, _parse_utterance, _missing_filelist_hint(path))


def sift_filelist(path: str | os.PathLike[str]) -> tuple[dict[int, Utterance], dict[int, str]]:
    """Return the good rows of a filelist and the problems of the others, both by line number from 1.

    Raises:
        DataError: if the file is missing or empty.
    """
    return _sift(os.fspath(path), _parse_utterance, _missing_filelist_hint(path))


def read_phrases(path: str | os.PathLike[str]) -> list[str]:
    """Read the phrases of a UTF-8 file, one per line and in order: item i is line i + 1. Trailing blank lines do not count.

    A blank line is a phrase without words, since outputs are named by line number.

    Raises:
        DataError: if the file is missing or empty, or has bad lines, which are all listed in one message.
    """
    return _read_items(path, str, "expected a text file with one phrase a line (-i)")


def check_files(
    utterances: Sequence[Utterance], filelist_path: str | os.PathLike[str], dataset_path: str | os.PathLike[str]
) -> None:
    """Check that every file of a filelist exists under the dataset's folder.

    Args:
        utterances: all rows that `read_filelist` returned, so that an item's index gives its line.
        filelist_path: the filelist, for the message.
        dataset_path: the folder that the paths are relative to.

    Raises:
        DataError: if files are missing; all are listed in one message.
    """
    missing = [
        (line, item.path)
        for line, item in enumerate(utterances, 1)
        if not os.path.isfile(os.path.join(dataset_path, item.path))
    ]
    if not missing:
        return
    report = join_problems([f"{os.fspath(filelist_path)}:{line}: no file {path}" for line, path in missing])
    folder = os.fspath(dataset_path)
    where = f"under {folder}" if os.path.isdir(dataset_path) else f"since there is no folder {folder}"
    advice = f"paths are relative to --dataset-path, now {folder}{_missing_files_hint(missing[0][1])}"
    raise DataError(f"{report}\n{len(missing)} of {len(utterances)} files are missing {where}: {advice}")


def choose_held_out(by_recording: Mapping[str, Sequence[str]], validation: float) -> set[str]:
    """Choose the clips for validation, a number of them or a share below 1, from the clips of each recording.

    Whole recordings are chosen by the digests of their names, so that training has no clip of the same recording, and so that more
    or fewer recordings move few clips; of fewer than FEWEST_RECORDINGS that were cut, the last clips of each. Raises DataError if
    none is left for training.
    """
    total = sum(map(len, by_recording.values()))
    count = max(1, round(validation * total)) if validation < 1 else int(validation)
    if count >= total:
        raise DataError(
            f"{counted(total, 'usable clip')}, expected more than the {count} for validation (--validation)"
        )
    return _whole_recordings(by_recording, count) or _last_clips(by_recording, count, total)


def _whole_recordings(by_recording: Mapping[str, Sequence[str]], count: int) -> set[str]:
    """Choose whole recordings with at least `count` clips; none if there are too few, or they are too large."""
    if len(by_recording) < FEWEST_RECORDINGS and any(len(clips) > 1 for clips in by_recording.values()):
        return set()
    chosen: set[str] = set()
    for name in sorted(by_recording, key=lambda name: hashlib.sha256(name.encode()).digest()):
        if len(chosen) + len(by_recording[name]) <= LARGEST_EXCESS * count:
            chosen |= set(by_recording[name])
        if len(chosen) >= count:
            return chosen
    return set()


def _last_clips(by_recording: Mapping[str, Sequence[str]], count: int, total: int) -> set[str]:
    """Choose the last clips of each recording, in proportion to its clips; the largest remainders round up."""
    shares = {name: count * len(clips) / total for name, clips in by_recording.items()}
    numbers = {name: int(share) for name, share in shares.items()}
    by_remainder = sorted(shares, key=lambda name: (numbers[name] - shares[name], name))
    for name in by_remainder[: count - sum(numbers.values())]:
        numbers[name] += 1
    return {clip for name, clips in by_recording.items() for clip in clips[len(clips) - numbers[name] :]}


def list_path(folder: Path, corpus: str, kind: str, part: str) -> Path:
    """Return the path of a corpus's list: kind audio or mel; part train, val or the like, "" for a list of all."""
    return folder / f"{corpus}_{kind}_text{f'_{part}' if part else ''}_filelist.txt"


def path_in_filelist(path: Path, dataset_path: Path) -> str:
    """Format a path for a filelist. Raises DataError if it contains the field separator."""
    full, start = Path(os.path.abspath(path)), Path(os.path.abspath(dataset_path))
    text = full.relative_to(start).as_posix() if full.is_relative_to(start) else full.as_posix()
    if "|" in text:
        raise DataError(f"{text}: '|' in a path, which separates fields in a filelist; rename the folder")
    return text


def write_list(path: Path, rows: Sequence[tuple[str, str]], wanted: str = "the standard one") -> bool:
    """Write a list of rows (path, text), completely or not at all, unless it exists, and print the outcome.

    Returns False if another list is there, which may be edited by hand; `wanted` names this one for the message.
    """
    content, agrees = "".join(f"{file}|{text}\n" for file, text in rows), True
    if not rows:
        outcome = "left out, as none of its clips exist"
    elif path.exists():
        agrees = decode_lines(path).texts == content.removesuffix("\n").split("\n")
        outcome = "unchanged" if agrees else f"differs from {wanted} and is kept; delete it to have it rewritten"
    else:
        outcome = "written"
        with writing(path):
            write_text(path, content)
    print(f"filelists: {path}: {counted(len(rows), 'clip')}, {outcome}")
    return agrees


def _read_items(path: str | os.PathLike[str], parse: Callable[[str], Item], expected: str) -> list[Item]:
    """Parse every line of a file. Raises one DataError with all problems."""
    name = os.fspath(path)
    items, problems = _sift(name, parse, expected)
    if problems:
        raise DataError(join_problems([f"{name}:{number}: {problem}" for number, problem in problems.items()]))
    return list(items.values())


def _sift(name: str, parse: Callable[[str], Item], expected: str) -> tuple[dict[int, Item], dict[int, str]]:
    """Parse every line of a file; return items and problems, both by line number from 1."""
    items: dict[int, Item] = {}
    lines = decode_lines(name, expected)
    if not lines.texts:
        raise DataError(f"{name}: empty, expected at least one line")
    problems = {index + 1: problem for index, problem in lines.problems.items()}
    for number, line in enumerate(lines.texts, 1):
        if number in problems:
            continue
        try:
            items[number] = parse(line.strip())
        except _RowError as error:
            problems[number] = str(error)
    return items, dict(sorted(problems.items()))


def _parse_utterance(row: str) -> Utterance:
    fields = row.split("|")
    if not row:
        raise _RowError("blank line, expected path|text")
    if len(fields) != 2:
        raise _RowError(f"{len(fields) - 1} '|' in the line, expected one: path|text")
    path, text = fields[0].rstrip(), fields[1]
    if not path:
        raise _RowError("no path before '|', expected path|text")
    if not text:
        raise _RowError("no text after '|', expected path|text")
    return Utterance(path, text)


def _missing_filelist_hint(path: str | os.PathLike[str]) -> str:
    match = re.fullmatch(r"ljs_(audio|mel)_text_.*", os.path.basename(os.fspath(path)))
    if not match:
        return "expected a text file with one path|text a line"
    stem = f"filelists/clock_{match[1]}_text"
    return (
        "either make it from LJSpeech with `bash scripts/prepare_dataset.sh`, or take the embedded corpus: "
        f"--training-files {stem}_train_filelist.txt --validation-files {stem}_val_filelist.txt"
    )


def _missing_files_hint(path: str) -> str:
    """Say what is wrong with a path, or name the script that makes a file of LJSpeech or the embedded corpus; "" for others."""
    if "\\" in path:
        return ", and have / where Windows has \\"
    if path.startswith("LJSpeech-1.1/mels/"):
        return "; `bash scripts/prepare_mels.sh` makes LJSpeech's mels"
    if path.startswith("corpus/mels/"):
        return "; `bash scripts/prepare_mels.sh clock` (or sentences) makes the embedded corpus's mels"
    if path.startswith("LJSpeech-1.1/"):
        return "; `bash scripts/prepare_dataset.sh` fetches LJSpeech"
    return ""
