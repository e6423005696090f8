r"""Formulas in a text, plain or of LaTeX, by one small grammar.

    read "Let f(x) = x^2 - 4." as           "Let f of x equals x squared minus four."
    read "2H₂ + O₂ → 2H₂O" as               "two H two plus O two yields two H two O"
    read r"$\frac{1}{2} \leq x_1$" as       "one half less than or equal to x one"

    formula  = operand {operator operand}
    operand  = [sign] {factor} {power | "!"}
    factor   = number [unit] | letter [index] | word | compound | function operand | "(" formula ")" | "|" formula "|" | "√" operand

A stretch of this form is a formula if its signs and operands mean nothing else; prose, ranges, dates and shares of a whole have
hyphens and slashes, too. Only there a hyphen is minus, and a slash is over. What LaTeX marks is a formula in any case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from common.reading.numbers import cardinal, decimal, fraction, ordinal
from common.reading.quantities import SYMBOLS
from common.reading.tables import any_of, behind, readings, words

_SIGNS, _FUNCTIONS, _POWERS = readings("sign of a formula"), readings("function"), readings("power of a formula")
_OPERATORS = [sign for sign in _SIGNS if not set(sign) & set(" f√|⁺⁻")]  # what stands between operands
_SLASHED = frozenset(words("with a slash"))
_WORDS = frozenset(map(str.lower, words("short word, known"))) - frozenset(words("product of letters"))
_PLAIN = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ₀₁₂₃₄₅₆₇₈₉", "0123456789+-n0123456789")
_LETTER = "[^\\W\\d_¹²³⁰⁴-⁹ⁿ₀-₉]"
_PARTS = rf"(?:{any_of(words('element'))})(?![a-z])[0-9₀-₉]*"
_UNIT = rf"(?:{SYMBOLS})(?:\^?[23]|[²³])?(?![\w(^])"
_RATIO = rf"(?:{SYMBOLS})(?:\^?[23]|[²³])?/(?:{SYMBOLS}|s)(?:\^?[23]|[²³])?(?![\w(^])"
_NUMBER = r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,40})(?:\.[0-9]{1,40})?|(?<![\w.])\.[0-9]{1,40})(?![0-9]|[.,][0-9])"
_TOKEN = (
    rf"(?P<fraction>(?<![/.,0-9])[0-9]{{1,3}}/[0-9]{{1,3}}(?![/0-9]|\.[0-9]))"
    rf"|(?P<amount>[$£€](?:{_NUMBER})|(?:{_NUMBER})(?:%|°[CF]?|\s?{_RATIO}|(?:\s|(?=[^\W\d_]{{2}})){_UNIT}))"
    rf"|(?P<number>{_NUMBER})"
    rf"|(?P<compound>(?:{_PARTS}|\((?:{_PARTS}){{1,4}}\)[0-9₀-₉]+){{1,12}}[²³⁴]?[⁺⁻]?(?![^\W_]))"
    rf"|(?P<word>{_LETTER}+(?:-{_LETTER}{{2,}})*(?:_[^\W_]+|[₀-₉]+)?|∞)"
    r"|(?P<power>\^(?:-?[0-9]+|-?[A-Za-z]\b)|⁻?[⁰¹²³⁴-⁹]+|ⁿ)"
    rf"|(?P<sign>{any_of(_OPERATORS)})|(?P<open>\()|(?P<close>\))|(?P<bar>\|)|(?P<root>√)|(?P<space>[ \u00a0])|(?P<other>.)"
)
# Signs of formulas alone, and those of prose where they may stand in one; a text without them takes no time.
_SIGNAL = re.compile(
    r"[-=<>≤≥≠≈≡≦≧⊆⋈±÷√∙⋅·∗∕^→⇌−⁺⁻+*/×(]"
    r"(?:(?<=[^-+*/×(])|(?<=\s-)(?=\s)|(?<=\*\*)|(?:(?<=[\w)][+*/×])|(?<=[\w)]\s[+*/×]))(?=\s?[\w(])|(?<=\w\())"
    r"|(?<=[0-9])(?:-(?=[0-9]{1,9}[?.])|⁻?[⁰¹²³⁴-⁹])"
)
_PROMOTION = re.compile("(?:[a-h]x)?[a-h][18]=[QRBN]")  # of a pawn: e8=Q
_ASKED = re.compile(behind(words("asks for a result")))
_RELATIONS = frozenset("=≠≤≥≈<>≡≦≧⊆⋈") | {"<=", ">=", "!="}
_CLEAR, _ARROWS, _UNARY = frozenset("−÷∙⋅∗∕±"), frozenset("→⇌"), frozenset("-−+±")
_OPERANDS = frozenset(("fraction", "amount", "number", "compound", "word", "open", "bar", "root"))
_ARTICLES = frozenset("aAI")
_DEEPEST, _LONGEST = 6, 100  # brackets in brackets; tokens of a formula


class _Part(NamedTuple):
    """A token of a formula; `is_first` where an operand is expected, `is_spaced` behind a space."""

    kind: str
    text: str
    start: int
    end: int
    is_first: bool
    is_spaced: bool

    @property
    def is_sign(self) -> bool:
        """True for a sign before an operand: -3."""
        return self.kind == "sign" and self.is_first

    @property
    def is_letter(self) -> bool:
        """True for a variable, an index, or a product of letters: x, x₁, ma."""
        if self.kind == "compound":
            return len(self.text) == 1
        short = re.split("[_₀-₉]", self.text)[0]
        is_product = len(short) < 4 and short.islower() and short not in _WORDS and short not in _FUNCTIONS
        return self.kind == "word" and (len(short) == 1 or is_product)

    @property
    def is_name(self) -> bool:
        """True for a word of the language, He among the elements too."""
        is_word = self.kind == "word" or (self.kind == "compound" and self.text.isalpha())
        return is_word and not self.is_letter and self.text not in _FUNCTIONS


def find_formulas(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield where the formulas of a text start and end, and their words.

    Takes linear time: a trial reads a bounded stretch, and what it has read is not tried again.
    """
    if not _SIGNAL.search(text):
        return
    tokens = _tokens(text)
    place = 0
    while place < len(tokens):
        parts, following = _parse(tokens, place)
        if parts:
            start, end = parts[0].start, parts[-1].end
            is_all = end - start == len(text) and _is_difference(parts)
            if (is_all or _is_formula(parts, _ASKED.match(text, start) is not None)) and _stands_alone(
                text, start, end
            ):
                yield start, end, _speak(parts)
        place = max(following, place + 1)


