"""Which transcript belongs to which recording, and what became of each transcript file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from common.data.sources import TRANSCRIPTS, Listing, Names, OtherFile, name_key, without_endings
from common.data.tables import TABLES, WANTED, Table, read_table
from common.data.text_files import plain_text, read_text
from common.errors import DataError, listed
from common.files import locate_problems
from studio.prepare.transcripts import SUBTITLES, Transcript, parse_timed

LANGUAGE = re.compile(r"\.([a-z]{2,3})(-[a-z0-9]{2,8})?$")  # as in talk.en.srt
# Of several for a recording.
ORDER = (*SUBTITLES, ".textgrid", ".lab", ".txt", ".data", ".json", ".tsv", ".csv", ".jsonl")
NEARLY_ALL = 0.8  # of the lines of a table without clear columns: notes may begin with a recording's name, too
SHOWN = 3  # names in a message


class TranscriptFate(NamedTuple):
    """What became of a transcript file, whether it is used, and whether it is the text of its recording, without remarks."""

    name: str
    fate: str
    is_used: bool = True
    is_plain: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.fate}"


@dataclass
class Matches:
    """The transcripts of recordings by their names, the fate of each transcript file, and problems that end the run."""

    transcripts: dict[str, Transcript] = field(default_factory=dict)
    fates: list[TranscriptFate] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    tabled: set[str] = field(default_factory=set)  # recordings whose texts are from tables


def find_transcripts(listing: Listing, language: str = "") -> Matches:
    """Find the transcripts of the recordings in a folder among its other files.

    Of several for one recording, subtitles take precedence over texts, and both over tables; where the language is "de",
    talk.de.srt does over talk.srt. Raises one DataError for all files that belong to a recording and are no transcripts, and for
    all bad rows.
    """
    names, found = Names(source.name for source in listing.sources), Matches()
    claims: dict[str, list[OtherFile]] = defaultdict(list)
    tables = []
    for file in listing.others:
        ending = file.path.suffix.lower()
        owners = _owners(file.name, names) if ending in TRANSCRIPTS else []
        # A file named after recordings in different folders belongs to one of them, but to which?
        if len({name_key(owner).rpartition("/")[0] for owner in owners}) == 1:
            for owner in owners:
                claims[owner].append(file)
        elif ending in TABLES:
            tables.append((file, owners))
        elif ending in TRANSCRIPTS:
            found.fates.append(_without_recording(file.name, owners))
    _read_beside(claims, language, found)
    for file, owners in tables:
        _read_rows(file, names, owners, found)
    if found.problems:
        raise DataError("\n".join(found.problems))
    found.fates.sort()
    return found


def _owners(name: str, names: Names) -> list[str]:
    """Return the recordings that a file is named after: NAME.srt, NAME.wav.srt, NAME.en.srt or NAME.srt.txt."""
    place, _, own = name.rpartition("/")
    stems = without_endings(name_key(own), TRANSCRIPTS)[1:]
    stems += [without for stem in stems if (without := LANGUAGE.sub("", stem)) != stem]
    return next((found for stem in stems if (found := names.find(stem, place))), [])


def _not_used(name: str, reason: str) -> TranscriptFate:
    return TranscriptFate(name, f"not used: {reason}", False)


def _without_recording(name: str, owners: Sequence[str]) -> TranscriptFate:
    if owners:
        return _not_used(name, f"it may belong to {listed(owners, SHOWN)}; put it into the folder of one of them")
    return _not_used(name, "no recording has this name; a transcript of x.wav is called x.srt, x.txt …")


def _rank(file: OtherFile, owner: str, language: str) -> tuple[bool, int, bool, str]:
    place, _, own = name_key(file.name).rpartition("/")
    code = LANGUAGE.search(without_endings(own, TRANSCRIPTS)[-1])
    is_other = bool(code and language and code[1][:2] != name_key(language)[:2])
    is_far = place != name_key(owner).rpartition("/")[0]
    return is_other, ORDER.index(file.path.suffix.lower()), is_far, file.path.name


def _read_beside(claims: Mapping[str, Sequence[OtherFile]], language: str, found: Matches) -> None:
    """Read the best transcript of each recording that has some of its own, and report the others."""
    owners: dict[OtherFile, list[str]] = defaultdict(list)
    beaten: dict[OtherFile, list[tuple[str, OtherFile]]] = defaultdict(list)
    for owner, files in claims.items():
        best, *others = sorted(files, key=lambda file: _rank(file, owner, language))
        owners[best].append(owner)
        for file in others:
            beaten[file].append((owner, best))
    for (path, name), named in owners.items():
        try:
            transcript, kind, note = read_transcript(path, name)
        except DataError as error:
            found.problems.append(str(error))
            continue
        found.transcripts |= dict.fromkeys(named, transcript)
        found.fates.append(TranscriptFate(name, f"{kind} of {listed(named, SHOWN)}{note}", is_plain=not note))
    for file in beaten.keys() - owners.keys():
        owner, best = beaten[file][0]
        found.fates.append(_not_used(file.name, f"{best.name} is taken for {owner}"))


def read_transcript(path: Path, name: str) -> tuple[Transcript, str, str]:
    """Read a text with or without times. Returns it, what it is, and remarks. Raises one DataError for all bad lines."""
    file, problems = read_text(path), dict[int, str]()
    timed = parse_timed(path.suffix.lower(), file.lines, problems)
    if timed is None and path.suffix.lower() == ".json" and not problems:
        problems[0] = "neither segments with start, end and text, nor a text"
    cues = timed.cues if timed else []
    text = plain_text(" ".join(cue.text for cue in cues) if timed else " ".join(file.lines))
    if not text and not problems:
        problems[0] = "no words in it; remove the file, or write the words of the recording into it"
    if problems:
        raise DataError("\n".join(locate_problems(path, problems)))
    kind = f"{len(cues)} {timed.kind}" if timed else "the words"
    note = f"; {timed.note}" if timed and timed.note else ""
    return Transcript(name, text, tuple(cues)), kind, f"{note}{file.note}"


def _read_rows(file: OtherFile, names: Names, owners: Sequence[str], found: Matches) -> None:
    """Read a table that names recordings, and report it. A file of something else is reported, too."""
    path, name = file
    is_table = path.suffix.lower() in (".csv", ".tsv", ".jsonl") or "metadata" in path.name.lower()
    try:
        table = read_table(path)
    except DataError as error:
        found.fates.append(_not_used(name, str(error).removeprefix(f"{path}: ")))
        return
    named = {number: names.find(row[0], name.rpartition("/")[0]) for number, row in table.rows.items()}
    n_rows, n_named = len(table.rows) + len(table.problems), sum(bool(recordings) for recordings in named.values())
    is_prose = table.may_be_prose and not is_table and n_named < NEARLY_ALL * n_rows
    if not n_named or is_prose:
        without = TranscriptFate(name, f"0 of {n_rows} rows name a recording here{_example(table)}", False)
        found.fates.append(without if is_table else _without_recording(name, owners))
        return
    problems = dict(table.problems)
    beside = 0
    for number, (_, text) in table.rows.items():
        recordings = named[number]
        earlier = found.transcripts.get(recordings[0]) if recordings else None
        is_beside = bool(earlier) and recordings[0] not in found.tabled
        if problem := _problem_of_row(recordings, text, None if is_beside else earlier):
            problems[number - 1] = problem
        elif is_beside:
            beside += 1
        elif recordings and not earlier:
            found.transcripts[recordings[0]] = Transcript(name, text)
            found.tabled.add(recordings[0])
    found.problems += locate_problems(path, problems)
    unnamed = next((row[0] for number, row in table.rows.items() if not named[number]), "")
    others = f"; not {unnamed!r}" if unnamed else ""
    others += f" and {n_rows - n_named - 1} more" if unnamed and n_rows - n_named > 1 else ""
    others += f"; a file of its own is taken for {beside} of them" if beside else ""
    found.fates.append(TranscriptFate(name, f"{n_named} of {n_rows} rows name a recording here{others}{table.note}"))


def _example(table: Table) -> str:
    """Say what a table without a match has, and what is wanted."""
    first = next((f"{row[0]!r}" for row in table.rows.values()), "")
    return f": there is none called {first}; {WANTED}" if first else f"; {next(iter(table.problems.values()), WANTED)}"


def _problem_of_row(names: Sequence[str], text: str, earlier: Transcript | None) -> str:
    """Return the problem of a row, or "". A row without a recording is fine: many corpora are used in part."""
    if len(names) > 1:
        return f"names several recordings: {', '.join(names[:SHOWN])}"
    if names and not text:
        return "no text"
    if earlier and earlier.text != text:
        return f"{names[0]} has another text already, in {earlier.origin}"
    return ""
