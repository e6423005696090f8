"""Write LJSpeech-1.1's filelists from its metadata.csv and the split in filelists/ljs_split.txt. Needs only Python.

    python -m scripts.prepare_dataset LJSpeech-1.1    # called by scripts/prepare_dataset.sh, which downloads and unpacks it

An existing list with other content, perhaps edited by hand, is kept and reported.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import re
from dataclasses import dataclass
from pathlib import Path

from common.data.filelist import list_path, write_list
from common.errors import DataError, exit_on_user_error, shorten_list
from common.files import read_lines
from common.options import argument, option, parse_options

CLIPS = 13100  # of LJSpeech-1.1
CLIP_ID = re.compile(r"LJ\d{3}-\d{4}")
KINDS = {"audio": "LJSpeech-1.1/wavs/{}.wav", "mel": "LJSpeech-1.1/mels/{}.pt"}  # from the dataset's folder


def read_transcripts(metadata: Path) -> dict[str, str]:
    """Read normalised texts by clip id, in the order of metadata.csv; prints a note if raw texts replace missing ones.

    Rows are `id|raw|normalised`; quotation marks are plain characters. Raises DataError that names every bad row.
    """
    transcripts: dict[str, str] = {}
    problems, fallbacks = [], []
    for number, row in enumerate(read_lines(metadata), 1):
        fields = [field.strip() for field in row.split("|")]
        clip = fields[0]
        if len(fields) != 3 or not CLIP_ID.fullmatch(clip) or not any(fields[1:]):
            problems.append(
                f"{metadata}:{number}: {row.strip()[:60]!r}, expected id|text|normalised text, such as LJ001-0001|…|…"
            )
        elif clip in transcripts:
            problems.append(f"{metadata}:{number}: {clip} is already in an earlier row")
        else:
            transcripts[clip] = fields[2] or fields[1]
            fallbacks += [] if fields[2] else [clip]
    if problems:
        raise DataError("\n".join(shorten_list(problems)))
    if fallbacks:
        print(f"filelists: no normalised text for {', '.join(shorten_list(fallbacks))}; using the raw text")
    return transcripts


def read_split(path: Path) -> dict[str, list[str]]:
    """Read clip ids by name of the list, in order, in the format of the file's first lines. Raises DataError for other words."""
    split: dict[str, list[str]] = {}
    names: list[str] = []
    clips: dict[str, list[str]] = {}  # heading → all ids below it
    for number, line in enumerate(read_lines(path), 1):
        if line.startswith("#"):
            continue
        if line.startswith("["):
            names.append(line.strip("[] "))
            clips[names[-1]] = []
            continue
        for word in line.split():
            match = re.fullmatch(r"(\d{1,3})-(\d{1,4})", word)
            if not match or not names:
                raise DataError(
                    f"{path}:{number}: {word!r}, expected a [heading], then clips such as 22-23 for LJ022-0023"
                )
            clips[names[-1]].append(f"LJ{int(match[1]):03}-{int(match[2]):04}")
    for heading in names:
        name, *sizes = heading.split()
        split |= {f"{name}_{size}": clips[heading][: int(size)] for size in sizes} if sizes else {name: clips[heading]}
    return split


def choose_clips(transcripts: dict[str, str], split: dict[str, list[str]], expected: int) -> dict[str, list[str]]:
    """Choose the ids of each list; `train` has all that are not held out.

    Raises DataError if metadata.csv has another number of clips than expected, or lacks clips of the split. A smaller stand-in for
    LJSpeech-1.1 may lack such clips.
    """
    if len(transcripts) != expected:
        raise DataError(f"metadata.csv: {len(transcripts)} clips, expected {expected}")
    unknown = [clip for clips in split.values() for clip in clips if clip not in transcripts]
    if unknown and expected >= CLIPS:
        names = ", ".join(shorten_list(list(dict.fromkeys(unknown))))
        raise DataError(f"metadata.csv: no row for {names}, which the split names")
    held_out = {*split["val"], *split["test"]}
    lists = {"train": [clip for clip in sorted(transcripts) if clip not in held_out]}
    return lists | {name: [clip for clip in clips if clip in transcripts] for name, clips in split.items()}


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """The command's argument and flags."""

    corpus: Path = argument("the unpacked folder, with metadata.csv and wavs/")
    filelists: Path = option(Path("filelists"), "folder of the lists")
    split: Path = option(Path("filelists/ljs_split.txt"), "file that lists the held-out clips")
    clips: int = option(CLIPS, "expected number of clips; smaller for a stand-in")


def main(argv: list[str] | None = None) -> None:
    """Check the corpus, and write every missing list."""
    args = parse_options(CorpusOptions, "python -m scripts.prepare_dataset", __doc__, argv)
    transcripts = read_transcripts(args.corpus / "metadata.csv")
    lists = choose_clips(transcripts, read_split(args.split), args.clips)
    missing = [f"{clip}.wav" for clip in transcripts if not (args.corpus / "wavs" / f"{clip}.wav").is_file()]
    if missing:
        names = ", ".join(shorten_list(missing))
        raise DataError(f"{args.corpus / 'wavs'}: no {names}; delete {args.corpus} and run again")
    wanted = [(kind, name, clips) for kind in KINDS for name, clips in lists.items()]
    wanted.append(("mel", "", sorted(transcripts)))  # the published list of all mels
    for kind, name, clips in wanted:
        rows = [(KINDS[kind].format(clip), transcripts[clip]) for clip in clips]
        write_list(list_path(args.filelists, "ljs", kind, name), rows)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