def _tokens(text: str) -> list[re.Match[str]]:
    return list(re.compile(_TOKEN, re.DOTALL).finditer(text))  # compiled at the first text with a formula


def _stands_alone(text: str, start: int, end: int) -> bool:
    """True for a stretch that is no abbreviation, a/k/a, and no part of an address, a path or a flag."""
    return (
        text[start:end].lower() not in _SLASHED
        and _PROMOTION.fullmatch(text, start, end) is None
        and re.match(r"[\w?&/.@#$'’\\-]", text[start - 1 : start]) is None
        and (re.match(r"[^\w&/@#$'’\\-]?(?![\w/])|[^\w.&/@#$'’\\-]", text[end : end + 2]) is not None)
    )


def _parse(tokens: list[re.Match[str]], place: int) -> tuple[list[_Part], int]:
    """The longest expression from a token on, and the token behind it."""
    parts: list[_Part] = []
    brackets: list[str] = []
    complete, end, expects, is_spaced = 0, place, True, False  # expects: an operand may begin
    for index in range(place, min(len(tokens), place + _LONGEST)):
        kind, written = tokens[index].lastgroup or "", tokens[index][0]
        if kind == "space" and parts and not is_spaced:
            is_spaced = True
            continue
        if written in ("x", "X") and not expects and _is_between_numbers(tokens, index):
            kind, written = "sign", "×"
        if kind == "bar" and brackets[-1:] == ["bar"] and not expects:
            kind = "close"
        before, is_first = parts[-1] if parts else None, expects
        if before and before.text == "/" and is_spaced > before.is_spaced:  # w/ r = 4
            break
        if kind in _OPERANDS and (expects or _multiplies(before, kind, written, is_spaced)):
            brackets += [kind] if kind in ("open", "bar") else []
            expects = kind in ("open", "bar", "root")
        elif kind == "sign" and (not expects or (written in _UNARY and not (before and before.is_sign))):
            expects = written != "!"
        elif kind == "close" and brackets and not expects:
            brackets.pop()
        elif kind != "power" or expects or is_spaced:
            break
        parts.append(_Part(kind, written, *tokens[index].span(), is_first, is_spaced))
        is_spaced = False
        if len(brackets) > _DEEPEST:
            break
        if not brackets and not expects:
            complete, end = len(parts), index + 1
    if complete > 1 and parts[complete - 1].text == "!" and parts[complete - 2].kind != "close":  # of a sentence
        complete -= 1
    return parts[:complete], end


