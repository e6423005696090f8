"""The words of the recipe: CONTRIBUTING.md, "Names and words", as a word list over all Python, Markdown and shell files."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.recipe import ROOT

# Not prose of the recipe: this list itself, and texts that are data.
DATA = ("tests/test_words.py", "corpus/text/", "voice/text/", "phrases/", "filelists/")

# (file, part of the line): why the words may stand there.
ALLOWED = {
    ("CONTRIBUTING.md", "| `heard`"): "the table of words to avoid",
    ("CONTRIBUTING.md", '| "'): "the table of phrases to avoid",
}

PEOPLE_ONLY = "a person does that; write: takes, receives, reads, its input is"
WORDS = {
    r"hear|hears|heard|hearing|overhears?": PEOPLE_ONLY,
    r"judge|judges|judged|judging": "write: evaluate, score, measure",
    r"wish|wishes|wished": "write: request, option",
    r"in chorus": "write: all ranks together",
    r"tells? of|tells the truth|(?:which|that) is said": "write: describes, names, prints a note",
    r"speaks? of": "write: names, describes, contains",
    r"(?:knows?|sees?) (?:no|nothing)": "write: has no, supports no",
    r"(?:models?|tensors?|process(?:es)?|layers?|weights|networks?|(?:en|de)coders?|flows?|checkpoints?|kernels?|parsers?"
    r"|samplers?|optimizers?|functions?|files?|scripts?|flags?) (?:(?:does|do|can)(?: not|not|n't) )?"
    r"(?:knows?|wants?|asks?|sees?|says?|said|listens?|thinks?|tells?|told|remembers?|forgets?)": PEOPLE_ONLY,
}
WORD_RULES = [(re.compile(rf"\b(?:{words})\b", re.IGNORECASE), advice) for words, advice in WORDS.items()]
NAME_RULES = [(re.compile(rf"(?:^|_)(?:{words})(?:_|$)"), advice) for words, advice in list(WORDS.items())[:3]]

# A clause that opens with "what" hides its subject. In prose: at its beginning, after a mark, in a heading, an item or a cell.
OPENER = re.compile(r"(?:\A|[.!?:;,(—]\s+|\n\s*\n|(?:\A|\n)\s*(?:[-*|#]+|\d+\.)\s+|\|\s*)\s*(?P<word>[Ww]hat)\b")
OPENER_ADVICE = "begin with the subject or an imperative; name the thing"
# A docstring is no indirect question either.
QUESTION = re.compile(r"\A\s*(?P<word>Whether|Which(?:ever)?|Whatever|Where|How|Why|Who(?:ever)?)\b")

# Alone they describe something else and name nothing.
PARTICIPLES = frozenset(
    {
        *("built", "chosen", "cut", "done", "drawn", "fed", "found", "given", "heard", "held", "kept", "known", "left"),
        *("made", "meant", "said", "seen", "sent", "shown", "spoken", "split", "taken", "told", "undrawn", "wanted"),
        "written",
    }
)
NO_PARTICIPLES = frozenset({"bed", "embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "succeed"})
NAMES_BY_USERS = frozenset({"embedded"})  # Synthesizer.embedded(): a public name that users asked for
VARIABLES = frozenset({"heard", "judged", "kept", "made", "told"})
PARTICIPLE_ADVICE = "a bare participle; write a noun (saved, outputs, message) or a verb phrase (fold_weights)"

SHORTEST_PROSE = 4  # words, from which on a string literal is taken for a sentence
STRINGS_ARE_DATA = ("tests/", "tacotron2/text/reading/", "common/quality/words.py")  # of a test or a word list


class Offence(NamedTuple):
    """A word in a line of a file, with the advice that goes with it."""

    path: str
    line: int
    word: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r}: {self.advice}"


class Prose(NamedTuple):
    """A docstring, a block of comments, a string or a page; openers matter where it is read as sentences."""

    line: int
    text: str
    openers: bool = True
    is_docstring: bool = False


def tracked(*patterns: str) -> list[str]:
    """Paths under version control; all files there are where the recipe was copied without its history."""
    listing = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode == 0 and listing.stdout:
        return [line for line in listing.stdout.splitlines() if (ROOT / line).exists()]
    paths = (path.relative_to(ROOT) for pattern in patterns for path in ROOT.rglob(pattern))
    return sorted(str(path) for path in paths if not any(part.startswith(".") for part in path.parts))


def docstrings(tree: ast.AST) -> dict[int, ast.Constant]:
    """Docstrings by the identity of their nodes."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    firsts = (node.body[0] for node in ast.walk(tree) if isinstance(node, owners) and node.body)
    values = (first.value for first in firsts if isinstance(first, ast.Expr))
    return {id(value): value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)}


