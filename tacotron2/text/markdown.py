"""Remove Markdown from a text: a heading or an item of a list becomes a paragraph, a link its text."""

from __future__ import annotations

import re

_PARAGRAPH = "\n\n"
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
    r"|(?<!~)~~(?=[^\s~])(?P<struck>[^~]+)~~(?!~)"
    r"|(?<![`\\])(?P<tick>`{1,2})(?!`)(?P<code>[^`]+)(?P=tick)(?!`)"
)
_ESCAPE = re.compile(r"\\([*_#`\[\]~|>])")
# The beginning of a line that does not continue the one before it
BLOCK_START = re.compile(r"[ \t]*(?:\r?\n|#{1,6}[ \t]|[-*+][ \t]|[•‣◦▪●·>|]|[0-9]{1,3}[.)][ \t]|`{3}|~{3})")
_DEEPEST = 3  # emphasis within emphasis


def remove_markdown(text: str) -> str:
    """Remove Markdown. A line or a sentence alone is read as it is in its text, except for what other lines define.

    Takes linear time, as no pattern looks beyond the next sign of its kind or the line.
    """
    text = _QUOTE.sub("", _DEFINITION.sub("", _MARKS.sub("", text)))
    text = _BULLET.sub(_PARAGRAPH, HEADING.sub(_heading, text))
    text = _ADDRESS.sub(r" \1 ", _ROW.sub(_row, _NUMBERED.sub(_PARAGRAPH, text)))
    if "[" in text:
        text = _FOOTNOTE.sub("", _LINK.sub(r"\1", _LINK.sub(r"\1", text)))  # an image may be the text of a link
        text = _REFERENCE.sub(lambda found: found[1] if any(map(str.isalpha, found[1])) else found[0], text)
    for _ in range(_DEEPEST):
        before = text
        text = _EMPHASIS.sub(lambda found: found["starred"] or found["lined"] or found["struck"] or found["code"], text)
        if text == before:
            break
    return _ESCAPE.sub(r"\1", text)


def _heading(found: re.Match[str]) -> str:
    title = found[1].rstrip()
    without_end = title.rstrip("#")
    return f"{_PARAGRAPH}{title if without_end[-1:].strip() else without_end}{_PARAGRAPH}"


def _row(found: re.Match[str]) -> str:
    cells = [cell.strip() for cell in found[1].split("|")]
    return f"{_PARAGRAPH}{', '.join(filter(None, cells))}{_PARAGRAPH}"