def _is_between_numbers(tokens: list[re.Match[str]], index: int) -> bool:
    """True for the x of 3 x 5 or 3x5."""
    sides = tokens[max(0, index - 2) : index][::-1], tokens[index + 1 : index + 3]
    nearest = (next((token.lastgroup for token in side if token.lastgroup != "space"), None) for side in sides)
    return all(kind in ("number", "amount") for kind in nearest)


def _multiplies(before: _Part | None, kind: str, written: str, is_spaced: bool) -> bool:
    """True if an operand stands right behind another: 2x, f(x), (a)(b), sin x."""
    if before is None or kind == "bar":
        return False
    if before.text in _FUNCTIONS and before.kind == "word":
        return kind == "open" or (is_spaced and len(before.text) > 1)
    is_short = kind in ("open", "root") or (len(written) < 4 and written not in _WORDS) or not written.isalpha()
    if is_spaced:
        is_function = kind == "word" and len(written) > 1 and written in _FUNCTIONS
        return (is_function and (before.is_letter or before.kind in ("number", "power", "close"))) or (
            before.kind == "fraction" and kind == "word" and len(written) < 3
        )
    return is_short and (before.kind in ("number", "fraction", "close", "power") or before.is_letter)


def _is_difference(parts: list[_Part]) -> bool:
    """True for a number and a smaller one behind a dash with spaces: no range."""
    first, *others = (part.text for part in parts)
    return (
        len(parts) == 3
        and parts[1].is_spaced
        and others[0] in "-–"
        and (first + others[1]).isdigit()
        and int(first) > int(others[1])
    )


def _is_formula(parts: list[_Part], is_asked: bool) -> bool:
    """True if the signs and operands of an expression mean nothing else; a text may ask for its result."""
    operators = [part for part in parts if part.kind == "sign" and not part.is_sign and part.text != "!"]
    signs = {part.text for part in operators}
    if len(parts) == 1:
        return parts[0].kind == "compound" and parts[0].text[-1] in "⁺⁻"
    if [part.kind for part in parts] == ["number", "power"]:
        return parts[1].text[0] != "^"
    letters = {part.text for part in parts if part.is_letter}
    names = [part for part in parts if part.is_name]
    compounds = [part for part in parts if part.kind == "compound" and not part.is_letter]
    if signs & _ARROWS:
        return all(part.kind == "compound" for part in names) and (bool(letters) or len(compounds) > 1)
    if signs & _RELATIONS:
        is_heart = signs <= {"<", ">"} and bool(letters) and letters <= _ARTICLES  # I <3 you
        is_range = any(part.text in ("-", "–") and not part.is_spaced for part in operators)
        has_value = any(part.kind in ("number", "amount", "fraction") for part in parts)
        return bool(letters or has_value or len(operators) > 1) and not is_heart and not (names and is_range)
    is_flag = any(one in operators and one.is_spaced > two.is_spaced for one, two in pairwise(parts))  # rm -rf
    if names or compounds or is_flag or re.fullmatch(_RATIO, "".join(part.text for part in parts)):  # km/h
        return False
    if not letters:
        return is_asked or any(
            part.text in _CLEAR | {"*", "**"} or (part.text == "/" and part.is_spaced) for part in operators
        )
    is_clear = any(part.text in _CLEAR or (part.text == "·" and not part.is_spaced) for part in operators)
    return not letters <= _ARTICLES and (is_clear or _is_of_variables(parts, operators))


