"""The form of a text: markup removed, and the text divided where a sentence ends for other reasons than its words.

    read_form("# News\n\nIt **rains**.[pause:1s]Stay in.")
    blocks "News", "It rains." with a pause of 1 s, and "Stay in."

Code, in which nothing is markup; formulas of LaTeX; HTML tags and entities; Markdown; and of SSML <speak>, <p>, <s>, <break>,
<phoneme>, <say-as> and <sub>. Headings, list items, paragraphs and short lines are blocks, each spoken by itself. Braces that hold
no ARPAbet are characters like others.

All patterns take linear time: each trial ends at the next sign that could begin another one.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from common.data.transliteration import to_ascii
from common.errors import DataError, shorten
from common.reading.formulas import read_latex
from common.reading.tables import readings
from common.spec import SENTENCE_PAUSE
from tacotron2.text.alphabet import Alphabet
from tacotron2.text.elements import read_elements
from tacotron2.text.sentences import CLAUSE_PAUSE, COMMA_PAUSE, ends_sentence, find_ends
from tacotron2.text.sequence import plain_braces

ENGLISH = "en"
PAUSE = 0.5  # seconds of [pause]
LONGEST_PAUSE, MOST_PAUSES = 60.0, 600.0  # seconds of one pause, and of all pauses of a text
_STRENGTHS = {
    **{"none": 0.0, "x-weak": 0.1, "weak": COMMA_PAUSE, "medium": CLAUSE_PAUSE},
    **{"strong": SENTENCE_PAUSE, "x-strong": 2 * SENTENCE_PAUSE},
}
_SECONDS = re.compile(
    r"\s*\+?([0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})\s*(ms|msecs?|milliseconds?|s|secs?|seconds?)?\s*", re.I
)


BLOCKS, _INLINE, _SSML = readings("block of HTML"), readings("tag within a block"), readings("tag of SSML")
_NEVER_NAMED = readings("tag that prose never names")  # their tags need no end
LETTERS = readings("name of a letter")

_BREAK, _PAUSE = "\n\n", "\x1d"  # the second stands for a pause while tags are replaced; texts have none of their own
_MARKED = re.compile(r"[<&\[\\{}\n\r*_`~#>|=$•‣◦▪●·\x0b\x0c\x1d\x85\u2028\u2029]|\A\s*[-+]\s")
_LINE_BREAK = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_HIDDEN = re.compile(r"<(?:!--|(script|style)\b[^<>]*>)", re.I)
_ENDS_OF_HIDDEN = {
    name: re.compile(end, re.I) for name, end in {"": "-->", "script": r"</script\s*>", "style": r"</style\s*>"}.items()
}
_RAISED = re.compile(r"(?:(?<=[0-9])|(?<=\bm)|(?<=[cmk]m))<sup>([−-]?)([0-9]{1,3})</sup>", re.I)
_RAISED_DIGITS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_ATTRIBUTES = r"[\s/](?:(?:[^<>\"']|\"[^\"<]*\"|'[^'<]*')*|[^<>]*)"
_TAG = re.compile(
    rf"\[[ \t]*pause(?:[ \t]*:([^\[\]\n]{{0,60}}))?\]|<(/?)([A-Za-z][A-Za-z0-9:._-]*)({_ATTRIBUTES})?>|<[!?][^<>]*>",
    re.I,
)
# Code keeps its signs: they are private characters while markup is read.
_FENCE = re.compile(r"^[ \t]*(`{3,}(?!`)|~{3,}(?!~))([^\n`]*)$", re.M)
_SPAN = re.compile(r"(?<![`\\])(`{1,2})(?!`)(?P<span>[^`]+)\1(?!`)")
_SIGNS_OF_CODE = "<>&[]*_~#|\\$="
_HIDE = str.maketrans(_SIGNS_OF_CODE, "".join(chr(0xE000 + number) for number in range(len(_SIGNS_OF_CODE))))
_SHOW = {private: chr(sign) for sign, private in _HIDE.items()}
_FIRST_MARK = re.compile(r"[.,;:!?…]+(?=\s|\Z)")
_LANGUAGE = re.compile(r"\bxml:lang\s*=\s*[\"']\s*([A-Za-z]{1,8})(?![A-Za-z])", re.I)
_ATTRIBUTE = re.compile(r"\b(time|strength)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s/>]*))", re.I)


class Block(NamedTuple):
    """A part of a text that is spoken by itself, and the seconds of silence that the text demands after it; None: as usual."""

    text: str
    pause: float | None = None


class Form(NamedTuple):
    """The blocks of a text, the silence before them, the characters that are left out, and what has no effect."""

    blocks: list[Block]
    lead: float = 0.0
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_form(text: str, alphabet: Alphabet, language: str = ENGLISH) -> Form:
    """Read the form of a text in a language by its code, "" for an unknown one; formulas become words only if it is English.

    Raises DataError for a pause out of range, for a pronunciation that is none, and for braces that nearly hold ARPAbet.
    """
    if not _MARKED.search(text):
        return Form([Block(text)])
    text = _hide_code(text) if "`" in text or "~~~" in text else text
    text, notes = read_elements(read_latex(text) if language == ENGLISH else text)
    text, braces = plain_braces(text, alphabet)
    text = _LINE_BREAK.sub("\n", text.replace(_PAUSE, " "))
    tags = _Tags("".join(_visible(text)) if "<" in text else text, language)
    text = tags.replace(remove_markdown(_RAISED.sub(_raise, tags.text)))
    blocks: list[Block] = []
    lead = 0.0
    for part, pause in zip(text.split(_PAUSE), [*tags.pauses, None]):
        mark = _FIRST_MARK.match(part)
        if mark and blocks:  # "Wait[pause:1s]." ends before the pause
            blocks[-1] = blocks[-1]._replace(text=f"{blocks[-1].text}{mark[0]}")
            part = part[mark.end() :]
        blocks += [Block(_decode(block)) for block in _blocks(part)]
        if pause is None:
            continue
        if blocks:
            blocks[-1] = blocks[-1]._replace(pause=(blocks[-1].pause or 0.0) + pause)
        else:
            lead += pause
    return Form(blocks, lead, braces, tuple(dict.fromkeys([*notes, *tags.notes])))


def _hide_code(text: str) -> str:
    """Hide the signs of code: between a fence and the next one of its length, and between backticks elsewhere."""
    fences = list(_FENCE.finditer(text))
    last = {fence[1]: fence.start() for fence in fences if not fence[2].strip()}  # of those that may end code
    parts, place, opening = [], 0, None
    for fence in fences:
        if opening is None:
            opening = fence if last.get(fence[1], -1) > fence.start() else None
        elif fence[1] == opening[1] and not fence[2].strip():
            code = text[opening.start() : fence.end()].translate(_HIDE)
            parts += [_SPAN.sub(_hide, text[place : opening.start()]), code]
            place, opening = fence.end(), None
    return "".join([*parts, _SPAN.sub(_hide, text[place:])])


def _hide(code: re.Match[str]) -> str:
    return code[0].translate(_HIDE)


def _visible(text: str) -> Iterator[str]:
    """Yield a text without comments, and without scripts and styles and their contents. Those that do not end stay."""
    place = 0
    endless: set[str] = set()
    for opening in _HIDDEN.finditer(text):
        kind = (opening[1] or "").lower()
        if opening.start() < place or kind in endless:
            continue
        if (end := _ENDS_OF_HIDDEN[kind].search(text, opening.end())) is None:
            endless.add(kind)
            continue
        yield text[place : opening.start()]
        place = end.end()
    yield text[place:]


def _raise(match: re.Match[str]) -> str:
    return ("⁻" if match[1] else "") + match[2].translate(_RAISED_DIGITS)


class _Tags:
    """Replaces the tags of a text; collects its pauses in seconds, and notes on what has no effect."""

    def __init__(self, text: str, language: str) -> None:
        self.text, self.pauses, self.notes, self._language = text, list[float](), list[str](), language
        self._closed = {name.lower() for name in re.findall(r"</([A-Za-z][A-Za-z0-9:._-]*)", text)}
        self._is_ssml = re.search(r"<speak\b", text, re.I) is not None

    def replace(self, text: str) -> str:
        """Replace tags by nothing, by the end of a block, or by the sign of a pause. Raises DataError for a pause out of range."""
        text = _TAG.sub(self._replacement, text)
        if (total := sum(self.pauses)) > MOST_PAUSES:
            raise DataError(
                f"text: pauses of {total:.10g} s in all, expected at most {MOST_PAUSES:g} s: divide the text"
            )
        return text.replace("<![CDATA[", "").replace("]]>", "") if "<![CDATA[" in text else text

    def _replacement(self, match: re.Match[str]) -> str:
        whole, value, closing, name, attributes = match[0], match[1], match[2], match[3], (match[4] or "").strip()
        if whole[0] == "[":
            is_pause = value is None or value.strip()[:1] in tuple("0123456789+-.")
            return self._pause(whole, value or str(PAUSE)) if is_pause else whole
        if name is None:
            return whole if whole.startswith("<![") else ""
        name = name.lower()
        if name == "break":
            return "" if closing else self._break(whole, attributes)
        lang = _LANGUAGE.search(attributes)
        if lang and not closing and lang[1].lower() != self._language:
            self.notes.append(f'xml:lang="{lang[1]}" is not supported: a voice speaks the one language of its texts')
        has_form = not attributes or "=" in attributes or attributes == "/"
        if len(name) == 1 and not has_form:  # if a <b and c> d
            return whole
        if self._is_named(match, name):
            return f" {name} "
        if name in BLOCKS or (self._is_ssml and name == "s"):
            return _BREAK
        if name in _SSML or ":" in name or (self._is_ssml and not closing):
            self.notes += [] if closing or (lang and name == "lang") else [f"<{name}> of SSML has no effect"]
            return ""
        is_xml = bool(attributes) and has_form
        return "" if name in _INLINE or is_xml or name in self._closed else whole

    def _is_named(self, match: re.Match[str], name: str) -> bool:
        """True for a tag that prose speaks of: the <select> element."""
        before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
        is_alone = not self._closed and not match[4] and before == " " and after in tuple(" .,;:!?)")
        return is_alone and (name in BLOCKS or name in _INLINE) and name not in _NEVER_NAMED

    def _break(self, whole: str, attributes: str) -> str:
        values = {found[1].lower(): found[2] or found[3] or found[4] or "" for found in _ATTRIBUTE.finditer(attributes)}
        if "time" in values:
            return self._pause(whole, values["time"])
        strength = values.get("strength", "medium").lower()
        if strength not in _STRENGTHS:
            raise DataError(f"text: {shorten(whole)!r}: expected strength {', '.join(_STRENGTHS)}")
        return self._pause(whole, str(_STRENGTHS[strength]))

    def _pause(self, whole: str, value: str) -> str:
        found = _SECONDS.fullmatch(value)
        seconds = float(found[1]) / (1000 if (found[2] or "s")[0] in "mM" else 1) if found else -1.0
        if not 0 <= seconds <= LONGEST_PAUSE:
            example = "[pause:0.5s]" if whole[0] == "[" else '<break time="500ms"/>'
            raise DataError(f"text: {shorten(whole)!r}: expected 0 to {LONGEST_PAUSE:g} s, as in {example}")
        self.pauses.append(seconds)
        return _PAUSE


def _blocks(text: str) -> Iterator[str]:
    """Yield the blocks of a text without markup: its lines, joined where wrapped prose runs on."""
    lines: list[str] = []
    for line in (line.strip() for line in f"{text}\n".split("\n")):
        if line:
            lines.append(line)
        if lines and (not line or ends_sentence(line)):
            yield " ".join(lines)
            lines = []


def join_blocks(blocks: Sequence[Block]) -> str:
    """Join blocks to one text, in which each is a sentence, or a clause if a pause follows it."""
    parts: list[str] = []
    before: float | None = None
    for text, pause in blocks:
        if parts and parts[-1][-1:].isalnum():
            parts.append("." if before is None else ",")
        parts += [" ", text] if parts else [text]
        before = pause
    return "".join(parts)


def name_letter(text: str) -> str:
    """Write a letter without other words as its name, which voices can say: "A" is "ay."."""
    letters = [character for character in text if character.isalnum()]
    if len(letters) != 1 or "{" in text or (name := LETTERS.get(to_ascii(letters[0]).upper())) is None:
        return text
    return text.replace(letters[0], name if len(text.strip()) > 1 else f"{name}.")


def _decode(text: str) -> str:
    text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text) if "&" in text else text
    return text if text.isascii() else text.translate(_SHOW)


# --- Markdown: a heading or an item of a list becomes a paragraph, a link its text ---

# Lines of marks alone: rules, underlines of headings, borders of tables
_MARKS = re.compile(r"^[ \t|:*_~-]+$|^[ \t]*={3,}[ \t]*$|^[ \t]*(?:`{3,}|~{3,})[^\n`]*$", re.M)
_QUOTE = re.compile(r"^[ \t]*>(?:[ \t]*>)*(?:[ \t]+(?![0-9$€£])|(?=[^\W\d_]))", re.M)  # not "> 5 people"
HEADING = re.compile(r"^[ \t]{0,3}#{1,6}[ \t]+(\S[^\n]*)$", re.M)
_BULLET = re.compile(r"^[ \t]*(?:[-*+][ \t]+|[•‣◦▪●·][ \t]*)(?:\[[ xX]\][ \t]+)?", re.M)
_NUMBERED = re.compile(r"^(?=[ \t]*[0-9]{1,3}[.)][ \t])", re.M)
_ROW = re.compile(r"^[ \t]*\|([^\n]*)\|[ \t]*$", re.M)
_DEFINITION = re.compile(r"^[ \t]*\[[^\[\]\n]+\]:[ \t]*(?:<|https?:|www\.|mailto:|[/#.])[^\n]*$", re.M)
_NO_PAUSE = r"(?![ \t]{0,9}(?i:pause)[ \t]{0,9}(?::[ \t]{0,9}[-+.0-9]|\](?!\()))"  # [pause:1s][pause] refers to nothing
_LINK = re.compile(
    rf"(?<!\w)!?\[{_NO_PAUSE}([^\[\]\n]*)\]"
    r"\((?:[^()\s]|\([^()\s]*\))*(?:\s+(?:\"[^\"\n]*\"|'[^'\n]*'))?[ \t]*\)"
)
_REFERENCE = re.compile(rf"(?<!\w)!?\[{_NO_PAUSE}([^\[\]\n]+)\]\[{_NO_PAUSE}[^\[\]\n]*\]")
_FOOTNOTE = re.compile(r"\[\^\w{1,30}\]:?")
_ADDRESS = re.compile(r"<((?:https?|ftp|mailto):[^<>\s]+|[^<>\s@]+@[^<>\s@]+)>")
_EMPHASIS = re.compile(
    r"(?<![\w*\\])(?P<star>\*{1,3})(?=[^\s*])(?P<starred>[^*]*[^\s*\\])(?P=star)(?![\w*])"
    r"|(?<![\w\\])(?P<line>_{1,3})(?=[^\s_])(?P<lined>[^_]*[^\s_\\])(?P=line)(?!\w)"
    r"|(?<![\w=])==(?=[^\s=])(?P<marked>[^=]+)(?<=\S)==(?![\w=])"
    r"|(?<!~)~~(?=[^\s~])(?P<struck>[^~]+)~~(?!~)"
    r"|(?<![`\\])(?P<tick>`{1,2})(?!`)(?P<code>[^`]+)(?P=tick)(?!`)"
)
_EMPHASISED = "starred", "lined", "marked", "struck", "code"
_ESCAPE = re.compile(r"\\([*_#`\[\]~|>$])")
# The beginning of a line that does not continue the one before it
BLOCK_START = re.compile(r"[ \t]*(?:\r?\n|#{1,6}[ \t]|[-*+][ \t]|[•‣◦▪●·>|]|[0-9]{1,3}[.)][ \t]|`{3}|~{3})")
_DEEPEST = 3  # emphasis within emphasis


def remove_markdown(text: str) -> str:
    """Remove Markdown. A line or a sentence alone is read as it is in its text, except for what other lines define.

    Takes linear time, as no pattern looks beyond the next sign of its kind or the line.
    """
    text = _QUOTE.sub("", _DEFINITION.sub("", _MARKS.sub("", text)))
    text = _BULLET.sub(_BREAK, HEADING.sub(_heading, text))
    text = _ADDRESS.sub(r" \1 ", _ROW.sub(_row, _NUMBERED.sub(_BREAK, text)))
    if "[" in text:
        text = _FOOTNOTE.sub("", _LINK.sub(r"\1", _LINK.sub(r"\1", text)))  # an image may be the text of a link
        text = _REFERENCE.sub(lambda found: found[1] if any(map(str.isalpha, found[1])) else found[0], text)
    for _ in range(_DEEPEST):
        before = text
        text = _EMPHASIS.sub(lambda found: next(filter(None, found.group(*_EMPHASISED))), text)
        if text == before:
            break
    return _ESCAPE.sub(r"\1", text)


def _heading(found: re.Match[str]) -> str:
    title = found[1].rstrip()
    without_end = title.rstrip("#")
    return f"{_BREAK}{title if without_end[-1:].strip() else without_end}{_BREAK}"


def _row(found: re.Match[str]) -> str:
    cells = [cell.strip() for cell in found[1].split("|")]
    return f"{_BREAK}{', '.join(filter(None, cells))}{_BREAK}"


# Markup whose end has arrived, and markup that may still end. Both have a longest length, so that no reader waits without end.
_MARKUP = re.compile(
    r"`[^`\n]{1,200}`|\{[^{}\n]{0,200}\}|</?(?P<name>[A-Za-z][A-Za-z0-9:._-]{0,60})(?:[\s/][^<>]{0,500})?>|<[!?][^<>]{0,500}>"
    r"|\[[ \t]{0,9}pause[^\[\]\n]{0,60}\]|\v",
    re.I,
)
_OPEN = re.compile(r"(?:`[^`\n]{0,200}|\{[^{}\n]{0,200}|<(?:[A-Za-z/!?][^<>]{0,570})?|\[[^\[\]\n]{0,80})\Z")
_BLOCK_END = "\v"


def ended_sentences(text: str, column: int = 0, is_whole: bool = False) -> list[int]:
    """List the ends of the sentences of a text that arrives in parts, where its blocks and lines end, too.

    Args:
        text: what has arrived since the last of these ends.
        column: the characters of its first line before it.
        is_whole: True if nothing follows. Otherwise, what may depend on what follows is no end yet.
    """
    masked = _MARKUP.sub(_mask, text)
    if not is_whole:
        still_open = _OPEN.search(masked)
        masked = masked[: still_open.start()] if still_open else masked
        masked = masked[: len(masked) - len(re.split(r"\s", masked)[-1])]

    def is_line_end(place: int, last_end: int) -> bool:
        start = masked.rfind("\n", 0, place) + 1
        line, before = text[start:place], 0 if start else column
        if masked[place] == _BLOCK_END or ends_sentence(line, before + len(line.rstrip())):
            return True
        is_whole_line = not before and start >= last_end
        return (is_whole_line and HEADING.match(line) is not None) or BLOCK_START.match(
            text, place + 1, len(masked)
        ) is not None

    return find_ends(masked, is_line_end)


def _mask(markup: re.Match[str]) -> str:
    """Replace {ARPAbet} and code by letters and other markup by spaces, of the same length, with a sign at the end of a block."""
    if markup[0][0] in "{`":
        return "X" * len(markup[0])
    return " " * (len(markup[0]) - 1) + (_BLOCK_END if (markup["name"] or "").lower() in BLOCKS else " ")