def comment_blocks(source: str) -> Iterator[Prose]:
    """Comments; those of neighbouring lines that hold nothing else are one block."""
    block: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, text = token.start[0], token.string.lstrip("#").strip()
        if token.line.lstrip().startswith("#") and line == last + 1 and block:
            block.append(text)
        else:
            if block:
                yield Prose(start, "\n".join(block))
            block, start = [text], line
        last = line if token.line.lstrip().startswith("#") else 0
    if block:
        yield Prose(start, "\n".join(block))


def shell_comments(source: str) -> Iterator[Prose]:
    """The comments of a shell script, line by line; the rest has its words checked too."""
    for number, line in enumerate(source.splitlines(), 1):
        yield Prose(number, line.lstrip().lstrip("#").strip(), line.lstrip().startswith("#"))


def python_prose(source: str, tree: ast.AST, with_strings: bool) -> Iterator[Prose]:
    """Docstrings and comments, and where asked for, strings that are sentences."""
    docs = docstrings(tree)
    yield from (Prose(node.lineno, str(node.value), is_docstring=True) for node in docs.values())
    yield from comment_blocks(source)
    for node in ast.walk(tree) if with_strings else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield from [Prose(node.lineno, node.value)] * (len(node.value.split()) >= SHORTEST_PROSE)


