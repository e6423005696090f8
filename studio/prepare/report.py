"""Messages of `studio.prepare`: recordings left out, counts, faults, and the next command."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from common.errors import MAX_REPORTED, join_problems, listed, printable
from common.files import write_text
from common.progress import counted
from studio.prepare.clips import CutRecording, CutRecordings
from studio.prepare.faults import FILLED, SILENCE
from studio.prepare.levels import BELOW_SPEECH
from studio.prepare.lists import AlphabetChoice, Corpus
from studio.prepare.matching import TranscriptFate
from studio.prepare.review import NO, YES, CarriedEdits, ClipRow
from studio.prepare.texts import RECOGNISED
from studio.prepare.transcripts import Transcript
from studio.project import Project

MOST_LINES = 20  # of files or recordings that are alike
LEAST_MISSING = 0.1  # seconds; a lossy file's header may be off by a frame or two
SHORT = 0.5  # minutes; shorter recordings without losses are counted together
LEAST_LOSS = 0.05  # minutes; less is no loss to speak of
FEW_SOURCES = 5  # with more files, those named after their recordings are counted together


def describe_problems(problems: Sequence[str]) -> list[str]:
    """List the recordings left out, one a line below a heading; empty if there are none."""
    if not problems:
        return []
    return printable(f"left out, {counted(len(problems), 'file')}:\n{join_problems(list(problems))}").splitlines()


def store_lines(path: Path, lines: Sequence[object]) -> None:
    """Store the recordings left out, or the fates of transcripts, for the page. Raises OSError."""
    text = "".join(f"{' '.join(str(line).split())}\n" for line in lines)
    write_text(path, text.encode("utf-8", "replace").decode())  # names of files need not be UTF-8


def read_stored(path: Path) -> list[str]:
    """Read stored lines; none if the file is missing."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def describe_fates(project: Project, fates: Sequence[TranscriptFate]) -> list[str]:
    """Return a line for each transcript file, all of which are stored for the page.

    Of many with one ending that are used as they should, there is one for all.
    """
    store_lines(project.transcripts, fates)
    by_ending: dict[str, list[TranscriptFate]] = defaultdict(list)
    for fate in fates:
        by_ending[PurePosixPath(fate.name).suffix.lower() if fate.is_used and fate.is_plain else ""].append(fate)
    lines = []
    for ending, group in by_ending.items():
        if ending and len(group) > MOST_LINES:
            lines.append(
                f"NAME{ending}: {len(group)} files, each of the recording with its name, such as {group[0].name}"
            )
        else:
            lines += [str(fate) for fate in group[:MAX_REPORTED]]
            lines += [f"… and {counted(len(group) - MAX_REPORTED, 'more file')}"] if len(group) > MAX_REPORTED else []
    return printable("\n".join(lines)).splitlines()


def describe_cut(project: Project, cut: CutRecordings, rows: Sequence[ClipRow]) -> list[str]:
    """Return what was left out, which is stored for the page, and the minutes of each recording, as lines."""
    problems = [*cut.problems, *_describe_short(cut.recordings, cut.transcripts)]
    store_lines(project.left_out, problems)
    return [*describe_problems(problems), *_describe_recordings(cut.recordings, rows)]


def _describe_short(recordings: Sequence[CutRecording], transcripts: Mapping[str, Transcript]) -> list[str]:
    """Return a line for each recording that is cut short, or ends before its subtitles do."""
    short = [r for r in recordings if r.missing > LEAST_MISSING]
    lines = [f"{r.name}: cut short, {r.seconds:.0f} s of {r.seconds + r.missing:.0f} s: copy it again" for r in short]
    for recording in recordings:
        transcript = transcripts.get(recording.name)
        cues = transcript.cues if transcript else ()
        if transcript and (late := sum(cue.start >= recording.seconds for cue in cues)):
            length = f"{recording.seconds:.0f} s of {recording.name}"
            lines.append(
                f"{transcript.origin}: {late} of {counted(len(cues), 'time')} after the {length}: not of this recording?"
            )
    return lines


def _describe_recordings(recordings: Sequence[CutRecording], rows: Sequence[ClipRow]) -> list[str]:
    """Return the minutes of each recording that are used and lost, as lines; of short ones and of many, those with losses."""
    by_name: dict[str, list[ClipRow]] = defaultdict(list)
    for row in rows:
        by_name[row.recording].append(row)
    fates = [_fate_of(recording, by_name[recording.name]) for recording in recordings]
    worst = sorted(fates, key=lambda fate: -fate.lost)[:MOST_LINES]
    is_few = len(recordings) <= MOST_LINES
    shown = [fate for fate in fates if fate in worst and (fate.causes or (is_few and fate.minutes > SHORT))]
    lines = [f"{fate.name}: {_share(fate)}" for fate in shown]
    if rest := [fate for fate in fates if fate not in shown]:
        total, used, lost = (sum(values) for values in zip(*(fate[1:4] for fate in rest), strict=True))
        name = counted(len(rest), f"{'other ' if shown else ''}recording")
        lines.append(f"{name}: {_share(RecordingFate(name, total, used, lost, ''))}")
    return printable("\n".join(lines)).splitlines()


class RecordingFate(NamedTuple):
    """A recording's minutes, those in clips that are used, those in others or in no clip, and why."""

    name: str
    minutes: float
    used: float
    lost: float
    causes: str


