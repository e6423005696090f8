"""The speech recogniser for a language: Moonshine for English, Whisper for any other one or where it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from common.data.languages import name_of
from common.errors import UsageError
from common.options import option
from common.quality import evaluators, whisper
from common.quality.moonshine import Moonshine
from common.quality.whisper import Whisper

MOONSHINE, WHISPER = "moonshine", "whisper"
ENGLISH = "en"
COUNTING = ("jiwer", "rapidfuzz")  # packages that compare words, whoever has recognised them


@dataclass(frozen=True, kw_only=True)
class RecogniserConfig:
    """A language, and the recogniser of its words. Raises UsageError for one that does not exist, or cannot know the language."""

    language: str | None = option(
        None,
        "language of the texts by ISO 639-1, for the recogniser and the comparison of words (default: en)",
        metavar="CODE",
    )
    recogniser: str | None = option(
        None,
        "recogniser: moonshine, which knows English alone, or whisper, whisper:SIZE"
        f" ({', '.join(whisper.SIZES)}) or whisper:FOLDER, for a hundred languages (default: moonshine for English, otherwise"
        " whisper:base; `bash scripts/whisper.sh` installs it)",
        metavar="NAME",
    )

    def __post_init__(self) -> None:
        if self.recogniser is None:
            return
        kind, _, place = self.recogniser.partition(":")
        wanted = f"expected {MOONSHINE}, {WHISPER}, {WHISPER}:SIZE with one of {', '.join(whisper.SIZES)}, or {WHISPER}:FOLDER"
        if kind not in (MOONSHINE, WHISPER) or (kind == MOONSHINE and place):
            raise UsageError(f"--recogniser {self.recogniser}: {wanted}")
        if place and place not in whisper.SIZES and not Path(place).is_dir():
            raise UsageError(f"--recogniser {self.recogniser}: neither a size nor a folder that exists; {wanted}")
        if kind == MOONSHINE and self.code != ENGLISH:
            raise UsageError(f"--recogniser {self.recogniser}: knows English alone, not --language {self.language}")

    @property
    def code(self) -> str:
        """The language as Whisper calls it, English where none is given, without a country: pt for pt-BR."""
        code = (self.language or ENGLISH).replace("_", "-").split("-")[0].lower()
        return "no" if code == "nb" else code

    @property
    def is_whisper(self) -> bool:
        """True for Whisper."""
        return (self.recogniser or "").startswith(WHISPER) or (self.recogniser is None and self.code != ENGLISH)

    @property
    def place(self) -> str:
        """Whisper's size, or its folder."""
        return (self.recogniser or "").partition(":")[2] or whisper.PACKAGED

    @property
    def key(self) -> str:
        """A key of stored words: the recogniser, its size and its language."""
        return f"{WHISPER} {self.place} {self.code}" if self.is_whisper else f"{MOONSHINE} tiny"

    @property
    def missing(self) -> list[str]:
        """The packages of the recogniser, and of the comparison of words, that are not installed."""
        package = "faster_whisper" if self.is_whisper else "moonshine_onnx"
        return [name for name in (package, *COUNTING) if find_spec(name) is None]

    @property
    def not_installed(self) -> str:
        """That no recogniser of the language is installed, and the command that installs it."""
        return f"no recogniser of {name_of(self.code)} is installed ({installers(self.missing)})"

    def load(self, threads: int | None = None) -> Whisper | Moonshine:
        """Load the recogniser. Raises DataError if a package, the weights or memory are missing, or it lacks the language."""
        return Whisper(self.place, self.code, threads) if self.is_whisper else Moonshine(threads=threads)


def installers(packages: Iterable[str]) -> str:
    """Return the commands that install packages of recognition and measuring, as clauses."""
    return " and ".join(
        dict.fromkeys(whisper.INSTALL if p == "faster_whisper" else evaluators.INSTALL for p in packages)
    )
