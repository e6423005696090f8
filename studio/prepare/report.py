"""Messages of `studio.prepare`: recordings left out, counts, faults, and the next command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from common.errors import join_problems, printable
from common.files import atomic_write
from studio.prepare.arguments import TextConfig
from studio.prepare.faults import FILLED, SILENCE
from studio.prepare.levels import BELOW_SPEECH
from studio.prepare.lists import AlphabetChoice
from studio.prepare.review import NO, YES, CarriedEdits, ClipRow
from studio.project import Project


def describe_problems(problems: Sequence[str]) -> list[str]:
    """List the recordings left out, one a line below a heading; empty if there are none."""
    if not problems:
        return []
    number = "1 file" if len(problems) == 1 else f"{len(problems)} files"
    return printable(f"left out, {number}:\n{join_problems(list(problems))}").splitlines()


def store_problems(project: Project, problems: Sequence[str]) -> None:
    """Store the recordings left out, for the page. Raises OSError."""
    with atomic_write(project.left_out) as file:
        file.write("".join(f"{' '.join(problem.split())}\n" for problem in problems).encode("utf-8", "replace"))


def read_problems(project: Project) -> list[str]:
    """Read the recordings left out; none if the file is missing."""
    try:
        return project.left_out.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def clips(count: int) -> str:
    """Format a number of clips."""
    return "1 clip" if count == 1 else f"{count} clips"


def minutes(rows: Sequence[ClipRow]) -> float:
    """Return the length of clips in minutes."""
    return sum(float(row.end) - float(row.start) for row in rows) / 60


def summary(
    project: Project,
    edits: CarriedEdits,
    training: Sequence[ClipRow],
    validation: Sequence[ClipRow],
    alphabet: AlphabetChoice,
) -> list[str]:
    """Return counts, minutes, faults, and the next commands, as lines."""
    return [
        *figures(project.name, edits, training, validation),
        *_alphabet(project, alphabet),
        f"review: {project.review}, the worst clips first; after editing it:",
        f"    {project.command('studio.prepare', '--apply', '--name')}",
        f"next:\n    {project.command('studio.plan')}",
    ]


def figures(name: str, edits: CarriedEdits, training: Sequence[ClipRow], validation: Sequence[ClipRow]) -> list[str]:
    """Return counts, minutes and faults, as lines."""
    n_recordings = len({row.recording for row in edits.rows})
    recordings = "1 recording" if n_recordings == 1 else f"{n_recordings} recordings"
    lines = [f"{name}: {clips(len(edits.rows))} of {recordings}, {minutes(edits.rows):.1f} minutes"]
    for part, rows in (("training", training), ("validation", validation)):
        lines.append(f"  {part}: {clips(len(rows))}, {minutes(rows):.1f} minutes")
    lines.append(f"  not used: {clips(len(edits.rows) - len(training) - len(validation))}")
    if names := count_faults(edits.rows):
        lines.append("  faults: " + ", ".join(f"{name} {count}" for name, count in names.most_common()))
    if filled := sum(SILENCE in row.faults and FILLED in row.faults for row in edits.rows):
        noise = f"filled with noise {BELOW_SPEECH:g} dB below the speech (--no-fill-silence keeps it)"
        lines.append(f"  digital silence in {clips(filled)}: {noise}")
    wrong = [float(row.words_wrong) for row in edits.rows if row.words_wrong]
    if wrong:
        lines.append(
            f"  transcripts compared with recognised words: {100 * sum(wrong) / len(wrong):.1f} % wrong on average"
        )
    if edits.n_edited:
        lines.append(f"  edited by hand: {clips(edits.n_edited)}")
    if edits.lost:
        lost = ", ".join(edits.lost[:5])
        lines.append(f"  note: {len(edits.lost)} edits are of clips that are now cut differently: {lost}")
    return lines


def count_faults(rows: Sequence[ClipRow]) -> Counter[str]:
    """Count the clips with each fault."""
    return Counter(kind_of(fault) for row in rows for fault in row.faults.split("; ") if fault)


def causes(project: Project, rows: Sequence[ClipRow], language: str) -> list[str]:
    """Return the faults of the clips that are not used, and the remedies, as lines."""
    names = count_faults([row for row in rows if row.use == NO])
    lines = [f"faults of the clips that are not used: {', '.join(f'{name} {n}' for name, n in names.most_common())}"]
    if language == TextConfig.language and 2 * names["words"] > len(rows):
        lines.append("if the recordings are not in English, add --language CODE")
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