def _is_of_variables(parts: list[_Part], operators: list[_Part]) -> bool:
    """True for what its form shows to be of variables: f(x), x^2, x² + y, (a + b)/2, a - b."""
    if any(one.text in _FUNCTIONS and two.kind == "open" for one, two in pairwise(parts)):
        return True
    if any(part.text[0] == "^" or (operators and part.kind in ("power", "root")) for part in parts):
        return True
    is_small = any(part.is_letter and not part.text.isupper() for part in parts)
    has_form = (
        len(operators) > 1 or any(part.kind == "close" for part in parts) or any(part.is_spaced for part in operators)
    )
    return bool(operators) and is_small and has_form


def _speak(parts: list[_Part]) -> str:
    has_arrow = any(part.text in _ARROWS for part in parts)
    is_chemical = (has_arrow or len(parts) == 1) and any(
        part.kind == "compound" and not part.is_letter for part in parts
    )
    said: list[str] = []
    brackets: list[str] = []  # what is said at the end of each that is open
    for before, part in zip([None, *parts], parts, strict=False):
        is_argument = before is not None and before.text in _FUNCTIONS
        if part.kind == "bar":
            said.append(_SIGNS["||"])
            brackets.append("")
        elif part.kind == "open":
            said += [_SIGNS["f()"]] if is_argument else ["(" if part.is_first else f"{_SIGNS['×']} ("]
            brackets.append("" if is_argument else ")")
        elif part.kind == "close":
            said.append(brackets.pop())
        elif part.kind == "power":
            said.append(_power(part.text, before is not None and before.kind == "number"))
        else:
            said.append(_word(part, is_chemical))
    return re.sub(r"(?<=\() | (?=\))", "", " ".join(filter(None, said)))


def _word(part: _Part, is_chemical: bool) -> str:
    """The words of an operand or a sign."""
    if part.kind == "number":
        return decimal(part.text)
    if part.kind == "fraction":
        top, _, bottom = part.text.partition("/")
        return fraction(top, bottom)
    if part.kind in ("sign", "root"):
        own = f"{part.text} of compounds" if is_chemical else f" {part.text} " if part.is_spaced else ""
        return _SIGNS.get(own) or _SIGNS[part.text]
    if part.kind == "compound" and (is_chemical or not part.text.isalpha()):
        return _compound(part.text)
    if part.text in _FUNCTIONS:
        return _FUNCTIONS[part.text] or part.text
    if not part.is_letter:
        return part.text
    letters, *index = re.split("_|(?=[₀-₉])", part.text, maxsplit=1)
    return " ".join([*letters, *(_number(below.translate(_PLAIN)) for below in index)])


def _number(written: str) -> str:
    return cardinal(written) if written.isdigit() else written


def _compound(written: str) -> str:
    """Spell a compound: H₂O, SO₄²⁻."""
    plain = re.findall("[A-Za-z]|[0-9₀-₉]+|[²³⁴⁺⁻]", written)
    return " ".join(_SIGNS.get(part) or _number(part.upper().translate(_PLAIN)) for part in plain)


def _power(written: str, is_of_number: bool) -> str:
    exponent = written.removeprefix("^").translate(_PLAIN)
    if exponent in _POWERS and not (is_of_number and written[0] == "^"):
        return _POWERS[exponent]
    if written[0] != "^" and exponent.isdigit():
        return f"to the {ordinal(exponent)}"
    minus = f"{_SIGNS['-']} " if exponent.startswith("-") else ""
    return f"{_SIGNS['^' if written[0] == '^' else '⁰']} {minus}{_number(exponent.removeprefix('-'))}"


# --- LaTeX ---

