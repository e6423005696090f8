"""Text files as people save them: in UTF-8, UTF-16 or an older code page, with any line ends."""

from __future__ import annotations

import codecs
import re
import unicodedata
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from common.data.transliteration import compose
from common.errors import DataError, explain_refusal
from common.files import read_content

WINDOWS = "cp1252"  # Windows' code page for the languages of Western Europe and America
NAMES = {WINDOWS: "Windows-1252", "utf-16": "UTF-16"}
BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
MOST_ACCENTS, FEW_ACCENTS = 0.25, 4  # a share of the letters, or a number; other scripts read as cp1252 have more
OTHERS = [  # what is left to detect; rarer ones are mistaken for these
    *("cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "koi8_r", "mac_roman"),
    *("cp932", "euc_jp", "gb18030", "big5", "cp949"),
]
FEWEST_NULS = 0.3  # share of the bytes; UTF-16 without a byte-order mark has more in Latin scripts
MISREAD = re.compile(r"\w[¿¡\u02c6\u02dc]|[a-zß-öø-ÿ][A-ZÀ-ÖØ-ÞŠŽŒŸ]")  # within words, these come of another code page
SAVE = "save it as UTF-8"
SENTENCE_ENDS, CLOSING = tuple(".!?…。！？।"), "\"'”’»)]"  # and what may follow them
INVISIBLE = (0xAD, 0x200B, 0x2060, 0xFEFF)  # soft hyphen and characters without width, except those that shape letters


def ends_sentence(text: str) -> bool:
    """Return True if a text, or a word, ends with the end of a sentence."""
    return text.rstrip().rstrip(CLOSING)[-1:] in SENTENCE_ENDS


class TextFile(NamedTuple):
    """The lines of a file, without blank ones at its end, and the name of its encoding; "" for UTF-8."""

    lines: list[str]
    encoding: str

    @property
    def note(self) -> str:
        """A remark about the encoding, to follow others; "" for UTF-8."""
        return f"; read as {self.encoding}, since it is not UTF-8" if self.encoding else ""


def read_text(path: Path) -> TextFile:
    """Read a text file. LF, CRLF, or CR alone, as in old tables from a Mac, end its lines.

    Raises DataError for a file that cannot be read, is no text, or whose encoding is unclear.
    """
    with explain_refusal(f"{path}: cannot be read"):
        content = read_content(path)
    text, encoding = _decode(path, content)
    if "\0" in text:
        raise DataError(f"{path}: holds a NUL character: not a text file")
    text = text.replace("\r\n", "\n")
    lines = (text if "\n" in text else text.replace("\r", "\n")).split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    return TextFile(lines, encoding)


def _decode(path: Path, content: bytes) -> tuple[str, str]:
    """Return the text, and the name of its encoding, "" for UTF-8."""
    for bom, codec in BOMS.items():
        if content.startswith(bom):
            text = content.decode(codec, "replace")
            if "\ufffd" in text:
                raise DataError(f"{path}: cut short or damaged, not {codec.upper().removesuffix('-SIG')}; {SAVE}")
            return text, NAMES.get(codec, "")
    halves = content[::2], content[1::2]
    for half, codec in zip(halves, ("utf-16-be", "utf-16-le"), strict=True):
        text = content.decode(codec, "replace") if half.count(0) > FEWEST_NULS * len(content) else "\0"
        if all(character.isprintable() or character.isspace() for character in text):
            return text, "UTF-16"
    try:
        return content.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        place = f"{content[: error.start].count(10) + 1}"
        return _decode_code_page(path, content, f"{path}:{place}: byte 0x{content[error.start]:02x} is not UTF-8")


def _decode_code_page(path: Path, content: bytes, problem: str) -> tuple[str, str]:
    """Decode text of a code page: Windows-1252 if it reads well, since detectors need longer texts, or else a detected one."""
    try:
        text = content.decode(WINDOWS)
        if _reads_well(text):
            return text, NAMES[WINDOWS]
    except UnicodeDecodeError:
        pass
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        raise DataError(f"{problem}; {SAVE}") from None
    best = from_bytes(content, cp_isolation=OTHERS).best()
    if best is None:
        raise DataError(f"{problem}; {SAVE}")
    return str(best).removeprefix("\ufeff"), NAMES.get(best.encoding, best.encoding)


def _reads_well(text: str) -> bool:
    """Return True for a text whose accents are few, with neither symbols nor capitals within words."""
    letters = [character for character in text if character.isalpha()]
    foreign = sum(not letter.isascii() for letter in letters)
    symbols = any(
        one.isalpha() and not other.isascii() and unicodedata.category(other)[0] in "SN"
        for one, other in pairwise(text)
    )
    return foreign <= max(FEW_ACCENTS, MOST_ACCENTS * len(letters)) and not symbols and not MISREAD.search(text)


def plain_text(text: str) -> str:
    """Compose characters (NFC), collapse white space, and remove the separator of filelists and control characters."""
    text = compose(text)
    text = "".join(" " if c == "|" or unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text)
    text = text.translate(dict.fromkeys(INVISIBLE))
    return " ".join(text.split())