def _fate_of(recording: CutRecording, rows: Sequence[ClipRow]) -> RecordingFate:
    used, left_out = (minutes([row for row in rows if (row.use == YES) is wanted]) for wanted in (True, False))
    outside = max(0.0, recording.speech / 60 - used - left_out)
    names = count_faults([row for row in rows if row.use == NO])
    causes = [f"{name} {count}" for name, count in names.most_common()]
    causes += [f"{outside:.1f} of speech in no clip"] if outside >= LEAST_LOSS else []
    return RecordingFate(recording.name, recording.seconds / 60, used, left_out + outside, ", ".join(causes))


def _share(fate: RecordingFate) -> str:
    causes = f" ({fate.causes})" if fate.causes else ""
    return f"{fate.minutes:.1f} minutes, {fate.used:.1f} used, {fate.lost:.1f} lost{causes}; the rest are pauses"


def count_sources(rows: Sequence[ClipRow]) -> Counter[str]:
    """Count clips by the file that their text is from; those named after their recordings as NAME.txt and the like."""
    names = [row.source for row in rows]
    if len(set(names)) > FEW_SOURCES:
        for place, row in enumerate(rows):
            source, recording = PurePosixPath(row.source), PurePosixPath(row.recording)
            if source.name.casefold().startswith(recording.stem.casefold()):
                names[place] = f"NAME{source.suffix.lower()}"
    return Counter(names)


def minutes(rows: Sequence[ClipRow]) -> float:
    """Return the length of clips in minutes."""
    return sum(float(row.end) - float(row.start) for row in rows) / 60


def summary(project: Project, edits: CarriedEdits, corpus: Corpus) -> list[str]:
    """Return counts, minutes, faults, and the next commands, as lines."""
    return [
        *figures(project.name, edits, corpus.training, corpus.validation),
        *_alphabet(project, corpus.alphabet),
        f"review: {project.review}, the worst clips first; after editing it:",
        f"    {project.command('studio.prepare', '--apply', '--name')}",
        f"next:\n    {project.command('studio.plan')}",
    ]


def figures(name: str, edits: CarriedEdits, training: Sequence[ClipRow], validation: Sequence[ClipRow]) -> list[str]:
    """Return counts, minutes and faults, as lines."""
    n_recordings = len({row.recording for row in edits.rows})
    whole = f"{counted(len(edits.rows), 'clip')} of {counted(n_recordings, 'recording')}"
    lines = [f"{name}: {whole}, {minutes(edits.rows):.1f} minutes"]
    for part, rows in (("training", training), ("validation", validation)):
        lines.append(f"  {part}: {counted(len(rows), 'clip')}, {minutes(rows):.1f} minutes")
    lines.append(f"  not used: {counted(len(edits.rows) - len(training) - len(validation), 'clip')}")
    if names := count_faults(edits.rows):
        lines.append("  faults: " + ", ".join(f"{name} {count}" for name, count in names.most_common()))
    sources = count_sources(edits.rows).most_common()
    texts = [f"{source} {count}" for source, count in sources if source != RECOGNISED]
    texts += [f"recognised by machine {count}" for source, count in sources if source == RECOGNISED]
    lines.append(f"  texts: {listed(texts, MOST_LINES)}")
    if filled := sum(SILENCE in row.faults and FILLED in row.faults for row in edits.rows):
        noise = f"filled with noise {BELOW_SPEECH:g} dB below the speech (--no-fill-silence keeps it)"
        lines.append(f"  digital silence in {counted(filled, 'clip')}: {noise}")
    if wrong := [float(row.words_wrong) for row in edits.rows if row.words_wrong]:
        share = f"{100 * sum(wrong) / len(wrong):.1f} % wrong on average"
        lines.append(f"  transcripts compared with recognised words: {share}")
    if edits.n_edited:
        lines.append(f"  edited by hand: {counted(edits.n_edited, 'clip')}")
    if edits.lost:
        lost = ", ".join(edits.lost[:5])
        lines.append(f"  note: {counted(len(edits.lost), 'edit')} of clips that are now cut differently: {lost}")
    return lines


def count_faults(rows: Sequence[ClipRow]) -> Counter[str]:
    """Count the clips with each fault."""
    return Counter(kind_of(fault) for row in rows for fault in row.faults.split("; ") if fault)


def causes(project: Project, rows: Sequence[ClipRow]) -> list[str]:
    """Return the faults of the clips that are not used, and the remedies, as lines."""
    names = count_faults([row for row in rows if row.use == NO])
    lines = [f"faults of the clips that are not used: {', '.join(f'{name} {n}' for name, n in names.most_common())}"]
    again = project.command("studio.prepare", "--apply", "--name")
    return [*lines, f"correct texts, or set the column use to {YES}, in {project.review}, then run {again}"]


def kind_of(fault: str) -> str:
    """Return a fault's name without its figure, or the clip that it doubles."""
    return fault.split(" (")[0].split(" of ")[0]


def _alphabet(project: Project, alphabet: AlphabetChoice) -> list[str]:
    lines, cleaners = [f"  note: {note}" for note in alphabet.notes], " ".join(alphabet.cleaners)
    if alphabet.symbols:
        lines.append(f"  train.py needs --symbols-file {project.symbols} --text-cleaners {cleaners}")
    elif alphabet.notes:
        lines.append(f"  train.py needs --text-cleaners {cleaners}")
    return lines