# Between dollars a formula has a sign of its own, or letters but no word; prices have none: from $5 to $10.
_MARKED = re.compile(
    r"\$\$(?P<display>[^$]{1,1000})\$\$"
    r"|\\\[(?P<block>(?:[^\\]|\\(?![][])){1,1000})\\\]|\\\((?P<inline>(?:[^\\]|\\(?![()])){1,1000})\\\)"  # none in another
    r"|\\begin\{(?:equation|align|gather)\*?\}(?P<environment>(?:[^\\]|\\(?!end)){1,1000})\\end\{\w+\*?\}"
    r"|(?P<bare>\\(?:[dt]?frac\s?\{[^{}]{1,99}\}\s?\{[^{}]{1,99}\}|sqrt\s?\{[^{}]{1,99}\}))"  # without a mark
    r"|(?<![\w\\$])\$(?=\S)(?P<dollars>[^$\n]{1,500})(?<=\S)\$(?![\w$])",
    re.DOTALL,
)
_IS_MARKED = re.compile(r"[\\^_={}+<>|]|\A[^A-Za-z]*(?:[A-Za-z](?![A-Za-z])[^A-Za-z]*)+\Z")
_COMMANDS = readings("command of LaTeX") | {name: sign for sign, name in readings("greek").items() if sign.islower()}
_BIG = readings("big operator of LaTeX")
_ARGUMENTS = re.compile(
    r"\\[dt]?frac\s?\{(?P<top>[^{}]*)\}\s?\{(?P<bottom>[^{}]*)\}|\\sqrt\s?\{(?P<root>[^{}]*)\}"
    r"|\\(?:text[a-z]*|mbox|operatorname|math[a-z]+)\s?\{(?P<text>[^{}]*)\}|(?P<raised>[\^_])\{(?P<argument>[^{}]*)\}"
)


def read_latex(text: str) -> str:
    """Replace the formulas of a text that LaTeX marks by words: those between $, $$, \\( and \\), or \\[ and \\]."""

    def replace(found: re.Match[str]) -> str:
        formula = next(group for group in found.groups() if group is not None)
        return _read_marked(formula) if _IS_MARKED.search(formula) else found[0]  # an escaped bracket is none

    return _MARKED.sub(replace, text) if "$" in text or "\\" in text else text


def _read_marked(written: str) -> str:
    tokens = _tokens(_without_commands(written))
    said, place = [], 0
    while place < len(tokens):
        parts, following = _parse(tokens, place)
        said.append(_speak(parts) if parts else _SIGNS.get(tokens[place][0], tokens[place][0]))
        place = max(following, place + 1)
    return re.sub(r"(?<=\() | (?=[°,.)])", "", " ".join(" ".join(said).split()))


def _without_commands(written: str) -> str:
    """A formula of LaTeX in the signs of the grammar."""
    written = re.sub(r"\\(?:begin|end)\{\w+\*?\}|\\[,;:!{} ]|[&~]", " ", written.replace("\\\\", ", "))
    for _ in range(_DEEPEST):
        shorter = _ARGUMENTS.sub(_without_braces, written)
        if shorter == written:
            break
        written = shorter
    written = re.sub(rf"\\({any_of(_BIG)})(?:_(\([^()]*\)|\S))?(?:\^(\([^()]*\)|\\?\w+))?", _over, written)
    written = re.sub(r"_\(([^()]*)\)", r"\\sub \1 ", written)
    written = re.sub(r"\^\s?\\circ", "°", written).replace("'", r"\prime ")
    written = re.sub("_([0-9])", lambda found: chr(ord("₀") + int(found[1])), written)
    written = re.sub(r"(?<![\\A-Za-z_])[a-z]{2,4}(?![A-Za-z])", lambda found: " ".join(found[0]), written)  # 4ac
    return re.sub(r"\\([A-Za-z]*)|[{}$]", lambda found: f" {_COMMANDS.get(found[1], found[1] or '')} ", written)


def _without_braces(found: re.Match[str]) -> str:
    """A command or a sign whose arguments have no braces of their own."""
    part = {name: written.strip() for name, written in found.groupdict().items() if written is not None}
    if "text" in part:
        return re.sub("[A-Za-z]+", r"\\\g<0> ", part["text"])  # as names of functions
    one, *other = (
        written if re.fullmatch(r"-?\w+", written) else f"({written})"
        for name, written in part.items()
        if name != "raised"
    )
    if other:
        return f" {one}/{other[0]} "
    return f"{part.get('raised', '√')}{one}"


def _over(found: re.Match[str]) -> str:
    """What a sum or a limit is over: from i = 1 to n."""
    low, high = (written and written.strip("()") for written in found.groups()[1:])
    name, first = _BIG[found[1]].split()
    parts = [f"\\{name}", f"\\{first} {low}" if low else "", f"\\to {high}" if high else "", "\\of "]
    return f" {' '.join(filter(None, parts))}"