def page_prose(source: str) -> Iterator[Prose]:
    """Paragraphs of a Markdown page; lines of code have no openers."""
    is_code = False
    start, paragraph = 1, list[str]()
    for number, line in enumerate([*source.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        if is_code or fence or not line.strip():
            if paragraph:
                yield Prose(start, "\n".join(paragraph))
            paragraph = []
            if is_code and not fence:
                yield Prose(number, line, openers=False)
            is_code ^= fence
        else:
            start = number if not paragraph else start
            paragraph.append(line)


def names(tree: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """(line, name, whether a function or class has it) of all that a file defines or assigns."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name, True
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg, False
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id, False
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr, False


def is_participle(name: str) -> bool:
    """True for one word alone that is a participle, of a verb that the list names or of a regular one."""
    word = name.strip("_").lower()
    regular = word.isalpha() and word.endswith("ed") and word not in NO_PARTICIPLES | NAMES_BY_USERS
    return regular or word in PARTICIPLES


def name_offences(path: str, tree: ast.AST) -> Iterator[Offence]:
    """Names that are bare participles, or hold a word that only people do."""
    for line, name, is_defined in names(tree):
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        if is_participle(name) if is_defined else name.strip("_") in VARIABLES:
            yield Offence(path, line, name, PARTICIPLE_ADVICE)
        else:
            yield from (Offence(path, line, name, advice) for rule, advice in NAME_RULES if rule.search(snake))


def prose_offences(path: str, prose: Prose) -> Iterator[Offence]:
    """Words of the list, clauses that open with "what", and docstrings that open as a question."""
    matches = [(match, match.start(), advice) for rule, advice in WORD_RULES for match in rule.finditer(prose.text)]
    if prose.openers:
        matches += [(match, match.start("word"), OPENER_ADVICE) for match in OPENER.finditer(prose.text)]
    if prose.is_docstring and (match := QUESTION.match(prose.text)):
        matches.append((match, match.start("word"), OPENER_ADVICE))
    for match, place, advice in matches:
        yield Offence(path, prose.line + prose.text.count("\n", 0, place), prose.text[place : match.end()], advice)


def offences(path: str, source: str) -> list[Offence]:
    """All offences of a file, in the order of its lines, but for those that are allowed."""
    if path.endswith(".py"):
        tree = ast.parse(source)
        found = list(name_offences(path, tree))
        texts = python_prose(source, tree, not path.startswith(STRINGS_ARE_DATA))
    else:
        found, texts = [], page_prose(source) if path.endswith(".md") else shell_comments(source)
    found += [offence for prose in texts for offence in prose_offences(path, prose)]
    lines = source.splitlines()
    allowed = [part for file, part in ALLOWED if file == path]
    return sorted(offence for offence in set(found) if not any(part in lines[offence.line - 1] for part in allowed))


def all_offences(paths: list[str]) -> list[Offence]:
    """Those of every file that is no data."""
    return [
        offence
        for path in paths
        if not path.startswith(DATA)
        for offence in offences(path, Path(ROOT, path).read_text())
    ]


def test_the_word_list_holds():
    """Every name, docstring, comment and page uses the words of CONTRIBUTING.md."""
    report = "\n".join(map(str, all_offences(tracked("*.py", "*.md", "*.sh"))))
    assert not report, f"words to replace (CONTRIBUTING.md, Names and words):\n{report}"


@pytest.mark.parametrize(
    ("path", "source", "line", "word"),
    [
        ("a.py", 'x = 1\n"""no docstring, but a sentence that says the layer hears it."""\n', 2, "hears"),
        ("a.py", 'def f():\n    """Cut what the flows heard."""\n', 2, "heard"),
        ("a.py", "x = 1  # the vocoder is judged by it\n", 1, "judged"),
        ("a.py", "def made():\n    pass\n", 1, "made"),
        ("a.py", "class _Undrawn:\n    pass\n", 1, "_Undrawn"),
        ("a.py", "def _masked():\n    pass\n", 1, "_masked"),
        ("a.py", "for kept in []:\n    pass\n", 1, "kept"),
        ("a.py", "def f(told): ...\n", 1, "told"),
        ("a.py", "def f():\n    self.heard = 1\n", 2, "heard"),
        ("a.py", "def test_a_clip_is_heard(): ...\n", 1, "test_a_clip_is_heard"),
        ("a.py", '"""What a model needs."""\n', 1, "What"),
        ("a.py", '"""Settings.\n\nThe first: what a model needs.\n"""\n', 3, "what"),
        ("a.py", 'def f():\n    """Whether it is."""\n', 2, "Whether"),
        ("a.py", "def f(wishes): ...\n", 1, "wishes"),
        ("a.py", "# an older one is moved aside, which is said\n", 1, "which is said"),
        ("a.py", "x = 1\n# A block.\n# What a model needs.\n", 3, "What"),
        ("a.py", 'x = f"{1} ranks speak of it in chorus {2}"\n', 1, "speak of"),
        ("a.md", "# Title\n\nText.\n\n- What it does\n", 5, "What"),
        ("a.py", '"""A model does not know of them."""\n', 1, "model does not know"),
        ("a.md", "```\nthe model knows nothing\n```\n", 2, "knows nothing"),
        ("a.sh", "echo\n# What it does\n", 2, "What"),
    ],
)
def test_an_offence_is_found_with_its_line(path, source, line, word):
    found = offences(path, source)
    assert any(offence.line == line and word in offence.word for offence in found), found
    assert all(str(offence).startswith(f"{path}:") and offence.advice for offence in found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("a.py", '"""Shorten texts to what fits."""\n'),
        ("a.py", "seed = speed = 1\n\n\ndef feed(): ...\n\n\ndef kept_frames(): ...\n"),
        ("a.py", "# the heart of the matter\n"),
        ("a.py", "# Where a file is missing, it is made.\n"),
        ("a.py", "# A rule whose line breaks before\n# what follows.\n"),
        ("tests/a.py", 'TEXT = "I heard that what you said is true."\n'),
        ("a.md", "```\nWhat a command\n```\n\nThey show what fits.\n"),
    ],
)
def test_plain_english_passes(path, source):
    assert offences(path, source) == []


if __name__ == "__main__":  # python -m tests.test_words: the whole list
    print(*all_offences(tracked("*.py", "*.md", "*.sh")), sep="\n")
